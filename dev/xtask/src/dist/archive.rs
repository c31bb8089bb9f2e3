//! Archives that are the same whoever makes them: no user's name, no time, entries in given order.

use flate2::{Compression, GzBuilder};
use std::io::Write as _;
use tar::{Builder, EntryType, Header};

/// A file or a directory in an archive.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    path: String,
    mode: u32,
    owner: u64,
    kind: EntryType,
    content: Vec<u8>,
}

impl Entry {
    /// A file of root's that everyone may read.
    pub(super) fn file(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.to_owned(),
            mode: 0o644,
            owner: 0,
            kind: EntryType::Regular,
            content: content.into(),
        }
    }

    /// A program of root's that everyone may run.
    pub(super) fn program(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            mode: 0o755,
            ..Self::file(path, content)
        }
    }

    /// A directory.
    pub(super) fn directory(path: &str, owner: u64, mode: u32) -> Self {
        Self {
            mode,
            owner,
            kind: EntryType::Directory,
            ..Self::file(path, Vec::new())
        }
    }

    /// Where it is in the archive.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// What it takes on a disk, in units of 1,024 bytes.
    pub(super) fn kilobytes(&self) -> usize {
        self.content.len().div_ceil(1024)
    }
}

/// A tar archive.
pub(super) fn tar(entries: &[Entry]) -> Result<Vec<u8>, String> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner);
        header.set_gid(entry.owner);
        header.set_mtime(0);
        header.set_size(entry.content.len() as u64);
        let content = entry.content.as_slice();
        let added = builder.append_data(&mut header, &entry.path, content);
        added.map_err(|error| format!("{}: {error}", entry.path))?;
    }
    builder.into_inner().map_err(|error| error.to_string())
}

/// Compresses; without a name and a time in the header.
pub(super) fn gzip(content: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    let written = encoder.write_all(content);
    let packed = written.and_then(|()| encoder.finish());
    packed.map_err(|error| error.to_string())
}

/// An archive of `ar`, as Debian's packages are: names of at most 15 bytes.
pub(super) fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let length = content.len();
        let header = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{length:<10}`\n",
            0, 0, 0, 100_644
        );
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(content);
        if length % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_says_nothing_of_who_made_it_and_when() {
        let entries = [
            Entry::directory("./a", 7, 0o700),
            Entry::program("./a/b", "text"),
        ];
        let archive = tar(&entries).expect("memory");
        assert_eq!(archive, tar(&entries).expect("memory"));
        let mut archive = tar::Archive::new(archive.as_slice());
        let read = archive.entries().expect("an archive").map(|entry| {
            let entry = entry.expect("an entry");
            let header = entry.header();
            assert_eq!(header.mtime().expect("a number"), 0);
            let owner = header.uid().expect("a number");
            (owner, header.mode().expect("a number"))
        });
        assert_eq!(read.collect::<Vec<_>>(), [(7, 0o700), (0, 0o755)]);
    }

    #[test]
    fn members_of_ar_begin_at_even_places() {
        let archive = ar(&[("one", b"odd"), ("two", b"even")]);
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 4);
        let first = b"one             0           0     0     100644  3         `\nodd\n";
        assert!(archive[8..].starts_with(first));
        assert!(archive[72..].starts_with(b"two "));
    }
}
