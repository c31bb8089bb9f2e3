//! What clients may upload to a server.

use crate::files::uploads::Limits;
use crate::output::units::ByteSize;
use clap::Args;
use std::time::Duration;

/// Whether uploads are taken, and how much of them.
#[derive(Debug, Clone, Args)]
pub(crate) struct Uploads {
    /// Take uploads too
    #[arg(long)]
    pub(crate) writable: bool,
    /// Bytes that one connection may upload [default: no limit]
    #[arg(long, value_name = "BYTES", requires = "writable")]
    pub(crate) max_upload: Option<ByteSize>,
    /// Files that one connection may upload, attempts included
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        requires = "writable"
    )]
    pub(crate) max_upload_files: u64,
    /// Uploads at a time, of all clients together
    #[arg(long, value_name = "N", default_value_t = 64, requires = "writable")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(id = "max_uploads", long = "max-uploads")]
    pub(crate) at_once: u32,
    /// Room on the disk that uploads leave free
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "64M",
        requires = "writable"
    )]
    pub(crate) keep_free: ByteSize,
    /// How long an unfinished upload waits for its client to go on, as 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "7d", requires = "writable")]
    #[arg(value_parser = humantime::parse_duration)]
    pub(crate) keep_unfinished: Duration,
}

impl Uploads {
    /// The limits on uploads; `None` if the server accepts none.
    pub(crate) fn limits(&self) -> Option<Limits> {
        self.writable.then(|| Limits {
            bytes: self.max_upload.map_or(u64::MAX, |ByteSize(bytes)| bytes),
            files: self.max_upload_files,
            at_once: self.at_once as usize,
            keep_free: self.keep_free.0,
        })
    }
}
