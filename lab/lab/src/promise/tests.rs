//! Worlds, bars and sums, and a few worlds measured from end to end.

use super::*;
use crate::plan::{Changes, Plan};
use crate::results::{Outcome, json_lines};
use crate::scenario::Document;

fn measured(all: f64, best: f64) -> Measured {
    Measured {
        seed: 1,
        figure: Figure::Completion,
        conditions: vec![Condition::Plain],
        links: 2,
        all,
        best,
        best_link: "a",
        round_trip: 0.05,
        oracle: Some(best / 2.0),
        twice: 0.0,
    }
}

#[test]
fn datagrams_that_arrive_late_count_once() {
    let outcome = Outcome {
        units: 100,
        sent_units: Some(100),
        late_units: 100,
        ..Outcome::default()
    };
    assert!(measure::figure(Figure::Late, &outcome) >= 1.0);
}

#[test]
fn who_is_as_bad_as_the_best_link_gains_and_loses_nothing() {
    let is_one = |gain: f64| gain.total_cmp(&1.0).is_eq();
    assert!(is_one(measured(f64::INFINITY, f64::INFINITY).gain()));
    let mut late = measured(1.0, 1.0);
    late.figure = Figure::Late;
    assert!(is_one(late.gain()));
    assert!(!late.breaks(1.02));
}

#[test]
fn every_world_is_a_scenario_that_can_be_read_again() {
    for seed in 0..300 {
        for plain in [false, true] {
            let world = World::draw(seed, plain);
            let text = world.scenario("min-rtt", Some("bbr"), 100.0);
            let document = Document::parse("world.toml", &text).unwrap();
            let plan = Plan::make(&document, &Changes::default());
            let plan = plan.unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(plan.runs.len(), 1 + world.links(), "all, and each alone");
            assert_eq!(
                text,
                World::draw(seed, plain).scenario("min-rtt", Some("bbr"), 100.0)
            );
        }
    }
}

#[test]
fn a_few_hundred_worlds_have_every_kind_of_work_and_every_condition() {
    let worlds: Vec<World> = (0..300).map(|seed| World::draw(seed, false)).collect();
    for condition in Condition::ALL {
        let with = |world: &&World| world.conditions.contains(&condition);
        let count = worlds.iter().filter(with).count();
        assert!((15..250).contains(&count), "{condition:?}: {count}");
    }
    let files = worlds
        .iter()
        .filter(|world| matches!(world.work, Work::File(_)));
    assert!((200..260).contains(&files.count()));
    for links in 2..=4 {
        assert!(worlds.iter().any(|world| world.links() == links));
    }
    let plain = (0..300).map(|seed| World::draw(seed, true));
    assert!(
        plain
            .into_iter()
            .all(|world| world.conditions == [Condition::Plain])
    );
}

#[test]
fn a_bar_is_broken_by_more_than_its_factor_and_a_round_trip() {
    assert!(!measured(1.06, 1.0).breaks(1.02));
    assert!(measured(1.08, 1.0).breaks(1.02));
    assert!(!measured(1.08, 1.0).breaks(1.10));
    assert!(measured(f64::INFINITY, 1.0).breaks(1.10));
    let late = |all, best| Measured {
        figure: Figure::Late,
        ..measured(all, best)
    };
    assert!(!late(0.02, 0.011).breaks(1.02));
    assert!(late(0.03, 0.011).breaks(1.02));
    assert!(!late(0.03, 0.011).breaks(1.10));
}

#[test]
fn worlds_are_summed_up_by_what_was_sent_and_how_long_it_took() {
    let all = [measured(1.0, 0.2), measured(1.0, 2.0), measured(3.0, 2.0)];
    let summaries = summarise(&all);
    let of = |class: &str| summaries.iter().find(|one| one.class == class);
    let total = of("all").unwrap();
    assert_eq!(
        (total.worlds, total.bars[0].broken, total.bars[1].broken),
        (3, 2, 2)
    );
    assert!((total.gain.least - 0.2).abs() < 1e-9 && (total.gain.median - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!(of("files above 1 s").unwrap().worlds, 2);
    let short = of("files below 0.3 s").unwrap().of_oracle.unwrap();
    assert!((short.median - 0.1).abs() < 1e-9);
    assert!(of("requests").is_none());
}

#[test]
fn a_world_is_a_row_in_which_what_never_ended_is_nothing() {
    let mut lines = Vec::new();
    json_lines(&table(&[measured(f64::INFINITY, 1.0)]), &mut lines).unwrap();
    let row: serde_json::Value = serde_json::from_slice(&lines).unwrap();
    assert_eq!(row["all"], serde_json::Value::Null);
    assert_eq!(
        (&row["figure"], &row["conditions"]),
        (&"completion_s".into(), &"plain".into())
    );
    assert_eq!(
        (&row["over_1_02"], &row["over_1_10"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn a_world_is_measured_with_all_links_with_each_alone_and_against_the_oracle() {
    let (promise, stop) = (
        Promise {
            scheduler: "tail+min-rtt".into(),
            congestion: None,
            // Links that lose little: the oracle is compared with a run of other luck.
            first: 11,
            worlds: 6,
            plain: true,
            control: false,
            draws: 3,
            jobs: 1,
        },
        AtomicBool::new(false),
    );
    let names = Names::default();
    let run = |promise: &Promise| promise.run(&names, &stop, &|_| ()).unwrap();
    let once = run(&promise);
    assert_eq!(
        once,
        run(&Promise {
            jobs: 2,
            ..promise.clone()
        })
    );
    for one in &once {
        let oracle = one.oracle.unwrap();
        assert!(one.all.is_finite() && one.best.is_finite(), "{one:?}");
        assert!(oracle <= one.best * 1.01 + 0.3, "{one:?}");
        assert!(one.of_oracle().unwrap() < 1.1, "{one:?}");
    }
    let unknown = Promise {
        scheduler: "min-rt".into(),
        ..promise
    };
    assert!(
        unknown
            .run(&names, &stop, &|_| ())
            .unwrap_err()
            .contains("min-rtt")
    );
}

/// Twelve plain worlds by min-RTT.
fn twelve_worlds(control: bool, draws: u32) -> Vec<Measured> {
    let promise = Promise {
        scheduler: "min-rtt".into(),
        congestion: None,
        first: 1,
        worlds: 12,
        plain: true,
        control,
        draws,
        jobs: 0,
    };
    promise
        .run(&Names::default(), &AtomicBool::new(false), &|_| {})
        .unwrap()
}

#[test]
fn the_control_has_the_best_link_alone_twice_with_other_luck() {
    let (all, control) = (twelve_worlds(false, 1), twelve_worlds(true, 1));
    for (all, control) in all.iter().zip(&control) {
        assert_eq!((all.best, all.best_link), (control.best, control.best_link));
        assert!(control.twice.abs() < 1e-9, "one link has nothing to repeat");
    }
    // Links without loss by chance are the same each time.
    let is_same = |one: &&Measured| (one.all - one.best).abs() < 1e-9;
    let same = control.iter().filter(is_same).count();
    assert!(same > 0 && same < control.len(), "{same}");
}

#[test]
fn of_several_draws_the_median_counts_and_links_without_luck_have_the_same_each_time() {
    let (once, thrice) = (twelve_worlds(false, 1), twelve_worlds(false, 3));
    let same = once.iter().zip(&thrice).filter(|(a, b)| a == b).count();
    assert!(same > 0 && same < once.len(), "{same}");
    // Two of three draws are on either side of the median, so it cannot be the least of them in all
    // worlds with luck, nor the most.
    let faster = once.iter().zip(&thrice).filter(|(a, b)| a.best > b.best);
    let slower = once.iter().zip(&thrice).filter(|(a, b)| a.best < b.best);
    assert!(faster.count() > 0 && slower.count() > 0);
}
