//! Which path is to blame when nothing is acknowledged any more?
//!
//! An acknowledgement proves that its packet arrived, but it may come back by any path. Some peers
//! send all of theirs along one (docs/interop.md, D11); when that path dies, every path falls
//! silent. A `PATH_RESPONSE` returns by the path of its challenge (RFC 9000, section 8.2.2), so it
//! tells the living from the dead:
//!
//! ```text
//! PTOs on a path, and no other answers --> every validated path is challenged
//! one responds                         --> it carries the data; the others are doubted
//! still nothing is acknowledged        --> those without a response are abandoned, so that the
//!                                          peer has to acknowledge by another path
//! anything is acknowledged             --> the inquiry ends
//! ```
//!
//! Paths that all stay silent are never abandoned here: they may all come back.

use super::{Liveness, MAX_PROBE_INTERVAL, Surroundings, UnderWay, Verdict, Verdicts};
use crate::time::Instant;

/// Probe time-outs in a row after which the paths are asked.
const PTOS_BEFORE: u32 = 2;

/// PTOs a path may take longer to respond than the first one that did.
const PTOS_TO_RESPOND: u32 = 3;

/// What a path said when nothing was acknowledged on any path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inquiry {
    None,
    /// The path is being challenged.
    Asked,
    /// The path responded: it carries packets both ways.
    Responded(Instant),
}

impl Liveness {
    /// Whether the path was probed in vain often enough, and there are others to ask.
    pub(super) fn is_inquiry_due(&self, around: &Surroundings) -> bool {
        self.pto_count >= PTOS_BEFORE && around.several
    }

    /// All paths are asked; whether this one is to be challenged for it. `settled` tells that its
    /// far end is proven and no other validation is under way.
    pub(crate) fn ask(&mut self, settled: bool) -> bool {
        let ask = settled && self.inquiry == Inquiry::None;
        if ask {
            self.inquiry = Inquiry::Asked;
        }
        ask
    }

    /// Whether the path is asked and has not responded.
    pub(crate) fn is_asked(&self) -> bool {
        self.inquiry == Inquiry::Asked
    }

    /// When it responded to the inquiry.
    pub(crate) fn responded_at(&self) -> Option<Instant> {
        match self.inquiry {
            Inquiry::Responded(at) => Some(at),
            _ => None,
        }
    }

    /// The path responded to a challenge.
    pub(crate) fn on_responded(&mut self, now: Instant) -> Verdicts {
        let mut verdicts = Verdicts::new();
        if self.is_asked() {
            self.inquiry = Inquiry::Responded(now);
            verdicts.extend(self.trust(now, false));
            verdicts.push(Verdict::DoubtSilent);
        }
        verdicts
    }

    /// Another path responded.
    pub(crate) fn on_other_responded(&mut self, now: Instant, validated: bool) -> Option<Verdict> {
        if self.is_asked() {
            self.doubt(now, validated)
        } else {
            None
        }
    }

    /// Something was acknowledged, or nobody is left to be asked; whether a challenge of the path
    /// is in vain now.
    pub(crate) fn end_inquiry(&mut self) -> bool {
        let was_asked = self.is_asked();
        self.inquiry = Inquiry::None;
        was_asked
    }

    /// When the path is given up because it did not respond and another one did.
    pub(super) fn inquiry_deadline(
        &self,
        own: &UnderWay,
        around: &Surroundings,
    ) -> Option<Instant> {
        if !self.is_asked() {
            return None;
        }
        let patience = own.pto * PTOS_TO_RESPOND;
        Some(around.first_response? + patience.max(MAX_PROBE_INTERVAL))
    }
}
