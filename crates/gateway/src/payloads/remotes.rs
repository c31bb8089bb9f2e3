//! Remote ends of a bound socket, other than the request's target.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Remote ends that wait to be closed: more than a request has at a time. One that finds no room
/// is refused again with its next datagram.
const MAX_GONE: usize = 1024;

/// Who decides about them.
pub(crate) trait Remotes: Send + Sync {
    /// Whether the peer may register a context for this one.
    fn allows(&mut self, remote: SocketAddr) -> bool;

    /// The peer has closed the context of this one, which it had taken before if it `was_open`, or
    /// else has refused.
    fn closed(&mut self, remote: SocketAddr, was_open: bool);
}

/// There are none.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Remotes for Nobody {
    fn allows(&mut self, _: SocketAddr) -> bool {
        false
    }

    fn closed(&mut self, _: SocketAddr, _: bool) {}
}

/// Those whose contexts are to be closed.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    waiting: Mutex<BTreeSet<SocketAddr>>,
    more: Notify,
}

impl Gone {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, remote: SocketAddr) {
        let mut waiting = self.lock();
        if waiting.len() < MAX_GONE {
            waiting.insert(remote);
        }
        drop(waiting);
        self.more.notify_one();
    }

    pub(crate) fn pop(&self) -> Option<SocketAddr> {
        self.lock().pop_first()
    }

    /// Waits until there are some. Can be cancelled without a loss.
    pub(crate) async fn wait(&self) {
        self.more.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_has_refused_waits_once_and_within_a_bound() {
        let gone = Gone::default();
        for number in 0..3 * MAX_GONE {
            let low = u16::try_from(number % (2 * MAX_GONE)).unwrap();
            gone.push(SocketAddr::from(([192, 0, 2, 1], low + 1)));
        }
        let mut popped = BTreeSet::new();
        while let Some(remote) = gone.pop() {
            assert!(popped.insert(remote), "{remote} twice");
        }
        assert_eq!(popped.len(), MAX_GONE);
    }
}
