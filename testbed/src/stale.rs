//! Removing namespaces: a testbed's own, and those of test processes that were killed.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::PREFIX;
use crate::shell::ip;

/// Removes every namespace whose maker is no longer alive.
pub(crate) fn remove() {
    let Ok(listing) = ip(&["netns", "list"]) else {
        return;
    };
    for name in listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        if maker(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove_namespace(name);
        }
    }
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

/// The process a namespace's name says it was made by.
fn maker(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix('-')?;
    rest.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::maker;

    #[test]
    fn a_namespace_tells_who_made_it_and_others_are_left_alone() {
        assert_eq!(maker("ab-123-0-bed-client"), Some(123));
        for other in ["ab-client", "abc-12-0", "lab-12-0-x", "ab-12", "default"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
