//! What a path may have in flight besides what its congestion controller allows: its part of a
//! split buffer (docs/mechanisms.md). What a path earns by itself is in `penalty`.

use super::Mechanisms;
use crate::config::Split;
use crate::path::manager::{Manager, Slot};
use crate::path::state::Path;
use crate::streams::Streams;
use crate::time::Instant;
use anabranch_wire::frame::PathStatus;

/// One path's part of `total`, given its weight and all weights; a packet at least.
fn part(total: u64, weight: u64, weights: u64, packet: u64) -> u64 {
    let part = u128::from(total) * u128::from(weight) / u128::from(weights.max(1));
    u64::try_from(part).unwrap_or(u64::MAX).max(packet)
}

/// What a path weighs when a buffer is split.
fn weight(split: Split, path: &Path, measured: bool) -> u64 {
    match split {
        Split::Off => 0,
        Split::Equal => 1,
        Split::Proportional if measured => bytes_per_rtt(path),
        Split::Proportional => path.route().congestion_window().max(1),
    }
}

fn bytes_per_rtt(path: &Path) -> u64 {
    let rtt = path.route().rtt().smoothed().as_micros();
    let bytes = u128::from(path.route().delivery_rate()) * rtt / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX >> 8)
}

impl Mechanisms {
    /// Writes into all paths what they may have in flight, if any mechanism limits that.
    pub(in crate::placement) fn limit_windows(
        &mut self,
        now: Instant,
        paths: &mut Manager,
        streams: &Streams,
    ) {
        let settings = self.settings;
        if !settings.limits_windows() {
            return;
        }
        let credit = streams.backlog().credit;
        let widest = self.widest_credit.max(credit);
        self.widest_credit = widest;
        let healthy = |slot: &&Slot| slot.carrier().is_some_and(Path::is_healthy);
        let is_wanted = |slot: &Slot| slot.status() == PathStatus::Available;
        // A path in reserve carries nothing, and has no part, while another one is there: what it
        // measured when it did would leave the others little.
        let wanted = paths.open().filter(healthy).any(is_wanted);
        let in_use = || {
            let slots = paths.open().filter(healthy);
            let slots = slots.filter(|slot| !wanted || is_wanted(slot));
            slots.filter_map(Slot::open)
        };
        let in_flight: u64 = in_use().map(|path| path.route().bytes_in_flight()).sum();
        let measured =
            in_use().all(|path| bytes_per_rtt(path) > 0 && path.route().rtt().has_sample());
        let buffers = [
            (settings.split_send, self.send_buffer),
            // Credit may return before the acknowledgements of slow paths do, so that both together
            // exceed the buffer.
            (
                settings.split_receive,
                credit.saturating_add(in_flight).min(widest),
            ),
        ];
        let sums = buffers.map(|(split, _)| -> u64 {
            let weights = in_use().map(|path| weight(split, path, measured));
            weights.fold(0, u64::saturating_add)
        });
        for (id, path) in paths.open_mut() {
            let packet = u64::from(path.route().max_datagram_size());
            let mut cap = self.record(id).cap(now, path, settings.bufferbloat_factor);
            for ((split, total), sum) in buffers.into_iter().zip(sums) {
                if split != Split::Off {
                    cap = cap.min(part(total, weight(split, path, measured), sum, packet));
                }
            }
            path.set_cap(cap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_weights_and_leave_a_packet_at_least() {
        assert_eq!(part(64_000, 1, 2, 1200), 32_000);
        assert_eq!(part(64_000, 3, 4, 1200), 48_000);
        assert_eq!(part(64_000, 0, 4, 1200), 1200);
        assert_eq!(part(u64::MAX, u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
