//! Files that a scenario names, and the copies of them in a folder of results.
//!
//! A name is relative to the scenario file. In a folder of results, the copies are in
//! `campaign.files` beside `campaign.toml`. They take precedence, so that results are read with the
//! files they were made with, wherever the originals are now.

use super::mistake::Mistake;
use super::reader::Item;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file named by a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name in the scenario.
    pub name: String,
    /// Its content.
    pub text: Arc<str>,
}

/// The path of the copy of a file that the scenario `file` names, whether it exists or not.
pub(crate) fn copy_of(file: &Path, name: &str) -> PathBuf {
    let mut flat = String::new();
    for byte in name.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        // A leading dot is escaped too: a name of dots alone would be another folder.
        if is_plain && !(byte == b'.' && flat.is_empty()) {
            flat.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(flat, "%{byte:02x}");
        }
    }
    file.with_extension("files").join(flat)
}

/// Reads a file that a value names, and records it. `what` describes it in messages.
pub(super) fn read(item: &Item<'_>, what: &str) -> Result<(PathBuf, Arc<str>), Mistake> {
    let name = item.text()?;
    let scenario = Path::new(item.context.file);
    let copy = copy_of(scenario, name);
    let path = if copy.is_file() {
        copy
    } else {
        let beside = scenario.parent();
        beside.map_or_else(|| name.into(), |beside| beside.join(name))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| {
        item.mistake(format!(
            "cannot read the {what} {}: {error}",
            path.display()
        ))
    })?;
    let text: Arc<str> = text.into();
    let named = Named {
        name: name.to_owned(),
        text: Arc::clone(&text),
    };
    let mut files = item.context.files.borrow_mut();
    if !files.contains(&named) {
        files.push(named);
    }
    Ok((path, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_copy_of_its_own_in_one_folder() {
        let file = Path::new("out/campaign.toml");
        let names = [
            "a.trace",
            "../a.trace",
            "/a.trace",
            "b/a.trace",
            "b%2fa.trace",
            "..",
            ".",
        ];
        let copies: Vec<PathBuf> = names.iter().map(|name| copy_of(file, name)).collect();
        for (at, copy) in copies.iter().enumerate() {
            assert_eq!(
                copy.parent(),
                Some(Path::new("out/campaign.files")),
                "{copy:?}"
            );
            assert!(!copies[..at].contains(copy), "{copy:?}");
        }
        assert_eq!(copies[0], Path::new("out/campaign.files/a.trace"));
    }
}
