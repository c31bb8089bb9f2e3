//! Session tickets that the client keeps for this user, so that the next connection to the same
//! server is a round trip shorter. They are in a file beside the client's key.
//!
//! The file holds secrets, so nobody else may read it. It is replaced as a whole. A fault in it
//! costs a round trip and a note, never a transfer.

use crate::output;
use crate::trust::state_directory;
use anabranch_net::engine::ResumptionState;
use anabranch_net::identity::private_directory;
use anabranch_proto::resumption::MAX_STATES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The file's name in the state directory.
const FILE: &str = "tickets.json";
/// The name of its lock, a separate file because the tickets' file is replaced.
const LOCK: &str = "tickets.lock";
/// Tickets kept for one server: as many as one connection leaves. The oldest is dropped.
const PER_SERVER: usize = MAX_STATES;
/// Tickets kept in all.
const IN_ALL: usize = 64;
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// How long to wait for another process to release the lock before doing without tickets.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between two attempts to get it.
const RETRY: Duration = Duration::from_millis(10);

/// A ticket and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Host and port.
    server: String,
    /// When it came, in milliseconds since 1970.
    taken_ms: u64,
    /// The engine's state, in Base64.
    state: String,
}

impl Entry {
    fn state(&self) -> Option<ResumptionState> {
        let bytes = STANDARD_NO_PAD.decode(&self.state).ok()?;
        ResumptionState::decode(&bytes).ok()
    }

    /// How old it is; `None` if it is from the future, because the clock was set.
    fn age(&self, now_ms: u64) -> Option<Duration> {
        now_ms.checked_sub(self.taken_ms).map(Duration::from_millis)
    }
}

/// The tickets of a user.
#[derive(Debug, Clone)]
pub(crate) struct Tickets {
    directory: PathBuf,
    quiet: bool,
}

impl Tickets {
    /// The tickets in the user's state directory, if there is one. Prints nothing if `quiet`.
    pub(crate) fn of_user(quiet: bool) -> Option<Self> {
        let directory = state_directory()?;
        Some(Self { directory, quiet })
    }

    /// Takes the newest ticket for a server that `fits`, with its age. No other process gets the
    /// same one. Blocks on the disk, and for a short time on other processes.
    pub(crate) fn take(
        &self,
        server: &str,
        fits: impl Fn(&ResumptionState) -> bool,
    ) -> Option<(ResumptionState, Duration)> {
        // Most machines have no tickets: then no file is created.
        if !self.directory.join(FILE).exists() {
            return None;
        }
        let mut found = None;
        self.change(|entries, now_ms| {
            for at in (0..entries.len()).rev() {
                if entries[at].server != server {
                    continue;
                }
                let state = entries[at].state().filter(|state| fits(state));
                if let (Some(state), Some(age)) = (state, entries[at].age(now_ms)) {
                    entries.remove(at);
                    found = Some((state, age));
                    return;
                }
            }
        });
        found
    }

    /// Keeps tickets that a server gave. Blocks like [`take`](Self::take).
    pub(crate) fn put(&self, server: &str, states: &[ResumptionState]) {
        if states.is_empty() {
            return;
        }
        // Those that prove the address go last, as the last one is taken first: the server may then
        // send more of its answer at once. Of these the first has the newest token, which may say
        // what the path carried.
        let (proven, others): (Vec<_>, Vec<_>) = states.iter().partition(|state| state.has_token());
        let in_order = others.into_iter().chain(proven.into_iter().rev());
        self.change(|entries, now_ms| {
            entries.extend(in_order.map(|state| Entry {
                server: server.into(),
                taken_ms: now_ms,
                state: STANDARD_NO_PAD.encode(state.encode()),
            }));
            keep_newest(entries, server);
        });
    }

    /// Changes the file while no other process does. A failure is reported and changes nothing.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>, u64)) {
        if let Err(error) = self.try_change(change) {
            let path = self.directory.join(FILE);
            let note = format!("no session can be kept in {}: {error}", path.display());
            // A user who has no place for tickets need not be told by every command.
            if path.exists() {
                self.note(&note);
            } else {
                tracing::info!("{note}");
            }
        }
    }

    fn note(&self, note: &str) {
        if !self.quiet {
            output::say(format!("note: {note}"));
        }
    }

    fn try_change(&self, change: impl FnOnce(&mut Vec<Entry>, u64)) -> io::Result<()> {
        private_directory(&self.directory)?;
        let _lock = lock(private_file(&self.directory.join(LOCK), false)?)?;
        let path = self.directory.join(FILE);
        let now_ms = now_ms();
        let mut entries = self.load(&path)?;
        entries.retain(|entry| {
            let lifetime = entry.state().map(|state| state.lifetime());
            matches!((lifetime, entry.age(now_ms)), (Some(lifetime), Some(age)) if age < lifetime)
        });
        change(&mut entries, now_ms);
        let new = self.directory.join(format!("{FILE}.new"));
        let mut file = private_file(&new, true)?;
        file.write_all(&serde_json::to_vec(&entries)?)?;
        fs::rename(&new, &path)
    }

    /// What the file holds; nothing if it is damaged, which is reported.
    fn load(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
            self.note(&format!(
                "{} is damaged ({error}): the sessions kept there are forgotten",
                path.display()
            ));
            Vec::new()
        }))
    }
}

/// Drops the oldest tickets for `server`, and then the oldest of all, beyond the limits.
fn keep_newest(entries: &mut Vec<Entry>, server: &str) {
    let mut of_server = 0;
    let mut keep: Vec<bool> = entries
        .iter()
        .rev()
        .map(|entry| {
            of_server += usize::from(entry.server == server);
            entry.server != server || of_server <= PER_SERVER
        })
        .collect();
    entries.retain(|_| keep.pop().unwrap_or(false));
    let excess = entries.len().saturating_sub(IN_ALL);
    entries.drain(..excess);
}

/// Waits for a lock, but not forever: somebody may have stopped the process that holds it.
fn lock(mut file: File) -> io::Result<Flock<File>> {
    let started = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((unlocked, Errno::EWOULDBLOCK)) if started.elapsed() < PATIENCE => file = unlocked,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(io::Error::other("another process has its lock"));
            }
            Err((_, error)) => return Err(error.into()),
        }
        sleep(RETRY);
    }
}

/// Opens or creates a file that only its owner may read.
fn private_file(path: &Path, truncate: bool) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(truncate)
        .mode(0o600)
        .open(path)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests;
