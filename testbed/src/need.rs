//! What a test needs and not every machine has; a test that cannot run says so, and can be counted.
//!
//! The line `skipped: TEST: REASON` goes to standard error past the harness, which shows what a
//! test prints only if it fails. Where the variable of the need is `1`, a skipped test is a failed
//! one.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What a test needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Network namespaces, and the programs that tests of real kernels call.
    Network,
    /// Virtual machines.
    VirtualMachine,
    /// A browser.
    Browser,
}

impl Need {
    /// The environment variable that turns a skipped test into a failure when it is `1`.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Network => "ANABRANCH_REQUIRE_NETNS",
            Self::VirtualMachine => "ANABRANCH_REQUIRE_VM",
            Self::Browser => "ANABRANCH_REQUIRE_BROWSER",
        }
    }

    /// Whether a test that cannot run for want of it fails.
    #[must_use]
    pub fn is_required(self) -> bool {
        std::env::var_os(self.variable()).is_some_and(|value| value == "1")
    }

    /// Says that a test is skipped, and why.
    ///
    /// # Panics
    /// When it is required.
    #[track_caller]
    pub fn skip(self, test: &str, why: impl Display) {
        let variable = self.variable();
        assert!(
            !self.is_required(),
            "{test}: {why}, and {variable} is set: nothing may be skipped"
        );
        // `eprintln` would be kept by the harness. In one piece: other tests may say so too.
        let line = format!("skipped: {test}: {why}\n");
        // There is nobody to tell that this failed.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Whether all these programs are there; if not, the test is skipped.
    ///
    /// # Panics
    /// When they are required.
    #[must_use]
    #[track_caller]
    pub fn programs(self, test: &str, names: &[&str]) -> bool {
        let missing = missing(names);
        if missing.is_empty() {
            return true;
        }
        self.skip(test, format!("there is no `{}`", missing.join("`, no `")));
        false
    }
}

/// Which of these programs are not on the search path.
fn missing<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing = |name: &&&str| find(name, &path).is_none();
    names.iter().filter(is_missing).copied().collect()
}

/// Where a program is that a name stands for, as a shell would look for it.
fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &Path| {
        let data = file.metadata();
        data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_search_path_only() {
        let program = std::env::current_exe().unwrap();
        let folder = program.parent().unwrap();
        let name = program.file_name().unwrap().to_str().unwrap();
        let path = std::env::join_paths([Path::new("/nonexistent"), folder]).unwrap();
        assert_eq!(find(name, &path), Some(program.clone()));
        assert_eq!(find(name, OsStr::new("/nonexistent")), None);
        assert_eq!(find(name, OsStr::new("")), None);
        // A folder is no program, though it may be entered.
        let outer = folder.parent().unwrap();
        let inner = folder.file_name().unwrap().to_str().unwrap();
        assert_eq!(find(inner, outer.as_os_str()), None);
    }
}
