//! Proves that a crate written only from `docs/writing-a-scheduler.md` compiles, conforms and is a
//! program that runs: the page's blocks are written below `target/page` in the layout that the page
//! gives, and its commands are run.
//!
//! The steps are those of a reader, from top to bottom. Before a block replaces a file, and at the
//! end, everything written so far must compile. Versions are those of the checkout's lock file, so
//! that nothing new is downloaded, and libraries come from the checkout's target folder.

mod steps;

use crate::Finding;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use steps::{Deed, Step};

const PAGE: &str = "docs/writing-a-scheduler.md";
/// The folder names that the page uses.
const CHECKOUT: &str = "anabranch";
const CRATE: &str = "my-scheduler";
/// Compiles everything and runs nothing.
const COMPILE: [&str; 3] = ["test", "--release", "--no-run"];

/// Follows the page; returns true if everything worked.
pub(crate) fn check(root: &Path) -> Result<bool, String> {
    let path = root.join(PAGE);
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let steps = match steps::read(PAGE, &text) {
        Ok(steps) => steps,
        Err(findings) => return crate::report("page", Ok(findings)),
    };
    let place = Place::make(root)?;
    let finding = place.follow(&steps)?;
    if finding.is_none() {
        let is_block = |step: &&Step| !matches!(step.deed, Deed::Run { .. });
        let blocks = steps.iter().filter(is_block).count();
        let commands = steps.len() - blocks;
        crate::say(&format!(
            "page: {blocks} blocks of {PAGE} compile and its {commands} commands pass"
        ));
        return Ok(true);
    }
    crate::report("page", Ok(finding.into_iter().collect()))
}

/// The folder in which the page is followed.
struct Place {
    folder: PathBuf,
    target: PathBuf,
}

impl Place {
    /// Creates it anew, so that files left from an earlier version of the page cannot help.
    fn make(root: &Path) -> Result<Self, String> {
        let above = root.join("target/page");
        let folder = above.join(CRATE);
        let problem = |e: std::io::Error| format!("{}: {e}", above.display());
        if above.exists() {
            // The checkout in it is a symbolic link, so the checkout itself is not removed.
            fs::remove_dir_all(&above).map_err(problem)?;
        }
        fs::create_dir_all(&folder).map_err(problem)?;
        symlink(root, above.join(CHECKOUT)).map_err(problem)?;
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(problem)?;
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |given| root.join(given));
        Ok(Self { folder, target })
    }

    /// Carries out the steps in order; returns the first one that fails.
    fn follow(&self, steps: &[Step]) -> Result<Option<Finding>, String> {
        let mut last = 0;
        let finding = |line, message| Finding {
            file: PAGE.to_owned(),
            line,
            message,
        };
        let stale = "what the blocks up to here make does not compile";
        for step in steps {
            match &step.deed {
                Deed::Write { file, text } => {
                    let path = self.folder.join(file);
                    if path.exists() && !self.compiles()? {
                        return Ok(Some(finding(last, stale.to_owned())));
                    }
                    write(&path, text)?;
                    last = step.line;
                }
                Deed::Append { file, text } => {
                    let path = self.folder.join(file);
                    let before = fs::read_to_string(&path)
                        .map_err(|e| format!("{}: {e}", path.display()))?;
                    write(&path, &format!("{before}\n{text}"))?;
                    last = step.line;
                }
                Deed::Run { arguments } => {
                    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    if let Some(why) = self.run(&words)?.fault() {
                        let message = format!("`cargo {}` {why}", words.join(" "));
                        return Ok(Some(finding(step.line, message)));
                    }
                }
            }
        }
        let compiles = self.compiles()?;
        Ok((!compiles).then(|| finding(last, stale.to_owned())))
    }

    fn compiles(&self) -> Result<bool, String> {
        Ok(self.run(&COMPILE)?.is_success)
    }

    fn run(&self, arguments: &[&str]) -> Result<Ended, String> {
        crate::say(&format!("page: cargo {} in {CRATE}", arguments.join(" ")));
        // The workspace's own setting: with another one, libraries would be compiled again.
        let debug = std::env::var("CARGO_PROFILE_RELEASE_DEBUG");
        let debug = debug.unwrap_or_else(|_| "line-tables-only".to_owned());
        let mut child = crate::cargo()
            .current_dir(&self.folder)
            .args(arguments)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_RELEASE_DEBUG", debug)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot run cargo: {e}"))?;
        let mut passed = 0;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line.map_err(|e| format!("cannot read from cargo: {e}"))?;
                passed += passed_by(&line);
                crate::say(&line);
            }
        }
        let status = child
            .wait()
            .map_err(|e| format!("cannot wait for cargo: {e}"))?;
        Ok(Ended {
            is_success: status.success(),
            passed: (arguments.first() == Some(&"test")).then_some(passed),
        })
    }
}

/// How a command ended.
struct Ended {
    is_success: bool,
    /// Tests that passed, if the command runs tests.
    passed: Option<u64>,
}

impl Ended {
    /// What a reader would complain about.
    fn fault(&self) -> Option<&'static str> {
        match (self.is_success, self.passed) {
            (false, _) => Some("failed"),
            (true, Some(0)) => Some("ran no test"),
            (true, _) => None,
        }
    }
}

/// How many tests passed, according to a line of a test program's output.
fn passed_by(line: &str) -> u64 {
    let count = line
        .strip_prefix("test result: ok. ")
        .and_then(|rest| rest.split_once(" passed"));
    count.map_or(0, |(count, _)| count.parse().unwrap_or(0))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let problem = |e: std::io::Error| format!("{}: {e}", path.display());
    if let Some(above) = path.parent() {
        fs::create_dir_all(above).map_err(problem)?;
    }
    fs::write(path, text).map_err(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_this_checkout_can_be_followed() {
        let text = fs::read_to_string(crate::root().join(PAGE)).expect("the page is there");
        let steps = steps::read(PAGE, &text).expect("each block has its file");
        assert!(steps.len() >= 6, "{steps:?}");
    }

    #[test]
    fn a_command_that_runs_no_test_is_a_fault() {
        let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(passed_by(line), 3);
        assert_eq!(
            passed_by("test result: FAILED. 3 passed; 1 failed; 0 ignored"),
            0
        );
        let ended = |is_success, passed| Ended { is_success, passed }.fault();
        assert_eq!(ended(true, Some(1)), None);
        assert_eq!(ended(true, None), None);
        assert_eq!(ended(true, Some(0)), Some("ran no test"));
        assert_eq!(ended(false, Some(3)), Some("failed"));
    }
}
