//! What a scheduler sees in a running connection, and what it may answer.

use crate::pair::{MBIT, Pair, Way};
use crate::policies::{Ask, all_of};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::sched::{Choice, Decision, MinRtt, Reason, Scheduler, SendView, UnitKind};
use anabranch_proto::streams::DatagramOptions;
use anabranch_proto::wire::{Dir, PathId, StreamId};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn connected() -> Pair {
    let ways = vec![Way::new(1).rate(8 * MBIT), Way::new(2).rate(8 * MBIT)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.run_for(Duration::from_millis(300));
    pair
}

#[test]
fn the_view_shows_pacing_ages_and_windows() {
    let mut pair = connected();
    let seen = Arc::new(Mutex::new((0, false, 0)));
    let inside = Arc::clone(&seen);
    let ask = Ask::new(move |view: &SendView<'_>| {
        let mut seen = inside.lock().expect("no test thread panicked");
        seen.0 = seen.0.max(view.paths[0].pacing_rate);
        let backlog = view.backlog;
        if let Some(at) = backlog.oldest_unacked {
            seen.1 |= view.now.since(at) > Duration::from_millis(15) && backlog.unacked > 0;
        }
        seen.2 = seen.2.max(backlog.send_window);
        assert!(backlog.send_window >= backlog.credit.min(backlog.unacked));
        MinRtt.select(view)
    });
    pair.client_conn().set_scheduler(Box::new(ask));
    pair.transfer(true, 1_000_000, Duration::from_secs(10));
    let seen = *seen.lock().expect("no test thread panicked");
    assert!(seen.0 > 100_000, "pacing rate {}", seen.0);
    assert!(
        seen.1,
        "data stays unacknowledged for a round trip of 20 ms"
    );
    assert!(seen.2 >= 3 << 20, "send window {}", seen.2);
}

#[test]
fn a_named_stream_overtakes_those_before_it() {
    let mut pair = connected();
    let ask = Ask::new(|view: &SendView<'_>| {
        let Some(path) = view.ready().next() else {
            return view.no_room();
        };
        let last = view.streams.iter().max_by_key(|stream| stream.id);
        let decision = match last.filter(|_| view.unit.kind == UnitKind::Fresh) {
            Some(stream) => Decision::SendStream {
                path: path.id,
                stream: stream.id,
            },
            None => Decision::Send(path.id),
        };
        Choice {
            decision,
            reason: Reason::Turn,
        }
    });
    pair.client_conn().set_scheduler(Box::new(ask));
    let flows: Vec<usize> = (0..3).map(|_| pair.start(true, 300_000)).collect();
    pair.finish(flows[0], Duration::from_secs(20));
    let done: Vec<_> = flows.iter().map(|at| pair.flows[*at].done_at).collect();
    assert!(done[2] < done[1] && done[1] < done[0], "{done:?}");
}

#[test]
fn a_stream_that_has_nothing_to_send_cannot_be_named() {
    let mut pair = connected();
    let ask = Ask::new(|view: &SendView<'_>| Choice {
        decision: Decision::SendStream {
            path: PathId::ZERO,
            stream: StreamId(400),
        },
        reason: if view.paths.is_empty() {
            Reason::NoRoom
        } else {
            Reason::Turn
        },
    });
    pair.client_conn().set_scheduler(Box::new(ask));
    // Patience runs out again and again: lowest RTT decides once each time.
    pair.transfer(true, 20_000, Duration::from_secs(20));
    assert!(pair.client_conn().stats().scheduler.holds > 5);
}

#[test]
fn a_datagram_on_two_paths_arrives_twice_and_late_ones_never() {
    let mut pair = connected();
    let ask = Ask::new(|view: &SendView<'_>| {
        let all = all_of(view);
        let is_ours = view.unit.kind == UnitKind::Datagram;
        match view.ready().next() {
            None => view.no_room(),
            Some(path) if !is_ours => Choice::send(path.id, Reason::LowestRtt),
            Some(_) => {
                assert_eq!(view.unit.flow == 3, view.unit.critical);
                Choice {
                    decision: Decision::Duplicate(all),
                    reason: Reason::Redundancy,
                }
            }
        }
    });
    let now = pair.now;
    let client = pair.client_conn();
    client.set_scheduler(Box::new(ask));
    let critical = DatagramOptions {
        flow: 3,
        critical: true,
        ..DatagramOptions::default()
    };
    let late = DatagramOptions {
        deadline: Some(now),
        ..DatagramOptions::default()
    };
    let send = [
        ("twice", critical),
        ("never", late),
        ("once", DatagramOptions::default()),
    ];
    for (text, options) in send {
        let data = Bytes::from_static(text.as_bytes());
        client.send_datagram_with(data, options).expect("space");
    }
    pair.run_for(Duration::from_millis(200));
    let server = pair.server_conn();
    let got: Vec<_> = std::iter::from_fn(|| server.recv_datagram()).collect();
    let count = |text: &str| {
        got.iter()
            .filter(|datagram| datagram.data[..] == *text.as_bytes())
            .count()
    };
    assert_eq!((count("twice"), count("never"), count("once")), (2, 0, 1));
    let stats = pair.client_conn().stats().streams;
    assert_eq!((stats.datagrams_expired, stats.datagrams_copied), (1, 1));
    let id = pair.client_conn().open(Dir::Uni);
    assert!(id.is_some());
}
