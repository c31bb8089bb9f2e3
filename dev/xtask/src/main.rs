//! What `cargo xtask` runs: the project's own rules as commands, and special builds.
//!
//! Every check prints one line per finding, `file:line: message`, and exits with 1 if there is any.
//! `cargo xtask tidy` also runs as a unit test of this package, so `cargo test` alone finds a
//! breach.

mod deps;
mod dist;
mod interop;
mod metadata;
mod page;
mod pgo;
mod results;
mod rfc;
mod soak;
mod source;
mod tidy;
mod wasm;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy   house rules: sizes, crate arrows, banned calls, file heads
  rfc    index of RFC citations: RFC, section, file:line
  deps   licences and sources of every dependency
  wasm   check that wire, proto and link build where there is no operating system
  page   follow docs/writing-a-scheduler.md to the letter: build its crate, run its commands
  interop [PEER..]
         foreign QUIC stacks against this engine, both ways: installs them below target/interop;
         picoquic, aioquic, quic-go, ngtcp2, noq, quinn, s2n-quic
  results FOLDER
         pages of results in lab/papers, from the folder that `anabranch lab report` made
  dist [TARGET..]
         static, stripped binaries of the command without the laboratory, packages for Debian and
         images for containers: target/packages
  pgo    the `anabranch` command, optimised for what it spends its time on: target/pgo
  pgo bench [CASE..]
         the same of the simulator's speed bench, which is then run
  soak [--for TIME] [--only PART,..] [--fresh]
         random worlds and fuzz targets for as long as wanted; see soak --help";

/// One breach of a rule: where it is and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path relative to the root of the workspace.
    pub(crate) file: String,
    /// Line, counted from 1; 0 if the finding is about the whole file.
    pub(crate) line: usize,
    /// What is wrong and what was expected.
    pub(crate) message: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// The root of the workspace whose cargo runs this program: a folder of builds that was copied or
/// moved has it from elsewhere. Started by hand, that of the workspace in which it was built.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package)
        .ancestors()
        .nth(2)
        .expect("the package lies two folders below the workspace")
        .to_path_buf()
}

/// The cargo that runs this program, without what that has told it of this package.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if is_of_this_package(&name.to_string_lossy()) {
            command.env_remove(&name);
        }
    }
    command
}

/// Whether a variable describes the package that `cargo run` started, which is this one. Build
/// scripts (such as ring's) watch these variables. A shell has none of them; if they were passed
/// on, half of the existing build would be made again, here and the next time.
fn is_of_this_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"]
        .iter()
        .any(|start| variable.starts_with(start))
}

/// The compiler in use.
pub(crate) fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["tidy"] => report("tidy", tidy::check(&root())),
        ["rfc"] => rfc::print(&root()),
        ["deps"] => report("deps", deps::check(&root())),
        ["wasm"] => wasm::check(&root()),
        ["page"] => page::check(&root()),
        ["interop", peers @ ..] => interop::run(&root(), peers),
        ["results", folder] => results::write(&root(), Path::new(folder)),
        ["results"] => return usage("`results` needs the folder of a report"),
        ["dist", targets @ ..] => dist::run(&root(), targets),
        ["pgo"] => pgo::build_command(&root()),
        ["pgo", "bench", cases @ ..] => pgo::bench(&root(), cases),
        ["soak", words @ ..] => soak::run(&root(), words),
        ["help" | "--help" | "-h"] => {
            say(USAGE);
            Ok(true)
        }
        [] => return usage("no command given"),
        [other] => return usage(&format!("no command `{other}`")),
        [.., extra] => return usage(&format!("unexpected argument `{extra}`")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n{USAGE}");
    ExitCode::from(2)
}

/// Prints findings; returns true if there were none.
fn report(name: &str, findings: Result<Vec<Finding>, String>) -> Result<bool, String> {
    let findings = findings?;
    for finding in &findings {
        say(&finding.to_string());
    }
    match findings.len() {
        0 => say(&format!("{name}: no findings")),
        count => eprintln!("{name}: {count} findings"),
    }
    Ok(findings.is_empty())
}

/// Prints a line to standard output, which is for this program's results.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    // It is not an error if the reader has gone away (`| head`).
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_says_of_this_package_is_not_passed_on() {
        for variable in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(is_of_this_package(variable), "{variable}");
        }
        for variable in ["CARGO_TARGET_DIR", "CARGO_HOME", "CARGO_NET_RETRY", "PATH"] {
            assert!(!is_of_this_package(variable), "{variable}");
        }
    }
}
