//! NewReno as RFC 9002 describes it: halve on loss, one datagram per round trip otherwise.

use super::registry::Entry;
use super::window::{InitialWindow, LossBased, Window};
use super::{AckEvent, CongestionEvent, Member};

pub(super) const ENTRY: Entry = Entry {
    name: "new-reno",
    summary: "halves on loss, adds a datagram per round trip (RFC 9002)",
    params: &[InitialWindow::DOC],
    build: |params, init| {
        let window = Window::build(params, init)?;
        Ok(Box::new(NewReno { window }))
    },
};

/// RFC 9002, section 7.3.2.
pub(super) const LOSS_REDUCTION_FACTOR: f64 = 0.5;

/// The controller of RFC 9002, section 7.
#[derive(Debug)]
pub struct NewReno {
    window: Window,
}

impl NewReno {
    /// A controller in slow start.
    pub fn new(max_datagram_size: u16) -> Self {
        Self {
            window: Window::new(max_datagram_size),
        }
    }
}

impl LossBased for NewReno {
    fn base(&self) -> &Window {
        &self.window
    }

    fn base_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, event: &AckEvent, _group: &[Member]) {
        let counted = self.window.on_ack(event);
        let rest = self.window.slow_start(counted);
        self.window.avoid_congestion(rest);
    }

    fn is_coupled(&self) -> bool {
        false
    }

    fn shrink(&mut self, event: &CongestionEvent, _group: &[Member]) {
        self.window.reduce(event, LOSS_REDUCTION_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Controller;
    use super::super::tests::{ack, at, loss, spurious};
    use super::*;

    fn reno() -> NewReno {
        NewReno::new(1000)
    }

    #[test]
    fn the_initial_window_is_that_of_rfc_9002() {
        for (size, window) in [
            (1000, 10_000),
            (1200, 12_000),
            (1472, 14_720),
            (9000, 18_000),
        ] {
            assert_eq!(NewReno::new(size).window(), window);
        }
    }

    #[test]
    fn slow_start_adds_what_was_acknowledged() {
        let mut reno = reno();
        reno.on_ack(&ack(10, 0, 3000), &[]);
        assert_eq!(reno.window(), 13_000);
        assert_eq!(reno.ssthresh(), u64::MAX);
    }

    #[test]
    fn a_window_that_is_not_the_limit_does_not_grow() {
        let mut reno = reno();
        reno.on_ack(
            &AckEvent {
                app_limited: true,
                ..ack(10, 0, 3000)
            },
            &[],
        );
        assert_eq!(reno.window(), 10_000);
    }

    #[test]
    fn a_round_trip_reduces_once() {
        let mut reno = reno();
        reno.on_congestion(&loss(100, 90, 1000), &[]);
        assert_eq!(
            (reno.window(), reno.ssthresh(), reno.in_recovery()),
            (5000, 5000, true)
        );
        reno.on_congestion(&loss(105, 100, 1000), &[]);
        assert_eq!(reno.window(), 5000, "sent before the reduction");
        reno.on_ack(&ack(110, 95, 5000), &[]);
        assert_eq!((reno.window(), reno.in_recovery()), (5000, true));
        reno.on_ack(&ack(200, 101, 1000), &[]);
        assert_eq!((reno.window(), reno.in_recovery()), (5200, false));
        reno.on_congestion(&loss(210, 150, 1000), &[]);
        assert_eq!(reno.window(), 2600);
    }

    #[test]
    fn congestion_avoidance_adds_a_datagram_per_window() {
        let mut reno = reno();
        reno.on_congestion(&loss(100, 90, 1000), &[]);
        for _ in 0..5 {
            reno.on_ack(&ack(200, 150, 1000), &[]);
        }
        assert!((5900..=6000).contains(&reno.window()), "{}", reno.window());
    }

    #[test]
    fn fractions_of_a_byte_are_not_lost() {
        let mut reno = NewReno::new(1000);
        reno.window.size = 50_000_000;
        reno.window.ssthresh = 50_000_000;
        for _ in 0..50_000 {
            reno.on_ack(&ack(200, 150, 1000), &[]);
        }
        assert!(reno.window().abs_diff(50_001_000) <= 1, "{}", reno.window());
    }

    #[test]
    fn slow_start_stops_at_the_threshold() {
        let mut reno = reno();
        reno.on_congestion(&loss(100, 90, 1000), &[]);
        reno.restart(at(150));
        assert_eq!((reno.window(), reno.ssthresh()), (2000, 5000));
        reno.on_ack(&ack(200, 160, 8000), &[]);
        assert_eq!(reno.window(), 5000 + 1000 * 5000 / 5000);
    }

    #[test]
    fn after_an_idle_spell_the_window_is_the_first_one_at_most() {
        let mut grown = reno();
        grown.on_ack(&ack(100, 50, 8000), &[]);
        assert_eq!(grown.window(), 18_000);
        grown.on_idle(at(2000));
        assert_eq!((grown.window(), grown.ssthresh()), (10_000, u64::MAX));
        let mut reduced = reno();
        reduced.on_congestion(&loss(100, 90, 1000), &[]);
        reduced.on_idle(at(2000));
        assert_eq!((reduced.window(), reduced.ssthresh()), (5000, 5000));
    }

    #[test]
    fn packets_sent_before_a_restart_change_nothing() {
        let mut reno = reno();
        reno.restart(at(100));
        reno.on_congestion(&loss(110, 90, 1000), &[]);
        reno.on_ack(&ack(120, 95, 4000), &[]);
        assert_eq!(reno.window(), 2000);
    }

    #[test]
    fn persistent_congestion_leaves_the_minimum() {
        let mut reno = reno();
        reno.on_congestion(
            &CongestionEvent {
                persistent: true,
                ..loss(100, 90, 9000)
            },
            &[],
        );
        assert_eq!((reno.window(), reno.ssthresh()), (2000, 5000));
        reno.on_ack(&ack(110, 95, 1000), &[]);
        assert_eq!(
            reno.window(),
            3000,
            "slow start at once: RFC 9002, section 7.6.2"
        );
    }

    #[test]
    fn the_window_never_falls_below_two_datagrams() {
        let mut reno = reno();
        for round in 1..20 {
            reno.on_congestion(&loss(100 * round, 100 * round - 1, 1000), &[]);
        }
        assert_eq!(reno.window(), 2000);
    }

    #[test]
    fn a_reduction_is_taken_back_when_all_its_losses_were_spurious() {
        let mut reno = reno();
        reno.on_congestion(&loss(100, 90, 1000), &[]);
        reno.on_congestion(&loss(101, 95, 1000), &[]);
        reno.on_spurious_loss(&spurious(102, 100, 1000));
        assert_eq!(reno.window(), 5000, "the other one is still lost");
        reno.on_spurious_loss(&spurious(103, 101, 1000));
        assert_eq!((reno.window(), reno.ssthresh()), (10_000, u64::MAX));
        assert!(!reno.in_recovery());
        reno.on_spurious_loss(&spurious(104, 101, 1000));
        assert_eq!(reno.window(), 10_000);
        reno.on_ack(&ack(110, 95, 1000), &[]);
        assert_eq!(reno.window(), 11_000, "it grows as if nothing had been");
    }

    #[test]
    fn a_small_packet_that_arrives_late_does_not_stand_for_a_full_one() {
        let mut reno = reno();
        reno.on_congestion(&loss(100, 90, 1200), &[]);
        for _ in 0..3 {
            reno.on_spurious_loss(&spurious(102, 100, 100));
        }
        assert_eq!(reno.window(), 5000);
        reno.on_spurious_loss(&spurious(103, 100, 1000));
        assert_eq!(reno.window(), 10_000);
    }

    #[test]
    fn a_late_packet_takes_back_no_reduction_that_came_after_its_own() {
        let mut reno = reno();
        reno.on_congestion(&loss(100, 90, 1000), &[]);
        reno.on_congestion(&loss(200, 190, 1000), &[]);
        assert_eq!(reno.window(), 2500);
        reno.on_spurious_loss(&spurious(210, 100, 1000));
        assert_eq!(reno.window(), 2500);
        reno.on_spurious_loss(&spurious(220, 200, 1000));
        assert_eq!(reno.window(), 5000);
    }

    #[test]
    fn ecn_marks_reduce_like_a_loss_and_for_good() {
        let mut reno = reno();
        reno.on_congestion(
            &CongestionEvent {
                ecn: true,
                ..loss(100, 90, 0)
            },
            &[],
        );
        assert_eq!(reno.window(), 5000);
        reno.on_spurious_loss(&spurious(101, 100, 1000));
        assert_eq!(reno.window(), 5000);
    }

    #[test]
    fn bytes_between_losses_are_kept_for_coupled_siblings() {
        let mut reno = reno();
        reno.on_ack(&ack(10, 0, 7000), &[]);
        reno.on_congestion(&loss(100, 90, 1000), &[]);
        reno.on_ack(&ack(110, 105, 3000), &[]);
        assert_eq!(reno.bytes_between_losses(), 7000);
        reno.on_ack(&ack(120, 106, 5000), &[]);
        assert_eq!(reno.bytes_between_losses(), 8000);
    }

    #[test]
    fn an_untouched_window_follows_the_mtu() {
        let mut reno = NewReno::new(1200);
        reno.on_mtu(1400);
        assert_eq!(reno.window(), 14_000);
        reno.on_ack(&ack(10, 0, 1000), &[]);
        reno.on_mtu(1472);
        assert_eq!(reno.window(), 15_000);
    }
}
