//! Writes the qlog files of a run: one for each end of each connection.

use anabranch_proto::event::{Observation, Observer, ObserverFactory, Subject};
use anabranch_proto::qlog::{Header, Qlog};
use anabranch_proto::time::Instant;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The folder for the files of a run.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// The first error.
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Folder {
    /// Creates the folder if it does not exist.
    pub fn make(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self {
            path,
            error: Arc::default(),
        })
    }

    /// The first error, once everything is written.
    pub fn error(&self) -> Option<io::Error> {
        lock(&self.error).take()
    }

    /// Observers that write qlog and pass events on to those of `probe`.
    pub fn beside(&self, probe: ObserverFactory) -> ObserverFactory {
        let folder = self.clone();
        ObserverFactory::from_fn(move |subject| {
            Some(Box::new(Both {
                probe: probe.build(subject),
                qlog: folder.trace(subject),
            }))
        })
    }

    fn trace(&self, subject: &Subject) -> Option<Qlog> {
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
        let file = match File::create(self.path.join(format!("{name}_{side}.sqlog"))) {
            Ok(file) => file,
            Err(error) => {
                lock(&self.error).get_or_insert(error);
                return None;
            }
        };
        let mut out = Out {
            file: BufWriter::new(file),
            folder: self.clone(),
        };
        let header = Header::of(subject, "anabranch");
        Some(Qlog::new(&header, move |record: &[u8]| out.write(record)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file whose errors are kept for later.
#[derive(Debug)]
struct Out {
    file: BufWriter<File>,
    folder: Folder,
}

impl Out {
    fn write(&mut self, record: &[u8]) {
        if let Err(error) = self.file.write_all(record) {
            lock(&self.folder.error).get_or_insert(error);
        }
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Err(error) = self.file.flush() {
            lock(&self.folder.error).get_or_insert(error);
        }
    }
}

#[derive(Debug)]
struct Both {
    probe: Option<Box<dyn Observer>>,
    qlog: Option<Qlog>,
}

impl Observer for Both {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        if let Some(probe) = &mut self.probe {
            probe.observe(now, observation);
        }
        if let Some(qlog) = &mut self.qlog {
            qlog.observe(now, observation);
        }
    }
}
