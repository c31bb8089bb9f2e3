//! What a link has done.

use std::time::Duration;

/// Totals since the link was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Packets handed to the link.
    pub packets_in: u64,
    /// Bytes handed to the link.
    pub bytes_in: u64,
    /// Packets delivered.
    pub packets_out: u64,
    /// Bytes delivered.
    pub bytes_out: u64,
    /// Packets lost by the loss process.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets dropped by CoDel or RED to keep the queue short.
    pub dropped_early: u64,
    /// Packets dropped because the link was down.
    pub dropped_down: u64,
    /// The most bytes waiting at a time.
    pub queue_peak_bytes: u64,
    /// Packets that left the queue for the serialiser.
    pub dequeued: u64,
    /// The sum of their waiting times, in nanoseconds.
    pub sojourn_total_ns: u64,
    /// The longest of these times, in nanoseconds.
    pub sojourn_max_ns: u64,
}

impl LinkStats {
    /// Packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.lost + self.dropped_full + self.dropped_early + self.dropped_down
    }

    /// Mean time in the queue.
    pub fn mean_sojourn(&self) -> Duration {
        Duration::from_nanos(
            self.sojourn_total_ns
                .checked_div(self.dequeued)
                .unwrap_or(0),
        )
    }

    pub(crate) fn on_dequeued(&mut self, sojourn_ns: u64) {
        self.dequeued += 1;
        self.sojourn_total_ns = self.sojourn_total_ns.saturating_add(sojourn_ns);
        self.sojourn_max_ns = self.sojourn_max_ns.max(sojourn_ns);
    }
}
