//! Programs under test; what they print goes to files.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a program may take to print its first line on a machine that is busy with other work.
const START: Duration = Duration::from_secs(120);

/// A program; killed when dropped.
pub struct Process {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    pub started: Instant,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    /// Time since it was started.
    pub after: Duration,
}

impl Process {
    /// Starts a program. What it prints goes to files in `directory`.
    pub fn start(command: &mut Command, directory: &TempDir) -> Self {
        Self::start_with(command, Stdio::null(), directory)
    }

    /// The same, with this as its input.
    pub fn start_with(command: &mut Command, input: Stdio, directory: &TempDir) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| directory.path().join(format!("{number}.{kind}"));
        let (stdout, stderr) = (file("out"), file("err"));
        let create = |path: &Path| File::create(path).expect("a file");
        command
            .stdin(input)
            .stdout(create(&stdout))
            .stderr(create(&stderr));
        let started = Instant::now();
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            child,
            stdout,
            stderr,
            started,
        }
    }

    /// The process ID of the program, which `ip netns exec` has become.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("a process of ours");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// The file that its output goes to.
    pub fn stdout_path(&self) -> &Path {
        &self.stdout
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for the first line of output.
    #[track_caller]
    pub fn first_line(&mut self) -> String {
        loop {
            if let Some((line, _)) = self.stdout().split_once('\n') {
                return line.into();
            }
            let alive = self.is_running() && self.started.elapsed() < START;
            assert!(alive, "it says nothing: {}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Memory in use, in KiB.
    pub fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.unwrap_or_default()
    }

    /// Waits for the program to end by itself.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Ended {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let after = self.started.elapsed();
                return Ended {
                    status,
                    stdout: self.stdout(),
                    stderr: self.stderr(),
                    after,
                };
            }
            assert!(
                since.elapsed() < limit,
                "does not end in {limit:?}: {}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The exit code; `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// What the program reported as JSON. Fails unless the program succeeded.
    #[track_caller]
    pub fn report(&self) -> Value {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        serde_json::from_str(&self.stdout).expect("one JSON object")
    }
}
