//! Whether a route carries ECN marks, and when they report congestion (RFC 9000, section 13.4.2).
//!
//! ```text
//! testing --marks confirmed--> capable --bad counts--> failed
//!    | \---- bad counts, or all test packets lost -------^
//!    +-- TEST_PACKETS sent --> waiting (unmarked) --marks confirmed--> capable
//! ```
//!
//! It decides what to mark; counting arrivals for the peer is the packet number space's part.

#[cfg(test)]
mod tests;

use crate::datagram::Ecn;
use anabranch_wire::frame::EcnCounts;

/// Packets marked before the first confirmation (RFC 9000, appendix A.4).
const TEST_PACKETS: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Testing,
    Waiting,
    Capable,
    Failed,
}

/// What an acknowledgement says about ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EcnOutcome {
    /// Nothing to react to.
    Fine,
    /// Packets were marked: react as to loss (RFC 9002, section 7.1).
    Congestion,
    /// The counts do not add up: the route or the peer damages marks, and marking has stopped.
    /// Reported once.
    Failed,
}

/// ECN on one route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EcnState {
    stage: Stage,
    /// Marked packets sent.
    marked: u64,
    /// Marked packets that are known to have arrived or not.
    settled: u64,
    /// Counts of the latest acknowledgement that was looked at.
    counts: EcnCounts,
    /// The most that `ect0 + ce` may come to: everything marked and sent in this space.
    ceiling: u64,
}

impl EcnState {
    /// A route on which marking is tried, if the socket can mark at all.
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            stage: if enabled {
                Stage::Testing
            } else {
                Stage::Failed
            },
            marked: 0,
            settled: 0,
            counts: EcnCounts::default(),
            ceiling: 0,
        }
    }

    /// The state of a new route of the same path: it is tested anew, but the peer goes on counting
    /// where it was, packets of the old route included.
    pub(crate) fn after_move(&self, enabled: bool) -> Self {
        Self {
            counts: self.counts,
            ceiling: self.ceiling,
            ..Self::new(enabled)
        }
    }

    /// The field to put on the next packet.
    pub(crate) fn marking(&self) -> Option<Ecn> {
        matches!(self.stage, Stage::Testing | Stage::Capable).then_some(Ecn::Ect0)
    }

    /// Whether the route is known to carry marks.
    pub(crate) fn is_capable(&self) -> bool {
        self.stage == Stage::Capable
    }

    /// A packet went out; `marked` if with [`marking`](Self::marking).
    pub(crate) fn on_sent(&mut self, marked: bool) {
        if !marked {
            return;
        }
        self.marked += 1;
        self.ceiling += 1;
        if self.stage == Stage::Testing && self.marked >= TEST_PACKETS {
            self.stage = Stage::Waiting;
        }
    }

    /// A marked packet was declared lost. A route that drops every test packet is taken to drop
    /// them for their marks (RFC 9000, section 13.4.2).
    pub(crate) fn on_lost(&mut self) -> EcnOutcome {
        self.settled += 1;
        if self.stage == Stage::Waiting && self.settled >= self.marked {
            return self.fail();
        }
        EcnOutcome::Fine
    }

    /// An acknowledgement came: its counts, how many marked packets it newly acknowledges, and
    /// whether it raises the largest acknowledged number. One that does not is older than what is
    /// known already and its counts are not looked at (RFC 9000, section 13.4.2.1).
    pub(crate) fn on_ack(
        &mut self,
        counts: Option<EcnCounts>,
        newly_acked_marked: u64,
        largest_advanced: bool,
    ) -> EcnOutcome {
        self.settled += newly_acked_marked;
        if self.stage == Stage::Failed || !largest_advanced {
            return EcnOutcome::Fine;
        }
        let Some(counts) = counts else {
            return if newly_acked_marked > 0 {
                self.fail()
            } else {
                EcnOutcome::Fine
            };
        };
        let Some(marks) = self.newly_marked(counts, newly_acked_marked) else {
            return self.fail();
        };
        self.counts = counts;
        if newly_acked_marked > 0 {
            self.stage = Stage::Capable;
        }
        if marks > 0 {
            EcnOutcome::Congestion
        } else {
            EcnOutcome::Fine
        }
    }

    /// How many more packets were marked CE, or `None` if the counts cannot be true.
    fn newly_marked(&self, counts: EcnCounts, newly_acked_marked: u64) -> Option<u64> {
        let ect0 = counts.ect0.checked_sub(self.counts.ect0)?;
        let ce = counts.ce.checked_sub(self.counts.ce)?;
        // We never send ECT(1): whoever counts one saw a rewritten mark.
        let untouched = counts.ect1 == self.counts.ect1;
        let complete = ect0.checked_add(ce)? >= newly_acked_marked;
        let possible = counts.ect0.checked_add(counts.ce)? <= self.ceiling;
        (untouched && complete && possible).then_some(ce)
    }

    fn fail(&mut self) -> EcnOutcome {
        self.stage = Stage::Failed;
        EcnOutcome::Failed
    }
}
