//! The archive that a kernel unpacks when it starts: cpio in the format `newc`
//! (Documentation/driver-api/early-userspace/buffer-format.rst in the kernel's tree).
//!
//! Written by hand: the format is a header of thirteen numbers, and each crate that writes it pulls
//! in a compressor. The archive is not compressed, which would take longer than it saves.

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Writes entries one after another.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    out: W,
    written: u64,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            written: 0,
            inode: 0,
        }
    }

    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY, (0, 0), &[])
    }

    /// Adds a file with the permissions `mode`.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, FILE | (mode & 0o777), (0, 0), content)
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, LINK, (0, 0), target.as_bytes())
    }

    pub(crate) fn device(&mut self, path: &str, number: (u32, u32)) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE, number, &[])
    }

    /// Adds the end mark, without which the kernel complains.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.out)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        self.inode += 1;
        let name = path.trim_start_matches('/');
        let too_long = || io::Error::new(io::ErrorKind::FileTooLarge, "4 GiB is the most");
        let size = u32::try_from(content.len()).map_err(|_| too_long())?;
        let name_size = u32::try_from(name.len() + 1).map_err(|_| too_long())?;
        let (major, minor) = device;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // Magic; inode, mode, user, group, links, time, size, device that holds it, device that it
        // is, length of the name, checksum (unused).
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(content)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Pads to a multiple of four bytes, where names and contents end.
    fn pad(&mut self) -> io::Result<()> {
        let missing = (4 - self.written % 4) % 4;
        self.put(&[0; 3][..missing as usize])
    }
}
