//! Remote ends of a bound socket, other than the request's target.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

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
    list: Mutex<Vec<SocketAddr>>,
    more: Notify,
}

impl Gone {
    pub(crate) fn push(&self, remote: SocketAddr) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(remote);
        drop(list);
        self.more.notify_one();
    }

    pub(crate) fn pop(&self) -> Option<SocketAddr> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.pop()
    }

    /// Waits until there are some. Can be cancelled without a loss.
    pub(crate) async fn wait(&self) {
        self.more.notified().await;
    }
}
