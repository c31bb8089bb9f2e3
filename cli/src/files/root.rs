//! The served directory: finds what a request names below it, and nothing outside it.
//!
//! The kernel confines the lookup (`openat2` with `RESOLVE_BENEATH`): neither `..` nor a symbolic
//! link leads out, even if the tree changes meanwhile. Links that stay inside work.

use super::MAX_DEPTH;
use crate::url;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, fstat, mkdirat};
use nix::unistd::fsync;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest name of a file, in bytes (Linux's `NAME_MAX`).
const NAME_MAX: usize = 255;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such file.
    NotFound,
    /// The client may not have it, or it is outside the directory.
    Forbidden,
    /// The directory of an upload does not exist.
    NoDirectory,
    /// There is a directory where a file should be.
    IsDirectory,
    /// There is something else where a directory should be.
    NoPlace,
    /// Somebody else is sending this upload.
    InUse,
    /// The file exists, but must not.
    Exists,
    /// The file is not what the client expects it to be.
    Changed,
    /// This is more than a connection may upload.
    TooLarge,
    /// These are more files than a connection may upload.
    TooMany,
    /// The directory has more entries than a listing may have.
    Crowded,
    /// The server has run out of something.
    Busy,
    /// The disk is full.
    DiskFull,
    /// Something else went wrong here.
    Internal,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        match error {
            Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::ENAMETOOLONG
            | Errno::ELOOP
            | Errno::ENXIO
            | Errno::ENODEV => Self::NotFound,
            Errno::EACCES | Errno::EPERM | Errno::EXDEV | Errno::EROFS => Self::Forbidden,
            Errno::EISDIR | Errno::EEXIST | Errno::ENOTEMPTY => Self::IsDirectory,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Self::Busy,
            Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => Self::DiskFull,
            _ => Self::Internal,
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(code), _) => Errno::from_raw(code).into(),
            // The request got no turn at the disk in time.
            (None, io::ErrorKind::TimedOut) => Self::Busy,
            _ => Self::Internal,
        }
    }
}

/// A path below the root: every part is a plain name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RelPath {
    parts: Vec<OsString>,
    /// Whether it ended in a slash.
    pub(crate) is_directory: bool,
}

impl RelPath {
    /// Parses the path of a request, which is still escaped.
    ///
    /// # Errors
    ///
    /// One of its parts cannot name anything below the root.
    pub(crate) fn parse(path: &str) -> Result<Self, Refusal> {
        let mut parts = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let name = url::unescape(part);
            if name.contains(&b'/') || name.contains(&0) || name.len() > NAME_MAX {
                return Err(Refusal::NotFound);
            }
            if name == b"." || name == b".." {
                return Err(Refusal::Forbidden);
            }
            parts.push(OsString::from_vec(name));
        }
        let is_directory = parts.is_empty() || path.ends_with('/');
        if parts.last().is_some_and(|name| is_part(name.as_bytes())) {
            return Err(Refusal::NotFound);
        }
        Ok(Self {
            parts,
            is_directory,
        })
    }

    /// The directory the file is in, and its name there; `None` for the root.
    pub(crate) fn split(&self) -> Option<(Self, &OsString)> {
        let (name, parents) = self.parts.split_last()?;
        Some((
            Self {
                parts: parents.to_vec(),
                is_directory: true,
            },
            name,
        ))
    }

    /// The path of `name` in this directory.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut parts = self.parts.clone();
        parts.push(OsString::from_vec(name.to_vec()));
        let is_directory = false;
        Self {
            parts,
            is_directory,
        }
    }

    /// The name of the file or directory; `None` for the root.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.parts.last().map(OsString::as_os_str)
    }

    fn to_path(&self) -> PathBuf {
        if self.parts.is_empty() {
            PathBuf::from(".")
        } else {
            self.parts.iter().collect()
        }
    }
}

/// Whether a name is that of an unfinished upload. Those are not shown.
pub(crate) fn is_part(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(b".part")
}

/// What a request names.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file, open for reading.
    File(File),
    /// A directory.
    Directory(OwnedFd),
}

/// The served directory.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    ///
    /// It does not exist or cannot be read, or the kernel cannot confine (Linux before 5.6, or a
    /// sandbox that forbids `openat2`).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let directory = nix::fcntl::open(path, flags, Mode::empty())?;
        let root = Self { directory };
        root.resolve(Path::new("."), flags)?;
        Ok(root)
    }

    /// Finds what `path` names.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(crate) fn find(&self, path: &RelPath) -> Result<Found, Refusal> {
        // Without O_NONBLOCK, opening a FIFO would wait for a writer.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let fd = self.resolve(&path.to_path(), flags)?;
        let kind = fstat(&fd)?.st_mode & nix::libc::S_IFMT;
        match kind {
            nix::libc::S_IFDIR => Ok(Found::Directory(fd)),
            nix::libc::S_IFREG if path.is_directory => Err(Refusal::NotFound),
            nix::libc::S_IFREG => Ok(Found::File(File::from(fd))),
            _ => Err(Refusal::Forbidden),
        }
    }

    /// The kind and length of what `path` names, found without opening it.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(crate) fn stat(&self, path: &RelPath) -> Result<FileStat, Refusal> {
        let fd = self.resolve(&path.to_path(), OFlag::O_PATH | OFlag::O_CLOEXEC)?;
        Ok(fstat(&fd)?)
    }

    /// Opens a directory below the root.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(crate) fn directory(&self, path: &RelPath) -> Result<OwnedFd, Refusal> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match self.resolve(&path.to_path(), flags) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => Err(Refusal::NoDirectory),
            result => Ok(result?),
        }
    }

    /// Makes a directory below the root and its missing parents. Returns whether it is new. `make`
    /// makes a directory of a given name in another one, and returns whether that is new.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(crate) fn make(
        &self,
        path: &RelPath,
        make: impl Fn(&OwnedFd, &OsStr) -> Result<bool, Refusal>,
    ) -> Result<bool, Refusal> {
        // A directory named like an unfinished upload would be neither listed nor swept.
        let is_reserved = path.parts.iter().any(|name| is_part(name.as_bytes()));
        if is_reserved || path.parts.len() >= MAX_DEPTH {
            return Err(Refusal::NotFound);
        }
        let mut at = RelPath {
            parts: Vec::new(),
            is_directory: true,
        };
        let mut directory = self.directory(&at)?;
        let mut made = false;
        for name in &path.parts {
            at.parts.push(name.clone());
            made = false;
            directory = match self.directory(&at) {
                Err(Refusal::NoDirectory) => {
                    made = make(&directory, name)?;
                    let found = self.directory(&at);
                    found.map_err(|refusal| match refusal {
                        Refusal::NoDirectory => Refusal::NoPlace,
                        other => other,
                    })?
                }
                found => found?,
            };
        }
        Ok(made)
    }

    fn resolve(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).resolve(resolve);
        loop {
            // EAGAIN: something was renamed meanwhile and the kernel could not be sure.
            match openat2(self.directory.as_fd(), path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                result => return result,
            }
        }
    }
}

/// Makes a directory. Returns false if something of this name exists.
pub(super) fn make_in(directory: &OwnedFd, name: &OsStr) -> Result<bool, Refusal> {
    match mkdirat(directory, name, Mode::from_bits_truncate(0o777)) {
        Ok(()) => {
            fsync(directory)?;
            Ok(true)
        }
        Err(Errno::EEXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether `name` exists in `directory`, and whether it is a directory itself.
pub(crate) fn entry_kind(directory: &OwnedFd, name: &OsString) -> Option<bool> {
    let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
    let stat = nix::sys::stat::fstatat(directory, name.as_os_str(), flags).ok()?;
    Some(stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn paths_that_climb_are_refused() {
        for text in ["/..", "/a/../b", "/%2e%2e/x", "/.", "/a/%2E/b"] {
            assert_eq!(RelPath::parse(text), Err(Refusal::Forbidden), "{text}");
        }
        for text in [
            "/a%2fb",
            "/a%00b",
            "/.x.part",
            &format!("/{}", "x".repeat(256)),
        ] {
            assert_eq!(RelPath::parse(text), Err(Refusal::NotFound), "{text}");
        }
    }

    #[test]
    fn empty_parts_do_not_count() {
        assert_eq!(path("//a///b"), path("/a/b"));
        assert!(path("/").is_directory && path("").is_directory && path("/a/").is_directory);
        assert!(!path("/a%20b").is_directory);
    }

    #[test]
    fn only_what_is_below_the_root_is_found() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        let at = |name: &str| inside.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/file"), "hello").unwrap();
        symlink("dir/file", at("link")).unwrap();
        symlink(outside.path().join("secret"), at("out")).unwrap();
        symlink("../../../../etc", at("up")).unwrap();
        symlink("loop", at("loop")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRUSR).unwrap();
        let root = Root::open(inside.path()).unwrap();
        assert!(matches!(root.find(&path("/dir/file")), Ok(Found::File(_))));
        assert!(matches!(root.find(&path("/link")), Ok(Found::File(_))));
        assert!(matches!(root.find(&path("/dir")), Ok(Found::Directory(_))));
        assert!(matches!(root.find(&path("/")), Ok(Found::Directory(_))));
        let refusal = |text: &str| root.find(&path(text)).unwrap_err();
        assert_eq!(refusal("/out"), Refusal::Forbidden);
        assert_eq!(refusal("/up/passwd"), Refusal::Forbidden);
        assert_eq!(refusal("/fifo"), Refusal::Forbidden);
        assert_eq!(refusal("/loop"), Refusal::NotFound);
        assert_eq!(refusal("/nothing"), Refusal::NotFound);
        assert_eq!(refusal("/dir/file/"), Refusal::NotFound);
        assert_eq!(refusal("/dir/file/x"), Refusal::NotFound);
        assert_eq!(
            root.directory(&path("/nothing")).unwrap_err(),
            Refusal::NoDirectory
        );
    }

    #[test]
    fn directories_are_made_below_the_root_and_nowhere_else() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        let at = |name: &str| inside.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink(outside.path(), at("out")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        fs::create_dir(at("real")).unwrap();
        symlink("real", at("link")).unwrap();
        let root = Root::open(inside.path()).unwrap();
        let make = |text: &str| root.make(&path(text), make_in);
        assert_eq!(make("/"), Ok(false));
        assert_eq!(make("/a/b/c/"), Ok(true));
        assert_eq!(make("/a/b/"), Ok(false));
        assert!(at("a/b/c").is_dir());
        assert_eq!(make("/link/x/"), Ok(true), "a link that stays inside");
        assert!(at("real/x").is_dir());
        assert_eq!(make("/out/x/"), Err(Refusal::Forbidden));
        for name in ["/file/", "/file/x/", "/dangling/", "/dangling/x/"] {
            assert_eq!(make(name), Err(Refusal::NoPlace), "{name}");
        }
        assert_eq!(make("/.x.part/y/"), Err(Refusal::NotFound));
        let deep = format!("/{}", "d/".repeat(MAX_DEPTH));
        assert_eq!(make(&deep), Err(Refusal::NotFound));
        assert!(!at("d").exists());
        assert_eq!(make(&deep[2..]), Ok(true));
        let refused = root.make(&path("/new/x/"), |_, _| Err(Refusal::TooMany));
        assert_eq!(refused, Err(Refusal::TooMany));
        assert!(!at("new").exists());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_root_that_is_not_there_is_an_error() {
        assert!(Root::open(Path::new("/nonexistent/anabranch")).is_err());
    }
}
