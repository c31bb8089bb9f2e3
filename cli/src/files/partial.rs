//! An unfinished download: `FILE.part` until it is whole, and a note that lets it be continued
//! later.
//!
//! ```text
//! FILE.part        the bytes received so far
//! FILE.part.etag   which version of the server's file they belong to
//! FILE             appears at the end, by renaming: whole and verified, or not at all
//! ```

use super::naming::rename_new;
use super::reader::hash_apart;
use super::writer::Writer;
use crate::failure::{Failure, Outcome};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The longest note that is read, in bytes.
const NOTE_BYTES: u64 = 4096;

/// How often opening a part is retried because another process finished with it meanwhile.
const OPENINGS: usize = 10;

/// Which version of the server's file a part belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The entity tag the server gave it, if it did.
    pub(crate) etag: Option<String>,
}

/// Where an earlier download stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// Bytes that are here already.
    pub(crate) length: u64,
    /// The entity tag they belong to.
    pub(crate) etag: String,
}

impl ResumePoint {
    fn read(length: u64, note: &Path) -> Option<Self> {
        if length == 0 {
            return None;
        }
        let etag = read_note(note)?.etag?;
        Some(Self { length, etag })
    }
}

/// An unfinished download, locked: one process at a time can have it.
#[derive(Debug)]
pub(crate) struct PartFile {
    target: PathBuf,
    part: PathBuf,
    note: PathBuf,
    file: Flock<File>,
}

impl PartFile {
    /// Opens or creates the part of `target`.
    ///
    /// # Errors
    ///
    /// The directory cannot be written, another process is downloading the same file, or the part
    /// or its note was not made by an earlier download.
    pub(crate) fn open(target: &Path) -> Outcome<Self> {
        let (part, note) = (part_of(target), note_of(target));
        let file = open_locked(&part)?;
        let this = Self {
            target: target.into(),
            part,
            note,
            file,
        };
        let Some(foreign) = this.foreign() else {
            return Ok(this);
        };
        let what = format!("{} is of no earlier download", foreign.display());
        let failure = Failure::usage(what);
        let failure = failure.hint("move it away, or choose another place with `-o FILE`");
        if this.is_empty() {
            let _ = remove_if_there(&this.part);
        }
        Err(failure)
    }

    /// The file in the way that is not ours, if any. Our note is written before the part's first
    /// byte, so a part that is not empty and has no note is not ours.
    fn foreign(&self) -> Option<&Path> {
        let is_noted = match fs::symlink_metadata(&self.note) {
            Ok(_) if read_note(&self.note).is_some() => return None,
            Ok(found) => !found.is_file() || found.len() > 0,
            Err(_) => false,
        };
        if is_noted {
            Some(&self.note)
        } else {
            (!self.is_empty()).then_some(&*self.part)
        }
    }

    fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() == 0)
    }

    /// Where an earlier download stopped, if it can be continued.
    pub(crate) fn resume_point(&self) -> Option<ResumePoint> {
        ResumePoint::read(self.file.metadata().ok()?.len(), &self.note)
    }

    /// Where an earlier download of `target` stopped. Does not open the part: another process may
    /// be writing it.
    pub(crate) fn look(target: &Path) -> Option<ResumePoint> {
        let length = fs::metadata(part_of(target)).ok()?.len();
        ResumePoint::read(length, &note_of(target))
    }

    /// Starts over with this version of the server's file. Without an entity tag, the part cannot
    /// be continued later.
    ///
    /// # Errors
    ///
    /// The disk refuses.
    pub(crate) fn begin(&self, etag: Option<&str>) -> io::Result<()> {
        // The part first: an old part must never stand beside a new note.
        self.file.set_len(0)?;
        let etag = etag.map(str::to_owned);
        let note = serde_json::to_vec(&Note { etag })?;
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(true);
        unfollowed(options).open(&self.note)?.write_all(&note)
    }

    /// Continues after the first `length` bytes.
    ///
    /// # Errors
    ///
    /// The part cannot be read or written.
    pub(crate) async fn writer(&self, length: u64) -> io::Result<Writer> {
        let file = self.file.try_clone()?;
        let hash = if length == 0 {
            Sha256::new()
        } else {
            hash_apart(self.file.try_clone()?, length).await?
        };
        Writer::start(file, length, hash)
    }

    /// Sets the file's modification time, which it keeps when it gets its name. Later writes change
    /// it again.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub(crate) fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.file.set_modified(time)
    }

    /// Gives the file its name: it is whole. Replaces another file of this name only if `replace`.
    ///
    /// # Errors
    ///
    /// It cannot be renamed, for example because something has the name.
    pub(crate) fn commit(self, replace: bool) -> io::Result<()> {
        if replace {
            fs::rename(&self.part, &self.target)?;
        } else {
            rename_new(AT_FDCWD, &self.part, &self.target)?;
        }
        remove_if_there(&self.note)?;
        let parent = self
            .target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Discards what was received: it is wrong, or empty.
    pub(crate) fn discard(self) {
        // If one cannot be removed, the next attempt reports it.
        let _ = remove_if_there(&self.part);
        let _ = remove_if_there(&self.note);
    }

    /// Discards the part if nothing was received.
    pub(crate) fn discard_if_empty(self) {
        if self.is_empty() {
            self.discard();
        }
    }

    /// The part's name, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.part
    }
}

/// Opens or creates a part and locks it.
fn open_locked(part: &Path) -> Outcome<Flock<File>> {
    let refused = |reason: &dyn Display| {
        let failure = Failure::usage(format!("cannot write {}: {reason}", part.display()));
        failure.hint("choose another place with `-o FILE`")
    };
    for _ in 0..OPENINGS {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = unfollowed(options)
            .open(part)
            .map_err(|error| refused(&error))?;
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return Err(refused(&"it is no file"));
        }
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
            let busy = error == Errno::EWOULDBLOCK;
            let reason = if busy {
                "another process is writing it"
            } else {
                error.desc()
            };
            Failure::usage(format!("cannot use {}: {reason}", part.display()))
        })?;
        // Between opening and locking, another process may have finished the part: then the locked
        // file is that process's finished file and no longer a part.
        if is_at(&file, part) {
            return Ok(file);
        }
    }
    Err(refused(&"it is replaced again and again"))
}

/// Whether a path leads to this very file.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, named) = (
        file.metadata().map(inode),
        fs::symlink_metadata(path).map(inode),
    );
    open.is_ok_and(|open| named.is_ok_and(|named| open == named))
}

/// The part of a target.
pub(crate) fn part_of(target: &Path) -> PathBuf {
    with_suffix(target, ".part")
}

/// The note of a target. Its suffix is not that of a part, so it is never another file's part.
pub(crate) fn note_of(target: &Path) -> PathBuf {
    with_suffix(target, ".part.etag")
}

/// What a note says, if it is one of ours.
fn read_note(note: &Path) -> Option<Note> {
    let file = unfollowed(File::options().read(true)).open(note).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > NOTE_BYTES {
        return None;
    }
    let mut text = Vec::new();
    file.take(NOTE_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The target whose part or note has this name.
pub(crate) fn target_of(name: &Path) -> Option<PathBuf> {
    let name = name.as_os_str().as_bytes();
    let note = name.strip_suffix(b".part.etag");
    let target = note.or_else(|| name.strip_suffix(b".part"))?;
    Some(OsStr::from_bytes(target).into())
}

/// Does not follow a symbolic link, which may lead to somebody else's file, nor wait for a pipe.
fn unfollowed(options: &mut fs::OpenOptions) -> &mut fs::OpenOptions {
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::digest::Sum;
    use bytes::Bytes;

    async fn append(part: &PartFile, from: u64, data: &'static [u8]) -> Writer {
        let mut writer = part.writer(from).await.unwrap();
        writer.write(Bytes::from_static(data)).await.unwrap();
        writer
    }

    #[tokio::test]
    async fn a_broken_download_goes_on_where_it_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let part = PartFile::open(&target).unwrap();
        assert_eq!(part.resume_point(), None);
        part.begin(Some("\"v1\"")).unwrap();
        append(&part, 0, b"hello ").await.keep().await;
        drop(part);
        assert!(!target.exists());

        let part = PartFile::open(&target).unwrap();
        let point = part.resume_point().unwrap();
        assert_eq!(
            point,
            ResumePoint {
                length: 6,
                etag: "\"v1\"".into()
            }
        );
        let (_, sum) = append(&part, point.length, b"world")
            .await
            .finish()
            .await
            .unwrap();
        assert_eq!(sum, Sum::of(Sha256::new().chain_update(b"hello world")));
        let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        part.set_modified(then).unwrap();
        part.commit(false).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), then);
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "only the file is left"
        );
    }

    #[test]
    fn a_part_without_our_note_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let (part, note) = (part_of(&target), note_of(&target));
        fs::write(&part, "what is this?").unwrap();
        let refused = PartFile::open(&target).unwrap_err();
        assert!(refused.what().contains("file.part is of no"), "{refused:?}");
        fs::write(&note, "not JSON").unwrap();
        PartFile::open(&target).unwrap_err();
        assert_eq!(fs::read(&part).unwrap(), b"what is this?");
        fs::remove_file(&part).unwrap();
        PartFile::open(&target).unwrap_err();
        assert_eq!(fs::read(&note).unwrap(), b"not JSON");
        assert!(!part.exists());
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, part_of(&target)).unwrap();
        PartFile::open(&target).unwrap_err();
        fs::remove_file(part_of(&target)).unwrap();
        let part = PartFile::open(&target).unwrap();
        std::os::unix::fs::symlink(&other, note_of(&target)).unwrap();
        part.begin(Some("x")).unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"");
    }

    #[test]
    fn a_file_that_came_meanwhile_is_replaced_only_if_wished() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let open = || PartFile::open(&target).unwrap();
        let part = open();
        part.begin(None).unwrap();
        fs::write(part.path(), "new").unwrap();
        fs::write(&target, "mine").unwrap();
        let refused = part.commit(false).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&target).unwrap(), b"mine");
        assert_eq!(open().resume_point(), None, "no tag");
        open().commit(true).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_downloads_do_not_share_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let part = PartFile::open(&target).unwrap();
        let error = PartFile::open(&target).unwrap_err();
        assert!(error.what().contains("another process"), "{error:?}");
        part.discard_if_empty();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_part_that_became_the_file_is_not_taken_for_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let part = PartFile::open(&target).unwrap();
        assert!(is_at(&part.file, part.path()));
        fs::rename(part.path(), &target).unwrap();
        assert!(!is_at(&part.file, part.path()), "nobody's part");
        assert!(PartFile::open(&target).is_ok());
    }

    #[test]
    fn starting_anew_forgets_the_old_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        fs::write(part_of(&target), "old").unwrap();
        fs::write(note_of(&target), r#"{"etag":"v1"}"#).unwrap();
        let part = PartFile::open(&target).unwrap();
        part.begin(Some("\"v2\"")).unwrap();
        assert_eq!(part.resume_point(), None, "nothing is there yet");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_told_with_a_way_out() {
        let error = PartFile::open(Path::new("/nonexistent/file")).unwrap_err();
        assert!(error.report().unwrap().contains("-o FILE"));
    }
}
