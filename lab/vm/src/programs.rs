//! Finds and runs programs of this machine, and finds their libraries.

use crate::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of administration programs, which are not on every user's `PATH`.
const ALSO: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program of this machine that virtual machines need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The program.
    pub program: &'static str,
    /// The Debian package it comes in.
    pub package: &'static str,
    /// Its path; `None` if it is not installed.
    pub found: Option<PathBuf>,
}

/// The programs needed to start a guest, with their paths if installed.
pub fn requirements() -> Vec<Requirement> {
    let all = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("insmod", "kmod"),
        ("ldd", "libc-bin"),
    ];
    let requirement = |(program, package)| Requirement {
        program,
        package,
        found: find(program),
    };
    all.into_iter().map(requirement).collect()
}

/// Finds a program by name, or returns a path as it is.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(ALSO.iter().map(PathBuf::from));
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Finds a program, or fails with the package that contains it.
pub(crate) fn require(program: &str, package: &'static str) -> Result<PathBuf, Error> {
    find(program).ok_or_else(|| Error::Missing {
        program: program.to_owned(),
        package,
    })
}

/// Runs a program until it ends, and returns what it printed.
pub(crate) fn output<S: AsRef<OsStr>>(program: &Path, arguments: &[S]) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    // So that output does not depend on the user's language.
    command.env("LC_ALL", "C");
    let line = line(&command);
    let output = command
        .output()
        .map_err(Error::system(format!("cannot run `{line}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stdout));
    Err(Error::Failed {
        command: line,
        output: last_lines(&text, 12),
    })
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// The last lines of a text.
pub(crate) fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(most);
    lines.get(from..).unwrap_or_default().join("\n")
}

/// The shared libraries that a program loads, and its loader; empty if it is static.
pub(crate) fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let ldd = require("ldd", "libc-bin")?;
    match output(&ldd, &[program]) {
        Ok(listing) => Ok(listing.lines().filter_map(library).collect()),
        // This is what `ldd` prints for a static program.
        Err(Error::Failed { output, .. }) if output.contains("not a dynamic executable") => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The file a line of `ldd` names: `libc.so.6 => /lib/libc.so.6 (0x...)`, or the loader alone.
fn library(line: &str) -> Option<PathBuf> {
    let file = match line.split_once("=>") {
        Some((_, file)) => file,
        None => line,
    };
    let file = file.split_whitespace().next()?;
    file.starts_with('/').then(|| PathBuf::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_of_libraries_is_read_with_its_loader_and_without_what_is_no_file() {
        assert_eq!(
            library("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)"),
            Some(PathBuf::from("/lib/libc.so.6"))
        );
        assert_eq!(
            library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"),
            Some(PathBuf::from("/lib64/ld-linux-x86-64.so.2"))
        );
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(library("\tstatically linked"), None);
    }

    #[test]
    fn the_end_of_a_text_is_its_last_lines_that_say_something() {
        assert_eq!(last_lines("a\n\nb\n  \nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
