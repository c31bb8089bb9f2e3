//! What bbr must do.

use super::super::tests::{Link, PACKET, Transfer, ack, at, loss, spurious, transfer};
use super::*;
use crate::recovery::rate::RateSample;
use anabranch_wire::PathId;

fn bbr() -> Bbr {
    Bbr::new(&ControllerInit {
        max_datagram_size: PACKET as u16,
        now: at(1),
        seed: 7,
        path: PathId(0),
    })
}

fn on(link: Link) -> Transfer {
    Transfer::new(Box::new(bbr()), link)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn it_reaches_the_rate_with_a_short_queue() {
    for (rate, rtt_ms) in [(1_250_000, 40), (12_500_000, 20), (1_250_000, 200)] {
        let link = Link::new(rate, rtt_ms, 10.0);
        let mut transfer = on(link);
        transfer.run(5 * SECOND);
        let (share, queue) = transfer.run(20 * SECOND);
        assert!(share > 0.93, "{rate} B/s: {share}");
        assert!(
            queue < 0.25 * link.bdp() as f64,
            "{queue} of {}",
            link.bdp()
        );
    }
}

#[test]
fn startup_finds_the_rate_in_a_few_round_trips() {
    let mut transfer = on(Link::new(12_500_000, 50, 2.0));
    transfer.run(SECOND);
    let (share, _) = transfer.run(SECOND);
    assert!(share > 0.9, "{share}");
}

#[test]
fn losses_that_are_not_congestion_cost_little() {
    for (rate, at_least) in [(1_250_000, 0.85), (12_500_000, 0.75)] {
        let link = Link {
            loss_one_in: 100,
            ..Link::new(rate, 40, 2.0)
        };
        let share = |mut transfer: Transfer| {
            transfer.run(5 * SECOND);
            transfer.run(20 * SECOND).0
        };
        let cubic = share(transfer("cubic:random-loss=0", link));
        let bbr = share(on(link));
        assert!(bbr > at_least, "{rate} B/s: {bbr}");
        assert!(bbr > 1.5 * cubic, "{rate} B/s: {bbr} and {cubic}");
    }
}

fn told(percent: f64) -> Bbr {
    let mut bbr = bbr();
    bbr.tolerance = Tolerance::of(percent);
    bbr
}

#[test]
fn a_link_that_loses_at_random_is_used_if_that_is_told() {
    // Of the rate, what arrives at best is one less the loss.
    for (one_in, plain_at_most, told_at_least) in
        [(50, 0.9, 0.93), (25, 0.8, 0.91), (12, 0.6, 0.87)]
    {
        let link = Link {
            loss_one_in: one_in,
            ..Link::new(1_250_000, 100, 2.0)
        };
        let share = |bbr: Bbr| {
            let mut transfer = Transfer::new(Box::new(bbr), link);
            transfer.run(5 * SECOND);
            transfer.run(20 * SECOND).0
        };
        let (plain, told) = (share(bbr()), share(told(20.0)));
        assert!(plain < plain_at_most, "one in {one_in}: {plain}");
        assert!(told > told_at_least, "one in {one_in}: {told}");
    }
}

fn sent(now_ms: u64) -> SentEvent {
    SentEvent {
        now: at(now_ms),
        bytes: PACKET,
        bytes_in_flight: 2 * PACKET,
        app_limited: false,
    }
}

/// What is learnt of a link that loses one packet in so many.
fn learnt(percent: f64, is_down: bool, one_in: u64, rtt_ms: u64) -> f64 {
    let mut bbr = told(percent);
    bbr.on_ack(&ack(60, 10, PACKET), &[]);
    if is_down {
        bbr.start_down(at(0));
    }
    for ms in 101..100 + 50 * one_in {
        bbr.on_sent(&sent(ms - 50));
        if ms % one_in == 0 {
            bbr.on_congestion(&loss(ms, ms - 50, PACKET), &[]);
        } else {
            let mut ack = ack(ms, ms - 50, PACKET);
            ack.rtt.latest = Duration::from_millis(rtt_ms);
            bbr.on_ack(&ack, &[]);
        }
    }
    bbr.own_loss()
}

#[test]
fn what_a_link_loses_by_itself_is_learnt_without_a_queue_up_to_what_is_told() {
    let nothing = 0.0..=0.0;
    assert!(
        nothing.contains(&learnt(0.0, true, 25, 50)),
        "of whom nothing is told"
    );
    assert!(
        nothing.contains(&learnt(20.0, true, 25, 100)),
        "while a queue explains it"
    );
    assert!(
        nothing.contains(&learnt(20.0, false, 25, 50)),
        "at a rate that may overflow"
    );
    let own = learnt(20.0, true, 25, 50);
    assert!((0.038..0.042).contains(&own), "{own}");
    let most = learnt(5.0, true, 10, 50);
    assert!((0.05..=0.05).contains(&most), "{most}");
}

#[test]
fn what_overflows_a_short_buffer_is_not_taken_for_the_links_own_loss() {
    for packets in [5.0, 10.0, 20.0] {
        let lost = |bbr: Bbr| {
            let bdp = Link::new(2_500_000, 80, 1.0).bdp();
            let buffer = packets * PACKET as f64 / bdp as f64;
            let mut transfer = Transfer::new(Box::new(bbr), Link::new(2_500_000, 80, buffer));
            transfer.run(20 * SECOND);
            transfer.drops as f64 * PACKET as f64 / transfer.delivered as f64
        };
        let (plain, told) = (lost(bbr()), lost(told(50.0)));
        assert!(
            told < plain + 0.03,
            "{packets}: {told}, and {plain} if nothing is told"
        );
    }
}

#[test]
fn a_loss_that_was_none_is_not_the_links() {
    let mut bbr = told(20.0);
    bbr.on_ack(&ack(60, 10, PACKET), &[]);
    bbr.start_down(at(0));
    for ms in 100..=200 {
        bbr.on_sent(&sent(ms - 50));
        bbr.on_ack(&ack(ms, ms - 50, PACKET), &[]);
    }
    bbr.on_congestion(&loss(200, 150, 10 * PACKET), &[]);
    assert!(bbr.own_loss() > 0.08);
    bbr.on_spurious_loss(&spurious(210, 200, 10 * PACKET));
    assert!(bbr.own_loss() < 1e-9);
}

#[test]
fn a_shallow_buffer_is_used_without_constant_loss() {
    let mut transfer = on(Link::new(12_500_000, 40, 0.25));
    transfer.run(5 * SECOND);
    let before = (transfer.drops, transfer.delivered);
    let (share, _) = transfer.run(20 * SECOND);
    assert!(share > 0.8, "{share}");
    let lost = (transfer.drops - before.0) * PACKET;
    let ratio = lost as f64 / (transfer.delivered - before.1) as f64;
    assert!(ratio < 0.02, "{ratio}");
}

#[test]
fn more_bandwidth_is_found() {
    let mut transfer = on(Link::new(1_250_000, 40, 4.0));
    transfer.run(10 * SECOND);
    transfer.link.rate *= 10;
    transfer.run(15 * SECOND);
    let (share, _) = transfer.run(5 * SECOND);
    assert!(share > 0.85, "{share}");
}

#[test]
fn less_bandwidth_is_accepted() {
    let mut transfer = on(Link::new(12_500_000, 40, 4.0));
    transfer.run(10 * SECOND);
    transfer.link.rate /= 4;
    transfer.run(15 * SECOND);
    let (share, queue) = transfer.run(5 * SECOND);
    assert!(share > 0.85, "{share}");
    assert!(queue < transfer.link.bdp() as f64, "{queue}");
}

#[test]
fn a_tiny_pipe_keeps_four_packets_in_flight() {
    let mut transfer = on(Link::new(100_000, 5, 20.0));
    transfer.run(5 * SECOND);
    let (share, _) = transfer.run(10 * SECOND);
    assert!(share > 0.9, "{share}");
    assert!(transfer.controller.window() >= 4 * PACKET);
}

/// Feeds one round of acknowledgements: a packet sent after the start of the round arrives.
fn round(bbr: &mut Bbr, now_ms: u64, rate: u64, app_limited: bool) {
    let prior = bbr.delivered;
    let mut event = ack(now_ms, now_ms - 50, 10 * PACKET);
    event.bytes_in_flight = 10 * PACKET;
    event.rate = Some(RateSample {
        rate,
        delivered: prior + 10 * PACKET,
        prior_delivered: prior,
        newly_acked: 10 * PACKET,
        lost: 0,
        in_flight_at_send: 10 * PACKET,
        interval: Duration::from_millis(50),
        app_limited,
    });
    bbr.on_ack(&event, &[]);
}

#[test]
fn a_longer_way_back_replaces_the_least_rtt_at_once() {
    let mut bbr = bbr();
    round(&mut bbr, 100, 100_000, false);
    assert_eq!(bbr.min_rtt, Some(Duration::from_millis(50)));
    let mut event = ack(300, 150, PACKET);
    let longer = Duration::from_millis(150);
    event.rtt.latest = longer;
    bbr.on_ack(&event, &[]);
    assert_eq!(bbr.min_rtt, Some(Duration::from_millis(50)), "a queue");
    event.rtt.min = longer;
    bbr.on_ack(&event, &[]);
    assert_eq!(bbr.min_rtt, Some(longer));
}

#[test]
fn startup_ends_after_three_rounds_without_growth() {
    let mut bbr = bbr();
    for (i, rate) in [100_000, 200_000, 400_000, 420_000, 430_000]
        .into_iter()
        .enumerate()
    {
        round(&mut bbr, 100 + 50 * i as u64, rate, false);
        assert_eq!(bbr.state, State::Startup, "round {i}");
    }
    round(&mut bbr, 400, 430_000, false);
    assert_ne!(bbr.state, State::Startup);
    assert_eq!(bbr.max_bw(), 430_000);
}

#[test]
fn an_application_limited_sender_does_not_end_startup() {
    let mut bbr = bbr();
    for i in 0..50 {
        round(&mut bbr, 100 + 50 * i, 100_000, true);
    }
    assert_eq!(bbr.state, State::Startup);
    round(&mut bbr, 3000, 50_000, true);
    assert_eq!(
        bbr.max_bw(),
        100_000,
        "a low sample of a limited sender says nothing"
    );
}

#[test]
fn loss_bounds_the_model_until_the_next_probe() {
    let mut bbr = bbr();
    for i in 0..12 {
        round(&mut bbr, 100 + 50 * i, 400_000, false);
    }
    assert!(bbr.in_probe_bw(), "{:?}", bbr.state);
    bbr.state = State::Cruise;
    bbr.is_probe_sample = false;
    bbr.on_congestion(&loss(701, 690, 2 * PACKET), &[]);
    assert!(bbr.in_recovery());
    round(&mut bbr, 760, 200_000, false);
    assert!((280_000..=400_000).contains(&bbr.bw), "{}", bbr.bw);
    bbr.start_refill();
    round(&mut bbr, 810, 200_000, false);
    assert_eq!(bbr.bw, 400_000);
}

#[test]
fn a_probe_that_loses_too_much_sets_the_safe_limit() {
    let mut bbr = bbr();
    for i in 0..12 {
        round(&mut bbr, 100 + 50 * i, 400_000, false);
    }
    bbr.state = State::Up;
    bbr.is_probe_sample = true;
    let event = CongestionEvent {
        sent_in_flight: 30_000,
        ..loss(800, 790, 3 * PACKET)
    };
    bbr.on_congestion(&event, &[]);
    assert_eq!(bbr.state, State::Down);
    assert!(
        (20_000..30_000).contains(&bbr.inflight_longterm),
        "{}",
        bbr.inflight_longterm
    );
    for _ in 0..3 {
        bbr.on_spurious_loss(&spurious(810, 800, PACKET));
    }
    assert_eq!(
        bbr.inflight_longterm,
        u64::MAX,
        "nothing was lost after all"
    );
    assert_eq!(bbr.state, State::Refill);
}

#[test]
fn the_rtt_is_probed_every_five_seconds_and_the_window_returns() {
    let mut transfer = on(Link::new(1_250_000, 40, 2.0));
    transfer.run(4 * SECOND);
    let mut lowest = u64::MAX;
    for _ in 0..400 {
        transfer.run(Duration::from_millis(5));
        lowest = lowest.min(transfer.controller.window());
    }
    let bdp = transfer.link.bdp();
    assert!(lowest <= bdp * 6 / 10, "{lowest} of {bdp}");
    assert!(
        transfer.controller.window() > bdp,
        "{}",
        transfer.controller.window()
    );
}

#[test]
fn a_link_that_loses_at_random_is_not_probed_while_the_rtt_is_near_the_lowest() {
    for (percent, rtt_ms, expected) in [(20.0, 54, false), (20.0, 57, true), (0.0, 54, true)] {
        let mut bbr = told(percent);
        let mut probed = false;
        for now_ms in (100..12_000).step_by(10) {
            let mut event = ack(now_ms, now_ms - 5, PACKET);
            event.rtt.latest = Duration::from_millis(if now_ms < 4000 { 50 } else { rtt_ms });
            bbr.on_ack(&event, &[]);
            probed |= bbr.is_probing_rtt();
        }
        assert_eq!(probed, expected, "{percent} % and {rtt_ms} ms");
    }
}

#[test]
fn a_restart_begins_with_two_packets_and_finds_the_rate_again() {
    let mut transfer = on(Link::new(1_250_000, 40, 2.0));
    transfer.run(5 * SECOND);
    transfer.controller.restart(transfer.now);
    assert_eq!(transfer.controller.window(), 2 * PACKET);
    transfer.run(2 * SECOND);
    let (share, _) = transfer.run(2 * SECOND);
    assert!(share > 0.9, "{share}");
}

#[test]
fn the_first_rtt_sets_the_first_pacing_rate() {
    let mut bbr = bbr();
    assert!(
        bbr.pacing_rate > 30_000_000,
        "as if the RTT were 1 ms: {}",
        bbr.pacing_rate
    );
    bbr.on_ack(&ack(60, 10, PACKET), &[]);
    let expected = 2.77 * 12_000.0 / 0.05;
    assert!(
        (bbr.pacing_rate as f64 - expected).abs() < 2.0,
        "{}",
        bbr.pacing_rate
    );
}
