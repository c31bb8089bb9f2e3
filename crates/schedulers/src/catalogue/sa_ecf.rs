//! SA-ECF, stream-aware ECF: earliest completion first for each stream on its own.
//!
//! Rabitsch, Hurtig and Brunstrom, EPIQ 2018. A short stream waits for the fast path while a long
//! one beside it uses the slow path: what counts for a stream is what is sent before it ends, under
//! the engine's sharing (higher priorities first, equals in turn). Streams that flow control stops
//! are not in view. Datagrams and lost data count as streams that end with the unit.

use crate::catalogue::ecf::{BETA, Rule, unassigned};
use crate::toolkit::Patience;
use anabranch_proto::sched::{
    Choice, Contest, Decision, Entry, MAX_STREAM_VIEWS, PathEvent, Reason, Scheduler, SendView,
    StreamView, UnitKind, Wants,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::{PathId, StreamId};
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "sa-ecf",
    summary: "as ecf, for each stream: short ones wait for the fast path, long ones spill",
    params: &[BETA],
    build: |params| Ok(Box::new(SaEcf::from_params(params)?)),
};

/// Compares times of completion, stream by stream.
#[derive(Debug, Default)]
pub(crate) struct SaEcf {
    rule: Rule,
    /// For which path streams wait. Another one begins new waits.
    fast: Option<PathId>,
    waiting: SmallVec<[StreamId; MAX_STREAM_VIEWS]>,
    unit_waits: bool,
    patience: Patience,
}

impl SaEcf {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        Ok(Self {
            rule: Rule::from_params(params)?,
            ..Self::default()
        })
    }

    /// The first stream for which the path that is free is good enough.
    fn stream(&mut self, view: &SendView<'_>, contest: &Contest<'_>) -> Option<Choice> {
        let all = unassigned(view);
        self.waiting
            .retain(|id| view.streams.iter().any(|stream| stream.id == *id));
        for (at, stream) in view.streams.iter().enumerate() {
            let before = self.waiting.contains(&stream.id);
            let bytes = until_done(view.streams, stream).min(all);
            let (wait, waiting) = self
                .rule
                .weigh(contest.fastest, contest.open, bytes, before);
            match (before, waiting) {
                (false, true) if self.waiting.len() < MAX_STREAM_VIEWS => {
                    self.waiting.push(stream.id);
                }
                (true, false) => self.waiting.retain(|id| *id != stream.id),
                _ => {}
            }
            if wait {
                continue;
            }
            let choice = contest.send();
            let Decision::Send(path) = choice.decision else {
                return Some(choice);
            };
            let stream = stream.id;
            let decision = match at {
                0 => choice.decision,
                _ => Decision::SendStream { path, stream },
            };
            return Some(Choice { decision, ..choice });
        }
        None
    }

    /// A unit that belongs to no stream in view.
    fn unit(&mut self, view: &SendView<'_>, contest: &Contest<'_>) -> Option<Choice> {
        let bytes = match view.unit.kind {
            UnitKind::Datagram | UnitKind::Retransmission => view.unit.bytes,
            UnitKind::Fresh | UnitKind::Idle => unassigned(view),
        };
        let (wait, waiting) =
            self.rule
                .weigh(contest.fastest, contest.open, bytes, self.unit_waits);
        self.unit_waits = waiting;
        (!wait).then(|| contest.send())
    }
}

/// Bytes that are sent before `stream` has sent all it has.
fn until_done(streams: &[StreamView], stream: &StreamView) -> u64 {
    let before = |other: &StreamView| match other.priority.cmp(&stream.priority) {
        std::cmp::Ordering::Greater => other.unsent,
        std::cmp::Ordering::Equal => other.unsent.min(stream.unsent),
        std::cmp::Ordering::Less => 0,
    };
    streams
        .iter()
        .fold(0, |sum: u64, other| sum.saturating_add(before(other)))
}

impl Scheduler for SaEcf {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let Some(contest) = Contest::of(view) else {
            return view.no_room();
        };
        if contest.is_decided() {
            self.patience.end();
            return contest.send();
        }
        if self.fast.replace(contest.fastest.id) != Some(contest.fastest.id) {
            self.waiting.clear();
            self.unit_waits = false;
        }
        let by_stream = view.unit.kind == UnitKind::Fresh && !view.streams.is_empty();
        let choice = if by_stream {
            self.stream(view, &contest)
        } else {
            self.unit(view, &contest)
        };
        if let Some(choice) = choice {
            self.patience.end();
            return choice;
        }
        self.patience
            .wait_for(view, contest.fastest, Reason::WaitForBetter)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        if let PathEvent::Abandoned { path } | PathEvent::Doubted { path } = event
            && self.fast == Some(*path)
        {
            self.fast = None;
        }
    }

    fn wants(&self) -> Wants {
        Wants {
            streams: true,
            ..Wants::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ecf::tests::vector;
    use crate::tests::{built, fresh, send};

    fn stream(id: u64, priority: i32, packets: u64) -> StreamView {
        StreamView {
            id: StreamId(id),
            priority,
            class: 0,
            unsent: packets * 1000,
            finished: true,
        }
    }

    fn ask(scheduler: &mut dyn Scheduler, streams: &[StreamView]) -> Choice {
        let paths = vector();
        let mut view = fresh(&paths);
        view.unit.bytes = 1000;
        view.backlog.unsent = streams.iter().map(|stream| stream.unsent).sum();
        view.streams = streams;
        scheduler.select(&view)
    }

    #[test]
    fn a_short_stream_waits_while_a_long_one_uses_the_slow_path() {
        let mut scheduler = built("sa-ecf");
        assert!(scheduler.wants().streams);
        let on_slow = Choice {
            decision: Decision::SendStream {
                path: PathId(1),
                stream: StreamId(4),
            },
            reason: Reason::Spill,
        };
        let streams = [stream(0, 0, 5), stream(4, 0, 100)];
        assert_eq!(ask(&mut *scheduler, &streams), on_slow);
        let long_first = [stream(4, 0, 100), stream(0, 0, 5)];
        assert_eq!(
            ask(&mut *built("sa-ecf"), &long_first),
            send(1, Reason::Spill)
        );
    }

    #[test]
    fn streams_that_are_all_short_wait_together() {
        let choice = ask(&mut *built("sa-ecf"), &[stream(0, 0, 5), stream(4, 0, 6)]);
        assert_eq!(choice.reason, Reason::WaitForBetter);
    }

    #[test]
    fn a_stream_counts_what_goes_before_it() {
        let [urgent, short, long] = [stream(0, 1, 70), stream(4, 0, 5), stream(8, 0, 90)];
        let streams = [urgent, short, long];
        assert_eq!(until_done(&streams, &urgent), 70_000);
        assert_eq!(until_done(&streams, &short), 80_000);
        assert_eq!(until_done(&streams, &long), 165_000);
    }

    #[test]
    fn each_stream_has_its_own_hysteresis() {
        let mut scheduler = built("sa-ecf");
        assert_eq!(
            ask(&mut *scheduler, &[stream(0, 0, 5)]).reason,
            Reason::WaitForBetter
        );
        let grown = [stream(0, 0, 45)];
        assert_eq!(
            ask(&mut *scheduler, &grown).reason,
            Reason::WaitForBetter,
            "it waited before"
        );
        assert_eq!(
            ask(&mut *scheduler, &[stream(4, 0, 45)]),
            send(1, Reason::Spill)
        );
    }

    #[test]
    fn a_datagram_is_a_stream_of_its_own_length() {
        let paths = vector();
        let mut view = fresh(&paths);
        view.unit.kind = UnitKind::Datagram;
        view.unit.bytes = 1000;
        view.backlog.datagrams = 500_000;
        assert_eq!(built("ecf").select(&view), send(1, Reason::Spill));
        assert_eq!(built("sa-ecf").select(&view).reason, Reason::WaitForBetter);
    }
}
