//! What leaves next and where, in running connections.

use crate::pair::{Dice, MBIT, Pair, Way};
use crate::policies::{Ask, all_of};
use anabranch_proto::config::{Rescue, RetransmissionPolicy, TransportConfig};
use anabranch_proto::path::{PathOptions, Shape};
use anabranch_proto::sched::{
    Choice, Decision, MinRtt, PathEvent, Reason, Scheduler, SendView, UnitKind,
};
use anabranch_proto::streams::{DatagramOptions, SendDatagramError};
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::{Dir, PathId};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const LIMIT: Duration = Duration::from_secs(30);

fn two(config: TransportConfig) -> Pair {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(100);
    Pair::connected(vec![way(1), way(2)], config)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Datagrams on all paths, the rest on the fastest.
fn duplicates_datagrams(view: &SendView<'_>) -> Choice {
    if view.unit.kind == UnitKind::Datagram && view.ready().next().is_some() {
        return Choice {
            decision: Decision::Duplicate(all_of(view)),
            reason: Reason::Redundancy,
        };
    }
    MinRtt.select(view)
}

fn critical() -> DatagramOptions {
    DatagramOptions {
        critical: true,
        ..DatagramOptions::default()
    }
}

/// The lengths of the datagrams that the server got.
fn got(pair: &mut Pair) -> Vec<usize> {
    let server = pair.server_conn();
    std::iter::from_fn(|| server.recv_datagram())
        .map(|datagram| datagram.data.len())
        .collect()
}

#[test]
fn an_empty_critical_datagram_is_copied_once() {
    let mut pair = two(TransportConfig::default());
    let client = pair.client_conn();
    client.set_scheduler(Box::new(Ask::new(duplicates_datagrams)));
    client
        .send_datagram_with(Bytes::new(), critical())
        .expect("space");
    pair.run_for(ms(200));
    assert_eq!(got(&mut pair), [0, 0]);
    assert_eq!(pair.client_conn().stats().streams.datagrams_copied, 1);
}

#[test]
fn every_datagram_of_a_packet_is_copied_whatever_goes_along() {
    let mut pair = two(TransportConfig::default());
    pair.run_for(Duration::from_secs(3));
    let server = pair.server_conn();
    server.set_scheduler(Box::new(Ask::new(|view: &SendView<'_>| {
        Choice::send(B, view.no_room().reason)
    })));
    pair.client_conn()
        .set_scheduler(Box::new(Ask::new(duplicates_datagrams)));
    let room = usize::from(pair.client_conn().path_stats(B).expect("open").mtu) - 16 - 9;
    // Three datagrams that fill a packet more or less, and an acknowledgement owed by the other
    // path, which takes some of the room there.
    for less in 0..24 {
        let word = Bytes::from_static(b"word");
        pair.server_conn().send_datagram(word).expect("space");
        pair.run_for(ms(12));
        let frames = room - less;
        let lengths = [300, 300, frames - 2 * (300 + 3) - 3];
        for length in lengths {
            let data = Bytes::from(vec![7; length]);
            let client = pair.client_conn();
            client.send_datagram_with(data, critical()).expect("space");
        }
        pair.run_for(ms(200));
        let mut twice = [lengths, lengths].concat();
        twice.sort_unstable();
        let mut got = got(&mut pair);
        got.sort_unstable();
        assert_eq!(got, twice, "{less} bytes less");
    }
}

#[test]
fn datagrams_without_end_do_not_keep_a_loss_from_being_repaired() {
    let way = Way::new(1).rate(8 * MBIT).queue_ms(200);
    let mut pair = Pair::connected(vec![way], TransportConfig::default());
    let flow = pair.start(true, 12_000);
    pair.ways[0].drop_every = 3;
    pair.run_for(ms(1));
    pair.ways[0].drop_every = 0;
    let done = pair.run_until(Duration::from_secs(5), |pair| {
        let client = pair.client_conn();
        let length = client.max_datagram_payload().expect("datagrams");
        let data = Bytes::from(vec![7; length]);
        loop {
            match client.send_datagram(data.clone()) {
                Ok(()) => {}
                Err(SendDatagramError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let server = pair.server_conn();
        while server.recv_datagram().is_some() {}
        pair.flows[flow].done_at.is_some()
    });
    assert!(done, "{}", pair.report());
}

#[test]
fn a_scheduler_is_asked_about_datagrams_as_such_while_losses_are_repaired() {
    let mut pair = two(TransportConfig::default());
    // Datagrams belong on the second path, all else on the first.
    let client = pair.client_conn();
    client.set_scheduler(Box::new(Ask::new(|view: &SendView<'_>| {
        let path = if view.unit.kind == UnitKind::Datagram {
            B
        } else {
            A
        };
        match view.ready().find(|ready| ready.id == path) {
            Some(path) => Choice::send(path.id, Reason::Affinity),
            None => view.no_room(),
        }
    })));
    let flow = pair.start(true, 300_000);
    pair.ways[0].loss = 50;
    let mut count = 0;
    let done = pair.run_until(LIMIT, |pair| {
        if count < 500 {
            let data = Bytes::from(vec![7; 1000]);
            pair.client_conn().send_datagram(data).expect("space");
            count += 1;
        }
        pair.flows[flow].done_at.is_some()
    });
    assert!(done, "{}", pair.report());
    pair.run_for(ms(500));
    let server = pair.server_conn();
    let ways: Vec<_> = std::iter::from_fn(|| server.recv_datagram())
        .map(|datagram| datagram.path)
        .collect();
    assert_eq!(ways.len(), count);
    assert!(ways.iter().all(|path| *path == B), "{ways:?}");
}

#[test]
fn copies_on_a_paced_path_wait_for_its_pacer_and_for_nothing_else() {
    let ways = vec![Way::new(1).delay(1000), Way::new(2).delay(200)];
    let mut pair = Pair::new(ways, TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.run_for(Duration::from_secs(5));
    let ask = Ask::copying(|view: &SendView<'_>| {
        let copies = |path: &PathId| view.path(*path).is_some_and(|path| path.copyable);
        match view.unit.kind {
            UnitKind::Idle if copies(&B) => Choice {
                decision: Decision::Copy(B),
                reason: Reason::Redundancy,
            },
            UnitKind::Idle => Choice::hold(Reason::NoRoom),
            _ => Choice::send(A, Reason::OnlyPath),
        }
    });
    let client = pair.client_conn();
    client.set_scheduler(Box::new(ask));
    let shape = Shape::Fixed {
        rate: 100_000,
        burst: Some(2_500),
    };
    let options = PathOptions {
        shape: Some(shape),
        ..PathOptions::default()
    };
    client.set_path_options(B, options).expect("it is open");
    let flow = pair.start(true, 10_000);
    // 100 ms for the copies to leave, 200 ms to arrive; the originals take a second.
    let took = pair.finish(flow, LIMIT);
    assert!(took < ms(500), "{took:?}");
}

#[test]
fn a_chunk_covers_datagrams_too() {
    let config = TransportConfig {
        chunk: Some(3_000),
        ..TransportConfig::default()
    };
    let mut pair = two(config);
    let mut turn = 0;
    let client = pair.client_conn();
    client.set_scheduler(Box::new(Ask::new(move |view: &SendView<'_>| {
        turn += 1;
        Choice::send(PathId(turn % 2), view.no_room().reason)
    })));
    for _ in 0..12 {
        let data = Bytes::from(vec![7; 1000]);
        client.send_datagram(data).expect("space");
    }
    pair.run_for(ms(200));
    let server = pair.server_conn();
    let ways: Vec<_> = std::iter::from_fn(|| server.recv_datagram())
        .map(|datagram| datagram.path)
        .collect();
    let first = ways.iter().filter(|path| **path == A).count();
    assert_eq!((ways.len(), first), (12, 6), "{ways:?}");
}

/// Lowest RTT, and what it was told.
fn listening(pair: &mut Pair) -> Arc<Mutex<Vec<PathEvent>>> {
    let ask = Ask::new(|view: &SendView<'_>| MinRtt.select(view));
    let events = ask.events.clone();
    pair.client_conn().set_scheduler(Box::new(ask));
    events
}

#[test]
fn a_scheduler_hears_what_this_side_prefers() {
    let mut pair = two(TransportConfig::default());
    let events = listening(&mut pair);
    let status = PathStatus::Backup;
    let client = pair.client_conn();
    client.set_path_status(B, status).expect("it is open");
    let told = PathEvent::Status { path: B, status };
    let events = events.lock().expect("no test thread panicked");
    assert!(events.contains(&told), "{events:?}");
}

#[test]
fn a_scheduler_hears_of_a_status_once_and_only_if_data_is_scheduled_by_it() {
    let mut pair = two(TransportConfig::default());
    let events = listening(&mut pair);
    let status = PathStatus::Backup;
    for _ in 0..2 {
        let server = pair.server_conn();
        server.set_path_status(B, status).expect("it is open");
        pair.run_for(ms(200));
    }
    let ours = pair.client_conn().set_path_status(B, PathStatus::Available);
    ours.expect("it is open");
    let events = events.lock().expect("no test thread panicked");
    let is_status = |event: &&PathEvent| matches!(event, PathEvent::Status { .. });
    let told: Vec<_> = events.iter().filter(is_status).collect();
    assert_eq!(told, [&PathEvent::Status { path: B, status }]);
}

#[test]
fn a_scheduler_hears_nothing_of_what_was_not_written() {
    let mut pair = two(TransportConfig::default());
    let events = listening(&mut pair);
    let client = pair.client_conn();
    let id = client.open(Dir::Uni).expect("a stream");
    client.finish(id).expect("it is open");
    let count = || events.lock().expect("no test thread panicked").len();
    let before = count();
    assert!(client.finish(id).is_err());
    let large = Bytes::from(vec![7; 1 << 17]);
    assert!(client.send_datagram(large.clone()).is_err());
    assert!(client.send_datagram_with(large, critical()).is_err());
    assert_eq!(count(), before);
}

/// Answers by dice, sensibly or not.
fn gamble(view: &SendView<'_>, dice: &mut Dice) -> Choice {
    let path = PathId(dice.below(view.paths.len() as u64 + 1) as u32);
    let decision = match dice.below(10) {
        0..4 => Decision::Send(path),
        4 => Decision::Duplicate(all_of(view)),
        5 => Decision::Copy(path),
        6 => Decision::SendAt {
            path,
            skip: dice.below(5_000),
        },
        7 => match view.streams.get(dice.below(4) as usize) {
            Some(stream) => Decision::SendStream {
                path,
                stream: stream.id,
            },
            None => Decision::Send(path),
        },
        8 => Decision::Hold { until: None },
        _ => Decision::Hold {
            until: Some(view.now + ms(dice.below(20))),
        },
    };
    Choice {
        decision,
        reason: Reason::Other("dice"),
    }
}

/// A connection in debug mode checks that each packet holds what it was decided on, or something
/// else that took its room: here it is given all kinds of work, room and answers.
#[test]
fn every_job_yields_a_packet_with_what_it_is_about() {
    for seed in 0..24 {
        let mut dice = Dice(seed);
        let mut config = TransportConfig {
            chunk: dice.pick(&[None, Some(1), Some(700), Some(5_000)]),
            ..TransportConfig::default()
        };
        config.streams.max_copies = dice.pick(&[1, 2, 16]);
        config.mechanisms.rescue = dice.pick(&[Rescue::Off, Rescue::Copy]);
        config.mechanisms.retransmission = dice.pick(&[
            RetransmissionPolicy::Scheduler,
            RetransmissionPolicy::Same,
            RetransmissionPolicy::LargestWindow,
        ]);
        let way = |index| {
            let rate = 4 * u64::from(index) * MBIT;
            Way::new(index)
                .rate(rate)
                .queue_ms(50)
                .delay(15 * u64::from(index))
        };
        let mut pair = Pair::connected((1..4).map(way).collect(), config);
        for way in &mut pair.ways {
            way.loss = dice.below(80);
        }
        let mut answers = Dice(dice.next());
        let ask = Ask::copying(move |view: &SendView<'_>| gamble(view, &mut answers));
        pair.client_conn().set_scheduler(Box::new(ask));
        for _ in 0..60 {
            let client = pair.client_conn();
            for _ in 0..dice.below(6) {
                let length = dice.pick(&[0, 1, 80, 400, 1_000, 1_100]);
                let options = DatagramOptions {
                    critical: dice.below(2) == 0,
                    flow: dice.below(3),
                    ..DatagramOptions::default()
                };
                let data = Bytes::from(vec![7; length]);
                client.send_datagram_with(data, options).expect("space");
            }
            if dice.below(4) == 0 {
                let length = dice.pick(&[0, 30, 900, 20_000]);
                pair.start(true, length);
            }
            if dice.below(8) == 0 {
                pair.server_conn().ping(B).expect("it is open");
            }
            pair.run_for(ms(dice.below(30)));
        }
        let done = pair.run_until(Duration::from_secs(60), |pair| {
            pair.flows.iter().all(|flow| flow.done_at.is_some())
        });
        assert!(done, "seed {seed}\n{}", pair.report());
    }
}
