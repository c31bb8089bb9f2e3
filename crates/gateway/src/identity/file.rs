//! Files that hold secrets: only their owner may read them, and they are replaced as a whole.

use anabranch_net::identity::private_directory;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The largest file that is read, in bytes: a list of all clients that there may be.
pub(super) const MAX_FILE: u64 = 64 << 20;
/// Time between two attempts to get a lock.
const AGAIN: Duration = Duration::from_millis(20);

/// Why a file of ours cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file does not hold what we write into it.
    #[error("{} is damaged ({error}): repair it, or move it away to begin anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Another process uses it.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// Makes a directory that only its owner may read, if it is not there. Who may read one that is
/// there is left to whoever made it: our files in it are private by themselves.
pub(crate) fn directory(path: &Path) -> Result<(), FileError> {
    private_directory(path).map_err(|error| failed(path, error))
}

/// Keeps other processes from using `path` while the result is kept. Waits this long for one that
/// does, on a thread that may.
pub(crate) fn lock(path: &Path, patience: Duration) -> Result<Flock<File>, FileError> {
    let opened = private().truncate(false).create(true).open(path);
    let mut file = opened.map_err(|error| failed(path, error))?;
    let deadline = Instant::now() + patience;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((file, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file,
            Err((_, Errno::EWOULDBLOCK)) => return Err(FileError::InUse { path: path.into() }),
            Err((_, error)) => return Err(failed(path, error.into())),
        };
        thread::sleep(AGAIN);
    }
}

/// What a file holds; nothing if there is none.
pub(crate) fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, FileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(failed(path, error)),
    };
    let mut text = Vec::new();
    let read = file.take(MAX_FILE + 1).read_to_end(&mut text);
    let length = read.map_err(|error| failed(path, error))?;
    if length as u64 > MAX_FILE {
        let error = io::Error::other(format!("it has more than {} MiB", MAX_FILE >> 20));
        return Err(failed(path, error));
    }
    serde_json::from_slice(&text).map_err(|error| FileError::Damaged {
        path: path.into(),
        error,
    })
}

/// Replaces a file. Whatever happens meanwhile, it holds what it held or all of what it is to hold.
pub(crate) fn replace(path: &Path, content: &impl Serialize) -> Result<(), FileError> {
    write(path, content).map_err(|error| failed(path, error))
}

fn write(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // One that was left over may be readable to others, and stays open to whoever opened it.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = private().create_new(true).open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// How files are opened that only their owner may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn failed(path: &Path, error: io::Error) -> FileError {
    FileError::Io {
        path: path.into(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_left_of_a_write_that_broke_off_makes_nothing_public() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secrets.json");
        let new = directory.path().join("secrets.json.new");
        fs::write(&new, "half of an ol").unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, &["new"]).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(read::<Vec<String>>(&path).unwrap(), ["new"]);
    }

    #[test]
    fn a_directory_is_made_for_its_owner_alone_and_that_of_others_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = directory.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).unwrap();
        let ours = theirs.join("state/anabranch");
        super::directory(&ours).unwrap();
        super::directory(&ours).unwrap();
        let modes = [&theirs, ours.parent().unwrap(), &ours].map(mode);
        assert_eq!(modes, [0o755, 0o700, 0o700]);
    }

    #[test]
    fn a_lock_is_waited_for_as_long_as_one_may() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = lock(&path, Duration::ZERO).unwrap();
        let second = lock(&path, Duration::ZERO);
        assert!(matches!(second, Err(FileError::InUse { .. })), "{second:?}");
        let waiting = {
            let path = path.clone();
            thread::spawn(move || lock(&path, Duration::from_secs(60)).map(|_| ()))
        };
        drop(held);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_file_that_is_larger_than_any_of_ours_is_not_read_as_a_damaged_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("huge.json");
        File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        let huge = read::<Vec<String>>(&path).unwrap_err();
        assert!(huge.to_string().ends_with("more than 64 MiB"), "{huge}");
    }
}
