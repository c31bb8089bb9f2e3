//! A process of a campaign: its time, its memory and its output.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often time and memory are checked.
const LOOK: Duration = Duration::from_millis(200);

/// The most memory a process may use, far more than the tested code needs.
pub(super) const MOST_MEMORY_KIB: u64 = 2 * 1024 * 1024;

/// The result of a process.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How it ended.
    pub(super) end: End,
    /// The most memory it used, in KiB.
    pub(super) most_memory_kib: u64,
    /// Samples of its memory use, which show whether it grows without bound.
    pub(super) memory_kib: Vec<u64>,
    /// How long it ran.
    pub(super) time: Duration,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It exited by itself, successfully.
    Well,
    /// It exited by itself, with a failure.
    Failed,
    /// It was killed because it ran too long.
    TooLong,
    /// It was killed because it used too much memory.
    TooLarge,
    /// The campaign was stopped.
    Stopped,
}

/// Kills the process, and what it started, unless it has been waited for.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // It leads a group of its own.
            let group = format!("-{}", self.0.id());
            let mut kill = Command::new("kill");
            let _ = kill.args(["-s", "KILL", "--", &group]).status();
        }
        // Both fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command until it ends or `most` has passed, with its output in `log`.
pub(super) fn run(
    command: &mut Command,
    log: &Path,
    most: Duration,
    stop: &AtomicBool,
) -> Result<Outcome, String> {
    let said = |error: std::io::Error| format!("{}: {error}", log.display());
    let output = File::create(log).map_err(said)?;
    let errors = output.try_clone().map_err(said)?;
    // It gets a process group of its own, so that Ctrl-C reaches only the campaign, which then ends
    // its processes in order.
    let command = command.process_group(0).stdin(Stdio::null());
    let child = command.stdout(output).stderr(errors).spawn();
    let named = |error| format!("{}: {error}", command.get_program().display());
    let mut child = Guard(child.map_err(named)?);
    let started = Instant::now();
    let mut memory_kib = Vec::new();
    let end = loop {
        let status = child.0.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = status {
            break ended(status);
        }
        memory_kib.extend(resident_kib(child.0.id()));
        if stop.load(Ordering::Relaxed) {
            break End::Stopped;
        }
        if memory_kib.last() > Some(&MOST_MEMORY_KIB) {
            break End::TooLarge;
        }
        if started.elapsed() > most {
            break End::TooLong;
        }
        std::thread::sleep(LOOK);
    };
    Ok(Outcome {
        end,
        most_memory_kib: memory_kib.iter().copied().max().unwrap_or(0),
        memory_kib,
        time: started.elapsed(),
    })
}

fn ended(status: ExitStatus) -> End {
    if status.success() {
        End::Well
    } else {
        End::Failed
    }
}

/// The memory use of a process, in KiB.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether memory grew throughout: each quarter of the samples needs more than the one before, and
/// the last one far more than the second. The first quarter is ignored, as a warm-up.
pub(super) fn grew(samples: &[u64]) -> bool {
    let length = samples.len() / 4;
    // Too few samples to tell.
    if length < 20 {
        return false;
    }
    let quarter = |at: usize| {
        let mut part = samples[at * length..(at + 1) * length].to_vec();
        part.sort_unstable();
        part[length / 2]
    };
    let [second, third, last] = [quarter(1), quarter(2), quarter(3)];
    second < third && third < last && last > second + second / 2 && last > second + 64 * 1024
}
