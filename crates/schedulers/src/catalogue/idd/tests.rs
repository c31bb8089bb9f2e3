//! The two tables of Alam's outlook, packet by packet.

use super::*;
use crate::catalogue::delivery_delay::DeliveryDelay;
use crate::tests::{at, fresh};
use anabranch_proto::path::PathState;
use anabranch_proto::sched::PathView;
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use std::collections::BTreeMap;

const KB: u64 = 1000;

/// One path of the example: a constant window, a packet per 10 ms, an acknowledgement that takes no
/// time. The next packet is asked for when it can leave, or as soon as the window allows, in which
/// case it waits on the host.
#[derive(Debug, Clone)]
struct Pipe {
    paced: bool,
    delay_ms: u64,
    window: u64,
    /// When each packet in flight arrives, and which one it is.
    in_flight: Vec<(u64, u64)>,
    ready_ms: u64,
}

impl Pipe {
    fn new(delay_ms: u64, window: u64) -> Self {
        Self {
            paced: true,
            delay_ms,
            window,
            in_flight: Vec::new(),
            ready_ms: 0,
        }
    }

    fn view(&self, id: u32) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(self.delay_ms),
            forward_delay_us: Some(self.delay_ms as i64 * 1000 - 123_456),
            congestion_window: self.window * KB,
            bytes_in_flight: self.in_flight.len() as u64 * KB,
            delivery_rate: 100 * KB,
            pacer_ready: at(if self.paced { self.ready_ms } else { 0 }),
            max_datagram_size: KB as u16,
            ..PathView::new(id)
        }
    }
}

/// Sends packets `1..=count` over `pipes` and tells when each arrives.
fn arrivals(scheduler: &mut dyn Scheduler, mut pipes: Vec<Pipe>, count: u64) -> Vec<(u32, u64)> {
    let mut unsent: Vec<u64> = (1..=count).collect();
    let mut arrived: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    for now in (0..).step_by(10) {
        for (id, pipe) in pipes.iter_mut().enumerate() {
            let path = PathId(id as u32);
            while let Some(&(at, number)) = pipe.in_flight.first()
                && at <= now
            {
                pipe.in_flight.remove(0);
                arrived.insert(number, (path.0, at));
                let (bytes, rtt) = (KB, None);
                scheduler.on_event(&PathEvent::Acked { path, bytes, rtt });
            }
        }
        loop {
            let paths: Vec<PathView> = (0..).zip(&pipes).map(|(id, pipe)| pipe.view(id)).collect();
            let mut view = fresh(&paths);
            view.now = at(now);
            view.backlog.unsent = unsent.len() as u64 * KB;
            view.unit.bytes = KB;
            if unsent.is_empty() {
                break;
            }
            let (path, skip) = match scheduler.select(&view).decision {
                Decision::Send(path) => (path, 0),
                Decision::SendAt { path, skip } => (path, skip),
                _ => break,
            };
            let pipe = &mut pipes[path.0 as usize];
            assert!((pipe.in_flight.len() as u64) < pipe.window);
            assert!(pipe.ready_ms <= now || !pipe.paced);
            let number = unsent.remove((skip / KB) as usize);
            let leaves = pipe.ready_ms.max(now);
            pipe.in_flight.push((leaves + pipe.delay_ms, number));
            pipe.ready_ms = leaves + 10;
            scheduler.on_event(&PathEvent::Sent { path, bytes: KB });
        }
        if arrived.len() as u64 == count {
            break;
        }
    }
    arrived.into_values().collect()
}

/// Per packet: how long it is on its way, and how long it waits for packets before it.
fn table(arrivals: &[(u32, u64)], delays: [u64; 2]) -> Vec<(u64, u64)> {
    let mut latest = 0;
    let row = |&(path, at): &(u32, u64)| {
        latest = latest.max(at);
        (delays[path as usize], latest - at)
    };
    arrivals.iter().map(row).collect()
}

fn outlook() -> Vec<Pipe> {
    vec![Pipe::new(50, 3), Pipe::new(100, 5)]
}

#[test]
fn the_outlook_comes_out_without_any_reordering() {
    let arrived = arrivals(&mut IntelligentDelay::default(), outlook(), 12);
    let on = |path: u32| -> Vec<u64> {
        let numbered = (1..).zip(&arrived);
        numbered
            .filter(|(_, row)| row.0 == path)
            .map(|(number, _)| number)
            .collect()
    };
    assert_eq!(on(0), [1, 2, 3, 4, 6, 8, 12]);
    assert_eq!(on(1), [5, 7, 9, 10, 11]);
    let expected = [50, 50, 50, 50, 100, 50, 100, 50, 100, 100, 100, 50];
    assert_eq!(table(&arrived, [50, 100]), expected.map(|delay| (delay, 0)));
    assert_eq!(arrived[11].1, 150);
}

#[test]
fn without_the_intelligence_three_packets_wait() {
    let mut pipes = outlook();
    for pipe in &mut pipes {
        pipe.paced = false;
    }
    let arrived = arrivals(&mut DeliveryDelay, pipes, 12);
    let rows = table(&arrived, [50, 100]);
    assert_eq!(rows[..3], [(50, 0); 3]);
    assert_eq!(rows[3..8], [(100, 0); 5]);
    assert_eq!(rows[8..], [(50, 40), (50, 30), (50, 20), (50, 0)]);
    assert_eq!(arrived[11].1, 150);
}

#[test]
fn many_packets_over_three_paths_arrive_in_order() {
    for windows in [[5, 10, 20], [3, 7, 11], [2, 10, 5], [40, 40, 40]] {
        let pipes = vec![
            Pipe::new(50, windows[0]),
            Pipe::new(100, windows[1]),
            Pipe::new(200, windows[2]),
        ];
        let arrived = arrivals(&mut IntelligentDelay::default(), pipes, 400);
        // The end is cut short: there is nothing left to skip.
        let settled = &arrived[..300];
        let waits = settled
            .windows(2)
            .filter(|pair| pair[1].1 < pair[0].1)
            .count();
        assert_eq!(waits, 0, "windows {windows:?}");
    }
}

fn skips(paths: &[PathView], unsent: u64, credit: u64) -> (u32, u64) {
    let mut view = fresh(paths);
    view.backlog.unsent = unsent;
    view.backlog.credit = credit;
    match IntelligentDelay::default().select(&view).decision {
        Decision::Send(path) => (path.0, 0),
        Decision::SendAt { path, skip } => (path.0, skip),
        other => panic!("a path is open: {other:?}"),
    }
}

/// A path of 10 ms that is paced at a packet per millisecond, and a free one of 50 ms.
fn busy_and_free() -> [PathView; 2] {
    let path = |id, forward_ms: i64| PathView {
        smoothed_rtt: Duration::from_millis(100),
        forward_delay_us: Some(forward_ms * 1000),
        max_datagram_size: 1000,
        congestion_window: 100_000,
        delivery_rate: 1_000_000,
        ..PathView::new(id)
    };
    let busy = PathView {
        pacer_ready: at(1),
        ..path(0, 10)
    };
    [busy, path(1, 50)]
}

#[test]
fn the_skip_is_what_arrives_before() {
    assert_eq!(skips(&busy_and_free(), 1_000_000, u64::MAX), (1, 40_000));
}

#[test]
fn the_end_of_the_data_and_of_the_credit_limit_the_skip() {
    assert_eq!(skips(&busy_and_free(), 11_000, u64::MAX), (1, 10_000));
    assert_eq!(skips(&busy_and_free(), 1000, u64::MAX), (1, 0));
    assert_eq!(skips(&busy_and_free(), 500, u64::MAX), (1, 0));
    assert_eq!(skips(&busy_and_free(), 1_000_000, 60_000), (1, 30_000));
}

#[test]
fn what_was_left_to_a_path_that_fails_is_taken_at_once() {
    let [mut busy, free] = busy_and_free();
    busy.state = PathState::Doubtful;
    assert_eq!(skips(&[busy, free], 1_000_000, u64::MAX), (1, 0));
}

#[test]
fn delays_that_scatter_more_than_they_differ_are_not_relied_on() {
    let [mut busy, free] = busy_and_free();
    busy.forward_jitter_us = 16_000;
    assert_eq!(skips(&[busy, free], 1_000_000, u64::MAX), (1, 40_000));
    busy.forward_jitter_us = 17_000;
    assert_eq!(skips(&[busy, free], 1_000_000, u64::MAX), (1, 0));
}

#[test]
fn retransmissions_and_datagrams_skip_nothing() {
    let paths = busy_and_free();
    for kind in [UnitKind::Retransmission, UnitKind::Datagram] {
        let mut view = fresh(&paths);
        view.now = Instant::ZERO;
        view.unit.kind = kind;
        let decision = IntelligentDelay::default().select(&view).decision;
        assert_eq!(decision, Decision::Send(PathId(1)));
    }
}
