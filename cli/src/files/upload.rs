//! An unfinished upload: `.NAME.KEY.part` beside the file it will become.
//!
//! The key comes from what the client calls its upload, so that a broken one is found again and two
//! different ones do not meet. Uploads without name are removed when they break off.

use super::reader::hash_prefix;
use super::root::{Refusal, RelPath, Root, entry_kind};
use super::writer::Writer;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::spawn_blocking;

/// Bytes of a file's name that go into its part's name: with dots, key and suffix it stays below
/// 255.
const NAME_BYTES: usize = 200;

/// Tells nameless uploads apart.
static NAMELESS: AtomicU64 = AtomicU64::new(0);

/// Where an upload goes.
#[derive(Debug)]
pub(crate) struct Place {
    directory: OwnedFd,
    name: OsString,
    part: OsString,
    /// Whether a broken upload is kept for another day.
    keep: bool,
}

impl Place {
    /// The place for `path`. `tag` is what the client calls its upload.
    ///
    /// # Errors
    ///
    /// The directory does not exist, or there is a directory of the name.
    pub(crate) fn new(root: &Root, path: &RelPath, tag: Option<&str>) -> Result<Self, Refusal> {
        let (parent, name) = path.split().ok_or(Refusal::Conflict)?;
        if path.is_directory {
            return Err(Refusal::Conflict);
        }
        let directory = root.directory(&parent)?;
        if entry_kind(&directory, name) == Some(true) {
            return Err(Refusal::Conflict);
        }
        let part = part_name(name, tag);
        Ok(Self {
            directory,
            name: name.clone(),
            part,
            keep: tag.is_some(),
        })
    }

    /// Bytes an earlier attempt left.
    pub(crate) fn length(&self) -> u64 {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        openat(&self.directory, self.part.as_os_str(), flags, Mode::empty())
            .ok()
            .and_then(|fd| File::from(fd).metadata().ok())
            .map_or(0, |metadata| metadata.len())
    }

    /// Whether a file of the name exists.
    pub(crate) fn is_taken(&self) -> bool {
        entry_kind(&self.directory, &self.name).is_some()
    }

    /// Opens or creates the part.
    ///
    /// # Errors
    ///
    /// Another upload is writing it, or the file system refuses.
    pub(crate) fn open(self) -> Result<Upload, Refusal> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let fd = openat(&self.directory, self.part.as_os_str(), flags, mode)?;
        let locked = Flock::lock(File::from(fd), FlockArg::LockExclusiveNonblock);
        let file = locked.map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => Refusal::Conflict,
            error => error.into(),
        })?;
        Ok(Upload {
            place: self,
            file,
            ended: false,
        })
    }

    fn unlink(&self) {
        // What cannot be removed stays: it is hidden and does no harm.
        let _ = unlinkat(
            &self.directory,
            self.part.as_os_str(),
            UnlinkatFlags::NoRemoveDir,
        );
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
        key[..8]
            .iter()
            .flat_map(|byte| format!("{byte:02x}").into_bytes()),
    );
    part.extend_from_slice(b".part");
    OsString::from_vec(part)
}

/// An upload under way.
#[derive(Debug)]
pub(crate) struct Upload {
    place: Place,
    file: Flock<File>,
    ended: bool,
}

impl Upload {
    /// Goes on behind the first `length` bytes.
    ///
    /// # Errors
    ///
    /// There are not so many, or the part cannot be read or written.
    pub(crate) async fn writer(&self, length: u64) -> io::Result<Writer> {
        let file = self.file.try_clone()?;
        let hashed = spawn_blocking(move || {
            let hash = hash_prefix(&file, length)?;
            Ok::<_, io::Error>((file, hash))
        });
        let (file, hash) = hashed.await.map_err(io::Error::other)??;
        Writer::start(file, length, hash)
    }

    /// Gives the file its name: it is whole.
    ///
    /// # Errors
    ///
    /// It cannot be renamed.
    pub(crate) fn commit(mut self) -> Result<(), Refusal> {
        let Place {
            directory,
            name,
            part,
            ..
        } = &self.place;
        renameat(directory, part.as_os_str(), directory, name.as_os_str())?;
        self.ended = true;
        nix::unistd::fsync(directory)?;
        Ok(())
    }

    /// Throws away what was received: it is wrong.
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
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::fs;
    use std::path::Path;

    fn place(root: &Path, path: &str, tag: Option<&str>) -> Result<Place, Refusal> {
        Place::new(
            &Root::open(root).unwrap(),
            &RelPath::parse(path).unwrap(),
            tag,
        )
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    async fn append(upload: &Upload, from: u64, data: &'static [u8]) {
        let mut writer = upload.writer(from).await.unwrap();
        writer.write(Bytes::from_static(data)).await.unwrap();
        writer.finish().await.unwrap();
    }

    #[tokio::test]
    async fn a_named_upload_is_kept_and_continued() {
        let root = tempfile::tempdir().unwrap();
        let at = || place(root.path(), "/file", Some("tag")).unwrap();
        let upload = at().open().unwrap();
        append(&upload, 0, b"hello ").await;
        drop(upload);
        assert_eq!(at().length(), 6);
        assert_eq!(
            place(root.path(), "/file", Some("other")).unwrap().length(),
            0
        );
        let upload = at().open().unwrap();
        append(&upload, 6, b"world").await;
        assert!(!at().is_taken());
        upload.commit().unwrap();
        assert!(at().is_taken());
        assert_eq!(names(root.path()), ["file"]);
        assert_eq!(fs::read(root.path().join("file")).unwrap(), b"hello world");
    }

    #[tokio::test]
    async fn a_nameless_or_empty_upload_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let upload = place(root.path(), "/file", None).unwrap().open().unwrap();
        append(&upload, 0, b"hello").await;
        assert_eq!(names(root.path()).len(), 1);
        drop(upload);
        drop(
            place(root.path(), "/file", Some("tag"))
                .unwrap()
                .open()
                .unwrap(),
        );
        assert!(names(root.path()).is_empty());
    }

    #[tokio::test]
    async fn two_clients_cannot_write_the_same_upload() {
        let root = tempfile::tempdir().unwrap();
        let at = || place(root.path(), "/file", Some("tag")).unwrap();
        let first = at().open().unwrap();
        assert_eq!(at().open().unwrap_err(), Refusal::Conflict);
        first.discard();
        assert!(at().open().is_ok());
    }

    #[test]
    fn a_file_cannot_take_a_directory_or_its_place() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dir")).unwrap();
        for path in ["/dir", "/", "/new/", "/missing/file"] {
            assert_eq!(
                place(root.path(), path, None).unwrap_err(),
                Refusal::Conflict,
                "{path}"
            );
        }
    }

    #[test]
    fn part_names_are_hidden_and_fit() {
        let name = OsString::from("x".repeat(255));
        let part = part_name(&name, Some("tag"));
        assert!(part.len() <= 255 && super::super::root::is_part(part.as_bytes()));
        assert_ne!(part_name(&name, None), part_name(&name, None));
    }
}
