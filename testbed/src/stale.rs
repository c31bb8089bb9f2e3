//! Removing namespaces: a testbed's own, and those of processes that were killed.
//!
//! The name of a namespace says who made it: a process number, and when that process started, in
//! the kernel's ticks. Process numbers are given out again; together with the start they are not.

use std::fmt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::PREFIX;
use crate::shell::ip;

/// The process that made a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Maker {
    pid: u32,
    /// Ticks since the machine started; not known where the name does not say.
    started: Option<u64>,
}

impl Maker {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: start_of(pid),
        }
    }

    /// What a namespace's name says; nothing if it is not one of ours.
    fn of(namespace: &str) -> Option<Self> {
        let rest = namespace.strip_prefix(PREFIX)?.strip_prefix('-')?;
        let (pid, rest) = rest.split_once('-')?;
        let started = rest.split_once('-').and_then(|(field, _)| {
            let ticks = field.strip_prefix('t')?;
            ticks.parse().ok()
        });
        Some(Self {
            pid: pid.parse().ok()?,
            started,
        })
    }

    fn is_alive(self) -> bool {
        match (start_of(self.pid), self.started) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(now), Some(then)) => now == then,
        }
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)?;
        self.started
            .map_or(Ok(()), |started| write!(f, "-t{started}"))
    }
}

/// When a process started, unless there is none of this number or it only waits to be collected.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in brackets and may contain anything, brackets and spaces as well.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // Field 22 of proc_pid_stat(5); the state is field 3.
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(started)
}

/// Removes every namespace whose maker is no longer alive, with the processes in it, and says which
/// these were. A [`crate::Testbed`] does it when it is made.
///
/// What cannot be removed is not in the list; nothing is removed without root.
pub fn remove_stale() -> Vec<String> {
    let listing = ip(&["netns", "list"]).unwrap_or_default();
    let names = listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| Maker::of(name).is_some_and(|maker| !maker.is_alive()));
    names
        .filter(|name| {
            remove_namespace(name);
            !exists(name)
        })
        .map(str::to_owned)
        .collect()
}

/// Ends what still runs in a namespace and deletes it. Errors are ignored: it may be gone, and
/// nobody could do more about it.
pub(crate) fn remove_namespace(name: &str) {
    for pid in ip(&["netns", "pids", name]).unwrap_or_default().lines() {
        if let Ok(pid) = pid.trim().parse() {
            // A thread of this process that entered the namespace counts as being in it.
            if Pid::from_raw(pid) != Pid::this() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
    let _ = ip(&["netns", "delete", name]);
}

/// Whether there is a namespace of this name.
pub(crate) fn exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_who_made_it_and_others_are_left_alone() {
        let maker = |pid, started| Some(Maker { pid, started });
        assert_eq!(Maker::of("ab-123-t77-0-bed-a"), maker(123, Some(77)));
        assert_eq!(Maker::of("ab-123-0-bed-a"), maker(123, None));
        assert_eq!(Maker::of("ab-123-0-t5-a"), maker(123, None));
        for other in ["ab-client", "abc-12-0", "lab-12-0-x", "ab-12", "default"] {
            assert_eq!(Maker::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_number_that_was_given_out_again_protects_nothing() {
        let this = Maker::this();
        assert!(this.is_alive());
        assert_eq!(Maker::of(&format!("ab-{this}-0-bed-a")), Some(this));
        let earlier = Maker {
            started: this.started.map(|ticks| ticks - 1),
            ..this
        };
        assert!(!earlier.is_alive());
    }

    #[test]
    fn a_process_that_ended_but_was_not_waited_for_is_dead() {
        let this = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(this)
            .args(["--list", "--exact", "nothing is called so"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let since = std::time::Instant::now();
        while start_of(child.id()).is_some() {
            assert!(since.elapsed().as_secs() < 60, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.wait().unwrap();
    }
}
