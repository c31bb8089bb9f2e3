//! Profile-guided optimisation: builds that are optimised for typical work.
//!
//! A program is built twice: first with instrumentation that counts which branches are taken, then,
//! after it has done typical work, with these counts. A packet passes through some 60 kB of code,
//! twice what fits in the processor's instruction cache; with the counts the compiler moves rarely
//! used code out of the way.
//!
//! All output is below `target/pgo`. Besides Rust this requires the component `llvm-tools`. Flags
//! from the environment (`RUSTFLAGS`) are not used.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The training work of the command: half a minute of simulation, one run at a time, because
/// threads that update the same counters slow each other down.
const TRAINING: &[&[&str]] = &[
    &["sim", "papers", "bremen-simple", "--jobs", "1"],
    &["sim", "conform", "min-rtt"],
];

/// The size of the file with which the file server is trained.
const FILE_BYTES: usize = 200_000_000;

/// Builds the `anabranch` command.
pub(crate) fn build_command(root: &Path) -> Result<bool, String> {
    let workshop = Workshop::open(root)?;
    let arguments = ["build", "--release", "--package", "anabranch-cli"];
    let counting = workshop.counting();
    counting.cargo(&arguments, &[])?;
    let program = counting.folder.join(&workshop.host);
    let program = program.join("release/anabranch");
    crate::say("pgo: simulated runs and a transfer over two paths, to count by");
    for work in TRAINING {
        run(Command::new(&program).args(*work).stdout(Stdio::null()))?;
    }
    transfer(&program, &workshop.folder.join("files"))?;
    let counted = workshop.counted()?;
    counted.cargo(&arguments, &[])?;
    let built = counted.folder.join(&workshop.host);
    let built = built.join("release/anabranch");
    crate::say(&format!("pgo: {}", built.display()));
    Ok(true)
}

/// Builds the simulator's speed bench and runs it with these arguments.
pub(crate) fn bench(root: &Path, arguments: &[&str]) -> Result<bool, String> {
    let workshop = Workshop::open(root)?;
    let bench = ["bench", "--package", "anabranch-sim", "--bench", "speed"];
    let bench = [&bench[..], &["--features", "null-protection"]].concat();
    workshop.counting().cargo(&bench, &["base", "short"])?;
    workshop.counted()?.cargo(&bench, arguments)?;
    Ok(true)
}

/// Where builds are made, and with which tools.
struct Workshop {
    root: PathBuf,
    folder: PathBuf,
    host: String,
    profdata: PathBuf,
}

/// One kind of build.
struct Build<'a> {
    workshop: &'a Workshop,
    folder: PathBuf,
    flag: String,
}

impl Workshop {
    fn open(root: &Path) -> Result<Self, String> {
        let ask = |argument: &[&str]| output(crate::rustc().args(argument));
        let host = host_of(&ask(&["-vV"])?).ok_or("rustc does not tell its host")?;
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
        let tools = sysroot.join("lib/rustlib").join(&host).join("bin");
        let profdata = tools.join(format!("llvm-profdata{}", std::env::consts::EXE_SUFFIX));
        if !profdata.exists() {
            let hint = "the toolchain has no llvm-profdata: `rustup component add llvm-tools`";
            return Err(hint.to_owned());
        }
        let folder = root.join("target/pgo");
        let workshop = Self {
            root: root.to_path_buf(),
            folder,
            host,
            profdata,
        };
        // Counts from another state of the source would only mislead.
        remove(&workshop.counts())?;
        Ok(workshop)
    }

    /// Where instrumented programs write their counts.
    fn counts(&self) -> PathBuf {
        self.folder.join("counts")
    }

    /// The build of instrumented programs.
    fn counting(&self) -> Build<'_> {
        Build {
            workshop: self,
            folder: self.folder.join("counting"),
            flag: format!("-Cprofile-generate={}", self.counts().display()),
        }
    }

    /// The build that uses the counts.
    fn counted(&self) -> Result<Build<'_>, String> {
        let (merged, folder) = (
            self.folder.join("merged.profdata"),
            self.folder.join("counted"),
        );
        // Cargo does not notice that the counts have changed and would keep what was built with the
        // old ones.
        remove(&folder)?;
        run(Command::new(&self.profdata)
            .args(["merge", "-o"])
            .arg(&merged)
            .arg(self.counts()))?;
        Ok(Build {
            workshop: self,
            folder,
            flag: format!("-Cprofile-use={}", merged.display()),
        })
    }
}

impl Build<'_> {
    /// Runs cargo; `arguments` are passed to the program that cargo runs.
    fn cargo(&self, command: &[&str], arguments: &[&str]) -> Result<(), String> {
        let mut cargo = crate::cargo();
        cargo
            .current_dir(&self.workshop.root)
            .args(command)
            .arg("--locked")
            // With an explicit target, build scripts and macros are built normally and are not
            // instrumented.
            .args(["--target", &self.workshop.host, "--target-dir"])
            .arg(&self.folder)
            .env("CARGO_ENCODED_RUSTFLAGS", &self.flag);
        if !arguments.is_empty() {
            cargo.arg("--").args(arguments);
        }
        run(&mut cargo)
    }
}

/// Fetches a file over two paths of the loopback interface.
fn transfer(program: &Path, folder: &Path) -> Result<(), String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(folder).map_err(|error| at(folder, error))?;
    let file = folder.join("sent");
    fs::write(&file, vec![b'a'; FILE_BYTES]).map_err(|error| at(&file, error))?;
    let mut serve = Command::new(program);
    serve
        .args(["serve", "--listen", "127.0.0.1:0", "--root"])
        .arg(folder)
        .stdout(Stdio::piped());
    let mut server = serve.spawn().map_err(|error| at(program, error))?;
    let outcome = fetch(program, folder, &mut server);
    // It writes its counts only if it exits by itself.
    let stopped = run(Command::new("kill").args(["-TERM", &server.id().to_string()]));
    if stopped.is_err() {
        let _ = server.kill();
    }
    let ended = server.wait().map_err(|error| at(program, error));
    let ended = ended.and_then(|status| {
        let why = || format!("the server left no counts: {status}");
        status.success().then_some(()).ok_or_else(why)
    });
    outcome.and(stopped).and(ended).and(remove(folder))
}

fn fetch(program: &Path, folder: &Path, server: &mut Child) -> Result<(), String> {
    let out = server.stdout.take().ok_or("the server has no output")?;
    let mut lines = BufReader::new(out).lines();
    let Some(Ok(url)) = lines.next() else {
        return Err("the server did not tell its URL".to_owned());
    };
    let mut get = Command::new(program);
    get.args(["get", "--no-resume"])
        .arg(format!("{}/sent", url.trim()))
        .arg("--output")
        .arg(folder.join("fetched"))
        .args(["--path", "127.0.0.1", "--path", "127.0.0.2"]);
    run(&mut get)
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_os_string();
    let status = command.status().map_err(|error| failed(&name, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(failed(&name, &status))
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_os_string();
    let output = command.output().map_err(|error| failed(&name, &error))?;
    if !output.status.success() {
        return Err(failed(&name, &output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn failed(program: &OsString, why: &impl std::fmt::Display) -> String {
    format!("{}: {why}", Path::new(program).display())
}

/// The host, from the output of `rustc -vV`.
fn host_of(version: &str) -> Option<String> {
    let mut lines = version.lines();
    lines
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_one_that_rustc_names() {
        let version =
            "rustc 1.95.0 (x 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        assert_eq!(
            host_of(version).as_deref(),
            Some("x86_64-unknown-linux-gnu")
        );
        assert_eq!(host_of("rustc 1.95.0\n"), None);
    }

    #[test]
    fn a_program_that_fails_is_named() {
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(error.starts_with("false: "), "{error}");
    }
}
