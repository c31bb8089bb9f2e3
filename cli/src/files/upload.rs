//! An unfinished upload: `.NAME.KEY.part` beside the file it will become.
//!
//! The key is made from the tag that the client gives its upload, so that a broken upload is found
//! again and different ones do not collide. Uploads without a tag are removed when they break off.

use super::digest::{Version, nanoseconds};
use super::naming::rename_new;
use super::root::{Refusal, RelPath, Root, entry_kind};
use super::uploads::Claim;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Bytes of a file's name that go into its part's name: with dots, key and suffix, the whole stays
/// below 255.
const NAME_BYTES: usize = 200;

/// Hexadecimal digits of a part's key.
const KEY_DIGITS: usize = 16;

/// How often opening a part is retried because somebody removed it before it was locked.
const OPENINGS: usize = 10;

/// Counts uploads without a tag, to tell them apart.
static NAMELESS: AtomicU64 = AtomicU64::new(0);

/// What must hold of the file that has the name before an upload may replace it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// Nothing.
    None,
    /// There is no such file.
    Absent,
    /// There is one.
    Present,
    /// It is the version with one of these entity tags.
    Version(Vec<String>),
}

/// Where an upload goes.
#[derive(Debug)]
pub(crate) struct Place {
    directory: OwnedFd,
    name: OsString,
    part: OsString,
    /// Whether a broken upload is kept, to be continued later.
    keep: bool,
}

/// Identifies an upload as long as its directory exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UploadId {
    device: u64,
    directory: u64,
    part: OsString,
}

impl UploadId {
    /// The file system it is on.
    pub(super) fn device(&self) -> u64 {
        self.device
    }
}

impl Place {
    /// The place for `path`. `tag` is the client's name for the upload.
    ///
    /// # Errors
    ///
    /// The directory does not exist, or a directory has the name.
    pub(crate) fn new(root: &Root, path: &RelPath, tag: Option<&str>) -> Result<Self, Refusal> {
        let (parent, name) = path.split().ok_or(Refusal::IsDirectory)?;
        if path.is_directory {
            return Err(Refusal::IsDirectory);
        }
        let directory = root.directory(&parent)?;
        if entry_kind(&directory, name) == Some(true) {
            return Err(Refusal::IsDirectory);
        }
        let part = part_name(name, tag);
        Ok(Self {
            directory,
            name: name.clone(),
            part,
            keep: tag.is_some(),
        })
    }

    /// Identifies it among the uploads.
    ///
    /// # Errors
    ///
    /// The directory's metadata cannot be read.
    pub(crate) fn id(&self) -> Result<UploadId, Refusal> {
        let stat = fstat(&self.directory)?;
        Ok(UploadId {
            device: stat.st_dev,
            directory: stat.st_ino,
            part: self.part.clone(),
        })
    }

    /// The directory, whose file system must have room.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Bytes that an earlier attempt left.
    pub(crate) fn length(&self) -> u64 {
        let stat = self.stat(&self.part);
        stat.filter(is_file).map_or(0, |stat| stat.st_size as u64)
    }

    /// The length of the file that has the name now.
    pub(crate) fn taken_length(&self) -> Option<u64> {
        let stat = self.stat(&self.name);
        stat.filter(is_file).map(|stat| stat.st_size as u64)
    }

    /// Whether a file of the name exists.
    pub(crate) fn is_taken(&self) -> bool {
        entry_kind(&self.directory, &self.name).is_some()
    }

    /// Checks the precondition against the file that has the name.
    ///
    /// # Errors
    ///
    /// The precondition does not hold.
    pub(crate) fn check(&self, precondition: &Precondition) -> Result<(), Refusal> {
        let now = self.stat(&self.name);
        match (precondition, now) {
            (Precondition::None, _)
            | (Precondition::Absent, None)
            | (Precondition::Present, Some(_)) => Ok(()),
            (Precondition::Absent, Some(_)) => Err(Refusal::Exists),
            (Precondition::Version(tags), Some(now)) if tags.contains(&version(&now).etag()) => {
                Ok(())
            }
            _ => Err(Refusal::Changed),
        }
    }

    fn stat(&self, name: &OsStr) -> Option<FileStat> {
        fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()
    }

    /// Opens or creates the part.
    ///
    /// # Errors
    ///
    /// Another program is writing it, or the file system refuses.
    pub(crate) fn open(self, claim: Claim) -> Result<Upload, Refusal> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        for _ in 0..OPENINGS {
            let fd = openat(&self.directory, self.part.as_os_str(), flags, mode)?;
            let locked = Flock::lock(File::from(fd), FlockArg::LockExclusiveNonblock);
            let file = locked.map_err(|(_, error)| match error {
                Errno::EWOULDBLOCK => Refusal::InUse,
                error => error.into(),
            })?;
            // Between opening and locking, the part may have been finished or removed: then the
            // locked file is no longer the part.
            if self.is_part(&*file)? {
                return Ok(Upload {
                    place: self,
                    file,
                    claim,
                    ended: false,
                });
            }
        }
        Err(Refusal::Busy)
    }

    /// Whether the part's name still leads to this file.
    fn is_part(&self, file: impl AsFd) -> Result<bool, Refusal> {
        let locked = fstat(file)?;
        let named = self.stat(&self.part);
        Ok(named
            .is_some_and(|named| (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino)))
    }

    fn rename(&self, precondition: &Precondition) -> Result<(), Errno> {
        let (directory, part, name) = (&self.directory, &*self.part, &*self.name);
        if *precondition != Precondition::Absent {
            return renameat(directory, part, directory, name);
        }
        rename_new(directory, Path::new(part), Path::new(name))
    }

    fn unlink(&self) {
        // If it cannot be removed, it stays: it is hidden and does no harm.
        let _ = unlinkat(
            &self.directory,
            self.part.as_os_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }
}

fn is_file(stat: &FileStat) -> bool {
    stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFREG
}

fn version(stat: &FileStat) -> Version {
    Version {
        device: stat.st_dev,
        inode: stat.st_ino,
        length: stat.st_size as u64,
        modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn part_name(name: &OsStr, tag: Option<&str>) -> OsString {
    let mut hash = Sha256::new().chain_update(name.as_bytes());
    hash.update([0]);
    if let Some(tag) = tag {
        hash.update(tag.as_bytes());
    } else {
        let number = NAMELESS.fetch_add(1, Ordering::Relaxed);
        hash.update(format!("nameless {} {number}", std::process::id()));
    }
    let key: [u8; 32] = hash.finalize().into();
    let name = &name.as_bytes()[..name.len().min(NAME_BYTES)];
    let mut part = [b".", name, b"."].concat();
    part.extend(
        key[..KEY_DIGITS / 2]
            .iter()
            .flat_map(|byte| format!("{byte:02x}").into_bytes()),
    );
    part.extend_from_slice(b".part");
    OsString::from_vec(part)
}

/// Whether a name is one that this module gives to parts. Only such files are removed for age.
pub(super) fn is_our_part(name: &[u8]) -> bool {
    let key = || {
        let rest = name.strip_prefix(b".")?.strip_suffix(b".part")?;
        let (rest, key) = rest.split_at_checked(rest.len().checked_sub(KEY_DIGITS)?)?;
        let is_key = key.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        (is_key && rest.len() > 1 && rest.ends_with(b".")).then_some(())
    };
    key().is_some()
}

/// An upload in progress.
#[derive(Debug)]
pub(crate) struct Upload {
    place: Place,
    file: Flock<File>,
    /// Dropped after the lock, so that whoever waits for the claim finds the lock free.
    claim: Claim,
    ended: bool,
}

impl Upload {
    /// The claim it counts against.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Another handle to the part.
    ///
    /// # Errors
    ///
    /// The process has too many open files.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives the file its name: it is whole. `modified` is when its content last changed, if the
    /// client said so.
    ///
    /// # Errors
    ///
    /// The precondition no longer holds, or the file cannot be renamed.
    pub(crate) fn commit(
        mut self,
        precondition: &Precondition,
        modified: Option<SystemTime>,
    ) -> Result<Version, Refusal> {
        let uploads = self.claim.uploads();
        // One upload after another, so that none comes between check and renaming.
        let committing = uploads.commits();
        self.place.check(precondition)?;
        let received = self.file.metadata()?.modified();
        if let Some(modified) = modified {
            // Set before the file is visible: the time is part of its entity tag. A file system
            // that does not keep such times is no reason to refuse the file.
            let _ = self.file.set_modified(modified);
        }
        if let Err(error) = self.place.rename(precondition) {
            // It is still a part: its time tells for how long nobody has continued it.
            let _ = received.map(|received| self.file.set_modified(received));
            return Err(match error {
                Errno::EEXIST if *precondition == Precondition::Absent => Refusal::Exists,
                error => error.into(),
            });
        }
        drop(committing);
        self.ended = true;
        nix::unistd::fsync(&self.place.directory)?;
        Ok(Version::of(&self.file.metadata()?))
    }

    /// Discards what was received: it is wrong.
    pub(crate) fn discard(mut self) {
        self.place.unlink();
        self.ended = true;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let is_empty = || {
            self.file
                .metadata()
                .is_ok_and(|metadata| metadata.len() == 0)
        };
        if !self.ended && (!self.place.keep || is_empty()) {
            self.place.unlink();
        }
    }
}

#[cfg(test)]
mod tests;
