//! That it learns from rewards, gives up where it should, and never holds for ever.

use super::*;
use anabranch_proto::sched::{Backlog, Decision, Unit};
use proptest::prelude::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn path(id: u32, rtt_ms: u64, is_full: bool) -> PathView {
    let path = PathView {
        smoothed_rtt: Duration::from_millis(rtt_ms),
        ..PathView::new(id)
    };
    PathView {
        bytes_in_flight: if is_full { path.congestion_window } else { 0 },
        ..path
    }
}

fn view(paths: &[PathView], ms: u64) -> SendView<'_> {
    SendView {
        now: at(ms),
        paths,
        backlog: Backlog {
            unsent: 12_000,
            send_window: 100_000,
            ..Backlog::default()
        },
        unit: Unit {
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    }
}

fn peekaboo() -> Peekaboo {
    Peekaboo::from_params(&mut Params::default()).expect("its defaults")
}

/// One unit after another meets a full fast path. A wait is rewarded after `waited` ms, a unit on
/// the slow path after `sent` ms. Returns how many of the last hundred decisions were waits.
fn live(scheduler: &mut Peekaboo, waited: u64, sent: u64, units: u64) -> u64 {
    let mut waits = 0;
    let mut ms = 1;
    for unit in 0..units {
        let busy = [path(0, 20, true), path(1, 100, false)];
        let choice = scheduler.select(&view(&busy, ms));
        let (id, took) = match choice.decision {
            Decision::Hold { .. } => (0, waited),
            _ => (1, sent),
        };
        let path_id = PathId(id);
        waits += u64::from(id == 0 && unit + 100 >= units);
        scheduler.on_event(&PathEvent::Sent {
            path: path_id,
            bytes: 1200,
        });
        ms += took;
        scheduler.on_event(&PathEvent::Acked {
            path: path_id,
            bytes: 12_000 + 1200,
            rtt: None,
        });
        let free = [path(0, 20, false), path(1, 100, false)];
        scheduler.select(&view(&free, ms));
    }
    waits
}

#[test]
fn it_learns_to_wait_where_waiting_pays_and_to_send_where_it_does_not() {
    let mut scheduler = peekaboo();
    assert!(live(&mut scheduler, 25, 110, 800) > 80);
    let mut scheduler = peekaboo();
    assert!(live(&mut scheduler, 400, 30, 800) < 20);
}

#[test]
fn what_it_learnt_it_can_unlearn() {
    let mut scheduler = peekaboo();
    assert!(live(&mut scheduler, 25, 110, 800) > 80);
    assert!(live(&mut scheduler, 400, 30, 3000) < 40);
}

#[test]
fn a_learner_that_falls_behind_the_rule_hands_over() {
    let mut scheduler = peekaboo();
    for _ in 0..100 {
        scheduler.learner.add(0.1);
        scheduler.rule.add(0.2);
    }
    let paths = [path(0, 20, true), path(1, 100, false)];
    scheduler.select(&view(&paths, 1));
    scheduler.select(&view(&paths, 29_000));
    assert!(!scheduler.is_disabled());
    scheduler.select(&view(&paths, 30_001));
    assert!(scheduler.is_disabled());
    let mut good = peekaboo();
    for _ in 0..100 {
        good.learner.add(0.19);
        good.rule.add(0.2);
    }
    good.select(&view(&paths, 1));
    good.select(&view(&paths, 30_001));
    assert!(!good.is_disabled());
}

#[test]
fn the_fast_path_is_taken_while_it_is_free() {
    let paths = [path(0, 20, false), path(1, 100, false)];
    let choice = peekaboo().select(&view(&paths, 1));
    assert_eq!(choice, Choice::send(PathId(0), Reason::LowestRtt));
}

#[test]
fn it_stands_among_the_others_under_its_name() {
    let registry = crate::registry();
    for text in [
        "peekaboo",
        "peekaboo:alpha=0.1,forget=0.99",
        "guard+peekaboo",
    ] {
        let spec = text.parse().expect("a specification");
        assert!(registry.build(&spec).is_ok(), "{text}");
    }
    let none = "peekaboo:forget=2".parse().expect("a specification");
    assert!(registry.build(&none).is_err());
}

proptest! {
    #[test]
    fn a_wait_always_ends(
        rtts in prop::array::uniform2(1_u64..500),
        learnt in prop::collection::vec((prop::array::uniform6(0.0_f64..1.0), 0.0_f64..1.0), 0..40),
    ) {
        let mut scheduler = peekaboo();
        for (context, reward) in learnt {
            scheduler.wait.reward(&context, reward);
        }
        let (fast, slow) = (rtts[0].min(rtts[1]), rtts[0].max(rtts[1]));
        let paths = [path(0, fast, true), path(1, slow, false)];
        let mut now = at(1);
        for round in 0.. {
            let asked = SendView { now, ..view(&paths, 1) };
            match scheduler.select(&asked).decision {
                Decision::Hold { until: Some(until) } if until > now => now = until,
                Decision::Hold { until } => prop_assert!(false, "{until:?} at {now:?}"),
                _ => break,
            }
            prop_assert!(round < 3, "it holds for ever");
        }
    }
}
