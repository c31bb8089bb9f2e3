//! A running third-party program. Its output goes to files; the program and all that it started end
//! when this is dropped.

use super::{Program, Terms};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// How much of the end of a program's output is shown.
const TAIL: usize = 400;

/// The folder that both programs see, within the run's.
const SHARED: &str = "shared";

/// The most bytes of a program's output that are read.
const MOST_OUTPUT: u64 = 64 << 20;

/// A folder for the output of a run's programs, removed when dropped.
///
/// # Errors
/// The system's error.
pub fn scratch() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("anabranch-lab-").tempdir()
}

/// A program that was started.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    began: Instant,
}

impl Process {
    /// Starts a program as `whose` (`client` or `server`), with its output kept in `folder`. `make`
    /// turns its name into a command, perhaps within a namespace.
    ///
    /// # Errors
    /// It cannot be started; the text says which one.
    pub fn start(
        program: &Program,
        terms: &Terms,
        folder: &Path,
        whose: &str,
        make: impl FnOnce(&str) -> Command,
    ) -> Result<Self, String> {
        let shared = folder.join(SHARED);
        let fill = |place| terms.filled(place, &shared);
        let mut words = program.command.iter().map(|word| word.filled(&fill));
        let name = words.next().expect("a command has a program");
        let mut command = make(&name);
        command.args(words);
        for (key, value) in &program.env {
            command.env(key, value.filled(&fill));
        }
        let made = fs::create_dir_all(&shared);
        made.map_err(|error| format!("{}: {error}", shared.display()))?;
        Self::spawn(command, name, folder, whose)
    }

    /// Starts a command called `name`, as `whose`, with its output kept in `folder`.
    ///
    /// # Errors
    /// It cannot be started; the text says which one.
    pub fn spawn(
        mut command: Command,
        name: String,
        folder: &Path,
        whose: &str,
    ) -> Result<Self, String> {
        let output = folder.join(format!("{whose}.out"));
        let errors = folder.join(format!("{whose}.err"));
        let mut spawn = || {
            command
                // Ctrl-C is meant for the laboratory, which lets the run end first.
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(File::create(&output)?)
                .stderr(File::create(&errors)?)
                .spawn()
        };
        let child = spawn().map_err(|error| format!("cannot start `{name}`: {error}"))?;
        Ok(Self {
            name,
            child,
            output,
            errors,
            began: Instant::now(),
        })
    }

    /// When it was started.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system's error.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        // The process is not reaped yet: until then its pid, which is also its group's, is not
        // reused.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.group()), flags) {
            Ok(WaitStatus::Exited(_, code)) => Ok(Some(ExitStatus::from_raw(code << 8))),
            Ok(WaitStatus::Signaled(_, signal, _)) => Ok(Some(ExitStatus::from_raw(signal as i32))),
            Ok(_) => Ok(None),
            Err(errno) => Err(format!("`{}`: {errno}", self.name)),
        }
    }

    /// Its pid, which is also the id of its process group.
    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// What it wrote to standard output so far.
    pub fn output(&self) -> String {
        read(&self.output)
    }

    /// Whether a line of its output or errors has this text.
    pub fn said(&self, text: &str) -> bool {
        let has = |file: &Path| read(file).lines().any(|line| line.contains(text));
        has(&self.output) || has(&self.errors)
    }

    /// The end of its output, for an error message.
    pub fn last_words(&self) -> String {
        let (errors, output) = (read(&self.errors), self.output());
        let words = [errors.trim(), output.trim()]
            .into_iter()
            .find(|words| !words.is_empty());
        let Some(words) = words else {
            return "; it said nothing".to_owned();
        };
        let skipped = words.chars().count().saturating_sub(TAIL);
        let tail: String = words.chars().skip(skipped).collect();
        format!("; it said: {}", tail.replace('\n', " | "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process was reaped, which nothing else does.
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn read(file: &Path) -> String {
    let mut bytes = Vec::new();
    // Output that cannot be read counts as empty.
    let _ = File::open(file).and_then(|file| file.take(MOST_OUTPUT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Contender;
    use super::*;
    use crate::scenario::Way;
    use anabranch_testbed::Need;
    use std::time::Duration;

    const FILE: &str = r#"format = 1
name = "other"
[server]
command = ["sh", "-c", "sleep 600 & echo $!; wait"]
[client]
command = ["sh"]
[measure]
bytes = "{} bytes"
"#;

    /// Whether a process is there and has not ended.
    fn is_running(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        state.is_some_and(|state| state != b'Z' && state != b'X')
    }

    #[track_caller]
    fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_program_started_ends_with_it() {
        if !Need::Network.programs("what_a_program_started_ends_with_it", &["sh", "sleep"]) {
            return;
        }
        let contender = Contender::parse(Path::new("other.toml"), FILE).unwrap();
        let terms = Terms {
            pairs: Vec::new(),
            interfaces: Vec::new(),
            port: 7,
            bytes: 1,
            time: Duration::ZERO,
            way: Way::Forward,
            seed: 1,
        };
        let folder = scratch().unwrap();
        let make = |name: &str| Command::new(name);
        let process = Process::start(&contender.server, &terms, folder.path(), "server", make);
        let process = process.unwrap();
        wait_for("its child's number", || process.output().ends_with('\n'));
        let child = process.output().trim().to_owned();
        assert!(is_running(&child));
        drop(process);
        wait_for("its child ends", || !is_running(&child));
    }
}
