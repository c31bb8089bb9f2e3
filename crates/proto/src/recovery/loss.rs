//! What counts as lost (RFC 9002, sections 6.1 and 7.6).

use super::rtt::RttEstimator;
use super::sent_packets::SentPacket;
use crate::time::{Duration, Instant};

/// A packet is lost once a packet sent this much later is acknowledged (RFC 9002, section 6.1.1).
pub const PACKET_THRESHOLD: u64 = 3;

/// The assumed resolution of timers (RFC 9002, section 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// Persistent congestion is loss for this many PTOs (RFC 9002, section 7.6.1).
pub const PERSISTENT_CONGESTION_THRESHOLD: u32 = 3;

/// How long a packet may be overtaken before it is lost: 9/8 of an RTT (RFC 9002, section 6.1.2).
pub fn loss_delay(rtt: &RttEstimator) -> Duration {
    (rtt.latest().max(rtt.smoothed()) * 9 / 8).max(GRANULARITY)
}

/// Whether packets that were declared lost together prove persistent congestion (RFC 9002,
/// section 7.6): two ack-eliciting ones, sent further apart than three PTOs with everything between
/// them lost as well, both after the first RTT sample.
///
/// `lost` is in ascending order of packet numbers. A number missing between two entries was
/// acknowledged, or skipped; both end a run, which errs towards keeping the window.
pub fn persistent_congestion(
    lost: &[(u64, SentPacket)],
    rtt: &RttEstimator,
    max_ack_delay: Duration,
    first_sample_at: Option<Instant>,
) -> bool {
    let Some(first_sample_at) = first_sample_at else {
        return false;
    };
    let duration = (rtt.pto_base() + max_ack_delay) * PERSISTENT_CONGESTION_THRESHOLD;
    let mut run_start: Option<Instant> = None;
    let mut previous: Option<u64> = None;
    for (pn, packet) in lost {
        if previous.is_some_and(|previous| previous + 1 != *pn) {
            run_start = None;
        }
        previous = Some(*pn);
        if !packet.ack_eliciting || packet.time_sent < first_sample_at {
            continue;
        }
        let start = *run_start.get_or_insert(packet.time_sent);
        if packet.time_sent.since(start) > duration {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::sent_packets::tests::packet;
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Smoothed 100 ms, rttvar 50 ms: with 25 ms of delay, three PTOs are 975 ms.
    fn rtt() -> RttEstimator {
        let mut rtt = RttEstimator::new(Duration::from_millis(333));
        rtt.on_sample(Duration::from_millis(100), Duration::ZERO, at(0));
        rtt
    }

    fn persistent(sent: &[(u64, u64)], first_sample_at: Option<Instant>) -> bool {
        let lost: Vec<_> = sent.iter().map(|(pn, ms)| (*pn, packet(at(*ms)))).collect();
        persistent_congestion(&lost, &rtt(), Duration::from_millis(25), first_sample_at)
    }

    #[test]
    fn losses_over_more_than_three_ptos_are_persistent_congestion() {
        assert!(!persistent(&[(1, 0), (2, 500), (3, 975)], Some(at(0))));
        assert!(persistent(&[(1, 0), (2, 500), (3, 976)], Some(at(0))));
    }

    #[test]
    fn an_acknowledged_packet_between_losses_ends_the_period() {
        assert!(!persistent(&[(1, 0), (3, 976)], Some(at(0))));
        assert!(persistent(&[(1, 0), (3, 10), (4, 986)], Some(at(0))));
    }

    #[test]
    fn packets_sent_before_the_first_rtt_sample_prove_nothing() {
        assert!(!persistent(&[(1, 0), (2, 976)], None));
        assert!(!persistent(&[(1, 0), (2, 976)], Some(at(1))));
        assert!(persistent(&[(1, 0), (2, 1), (3, 977)], Some(at(1))));
    }

    #[test]
    fn packets_that_elicit_no_acknowledgement_bound_no_period() {
        let mut lost: Vec<_> = [(1, 0), (2, 500), (3, 976)]
            .map(|(n, t)| (n, packet(at(t))))
            .into();
        lost[2].1.ack_eliciting = false;
        let rtt = rtt();
        assert!(!persistent_congestion(
            &lost,
            &rtt,
            Duration::from_millis(25),
            Some(at(0))
        ));
    }

    #[test]
    fn the_time_threshold_is_nine_eighths_of_the_larger_rtt_and_at_least_the_granularity() {
        let mut rtt = rtt();
        assert_eq!(loss_delay(&rtt), Duration::from_micros(112_500));
        rtt.on_sample(Duration::from_millis(200), Duration::ZERO, at(1));
        assert_eq!(loss_delay(&rtt), Duration::from_millis(225));
        let mut fast = RttEstimator::new(Duration::from_micros(10));
        fast.on_sample(Duration::from_micros(10), Duration::ZERO, at(1));
        assert_eq!(loss_delay(&fast), GRANULARITY);
    }
}
