//! Lowest RTT first: fill the path with the lowest smoothed RTT, then the next.
//!
//! The default policy and the one others fall back to. It never leaves a path idle while data
//! waits, so a slow path can hold up in-order delivery; that is the price of its simplicity.

use crate::toolkit::{Patience, Prober, leaves, rank};
use anabranch_proto::path::PathSet;
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
    lowest_rtt,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::time::Duration;

pub(crate) const ENTRY: Entry = Entry {
    name: "min-rtt",
    summary: "the lowest smoothed RTT that has room; spills to the next when full",
    params: &[
        ParamDoc {
            key: "limit-ms",
            default: "0",
            summary: "the first path with an RTT below this, and a wait for one; 0 for none",
        },
        ParamDoc {
            key: "skip-recovery",
            default: "false",
            summary: "leave paths out that recover from loss, while another one does not",
        },
        ParamDoc {
            key: "idle",
            default: "tail",
            summary: "with nothing to send: hold, copy what slower paths carry (tail), or copy all",
        },
        ParamDoc {
            key: "probe",
            default: "0",
            summary: "copy one packet to a path unheard of for so many RTTs; 0 for never",
        },
        ParamDoc {
            key: "copies",
            default: "off",
            summary: "opportunistic: on all paths free at that moment; when-idle: as idle=copy",
        },
        ParamDoc {
            key: "freshness",
            default: "off",
            summary: "on: as probe=5",
        },
    ],
    build: |params| Ok(Box::new(MinRtt::from_params(params)?)),
};

/// What a free path does with nothing fresh to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Idle {
    Hold,
    /// It repeats what paths carry that are slower than itself, so that the end of a transfer does
    /// not take as long as the slowest path. Data of an application that leaves room is on the
    /// fastest path already and stays there alone.
    #[default]
    Tail,
    Copy,
}

/// Unheard of for so many RTTs, the estimates of a path count as old.
const FRESH_RTTS: u32 = 5;

/// RTTs of paths that differ by less than this part count as equal.
const MARGIN: u32 = 4;

/// Chooses the lowest smoothed RTT.
#[derive(Debug, Default)]
pub(crate) struct MinRtt {
    limit: Option<Duration>,
    skip_recovery: bool,
    idle: Idle,
    opportunistic: bool,
    prober: Prober,
    patience: Patience,
}

impl MinRtt {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let copies = [
            ("off", (false, Idle::Tail)),
            ("opportunistic", (true, Idle::Hold)),
            ("when-idle", (false, Idle::Copy)),
        ];
        let (opportunistic, idle) = params.choice("copies", copies[0].1, &copies)?;
        let modes = [
            ("hold", Idle::Hold),
            ("tail", Idle::Tail),
            ("copy", Idle::Copy),
        ];
        let rtts = params.choice("freshness", 0, &[("off", 0), ("on", FRESH_RTTS)])?;
        let limit_ms: u64 = params.take_in("limit-ms", 0, 0..=60_000)?;
        Ok(Self {
            limit: (limit_ms > 0).then(|| Duration::from_millis(limit_ms)),
            skip_recovery: params.flag("skip-recovery")?,
            patience: Patience::default(),
            idle: params.choice("idle", idle, &modes)?,
            opportunistic,
            prober: Prober::after_rtts(params.take_in("probe", rtts, 0..=1000)?),
        })
    }

    /// The lowest RTT of the paths that are fit, or the first one below the limit. Full ones are
    /// waited for; if there is none, every path is as good as it was.
    fn choose(&mut self, view: &SendView<'_>) -> Choice {
        if self.limit.is_none() && !self.skip_recovery {
            return lowest_rtt(view);
        }
        let fit = |path: &&PathView| {
            let is_below = |limit| !path.smoothed_rtt.is_zero() && path.smoothed_rtt < limit;
            !(self.skip_recovery && path.in_recovery) && self.limit.is_none_or(is_below)
        };
        let leaves = leaves(view);
        let open = view.ready().filter(fit);
        let chosen = match self.limit {
            Some(_) => open.min_by_key(|path| (leaves(path), path.id)),
            None => open.min_by_key(|path| (leaves(path), rank(path))),
        };
        if let Some(path) = chosen {
            self.patience.end();
            return Choice::send(path.id, Reason::LowestRtt);
        }
        match view.candidates().filter(fit).min_by_key(|path| rank(path)) {
            Some(best) if view.ready().next().is_some() => {
                self.patience.wait_for(view, best, Reason::WaitForBetter)
            }
            _ => lowest_rtt(view),
        }
    }

    /// With nothing fresh to send, the free paths shorten the tail: each repeats what others carry.
    fn copy(&self, view: &SendView<'_>) -> Choice {
        let open = view
            .candidates()
            .filter(|path| path.is_usable() && path.can_send(view.now));
        let worthwhile = |path: &&PathView| match self.idle {
            Idle::Hold => false,
            Idle::Tail => path.cost == 0 && is_faster_than_another(view, path),
            Idle::Copy => true,
        };
        let copyable = open.filter(|path| path.copyable).filter(worthwhile);
        match copyable.min_by_key(|path| rank(path)) {
            Some(path) => Choice {
                decision: Decision::Copy(path.id),
                reason: Reason::Redundancy,
            },
            None => view.no_room(),
        }
    }

    /// Adds every other path that is free now and costs nothing: thin traffic becomes fully
    /// redundant, bulk keeps the windows full and is hardly ever copied.
    fn copy_to_all_free(view: &SendView<'_>, choice: Choice) -> Choice {
        let Decision::Send(first) = choice.decision else {
            return choice;
        };
        let free = view
            .ready()
            .filter(|path| path.is_usable() && path.cost == 0);
        let mut all = PathSet::from_iter([first]);
        free.for_each(|path| {
            all.insert(path.id);
        });
        if all.len() == 1 {
            return choice;
        }
        Choice {
            decision: Decision::Duplicate(all),
            reason: Reason::Redundancy,
        }
    }
}

impl Scheduler for MinRtt {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        if view.unit.kind == UnitKind::Idle {
            return self.copy(view);
        }
        let choice = self.choose(view);
        if self.opportunistic && view.unit.kind == UnitKind::Fresh {
            return Self::copy_to_all_free(view, choice);
        }
        self.prober.add(view, choice, PathView::is_usable)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.prober.on_event(event);
        self.patience.on_event(event);
    }

    fn wants_copies(&self) -> bool {
        self.idle != Idle::Hold
    }

    fn wants_copies_while_busy(&self) -> bool {
        false
    }
}

/// Whether another path has data under way that would have come sooner by this one.
fn is_faster_than_another(view: &SendView<'_>, path: &PathView) -> bool {
    let rtt = path.smoothed_rtt;
    let longer = rtt.saturating_add(rtt / MARGIN);
    let slow = |other: &PathView| other.bytes_in_flight > 0 && other.smoothed_rtt > longer;
    !rtt.is_zero()
        && view
            .paths
            .iter()
            .any(|other| other.id != path.id && slow(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, copy, fresh, hold, idle, lost, send};
    use anabranch_proto::wire::PathId;
    use anabranch_proto::wire::frame::PathStatus;

    fn path(id: u32, rtt_ms: u64, packets: u64) -> PathView {
        let mut path = PathView::new(id);
        path.smoothed_rtt = Duration::from_millis(rtt_ms);
        path.bytes_in_flight = path.congestion_window - packets * 1200;
        path
    }

    fn built(text: &str) -> Box<dyn Scheduler> {
        crate::builtin().build(&text.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_lowest_rtt_is_filled_first() {
        let mut min_rtt = MinRtt::default();
        let mut ask = |a, b| min_rtt.select(&fresh(&[a, b]));
        assert_eq!(
            ask(path(0, 20, 1), path(1, 50, 1)),
            send(0, Reason::LowestRtt)
        );
        assert_eq!(ask(path(0, 20, 0), path(1, 50, 1)), send(1, Reason::Spill));
        assert_eq!(ask(path(0, 20, 0), path(1, 50, 0)), hold(Reason::NoRoom));
        assert_eq!(
            ask(path(0, 50, 1), path(1, 50, 1)),
            send(0, Reason::LowestRtt)
        );
    }

    #[test]
    fn an_unsampled_path_is_unknown_and_not_fast() {
        let mut min_rtt = MinRtt::default();
        let mut ask = |a, b| min_rtt.select(&fresh(&[a, b]));
        assert_eq!(
            ask(path(0, 0, 1), path(1, 50, 1)),
            send(1, Reason::LowestRtt)
        );
        assert_eq!(ask(path(0, 0, 1), path(1, 50, 0)), send(0, Reason::Spill));
    }

    #[test]
    fn lost_data_goes_to_a_path_that_has_not_carried_it() {
        for text in [
            "min-rtt",
            "min-rtt:limit-ms=100",
            "min-rtt:skip-recovery=true",
        ] {
            let ask = |a, b| built(text).select(&lost(&[a, b], &[0]));
            let first = |id| send(id, Reason::LowestRtt);
            assert_eq!(ask(path(0, 20, 1), path(1, 50, 1)), first(1), "{text}");
            assert_eq!(ask(path(0, 20, 1), path(1, 50, 0)), first(0), "{text}");
        }
        let far = [path(0, 20, 1), path(1, 90, 1)];
        let choice = MinRtt::default().select(&lost(&far, &[0]));
        assert_eq!(choice, send(0, Reason::LowestRtt), "too slow to help");
    }

    #[test]
    fn the_first_path_below_a_limit_is_used_and_waited_for() {
        let ask = |paths: &[PathView]| built("min-rtt:limit-ms=60").select(&fresh(paths));
        let (near, far) = (path(1, 20, 1), path(2, 90, 1));
        let first = ask(&[path(0, 50, 1), near, far]);
        assert_eq!(first, send(0, Reason::LowestRtt), "in order of IDs");
        assert_eq!(ask(&[path(0, 60, 1), near]), send(1, Reason::LowestRtt));
        let wait = ask(&[path(1, 20, 0), far]);
        assert_eq!(wait, Choice::hold_until(at(20), Reason::WaitForBetter));
        assert_eq!(ask(&[far, path(3, 80, 1)]), send(3, Reason::LowestRtt));
        let mut patient = built("min-rtt:limit-ms=60");
        let paths = [path(1, 20, 0), far];
        let answers = [0, 19, 20].map(|ms| {
            let mut view = fresh(&paths);
            view.now = at(ms);
            patient.select(&view)
        });
        assert_eq!(answers, [wait, wait, send(2, Reason::Spill)]);
    }

    #[test]
    fn a_path_in_recovery_is_left_out_while_another_one_is_not() {
        let ask = |paths: &[PathView]| built("min-rtt:skip-recovery=true").select(&fresh(paths));
        let recovering = |path| PathView {
            in_recovery: true,
            ..path
        };
        let near = recovering(path(0, 20, 1));
        assert_eq!(ask(&[near, path(1, 50, 1)]), send(1, Reason::LowestRtt));
        let wait = Choice::hold_until(at(50), Reason::WaitForBetter);
        assert_eq!(ask(&[near, path(1, 50, 0)]), wait);
        let both = [near, recovering(path(1, 50, 1))];
        assert_eq!(ask(&both), send(0, Reason::LowestRtt));
        let choice = MinRtt::default().select(&fresh(&[near, path(1, 50, 1)]));
        assert_eq!(choice, send(0, Reason::LowestRtt), "unless asked for");
    }

    #[test]
    fn the_reason_tells_when_there_was_no_choice() {
        let mut min_rtt = MinRtt::default();
        assert_eq!(
            min_rtt.select(&fresh(&[path(3, 20, 1)])),
            send(3, Reason::OnlyPath)
        );
        let mut backup = path(1, 20, 1);
        backup.status = PathStatus::Backup;
        assert_eq!(min_rtt.select(&fresh(&[backup])), send(1, Reason::Backup));
    }

    #[test]
    fn idle_paths_copy_what_others_carry_if_asked_to() {
        let mut open = path(1, 50, 1);
        open.copyable = true;
        let paths = [path(0, 20, 1), open];
        assert_eq!(
            MinRtt::default().select(&idle(&paths)),
            hold(Reason::NoRoom)
        );
        let mut eager = built("min-rtt:idle=copy");
        assert!(eager.wants_copies());
        assert_eq!(eager.select(&idle(&paths)), copy(1));
        assert_eq!(
            eager.select(&fresh(&paths)),
            send(0, Reason::LowestRtt),
            "new data goes first"
        );
        assert_eq!(eager.select(&idle(&[path(0, 20, 1)])), hold(Reason::NoRoom));
    }

    #[test]
    fn an_idle_path_repeats_what_slower_ones_carry() {
        let with_copy = |rtt| PathView {
            copyable: true,
            ..path(0, rtt, 1)
        };
        let mut min_rtt = MinRtt::default();
        let mut ask = |a, b| min_rtt.select(&idle(&[a, b]));
        assert_eq!(ask(with_copy(20), path(1, 50, 1)), copy(0));
        assert_eq!(ask(with_copy(20), path(1, 24, 1)), hold(Reason::NoRoom));
        let empty = path(1, 50, 10);
        assert_eq!(empty.bytes_in_flight, 0);
        assert_eq!(ask(with_copy(20), empty), hold(Reason::NoRoom));
        let costly = PathView {
            cost: 1,
            ..with_copy(20)
        };
        assert_eq!(ask(costly, path(1, 50, 1)), hold(Reason::NoRoom));
        assert_eq!(
            built("min-rtt:idle=hold").select(&idle(&[with_copy(20), path(1, 50, 1)])),
            hold(Reason::NoRoom)
        );
    }

    #[test]
    fn opportunistic_copies_go_where_there_is_room_now_and_never_later() {
        let mut min_rtt = built("min-rtt:copies=opportunistic");
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        let twice = Choice {
            decision: Decision::Duplicate(both),
            reason: Reason::Redundancy,
        };
        let (fast, slow) = (path(0, 20, 1), path(1, 50, 1));
        assert_eq!(min_rtt.select(&fresh(&[fast, slow])), twice);
        let alone = min_rtt.select(&fresh(&[fast, path(1, 50, 0)]));
        assert_eq!(alone, send(0, Reason::LowestRtt));
        assert!(!min_rtt.wants_copies(), "what went out alone stays alone");
        let costly = PathView { cost: 1, ..slow };
        assert_eq!(
            min_rtt.select(&fresh(&[fast, costly])),
            send(0, Reason::LowestRtt)
        );
    }

    #[test]
    fn copies_when_idle_go_one_by_one_and_after_new_data() {
        let mut min_rtt = built("min-rtt:copies=when-idle");
        let open = PathView {
            copyable: true,
            ..path(1, 50, 1)
        };
        let sending = path(0, 20, 0);
        assert_eq!(min_rtt.select(&idle(&[sending, open])), copy(1));
        let new = min_rtt.select(&fresh(&[sending, open]));
        assert_eq!(new, send(1, Reason::Spill));
        assert_eq!(min_rtt.select(&idle(&[sending, open])), copy(1));
        let done = PathView {
            copyable: false,
            ..open
        };
        assert_eq!(
            min_rtt.select(&idle(&[sending, done])),
            hold(Reason::NoRoom)
        );
    }

    #[test]
    fn a_stale_path_gets_one_copy_per_interval() {
        for text in ["min-rtt:probe=5", "min-rtt:freshness=on"] {
            stale_path_is_probed(built(text));
        }
    }

    fn stale_path_is_probed(mut probing: Box<dyn Scheduler>) {
        let ask = |probing: &mut Box<dyn Scheduler>, now_ms| {
            let (mut fast, mut slow) = (path(0, 20, 1), path(1, 100, 1));
            fast.last_ack = Some(at(now_ms));
            slow.last_ack = Some(at(1000));
            let paths = [fast, slow];
            let mut view = fresh(&paths);
            view.now = at(now_ms);
            probing.select(&view)
        };
        assert_eq!(ask(&mut probing, 1499), send(0, Reason::LowestRtt));
        let both = PathSet::from_iter([PathId(0), PathId(1)]);
        let probe = Choice {
            decision: Decision::Duplicate(both),
            reason: Reason::Probe,
        };
        assert_eq!(ask(&mut probing, 1500), probe);
        assert_eq!(ask(&mut probing, 1501), send(0, Reason::LowestRtt));
        assert_eq!(ask(&mut probing, 2000), probe);
    }
}
