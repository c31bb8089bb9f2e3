//! Round robin: the paths take turns.
//!
//! Where windows are the limit, skipping full paths shares in proportion to the windows and looks
//! like any other policy; only `hold` gives equal shares, at the pace of the slowest path.

use crate::toolkit::{Patience, leaves};
use anabranch_proto::sched::{
    Choice, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "round-robin",
    summary: "the paths take turns",
    params: &[
        ParamDoc {
            key: "mode",
            default: "skip",
            summary: "what a full path does: skip it, hold for it, or fill each before the next",
        },
        ParamDoc {
            key: "k",
            default: "1",
            summary: "consecutive packets per turn",
        },
    ],
    build: |params| Ok(Box::new(RoundRobin::from_params(params)?)),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Skip,
    Hold,
    Fill,
}

/// Gives each path a quota in turn.
#[derive(Debug)]
pub(crate) struct RoundRobin {
    mode: Mode,
    quota: u32,
    last: Option<PathId>,
    /// What is left of the quota of `last`; never handed to another path.
    left: u32,
    patience: Patience,
}

impl Default for RoundRobin {
    /// One packet per turn; full paths are skipped.
    fn default() -> Self {
        Self {
            mode: Mode::Skip,
            quota: 1,
            last: None,
            left: 0,
            patience: Patience::default(),
        }
    }
}

impl RoundRobin {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let modes = [
            ("skip", Mode::Skip),
            ("hold", Mode::Hold),
            ("fill", Mode::Fill),
        ];
        Ok(Self {
            mode: params.choice("mode", Mode::Skip, &modes)?,
            quota: params.take_in("k", 1, 1..=u32::MAX)?,
            ..Self::default()
        })
    }

    /// Sends on `path`, or holds for it if turns are not skipped.
    fn offer(&mut self, view: &SendView<'_>, path: &PathView, left: u32) -> Option<Choice> {
        if path.can_send(view.now) {
            (self.last, self.left) = (Some(path.id), left.saturating_sub(1));
            self.patience.end();
            return Some(Choice::send(path.id, Reason::Turn));
        }
        (self.mode == Mode::Hold).then(|| self.patience.wait_for(view, path, Reason::WaitForTurn))
    }
}

impl Scheduler for RoundRobin {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        // Strict turns are kept whatever is sent.
        let leaves = leaves(view);
        let strict = self.mode == Mode::Hold;
        let takes = |path: &&PathView| strict || !leaves(path);
        if self.left > 0 || self.mode == Mode::Fill {
            let mut candidates = view.candidates().filter(takes);
            let last = candidates.find(|path| Some(path.id) == self.last);
            if let Some(choice) = last.and_then(|path| self.offer(view, path, self.left)) {
                return choice;
            }
        }
        for path in view.ring(self.last).filter(takes) {
            if let Some(choice) = self.offer(view, path, self.quota) {
                return choice;
            }
        }
        view.no_room()
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event
            && self.last == Some(*path)
        {
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Room, at, built, fresh, full, hold, lost, packets, send};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::time::Duration;

    #[test]
    fn open_paths_take_turns() {
        let mut robin = built("round-robin");
        let room = Room::of(&[9, 9, 9]);
        assert_eq!(packets(&mut *robin, room, 4), "0 1 2 0");
    }

    #[test]
    fn a_full_path_is_skipped() {
        let mut robin = built("round-robin");
        assert_eq!(packets(&mut *robin, Room::of(&[9, 0, 9]), 3), "0 2 0");
    }

    #[test]
    fn a_full_path_is_held_for_where_turns_are_not_skipped() {
        let mut robin = built("round-robin:mode=hold");
        assert_eq!(packets(&mut *robin, Room::of(&[9, 0, 9]), 2), "0 -");
    }

    #[test]
    fn a_turn_lasts_k_packets() {
        let mut robin = built("round-robin:k=2");
        assert_eq!(packets(&mut *robin, Room::of(&[9, 9, 9]), 6), "0 0 1 1 2 2");
    }

    #[test]
    fn each_path_is_filled_before_the_next() {
        let mut robin = built("round-robin:mode=fill");
        assert_eq!(
            packets(&mut *robin, Room::of(&[3, 2, 1]), 7),
            "0 0 0 1 1 2 -"
        );
    }

    #[test]
    fn the_quota_of_an_abandoned_path_is_not_handed_on() {
        let mut robin = built("round-robin:k=3");
        let three = [PathView::new(0), PathView::new(1), PathView::new(2)];
        let mut ask = |paths| match robin.select(&fresh(paths)).decision {
            Decision::Send(id) => id.0,
            other => panic!("all paths are open: {other:?}"),
        };
        assert_eq!(ask(&three), 0);
        let rest: Vec<u32> = (0..4).map(|_| ask(&three[1..])).collect();
        assert_eq!(rest, [1, 1, 1, 2]);
    }

    #[test]
    fn lost_data_is_the_turn_of_a_path_that_has_not_carried_it() {
        for (text, expected) in [("round-robin", 1), ("round-robin:mode=fill", 1)] {
            let mut robin = built(text);
            let paths = [PathView::new(0), PathView::new(1)];
            let again = lost(&paths, &[0]);
            assert_eq!(robin.select(&again), send(expected, Reason::Turn), "{text}");
            let stuffed = [PathView::new(0), full(1)];
            let again = lost(&stuffed, &[0]);
            assert_eq!(robin.select(&again), send(0, Reason::Turn), "{text}");
        }
    }

    #[test]
    fn a_hold_ends_with_one_packet_by_lowest_rtt_when_the_acknowledgement_stays_out() {
        let mut robin = crate::builtin()
            .build(&"round-robin:mode=hold".parse().unwrap())
            .unwrap();
        let (mut fast, mut full) = (PathView::new(0), PathView::new(1));
        fast.smoothed_rtt = Duration::from_millis(10);
        full.smoothed_rtt = Duration::from_millis(50);
        full.rttvar = Duration::from_millis(5);
        full.bytes_in_flight = full.congestion_window;
        let paths = [fast, full];
        let mut ask = |ms| {
            let mut view = fresh(&paths);
            view.now = at(ms);
            robin.select(&view)
        };
        assert_eq!(ask(100), send(0, Reason::Turn));
        let wait = Choice::hold_until(at(170), Reason::WaitForTurn);
        assert_eq!(ask(100), wait);
        assert_eq!(ask(169), wait, "asking again does not prolong the wait");
        assert_eq!(ask(170), send(0, Reason::LowestRtt));
        let again = ask(171);
        assert_eq!(
            again.decision,
            Decision::Hold {
                until: Some(at(241))
            }
        );
    }

    #[test]
    fn nothing_in_flight_is_nothing_to_hold_for() {
        let mut robin = built("round-robin:mode=hold");
        let (open, mut stuck) = (PathView::new(1), PathView::new(0));
        stuck.congestion_window = 100;
        let paths = [stuck, open];
        assert_eq!(robin.select(&fresh(&paths)), send(1, Reason::Spill));
        assert_eq!(robin.select(&fresh(&paths[..1])), hold(Reason::NoRoom));
    }
}
