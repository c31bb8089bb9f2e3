//! An unfinished download: `FILE.part` until it is whole, and what is needed to go on with it
//! later.
//!
//! ```text
//! FILE.part        the bytes received so far
//! FILE.etag.part   which version of the server's file they are of
//! FILE             appears at the end, by renaming: whole and verified, or not at all
//! ```

use super::reader::hash_prefix;
use super::writer::Writer;
use crate::failure::{Failure, Outcome};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::task::spawn_blocking;

/// The longest note that is read, in bytes.
const NOTE_BYTES: u64 = 4096;

/// How often a part is opened anew because another process finished with it meanwhile.
const OPENINGS: usize = 10;

/// Which version of the server's file a part belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The entity tag the server gave it.
    pub(crate) etag: String,
}

/// Where an earlier download stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// Bytes there are.
    pub(crate) length: u64,
    /// The entity tag they belong to.
    pub(crate) etag: String,
}

impl ResumePoint {
    fn read(length: u64, note: &Path) -> Option<Self> {
        let known = fs::metadata(note).ok()?.len() <= NOTE_BYTES;
        if length == 0 || !known {
            return None;
        }
        let note: Note = serde_json::from_slice(&fs::read(note).ok()?).ok()?;
        Some(Self {
            length,
            etag: note.etag,
        })
    }
}

/// An unfinished download. One process at a time can have it.
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
    /// The directory cannot be written, or another process is downloading the same file.
    pub(crate) fn open(target: &Path) -> Outcome<Self> {
        let part = with_suffix(target, ".part");
        let note = with_suffix(target, ".etag.part");
        let file = open_locked(&part)?;
        Ok(Self {
            target: target.into(),
            part,
            note,
            file,
        })
    }

    /// Where an earlier download stopped, if it can be continued.
    pub(crate) fn resume_point(&self) -> Option<ResumePoint> {
        ResumePoint::read(self.file.metadata().ok()?.len(), &self.note)
    }

    /// Where an earlier download of `target` stopped. Its part is not opened: another process may
    /// go on with it meanwhile.
    pub(crate) fn look(target: &Path) -> Option<ResumePoint> {
        let length = fs::metadata(with_suffix(target, ".part")).ok()?.len();
        ResumePoint::read(length, &with_suffix(target, ".etag.part"))
    }

    /// Starts anew with this version of the server's file. Without entity tag the part cannot be
    /// continued later.
    ///
    /// # Errors
    ///
    /// The disk refuses.
    pub(crate) fn begin(&self, etag: Option<&str>) -> io::Result<()> {
        // The part first: never may an old part stand beside a new note.
        self.file.set_len(0)?;
        match etag {
            Some(etag) => {
                let note = serde_json::to_vec(&Note { etag: etag.into() })?;
                fs::write(&self.note, note)
            }
            None => remove_if_there(&self.note),
        }
    }

    /// Goes on behind the first `length` bytes.
    ///
    /// # Errors
    ///
    /// The part cannot be read or written.
    pub(crate) async fn writer(&self, length: u64) -> io::Result<Writer> {
        let file = self.file.try_clone()?;
        let hashed = spawn_blocking(move || {
            let hash = if length == 0 {
                Sha256::new()
            } else {
                hash_prefix(&file, length)?
            };
            Ok::<_, io::Error>((file, hash))
        });
        let (file, hash) = hashed.await.map_err(io::Error::other)??;
        Writer::start(file, length, hash)
    }

    /// Sets when the file was changed last, as its name will show. What is written later changes
    /// it again.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub(crate) fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.file.set_modified(time)
    }

    /// Gives the file its name: it is whole.
    ///
    /// # Errors
    ///
    /// It cannot be renamed, for example because a directory has the name.
    pub(crate) fn commit(self) -> io::Result<()> {
        fs::rename(&self.part, &self.target)?;
        remove_if_there(&self.note)?;
        let parent = self
            .target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Throws away what was received: it is wrong, or nothing.
    pub(crate) fn discard(self) {
        // What cannot be removed is found out by the next attempt.
        let _ = remove_if_there(&self.part);
        let _ = remove_if_there(&self.note);
    }

    /// Throws the part away if nothing was received.
    pub(crate) fn discard_if_empty(self) {
        if self
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.len() == 0)
        {
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
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(part);
        let file = opened.map_err(|error| refused(&error))?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
            let busy = error == Errno::EWOULDBLOCK;
            let reason = if busy {
                "another process is writing it"
            } else {
                error.desc()
            };
            Failure::usage(format!("cannot use {}: {reason}", part.display()))
        })?;
        // Between opening and locking another process may have finished with it: what is locked
        // then is that one's file, and no part any more.
        if is_at(&file, part) {
            return Ok(file);
        }
    }
    Err(refused(&"it is replaced again and again"))
}

/// Whether a path leads to this very file.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, named) = (file.metadata().map(inode), fs::metadata(path).map(inode));
    open.is_ok_and(|open| named.is_ok_and(|named| open == named))
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
        part.commit().unwrap();
        assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), then);
        assert_eq!(fs::read(&target).unwrap(), b"hello world");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "only the file is left"
        );
    }

    #[test]
    fn a_part_without_note_is_not_continued() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        fs::write(directory.path().join("file.part"), "what is this?").unwrap();
        assert_eq!(PartFile::open(&target).unwrap().resume_point(), None);
        fs::write(directory.path().join("file.etag.part"), "not JSON").unwrap();
        assert_eq!(PartFile::open(&target).unwrap().resume_point(), None);
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
        fs::write(directory.path().join("file.part"), "old").unwrap();
        let part = PartFile::open(&target).unwrap();
        part.begin(Some("\"v2\"")).unwrap();
        assert_eq!(part.resume_point(), None, "nothing is there yet");
        part.begin(None).unwrap();
        assert!(!directory.path().join("file.etag.part").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_told_with_a_way_out() {
        let error = PartFile::open(Path::new("/nonexistent/file")).unwrap_err();
        assert!(error.report().unwrap().contains("-o FILE"));
    }
}
