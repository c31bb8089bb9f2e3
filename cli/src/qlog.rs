//! Puts the engine's qlog into files: one JSON text sequence (`.sqlog`) for each connection.
//!
//! A thread of its own writes to the disk: a slow disk costs records, which are counted, and never
//! time on the thread that moves packets.

use crate::failure::{Failure, Outcome};
use anabranch_proto::event::{Observer, ObserverFactory, Subject};
use anabranch_proto::qlog::{Header, Qlog, Sink};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Bytes collected before they are handed to the writing thread.
const BATCH_BYTES: usize = 64 << 10;

/// Batches that may wait for the disk, of all connections together.
const WAITING: usize = 256;

/// The writing thread's mailbox.
static WRITER: OnceLock<SyncSender<Job>> = OnceLock::new();

enum Job {
    Write(Arc<File>, Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Records every connection from its first packet on, in a file of its own below `directory`.
///
/// # Errors
///
/// The directory cannot be made or written to.
pub(crate) fn observer(directory: &Path) -> Outcome<ObserverFactory> {
    let refused = |error: std::io::Error| {
        Failure::usage(format!("cannot write qlog to {}: {error}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(refused)?;
    // Found out now, and not when the first connection has begun.
    let probe = directory.join(".anabranch-qlog");
    File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(refused)?;
    let directory = directory.to_path_buf();
    Ok(ObserverFactory::from_fn(move |subject| record(&directory, subject)))
}

fn record(directory: &Path, subject: &Subject) -> Option<Box<dyn Observer>> {
    let side = if subject.side.is_server() { "server" } else { "client" };
    let path = directory.join(format!("{}_{side}.sqlog", subject.original_dcid));
    match File::create(&path) {
        Ok(file) => {
            let log = Log { file: Arc::new(file), batch: Vec::new(), dropped: 0 };
            let header = Header::of(subject, "anabranch");
            Some(Box::new(Qlog::new(&header, log)))
        }
        Err(error) => {
            tracing::warn!("no qlog at {}: {error}", path.display());
            None
        }
    }
}

/// Waits until what was recorded is written.
pub(crate) fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (done, wait) = sync_channel(1);
    if writer.send(Job::Flush(done)).is_ok() {
        // An error means that the thread is gone, and nothing more will be written.
        let _ = wait.recv();
    }
}

fn writer() -> &'static SyncSender<Job> {
    WRITER.get_or_init(|| {
        let (sender, receiver) = sync_channel(WAITING);
        // Without the thread the first batch is dropped and counted like all others.
        let _ = std::thread::Builder::new().name("qlog".into()).spawn(|| write_all(receiver));
        sender
    })
}

fn write_all(jobs: Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Write(file, records) => {
                if let Err(error) = (&*file).write_all(&records) {
                    tracing::warn!("qlog: {error}");
                }
            }
            Job::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// The records of one connection on their way to its file.
#[derive(Debug)]
struct Log {
    file: Arc<File>,
    batch: Vec<u8>,
    dropped: u64,
}

impl Log {
    fn hand_over(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if writer().try_send(Job::Write(Arc::clone(&self.file), batch)).is_err() {
            self.dropped += 1;
            tracing::warn!("qlog: the disk is too slow, {} batches are missing", self.dropped);
        }
    }
}

impl Sink for Log {
    fn write(&mut self, record: &[u8]) {
        self.batch.extend_from_slice(record);
        if self.batch.len() >= BATCH_BYTES {
            self.hand_over();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.hand_over();
    }
}
