//! Copies on paths that would be free otherwise.
//!
//! `opportunistic`: new data goes on every other path that is free now and costs nothing.
//! Thin traffic becomes fully redundant; bulk keeps the windows full and is hardly ever copied.
//! `idle`: while nothing new waits, every free path repeats what others carry, faster or not.

use super::when_idle;
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, ParamDoc, PathEvent, Reason, Scheduler, SendView, UnitKind, Wants, Wrapper,
};

pub(crate) const ENTRY: Wrapper = Wrapper {
    name: "copies",
    summary: "copies on paths that are free",
    params: &[ParamDoc {
        key: "mode",
        default: "opportunistic",
        summary: "opportunistic: new data on all free paths; idle: what others carry, at the end",
    }],
    build: |params, inner| {
        let modes = [("opportunistic", Mode::Opportunistic), ("idle", Mode::Idle)];
        let mode = params.choice("mode", Mode::Opportunistic, &modes)?;
        Ok(Box::new(Copies { inner, mode }))
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Opportunistic,
    Idle,
}

#[derive(Debug)]
struct Copies {
    inner: Box<dyn Scheduler>,
    mode: Mode,
}

impl Scheduler for Copies {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        match (self.mode, view.unit.kind) {
            (Mode::Idle, UnitKind::Idle) => {
                when_idle(&mut *self.inner, view, |_| !view.backlog.blocked)
            }
            (Mode::Opportunistic, UnitKind::Fresh) => on_all_free(view, self.inner.select(view)),
            _ => self.inner.select(view),
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.inner.on_event(event);
    }

    fn wants(&self) -> Wants {
        let idle = Wants {
            copies: self.mode == Mode::Idle,
            ..Wants::default()
        };
        self.inner.wants().or(idle)
    }
}

/// Adds every other path that is free now and costs nothing.
fn on_all_free(view: &SendView<'_>, choice: Choice) -> Choice {
    let Decision::Send(first) = choice.decision else {
        return choice;
    };
    let mut all = PathSet::from_iter([first]);
    let free = view.ready().filter(|path| path.is_usable());
    for path in free.filter(|path| path.cost == 0) {
        all.insert(path.id);
    }
    if all.len() == 1 {
        return choice;
    }
    Choice {
        decision: Decision::Duplicate(all),
        reason: Reason::Redundancy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, copy, fresh, hold, idle, path, send};
    use anabranch_proto::sched::PathView;
    use anabranch_proto::wire::PathId;

    #[test]
    fn idle_paths_copy_what_others_carry_if_asked_to() {
        let mut open = path(1, 50, 1);
        open.copyable = true;
        let paths = [path(0, 20, 1), open];
        assert_eq!(
            built("tail+min-rtt").select(&idle(&paths)),
            hold(Reason::NoRoom)
        );
        let mut eager = built("copies+min-rtt:copies.mode=idle");
        assert!(eager.wants().copies);
        assert_eq!(eager.select(&idle(&paths)), copy(1));
        assert_eq!(
            eager.select(&fresh(&paths)),
            send(0, Reason::LowestRtt),
            "new data goes first"
        );
        assert_eq!(eager.select(&idle(&[path(0, 20, 1)])), hold(Reason::NoRoom));
    }

    #[test]
    fn opportunistic_copies_go_where_there_is_room_now_and_never_later() {
        let mut copying = built("copies+min-rtt");
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        let twice = Choice {
            decision: Decision::Duplicate(both),
            reason: Reason::Redundancy,
        };
        let (fast, slow) = (path(0, 20, 1), path(1, 50, 1));
        assert_eq!(copying.select(&fresh(&[fast, slow])), twice);
        let alone = copying.select(&fresh(&[fast, path(1, 50, 0)]));
        assert_eq!(alone, send(0, Reason::LowestRtt));
        assert!(!copying.wants().copies, "what went out alone stays alone");
        let costly = PathView { cost: 1, ..slow };
        assert_eq!(
            copying.select(&fresh(&[fast, costly])),
            send(0, Reason::LowestRtt)
        );
    }

    #[test]
    fn copies_when_idle_go_one_by_one_and_after_new_data() {
        let mut copying = built("copies+min-rtt:copies.mode=idle");
        let open = PathView {
            copyable: true,
            ..path(1, 50, 1)
        };
        let sending = path(0, 20, 0);
        assert_eq!(copying.select(&idle(&[sending, open])), copy(1));
        let new = copying.select(&fresh(&[sending, open]));
        assert_eq!(new, send(1, Reason::Spill));
        assert_eq!(copying.select(&idle(&[sending, open])), copy(1));
        let done = PathView {
            copyable: false,
            ..open
        };
        assert_eq!(
            copying.select(&idle(&[sending, done])),
            hold(Reason::NoRoom)
        );
    }
}
