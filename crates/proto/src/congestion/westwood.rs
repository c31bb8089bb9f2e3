//! Westwood: NewReno that falls back to the measured bandwidth-delay product on loss instead of to
//! half of the window, so that losses by chance cost little (TCP Westwood+).

use super::registry::Entry;
use super::window::{InitialWindow, LossBased, Window};
use super::{AckEvent, CongestionEvent, Member};
use crate::time::{Duration, Instant};

pub(super) const ENTRY: Entry = Entry {
    name: "westwood",
    summary: "NewReno that keeps the measured bandwidth on loss, for links that lose by chance",
    params: &[InitialWindow::DOC],
    build: |params, init| {
        Ok(Box::new(Westwood {
            window: Window::build(params, init)?,
            bandwidth: Bandwidth::default(),
            min_rtt: Duration::ZERO,
        }))
    },
};

/// A sample of the bandwidth covers a round trip, and at least this: shorter ones measure bursts.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(50);

/// Bandwidth in bytes per second: the rate of acknowledgements, filtered twice with a gain of an
/// eighth.
#[derive(Debug, Default)]
struct Bandwidth {
    once: f64,
    twice: f64,
    began: Option<Instant>,
    acked: u64,
}

impl Bandwidth {
    fn on_ack(&mut self, event: &AckEvent) {
        let Some(began) = self.began else {
            // What was acknowledged first was sent before anything could be timed.
            self.began = Some(event.now);
            return;
        };
        self.acked = self.acked.saturating_add(event.bytes);
        let passed = event.now.since(began);
        if passed >= event.rtt.smoothed.max(SHORTEST_SAMPLE) {
            self.take(self.acked as f64 / passed.as_secs_f64());
            self.began = Some(event.now);
            self.acked = 0;
        }
    }

    fn take(&mut self, sample: f64) {
        if self.twice == 0.0 {
            (self.once, self.twice) = (sample, sample);
        } else {
            self.once = (7.0 * self.once + sample) / 8.0;
            self.twice = (7.0 * self.twice + self.once) / 8.0;
        }
    }

    fn estimate(&self) -> Option<f64> {
        (self.twice > 0.0).then_some(self.twice)
    }
}

#[derive(Debug)]
struct Westwood {
    window: Window,
    bandwidth: Bandwidth,
    min_rtt: Duration,
}

impl LossBased for Westwood {
    fn base(&self) -> &Window {
        &self.window
    }

    fn base_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, event: &AckEvent, _group: &[Member]) {
        self.bandwidth.on_ack(event);
        self.min_rtt = event.rtt.min;
        let counted = self.window.on_ack(event);
        let rest = self.window.slow_start(counted);
        self.window.avoid_congestion(rest);
    }

    fn is_coupled(&self) -> bool {
        false
    }

    fn shrink(&mut self, event: &CongestionEvent, _group: &[Member]) {
        let window = self.window.size as f64;
        let target = match self.bandwidth.estimate() {
            Some(bandwidth) => bandwidth * self.min_rtt.as_secs_f64(),
            None => window * super::new_reno::LOSS_REDUCTION_FACTOR,
        };
        self.window.reduce_to(event, target.min(window));
    }

    fn start_over(&mut self) {
        (self.bandwidth.began, self.bandwidth.acked) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Link, ack, controller, loss, transfer};
    use super::*;

    #[test]
    fn bandwidth_is_filtered_twice() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.take(1000.0);
        bandwidth.take(2000.0);
        assert!((bandwidth.twice - 1015.6).abs() < 0.05);
        bandwidth.take(2000.0);
        assert!((bandwidth.twice - 1043.0).abs() < 0.05);
    }

    #[test]
    fn a_loss_leaves_the_bandwidth_delay_product() {
        let mut westwood = controller("westwood");
        // 4800 bytes in 50 ms, with an RTT of 50 ms.
        for ms in 0..=10 {
            westwood.on_ack(&ack(10 + 50 * ms, 5 + 50 * ms, 4800), &[]);
        }
        westwood.on_congestion(&loss(600, 590, 1200), &[]);
        assert_eq!(westwood.window(), 4800);
    }

    #[test]
    fn losses_by_chance_cost_less_than_with_newreno() {
        let share = |name| {
            let link = Link {
                loss_one_in: 200,
                ..Link::new(1_250_000, 100, 1.0)
            };
            let mut transfer = transfer(name, link);
            transfer.run(Duration::from_secs(10));
            transfer.run(Duration::from_secs(20)).0
        };
        let (westwood, reno) = (share("westwood"), share("new-reno"));
        assert!(westwood > 1.5 * reno, "{westwood} and {reno}");
    }
}
