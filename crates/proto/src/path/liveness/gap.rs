//! A peer that leaves what we miss on a dead path.
//!
//! A receiver sends nothing that must be acknowledged, so it does not notice when its peer goes
//! silent: it would wait for its idle time-out. Peers of our kind send again elsewhere after one
//! probe time-out; some wait for ever (docs/interop.md, D29). A gap in a stream proves that
//! something is missing, and silence that the peer does not mend it:
//!
//! ```text
//! gap, and no stream data for a while        --> PING on every path: the dead one is doubted
//! still none, while another path does answer --> the doubted path is abandoned, so that the peer
//!                                                has to send its data elsewhere
//! ```
//!
//! Where nothing at all is acknowledged, the [`inquiry`](super::inquiry) finds the dead path.

use super::{Liveness, MAX_PROBE_INTERVAL, Surroundings, UnderWay};
use crate::time::{Duration, Instant};

/// PTOs without stream data after which the paths are probed: a peer of our kind notices after one
/// and needs a round trip to mend the gap.
const PTOS_QUIET: u32 = 3;

/// How long a doubted path keeps its data: so many PTOs, at least [`SHORTEST_MEND`].
const PTOS_TO_MEND: u32 = 6;
const SHORTEST_MEND: Duration = Duration::from_secs(2);

impl Liveness {
    /// When to ask the path whether it is alive, because something is missing.
    pub(super) fn gap_deadline(&self, own: &UnderWay, around: &Surroundings) -> Option<Instant> {
        let data_came = around.last_data?;
        let heard = self.last_ack.unwrap_or(data_came);
        let quiet = own.pto * PTOS_QUIET;
        Some(heard.max(data_came) + quiet.max(MAX_PROBE_INTERVAL))
    }

    /// When to abandon the path if it is doubted, because what is missing does not come by another.
    pub(super) fn mend_deadline(&self, own: &UnderWay, around: &Surroundings) -> Option<Instant> {
        let doubted = self.doubted_since()?;
        let from = doubted.max(around.last_data?).max(around.answering_since?);
        Some(from + (own.pto * PTOS_TO_MEND).max(SHORTEST_MEND))
    }
}
