//! Which datagrams go twice, and what is sent again when.

use super::*;
use crate::tests::{at, built, fresh, idle, send};
use anabranch_proto::sched::StreamView;
use anabranch_proto::wire::StreamId;

fn path(id: u32, rtt_ms: u64) -> PathView {
    PathView {
        smoothed_rtt: Duration::from_millis(rtt_ms),
        rttvar: Duration::from_millis(1),
        ..PathView::new(id)
    }
}

/// A free path on which a copy would repeat data sent at `since_ms`.
fn copyable(id: u32, rtt_ms: u64, since_ms: u64) -> PathView {
    PathView {
        copyable: true,
        copyable_since: Some(at(since_ms)),
        ..path(id, rtt_ms)
    }
}

fn on(ids: &[u32]) -> Choice {
    Choice {
        decision: Decision::Duplicate(ids.iter().copied().map(PathId).collect()),
        reason: Reason::Deadline,
    }
}

fn again(id: u32) -> Choice {
    Choice {
        decision: Decision::Copy(PathId(id)),
        reason: Reason::Deadline,
    }
}

/// A critical datagram with so much time left.
fn due(paths: &[PathView], left_ms: u64) -> SendView<'_> {
    let mut view = fresh(paths);
    view.now = at(1000);
    view.unit.kind = UnitKind::Datagram;
    view.unit.deadline = Some(at(1000 + left_ms));
    view.unit.critical = true;
    view
}

fn datagram(paths: &[PathView], left_ms: u64) -> Choice {
    built("deadline-redundant").select(&due(paths, left_ms))
}

fn idle_at(scheduler: &mut dyn Scheduler, paths: &[PathView], ms: u64) -> Choice {
    let mut view = idle(paths);
    view.now = at(ms);
    scheduler.select(&view)
}

fn is_copy(choice: Choice) -> bool {
    matches!(choice.decision, Decision::Copy(_))
}

#[test]
fn the_age_follows_the_lowest_rtt_between_two_limits() {
    for (rtt, age) in [(30, 33), (10, 20), (600, 500)] {
        let paths = [path(0, rtt), copyable(1, rtt, 100)];
        let copied = |ms| is_copy(idle_at(&mut *built("deadline-redundant"), &paths, ms));
        assert!(!copied(100 + age - 1), "RTT {rtt}");
        assert!(copied(100 + age), "RTT {rtt}");
    }
}

#[test]
fn what_was_reinjected_is_not_reinjected_again() {
    let mut scheduler = built("deadline-redundant:budget=1");
    let first = [path(0, 30), copyable(1, 50, 100), copyable(2, 60, 100)];
    assert_eq!(idle_at(&mut *scheduler, &first, 150), again(1));
    let carried = [path(0, 30), path(1, 50), copyable(2, 60, 100)];
    assert!(!is_copy(idle_at(&mut *scheduler, &carried, 151)));
    let newer = [path(0, 30), path(1, 50), copyable(2, 60, 110)];
    assert_eq!(idle_at(&mut *scheduler, &newer, 152), again(2));
}

#[test]
fn reinjection_goes_before_new_data_and_within_its_budget() {
    let paths = [path(0, 30), copyable(1, 50, 100)];
    let mut view = fresh(&paths);
    view.now = at(200);
    assert_eq!(built("deadline-redundant").select(&view), again(1));
    let none = built("deadline-redundant:budget=0").select(&view);
    assert_eq!(none, send(0, Reason::LowestRtt));
    let mut scheduler = built("deadline-redundant");
    let copies = (0..1000)
        .filter(|_| is_copy(scheduler.select(&view)))
        .count();
    assert!((20 + 40..=20 + 55).contains(&copies), "{copies}");
}

#[test]
fn the_gate_opens_and_closes_with_the_urgency_of_streams() {
    let mut scheduler = built("deadline-redundant:gate=10/5,budget=1");
    assert!(scheduler.wants().streams);
    let paths = [path(0, 30), copyable(1, 50, 100)];
    let mut copied = |priority: Option<i32>| {
        let stream = priority.map(|priority| StreamView {
            id: StreamId(0),
            priority,
            class: 0,
            unsent: 1000,
            finished: false,
        });
        let streams: Vec<StreamView> = stream.into_iter().collect();
        let mut view = fresh(&paths);
        view.now = at(200);
        view.streams = &streams;
        is_copy(scheduler.select(&view))
    };
    let asked = [Some(9), Some(10), Some(5), None, Some(4), Some(9)];
    let answers = asked.map(&mut copied);
    assert_eq!(answers, [false, true, true, true, false, false]);
}

#[test]
fn a_datagram_goes_on_as_many_paths_as_its_deadline_needs() {
    let (near, far) = (path(0, 20), path(1, 40));
    assert_eq!(datagram(&[near, far], 100), send(0, Reason::Deadline));
    let lossy = |path| PathView { loss: 0.08, ..path };
    assert_eq!(datagram(&[lossy(near), lossy(far)], 100), on(&[0, 1]));
    // The far path cannot make it: a copy there would be wasted, and one alone is not enough.
    assert_eq!(
        datagram(&[lossy(near), lossy(far)], 15),
        send(0, Reason::Deadline)
    );
    assert_eq!(
        datagram(&[far, near], 1),
        send(0, Reason::Deadline),
        "likely as any"
    );
}

#[test]
fn a_datagram_that_may_not_arrive_twice_goes_by_the_likeliest_path() {
    // The worse of the two has the lower ID.
    let lossy = |id, loss| PathView {
        loss,
        ..path(id, 20)
    };
    let paths = [lossy(0, 0.08), lossy(1, 0.05)];
    assert_eq!(datagram(&paths, 100), on(&[1, 0]));
    let mut view = due(&paths, 100);
    view.unit.critical = false;
    let once = built("deadline-redundant").select(&view);
    assert_eq!(once, send(1, Reason::Deadline));
}

#[test]
fn copies_of_datagrams_keep_to_the_budget() {
    let lossy = |id, loss| PathView {
        loss,
        ..path(id, 20)
    };
    let paths = [lossy(0, 0.08), lossy(1, 0.05)];
    let view = due(&paths, 100);
    let mut scheduler = built("deadline-redundant:budget=0.1");
    let (mut copied, mut single) = (0, 0);
    for _ in 0..1000 {
        match scheduler.select(&view).decision {
            Decision::Duplicate(_) => copied += 1,
            other => {
                assert_eq!(other, Decision::Send(PathId(1)));
                single += 1;
            }
        }
    }
    // A tenth, and the 20 packets of the allowance.
    assert!(
        (100..=121).contains(&copied),
        "{copied} of {}",
        copied + single
    );
}

#[test]
fn a_set_is_as_cheap_as_it_can_be() {
    let costly = |id, rtt| PathView {
        cost: 3,
        ..path(id, rtt)
    };
    assert_eq!(
        datagram(&[costly(0, 20), path(1, 40)], 100),
        send(1, Reason::Deadline)
    );
    // The free path is too lossy to be enough, and with the costly one it is not needed.
    let bad = PathView {
        loss: 0.9,
        ..path(1, 40)
    };
    assert_eq!(
        datagram(&[costly(0, 20), bad], 100),
        send(0, Reason::Deadline)
    );
}

#[test]
fn forward_delays_count_more_than_halves_of_round_trips() {
    let measured = |id, rtt, forward| PathView {
        forward_delay_us: Some(forward),
        forward_jitter_us: 500,
        ..path(id, rtt)
    };
    // 10 there and 200 back, 50 there and 10 back; the clocks differ by an hour.
    let hour = 3_600_000_000;
    let paths = [
        measured(0, 210, hour + 10_000),
        measured(1, 60, hour + 50_000),
    ];
    let view = fresh(&paths);
    let [first, second] = [0, 1].map(|at: usize| Delay::of(&view, &paths[at]).mean);
    assert!((second - first - 40_000.0).abs() < 1e-6);
    assert!((first - 47_500.0).abs() < 1.0, "{first}");
}

#[test]
fn the_normal_distribution_is_close() {
    for (z, share) in [
        (0.0, 0.5),
        (1.0, 0.8413),
        (-1.0, 0.1587),
        (2.326, 0.99),
        (9.0, 1.0),
    ] {
        let found = normal(z);
        assert!((found - share).abs() < 0.003, "{z}: {found}");
    }
}

#[test]
fn a_gate_upside_down_is_refused() {
    let spec = "deadline-redundant:gate=5/10".parse().unwrap();
    let message = crate::builtin().build(&spec).unwrap_err().to_string();
    assert!(message.contains("two priorities ON/OFF"), "{message}");
}
