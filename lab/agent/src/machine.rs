//! The machine's clock, and the resources that this process used.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The clock `CLOCK_MONOTONIC` in nanoseconds, which all processes of a machine share.
pub(crate) fn clock_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Resets the high-water mark of memory, so that it covers one run (`clear_refs` of proc(5)).
pub(crate) fn forget_peak() {
    // If the kernel cannot do that, the mark covers all runs so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Resources that this process has used so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// Processor time, user and system.
    pub(crate) cpu_s: f64,
    /// Peak memory.
    pub(crate) peak_rss_bytes: u64,
}

/// The line `VmHWM` of a process's status, which Linux gives in KiB.
fn high_water_mark(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

impl Usage {
    pub(crate) fn now() -> Option<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Some(Self {
            cpu_s: seconds(usage.user_time()) + seconds(usage.system_time()),
            // `max_rss` survives an exec, so it could be that of the process that started this one.
            peak_rss_bytes: high_water_mark(&std::fs::read_to_string("/proc/self/status").ok()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t   99 kB\nVmHWM:\t    4244 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(high_water_mark(status), Some(4244 * 1024));
        assert_eq!(high_water_mark("Name:\tx\n"), None);
    }
}
