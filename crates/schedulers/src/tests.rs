//! Helpers for the schedulers' own tests, and the rules every scheduler keeps.

mod names;
mod specs;

use crate::toolkit::carried;
use anabranch_proto::path::PathSet;
use anabranch_proto::path::{MAX_OPEN_PATHS, PathState};
use anabranch_proto::sched::{
    Backlog, Choice, Decision, PathEvent, PathView, Reason, Scheduler, SendView, StreamView, Unit,
    UnitKind, lowest_rtt,
};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::StreamId;
use anabranch_proto::wire::frame::PathStatus;
use proptest::prelude::*;
use specs::ALL;

/// `ms` milliseconds after the epoch.
pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A view at the epoch in which a packet of new data waits, and more after it.
pub(super) fn fresh(paths: &[PathView]) -> SendView<'_> {
    SendView {
        now: Instant::ZERO,
        paths,
        backlog: Backlog {
            unsent: 1_000_000,
            credit: 1_000_000,
            ..Backlog::default()
        },
        unit: Unit {
            kind: UnitKind::Fresh,
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    }
}

/// A view in which nothing waits.
pub(super) fn idle(paths: &[PathView]) -> SendView<'_> {
    let unit = Unit {
        kind: UnitKind::Idle,
        ..Unit::default()
    };
    SendView {
        backlog: Backlog::default(),
        unit,
        ..fresh(paths)
    }
}

/// A view in which a packet waits that was lost on these paths.
pub(super) fn lost<'a>(paths: &'a [PathView], carried_by: &[u32]) -> SendView<'a> {
    let mut view = fresh(paths);
    view.unit.kind = UnitKind::Retransmission;
    view.unit.carried_by = carried_by.iter().copied().map(PathId).collect();
    view
}

/// A path with this smoothed RTT, and room for this many packets of its window of ten.
pub(super) fn path(id: u32, rtt_ms: u64, packets: u64) -> PathView {
    let mut path = PathView::new(id);
    path.smoothed_rtt = Duration::from_millis(rtt_ms);
    path.bytes_in_flight = path.congestion_window - packets * 1200;
    path
}

/// A path with its whole window in flight.
pub(super) fn full(id: u32) -> PathView {
    let path = PathView::new(id);
    PathView {
        bytes_in_flight: path.congestion_window,
        ..path
    }
}

pub(super) fn send(id: u32, reason: Reason) -> Choice {
    Choice::send(PathId(id), reason)
}

pub(super) fn copy(id: u32) -> Choice {
    Choice {
        decision: Decision::Copy(PathId(id)),
        reason: Reason::Redundancy,
    }
}

pub(super) fn hold(reason: Reason) -> Choice {
    Choice::hold(reason)
}

pub(super) fn built(text: &str) -> Box<dyn Scheduler> {
    crate::builtin().build(&text.parse().unwrap()).unwrap()
}

/// Paths with room for so many packets each; a packet sent takes one.
pub(super) struct Room(Vec<PathView>);

impl Room {
    pub(super) fn of(packets: &[u64]) -> Self {
        let path = |(id, packets): (usize, &u64)| PathView {
            congestion_window: 1_200_000,
            bytes_in_flight: 1_200_000 - packets * 1200,
            smoothed_rtt: Duration::from_millis(20),
            ..PathView::new(id as u32)
        };
        Self(packets.iter().enumerate().map(path).collect())
    }
}

/// Where `count` packets go, as path IDs and dashes for holds. Nothing is acknowledged meanwhile.
pub(super) fn packets(scheduler: &mut dyn Scheduler, mut room: Room, count: usize) -> String {
    let mut answers = Vec::new();
    for _ in 0..count {
        let Decision::Send(id) = scheduler.select(&fresh(&room.0)).decision else {
            answers.push("-".to_owned());
            continue;
        };
        room.0[id.0 as usize].bytes_in_flight += 1200;
        answers.push(id.to_string());
    }
    answers.join(" ")
}

/// Those of which the first packet is drawn or follows weights.
fn is_arbitrary(text: &str) -> bool {
    text.contains("1000000") || text.contains("random")
}

/// Those that leave lower classes alone for as long as a higher one answers.
const STAND_BY: [&str; 2] = ["priority", "atsss:mode=active-standby"];

fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..40_000, 1 => Just(0), 1 => Just(u64::MAX)]
}

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        2 => Just(Duration::ZERO),
        6 => (1_u64..500).prop_map(Duration::from_millis),
        1 => Just(Duration::MAX),
    ]
}

fn any_forward() -> impl Strategy<Value = i64> {
    prop_oneof![6 => 0_i64..500_000, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

fn any_rate() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0), 6 => 1_u64..10_000_000, 1 => Just(u64::MAX)]
}

fn any_path() -> impl Strategy<Value = PathView> {
    let names = (
        0_u32..40,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0_u32..4,
    );
    let times = (
        any_duration(),
        any_duration(),
        0_u64..2000,
        prop::option::of(0_u64..1000),
    );
    let sizes = (
        any_size(),
        any_size(),
        prop_oneof![3 => Just(0), 1 => any_size()],
        0_u16..3000,
    );
    let wishes = (any::<u32>(), -2_i32..3, 0_u32..2);
    let measured = (
        prop::option::weighted(0.8, any_forward()),
        prop_oneof![4 => Just(0), 4 => 0_u64..50_000, 1 => Just(u64::MAX)],
        any_rate(),
        any_rate(),
        any_duration(),
        0.0_f32..1.0,
        any::<bool>(),
        any_size(),
    );
    let fields = (names, times, sizes, wishes, measured);
    fields.prop_map(|(names, times, sizes, wishes, measured)| PathView {
        forward_delay_us: measured.0,
        forward_jitter_us: measured.1,
        delivery_rate: measured.2,
        pacing_rate: measured.3,
        min_rtt: measured.4,
        loss: measured.5,
        app_limited: measured.6,
        copyable_since: names.3.then(|| at(times.2)),
        latest_rtt: measured.4,
        ssthresh: measured.7,
        status: if names.1 {
            PathStatus::Available
        } else {
            PathStatus::Backup
        },
        state: if names.2 {
            PathState::Active
        } else {
            PathState::Doubtful
        },
        copyable: names.3,
        pto_count: names.4,
        smoothed_rtt: times.0,
        rttvar: times.1,
        pacer_ready: at(times.2),
        last_ack: times.3.map(at),
        congestion_window: sizes.0,
        bytes_in_flight: sizes.1,
        queued: sizes.2,
        max_datagram_size: sizes.3,
        weight: wishes.0,
        priority: wishes.1,
        cost: wishes.2,
        ..PathView::new(names.0)
    })
}

#[derive(Debug, Clone)]
struct Question {
    now: Instant,
    paths: Vec<PathView>,
    backlog: Backlog,
    unit: Unit,
    streams: Vec<StreamView>,
    event: Option<PathEvent>,
}

impl Question {
    fn view(&self) -> SendView<'_> {
        SendView {
            now: self.now,
            paths: &self.paths,
            backlog: self.backlog,
            unit: self.unit,
            streams: &self.streams,
        }
    }
}

fn any_streams() -> impl Strategy<Value = Vec<StreamView>> {
    let any = (0_u64..9, -2_i32..3, any_size(), any::<bool>());
    let stream = any.prop_map(|(id, priority, unsent, finished)| StreamView {
        id: StreamId(id),
        priority,
        class: 0,
        unsent,
        finished,
    });
    prop::collection::vec(stream, 0..6)
}

prop_compose! {
    fn any_question()(
        now in 0_u64..2000,
        mut paths in prop::collection::vec(any_path(), 0..MAX_OPEN_PATHS),
        (unsent, retransmit, bytes) in (any_size(), any_size(), any_size()),
        carried in prop::collection::vec(0_u32..40, 0..6),
        kind in prop::sample::select(vec![
            UnitKind::Fresh, UnitKind::Fresh, UnitKind::Retransmission, UnitKind::Datagram,
            UnitKind::Idle,
        ]),
        (window, credit, flow, deadline, critical, mut streams) in (
            any_size(), any_size(), 0_u64..4, prop::option::of(0_u64..2000), any::<bool>(),
            any_streams(),
        ),
        event in 0_u32..280,
    ) -> Question {
        streams.sort_by_key(|stream| stream.id);
        streams.dedup_by_key(|stream| stream.id);
        if kind != UnitKind::Fresh {
            streams.clear();
        }
        paths.sort_by_key(|path| path.id);
        paths.dedup_by_key(|path| path.id);
        let carried_by = match kind {
            UnitKind::Retransmission => carried.into_iter().map(PathId).collect(),
            _ => PathSet::EMPTY,
        };
        let path = PathId(event % 40);
        Question {
            now: at(now),
            paths,
            backlog: Backlog {
                unsent,
                retransmit,
                credit,
                send_window: window,
                blocked: kind == UnitKind::Idle && critical,
                ..Backlog::default()
            },
            unit: Unit {
                kind, bytes, class: 0, carried_by, flow, deadline: deadline.map(at), critical,
                max_skew: (flow % 2 == 1).then_some(Duration::from_millis(20)),
            },
            streams,
            event: match event / 40 {
                0 => Some(PathEvent::Abandoned { path }),
                1 => Some(PathEvent::Doubted { path }),
                2 => Some(PathEvent::Recovered { path }),
                3 => Some(PathEvent::Acked { path, bytes, rtt: None }),
                4 => Some(PathEvent::Sent { path, bytes }),
                5 => Some(PathEvent::Lost { path, bytes }),
                _ => None,
            },
        }
    }
}

/// Asks `scheduler` and checks the rules of its answer that any view allows to check.
fn check(text: &str, scheduler: &mut dyn Scheduler, question: &Question) -> Choice {
    if let Some(event) = &question.event {
        scheduler.on_event(event);
    }
    let view = question.view();
    let choice = scheduler.select(&view);
    let keeps = text == "affinity:keep-backup=true" && view.unit.kind == UnitKind::Fresh;
    let is_ready = |id| {
        let kept = |path: &PathView| keeps && path.state == PathState::Active;
        let kept = |path: &PathView| kept(path) && path.can_send(view.now);
        view.ready().any(|path| path.id == id) || view.path(id).is_some_and(kept)
    };
    match choice.decision {
        Decision::Send(id) | Decision::SendStream { path: id, .. } => {
            if let Decision::SendStream { stream, .. } = choice.decision {
                let known = view.streams.iter().any(|known| known.id == stream);
                assert!(scheduler.wants().streams && known, "{text}: {choice:?}");
            }
            assert!(is_ready(id), "{text}: {choice:?} is not ready");
            assert_ne!(view.unit.kind, UnitKind::Idle, "{text}: nothing to send");
        }
        Decision::SendAt { path: id, skip } => {
            assert!(is_ready(id), "{text}: {choice:?} is not ready");
            assert_eq!(view.unit.kind, UnitKind::Fresh, "{text}: {choice:?}");
            let there = (1..view.backlog.unsent).contains(&skip);
            assert!(there, "{text}: nothing is behind {choice:?}");
        }
        Decision::Duplicate(paths) => {
            // Copies of critical datagrams may wait for their paths, if that is asked for.
            let unit = (view.unit.kind, view.unit.critical);
            let may_wait = text.contains("datagrams=copy") && unit == (UnitKind::Datagram, true);
            let waits = |id| may_wait && view.candidates().any(|path| path.id == id);
            assert!(
                paths.len() > 1
                    && paths.iter().any(is_ready)
                    && paths.iter().all(|id| is_ready(id) || waits(id)),
                "{text}: {choice:?}"
            );
        }
        Decision::Copy(id) => {
            let path = view.path(id).expect("a path in view");
            assert!(
                scheduler.wants().idle_copies(view.backlog.blocked) && path.copyable,
                "{text}: {choice:?}"
            );
            assert!(
                path.is_usable() && path.can_send(view.now),
                "{text}: {choice:?}"
            );
        }
        Decision::Hold { until } => check_hold(text, &view, choice, until),
        _ => panic!("{text}: {choice:?} is no answer of ours"),
    }
    choice
}

/// A hold is legal if nothing can be sent, or if something that will happen ends it in time.
fn check_hold(text: &str, view: &SendView<'_>, choice: Choice, until: Option<Instant>) {
    if view.ready().next().is_none() || view.unit.kind == UnitKind::Idle {
        return;
    }
    let until = until.unwrap_or_else(|| panic!("{text}: {choice:?} without an end"));
    // A stream may keep, and wait for, a path that became a backup.
    let keeps = text == "affinity:keep-backup=true";
    let is_option = |path: &&PathView| {
        let active = path.state == PathState::Active;
        keeps && active || view.candidates().any(|other| other.id == path.id)
    };
    let waited_for = view.paths.iter().filter(is_option).filter(|path| {
        !path.can_send(view.now) && (path.bytes_in_flight > 0 || path.pacer_ready > view.now)
    });
    let longest = waited_for.map(|path| {
        let ack = path
            .smoothed_rtt
            .saturating_add(path.rttvar.saturating_mul(4));
        ack.max(Duration::from_millis(10))
    });
    let longest = longest
        .max()
        .unwrap_or_else(|| panic!("{text}: {choice:?} for nothing"));
    assert!(
        until > view.now && until <= view.now + longest,
        "{text}: {choice:?} is too long"
    );
}

proptest! {
    #[test]
    fn what_is_steady_says_the_same_while_its_path_has_room(question in any_question()) {
        let mut question = question;
        question.unit.kind = UnitKind::Fresh;
        for &text in ALL.iter().filter(|text| built(text).is_steady()) {
            let first = built(text).select(&question.view());
            let Decision::Send(id) = first.decision else {
                continue;
            };
            let mut later = question.clone();
            let sent = later.paths.iter_mut().find(|path| path.id == id).unwrap();
            let size = u64::from(sent.max_datagram_size);
            sent.bytes_in_flight = sent.bytes_in_flight.saturating_add(size);
            if sent.can_send(question.now) {
                prop_assert_eq!(built(text).select(&later.view()), first, "{}", text);
            }
        }
    }
}

proptest! {
    #[test]
    fn answers_are_legal_and_repeat(
        mut questions in prop::collection::vec(any_question(), 1..30),
    ) {
        questions.sort_by_key(|question| question.now);
        for &text in ALL {
            let (mut one, mut other) = (built(text), built(text));
            // Only schedulers that copy are asked while nothing waits.
            let asked = |question: &&Question| {
                question.unit.kind != UnitKind::Idle
                    || built(text).wants().idle_copies(question.backlog.blocked)
            };
            for question in questions.iter().filter(asked) {
                let choice = check(text, &mut *one, question);
                prop_assert_eq!(choice, check(text, &mut *other, question), "{}", text);
            }
        }
    }

    #[test]
    fn waiting_to_the_end_of_a_hold_sends(question in any_question()) {
        let mut question = Question { event: None, ..question };
        if question.unit.kind == UnitKind::Idle {
            question.unit.kind = UnitKind::Fresh;
        }
        // The exception waits for as long as the path it prefers answers.
        for &text in ALL.iter().filter(|text| !STAND_BY.contains(text)) {
            let mut scheduler = built(text);
            let start = question.now;
            for _ in 0..40 {
                let can_send = question.view().ready().next().is_some();
                match scheduler.select(&question.view()).decision {
                    Decision::Hold { until: Some(until) } if until < Instant::FAR_FUTURE => {
                        question.now = until;
                    }
                    Decision::Hold { .. } => {
                        let huge = question.paths.iter().any(|path| {
                            path.smoothed_rtt.saturating_add(path.rttvar) == Duration::MAX
                        });
                        prop_assert!(!can_send || huge, "{text} never ends");
                        break;
                    }
                    _ => break,
                }
            }
            let ready = question.view().ready().next().is_some();
            let last = scheduler.select(&question.view()).decision;
            prop_assert!(!ready || !matches!(last, Decision::Hold { until: None }), "{}", text);
            question.now = start;
        }
    }

    #[test]
    fn equal_paths_are_taken_from_the_lowest_id(count in 1_u32..10, first in 0_u32..100) {
        let paths: Vec<PathView> = (first..first + count).map(PathView::new).collect();
        for &text in ALL.iter().filter(|text| !is_arbitrary(text)) {
            let mut lowest = built(text);
            if text.contains("weights") && count > 1 {
                lowest = built(text.split(':').next().expect("a name"));
            }
            match lowest.select(&fresh(&paths)).decision {
                Decision::Send(id) => prop_assert_eq!(id, PathId(first), "{}", text),
                Decision::Duplicate(set) => {
                    prop_assert_eq!(set.iter().next(), Some(PathId(first)), "{}", text);
                }
                other => prop_assert!(false, "{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_unsampled_path_waits_for_all_sampled_ones(question in any_question()) {
        let view = question.view();
        if let Decision::Send(id) = lowest_rtt(&view).decision {
            let path = view.path(id).expect("a path in view");
            // Before that counts what carried the unit before.
            let alike = |other: &&PathView| carried(&view, other) == carried(&view, path);
            let mut rivals = view.ready().filter(alike);
            let sampled = rivals.any(|rival| !rival.smoothed_rtt.is_zero());
            prop_assert!(!path.smoothed_rtt.is_zero() || !sampled);
        }
    }

    #[test]
    fn a_lower_class_stands_by_while_a_higher_one_could_send_again(question in any_question()) {
        let view = question.view();
        let top = view.candidates().map(|path| path.priority).max();
        let busy = |path: &&PathView| Some(path.priority) == top;
        let awaited = view.candidates().filter(busy).all(|path| path.bytes_in_flight > 0);
        if let Decision::Send(id) = built("priority").select(&view).decision
            && awaited
        {
            prop_assert_eq!(view.path(id).map(|path| path.priority), top);
        }
    }
}
