//! What requests about acknowledgements must do.

use super::*;

const USUAL: Wish = wish(2, 25);
const INTERVAL: Duration = Duration::from_millis(50);

const fn wish(packets: u32, ms: u64) -> Wish {
    Wish {
        packets,
        delay: Duration::from_millis(ms),
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Asks, and sends what is to be sent.
fn asked(requests: &mut AckRequests, ms: u64, wish: Wish) -> Option<AckFrequency> {
    requests.ask(at(ms), INTERVAL, USUAL, wish);
    let frame = requests.next_frame(3)?;
    assert_eq!(requests.on_sent(at(ms)), frame.sequence);
    assert!(!requests.is_pending());
    Some(frame)
}

#[test]
fn the_usual_is_not_asked_for_and_a_breathing_window_is_no_news() {
    let mut requests = AckRequests::default();
    assert_eq!(asked(&mut requests, 0, wish(2, 5)), None);
    let first = asked(&mut requests, 0, wish(10, 5)).expect("more packets are news");
    let expected = AckFrequency {
        sequence: 0,
        ack_eliciting_threshold: 9,
        max_ack_delay_us: 5000,
        reordering_threshold: 3,
    };
    assert_eq!(first, expected);
    assert!(requests.is_reduced());
    assert_eq!(asked(&mut requests, 100, wish(7, 6)), None);
    assert_eq!(asked(&mut requests, 100, wish(19, 4)), None);
    let back = asked(&mut requests, 100, USUAL).expect("back to usual is news");
    assert_eq!((back.sequence, back.ack_eliciting_threshold), (1, 1));
    assert!(!requests.is_reduced());
}

#[test]
fn a_delay_of_nothing_is_no_news_for_ever() {
    let mut requests = AckRequests::default();
    let usual = wish(2, 0);
    requests.ask(at(0), INTERVAL, usual, wish(10, 0));
    requests.on_sent(at(0));
    requests.on_acked(0);
    requests.ask(at(100), INTERVAL, usual, wish(10, 0));
    assert!(!requests.is_pending());
}

#[test]
fn nothing_is_asked_twice_within_the_interval() {
    let mut requests = AckRequests::default();
    assert!(asked(&mut requests, 0, wish(10, 5)).is_some());
    assert_eq!(asked(&mut requests, 49, wish(4, 5)), None);
    assert!(asked(&mut requests, 50, wish(4, 5)).is_some());
}

#[test]
fn the_longest_delay_that_may_be_in_force_counts() {
    let announced = Duration::from_millis(25);
    let mut requests = AckRequests::default();
    asked(&mut requests, 0, wish(10, 40));
    let longest = |requests: &AckRequests| requests.longest_delay(announced).as_millis();
    assert_eq!(longest(&requests), 40, "the peer may have heard");
    requests.on_acked(0);
    assert_eq!(longest(&requests), 40);
    asked(&mut requests, 100, wish(10, 5));
    assert_eq!(longest(&requests), 40, "the peer may not have heard");
    requests.on_lost(1);
    assert_eq!(longest(&requests), 40);
    requests.on_acked(1);
    assert_eq!(longest(&requests), 5);
}

#[test]
fn a_lost_request_is_repeated_unless_a_newer_one_was_sent() {
    let mut requests = AckRequests::default();
    let first = asked(&mut requests, 0, wish(10, 5));
    requests.on_lost(0);
    assert!(requests.is_pending());
    assert_eq!(requests.next_frame(3), first, "same wish, same number");
    requests.on_sent(at(60));
    asked(&mut requests, 120, wish(40, 5));
    requests.on_lost(0);
    assert!(!requests.is_pending());
    requests.on_lost(1);
    requests.on_acked(1);
    assert!(!requests.is_pending(), "it had arrived after all");
    requests.on_lost(1);
    assert!(!requests.is_pending());
}

#[test]
fn a_peer_that_acknowledges_no_request_is_asked_no_more() {
    let mut requests = AckRequests::default();
    for round in 0..20_u64 {
        let packets = if round % 2 == 0 { 10 } else { 40 };
        asked(&mut requests, round * 100, wish(packets, 5));
    }
    assert_eq!(requests.unsettled.len(), MAX_UNSETTLED);
    assert_eq!(requests.next_sequence, MAX_UNSETTLED as u64);
}
