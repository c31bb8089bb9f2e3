//! What the machine says of itself: its clock, and what this process used.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The clock `CLOCK_MONOTONIC`, in nanoseconds: the same for all processes of a machine.
pub(crate) fn clock_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// What this process used so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// Processor time, user and system.
    pub(crate) cpu_s: f64,
    /// The most memory it had.
    pub(crate) peak_rss_bytes: u64,
}

impl Usage {
    pub(crate) fn now() -> Option<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Some(Self {
            cpu_s: seconds(usage.user_time()) + seconds(usage.system_time()),
            // Linux counts in KiB.
            peak_rss_bytes: usage.max_rss() as u64 * 1024,
        })
    }
}
