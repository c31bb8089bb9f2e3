//! Forward-delay packet scheduling: skips what faster paths deliver meanwhile, in closed form.
//!
//! A reconstruction after Le and Bui (arXiv 1501.03196, abstract) and its relatives. A packet on a
//! path leaves alone what each faster path delivers in the difference of their delays:
//! `skip = sum (delay - faster delay) * faster rate`, whole packets.
//!
//! - `fdps` takes measured forward delays (half the RTT where they are not measured).
//! - `fps` always takes half the RTT (Mirani 2010).
//! - `dpsaf` also takes off what is lost, and corrects the skip by an eighth of the error observed
//!   (Xue et al. 2018). The error of a packet is what the faster paths had delivered of the data
//!   sent after it when it was acknowledged, less what it skipped; both come by acknowledgements,
//!   so it is exact if the ways back are equal.

use crate::catalogue::delivery_delay::least_delay;
use crate::toolkit::units::{bytes_in, packet, scale};
use crate::toolkit::{Delays, bandwidth, send_behind, skip_limit};
use anabranch_proto::path::{MAX_OPEN_PATHS, PathSet};
use anabranch_proto::sched::{
    Choice, Decision, Entry, ParamDoc, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
};
use anabranch_proto::spec::{Params, SpecError};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;

pub(crate) const ENTRY: Entry = Entry {
    name: "fdps-like",
    summary: "out of order by the difference of forward delays and the rates of faster paths",
    params: &[ParamDoc {
        key: "mode",
        default: "fdps",
        summary: "fdps: measured delays; fps: half the RTT; dpsaf: with loss and feedback",
    }],
    build: |params| Ok(Box::new(ForwardDelay::from_params(params)?)),
};

/// The part of an error by which the next skip is corrected.
const GAIN: i64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Measured,
    HalfRtt,
    Feedback,
}

/// Skips what faster paths deliver first.
#[derive(Debug)]
pub(crate) struct ForwardDelay {
    mode: Mode,
    feedback: SmallVec<[Feedback; MAX_OPEN_PATHS]>,
}

/// What is learnt on one path.
#[derive(Debug, Clone, Copy)]
struct Feedback {
    path: PathId,
    counted: Counters,
    /// Added to the skip.
    correction: i64,
    sample: Option<Sample>,
}

/// Bytes sent, acknowledged, and acknowledged or lost.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    sent: u64,
    acked: u64,
    settled: u64,
}

/// One packet sent out of order, followed until it is acknowledged.
#[derive(Debug, Clone, Copy)]
struct Sample {
    faster: PathSet,
    /// What the counters of the faster paths were in sum, and `sent` of its own path after it.
    before: Counters,
    sent_own: u64,
    skip: u64,
}

impl ForwardDelay {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let modes = [
            ("fdps", Mode::Measured),
            ("fps", Mode::HalfRtt),
            ("dpsaf", Mode::Feedback),
        ];
        Ok(Self {
            mode: params.choice("mode", Mode::Measured, &modes)?,
            feedback: SmallVec::new(),
        })
    }

    /// The skip of `path` with what has been learnt, and the paths it is left to.
    fn skip(&mut self, view: &SendView<'_>, delays: &Delays, path: &PathView) -> u64 {
        let learns = self.mode == Mode::Feedback;
        let skip = closed_form(view, delays, path, learns);
        if !learns || skip == 0 {
            return skip.min(skip_limit(view, path));
        }
        // No correction turns the prediction upside down.
        let bound = i64::try_from(skip).unwrap_or(i64::MAX);
        let own = self.learnt(path.id);
        own.correction = own.correction.clamp(-bound, bound);
        let skip = skip.saturating_add_signed(own.correction);
        let skip = (skip - skip % packet(path)).min(skip_limit(view, path));
        if own.sample.is_none() {
            self.follow(view, delays, path, skip);
        }
        skip
    }

    fn learnt(&mut self, path: PathId) -> &mut Feedback {
        let at = self.feedback.iter().position(|entry| entry.path == path);
        let at = at.unwrap_or_else(|| {
            if self.feedback.len() == MAX_OPEN_PATHS {
                self.feedback.remove(0);
            }
            self.feedback.push(Feedback::new(path));
            self.feedback.len() - 1
        });
        &mut self.feedback[at]
    }

    fn follow(&mut self, view: &SendView<'_>, delays: &Delays, path: &PathView, skip: u64) {
        let own = delays.forward(path);
        let faster: PathSet = view
            .candidates()
            .filter(|other| delays.forward(other).is_some() && delays.forward(other) < own)
            .map(|other| other.id)
            .collect();
        let before = self.sum(&faster);
        let own = self.learnt(path.id);
        own.sample = Some(Sample {
            faster,
            before,
            sent_own: own.counted.sent.saturating_add(packet(path)),
            skip,
        });
    }

    fn sum(&self, paths: &PathSet) -> Counters {
        let mut sum = Counters::default();
        for entry in self
            .feedback
            .iter()
            .filter(|entry| paths.contains(entry.path))
        {
            sum.sent = sum.sent.saturating_add(entry.counted.sent);
            sum.acked = sum.acked.saturating_add(entry.counted.acked);
            sum.settled = sum.settled.saturating_add(entry.counted.settled);
        }
        sum
    }

    fn on_settled(&mut self, path: PathId, bytes: u64, acked: bool) {
        let own = self.learnt(path);
        own.counted.settled = own.counted.settled.saturating_add(bytes);
        if acked {
            own.counted.acked = own.counted.acked.saturating_add(bytes);
        }
        let settled = own.counted.settled;
        let Some(sample) = own.sample.filter(|sample| settled >= sample.sent_own) else {
            return;
        };
        own.sample = None;
        if !acked {
            return;
        }
        let now = self.sum(&sample.faster);
        let delivered = sample.delivered(&now);
        let error = i64::try_from(delivered)
            .unwrap_or(i64::MAX)
            .saturating_sub_unsigned(sample.skip);
        let own = self.learnt(path);
        own.correction = own.correction.saturating_add(error / GAIN);
    }
}

impl Sample {
    /// What the faster paths have delivered of what they sent after the sample.
    fn delivered(&self, now: &Counters) -> u64 {
        let settled = now.settled.saturating_sub(self.before.sent);
        let all = now.settled.saturating_sub(self.before.settled);
        let acked = now.acked.saturating_sub(self.before.acked);
        scale(settled, acked.min(all), all)
    }
}

impl Feedback {
    const fn new(path: PathId) -> Self {
        Self {
            path,
            counted: Counters {
                sent: 0,
                acked: 0,
                settled: 0,
            },
            correction: 0,
            sample: None,
        }
    }
}

/// What the faster candidates deliver in the difference of delays, in whole packets.
pub(super) fn closed_form(
    view: &SendView<'_>,
    delays: &Delays,
    path: &PathView,
    count_loss: bool,
) -> u64 {
    let Some(own) = delays.forward(path) else {
        return 0;
    };
    let mut skip: u64 = 0;
    for other in view.candidates().filter(|other| other.id != path.id) {
        let Some(delay) = delays.forward(other).filter(|delay| *delay < own) else {
            continue;
        };
        let mut bytes = bytes_in(own - delay, bandwidth(other));
        if count_loss {
            bytes = (bytes as f64 * f64::from(1.0 - other.loss.clamp(0.0, 1.0))) as u64;
        }
        skip = skip.saturating_add(bytes);
    }
    skip - skip % packet(path)
}

impl Scheduler for ForwardDelay {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let delays = match self.mode {
            Mode::HalfRtt => Delays::HALVES,
            Mode::Measured | Mode::Feedback => Delays::of(view),
        };
        let choice = least_delay(view, &delays);
        let Decision::Send(id) = choice.decision else {
            return choice;
        };
        match view.path(id) {
            Some(path) if view.unit.kind == UnitKind::Fresh => {
                match self.skip(view, &delays, path) {
                    0 => choice,
                    ahead => send_behind(path.id, ahead, Reason::EarliestArrival),
                }
            }
            _ => choice,
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        if self.mode != Mode::Feedback {
            return;
        }
        match *event {
            PathEvent::Sent { path, bytes } => {
                let own = self.learnt(path);
                own.counted.sent = own.counted.sent.saturating_add(bytes);
            }
            PathEvent::Acked { path, bytes, .. } => self.on_settled(path, bytes, true),
            PathEvent::Lost { path, bytes } => self.on_settled(path, bytes, false),
            PathEvent::Doubted { path } | PathEvent::Abandoned { path } => {
                self.feedback.retain(|entry| entry.path != path);
                for entry in &mut self.feedback {
                    entry.sample = entry.sample.filter(|sample| !sample.faster.contains(path));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, fresh, full, send};
    use anabranch_proto::path::PathState;
    use anabranch_proto::time::Duration;

    fn path(id: u32, forward_ms: i64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(100),
            forward_delay_us: Some(forward_ms * 1000),
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    /// A path of 10 ms with its window of data at 1 MB/s in flight, and a free one of 50 ms.
    fn paths() -> [PathView; 2] {
        let busy = PathView {
            delivery_rate: 1_000_000,
            bytes_in_flight: 12_000,
            ..path(0, 10)
        };
        [busy, path(1, 50)]
    }

    fn skip(scheduler: &mut dyn Scheduler, paths: &[PathView]) -> u64 {
        match scheduler.select(&fresh(paths)).decision {
            Decision::SendAt { skip, .. } => skip,
            Decision::Send(_) => 0,
            other => panic!("a path is open: {other:?}"),
        }
    }

    #[test]
    fn a_slow_path_leaves_alone_what_a_faster_one_delivers_meanwhile() {
        let mut fdps = built("fdps-like");
        assert_eq!(skip(&mut *fdps, &paths()), 40_000);
        let ragged = PathView {
            delivery_rate: 1_010_000,
            ..paths()[0]
        };
        assert_eq!(
            skip(&mut *fdps, &[ragged, path(1, 50)]),
            40_000,
            "whole packets"
        );
    }

    #[test]
    fn nothing_is_skipped_at_equal_delays_or_past_a_failed_path() {
        let mut fdps = built("fdps-like");
        let busy = paths()[0];
        assert_eq!(skip(&mut *fdps, &[busy, path(1, 10)]), 0);
        let silent = PathView {
            state: PathState::Doubtful,
            ..busy
        };
        assert_eq!(skip(&mut *fdps, &[silent, path(1, 50)]), 0);
        let choice = fdps.select(&fresh(&[silent, full(1)]));
        assert!(matches!(choice.decision, Decision::Hold { .. }));
    }

    #[test]
    fn half_the_rtt_stands_in_where_delays_are_not_measured_or_not_wanted() {
        let [mut busy, mut free] = paths();
        (busy.smoothed_rtt, free.smoothed_rtt) =
            (Duration::from_millis(20), Duration::from_millis(60));
        let mut fps = built("fdps-like:mode=fps");
        assert_eq!(skip(&mut *fps, &[busy, free]), 20_000);
        free.forward_delay_us = None;
        let mut fdps = built("fdps-like");
        assert_eq!(skip(&mut *fdps, &[busy, free]), 20_000);
    }

    #[test]
    fn the_free_faster_path_takes_the_oldest_data() {
        let mut fdps = built("fdps-like");
        let free = PathView {
            delivery_rate: 1_000_000,
            ..path(0, 10)
        };
        let choice = fdps.select(&fresh(&[free, path(1, 50)]));
        assert_eq!(choice, send(0, Reason::EarliestArrival));
    }

    #[test]
    fn what_is_lost_does_not_arrive_first() {
        let mut dpsaf = built("fdps-like:mode=dpsaf");
        let [mut busy, free] = paths();
        busy.loss = 0.25;
        assert_eq!(skip(&mut *dpsaf, &[busy, free]), 30_000);
    }

    #[test]
    fn feedback_moves_the_skip_by_an_eighth_of_the_error() {
        let mut dpsaf = built("fdps-like:mode=dpsaf");
        let (fast, slow) = (PathId(0), PathId(1));
        let rtt = None;
        assert_eq!(skip(&mut *dpsaf, &paths()), 40_000);
        // Meanwhile the fast path delivers 56 kB: 16 kB more than were left to it.
        let bytes = 1000;
        dpsaf.on_event(&PathEvent::Sent { path: slow, bytes });
        let bytes = 56_000;
        dpsaf.on_event(&PathEvent::Sent { path: fast, bytes });
        dpsaf.on_event(&PathEvent::Acked {
            path: fast,
            bytes,
            rtt,
        });
        let bytes = 1000;
        dpsaf.on_event(&PathEvent::Acked {
            path: slow,
            bytes,
            rtt,
        });
        assert_eq!(skip(&mut *dpsaf, &paths()), 42_000);
        // Then nothing: 42 kB less than were left to it.
        dpsaf.on_event(&PathEvent::Sent { path: slow, bytes });
        dpsaf.on_event(&PathEvent::Acked {
            path: slow,
            bytes,
            rtt,
        });
        assert_eq!(skip(&mut *dpsaf, &paths()), 36_000, "2 kB - 42 kB / 8");
    }

    #[test]
    fn an_error_is_not_taken_from_a_packet_that_was_lost() {
        let mut dpsaf = built("fdps-like:mode=dpsaf");
        let path = PathId(1);
        let bytes = 1000;
        assert_eq!(skip(&mut *dpsaf, &paths()), 40_000);
        dpsaf.on_event(&PathEvent::Sent { path, bytes });
        dpsaf.on_event(&PathEvent::Lost { path, bytes });
        assert_eq!(skip(&mut *dpsaf, &paths()), 40_000);
    }
}
