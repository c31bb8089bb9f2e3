//! Lists a directory.

use super::root::{Refusal, RelPath, Root, is_part};
use crate::url;
use anabranch_proto::error::printable;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, fstatat};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// The most entries of a listing. A directory with more is refused: whoever copies what is listed
/// would take a part for the whole.
pub(super) const MAX_ENTRIES: usize = 100_000;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its name; escaped as in a URL if it is not plain text. Directories end in a slash.
    pub(crate) name: String,
    /// Length in bytes; files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Whether the name is escaped because it is not UTF-8: none of our URLs leads there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) escaped: bool,
}

/// Reads the directory that `path` names: only files and directories, sorted by name, without
/// unfinished uploads. A symbolic link is shown as its target, unless that is outside the root.
///
/// # Errors
///
/// It cannot be read, or has more than [`MAX_ENTRIES`].
pub(crate) fn read(
    root: &Root,
    path: &RelPath,
    directory: &OwnedFd,
) -> Result<Vec<Entry>, Refusal> {
    read_at_most(root, path, directory, MAX_ENTRIES)
}

fn read_at_most(
    root: &Root,
    path: &RelPath,
    directory: &OwnedFd,
    most: usize,
) -> Result<Vec<Entry>, Refusal> {
    let is = |stat: &FileStat, kind| stat.st_mode & nix::libc::S_IFMT == kind;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut stream = Dir::openat(directory, ".", flags, Mode::empty())?;
    let mut entries = Vec::new();
    for found in stream.iter() {
        let found = found?;
        let name = found.file_name();
        let bytes = name.to_bytes();
        if bytes == b"." || bytes == b".." || is_part(bytes) {
            continue;
        }
        let here = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok();
        let stat = here.and_then(|stat| {
            // The kernel follows it as in a request for the file: never out of the root.
            let is_link = is(&stat, nix::libc::S_IFLNK);
            if is_link {
                root.stat(&path.join(bytes)).ok()
            } else {
                Some(stat)
            }
        });
        let Some(stat) = stat else {
            continue;
        };
        let (text, escaped) = match str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), false),
            Err(_) => (url::escape(bytes), true),
        };
        let (name, bytes) = if is(&stat, nix::libc::S_IFDIR) {
            (text + "/", None)
        } else if is(&stat, nix::libc::S_IFREG) {
            (text, Some(stat.st_size as u64))
        } else {
            continue;
        };
        if entries.len() == most {
            return Err(Refusal::Crowded);
        }
        entries.push(Entry {
            name,
            bytes,
            escaped,
        });
    }
    entries.sort();
    Ok(entries)
}

/// One line for each entry: its length and its name.
pub(crate) fn to_text(entries: &[Entry]) -> String {
    let lines = entries.iter().map(|entry| match entry.bytes {
        Some(bytes) => format!("{bytes:>14}  {}\n", printable(&entry.name)),
        None => format!("{:>14}  {}\n", "-", printable(&entry.name)),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn list(directory: &Path) -> Vec<Entry> {
        let root = Root::open(directory).unwrap();
        let directory: OwnedFd = fs::File::open(directory).unwrap().into();
        read(&root, &RelPath::parse("/").unwrap(), &directory).unwrap()
    }

    #[test]
    fn files_and_directories_are_listed_by_name() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("b"), "12345").unwrap();
        fs::write(root.path().join(".x.0011.part"), "").unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        fs::write(root.path().join(OsStr::from_bytes(b"c\xff")), "").unwrap();
        nix::unistd::mkfifo(&root.path().join("fifo"), Mode::S_IRUSR).unwrap();
        let entries = list(root.path());
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a/", "b", "c%FF"]);
        let escaped = entries.iter().map(|entry| entry.escaped);
        assert_eq!(escaped.collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(entries[1].bytes, Some(5));
    }

    #[test]
    fn a_directory_is_listed_whole_or_refused() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let root = Root::open(place.path()).unwrap();
        let directory: OwnedFd = fs::File::open(place.path()).unwrap().into();
        let read = |most| read_at_most(&root, &RelPath::parse("/").unwrap(), &directory, most);
        assert_eq!(read(3).unwrap().len(), 3);
        assert_eq!(read(2), Err(Refusal::Crowded));
    }

    #[test]
    fn a_link_tells_nothing_of_what_is_outside() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "12345").unwrap();
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("file"), "123").unwrap();
        symlink("file", at("inside")).unwrap();
        symlink("nothing", at("nowhere")).unwrap();
        symlink(outside.path().join("secret"), at("out")).unwrap();
        symlink(outside.path(), at("up")).unwrap();
        let entries = list(root.path());
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["file", "inside"]);
        assert_eq!(entries[1].bytes, Some(3));
    }

    #[test]
    fn names_cannot_break_the_listing() {
        let entry = Entry {
            name: "a\nb\u{1b}[2J".into(),
            bytes: Some(1),
            escaped: false,
        };
        assert_eq!(to_text(&[entry]), "             1  a?b?[2J\n");
    }
}
