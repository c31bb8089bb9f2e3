//! Removes namespaces: a testbed's own, and those of killed processes.
//!
//! The name of a namespace identifies its maker by its process id and by its start time, in the
//! kernel's ticks. Process ids are reused, but not together with a start time.

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
    /// Ticks since the machine started.
    started: u64,
}

impl Maker {
    /// This process; `None` if `/proc` does not say.
    pub(crate) fn this() -> Option<Self> {
        let pid = std::process::id();
        let started = start_of(pid)?;
        Some(Self { pid, started })
    }

    /// The maker that a namespace's name identifies; `None` if it is not one of ours. A name
    /// without a start time is not, since others may give a namespace a name with an unused process
    /// id.
    fn of(namespace: &str) -> Option<Self> {
        let rest = namespace.strip_prefix(PREFIX)?.strip_prefix('-')?;
        let (pid, rest) = rest.split_once('-')?;
        let (ticks, _) = rest.strip_prefix('t')?.split_once('-')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: ticks.parse().ok()?,
        })
    }

    fn is_alive(self) -> bool {
        start_of(self.pid) == Some(self.started)
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-t{}", self.pid, self.started)
    }
}

/// When a process started; `None` if it does not exist or is a zombie.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may itself contain parentheses and spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // Field 22 of proc_pid_stat(5); the state is field 3.
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(started)
}

/// Removes every namespace whose maker is no longer alive, with the processes in it, and returns
/// their names. A new [`crate::Testbed`] does this.
///
/// Namespaces that cannot be removed are not listed; without root, none can.
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
/// nothing more could be done.
pub(crate) fn remove_namespace(name: &str) {
    for pid in ip(&["netns", "pids", name]).unwrap_or_default().lines() {
        if let Ok(pid) = pid.trim().parse() {
            // A thread of this process that entered the namespace counts as a process in it.
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
        assert_eq!(Maker::of("ab-123-t77-0-bed-a"), maker(123, 77));
        for other in ["ab-client", "abc-12-0", "lab-12-0-x", "ab-12", "default"] {
            assert_eq!(Maker::of(other), None, "{other}");
        }
        // The process id is unused, but no Testbed gave the name.
        for other in [
            "ab-4194999-0-bed-a",
            "ab-4194999-0-t5-a",
            "ab-4194999-t5",
            "ab-1-tx-0-b",
        ] {
            assert_eq!(Maker::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_number_that_was_given_out_again_protects_nothing() {
        let this = Maker::this().unwrap();
        assert!(this.is_alive());
        assert_eq!(Maker::of(&format!("ab-{this}-0-bed-a")), Some(this));
        let earlier = Maker {
            started: this.started - 1,
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
