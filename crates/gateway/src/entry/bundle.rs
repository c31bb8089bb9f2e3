//! UDP of one port of a host: the targets that share a request, so that all see the same port of
//! the far end (draft-ietf-masque-connect-udp-listen).
//!
//! ```text
//! Free ──first target──> Opening ──granted──> Shared: further targets are branches of the first
//!   ^                       │ refused            or Apart: the far end gives each its own
//!   └───────────────────────┴── the first one ends, and all with it
//! ```

use super::policy::Classed;
use crate::payloads::{Activity, Gone, Payload, Remote, Remotes, Sink, Source, each};
use crate::records::Record;
use crate::relay::Moved;
use anabranch_masque::{Target, limits};
use anabranch_tunnel::Treatment;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// Branches of one request at a time. One more ends the one that was used least recently.
const MAX_BRANCHES: usize = 120;
/// A branch takes a context for its remote end and one for its numbers; the target's numbers and
/// the context of all other remote ends take one each.
const _: () = assert!(2 * MAX_BRANCHES + 2 <= limits::CONTEXTS);
/// Datagrams that wait for the request, and for each branch.
const MAX_WAITING: usize = 256;
/// Datagrams that are taken at a time.
const BATCH: usize = 64;
/// How long a target waits for the answer to the first one. Then it gets a request of its own.
const JOIN: Duration = Duration::from_secs(3);
/// How long a remote end is asked for by a request of its own, after the far end has refused it.
const APART: Duration = Duration::from_secs(60);
/// How many refused remote ends are remembered.
const MAX_APART: usize = 256;
/// Questions to resolvers have a port each: that makes forged answers hard (RFC 5452).
const RESOLVER: u16 = 53;

/// What carries further targets.
#[derive(Debug, Clone, Default)]
enum State {
    /// Nothing yet.
    #[default]
    Free,
    /// A request that is not answered yet.
    Opening,
    /// This request.
    Shared(Arc<Trunk>),
    /// A request for each, as the far end knows nothing else.
    Apart,
}

/// The targets of one port of a host.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    state: watch::Sender<State>,
    /// What the far end has refused, and when.
    apart: Mutex<BTreeMap<SocketAddr, Instant>>,
}

/// What a flow is to its bundle.
pub(super) enum Role {
    /// The first flow of its port.
    First(First),
    /// A further target, carried by the first flow's request.
    Branch(Arc<Trunk>, SocketAddr),
    /// A branch too, once the far end has said which address its name leads to.
    Named(Arc<Trunk>),
    /// A flow with a request of its own.
    Alone,
}

impl Bundle {
    /// What a flow to this target is to be.
    pub(super) async fn role(self: &Arc<Self>, target: &Target) -> Role {
        let address = target.address();
        if target.port == RESOLVER || address.is_some_and(|it| self.is_apart(it)) {
            return Role::Alone;
        }
        let mut state = self.state.subscribe();
        let joined = async {
            loop {
                let mut role = None;
                self.state.send_if_modified(|state| match state {
                    State::Free => {
                        *state = State::Opening;
                        role = Some(Role::First(First(Arc::clone(self))));
                        true
                    }
                    State::Shared(trunk) => {
                        let trunk = Arc::clone(trunk);
                        role = Some(match address {
                            Some(address) => Role::Branch(trunk, address),
                            None => Role::Named(trunk),
                        });
                        false
                    }
                    State::Opening => false,
                    State::Apart => {
                        role = Some(Role::Alone);
                        false
                    }
                });
                if let Some(role) = role {
                    return role;
                }
                let is_answered = |state: &State| !matches!(state, State::Opening);
                // The sender lives as long as this.
                let _ = state.wait_for(is_answered).await;
            }
        };
        timeout(JOIN, joined).await.unwrap_or(Role::Alone)
    }

    fn apart(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Instant>> {
        self.apart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_apart(&self, remote: SocketAddr) -> bool {
        let mut apart = self.apart();
        apart.retain(|_, since| since.elapsed() < APART);
        apart.contains_key(&remote)
    }

    /// The far end has refused a remote end.
    fn set_apart(&self, remote: SocketAddr) {
        let mut apart = self.apart();
        if apart.len() >= MAX_APART {
            let oldest = apart.iter().min_by_key(|(_, since)| **since);
            let oldest = oldest.map(|(remote, _)| *remote);
            oldest.and_then(|oldest| apart.remove(&oldest));
        }
        apart.insert(remote, Instant::now());
    }
}

/// The bundles of many hosts, by their ports.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    of: BTreeMap<SocketAddr, Weak<Bundle>>,
    /// When those that have ended are looked for.
    full: usize,
}

impl Bundles {
    /// The bundle of one port of a host.
    pub(super) fn of(&mut self, host: SocketAddr) -> Arc<Bundle> {
        if let Some(bundle) = self.of.get(&host).and_then(Weak::upgrade) {
            return bundle;
        }
        if self.of.len() >= self.full {
            self.of.retain(|_, bundle| bundle.strong_count() > 0);
            self.full = 2 * self.of.len() + 64;
        }
        let bundle = Arc::<Bundle>::default();
        self.of.insert(host, Arc::downgrade(&bundle));
        bundle
    }
}

/// The first flow of a bundle. The next one is the first when it is dropped.
pub(super) struct First(Arc<Bundle>);

impl First {
    /// Has this flow's request carry the other flows of the port too, until `self` is dropped.
    pub(super) fn share(
        &self,
        record: &Record,
        target: Option<IpAddr>,
    ) -> (Arc<Trunk>, mpsc::Receiver<Payload>) {
        record.shares(record.number());
        let (payloads, waiting) = mpsc::channel(MAX_WAITING);
        let trunk = Arc::new(Trunk {
            payloads,
            bundle: Arc::downgrade(&self.0),
            port: record.number(),
            target,
            branches: Mutex::default(),
            gone: Gone::default(),
        });
        let shared = State::Shared(Arc::clone(&trunk));
        self.0.state.send_replace(shared);
        (trunk, waiting)
    }

    /// The far end gives each target a request of its own.
    pub(super) fn stay_apart(&self) {
        self.0.state.send_replace(State::Apart);
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let State::Shared(trunk) = self.0.state.send_replace(State::Free) {
            // Ends the branches, which would wait for payloads that come no more.
            trunk.branches().clear();
        }
    }
}

/// Why the far end carries a branch no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The far end never carried it.
    Refused,
    /// The remote end takes no datagrams, as it seems.
    Deaf,
}

#[derive(Debug)]
struct Branch {
    payloads: mpsc::Sender<Bytes>,
    flow: Branching,
    end: Arc<OnceLock<End>>,
}

/// A flow that is to be a branch.
#[derive(Debug)]
pub(super) struct Branching {
    activity: Arc<Activity>,
    record: Arc<Record>,
    treatment: Treatment,
    moved: Arc<Moved>,
}

impl Branching {
    pub(super) fn new(class: &Classed, record: &Arc<Record>, activity: &Arc<Activity>) -> Self {
        Self {
            activity: Arc::clone(activity),
            record: Arc::clone(record),
            treatment: class.treatment,
            moved: Arc::clone(class.moved()),
        }
    }
}

/// A request that carries many targets.
#[derive(Debug)]
pub(super) struct Trunk {
    payloads: mpsc::Sender<Payload>,
    bundle: Weak<Bundle>,
    /// The number of the first flow, by which the records of all tell that they share a port.
    port: u64,
    /// Where the first flow leads, if that is known.
    target: Option<IpAddr>,
    branches: Mutex<BTreeMap<SocketAddr, Branch>>,
    /// Branches that have ended here.
    gone: Gone,
}

impl Trunk {
    fn branches(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Branch>> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the request can carry this remote end, which a name has led to. It carries none for
    /// two flows.
    pub(super) fn can_carry(&self, remote: SocketAddr) -> bool {
        let is_apart = |bundle: Arc<Bundle>| bundle.is_apart(remote);
        !self.payloads.is_closed()
            && !self.bundle.upgrade().is_none_or(is_apart)
            && !self.branches().contains_key(&remote)
    }

    /// Carries this remote end too, until what is returned is dropped.
    pub(super) fn attach(self: &Arc<Self>, remote: SocketAddr, flow: Branching) -> Attached {
        let (payloads, waiting) = mpsc::channel(MAX_WAITING);
        flow.record.shares(self.port);
        let branch = Branch {
            payloads,
            flow,
            end: Arc::default(),
        };
        let end = Arc::clone(&branch.end);
        let mut branches = self.branches();
        if branches.len() >= MAX_BRANCHES && !branches.contains_key(&remote) {
            let oldest = branches
                .iter()
                .min_by_key(|(_, one)| one.flow.activity.last());
            if let Some(oldest) = oldest.map(|(remote, _)| *remote) {
                branches.remove(&oldest);
                self.gone.push(oldest);
            }
        }
        branches.insert(remote, branch);
        Attached {
            trunk: Arc::clone(self),
            remote,
            waiting,
            end,
        }
    }

    /// Whether something was sent to this address. Only the near end decides that.
    fn has_sent_to(&self, ip: IpAddr) -> bool {
        let branches = self.branches();
        let from = SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX);
        self.target == Some(ip) || branches.range(from).next().is_some()
    }

    /// Hands a payload to the branch of its remote end, which takes it as fast as its host does.
    /// Returns it if there is no such branch.
    async fn deliver(&self, remote: SocketAddr, bytes: Bytes) -> Option<Bytes> {
        let full = {
            let branches = self.branches();
            let Some(branch) = branches.get(&remote) else {
                return Some(bytes);
            };
            match branch.payloads.try_send(bytes) {
                Err(TrySendError::Full(bytes)) => Some((branch.payloads.clone(), bytes)),
                // It ends just now.
                Ok(()) | Err(TrySendError::Closed(_)) => None,
            }
        };
        if let Some((payloads, bytes)) = full {
            // An error means that it has ended meanwhile.
            let _ = payloads.send(bytes).await;
        }
        None
    }
}

/// What waits besides.
pub(super) fn rest<T>(waiting: &mut mpsc::Receiver<T>) -> impl Iterator<Item = T> {
    std::iter::from_fn(|| waiting.try_recv().ok()).take(BATCH)
}

/// A branch of a trunk.
pub(super) struct Attached {
    trunk: Arc<Trunk>,
    remote: SocketAddr,
    waiting: mpsc::Receiver<Bytes>,
    end: Arc<OnceLock<End>>,
}

impl Attached {
    /// Hands a payload over once there is room; returns whether the request is carried still.
    pub(super) async fn send(&self, bytes: Bytes) -> bool {
        let remote = Some(self.remote);
        let sent = self.trunk.payloads.send(Payload { remote, bytes });
        sent.await.is_ok()
    }

    /// Waits for what the remote end sends; `None` if it is carried no more.
    pub(super) async fn receive(&mut self) -> Option<Bytes> {
        self.waiting.recv().await
    }

    /// What has come besides.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = Bytes> {
        rest(&mut self.waiting)
    }

    /// Why the far end has closed the branch; `None` if something else ended it.
    pub(super) fn end(&self) -> Option<End> {
        self.end.get().copied()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.waiting.close();
        let mut branches = self.trunk.branches();
        // Another branch may have taken its place.
        let is_its = |branch: &Branch| branch.payloads.is_closed();
        if branches.get(&self.remote).is_some_and(is_its) {
            branches.remove(&self.remote);
            self.trunk.gone.push(self.remote);
        }
    }
}

/// Hears what the far end says of remote ends.
#[derive(Debug)]
pub(super) struct Heard(pub(super) Arc<Trunk>);

impl Remotes for Heard {
    fn allows(&self, _: SocketAddr) -> bool {
        false
    }

    fn find(&self, remote: SocketAddr) -> Option<Remote> {
        let branches = self.0.branches();
        let flow = &branches.get(&remote)?.flow;
        Some(Remote {
            treatment: Some(flow.treatment),
            record: Arc::clone(&flow.record),
            moved: Some(Arc::clone(&flow.moved)),
        })
    }

    fn closed(&self, remote: SocketAddr, was_open: bool) {
        let end = if was_open { End::Deaf } else { End::Refused };
        if end == End::Refused
            && let Some(bundle) = self.0.bundle.upgrade()
        {
            bundle.set_apart(remote);
        }
        if let Some(branch) = self.0.branches().remove(&remote) {
            let _ = branch.end.set(end);
        }
    }
}

/// Both ends of the first flow's host, with those of the branches.
pub(super) fn with_branches<S: Source, K: Sink>(
    trunk: &Arc<Trunk>,
    waiting: mpsc::Receiver<Payload>,
    (source, sink): (S, K),
) -> (FromAll<S>, ToAll<K>) {
    let from = FromAll {
        first: source,
        waiting,
        trunk: Arc::clone(trunk),
    };
    let to = ToAll {
        first: sink,
        trunk: Arc::clone(trunk),
    };
    (from, to)
}

/// What the first flow's host sends, and the branches.
pub(super) struct FromAll<S> {
    first: S,
    waiting: mpsc::Receiver<Payload>,
    trunk: Arc<Trunk>,
}

impl<S: Source> Source for FromAll<S> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        tokio::select! {
            more = self.first.receive(into) => return more,
            Some(payload) = self.waiting.recv() => {
                into.push(payload);
                into.extend(rest(&mut self.waiting));
            }
            () = self.trunk.gone.wait() => {}
        }
        Ok(true)
    }

    fn gone(&mut self) -> Option<SocketAddr> {
        // A branch that was begun again meanwhile is not gone.
        std::iter::from_fn(|| self.trunk.gone.pop())
            .find(|remote| !self.trunk.branches().contains_key(remote))
    }

    // All flows of a port are of one host.
    fn too_large(&mut self, remote: Option<SocketAddr>, most: usize) {
        self.first.too_large(remote, most);
    }
}

/// What goes to the first flow's host, and to the branches.
pub(super) struct ToAll<K> {
    first: K,
    trunk: Arc<Trunk>,
}

impl<K: Sink> Sink for ToAll<K> {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        let Payload { remote, bytes } = payload;
        let Some(from) = remote else {
            return self.first.send(Payload { remote, bytes }).await;
        };
        if let Some(bytes) = self.trunk.deliver(from, bytes).await
            && self.trunk.has_sent_to(from.ip())
        {
            // It comes from another port of an address that something was sent to.
            return self.first.send(Payload { remote, bytes }).await;
        }
        Ok(())
    }

    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        if run.first().is_some_and(Payload::is_of_target) {
            return self.first.send_run(run).await;
        }
        each(self, run).await
    }
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
