//! Where qlog traces go: a file for each connection, below a directory of the user's choice.
//!
//! `anabranch_proto::qlog` decides what is in them. A separate thread writes to the disk: a slow
//! disk costs records, which is reported, but never time.

use crate::failure::{Failure, Outcome};
use anabranch_proto::event::{Observation, Observer, ObserverFactory, Subject};
use anabranch_proto::qlog::{Header, Qlog};
use anabranch_proto::time::Instant;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes collected before they are handed to the writing thread.
const BATCH_BYTES: usize = 64 << 10;

/// Batches that may wait for the disk, of all connections together.
const WAITING: usize = 256;

/// The writing thread's mailbox.
static WRITER: OnceLock<SyncSender<Job>> = OnceLock::new();

enum Job {
    Write(Arc<File>, Vec<u8>),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

/// Traces each connection to its own file in `directory`, which is created if needed.
///
/// # Errors
///
/// The directory cannot be created.
pub(crate) fn into_directory(directory: &Path) -> Outcome<ObserverFactory> {
    fs::create_dir_all(directory).map_err(|error| {
        let what = format!("cannot make {}: {error}", directory.display());
        Failure::usage(what).hint("choose another directory with `--qlog DIR`")
    })?;
    let directory = directory.to_owned();
    Ok(ObserverFactory::from_fn(
        move |subject| match Trace::start(&directory, subject) {
            Ok(trace) => Some(Box::new(trace)),
            Err(error) => {
                tracing::warn!("no qlog for a connection: {error}");
                None
            }
        },
    ))
}

/// Waits until all records so far are written.
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
        let thread = std::thread::Builder::new().name("qlog".into());
        if let Err(error) = thread.spawn(move || write_all(&receiver)) {
            tracing::warn!("no qlog: {error}");
        }
        sender
    })
}

fn write_all(jobs: &Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Write(file, batch) => {
                if let Err(error) = (&*file).write_all(&batch) {
                    tracing::warn!("qlog: {error}");
                }
            }
            Job::Flush(done) => {
                // An error means that nobody waits any more.
                let _ = done.send(());
            }
        }
    }
}

/// The observer of one connection: records qlog, and hands over the last batch when it closes.
#[derive(Debug)]
struct Trace {
    qlog: Qlog,
    batch: Arc<Mutex<Batch>>,
}

#[derive(Debug)]
struct Batch {
    file: Arc<File>,
    bytes: Vec<u8>,
    dropped: u64,
}

impl Trace {
    fn start(directory: &Path, subject: &Subject) -> io::Result<Self> {
        let mut name = String::new();
        for byte in subject.original_dcid.as_slice() {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        let side = if subject.side.is_server() {
            "server"
        } else {
            "client"
        };
        let path = directory.join(format!("{name}_{side}.sqlog"));
        let file = File::create(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let batch = Arc::new(Mutex::new(Batch {
            file: Arc::new(file),
            bytes: Vec::new(),
            dropped: 0,
        }));
        let sink = Arc::clone(&batch);
        let qlog = Qlog::new(&Header::of(subject, "anabranch"), move |record: &[u8]| {
            let mut batch = sink.lock().unwrap_or_else(PoisonError::into_inner);
            batch.bytes.extend_from_slice(record);
            if batch.bytes.len() >= BATCH_BYTES {
                batch.hand_over();
            }
        });
        Ok(Self { qlog, batch })
    }

    fn hand_over(&self) {
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        batch.hand_over();
    }
}

impl Batch {
    fn hand_over(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let job = Job::Write(Arc::clone(&self.file), bytes);
        if writer().try_send(job).is_err() {
            self.dropped += 1;
            let count = self.dropped;
            tracing::warn!("qlog: the disk is too slow, {count} batches of records are missing");
        }
    }
}

impl Observer for Trace {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        self.qlog.observe(now, observation);
        // The program may end before the connection is dropped.
        if matches!(observation, Observation::Closed { .. }) {
            self.hand_over();
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::datagram::{SocketId, Tuple};
    use anabranch_proto::wire::{ConnectionId, Side};

    fn subject() -> Subject {
        Subject {
            side: Side::Client,
            original_dcid: ConnectionId::new(&[0xab; 8]).unwrap(),
            tuple: Tuple {
                socket: SocketId(0),
                local: None,
                remote: ([127, 0, 0, 1], 1).into(),
            },
            began: Instant::from_nanos(0),
        }
    }

    #[test]
    fn a_connection_gets_a_file_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let factory = into_directory(&directory.path().join("new")).unwrap();
        let mut observer = factory.build(&subject()).unwrap();
        observer.observe(Instant::from_nanos(1), &Observation::HandshakeConfirmed);
        drop(observer);
        flush();
        let path = directory.path().join("new/abababababababab_client.sqlog");
        let text = fs::read_to_string(path).unwrap();
        assert!(text.split('\x1e').count() >= 2, "{text}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_told_at_once() {
        let failure = into_directory(Path::new("/proc/no/logs")).unwrap_err();
        assert!(failure.report().unwrap().contains("--qlog"));
    }
}
