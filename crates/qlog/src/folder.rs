//! Traces in files: a folder that gets one for each connection and side.
//!
//! A thread of its own writes to the disk, so that a slow one does not delay connections. How much
//! may wait for it is bounded; beyond that [`WhenSlow`] decides.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anabranch_proto::event::{Observation, Observer, ObserverFactory, Subject};
use anabranch_proto::time::Instant;

use crate::{Header, Qlog};

/// Bytes of a connection that are collected before they are handed to the writing thread.
const BATCH_BYTES: usize = 64 << 10;

/// Batches that may wait for the disk, of all connections together.
const WAITING: usize = 256;

/// What becomes of records that the disk is too slow for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenSlow {
    /// The connection waits: traces are complete, and no connection runs on time. For simulations.
    Wait,
    /// Records are left out, which is logged: traces have gaps, and every connection runs on time.
    Drop,
}

/// A folder of traces, one file for each connection and side: `DCID_SIDE.sqlog`, where `DCID` is
/// the original destination connection ID. Clones are the same folder.
///
/// The first error is logged and kept. Once the last clone and the last `Trace` are dropped,
/// everything is written.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    title: String,
    when_slow: WhenSlow,
    disk: Arc<Disk>,
}

impl Folder {
    /// Creates the folder if it does not exist. `title` is for the readers of its traces: the
    /// program, or the run.
    ///
    /// # Errors
    /// The folder cannot be created, or the thread that writes.
    pub fn create(path: &Path, title: &str, when_slow: WhenSlow) -> io::Result<Self> {
        fs::create_dir_all(path).map_err(|error| named(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            title: title.to_owned(),
            when_slow,
            disk: Arc::new(Disk::start()?),
        })
    }

    /// Observers that write traces.
    #[must_use]
    pub fn observers(&self) -> ObserverFactory {
        let folder = self.clone();
        ObserverFactory::from_fn(move |subject| {
            let trace = folder.trace(subject)?;
            Some(Box::new(trace))
        })
    }

    /// Observers that write traces and pass observations on to those of `others`.
    #[must_use]
    pub fn beside(&self, others: ObserverFactory) -> ObserverFactory {
        let folder = self.clone();
        ObserverFactory::from_fn(move |subject| {
            Some(Box::new(Both {
                other: others.build(subject),
                trace: folder.trace(subject),
            }))
        })
    }

    /// Starts the trace of a connection; `None` if its file cannot be made.
    fn trace(&self, subject: &Subject) -> Option<Trace> {
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
        let path = self.path.join(format!("{name}_{side}.sqlog"));
        match File::create(&path) {
            Ok(file) => Some(Trace::start(self, subject, file)),
            Err(error) => {
                self.disk.trouble.keep(named(&path, &error));
                None
            }
        }
    }

    /// Waits until everything that was handed over so far is written. A connection hands over its
    /// last records when it closes or is dropped.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.disk.send(Job::Flush(done)) {
            // An error means that the thread is gone, and nothing more will be written.
            let _ = wait.recv();
        }
    }

    /// The first error, after a [`Self::flush`]. It is told once.
    pub fn error(&self) -> Option<io::Error> {
        self.flush();
        self.disk.trouble.lock().take()
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The first error of a folder.
#[derive(Debug, Clone, Default)]
struct Trouble(Arc<Mutex<Option<io::Error>>>);

impl Trouble {
    fn lock(&self) -> MutexGuard<'_, Option<io::Error>> {
        lock(&self.0)
    }

    fn keep(&self, error: io::Error) {
        let mut first = self.lock();
        if first.is_none() {
            tracing::warn!("qlog: {error}");
            *first = Some(error);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Job {
    Write(Arc<File>, Vec<u8>),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

/// The thread that writes; dropping it waits for the end of its work.
#[derive(Debug)]
struct Disk {
    /// Gone only while it is dropped.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    trouble: Trouble,
}

impl Disk {
    fn start() -> io::Result<Self> {
        let trouble = Trouble::default();
        let (jobs, received) = sync_channel(WAITING);
        let shared = trouble.clone();
        let thread = std::thread::Builder::new().name("qlog".into());
        let thread = thread.spawn(move || write_all(&received, &shared))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            trouble,
        })
    }

    /// Hands over a job, after a wait if there is no room; false if the thread is gone.
    fn send(&self, job: Job) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Hands over a job if there is room for it.
    fn try_send(&self, job: Job) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

fn write_all(jobs: &Receiver<Job>, trouble: &Trouble) {
    for job in jobs {
        match job {
            Job::Write(file, batch) => {
                if let Err(error) = (&*file).write_all(&batch) {
                    trouble.keep(error);
                }
            }
            Job::Flush(done) => {
                // An error means that nobody waits any more.
                let _ = done.send(());
            }
        }
    }
}

/// The observer of one connection: writes qlog, and hands over the last batch when it closes.
#[derive(Debug)]
struct Trace {
    qlog: Qlog,
    batch: Arc<Mutex<Batch>>,
}

#[derive(Debug)]
struct Batch {
    file: Arc<File>,
    bytes: Vec<u8>,
    when_slow: WhenSlow,
    dropped: u64,
    disk: Arc<Disk>,
}

impl Trace {
    fn start(folder: &Folder, subject: &Subject, file: File) -> Self {
        let batch = Arc::new(Mutex::new(Batch {
            file: Arc::new(file),
            bytes: Vec::new(),
            when_slow: folder.when_slow,
            dropped: 0,
            disk: Arc::clone(&folder.disk),
        }));
        let sink = Arc::clone(&batch);
        let header = Header::of(subject, folder.title.as_str());
        let qlog = Qlog::new(&header, move |record: &[u8]| {
            let mut batch = lock(&sink);
            batch.bytes.extend_from_slice(record);
            if batch.bytes.len() >= BATCH_BYTES {
                batch.hand_over();
            }
        });
        Self { qlog, batch }
    }
}

impl Batch {
    fn hand_over(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let job = Job::Write(Arc::clone(&self.file), bytes);
        let sent = match self.when_slow {
            WhenSlow::Wait => self.disk.send(job),
            WhenSlow::Drop => self.disk.try_send(job),
        };
        if !sent {
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
            lock(&self.batch).hand_over();
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        lock(&self.batch).hand_over();
    }
}

/// Both see everything.
#[derive(Debug)]
struct Both {
    other: Option<Box<dyn Observer>>,
    trace: Option<Trace>,
}

impl Observer for Both {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        if let Some(other) = &mut self.other {
            other.observe(now, observation);
        }
        if let Some(trace) = &mut self.trace {
            trace.observe(now, observation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::datagram::{SocketId, Tuple};
    use anabranch_proto::wire::{ConnectionId, Side};

    const NAME: &str = "abababababababab_client.sqlog";

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

    fn confirmed(observer: &mut dyn Observer, at: u64) {
        observer.observe(Instant::from_nanos(at), &Observation::HandshakeConfirmed);
    }

    #[test]
    fn a_connection_gets_a_file_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new");
        let folder = Folder::create(&path, "test", WhenSlow::Drop).unwrap();
        let mut observer = folder.observers().build(&subject()).unwrap();
        confirmed(&mut *observer, 1);
        drop(observer);
        folder.flush();
        let text = fs::read_to_string(path.join(NAME)).unwrap();
        assert!(text.split('\x1e').count() >= 2, "{text}");
        assert!(folder.error().is_none());
    }

    #[test]
    fn a_folder_that_waits_loses_no_record() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::create(directory.path(), "test", WhenSlow::Wait).unwrap();
        let mut observer = folder.observers().build(&subject()).unwrap();
        drop(folder);
        // More than may wait for the disk.
        let events = 2 * WAITING * BATCH_BYTES / 100;
        for at in 0..events {
            confirmed(&mut *observer, at as u64);
        }
        // The folder is gone: dropping the last trace waits for the disk.
        drop(observer);
        let text = fs::read_to_string(directory.path().join(NAME)).unwrap();
        assert!(text.len() > WAITING * BATCH_BYTES, "{}", text.len());
        assert_eq!(text.matches('\x1e').count(), 1 + events);
    }

    #[test]
    fn the_first_error_is_kept_and_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::create(directory.path(), "test", WhenSlow::Wait).unwrap();
        fs::create_dir(directory.path().join(NAME)).unwrap();
        assert!(folder.observers().build(&subject()).is_none());
        assert!(folder.error().unwrap().to_string().contains(NAME));
        assert!(folder.error().is_none());
    }

    #[test]
    fn other_observers_see_what_a_trace_sees() {
        #[derive(Debug)]
        struct Count(Arc<Mutex<u32>>);
        impl Observer for Count {
            fn observe(&mut self, _: Instant, _: &Observation<'_>) {
                *lock(&self.0) += 1;
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::create(directory.path(), "test", WhenSlow::Wait).unwrap();
        let seen = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&seen);
        let count = move |_: &Subject| {
            let one = Count(Arc::clone(&counted));
            Some(Box::new(one) as Box<dyn Observer>)
        };
        let both = folder.beside(ObserverFactory::from_fn(count));
        let mut observer = both.build(&subject()).unwrap();
        confirmed(&mut *observer, 1);
        assert_eq!(*lock(&seen), 1);
        drop(observer);
        folder.flush();
        assert!(directory.path().join(NAME).exists());
    }
}
