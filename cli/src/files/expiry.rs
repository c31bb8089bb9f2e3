//! Removes unfinished uploads that nobody continues, once they are old enough.

use super::MAX_DEPTH;
use super::root::{RelPath, Root};
use super::upload::is_our_part;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

/// Removes parts below the root that were last written longer than `age` ago and that nobody is
/// writing. Returns how many. Symbolic links are not followed. Blocks.
pub(crate) fn sweep(root: &Root, age: Duration) -> usize {
    let Some(before) = SystemTime::now().checked_sub(age) else {
        return 0;
    };
    let top = RelPath::parse("/").and_then(|top| root.directory(&top));
    top.map_or(0, |top| sweep_directory(&top, before, MAX_DEPTH))
}

/// Sweeps one directory. Skips what cannot be read: the next sweep tries again.
fn sweep_directory(directory: &OwnedFd, before: SystemTime, depth: usize) -> usize {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let Ok(mut stream) = Dir::openat(directory, ".", flags, Mode::empty()) else {
        return 0;
    };
    let mut removed = 0;
    for found in stream.iter() {
        let Ok(found) = found else { break };
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
            continue;
        };
        match stat.st_mode & nix::libc::S_IFMT {
            nix::libc::S_IFDIR if depth > 0 => {
                if let Ok(inner) = openat(directory, name, flags, Mode::empty()) {
                    removed += sweep_directory(&inner, before, depth - 1);
                }
            }
            nix::libc::S_IFREG if is_our_part(name.to_bytes()) => {
                removed += usize::from(remove_if_old(directory, name, before).is_ok());
            }
            _ => {}
        }
    }
    removed
}

fn remove_if_old(directory: &OwnedFd, name: &CStr, before: SystemTime) -> nix::Result<()> {
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    if modified.map_err(|_| Errno::EIO)? > before {
        return Err(Errno::EBUSY);
    }
    // Whoever writes it holds the lock.
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
    let (locked, named) = (
        fstat(&*locked)?,
        fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?,
    );
    if (locked.st_dev, locked.st_ino) != (named.st_dev, named.st_ino) {
        return Err(Errno::EBUSY);
    }
    let name = OsStr::from_bytes(name.to_bytes());
    unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn write(path: &Path, age: Duration) -> File {
        fs::write(path, "x").unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        file
    }

    #[test]
    fn only_parts_that_are_old_and_nobodys_go() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        let part = |name: &str| format!(".{name}.0123456789abcdef.part");
        let inner = root.path().join("inner");
        fs::create_dir(&inner).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        write(&outside.path().join(part("outside")), 2 * day);
        write(&inner.join(part("old")), 2 * day);
        write(&inner.join(part("young")), hour);
        write(&root.path().join(".mine.part"), 2 * day);
        write(&root.path().join("file"), 2 * day);
        let busy = write(&root.path().join(part("busy")), 2 * day);
        let busy = Flock::lock(busy, FlockArg::LockExclusive).unwrap();
        let open = Root::open(root.path()).unwrap();
        assert_eq!(sweep(&open, day), 1);
        assert!(!inner.join(part("old")).exists());
        assert!(inner.join(part("young")).exists() && root.path().join(".mine.part").exists());
        assert!(outside.path().join(part("outside")).exists());
        drop(busy);
        assert_eq!(sweep(&open, day), 1);
    }
}
