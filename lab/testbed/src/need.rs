//! What tests need that not every machine has. A test that cannot run says so, and can be counted.
//!
//! The line `skipped: TEST: REASON` goes straight to standard error, because the harness shows what
//! a test prints only if it fails. If the need's variable is `1`, a skipped test fails.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A requirement of a test.
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

    /// Whether tests fail if they cannot run without it.
    #[must_use]
    pub fn is_required(self) -> bool {
        std::env::var_os(self.variable()).is_some_and(|value| value == "1")
    }

    /// Reports that a test is skipped, and why.
    ///
    /// # Panics
    /// If it is required.
    #[track_caller]
    pub fn skip(self, test: &str, why: impl Display) {
        let variable = self.variable();
        assert!(
            !self.is_required(),
            "{test}: {why}, and {variable} is set: nothing may be skipped"
        );
        // The harness would capture `eprintln`. Written at once, since other tests may write too.
        let line = format!("skipped: {test}: {why}\n");
        // There is nowhere to report an error.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// Whether all these programs are installed; if not, reports that the test is skipped.
    ///
    /// # Panics
    /// If they are required and one is missing.
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

/// Possible names of the browser.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The name of the browser that is installed; if there is none, reports that the test that calls
/// this is skipped.
///
/// # Panics
/// If it is required and missing.
#[must_use]
#[track_caller]
pub fn browser() -> Option<&'static str> {
    let answers = |name: &&str| {
        let mut command = Command::new(name);
        let quiet = command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    let found = BROWSERS.iter().find(|name| answers(name)).copied();
    if found.is_none() {
        let test = std::panic::Location::caller();
        Need::Browser.skip(&test.to_string(), "there is no browser: install chromium");
    }
    found
}

/// Which of these programs are not on the search path.
fn missing<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing = |name: &&&str| find(name, &path).is_none();
    names.iter().filter(is_missing).copied().collect()
}

/// The program that a name stands for, found as a shell would find it.
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
        // A folder is not a program, even though it is executable.
        let outer = folder.parent().unwrap();
        let inner = folder.file_name().unwrap().to_str().unwrap();
        assert_eq!(find(inner, outer.as_os_str()), None);
    }
}
