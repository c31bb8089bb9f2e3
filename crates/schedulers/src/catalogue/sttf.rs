//! STTF, shortest transfer time first: each packet goes where it is predicted to arrive first, full
//! windows and their growth included.
//!
//! Hurtig et al., IEEE/ACM Transactions on Networking 2019. The original queues packets on full
//! paths; here those that a full path would deliver sooner are left to it and the free path takes
//! what comes after them (`mode=queue`). `mode=wait` leaves the free path idle instead. The latest
//! RTT sample decides, as in the original module; on wireless links `rtt=smoothed` is steadier.

use crate::toolkit::units::packet;
use crate::toolkit::{Patience, send_behind, skip_credit};
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind, lowest_rtt,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::Duration;
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "sttf",
    summary: "the shortest predicted transfer time of the next packet, full paths included",
    params: &[
        ParamDoc {
            key: "mode",
            default: "queue",
            summary: "queue: leave to a full path what it delivers sooner; wait: idle meanwhile",
        },
        ParamDoc {
            key: "rtt",
            default: "latest",
            summary: "the sample to predict with: latest or smoothed",
        },
    ],
    build: |params| Ok(Box::new(Sttf::from_params(params)?)),
};

/// Round trips that are looked ahead.
const ROUNDS_MAX: usize = 32;

/// Predicts the time of transfer.
#[derive(Debug, Default)]
pub(crate) struct Sttf {
    waits: bool,
    smoothed: bool,
    patience: Patience,
}

impl Sttf {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            waits: params.choice("mode", false, &[("queue", false), ("wait", true)])?,
            smoothed: params.choice("rtt", false, &[("latest", false), ("smoothed", true)])?,
            patience: Patience::default(),
        })
    }

    fn forecast(&self, path: &PathView) -> Forecast {
        let latest = !self.smoothed && !path.latest_rtt.is_zero();
        let rtt = if latest {
            path.latest_rtt
        } else {
            path.smoothed_rtt
        };
        Forecast::new(path, rtt)
    }

    fn place(&mut self, view: &SendView<'_>) -> Option<Choice> {
        let now = view.now;
        let measured = |path: &&PathView| !path.smoothed_rtt.is_zero();
        let key = |path: &PathView| (self.forecast(path).first(), path.id);
        let mut open: Option<((Duration, PathId), &PathView)> = None;
        let mut any_full = false;
        for path in view.candidates().filter(measured) {
            if !path.can_send(now) {
                any_full = true;
                continue;
            }
            let key = key(path);
            if open.is_none_or(|(least, _)| key < least) {
                open = Some((key, path));
            }
        }
        let (at, open) = open?;
        let sooner = |path: &&PathView| !path.can_send(now) && key(path) < at;
        let full = || view.candidates().filter(measured).filter(sooner);
        // Predicting what a full path does costs more than all else.
        let best = if any_full {
            full().min_by_key(|path| key(path))
        } else {
            None
        };
        let Some(best) = best else {
            self.patience.end();
            return Some(Choice::send(open.id, Reason::EarliestArrival));
        };
        if !self.waits && view.unit.kind == UnitKind::Fresh {
            let bytes = |path| self.forecast(path).bytes_until(at.0);
            let skip = full().fold(0, |sum: u64, path| sum.saturating_add(bytes(path)));
            if skip < view.backlog.unsent && skip <= skip_credit(view) {
                self.patience.end();
                return Some(send_behind(open.id, skip, Reason::EarliestArrival));
            }
        }
        Some(self.patience.wait_for(view, best, Reason::WaitForBetter))
    }
}

impl Scheduler for Sttf {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.unit.kind == UnitKind::Retransmission {
            return lowest_rtt(view);
        }
        // Unmeasured paths are unknown: they are used when no measured one can send.
        self.place(view).unwrap_or_else(|| lowest_rtt(view))
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
    }
}

/// What a path is about to do. It counts in packets, but its sizes are kept in bytes: most answers
/// need few of them, and each one costs a division.
#[derive(Debug, Clone, Copy)]
struct Forecast {
    rtt: Duration,
    packet: u64,
    /// What is ahead of the next packet.
    queued: u64,
    /// What may go before an acknowledgement, the queued part included.
    free: u64,
    window: u64,
    ssthresh: u64,
}

impl Forecast {
    fn new(path: &PathView, rtt: Duration) -> Self {
        Self {
            rtt,
            packet: packet(path),
            queued: path.queued,
            free: path.congestion_window.saturating_sub(path.bytes_in_flight),
            window: path.congestion_window,
            ssthresh: path.ssthresh,
        }
    }

    /// Packets ahead of the next one.
    fn queue(&self) -> u64 {
        match self.queued {
            0 => 0,
            queued => queued.div_ceil(self.packet),
        }
    }

    /// Packets that may go before an acknowledgement.
    fn room(&self) -> u64 {
        if self.free < self.packet {
            0
        } else {
            self.free / self.packet
        }
    }

    /// The windows of the round trips that follow this one, in packets.
    fn windows(&self) -> impl Iterator<Item = u64> + use<> {
        let ssthresh = self.ssthresh / self.packet;
        let grow = move |window: u64| {
            if window < ssthresh {
                window.saturating_mul(2).min(ssthresh).max(window + 1)
            } else {
                window.saturating_add(1)
            }
        };
        let first = grow(self.window / self.packet);
        std::iter::successors(Some(first), move |window| Some(grow(*window)))
    }

    /// When the next packet arrives.
    fn first(&self) -> Duration {
        let mut left = self.queue().saturating_add(1);
        let fits = |bytes| bytes <= self.free;
        if left.checked_mul(self.packet).is_some_and(fits) {
            return self.rtt / 2;
        }
        left -= self.room();
        let mut time = self.rtt;
        for window in self.windows().take(ROUNDS_MAX) {
            if left <= window {
                break;
            }
            left -= window;
            time = time.saturating_add(self.rtt);
        }
        time.saturating_add(self.rtt / 2)
    }

    /// Bytes beyond what is queued that arrive no later than `end`, but no more than a window: what
    /// may be left to the path.
    fn bytes_until(&self, end: Duration) -> u64 {
        let mut packets = self.room();
        let mut time = self.rtt;
        for window in self.windows().take(ROUNDS_MAX) {
            if time.saturating_add(self.rtt / 2) > end {
                break;
            }
            packets = packets.saturating_add(window);
            time = time.saturating_add(self.rtt);
        }
        let most = (self.window / self.packet).max(1);
        let packets = packets.saturating_sub(self.queue()).min(most);
        packets.saturating_mul(self.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, built, fresh, send};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::wire::PathId;
    use proptest::prelude::*;

    /// A path of packets of 1 kB with a window of ten and a threshold of eight.
    fn path(id: u32, rtt_ms: u64, in_flight: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            latest_rtt: Duration::from_millis(rtt_ms),
            congestion_window: 10_000,
            bytes_in_flight: in_flight * 1000,
            ssthresh: 8_000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn first_ms(path: &PathView) -> u128 {
        Sttf::default().forecast(path).first().as_millis()
    }

    fn ask(text: &str, paths: &[PathView], packets: u64) -> Choice {
        let mut view = fresh(paths);
        view.backlog.unsent = packets * 1000;
        view.unit.bytes = 1000;
        built(text).select(&view)
    }

    #[test]
    fn a_full_window_costs_a_round_trip() {
        assert_eq!(first_ms(&path(0, 40, 10)), 60);
        assert_eq!(first_ms(&path(1, 100, 0)), 50);
        assert_eq!(first_ms(&path(0, 30, 10)), 45);
        let loaded = PathView {
            queued: 30_000,
            ..path(0, 40, 10)
        };
        assert_eq!(first_ms(&loaded), 140, "11, 12 and 13 packets go first");
    }

    #[test]
    fn the_free_path_is_taken_if_it_delivers_first() {
        let choice = ask("sttf", &[path(0, 40, 10), path(1, 100, 0)], 1);
        assert_eq!(choice, send(1, Reason::EarliestArrival));
    }

    #[test]
    fn the_full_path_is_waited_for_if_it_delivers_first() {
        let paths = [path(0, 30, 10), path(1, 100, 0)];
        for text in ["sttf", "sttf:mode=wait"] {
            let waiting = Choice::hold_until(at(30), Reason::WaitForBetter);
            assert_eq!(ask(text, &paths, 1), waiting, "{text}");
        }
    }

    #[test]
    fn of_a_long_backlog_the_free_path_takes_what_the_full_one_cannot_deliver_sooner() {
        let paths = [path(0, 30, 10), path(1, 100, 0)];
        let later = Choice {
            decision: Decision::SendAt {
                path: PathId(1),
                skip: 10_000,
            },
            reason: Reason::EarliestArrival,
        };
        assert_eq!(ask("sttf", &paths, 1000), later);
        assert_eq!(ask("sttf", &paths, 10).reason, Reason::WaitForBetter);
        assert_eq!(
            ask("sttf:mode=wait", &paths, 1000).reason,
            Reason::WaitForBetter
        );
    }

    #[test]
    fn data_far_ahead_never_takes_more_than_half_the_credit() {
        let paths = [path(0, 30, 10), path(1, 100, 0)];
        let ask = |credit| {
            let mut view = fresh(&paths);
            view.backlog.credit = credit;
            built("sttf").select(&view)
        };
        assert_eq!(ask(20_000).reason, Reason::EarliestArrival);
        assert_eq!(ask(19_999).reason, Reason::WaitForBetter);
    }

    #[test]
    fn a_spike_of_the_rtt_counts_unless_smoothed() {
        let spiky = PathView {
            latest_rtt: Duration::from_millis(500),
            ..path(0, 20, 0)
        };
        let paths = [spiky, path(1, 100, 0)];
        assert_eq!(ask("sttf", &paths, 9), send(1, Reason::EarliestArrival));
        let steady = ask("sttf:rtt=smoothed", &paths, 9);
        assert_eq!(steady, send(0, Reason::EarliestArrival));
    }

    proptest! {
        #[test]
        fn what_is_left_to_a_full_path_arrives_there_in_time(
            rtt in 1_u64..200,
            window in 1_u64..100,
            ssthresh in 1_u64..100,
            end in 1_u64..2000,
        ) {
            let full = PathView {
                congestion_window: window * 1000,
                bytes_in_flight: window * 1000,
                ssthresh: ssthresh * 1000,
                ..path(0, rtt, 0)
            };
            let end = Duration::from_millis(end);
            let bytes = Sttf::default().forecast(&full).bytes_until(end);
            let arrives = |ahead| {
                let path = PathView { queued: ahead, ..full };
                Sttf::default().forecast(&path).first()
            };
            prop_assert!(bytes <= window * 1000);
            if bytes > 0 {
                prop_assert!(arrives(bytes - 1000) <= end);
            }
            if bytes < window * 1000 {
                prop_assert!(arrives(bytes) > end);
            }
        }
    }
}
