//! Which path carries lost data again, where that is not the scheduler's choice
//! (docs/mechanisms.md, retransmission policies).

use crate::config::RetransmissionPolicy as Policy;
use crate::rng::Rng;
use crate::sched::{Choice, Decision, PathView, Reason, SendView};
use std::cmp::{Ordering, Reverse};

/// What a policy decides about the retransmission that is next, `None` if the scheduler does.
///
/// `urgent` is true for one packet after a loss, which need not wait for room: the window that the
/// loss just halved may have none for most of a round trip.
pub(super) fn decide(
    policy: Policy,
    view: &SendView<'_>,
    urgent: bool,
    rng: &mut Rng,
) -> Option<Choice> {
    if policy == Policy::Scheduler {
        return None;
    }
    let now = view.now;
    let ready = |path: &&PathView| path.can_send(now) || urgent;
    let origin = view.unit.carried_by.iter().last();
    let same = origin.and_then(|id| view.candidates().find(|path| path.id == id));
    let target = match policy {
        Policy::Same if same.is_some() => same.filter(ready),
        Policy::Scheduler | Policy::Same | Policy::Asap => {
            let count = view.ready().count() as u64;
            let turn = if count > 1 { rng.below(count) } else { 0 };
            let any = view.ready().nth(turn as usize);
            any.or_else(|| view.candidates().find(ready))
        }
        Policy::LargestWindow => best(view, ready, |a, b| {
            a.congestion_window.cmp(&b.congestion_window)
        }),
        Policy::LargestThreshold => best(view, ready, |a, b| a.ssthresh.cmp(&b.ssthresh)),
        Policy::LowestLoss => best(view, ready, |a, b| b.loss.total_cmp(&a.loss)),
    };
    Some(match target {
        Some(path) => Choice {
            decision: Decision::Send(path.id),
            reason: Reason::Other("retransmission_policy"),
        },
        None => view.no_room(),
    })
}

/// The greatest of the candidates that are ready; the lowest ID of equal ones.
fn best<'a>(
    view: &SendView<'a>,
    ready: impl Fn(&&PathView) -> bool,
    order: impl Fn(&PathView, &PathView) -> Ordering,
) -> Option<&'a PathView> {
    view.candidates()
        .filter(|path| ready(path))
        .max_by(|a, b| order(a, b).then(Reverse(a.id).cmp(&Reverse(b.id))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathState;
    use crate::sched::{Unit, UnitKind};
    use crate::time::Instant;
    use crate::wire::PathId;

    const ALL: [Policy; 5] = [
        Policy::Same,
        Policy::Asap,
        Policy::LargestWindow,
        Policy::LargestThreshold,
        Policy::LowestLoss,
    ];

    /// Two paths: windows of 10 and 20 packets, thresholds of 16 and 8, losses of 1 and 3 %.
    fn paths() -> [PathView; 2] {
        let path = |id, window: u64, threshold: u64, loss| PathView {
            congestion_window: window * 1200,
            ssthresh: threshold * 1200,
            loss,
            ..PathView::new(id)
        };
        [path(0, 10, 16, 0.01), path(1, 20, 8, 0.03)]
    }

    fn ask(policy: Policy, paths: &[PathView], origin: u32, urgent: bool) -> Option<u32> {
        let view = SendView {
            now: Instant::from_nanos(1),
            paths,
            unit: Unit {
                kind: UnitKind::Retransmission,
                bytes: 1200,
                carried_by: [PathId(origin)].into_iter().collect(),
                ..Unit::default()
            },
            ..SendView::default()
        };
        let mut rng = Rng::from_seed([3; 32]);
        let choice = decide(policy, &view, urgent, &mut rng).expect("a policy decides");
        match choice.decision {
            Decision::Send(path) => Some(path.0),
            _ => None,
        }
    }

    #[test]
    fn each_policy_prefers_what_its_name_says() {
        let paths = paths();
        assert_eq!(ask(Policy::LargestWindow, &paths, 0, false), Some(1));
        assert_eq!(ask(Policy::LargestThreshold, &paths, 1, false), Some(0));
        assert_eq!(ask(Policy::LowestLoss, &paths, 1, false), Some(0));
        for origin in 0..2 {
            assert_eq!(ask(Policy::Same, &paths, origin, false), Some(origin));
        }
        assert!(ask(Policy::Asap, &paths, 0, false).is_some());
        let equal = [PathView::new(0), PathView::new(1)];
        assert_eq!(ask(Policy::LargestWindow, &equal, 1, false), Some(0));
    }

    #[test]
    fn a_path_without_room_is_passed_over_but_for_one_packet_after_a_loss() {
        let mut paths = paths();
        paths[1].bytes_in_flight = paths[1].congestion_window;
        assert_eq!(ask(Policy::LargestWindow, &paths, 1, false), Some(0));
        assert_eq!(ask(Policy::LargestWindow, &paths, 1, true), Some(1));
        assert_eq!(ask(Policy::Same, &paths, 1, false), None, "it waits");
        assert_eq!(ask(Policy::Same, &paths, 1, true), Some(1));
        assert_eq!(ask(Policy::Asap, &paths, 1, true), Some(0));
        paths[0].bytes_in_flight = paths[0].congestion_window;
        assert_eq!(ask(Policy::Asap, &paths, 1, false), None);
        assert_eq!(ask(Policy::Asap, &paths, 1, true), Some(0));
    }

    #[test]
    fn no_policy_chooses_a_path_that_does_not_answer_while_another_does() {
        for policy in ALL {
            for dead in 0..2 {
                let mut paths = paths();
                paths[dead].state = PathState::Doubtful;
                let chosen = ask(policy, &paths, dead as u32, true);
                assert_eq!(chosen, Some(1 - dead as u32), "{policy:?}");
            }
        }
    }
}
