//! What this user's client keeps of its connections, so that the next one to the same server is a
//! round trip shorter: a file beside the client's key.
//!
//! The file holds secrets, so nobody else may read it. It is replaced as a whole. What is wrong
//! with it costs a round trip and a note, never a transfer.

use crate::output;
use crate::trust::state_directory;
use anabranch_net::engine::ResumptionState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file's name in the state directory.
const FILE: &str = "tickets.json";
/// Its lock's: the file itself is replaced.
const LOCK: &str = "tickets.lock";
/// Tickets kept for one server; the oldest goes.
const PER_SERVER: usize = 4;
/// Tickets kept in all.
const IN_ALL: usize = 64;
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

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

    /// How old it is; `None` if it comes from the future: the clock was set.
    fn age(&self, now_ms: u64) -> Option<Duration> {
        now_ms.checked_sub(self.taken_ms).map(Duration::from_millis)
    }
}

/// The tickets of a user.
#[derive(Debug, Clone)]
pub(crate) struct Tickets {
    directory: PathBuf,
}

impl Tickets {
    /// Those in the user's state directory, if there is one.
    pub(crate) fn of_user() -> Option<Self> {
        state_directory().map(Self::in_directory)
    }

    fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Takes the newest ticket for a server that `fits`, and its age. Nobody else gets it then.
    pub(crate) fn take(
        &self,
        server: &str,
        fits: impl Fn(&ResumptionState) -> bool,
    ) -> Option<(ResumptionState, Duration)> {
        // Most machines have none: then nothing is made.
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

    /// Keeps tickets that a server gave.
    pub(crate) fn put(&self, server: &str, states: &[ResumptionState]) {
        if states.is_empty() {
            return;
        }
        self.change(|entries, now_ms| {
            entries.extend(states.iter().map(|state| Entry {
                server: server.into(),
                taken_ms: now_ms,
                state: STANDARD_NO_PAD.encode(state.encode()),
            }));
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
        });
    }

    /// Changes the file while no other process does. A failure is told and changes nothing.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>, u64)) {
        if let Err(error) = self.try_change(change) {
            let place = self.directory.join(FILE);
            output::say(format!(
                "note: no session can be kept in {}: {error}",
                place.display()
            ));
        }
    }

    fn try_change(&self, change: impl FnOnce(&mut Vec<Entry>, u64)) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let lock = private_file(&self.directory.join(LOCK), false)?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive)
            .map_err(|(_, error)| io::Error::from(error))?;
        let path = self.directory.join(FILE);
        let now_ms = now_ms();
        let mut entries = load(&path)?;
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
}

/// What the file holds; nothing if it is damaged, which is told.
fn load(path: &Path) -> io::Result<Vec<Entry>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
        output::say(format!(
            "note: {} is damaged ({error}): the sessions kept there are forgotten",
            path.display()
        ));
        Vec::new()
    }))
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
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tickets() -> (tempfile::TempDir, Tickets) {
        let directory = tempfile::tempdir().unwrap();
        let tickets = Tickets::in_directory(directory.path().join("state"));
        (directory, tickets)
    }

    #[test]
    fn a_damaged_file_is_ignored_and_replaced() {
        let (_guard, tickets) = tickets();
        fs::create_dir_all(&tickets.directory).unwrap();
        fs::write(tickets.directory.join(FILE), "{ half").unwrap();
        assert!(tickets.take("h:1", |_| true).is_none());
        let left = fs::read_to_string(tickets.directory.join(FILE)).unwrap();
        assert_eq!(left, "[]");
    }

    #[test]
    fn entries_that_are_no_states_are_dropped() {
        let (_guard, tickets) = tickets();
        fs::create_dir_all(&tickets.directory).unwrap();
        let entry = r#"[{"server":"h:1","taken_ms":0,"state":"AAAA"}]"#;
        fs::write(tickets.directory.join(FILE), entry).unwrap();
        assert!(tickets.take("h:1", |_| true).is_none());
    }

    #[test]
    fn nobody_else_can_read_what_is_kept() {
        let (_guard, tickets) = tickets();
        tickets.try_change(|_, _| {}).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&tickets.directory.join(FILE)), 0o600);
        assert_eq!(mode(&tickets.directory), 0o700);
    }

    #[test]
    fn where_no_file_is_none_is_made_to_look() {
        let (_guard, tickets) = tickets();
        assert!(tickets.take("h:1", |_| true).is_none());
        assert!(!tickets.directory.exists());
    }
}
