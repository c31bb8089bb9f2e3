//! All uploads of a server: who sends which, how many there may be and how large they may be.

use super::root::{Refusal, RelPath, Root, make_in};
use super::upload::{Place, Upload, UploadId};
use nix::sys::stat::fstat;
use nix::sys::statvfs::fstatvfs;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// After this long without data, another client may take over an upload to continue it. The
/// connection it came by is probably dead, and the server learns that only half a minute later.
const SILENCE: Duration = Duration::from_secs(2);

/// How long the upload that is taken over has to write its data to the disk.
const HANDOVER: Duration = Duration::from_secs(5);

/// Bytes between two checks of the room on the disk. An upload of unknown length reserves this much
/// at a time.
const LOOK_BYTES: u64 = 16 << 20;

/// An upload first reserves at most one part in this many of the room on the disk, a half, or
/// `LOOK_BYTES` if that is more.
const SHARE: u64 = 2;

/// Bytes of the disk that a new directory is counted as.
const DIRECTORY_BYTES: u64 = 4096;

/// What clients may upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes per connection.
    pub(crate) bytes: u64,
    /// Files per connection.
    pub(crate) files: u64,
    /// Uploads at a time, of all clients together.
    pub(crate) at_once: usize,
    /// Bytes of the disk that uploads leave free.
    pub(crate) keep_free: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: u64::MAX,
            files: u64::MAX,
            at_once: usize::MAX,
            keep_free: 0,
        }
    }
}

/// What one connection has uploaded.
#[derive(Debug, Default)]
pub(crate) struct Account {
    bytes: AtomicU64,
    files: AtomicU64,
}

type UnderWay = BTreeMap<UploadId, Arc<Active>>;

/// The uploads of a server.
#[derive(Debug)]
pub(crate) struct Uploads {
    limits: Limits,
    under_way: Mutex<UnderWay>,
    released: Condvar,
    commits: Mutex<()>,
}

/// An upload that somebody is sending.
#[derive(Debug)]
struct Active {
    /// When it last received something.
    last: Mutex<Instant>,
    /// Notified when somebody else continues the upload.
    taken_over: Notify,
    /// Bytes still to come, if the client announced how many.
    to_come: AtomicU64,
    /// Bytes of the disk reserved for them. May be less than was announced: the others need room as
    /// well, and announcing costs nothing.
    reserved: AtomicU64,
}

impl Active {
    fn is_silent(&self) -> bool {
        self.last().elapsed() >= SILENCE
    }

    fn last(&self) -> MutexGuard<'_, Instant> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uploads {
    /// Starts without any uploads.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            under_way: Mutex::default(),
            released: Condvar::new(),
            commits: Mutex::default(),
        }
    }

    /// Begins or continues an upload of `announced` bytes. If it takes over another one of the same
    /// name, waits for that to end. Blocks.
    ///
    /// # Errors
    ///
    /// Somebody else is sending it, a limit is reached, or the file system refuses.
    pub(crate) fn begin(
        self: &Arc<Self>,
        place: Place,
        account: &Arc<Account>,
        announced: Option<u64>,
    ) -> Result<Upload, Refusal> {
        self.count_file(account)?;
        let brought = account.bytes.load(Ordering::Relaxed);
        let after = brought.saturating_add(announced.unwrap_or(0));
        if after > self.limits.bytes {
            return Err(Refusal::TooLarge);
        }
        let id = place.id()?;
        let mut under_way = self.settled(&id)?;
        if under_way.len() >= self.limits.at_once {
            return Err(Refusal::Busy);
        }
        let room = self.room(&under_way, id.device(), place.directory())?;
        let reserved = announced.unwrap_or(LOOK_BYTES);
        if room < reserved {
            return Err(Refusal::DiskFull);
        }
        let active = Arc::new(Active {
            last: Mutex::new(Instant::now()),
            taken_over: Notify::new(),
            to_come: AtomicU64::new(announced.unwrap_or(u64::MAX)),
            reserved: AtomicU64::new(reserved.min((room / SHARE).max(LOOK_BYTES))),
        });
        under_way.insert(id.clone(), Arc::clone(&active));
        drop(under_way);
        let claim = Claim {
            uploads: Arc::clone(self),
            account: Arc::clone(account),
            id,
            active,
            looked: AtomicU64::new(0),
        };
        place.open(claim)
    }

    /// Makes a directory and its missing parents; returns whether it is new. Each new directory
    /// counts as a file. Blocks.
    ///
    /// # Errors
    ///
    /// A limit is reached, something else has the name, or the file system refuses.
    pub(crate) fn make_directory(
        &self,
        root: &Root,
        path: &RelPath,
        account: &Account,
    ) -> Result<bool, Refusal> {
        root.make(path, |parent, name| {
            // Counted first, so that concurrent requests cannot exceed the limit.
            self.count_file(account)?;
            let made = self.make_in(parent, name);
            if made != Ok(true) {
                account.files.fetch_sub(1, Ordering::Relaxed);
            }
            made
        })
    }

    fn make_in(&self, parent: &OwnedFd, name: &OsStr) -> Result<bool, Refusal> {
        let device = fstat(parent)?.st_dev;
        self.check_room(&self.under_way(), device, parent, DIRECTORY_BYTES)?;
        make_in(parent, name)
    }

    fn count_file(&self, account: &Account) -> Result<(), Refusal> {
        let count = |files| (files < self.limits.files).then_some(files + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let counted = account.files.fetch_update(set, fetch, count);
        counted.map(drop).map_err(|_| Refusal::TooMany)
    }

    /// Waits until nobody is sending the upload any more. Blocks.
    ///
    /// # Errors
    ///
    /// Somebody still is.
    pub(crate) fn settle(&self, place: &Place) -> Result<(), Refusal> {
        self.settled(&place.id()?).map(drop)
    }

    fn settled(&self, id: &UploadId) -> Result<MutexGuard<'_, UnderWay>, Refusal> {
        let under_way = self.under_way();
        match under_way.get(id) {
            None => return Ok(under_way),
            Some(active) if !active.is_silent() => return Err(Refusal::InUse),
            Some(active) => active.taken_over.notify_one(),
        }
        let waited = self
            .released
            .wait_timeout_while(under_way, HANDOVER, |under_way| under_way.contains_key(id));
        let (under_way, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Refusal::InUse);
        }
        Ok(under_way)
    }

    /// Whether the disk has room for `more` bytes.
    fn check_room(
        &self,
        under_way: &UnderWay,
        device: u64,
        directory: impl AsFd,
        more: u64,
    ) -> Result<(), Refusal> {
        if self.room(under_way, device, directory)? < more {
            return Err(Refusal::DiskFull);
        }
        Ok(())
    }

    /// Room on the disk, less what is reserved for the uploads in progress there and what must stay
    /// free.
    fn room(
        &self,
        under_way: &UnderWay,
        device: u64,
        directory: impl AsFd,
    ) -> Result<u64, Refusal> {
        let there = under_way.iter().filter(|(id, _)| id.device() == device);
        let reserved = there.map(|(_, active)| active.reserved.load(Ordering::Relaxed));
        let room = self.free(directory)?;
        if room == u64::MAX {
            return Ok(room);
        }
        room.checked_sub(reserved.fold(0, u64::saturating_add))
            .ok_or(Refusal::DiskFull)
    }

    /// Room on the disk, less what must stay free. Not looked up if nothing must stay free.
    fn free(&self, directory: impl AsFd) -> Result<u64, Refusal> {
        if self.limits.keep_free == 0 {
            return Ok(u64::MAX);
        }
        let disk = fstatvfs(directory)?;
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        free.checked_sub(self.limits.keep_free)
            .ok_or(Refusal::DiskFull)
    }

    /// A lock to hold while a file gets its name.
    pub(super) fn commits(&self) -> MutexGuard<'_, ()> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to send an upload. Once it is dropped, somebody else may send it.
#[derive(Debug)]
pub(crate) struct Claim {
    uploads: Arc<Uploads>,
    account: Arc<Account>,
    id: UploadId,
    active: Arc<Active>,
    /// Bytes since the last check of the disk.
    looked: AtomicU64,
}

impl Claim {
    /// The uploads that this one belongs to.
    pub(super) fn uploads(&self) -> Arc<Uploads> {
        Arc::clone(&self.uploads)
    }

    /// Counts received bytes.
    ///
    /// # Errors
    ///
    /// They are more than the connection may upload, or than the disk has room for.
    pub(crate) fn count(&self, file: impl AsFd, bytes: u64) -> Result<(), Refusal> {
        *self.active.last() = Instant::now();
        let all = self.account.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > self.uploads.limits.bytes {
            return Err(Refusal::TooLarge);
        }
        self.use_room(&file, bytes)?;
        let since = self.looked.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if since < LOOK_BYTES {
            return Ok(());
        }
        self.looked.store(0, Ordering::Relaxed);
        // Somebody else may have filled the disk.
        self.uploads.free(file).map(drop)
    }

    /// Takes bytes from the reservation; reserves more if that is not enough.
    fn use_room(&self, file: impl AsFd, bytes: u64) -> Result<(), Refusal> {
        let (to_come, reserved) = (&self.active.to_come, &self.active.reserved);
        let rest = to_come.load(Ordering::Relaxed).saturating_sub(bytes);
        let left = reserved.load(Ordering::Relaxed);
        if let Some(left) = left.checked_sub(bytes) {
            reserved.store(left, Ordering::Relaxed);
        } else {
            let under_way = self.uploads.under_way();
            let ahead = LOOK_BYTES.min(rest);
            let more = bytes - left + ahead;
            self.uploads
                .check_room(&under_way, self.id.device(), file, more)?;
            reserved.store(ahead, Ordering::Relaxed);
        }
        to_come.store(rest, Ordering::Relaxed);
        Ok(())
    }

    /// Completes once somebody else continues the upload.
    pub(crate) async fn taken_over(&self) {
        self.active.taken_over.notified().await;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.uploads.under_way().remove(&self.id);
        self.uploads.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn place(root: &Path, name: &str) -> Place {
        let (root, path) = (Root::open(root).unwrap(), RelPath::parse(name).unwrap());
        Place::new(&root, &path, Some("tag")).unwrap()
    }

    #[test]
    fn a_connection_brings_no_more_than_it_may() {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits {
            bytes: 100,
            files: 3,
            at_once: 1,
            ..Limits::default()
        };
        let uploads = Arc::new(Uploads::new(limits));
        let account = Arc::new(Account::default());
        let begin =
            |name: &str, announced| uploads.begin(place(root.path(), name), &account, announced);
        assert_eq!(begin("/large", Some(101)).unwrap_err(), Refusal::TooLarge);
        let first = begin("/first", Some(60)).unwrap();
        let count = |upload: &Upload, bytes| upload.claim().count(upload.file().unwrap(), bytes);
        assert_eq!(count(&first, 60), Ok(()));
        assert_eq!(begin("/beside", None).unwrap_err(), Refusal::Busy);
        assert_eq!(count(&first, 41), Err(Refusal::TooLarge));
        drop(first);
        assert_eq!(begin("/fourth", None).unwrap_err(), Refusal::TooMany);
        let another = Arc::new(Account::default());
        assert!(
            uploads
                .begin(place(root.path(), "/x"), &another, None)
                .is_ok()
        );
    }

    #[test]
    fn room_on_the_disk_is_kept_free() {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits {
            keep_free: 1 << 62,
            ..Limits::default()
        };
        let uploads = Arc::new(Uploads::new(limits));
        let begun = uploads.begin(place(root.path(), "/x"), &Arc::default(), None);
        assert_eq!(begun.unwrap_err(), Refusal::DiskFull);
    }

    #[test]
    fn directories_count_like_files_and_need_room() {
        let root = tempfile::tempdir().unwrap();
        let open = Root::open(root.path()).unwrap();
        let make = |limits: &Limits, account: &Account, path: &str| {
            let uploads = Uploads::new(limits.clone());
            uploads.make_directory(&open, &RelPath::parse(path).unwrap(), account)
        };
        let (account, few) = (
            Account::default(),
            Limits {
                files: 2,
                ..Limits::default()
            },
        );
        assert_eq!(make(&few, &account, "/a/b/"), Ok(true));
        assert_eq!(make(&few, &account, "/a/b/"), Ok(false), "costs nothing");
        assert_eq!(make(&few, &account, "/c/"), Err(Refusal::TooMany));
        fs::write(root.path().join("taken"), "x").unwrap();
        let account = Account::default();
        for _ in 0..2 {
            let refused = make(&few, &account, "/taken/");
            assert_eq!(
                refused,
                Err(Refusal::NoPlace),
                "what is not made does not count"
            );
        }
        assert_eq!(make(&few, &account, "/d/e/"), Ok(true));
        let full = Limits {
            keep_free: u64::MAX,
            ..Limits::default()
        };
        let refused = make(&full, &Account::default(), "/c/");
        assert_eq!(refused, Err(Refusal::DiskFull));
        assert!(!root.path().join("c").exists());
    }

    /// A directory, uploads that keep a tenth of its disk free, and how much that is.
    fn room() -> (tempfile::TempDir, Arc<Uploads>, u64) {
        let root = tempfile::tempdir().unwrap();
        let disk = fstatvfs(fs::File::open(root.path()).unwrap()).unwrap();
        let tenth = disk.blocks_available() * disk.fragment_size() / 10;
        let limits = Limits {
            keep_free: tenth,
            ..Limits::default()
        };
        (root, Arc::new(Uploads::new(limits)), tenth)
    }

    #[test]
    fn room_is_kept_free_from_all_uploads_together() {
        let (root, uploads, tenth) = room();
        let begin = |name: &str, announced| {
            uploads.begin(place(root.path(), name), &Arc::default(), announced)
        };
        let count = |upload: &Upload, bytes| upload.claim().count(upload.file().unwrap(), bytes);
        let first = begin("/first", Some(6 * tenth)).unwrap();
        let full = begin("/second", Some(6 * tenth)).unwrap_err();
        assert_eq!(full, Refusal::DiskFull, "the rest of the first is to come");
        let unknown = begin("/unknown", None).unwrap();
        assert_eq!(count(&unknown, 6 * tenth), Err(Refusal::DiskFull));
        assert_eq!(count(&unknown, tenth), Ok(()));
        // Nothing is really written to the disk: received bytes just no longer count as to come.
        assert_eq!(count(&first, 5 * tenth), Ok(()));
        let second = begin("/second", Some(5 * tenth)).unwrap();
        assert_eq!(
            begin("/third", Some(5 * tenth)).unwrap_err(),
            Refusal::DiskFull
        );
        drop(second);
        assert!(begin("/third", Some(5 * tenth)).is_ok());
    }

    #[test]
    fn an_announced_upload_leaves_room_for_others_until_its_bytes_come() {
        let (root, uploads, tenth) = room();
        let begin = |name: &str, announced| {
            uploads.begin(place(root.path(), name), &Arc::default(), announced)
        };
        let slow = begin("/slow", Some(8 * tenth)).unwrap();
        let other = begin("/other", Some(2 * tenth)).unwrap();
        let count = |upload: &Upload, bytes| upload.claim().count(upload.file().unwrap(), bytes);
        assert_eq!(count(&slow, 6 * tenth), Ok(()), "there is room, still");
        assert_eq!(count(&other, 2 * tenth), Ok(()), "set aside for it");
    }

    #[tokio::test]
    async fn a_silent_upload_is_taken_over_and_a_live_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let uploads = Arc::new(Uploads::new(Limits::default()));
        let begin = || uploads.begin(place(root.path(), "/file"), &Arc::default(), None);
        let first = begin().unwrap();
        assert_eq!(begin().unwrap_err(), Refusal::InUse);
        *first.claim().active.last() = Instant::now().checked_sub(SILENCE).unwrap();
        let holder = tokio::spawn(async move {
            first.claim().taken_over().await;
            drop(first);
        });
        let (uploads, at) = (Arc::clone(&uploads), place(root.path(), "/file"));
        let second = tokio::task::spawn_blocking(move || uploads.begin(at, &Arc::default(), None));
        assert!(second.await.unwrap().is_ok());
        holder.await.unwrap();
    }
}
