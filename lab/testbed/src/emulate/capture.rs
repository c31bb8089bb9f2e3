//! What both ends of a link send and receive, as a pcapng file.
//!
//! A separate thread writes it, since a slow disk must not delay packets. If the thread falls
//! behind by more than [`BACKLOG`] packets, further ones are left out of the file and counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// Packets that may wait to be written.
const BACKLOG: usize = 16_384;

/// Block types and options of draft-ietf-opsawg-pcapng.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_FLAGS: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
/// The time unit: ten to the minus this many seconds.
const NANOSECONDS: u8 = 9;

/// What a host did with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    /// The link delivered it at this end.
    Receive = 1,
    /// It entered the link at this end.
    Send = 2,
}

#[derive(Debug)]
struct Record {
    end: u32,
    did: Did,
    /// Nanoseconds since 1970.
    at: u64,
    frame: Box<[u8]>,
}

/// A file being written.
#[derive(Debug)]
pub(crate) struct Capture {
    records: Option<SyncSender<Record>>,
    writer: Option<JoinHandle<()>>,
    /// The wall-clock time at which the emulator's clock was 0.
    epoch: u64,
    lost: Arc<AtomicU64>,
}

impl Capture {
    /// Creates a file. `names` are the interfaces at both ends.
    pub(crate) fn create(path: &Path, names: [&str; 2], now: u64) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&head(names))?;
        file.flush()?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_nanos() as u64;
        let (records, waiting) = sync_channel(BACKLOG);
        let lost = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&lost);
        let writer = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || write_all(&waiting, file, &missing))?;
        Ok(Self {
            records: Some(records),
            writer: Some(writer),
            epoch: wall.saturating_sub(now),
            lost,
        })
    }

    pub(crate) fn record(&self, end: usize, did: Did, now: u64, frame: &[u8]) {
        let record = Record {
            end: end as u32,
            did,
            at: self.epoch + now,
            frame: frame.into(),
        };
        let sent = self.records.as_ref().map(|to| to.try_send(record));
        if !matches!(sent, Some(Ok(()))) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Packets that are missing from the file.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.records = None;
        if let Some(writer) = self.writer.take() {
            // The thread panics only because of a bug, which the panic has reported.
            let _ = writer.join();
        }
    }
}

/// Writes until all senders are gone. After an error, such as a full disk, it only counts.
fn write_all(records: &Receiver<Record>, mut file: BufWriter<File>, lost: &AtomicU64) {
    let mut written = Ok(());
    while let Ok(record) = records.recv() {
        if written.is_ok() {
            written = file.write_all(&packet(&record));
        }
        if written.is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
    if written.and_then(|()| file.flush()).is_err() {
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// A block: type, length, contents padded to 32 bits, length.
fn block(kind: u32, contents: &[u8]) -> Vec<u8> {
    let padded = contents.len().next_multiple_of(4);
    let length = (padded as u32 + 12).to_le_bytes();
    let mut bytes = Vec::with_capacity(padded + 12);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length);
    bytes.extend(contents);
    bytes.resize(padded + 8, 0);
    bytes.extend(length);
    bytes
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend(code.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Ends a list of options.
const OPTIONS_END: [u8; 4] = [0; 4];

fn head(names: [&str; 2]) -> Vec<u8> {
    let mut section = Vec::new();
    section.extend(BYTE_ORDER_MAGIC.to_le_bytes());
    // Version 1.0, and an unspecified section length.
    section.extend(1_u16.to_le_bytes());
    section.extend(0_u16.to_le_bytes());
    section.extend(u64::MAX.to_le_bytes());
    let mut bytes = block(SECTION_HEADER, &section);
    for name in names {
        let mut interface = Vec::new();
        interface.extend(LINKTYPE_ETHERNET.to_le_bytes());
        // Reserved; no limit to the length of packets.
        interface.extend([0; 6]);
        interface.extend(option(OPTION_NAME, name.as_bytes()));
        interface.extend(option(OPTION_TIME_RESOLUTION, &[NANOSECONDS]));
        interface.extend(OPTIONS_END);
        bytes.extend(block(INTERFACE_DESCRIPTION, &interface));
    }
    bytes
}

fn packet(record: &Record) -> Vec<u8> {
    let length = (record.frame.len() as u32).to_le_bytes();
    let mut contents = Vec::with_capacity(record.frame.len() + 40);
    contents.extend(record.end.to_le_bytes());
    contents.extend(((record.at >> 32) as u32).to_le_bytes());
    contents.extend((record.at as u32).to_le_bytes());
    contents.extend(length);
    contents.extend(length);
    contents.extend(&record.frame);
    contents.resize(contents.len().next_multiple_of(4), 0);
    contents.extend(option(OPTION_FLAGS, &(record.did as u32).to_le_bytes()));
    contents.extend(OPTIONS_END);
    block(ENHANCED_PACKET, &contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_carry_their_length_at_both_ends_and_fill_words() {
        let bytes = block(5, &[1, 2, 3]);
        assert_eq!(bytes, [5, 0, 0, 0, 16, 0, 0, 0, 1, 2, 3, 0, 16, 0, 0, 0]);
        assert_eq!(option(9, &[9]), [9, 0, 1, 0, 9, 0, 0, 0]);
    }

    #[test]
    fn a_full_disk_is_counted_and_holds_up_nobody() {
        let capture = Capture::create(Path::new("/dev/full"), ["a", "b"], 0);
        // Even the header does not fit.
        assert!(capture.is_err());
    }

    #[test]
    fn all_that_was_recorded_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link.pcapng");
        let capture = Capture::create(&path, ["a", "b"], 0).unwrap();
        let head = std::fs::metadata(&path).unwrap().len();
        for at in 0..100 {
            capture.record(1, Did::Send, at, &[7; 60]);
        }
        assert_eq!(capture.lost(), 0);
        drop(capture);
        let each = 12 + 20 + 60 + 8 + 4;
        assert_eq!(std::fs::metadata(&path).unwrap().len(), head + 100 * each);
    }
}
