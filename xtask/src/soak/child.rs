//! A process of a campaign: its time, its memory, its output.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often time and memory are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Memory beyond which a process is ended: what is tested needs a small part of it.
pub(super) const MOST_MEMORY_KIB: u64 = 2 * 1024 * 1024;

/// What became of a process.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How it ended.
    pub(super) end: End,
    /// The most memory it had, in KiB.
    pub(super) most_memory_kib: u64,
    /// Memory in the middle and at the end: what grows without end shows there.
    pub(super) memory_kib: Vec<u64>,
    /// How long it ran.
    pub(super) time: Duration,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, well.
    Well,
    /// By itself, with a failure.
    Failed,
    /// It had to be ended: it ran longer than it was given.
    TooLong,
    /// It had to be ended: it took too much memory.
    TooLarge,
    /// The campaign was stopped.
    Stopped,
}

/// Ends the process if nobody waited for it.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command until it ends or `most` is over, with its output in `log`.
pub(super) fn run(
    command: &mut Command,
    log: &Path,
    most: Duration,
    stop: &AtomicBool,
) -> Result<Outcome, String> {
    let said = |error: std::io::Error| format!("{}: {error}", log.display());
    let output = File::create(log).map_err(said)?;
    let errors = output.try_clone().map_err(said)?;
    // A group of its own: Ctrl-C is for the campaign, which then ends its processes in order.
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

/// Memory of a process, in KiB.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether memory grew throughout: each quarter of the samples needs more than the one before, and
/// the last one far more than the second. The first one is for warming up.
pub(super) fn grew(samples: &[u64]) -> bool {
    let length = samples.len() / 4;
    // Too short to tell.
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
