//! Remote ends of a bound socket, other than the request's target.

use super::Payload;
use crate::records::{Record, Tally};
use crate::relay::Moved;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::Treatment;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Remote ends that wait to be closed: more than a request has at a time. One that finds no room
/// is refused again with its next datagram.
const MAX_GONE: usize = 1024;

/// A remote end that is a flow of its own.
#[derive(Debug)]
pub(crate) struct Remote {
    /// How its payloads are carried; `None`: as the target's are.
    pub(crate) treatment: Option<Treatment>,
    pub(crate) record: Arc<Record>,
    /// Where its bytes are counted; `None`: where the target's are.
    pub(crate) moved: Option<Arc<Moved>>,
}

/// Who decides about them.
pub(crate) trait Remotes: fmt::Debug + Send + Sync {
    /// Whether the peer may register a context for this one.
    fn allows(&self, remote: SocketAddr) -> bool;

    /// The peer has closed the context of this one, which it had taken before if it `was_open`, or
    /// else has refused.
    fn closed(&self, remote: SocketAddr, was_open: bool);

    /// The peer asks for this treatment of what comes of this one.
    fn treat(&self, _remote: SocketAddr, _treatment: Treatment) {}

    /// This one, if it is a flow.
    fn find(&self, _remote: SocketAddr) -> Option<Remote> {
        None
    }
}

/// There are none.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Remotes for Nobody {
    fn allows(&self, _: SocketAddr) -> bool {
        false
    }

    fn closed(&self, _: SocketAddr, _: bool) {}
}

/// Counts datagrams of a request for the node, and for the remote end that they are of: each is a
/// flow with a record of its own. `None` is the target.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) tally: Tally,
    pub(super) remotes: Arc<dyn Remotes>,
}

impl Counted {
    /// The remote end, unless that is the target or one that was never sent to.
    pub(super) fn find(&self, remote: Option<SocketAddr>) -> Option<Remote> {
        self.remotes.find(remote?)
    }

    /// The record of a remote end, which was looked for already.
    fn record<'a>(
        &'a self,
        remote: Option<SocketAddr>,
        found: Option<&'a Remote>,
    ) -> Option<&'a Record> {
        match found {
            Some(found) => Some(&found.record),
            None => remote.is_none().then_some(&self.tally.record),
        }
    }

    /// The number of the flow that a datagram for this remote end is of; 0 if it is of none.
    pub(super) fn number(&self, remote: Option<SocketAddr>, found: Option<&Remote>) -> u64 {
        self.record(remote, found).map_or(0, Record::number)
    }

    fn with_record(&self, remote: Option<SocketAddr>, count: impl FnOnce(&Record)) {
        if let Some(record) = self.record(remote, self.find(remote).as_ref()) {
            count(record);
        }
    }

    pub(super) fn sent(&self, remote: Option<SocketAddr>, found: Option<&Remote>) {
        self.tally.all.sent.fetch_add(1, Ordering::Relaxed);
        if let Some(record) = self.record(remote, found) {
            record.sent();
        }
    }

    /// Whoever takes those of other remote ends counts them there.
    pub(super) fn received(&self, payloads: &[Payload]) {
        let (all, record) = (&self.tally.all, &self.tally.record);
        all.received
            .fetch_add(payloads.len() as u64, Ordering::Relaxed);
        let own = payloads.iter().filter(|one| one.is_of_target()).count();
        if own > 0 {
            record.received(own as u64);
        }
    }

    pub(super) fn lose(&self, count: u64, remote: Option<SocketAddr>) {
        if count > 0 {
            self.tally.all.lose(count);
            self.with_record(remote, |record| record.lost(count));
        }
    }

    /// Counts a datagram that had come already and was dropped.
    pub(super) fn repeated(&self, remote: Option<SocketAddr>) {
        self.tally.all.lose(1);
        self.with_record(remote, |record| record.repeated(1));
    }

    pub(super) fn held(&self, time: Duration, remote: Option<SocketAddr>) {
        self.tally.all.hold(time);
        self.with_record(remote, |record| record.held(time));
    }

    pub(super) fn came_by(
        &self,
        path: PathId,
        bytes: usize,
        remote: Option<SocketAddr>,
        found: Option<&Remote>,
    ) {
        if let Some(record) = self.record(remote, found) {
            record.came_by(path, bytes);
        }
    }
}

/// Remote ends whose contexts are to be closed.
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
