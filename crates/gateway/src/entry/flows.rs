//! UDP flows of hosts: which there are, and the request that carries each.

use super::bundle::{Attached, Branching, Bundle, End, First, Heard, Role, Trunk, with_branches};
use super::policy::{Beginning, Classed};
use super::uplink::Granted;
use super::{Entry, Open};
use crate::payloads::{self, Activity, Nobody, Payload, Remotes, Sink, Source, Talk, relay};
use crate::records::{Listed, Meter, Tally};
use crate::refusal::Refusal;
use crate::relay::Cut;
use crate::status::flow::Phase;
use crate::udp::canonical;
use anabranch_masque::{Contexts, Protocol, Target};
use anabranch_proto::wire::Side;
use bytes::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Datagrams that wait for the request of their flow.
const MAX_WAITING: usize = 256;
/// How long a target that was refused is not asked for again.
pub(super) const REFUSED: Duration = Duration::from_secs(5);

/// One of them.
#[derive(Debug)]
struct Flow {
    payloads: mpsc::Sender<Bytes>,
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// What a flow begins with.
pub(super) struct Begun {
    /// Payloads for the tunnel, as they come.
    pub(super) waiting: mpsc::Receiver<Bytes>,
    /// When something was last carried.
    pub(super) activity: Arc<Activity>,
}

/// Flows by what tells them apart. They end with this.
pub(super) struct UdpFlows<K> {
    /// Flows at a time. One more ends the one that was used least recently.
    most: usize,
    flows: BTreeMap<K, Flow>,
    tasks: JoinSet<()>,
}

impl<K: Ord + Clone> UdpFlows<K> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            flows: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Hands a payload to its flow; returns whether there was room. If there is no such flow it is
    /// begun, and ends with what `begin` returns, or when nothing was carried for `idle`.
    pub(super) fn carry<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        key: &K,
        payload: Bytes,
        idle: Duration,
        begin: impl FnOnce(Begun) -> F,
    ) -> bool {
        while self.tasks.try_join_next().is_some() {}
        let flow = match self.flows.get(key) {
            Some(flow) if !flow.payloads.is_closed() => flow,
            _ => self.open(key, idle, begin),
        };
        flow.activity.note();
        flow.payloads.try_send(payload).is_ok()
    }

    fn open<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        key: &K,
        idle: Duration,
        begin: impl FnOnce(Begun) -> F,
    ) -> &Flow {
        if self.flows.len() >= self.most {
            self.flows.retain(|_, flow| !flow.payloads.is_closed());
        }
        if self.flows.len() >= self.most {
            let oldest = self.flows.iter();
            let oldest = oldest.min_by_key(|(_, flow)| flow.activity.last());
            let oldest = oldest.map(|(key, _)| key.clone());
            if let Some(flow) = oldest.and_then(|key| self.flows.remove(&key)) {
                flow.task.abort();
            }
        }
        let (payloads, waiting) = mpsc::channel(MAX_WAITING);
        let activity = Arc::new(Activity::new(idle));
        let begun = Begun {
            waiting,
            activity: Arc::clone(&activity),
        };
        let flow = Flow {
            payloads,
            task: self.tasks.spawn(begin(begun)),
            activity,
        };
        match self.flows.entry(key.clone()) {
            btree_map::Entry::Occupied(mut ended) => {
                ended.insert(flow);
                ended.into_mut()
            }
            btree_map::Entry::Vacant(free) => free.insert(flow),
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<K> {
        self.flows.keys().cloned().collect()
    }
}

impl Entry {
    /// Carries payloads between a host and a target, until nothing happens any more. `sink` is
    /// called once the target's address is known, if the far end tells it. Returns what broke, if
    /// something did.
    ///
    /// # Errors
    ///
    /// Why the target cannot be reached, before anything was carried.
    pub(super) async fn carry_udp<K: Sink>(
        &self,
        bundle: &Arc<Bundle>,
        (beginning, target): (Beginning, &Target),
        mut source: impl Source,
        sink: impl FnOnce(Option<SocketAddr>) -> K,
        activity: &Arc<Activity>,
    ) -> Result<Result<(), Cut>, Refusal> {
        let _open = Open::new(&self.flows.open);
        let flow = self.enlist(beginning.host, target, true);
        let class = self.policy.classify(beginning, target).await;
        class.mark(&flow);
        let role = if self.uplink.may_bind() {
            bundle.role(target).await
        } else {
            Role::Alone
        };
        let asked = (target, &class, &flow);
        // What the host has sent already leaves with the flow's own request, not after its answer.
        let (early, behind) = match role {
            Role::First(_) | Role::Alone if self.uplink.takes_early() => {
                match payloads::at_once(&mut source).await {
                    Ok(payloads) => payloads,
                    Err(error) => {
                        let cut = Cut::from(error);
                        flow.ends(&cut);
                        return Ok(Err(cut));
                    }
                }
            }
            _ => (Vec::new(), Vec::new()),
        };
        let mut source = Behind(behind, source);
        let (trunk, remote) = match self.place(role, asked, &early).await? {
            Place::Branch(trunk, remote) => (trunk, remote),
            Place::Own(first, granted) => {
                let ends = (source, sink);
                return Ok(self.lead(first, asked, *granted, ends, activity).await);
            }
        };
        let attached = trunk.attach(remote, Branching::new(&class, &flow, activity));
        let mut sink = sink(Some(remote));
        let ends = (&mut source, &mut sink);
        match self.branch(attached, &flow, ends, activity).await {
            Ok(ended) => {
                if let Err(cut) = &ended {
                    flow.ends(cut);
                }
                Ok(ended)
            }
            // The flow gets a request of its own, whose answer tells the reason.
            Err(unsent) => {
                let granted = self.request(asked, false, &[]).await?;
                let unsent = unsent.into_iter().map(Payload::of_target);
                let ends = (Behind(unsent.collect(), source), |_| sink);
                Ok(self.lead(None, asked, granted, ends, activity).await)
            }
        }
    }

    /// Finds what carries a flow by its role, with what may go before anything is known of that.
    async fn place(
        &self,
        role: Role,
        asked: (&Target, &Classed, &Listed),
        early: &[Payload],
    ) -> Result<Place, Refusal> {
        Ok(match role {
            Role::Branch(trunk, remote) => Place::Branch(trunk, remote),
            Role::First(first) => {
                let granted = self.request(asked, true, early).await?;
                Place::Own(Some(first), Box::new(granted))
            }
            Role::Alone => {
                let granted = self.request(asked, false, early).await?;
                Place::Own(None, Box::new(granted))
            }
            Role::Named(trunk) => {
                let granted = self.request(asked, false, &[]).await?;
                match granted.remote.map(canonical) {
                    Some(remote) if trunk.can_carry(remote) => {
                        let (_, _, flow) = asked;
                        granted.give_back();
                        flow.led_to(remote);
                        Place::Branch(trunk, remote)
                    }
                    _ => Place::Own(None, Box::new(granted)),
                }
            }
        })
    }

    /// Asks for a request that carries payloads to and from a target, and to others if it `binds`.
    async fn request(
        &self,
        (target, class, flow): (&Target, &Classed, &Listed),
        binds: bool,
        early: &[Payload],
    ) -> Result<Granted, Refusal> {
        let (wanted, treatment) = ((target, binds), &class.treatment);
        let opened = self.uplink.open_udp(wanted, early, treatment, flow).await;
        match &opened {
            Ok(_) => {
                let all = class.moved();
                Meter { all, record: flow }.inward(payloads::length(early));
                let tally = self.tally(flow);
                for _ in early {
                    tally.sent();
                }
            }
            Err(refusal) => {
                self.flows.refused.fetch_add(1, Ordering::Relaxed);
                flow.ends(refusal);
                tracing::info!("{target}, UDP: {refusal}");
            }
        }
        opened
    }

    /// Where the datagrams of a flow are counted.
    fn tally(&self, flow: &Listed) -> Tally {
        Tally {
            all: Arc::clone(&self.flows.datagrams),
            record: Arc::clone(flow),
        }
    }

    /// Carries payloads by the flow's own request, and those of other targets if the flow is the
    /// `first` of its port.
    async fn lead<K: Sink>(
        &self,
        first: Option<First>,
        (target, class, flow): (&Target, &Classed, &Listed),
        granted: Granted,
        (source, sink): (impl Source, impl FnOnce(Option<SocketAddr>) -> K),
        activity: &Activity,
    ) -> Result<(), Cut> {
        let flows = &self.flows;
        let Granted {
            agreed,
            remote,
            in_datagrams,
            ends,
        } = granted;
        flows.opened.fetch_add(1, Ordering::Relaxed);
        let shared = match &first {
            Some(first) if agreed.bind => {
                let ip = remote.or(target.address()).map(|address| address.ip());
                Some(first.share(flow, ip))
            }
            Some(first) => {
                first.stay_apart();
                None
            }
            None => None,
        };
        let remotes: Arc<dyn Remotes> = match &shared {
            Some((trunk, _)) => Arc::new(Heard(Arc::clone(trunk))),
            None => Arc::new(Nobody),
        };
        let contexts = Contexts::new(Side::Client, Protocol::Udp, agreed, true);
        let tally = self.tally(flow);
        let talk = Talk::of_udp(class.treatment, remotes, true);
        let halves = payloads::split(ends, contexts, in_datagrams, tally, talk);
        if let Some(remote) = remote {
            flow.led_to(remote);
        }
        flow.enter(Phase::Open);
        let meter = Meter {
            all: class.moved(),
            record: flow,
        };
        let sink = sink(remote);
        let carried = match shared {
            None => relay(source, sink, halves, meter, activity).await,
            Some((trunk, waiting)) => {
                let (source, sink) = with_branches(&trunk, waiting, (source, sink));
                relay(source, sink, halves, meter, activity).await
            }
        };
        if let Err(cut) = &carried {
            flow.ends(cut);
            tracing::debug!("{target}, UDP: {cut}");
        }
        carried
    }

    /// Carries payloads by the request of another flow.
    ///
    /// # Errors
    ///
    /// The far end does not carry them so. The error holds the payload that was not delivered.
    async fn branch(
        &self,
        mut attached: Attached,
        flow: &Listed,
        (source, sink): (&mut impl Source, &mut impl Sink),
        activity: &Activity,
    ) -> Result<Result<(), Cut>, Option<Bytes>> {
        self.flows.opened.fetch_add(1, Ordering::Relaxed);
        flow.enter(Phase::Open);
        let (mut payloads, mut answers, mut first) = (Vec::new(), Vec::new(), None);
        loop {
            tokio::select! {
                received = source.receive(&mut payloads) => {
                    let goes_on = match received {
                        Ok(goes_on) => goes_on,
                        Err(error) => return Ok(Err(error.into())),
                    };
                    for Payload { bytes, .. } in payloads.drain(..) {
                        if first.is_none() {
                            first = Some(bytes.clone());
                        }
                        if !attached.send(bytes).await {
                            return Ok(Ok(()));
                        }
                    }
                    activity.note();
                    if !goes_on {
                        return Ok(Ok(()));
                    }
                }
                received = attached.receive() => match received {
                    Some(bytes) => {
                        let all = std::iter::once(bytes).chain(attached.rest());
                        answers.extend(all.map(Payload::of_target));
                        flow.carried_out(payloads::length(&answers));
                        flow.received(answers.len() as u64);
                        if let Err(error) = payloads::send_all(&answers, sink).await {
                            return Ok(Err(error.into()));
                        }
                        answers.clear();
                        activity.note();
                    }
                    None => return match attached.end() {
                        Some(End::Refused) => {
                            // The branch was never open; the flow's own request counts.
                            self.flows.opened.fetch_sub(1, Ordering::Relaxed);
                            flow.enter(Phase::Target);
                            Err(first)
                        }
                        Some(End::Deaf) => Ok(Err(Cut::Deaf)),
                        None => Ok(Ok(())),
                    },
                },
                () = activity.over() => return Ok(Ok(())),
            }
        }
    }
}

/// What carries a flow.
enum Place {
    /// A request of its own, which carries others too if it is the first of them.
    Own(Option<First>, Box<Granted>),
    /// The request of another flow, which knows it by this remote end.
    Branch(Arc<Trunk>, SocketAddr),
}

/// A source that begins with what was received of it before.
struct Behind<S>(Vec<Payload>, S);

impl<S: Source> Source for Behind<S> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        if self.0.is_empty() {
            return self.1.receive(into).await;
        }
        into.append(&mut self.0);
        Ok(true)
    }

    fn gone(&mut self) -> Option<SocketAddr> {
        self.1.gone()
    }

    fn too_large(&mut self, remote: Option<SocketAddr>, most: usize) {
        self.1.too_large(remote, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn one_flow_too_many_ends_the_one_that_was_used_least_recently() {
        let mut flows = UdpFlows::new(2);
        let mut carry = async |key: u8| {
            let stay = |begun: Begun| async move {
                let _begun = begun;
                std::future::pending::<()>().await;
            };
            assert!(flows.carry(&key, Bytes::new(), Duration::from_secs(9), stay));
            sleep(Duration::from_millis(1)).await;
            flows.keys()
        };
        carry(1).await;
        carry(2).await;
        carry(1).await;
        assert_eq!(carry(3).await, [1, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_that_has_ended_begins_anew_and_one_that_is_full_takes_no_more() {
        let mut flows = UdpFlows::new(2);
        let idle = Duration::from_secs(9);
        assert!(flows.carry(&7, Bytes::new(), idle, |begun| async { drop(begun) }));
        sleep(Duration::from_millis(1)).await;
        let mut carry = || {
            let stay = |begun: Begun| async move {
                sleep(idle).await;
                drop(begun);
            };
            flows.carry(&7, Bytes::new(), idle, stay)
        };
        let started = Instant::now();
        assert!((0..MAX_WAITING).all(|_| carry()));
        assert!(!carry());
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
