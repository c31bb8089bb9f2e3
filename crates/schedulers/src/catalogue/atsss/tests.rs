//! One table row per mode, and the limits.

use super::*;
use crate::tests::{at, built, copy, fresh, full, send};
use anabranch_proto::path::{PathSet, PathState};
use anabranch_proto::wire::PathId;

fn path(id: u32, rtt_ms: u64, loss: f32) -> PathView {
    PathView {
        smoothed_rtt: Duration::from_millis(rtt_ms),
        loss,
        ..PathView::new(id)
    }
}

fn busy(id: u32, rtt_ms: u64) -> PathView {
    PathView {
        smoothed_rtt: Duration::from_millis(rtt_ms),
        ..full(id)
    }
}

fn shares(scheduler: &mut dyn Scheduler, paths: &[PathView], count: usize) -> Vec<usize> {
    let mut sent = vec![0; paths.len()];
    for _ in 0..count {
        if let Decision::Send(id) = scheduler.select(&fresh(paths)).decision {
            sent[id.0 as usize] += 1;
        }
    }
    sent
}

#[test]
fn of_paths_of_the_same_priority_one_stays_active() {
    let mut steering = built("atsss:mode=active-standby");
    let mut ask = |a, b| steering.select(&fresh(&[a, b])).decision;
    let slow = path(0, 20, 0.0);
    let active = Decision::Send(PathId(1));
    assert_eq!(ask(slow, path(1, 10, 0.0)), active);
    assert_eq!(ask(slow, path(1, 30, 0.0)), active, "it stays");
    assert!(matches!(ask(slow, busy(1, 30)), Decision::Hold { .. }));
}

#[test]
fn a_standby_is_used_only_if_the_active_path_does_not_answer() {
    let mut steering = built("atsss:mode=active-standby,max-loss=1");
    let prefer = |path: PathView| PathView {
        priority: 1,
        ..path
    };
    let standby = path(1, 20, 0.0);
    let choice = steering.select(&fresh(&[prefer(path(0, 50, 0.5)), standby]));
    assert_eq!(
        choice,
        send(0, Reason::Priority),
        "limits do not count here"
    );
    let choice = steering.select(&fresh(&[prefer(busy(0, 50)), standby]));
    assert_eq!(choice, Choice::hold_until(at(50), Reason::WaitForBetter));
    let silent = PathView {
        state: PathState::Doubtful,
        ..prefer(path(0, 50, 0.0))
    };
    let choice = steering.select(&fresh(&[silent, standby]));
    assert_eq!(choice, send(1, Reason::OnlyPath));
}

#[test]
fn the_smallest_delay_is_the_forward_one_where_it_is_known() {
    let mut steering = built("atsss");
    let mut paths = [path(0, 60, 0.0), path(1, 210, 0.0)];
    assert_eq!(steering.select(&fresh(&paths)), send(0, Reason::LowestRtt));
    paths[0].forward_delay_us = Some(50_000);
    assert_eq!(steering.select(&fresh(&paths)), send(0, Reason::LowestRtt));
    paths[1].forward_delay_us = Some(10_000);
    assert_eq!(
        steering.select(&fresh(&paths)),
        send(1, Reason::EarliestArrival)
    );
}

#[test]
fn load_is_balanced_by_shares_until_a_path_exceeds_a_limit() {
    let mut steering = built("atsss:mode=load-balancing,weights=80/20,max-loss=1");
    let mut ask = |loss| shares(&mut *steering, &[path(0, 20, loss), path(1, 20, 0.0)], 100);
    assert_eq!(ask(0.0), [80, 20]);
    assert_eq!(ask(0.01), [80, 20], "the limit itself is allowed");
    assert_eq!(ask(0.02), [0, 100]);
    assert_eq!(
        ask(0.009),
        [0, 100],
        "a fifth below the limit, and not before"
    );
    let after = ask(0.0079);
    assert!(after[0] >= 79, "{after:?}");
}

#[test]
fn paths_that_all_exceed_a_limit_are_all_used() {
    let mut steering = built("atsss:mode=load-balancing,weights=80/20,max-rtt-ms=10");
    let paths = [path(0, 20, 0.0), path(1, 20, 0.0)];
    assert_eq!(shares(&mut *steering, &paths, 100), [80, 20]);
}

#[test]
fn autonomous_shares_follow_what_paths_deliver() {
    let mut steering = built("atsss:mode=load-balancing,autonomous");
    let mut paths = [path(0, 20, 0.0), path(1, 20, 0.0)];
    (paths[0].delivery_rate, paths[1].delivery_rate) = (3_000, 1_000);
    assert_eq!(shares(&mut *steering, &paths, 400), [300, 100]);
    paths[1].delivery_rate = 3_000;
    let equal = shares(&mut *steering, &paths, 400);
    assert!(equal[0].abs_diff(equal[1]) <= 2, "{equal:?}");
}

#[test]
fn the_overflow_of_the_high_priority_goes_to_the_low_one() {
    let mut steering = built("atsss:mode=priority-based,max-rtt-ms=100");
    let high = |path: PathView| PathView {
        priority: 1,
        ..path
    };
    let low = path(1, 20, 0.0);
    let mut ask = |first| steering.select(&fresh(&[high(first), low]));
    assert_eq!(ask(path(0, 50, 0.0)), send(0, Reason::Priority));
    assert_eq!(ask(busy(0, 50)), send(1, Reason::Spill));
    assert_eq!(
        ask(path(0, 101, 0.0)),
        send(1, Reason::OnlyPath),
        "congested"
    );
    assert_eq!(ask(path(0, 81, 0.0)), send(1, Reason::OnlyPath));
    assert_eq!(ask(path(0, 79, 0.0)), send(0, Reason::Priority));
}

#[test]
fn redundancy_with_limits_is_for_when_no_path_keeps_them() {
    let mut steering = built("atsss:mode=redundant,max-loss=1");
    let with_copy = |path: PathView| PathView {
        copyable: true,
        ..path
    };
    let mut ask = |a, b| {
        let paths = [path(0, 20, a), with_copy(path(1, 20, b))];
        steering.select(&fresh(&paths))
    };
    assert_eq!(ask(0.0, 0.0), send(0, Reason::LowestRtt));
    assert_eq!(ask(0.02, 0.0), send(1, Reason::OnlyPath));
    assert_eq!(ask(0.02, 0.02).decision, send(0, Reason::Turn).decision);
    assert_eq!(ask(0.02, 0.02), copy(1));
    let mut always = built("atsss:mode=redundant");
    assert!(always.wants().copies);
    let paths = [busy(0, 20), with_copy(path(1, 20, 0.0))];
    assert_eq!(always.select(&fresh(&paths)), copy(1));
}

#[test]
fn with_a_primary_path_only_critical_units_are_copied() {
    let mut steering = built("atsss:mode=redundant,primary");
    assert!(!steering.wants().copies);
    let paths = [path(0, 20, 0.0), path(1, 50, 0.0)];
    assert_eq!(steering.select(&fresh(&paths)), send(0, Reason::Priority));
    let mut view = fresh(&paths);
    view.unit.critical = true;
    let both = PathSet::from_iter([PathId(0), PathId(1)]);
    assert_eq!(steering.select(&view).decision, Decision::Duplicate(both));
}

#[test]
fn a_mode_nobody_knows_is_refused() {
    let spec = "atsss:mode=fastest".parse().unwrap();
    let message = crate::builtin().build(&spec).unwrap_err().to_string();
    assert!(
        message.contains("active-standby or smallest-delay"),
        "{message}"
    );
}
