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

use super::Connection;
use super::failover::MAX_PROBE_INTERVAL;
use crate::path::state::{Inquiry, Path};
use crate::time::Instant;
use crate::wire::PathId;
use smallvec::SmallVec;

/// Probe time-outs in a row after which the paths are asked.
const PTOS_BEFORE: u32 = 2;

/// PTOs a path may take longer to respond than the first one that did.
const PTOS_TO_RESPOND: u32 = 3;

impl Connection {
    /// A path was probed in vain once more, and no other one answers.
    pub(super) fn consider_inquiry(&mut self, now: Instant, id: PathId) {
        let tried = self.paths.path(id).map_or(0, |path| path.pto_count);
        if tried < PTOS_BEFORE || self.paths.open_count() < 2 || !self.multipath_active() {
            return;
        }
        for (_, path) in self.paths.open_mut() {
            if path.inquiry == Inquiry::None
                && path.route.validated
                && path.route.validation.is_none()
            {
                path.route.validate(now, &mut self.rng);
                path.inquiry = Inquiry::Asked;
            }
        }
    }

    /// A path responded to a challenge.
    pub(super) fn on_inquiry_answered(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        if path.inquiry != Inquiry::Asked {
            return;
        }
        path.inquiry = Inquiry::Answered(now);
        self.trust(now, id, false);
        let silent: SmallVec<[PathId; 4]> = self
            .paths
            .open()
            .filter_map(|slot| slot.open())
            .filter(|path| path.inquiry == Inquiry::Asked)
            .map(|path| path.id)
            .collect();
        for id in silent {
            self.doubt(now, id);
        }
    }

    /// Something was acknowledged: the peer's acknowledgements find a way.
    pub(super) fn end_inquiry(&mut self) {
        for (_, path) in self.paths.open_mut() {
            if path.inquiry == Inquiry::Asked && path.route.validated {
                path.route.validation = None;
            }
            path.inquiry = Inquiry::None;
        }
    }

    /// When a path that did not respond is given up, because another one did.
    pub(super) fn inquiry_deadline(&self, path: &Path) -> Option<Instant> {
        if path.inquiry != Inquiry::Asked {
            return None;
        }
        let others = self.paths.open().filter_map(|slot| slot.open());
        let answered = others.filter(|other| other.is_healthy());
        let answered = answered.filter_map(|other| match other.inquiry {
            Inquiry::Answered(at) => Some(at),
            _ => None,
        });
        let patience = path.pto(self.peer_max_ack_delay()) * PTOS_TO_RESPOND;
        Some(answered.min()? + patience.max(MAX_PROBE_INTERVAL))
    }
}
