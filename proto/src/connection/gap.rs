//! A peer that leaves what we miss on a dead path.
//!
//! A receiver sends nothing that must be acknowledged, so it does not notice when its peer goes
//! silent: it would wait for its idle time-out. Peers of our kind send again elsewhere after one
//! probe time-out; some wait for ever (wire.md, D29). A gap in a stream proves that something is
//! missing, and silence that the peer does not mend it:
//!
//! ```text
//! gap, and no stream data for a while        --> PING on every path: the dead one is doubted
//! still none, while another path does answer --> the doubted path is abandoned, so that the peer
//!                                                has to send its data elsewhere
//! ```
//!
//! Where nothing at all is acknowledged, [`inquiry`](super::inquiry) finds the dead path.

use super::Connection;
use super::failover::MAX_PROBE_INTERVAL;
use crate::path::state::{Health, Path};
use crate::time::{Duration, Instant};

/// PTOs without stream data after which the paths are probed: a peer of our kind notices after one
/// and needs a round trip to mend the gap.
const PTOS_QUIET: u32 = 3;

/// PTOs a doubted path is left its data, and the time that is at least.
const PTOS_TO_MEND: u32 = 6;
const SHORTEST_MEND: Duration = Duration::from_secs(2);

impl Connection {
    /// Whether data waits in vain for what should have come before it, and may come elsewhere.
    fn misses_data(&self) -> bool {
        self.streams.has_gap() && self.paths.open_count() > 1 && self.multipath_active()
    }

    /// When to ask a path whether it is alive, because something is missing.
    pub(super) fn gap_probe_deadline(&self, path: &Path) -> Option<Instant> {
        if !self.misses_data() {
            return None;
        }
        let quiet = path.pto(self.peer_max_ack_delay()) * PTOS_QUIET;
        let heard = path.last_ack.unwrap_or(self.data_came);
        let since = heard.max(self.data_came);
        Some(since + quiet.max(MAX_PROBE_INTERVAL))
    }

    /// When to abandon a doubted path, because what is missing does not come by another one.
    pub(super) fn gap_deadline(&self, path: &Path) -> Option<Instant> {
        let Health::Doubtful { since } = path.health else {
            return None;
        };
        if !self.misses_data() {
            return None;
        }
        let others = self.paths.open().filter_map(|slot| slot.open());
        let answering = others
            .filter(|other| other.is_healthy() && other.last_ack.is_some_and(|ack| ack > since))
            .filter_map(|other| other.answers_since)
            .min()?;
        let patience = path.pto(self.peer_max_ack_delay()) * PTOS_TO_MEND;
        let from = since.max(self.data_came).max(answering);
        Some(from + patience.max(SHORTEST_MEND))
    }
}
