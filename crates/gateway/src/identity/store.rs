//! What a server keeps: whom it let in, and whom it invited.

use super::file::{self, FileError};
use super::secret::{Digest, Secret};
use super::{NAME_CHARS, now, plain_name};
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The file's name in the state directory.
const FILE: &str = "tunnel-clients.json";
/// Its lock, a separate file because the other one is replaced.
const LOCK: &str = "tunnel-clients.lock";
/// How long an invitation waits to be used, in seconds: a week.
const INVITED_FOR: u64 = 7 * 24 * 3600;
/// Invitations that wait at a time; the oldest is dropped.
const MAX_INVITATIONS: usize = 256;
/// Clients let in. A file of as many is one that is read again.
const MAX_CLIENTS: usize = 100_000;

/// The ID of a client within one server: the hash of its credential. People are shown the beginning
/// of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientId(Digest);

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.short())
    }
}

/// A client that was let in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Client {
    /// What it calls itself.
    pub name: String,
    /// When it came in, in seconds since 1970.
    pub first_seen: u64,
    /// When it was last heard of.
    pub last_seen: u64,
    /// Bytes of payload it sent through this server.
    pub up: u64,
    /// Bytes of payload it got.
    pub down: u64,
    /// The number of its addresses in the pools, once it has asked for some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<u32>,
}

impl Client {
    fn new(name: String, now: u64) -> Self {
        Self {
            name,
            first_seen: now,
            last_seen: now,
            up: 0,
            down: 0,
            lease: None,
        }
    }
}

/// An invitation that waits: one that was used is struck off.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Invitation {
    digest: Digest,
    /// In seconds since 1970.
    expires: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Content {
    clients: BTreeMap<ClientId, Client>,
    // Under `invitations`, earlier versions also kept those that were used.
    #[serde(default)]
    waiting: Vec<Invitation>,
}

/// Why nobody was let in.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The invitation is unknown or expired, or another client has used it.
    #[error("no such invitation, or it was used, or it has expired")]
    Unknown,
    /// As many clients are let in as there may be.
    #[error("{MAX_CLIENTS} clients are let in already")]
    Full,
    /// The store cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why no client was added.
#[derive(Debug, thiserror::Error)]
pub enum NotAdded {
    /// The name could not be shown, or not as it is.
    #[error(
        "`{0}` is no name for a client: name it by up to {NAME_CHARS} letters, digits, blanks \
         inside, and any of `.-_@`"
    )]
    Name(String),
    /// There is one of this name.
    #[error(
        "a client is called `{0}` already: take another name, or `anabranch tunnel clients \
         revoke` that one first"
    )]
    Taken(String),
    /// As many clients are let in as there may be.
    #[error("{MAX_CLIENTS} clients are let in already: `anabranch tunnel clients revoke` some")]
    Full,
    /// The store cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why no client was revoked.
#[derive(Debug, thiserror::Error)]
pub enum NotRevoked {
    /// No client has this name or number.
    #[error("no client is called `{0}`, nor has this number: see `anabranch tunnel clients`")]
    None(String),
    /// There are several of this name or number.
    #[error(
        "{1} clients are called `{0}`: name one by its number, see `anabranch tunnel clients`; \
         more digits of it are in {FILE}"
    )]
    Several(String, usize),
    /// The store cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The clients and invitations of a server. One process uses them at a time.
///
/// What changes the file takes as long as the disk does; what only looks takes moments, whoever
/// changes something meanwhile.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// What counts. Held for moments only, as each request needs it.
    content: Mutex<Content>,
    /// Held by the one change that is being written.
    changing: Mutex<()>,
    _lock: Flock<File>,
}

impl Store {
    /// Opens the store in a state directory, which is created if missing.
    ///
    /// # Errors
    ///
    /// The file cannot be used, or another process uses it.
    pub fn open(directory: &Path) -> Result<Self, FileError> {
        file::directory(directory)?;
        let lock = file::lock(&directory.join(LOCK), Duration::ZERO)?;
        let path = directory.join(FILE);
        Ok(Self {
            content: Mutex::new(file::read(&path)?),
            changing: Mutex::default(),
            path,
            _lock: lock,
        })
    }

    /// An invitation for one client.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    pub fn invite(&self) -> Result<Secret, FileError> {
        let invitation = Secret::invitation().map_err(|error| self.failed(error))?;
        let now = now();
        self.change(|content| {
            content.waiting.retain(|one| one.expires > now);
            let excess = (content.waiting.len() + 1).saturating_sub(MAX_INVITATIONS);
            content.waiting.drain(..excess);
            content.waiting.push(Invitation {
                digest: invitation.digest(),
                expires: now + INVITED_FOR,
            });
            Ok::<_, FileError>(())
        })?;
        Ok(invitation)
    }

    /// Lets a client in for an invitation, under this name. From then on its credential counts; one
    /// that counts already needs no invitation.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    pub fn redeem(
        &self,
        invitation: &Secret,
        credential: &Secret,
        name: &str,
    ) -> Result<ClientId, Refused> {
        let (digest, now) = (invitation.digest(), now());
        let find = |content: &Content| {
            let is_it = |one: &Invitation| one.digest == digest && one.expires > now;
            content.waiting.iter().position(is_it)
        };
        let id = ClientId(credential.digest());
        if self.has(&id) {
            return Ok(id);
        }
        // Guessing must not make us copy everything each time.
        find(&self.lock()).ok_or(Refused::Unknown)?;
        self.change(|content| {
            if content.clients.contains_key(&id) {
                // It asked twice at once.
                return Ok(id.clone());
            }
            let found = find(content).ok_or(Refused::Unknown)?;
            if content.clients.len() >= MAX_CLIENTS {
                return Err(Refused::Full);
            }
            content.waiting.remove(found);
            let client = Client::new(plain_name(name), now);
            content.clients.insert(id.clone(), client);
            Ok(id.clone())
        })
    }

    /// Lets a client in that was not invited, and returns the credential that it is to show. This
    /// is the only time that anybody sees it: only its hash is kept.
    ///
    /// # Errors
    ///
    /// See [`NotAdded`].
    pub fn add(&self, name: &str) -> Result<(ClientId, Secret), NotAdded> {
        // A name is used to revoke, so it is taken as it is or not at all.
        if plain_name(name) != name {
            return Err(NotAdded::Name(name.into()));
        }
        let credential = Secret::credential().map_err(|error| self.failed(error))?;
        let (id, now) = (ClientId(credential.digest()), now());
        self.change(|content| {
            if content.clients.values().any(|client| client.name == name) {
                return Err(NotAdded::Taken(name.into()));
            }
            if content.clients.len() >= MAX_CLIENTS {
                return Err(NotAdded::Full);
            }
            let client = Client::new(name.into(), now);
            content.clients.insert(id.clone(), client);
            Ok(())
        })?;
        Ok((id, credential))
    }

    /// Whose credential this is.
    pub fn authenticate(&self, credential: &Secret) -> Option<ClientId> {
        let id = ClientId(credential.digest());
        self.lock().clients.get_mut(&id)?.last_seen = now();
        Some(id)
    }

    /// Forgets a client, called by its number or name.
    ///
    /// # Errors
    ///
    /// There is not exactly one, or that cannot be written down.
    pub fn revoke(&self, called: &str) -> Result<ClientId, NotRevoked> {
        self.change(|content| {
            let id = find(&content.clients, called)?;
            content.clients.remove(&id);
            Ok(id)
        })
    }

    /// The clients, in the order they came in.
    pub fn clients(&self) -> Vec<(ClientId, Client)> {
        let content = self.lock();
        let entries = content.clients.iter();
        let mut all: Vec<_> = entries.map(|(id, one)| (id.clone(), one.clone())).collect();
        all.sort_by_key(|(_, client)| client.first_seen);
        all
    }

    /// Whether a client is one of them.
    pub(crate) fn has(&self, id: &ClientId) -> bool {
        self.lock().clients.contains_key(id)
    }

    /// The number of a client's addresses, which it keeps for as long as it is let in. `None` if
    /// all in this range are taken, or there is no such client.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    pub(crate) fn lease(
        &self,
        id: &ClientId,
        range: &RangeInclusive<u32>,
    ) -> Result<Option<u32>, FileError> {
        let current = |content: &Content| content.clients.get(id).map(|client| client.lease);
        let is_good = |lease: &u32| range.contains(lease);
        match current(&self.lock()) {
            None => return Ok(None),
            Some(lease) if lease.as_ref().is_some_and(is_good) => return Ok(lease),
            Some(_) => {}
        }
        self.change(|content| {
            // It may have asked twice at once.
            let before = current(content).flatten().filter(is_good);
            if before.is_some() {
                return Ok(before);
            }
            let others = content.clients.iter().filter(|(other, _)| *other != id);
            let taken: BTreeSet<u32> = others.filter_map(|(_, client)| client.lease).collect();
            let free = free(&taken, range);
            if let Some(client) = content.clients.get_mut(id) {
                client.lease = free;
            }
            Ok(free)
        })
    }

    /// Adds to what a client moved. It is written down with the next change, or by
    /// [`save`](Self::save).
    pub fn count(&self, id: &ClientId, up: u64, down: u64) {
        let mut content = self.lock();
        if let Some(client) = content.clients.get_mut(id) {
            client.up += up;
            client.down += down;
            client.last_seen = now();
        }
    }

    /// Writes everything down.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self) -> Result<(), FileError> {
        self.change(|_| Ok(()))
    }

    /// Changes the file, and the content once that is written. If one fails, nothing has changed.
    ///
    /// Waits for the disk and for other changes, so it belongs on a thread that may.
    fn change<T, E: From<FileError>>(
        &self,
        change: impl Fn(&mut Content) -> Result<T, E>,
    ) -> Result<T, E> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = self.lock().clone();
        change(&mut written)?;
        file::replace(&self.path, &written)?;
        // What clients moved meanwhile is in the content alone; who they are has not changed.
        change(&mut self.lock())
    }

    fn failed(&self, error: io::Error) -> FileError {
        FileError::Io {
            path: self.path.clone(),
            error,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number that is not taken: one that nobody has had for long, so that what is still under way to
/// its last owner does not reach the next.
fn free(taken: &BTreeSet<u32>, range: &RangeInclusive<u32>) -> Option<u32> {
    let behind = taken
        .range(range.clone())
        .next_back()
        .map_or(*range.start(), |last| last + 1);
    let behind = Some(behind).filter(|number| range.contains(number));
    behind.or_else(|| range.clone().find(|number| !taken.contains(number)))
}

fn find(clients: &BTreeMap<ClientId, Client>, called: &str) -> Result<ClientId, NotRevoked> {
    let numbered: Vec<_> = clients.keys().filter(|id| id.0.is_called(called)).collect();
    let named = || {
        let named = clients.iter().filter(|(_, client)| client.name == called);
        named.map(|(id, _)| id).collect()
    };
    // Nobody can take the number of another one for a name and be spared for it.
    let found = if numbered.is_empty() {
        named()
    } else {
        numbered
    };
    match *found {
        [id] => Ok(id.clone()),
        [] => Err(NotRevoked::None(called.into())),
        ref several => Err(NotRevoked::Several(called.into(), several.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        (directory, store)
    }

    fn credential() -> Secret {
        Secret::credential().unwrap()
    }

    #[test]
    fn an_invitation_lets_one_client_in_however_often_it_asks() {
        let (_directory, store) = store();
        let invitation = store.invite().unwrap();
        let (first, second) = (credential(), credential());
        assert_eq!(store.authenticate(&first), None);
        let id = store.redeem(&invitation, &first, "van").unwrap();
        let again = store.redeem(&invitation, &first, "van").unwrap();
        assert_eq!((Some(id.clone()), id), (store.authenticate(&first), again));
        let other = store.redeem(&invitation, &second, "thief");
        assert!(matches!(other, Err(Refused::Unknown)), "{other:?}");
        assert_eq!(store.authenticate(&second), None);
        assert_eq!(store.clients().len(), 1);
    }

    #[test]
    fn who_was_let_in_is_known_after_a_restart_and_by_no_secret_in_the_file() {
        let (directory, store) = store();
        let (invitation, shown) = (store.invite().unwrap(), credential());
        let id = store.redeem(&invitation, &shown, "a\u{1b}[31mb").unwrap();
        store.count(&id, 5, 7);
        store.save().unwrap();
        assert!(matches!(
            Store::open(directory.path()),
            Err(FileError::InUse { .. })
        ));
        drop(store);
        let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(!text.contains(shown.as_str()) && !text.contains(invitation.as_str()));
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.authenticate(&shown), Some(id));
        let client = &store.clients()[0].1;
        assert_eq!((client.up, client.down, &*client.name), (5, 7, "a31mb"));
    }

    #[test]
    fn a_client_keeps_its_addresses_over_restarts_and_a_freed_number_is_taken_last() {
        let (directory, store) = store();
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            let invitation = store.invite().unwrap();
            ids.push(store.redeem(&invitation, &credential(), name).unwrap());
        }
        let lease = |store: &Store, at: usize| store.lease(&ids[at], &(2..=4)).unwrap();
        assert_eq!((lease(&store, 0), lease(&store, 1)), (Some(2), Some(3)));
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        assert_eq!((lease(&store, 1), lease(&store, 0)), (Some(3), Some(2)));
        store.revoke("a").unwrap();
        assert_eq!((lease(&store, 2), lease(&store, 0)), (Some(4), None));
        // A smaller pool.
        assert_eq!(store.lease(&ids[1], &(2..=2)).unwrap(), Some(2));
        assert_eq!(store.lease(&ids[2], &(2..=2)).unwrap(), None);
    }

    #[test]
    fn a_client_that_is_revoked_gets_in_no_more() {
        let (_directory, store) = store();
        let (invitation, shown) = (store.invite().unwrap(), credential());
        store.redeem(&invitation, &shown, "van").unwrap();
        assert!(matches!(store.revoke("car"), Err(NotRevoked::None(_))));
        let id = store.authenticate(&shown);
        assert_eq!(store.revoke("van").ok(), id);
        assert_eq!(store.authenticate(&shown), None);
        let again = store.redeem(&invitation, &shown, "van");
        assert!(matches!(again, Err(Refused::Unknown)), "{again:?}");
    }

    #[test]
    fn a_client_that_is_added_gets_in_by_a_credential_that_no_file_has() {
        let (directory, store) = store();
        let (id, shown) = store.add("router 7").unwrap();
        assert_eq!(store.authenticate(&shown), Some(id.clone()));
        drop(store);
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert!(!text.contains(shown.as_str()), "{text}");
        }
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(store.authenticate(&shown), Some(id.clone()));
        assert_eq!(store.clients()[0].1.name, "router 7");
        assert_eq!(store.revoke("router 7").ok(), Some(id));
        assert_eq!(store.authenticate(&shown), None);
    }

    #[test]
    fn a_client_is_added_by_a_name_of_its_own_that_can_be_shown() {
        let (_directory, store) = store();
        store.add("van").unwrap();
        let again = store.add("van").unwrap_err();
        assert!(matches!(again, NotAdded::Taken(_)), "{again}");
        for name in ["", " van", "a\u{1b}[31m", "a/b", &"x".repeat(65)] {
            let refused = store.add(name).unwrap_err();
            assert!(matches!(refused, NotAdded::Name(_)), "{refused}");
        }
        assert_eq!(store.clients().len(), 1);
        std::fs::create_dir(store.path.with_extension("json.new")).unwrap();
        let failed = store.add("car").unwrap_err();
        assert!(matches!(failed, NotAdded::File(_)), "{failed}");
        assert_eq!(
            store.clients().len(),
            1,
            "who is not written down is not in"
        );
    }

    #[test]
    fn of_several_clients_with_one_name_none_is_revoked_by_it() {
        let (_directory, store) = store();
        for _ in 0..2 {
            let invitation = store.invite().unwrap();
            store.redeem(&invitation, &credential(), "van").unwrap();
        }
        let several = store.revoke("van");
        assert!(
            matches!(several, Err(NotRevoked::Several(_, 2))),
            "{several:?}"
        );
        let id = store.clients()[1].0.to_string();
        assert!(store.revoke(&id).is_ok());
        assert_eq!(store.clients().len(), 1);
    }

    #[test]
    fn two_clients_whose_numbers_begin_alike_are_told_apart_by_more_digits() {
        let (directory, store) = store();
        drop(store);
        let (first, second) = (
            "0123abcd".repeat(8),
            "0123abcd".to_owned() + &"f".repeat(56),
        );
        let client = r#"{"name": "van", "first_seen": 1, "last_seen": 1, "up": 0, "down": 0}"#;
        let text = format!(r#"{{"clients": {{"{first}": {client}, "{second}": {client}}}}}"#);
        std::fs::write(directory.path().join(FILE), text).unwrap();
        let store = Store::open(directory.path()).unwrap();
        let several = store.revoke("0123abcd");
        assert!(
            matches!(several, Err(NotRevoked::Several(_, 2))),
            "{several:?}"
        );
        assert!(matches!(store.revoke("0123abc"), Err(NotRevoked::None(_))));
        store.revoke("0123abcdf").unwrap();
        let left: Vec<_> = store.clients().into_iter().map(|(id, _)| id.0).collect();
        assert!(left.len() == 1 && left[0].is_called(&first));
    }

    #[test]
    fn a_list_of_as_many_clients_as_there_may_be_is_read_again() {
        let name = "\u{10400}".repeat(NAME_CHARS);
        let client = Client {
            name: plain_name(&name),
            first_seen: u64::MAX,
            last_seen: u64::MAX,
            up: u64::MAX,
            down: u64::MAX,
            lease: Some(u32::MAX),
        };
        assert_eq!(client.name, name);
        let bytes = |clients: usize| {
            let mut content = Content::default();
            for _ in 0..clients {
                let id = ClientId(credential().digest());
                content.clients.insert(id, client.clone());
            }
            content.waiting = vec![
                Invitation {
                    digest: credential().digest(),
                    expires: u64::MAX,
                };
                MAX_INVITATIONS
            ];
            serde_json::to_vec_pretty(&content).unwrap().len() as u64
        };
        let (few, more) = (bytes(1), bytes(101));
        let most = few + (more - few).div_ceil(100) * MAX_CLIENTS as u64;
        assert!(most <= file::MAX_FILE, "{most}");
    }

    #[test]
    fn who_is_known_is_recognised_while_a_change_is_being_made() {
        let (_directory, store) = store();
        let shown = credential();
        let invitation = store.invite().unwrap();
        let id = store.redeem(&invitation, &shown, "van").unwrap();
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let is_first = std::cell::Cell::new(true);
            let changed = store.change(|_| {
                // The second time it is the content that is changed, in a moment.
                if is_first.replace(false) {
                    assert_eq!(store.authenticate(&shown), Some(id.clone()));
                    store.count(&id, 5, 7);
                }
                Ok::<_, FileError>(())
            });
            let client = &store.clients()[0].1;
            done.send((changed.is_ok(), client.up, client.down))
                .unwrap();
        });
        let (is_changed, up, down) = finished.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(
            (is_changed, up, down),
            (true, 5, 7),
            "counted meanwhile, and not lost"
        );
    }
}
