//! When a path is asked that only rests.
//!
//! A server does not know what a question costs on the client's links, and nothing on the wire
//! tells it. So it can follow the client: it lets a path rest nearly as long as the client does.
//! Nearly, so that both do not ask at the same moment.
//!
//! ```text
//! client   rests 25 s, asks          rests 25 s after the server's question, asks
//! server                  rests 23 s, asks                                   rests 23 s, asks
//! ```
//! If the client does not ask again, the server falls back to its own interval.

use super::Liveness;
use crate::time::{Duration, Instant};

/// A shorter rest is a pause of the application, or one between two probes of a doubted path.
const SHORTEST_REST: Duration = Duration::from_secs(4);

/// How long a path may rest before it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rest {
    /// The longest; `None` means for ever.
    pub(crate) most: Option<Duration>,
    /// A peer that asked after a shorter rest is followed.
    pub(crate) follows: bool,
}

impl Liveness {
    /// A packet came. After a long rest it is a question, or data, which says as much.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        let rest = now.since(self.last_activity);
        if rest >= SHORTEST_REST {
            self.peers_rest = Some(rest);
            // The PING of a keep-alive is no probe that follows another.
            self.on_other_question();
        }
        self.last_heard = Some(now);
        self.on_activity(now);
    }

    /// How long a path may rest until it is asked; `None` means for ever.
    pub(crate) fn longest_rest(&self, rest: Rest) -> Option<Duration> {
        let peers = self.peers_rest.filter(|_| rest.follows);
        let followed = peers.map(|peers| peers * 15 / 16);
        rest.most.into_iter().chain(followed).min()
    }

    /// When a path is asked over which nothing goes.
    pub(super) fn rest_deadline(&self, rest: Rest) -> Option<Instant> {
        let most = self.longest_rest(rest);
        most.map(|most| self.last_activity + most)
    }
}
