//! What is in a directory.

use super::root::{Refusal, is_part};
use crate::url;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fstatat};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// Entries shown at most; what the file system names first counts.
const MAX_ENTRIES: usize = 100_000;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its name, escaped as in a URL where it is not plain text; directories end in a slash.
    pub(crate) name: String,
    /// Length in bytes, of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
}

/// Reads a directory: files and directories only, by name; unfinished uploads are left out.
///
/// # Errors
///
/// It cannot be read.
pub(crate) fn read(directory: &OwnedFd) -> Result<Vec<Entry>, Refusal> {
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
        // Links are shown as what they lead to; whether they may be followed shows when asked for.
        let Ok(stat) = fstatat(directory, name, AtFlags::empty()) else {
            continue;
        };
        let text = match str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => url::escape(bytes),
        };
        match stat.st_mode & nix::libc::S_IFMT {
            nix::libc::S_IFDIR => entries.push(Entry {
                name: text + "/",
                bytes: None,
            }),
            nix::libc::S_IFREG => {
                entries.push(Entry {
                    name: text,
                    bytes: Some(stat.st_size as u64),
                });
            }
            _ => {}
        }
        if entries.len() == MAX_ENTRIES {
            break;
        }
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

/// A name without characters that would confuse a terminal.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_and_directories_are_listed_by_name() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("b"), "12345").unwrap();
        fs::write(root.path().join(".x.0011.part"), "").unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        nix::unistd::mkfifo(&root.path().join("fifo"), Mode::S_IRUSR).unwrap();
        let directory: OwnedFd = fs::File::open(root.path()).unwrap().into();
        let entries = read(&directory).unwrap();
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a/", "b"]);
        assert_eq!(entries[1].bytes, Some(5));
    }

    #[test]
    fn names_cannot_break_the_listing() {
        let entry = Entry {
            name: "a\nb\u{1b}[2J".into(),
            bytes: Some(1),
        };
        assert_eq!(to_text(&[entry]), "             1  a?b?[2J\n");
    }
}
