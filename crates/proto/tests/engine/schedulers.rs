//! What the engine does with any scheduler's answers, and what its controllers achieve. The
//! catalogue is tested by the crate that has it.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::congestion;
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, Reason, Scheduler, SchedulerFactory, SendView, Wants,
};
use anabranch_proto::wire::{Dir, PathId};
use bytes::Bytes;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn equal() -> Vec<Way> {
    let way = |index| Way::new(index).rate(20 * MBIT).queue_ms(50);
    vec![way(1), way(2)]
}

/// Answers nonsense in turn.
#[derive(Debug)]
struct Fool {
    answers: fn(&SendView<'_>, u64) -> Decision,
    asked: u64,
}

impl Scheduler for Fool {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.asked += 1;
        Choice {
            decision: (self.answers)(view, self.asked),
            reason: Reason::Other("foolish"),
        }
    }

    fn wants(&self) -> Wants {
        Wants::COPIES
    }
}

#[test]
fn a_foolish_scheduler_makes_a_transfer_slow_but_never_wrong() {
    type Answers = fn(&SendView<'_>, u64) -> Decision;
    let unknown: Answers = |_, _| Decision::Send(PathId(77));
    let one: Answers = |_, _| Decision::Send(PathId(1));
    let never: Answers = |_, _| Decision::Hold { until: None };
    let past: Answers = |view, _| Decision::Hold {
        until: Some(view.now),
    };
    let empty: Answers = |_, _| Decision::Duplicate(PathSet::EMPTY);
    let skip: Answers = |_, asked| Decision::SendAt {
        path: PathId((asked % 2) as u32),
        skip: asked * 1000,
    };
    let far: Answers = |_, _| Decision::SendAt {
        path: PathId(0),
        skip: u64::MAX,
    };
    let copies: Answers = |_, asked| Decision::Copy(PathId((asked % 3) as u32));
    let mixed: Answers = |view, asked| match asked % 7 {
        0 => Decision::Send(PathId(9)),
        1 => Decision::Copy(PathId(1)),
        2 => Decision::Duplicate(view.paths.iter().map(|path| path.id).collect()),
        3 => Decision::SendAt {
            path: PathId(0),
            skip: 4000,
        },
        4 => Decision::Hold { until: None },
        5 => Decision::Duplicate([PathId(1), PathId(50)].into_iter().collect()),
        _ => Decision::Send(PathId(1)),
    };
    let fools = [
        ("an unknown path", unknown),
        ("always the same path", one),
        ("never anything", never),
        ("a hold until now", past),
        ("copies on no path", empty),
        ("skips", skip),
        ("a skip past the end", far),
        ("copies only", copies),
        ("alternating nonsense", mixed),
    ];
    for (name, answers) in fools {
        let scheduler =
            SchedulerFactory::from_fn(name, move || Box::new(Fool { answers, asked: 0 }));
        let config = TransportConfig {
            scheduler,
            ..TransportConfig::default()
        };
        let mut pair = Pair::connected(equal(), config);
        let took = pair.transfer(true, 100_000, LIMIT);
        println!("{name}: {took:?}");
        pair.run_for(Duration::from_secs(1));
        pair.ways[1].set_open(false);
        pair.transfer(true, 20_000, LIMIT);
    }
}

#[test]
fn an_application_that_keeps_writing_does_not_prolong_a_hold() {
    let never = || -> Box<dyn Scheduler> {
        let answers = |_: &SendView<'_>, _| Decision::Hold { until: None };
        Box::new(Fool { answers, asked: 0 })
    };
    let config = TransportConfig {
        scheduler: SchedulerFactory::from_fn("never anything", never),
        ..TransportConfig::default()
    };
    let mut pair = Pair::connected(equal(), config);
    let id = pair.client_conn().open(Dir::Uni).expect("a stream");
    for _ in 0..300 {
        let mut word = Bytes::from_static(b"word");
        let written = pair.client_conn().write(id, &mut word);
        assert_eq!(written.expect("room for a word"), 4);
        pair.run_for(Duration::from_millis(10));
    }
    let got = pair.received.get(&id).map_or(0, Vec::len);
    assert!(got > 600, "{got} of 1200 bytes after 3 s");
}

#[test]
fn every_controller_fills_a_link() {
    let registry = congestion::Registry::builtin();
    for entry in registry.entries() {
        // A constant window fills what it was chosen for.
        let text = match entry.name {
            "constant" => "constant:initial-window=100",
            name => name,
        };
        let spec = text.parse().expect("a specification");
        let config = TransportConfig {
            congestion: registry.factory(&spec).expect("a controller"),
            ..TransportConfig::default()
        };
        let way = Way::new(1).rate(20 * MBIT).delay(20).queue_ms(40);
        let mut pair = Pair::connected(vec![way], config);
        let flow = pair.start(true, 60_000_000);
        pair.run_for(Duration::from_secs(2));
        let before = pair.flows[flow].received;
        pair.run_for(Duration::from_secs(10));
        let rate = (pair.flows[flow].received - before) as f64 / 10.0 / (20.0 * MBIT as f64);
        println!("{}: {:.1} %", entry.name, rate * 100.0);
        assert!(
            rate > 0.9,
            "{} uses {:.1} %\n{}",
            entry.name,
            rate * 100.0,
            pair.report()
        );
    }
}
