//! wVegas: delay-based control that keeps a few packets queued, shared between paths in proportion
//! to their rates (Cao, Xu and Fu, 2012; as in the multipath kernel).
//!
//! Once per round trip, window minus what the path holds without a queue is compared with the
//! path's share of ten packets. Traffic leaves paths whose queues grow before anything is lost, and
//! gives way to loss-based flows on the same links.
//!
//! Queues are told by RTTs, as in the kernel, and so include those of the way back;
//! acknowledgements bring no forward delay to a controller. Unlike the kernel, it drains a queue
//! only if that is also twice the path's share: else a lone path would halve its window each time
//! its own queue grew from one packet to two.

use super::coupled::{PARAMS, Scope, Share};
use super::new_reno::LOSS_REDUCTION_FACTOR;
use super::registry::Entry;
use super::window::{LossBased, Window, minimum_window};
use super::{AckEvent, CongestionEvent, Member};
use crate::time::{Duration, Instant};

pub(super) const ENTRY: Entry = Entry {
    name: "wvegas",
    summary: "keeps queues short and moves traffic by delay; gives way to loss-based flows",
    params: PARAMS,
    build: |params, init| {
        let scope = Scope::take(params)?;
        Ok(Box::new(WVegas::new(Window::build(params, init)?, scope)))
    },
};

/// Packets that all coupled paths together want queued.
const ALL_QUEUED: f64 = 10.0;
/// Packets that each path may have queued at least.
const LEAST_QUEUED: f64 = 2.0;
/// Packets queued that end slow start.
const SLOW_START_QUEUED: f64 = 1.0;
/// With fewer RTT samples in a round, it grows like Reno.
const MIN_SAMPLES: u32 = 3;

/// The weighted Vegas controller.
#[derive(Debug)]
struct WVegas {
    window: Window,
    scope: Scope,
    /// Packets this path wants queued.
    wanted: f64,
    round: Round,
    /// The least queueing delay since the last draining.
    least_queue: Option<Duration>,
}

/// What a round trip brought so far. It ends when a packet sent after its start is acknowledged.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    began: Option<Instant>,
    rtts: Duration,
    samples: u32,
    /// Acknowledged bytes that may grow the window.
    counted: u64,
}

/// What a round trip says about the path.
#[derive(Debug, Clone, Copy)]
struct Queue {
    rtt: Duration,
    base: Duration,
}

impl Queue {
    fn delay(self) -> Duration {
        self.rtt.saturating_sub(self.base)
    }

    /// Packets of `window` that are queued.
    fn packets(self, window: f64) -> f64 {
        window * self.delay().as_secs_f64() / self.rtt.as_secs_f64()
    }

    /// What the path holds without a queue, as a share of the window.
    fn empty_share(self) -> f64 {
        self.base.as_secs_f64() / self.rtt.as_secs_f64()
    }
}

impl WVegas {
    fn new(window: Window, scope: Scope) -> Self {
        Self {
            window,
            scope,
            wanted: LEAST_QUEUED,
            round: Round::default(),
            least_queue: None,
        }
    }

    fn packets(&self) -> f64 {
        self.window.size as f64 / self.window.mds as f64
    }

    /// Sets the window and stays in congestion avoidance.
    fn set(&mut self, packets: f64) {
        let size = (packets * self.window.mds as f64) as u64;
        self.window.size = size.max(minimum_window(self.window.mds));
        self.window.ssthresh = self.window.ssthresh.min(self.window.size);
    }

    fn end_round(&mut self, queue: Queue, counted: u64, group: &[Member]) {
        let window = self.packets();
        let queued = queue.packets(window);
        if self.window.in_slow_start() {
            if queued > SLOW_START_QUEUED {
                self.set(window.min(window * queue.empty_share() + 1.0));
                self.window.ssthresh = self.window.size;
            }
            return;
        }
        if queued >= self.wanted {
            self.wanted = (self.weight(group) * ALL_QUEUED).max(LEAST_QUEUED);
        }
        let delay = queue.delay();
        let least = self.least_queue.map_or(delay, |least| least.min(delay));
        self.least_queue = Some(least).filter(|least| !least.is_zero());
        if queued > self.wanted {
            let excessive = queued >= 2.0 * self.wanted && delay >= least * 2;
            if self.least_queue.is_some() && excessive {
                self.set(window * queue.empty_share() / 2.0);
                self.least_queue = None;
            } else {
                self.set(window - 1.0);
            }
        } else if queued < self.wanted && counted > 0 {
            self.set(window + 1.0);
        }
    }

    /// The path's share of the rate of all coupled paths.
    fn weight(&self, group: &[Member]) -> f64 {
        let paths = self.scope.of(group);
        paths.map_or(1.0, |paths| paths.own().rate() / paths.sum(Share::rate))
    }
}

impl LossBased for WVegas {
    fn base(&self) -> &Window {
        &self.window
    }

    fn base_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, event: &AckEvent, group: &[Member]) {
        let counted = self.window.on_ack(event);
        self.window.slow_start(counted);
        let round = &mut self.round;
        let began = *round.began.get_or_insert(event.now);
        if let Some(sample) = event.rtt_sample {
            round.rtts += sample;
            round.samples += 1;
        }
        round.counted += counted;
        if event.largest_sent < began {
            return;
        }
        let round = std::mem::take(&mut self.round);
        self.round.began = Some(event.now);
        if round.samples >= MIN_SAMPLES {
            let queue = Queue {
                rtt: (round.rtts / round.samples).max(Duration::from_micros(1)),
                base: event.rtt.min,
            };
            if !self.window.in_recovery() {
                self.end_round(queue, round.counted, group);
            }
        } else if !self.window.in_slow_start() {
            // A round trip adds a packet, whatever it acknowledged.
            let counted = round.counted.min(self.window.size);
            self.window.avoid_congestion(counted);
        }
    }

    fn shrink(&mut self, event: &CongestionEvent, _group: &[Member]) {
        if self.window.reduce(event, LOSS_REDUCTION_FACTOR).is_some() {
            self.start_over();
        }
    }

    fn start_over(&mut self) {
        self.round = Round::default();
        self.least_queue = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Link, member, transfer};
    use super::*;

    /// What a round with an RTT of 125 ms over 100 ms makes of 20 packets.
    fn after_round(wanted: f64, least_queue_ms: Option<u64>) -> f64 {
        let mut vegas = WVegas::new(Window::new(1000), Scope::Auto);
        vegas.wanted = wanted;
        vegas.least_queue = least_queue_ms.map(Duration::from_millis);
        vegas.window.size = 20_000;
        vegas.window.ssthresh = 20_000;
        let queue = Queue {
            rtt: Duration::from_millis(125),
            base: Duration::from_millis(100),
        };
        assert!((queue.packets(20.0) - 4.0).abs() < 1e-9);
        // A fifth of all rates: two of ten packets, unless it wants more than are queued.
        let group = [member(0, 20, 125), member(1, 80, 125)];
        vegas.end_round(queue, 20_000, &group);
        vegas.packets()
    }

    #[test]
    fn the_window_follows_the_queue_by_a_packet_per_round() {
        assert!((after_round(2.0, Some(20)) - 19.0).abs() < 1e-9);
        assert!((after_round(5.0, Some(20)) - 21.0).abs() < 1e-9);
    }

    #[test]
    fn a_queue_twice_as_long_as_the_shortest_is_drained() {
        assert!((after_round(2.0, Some(10)) - 8.0).abs() < 1e-9);
    }

    #[test]
    fn slow_start_ends_when_a_packet_is_queued() {
        let mut vegas = WVegas::new(Window::new(1000), Scope::Auto);
        vegas.window.size = 20_000;
        let queue = |rtt| Queue {
            rtt: Duration::from_millis(rtt),
            base: Duration::from_millis(100),
        };
        vegas.end_round(queue(104), 20_000, &[]);
        assert!(vegas.window.in_slow_start());
        vegas.end_round(queue(125), 20_000, &[]);
        assert!((vegas.packets() - 17.0).abs() < 1e-9);
        assert!(!vegas.window.in_slow_start());
    }

    #[test]
    fn a_path_alone_keeps_its_queue_at_ten_packets() {
        let mut transfer = transfer("wvegas", Link::new(1_250_000, 40, 4.0));
        transfer.run(Duration::from_secs(10));
        let (share, queue) = transfer.run(Duration::from_secs(20));
        assert!(share > 0.97, "{share}");
        assert!((6_000.0..16_000.0).contains(&queue), "{queue}");
        assert_eq!(transfer.drops, 0);
    }
}
