//! Watching interfaces appear, disappear and change.

use super::{Interface, list_with};
use crate::netlink::NetlinkError;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rtnetlink::{Handle, MulticastGroup};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// How long the kernel must be quiet before the state is read. Plugging in an interface causes a
/// dozen notifications within a few milliseconds.
const SETTLE: Duration = Duration::from_millis(20);

/// The longest that continuous notifications may postpone reading.
const SETTLE_AT_MOST: Duration = Duration::from_millis(200);

/// What happened to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An interface appeared.
    Added(Interface),
    /// An interface's state, addresses or default route changed.
    Updated(Interface),
    /// An interface is gone.
    Removed {
        /// The index it had.
        index: u32,
        /// The name it had.
        name: String,
    },
}

/// Watches the interfaces of the network namespace it was created in.
///
/// Notifications only serve as a hint that something changed; what changed is found by reading the
/// state and comparing it with the previous one. A lost notification (the kernel drops them when
/// the socket's buffer is full, and reports that) therefore cannot lead to a wrong picture.
pub struct Watch {
    handle: Handle,
    /// The task that has the socket. It would notice with the next message that nobody listens.
    _connection: Connection,
    hints: BoxStream<'static, ()>,
    /// When the first hint came that the state has not been read since. It is kept here and not by
    /// whoever waits: those may stop waiting before the state is read.
    stale_since: Option<Instant>,
    known: Vec<Interface>,
    changes: VecDeque<Change>,
}

impl Watch {
    /// Starts watching. The interfaces present now are in [`current`](Self::current) and are not
    /// reported as changes.
    ///
    /// # Errors
    ///
    /// Netlink is not available.
    pub async fn start() -> Result<Self, NetlinkError> {
        let (connection, handle, hints) = rtnetlink::new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        let connection = Connection(tokio::spawn(connection));
        // Subscribe first and read second, so that no change is missed in between.
        let known = list_with(&handle).await?;
        Ok(Self {
            handle,
            _connection: connection,
            hints: hints.map(drop).boxed(),
            stale_since: None,
            known,
            changes: VecDeque::new(),
        })
    }

    /// The interfaces, including all changes that [`next`](Self::next) has returned or is about to
    /// return.
    pub fn current(&self) -> &[Interface] {
        &self.known
    }

    /// Waits for the next change. Cancelling loses nothing.
    ///
    /// # Errors
    ///
    /// The state can no longer be read.
    pub async fn next(&mut self) -> Result<Change, NetlinkError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let since = match self.stale_since {
                Some(since) => since,
                None => self.hint().await?,
            };
            self.settle(since).await;
            let now = list_with(&self.handle).await?;
            // Whatever has changed since the state was read sends a hint that is still to come.
            self.stale_since = None;
            self.changes.extend(diff(&self.known, &now));
            self.known = now;
        }
    }

    /// Waits for a hint; returns when it came.
    async fn hint(&mut self) -> Result<Instant, NetlinkError> {
        if self.hints.next().await.is_none() {
            return Err(NetlinkError::Failed {
                what: "following interfaces".into(),
                reason: "the netlink connection ended".into(),
            });
        }
        Ok(*self.stale_since.insert(Instant::now()))
    }

    /// Waits until the kernel is quiet, but not for long.
    async fn settle(&mut self, since: Instant) {
        let latest = since + SETTLE_AT_MOST;
        while let Ok(Some(())) =
            timeout_at(latest.min(Instant::now() + SETTLE), self.hints.next()).await
        {}
    }
}

/// A task that ends with its owner.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// The changes that turn `old` into `new`; both are in order of index.
pub(super) fn diff(old: &[Interface], new: &[Interface]) -> Vec<Change> {
    let find = |list: &[Interface], index: u32| {
        list.binary_search_by_key(&index, |interface| interface.index)
            .ok()
    };
    let removed = old.iter().filter(|gone| find(new, gone.index).is_none());
    let mut changes: Vec<Change> = removed
        .map(|gone| Change::Removed {
            index: gone.index,
            name: gone.name.clone(),
        })
        .collect();
    for interface in new {
        match find(old, interface.index).map(|at| &old[at]) {
            None => changes.push(Change::Added(interface.clone())),
            Some(before) if before != interface => changes.push(Change::Updated(interface.clone())),
            Some(_) => {}
        }
    }
    changes
}
