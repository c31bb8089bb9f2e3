//! A bound UDP socket (draft-ietf-masque-connect-udp-listen): one for all remote ends of a request,
//! so that all see the same port.
//!
//! ```text
//! context, or a datagram that names one ──> admitted: a flow of the client ──> may be sent to?
//! datagram of a remote end ──> sent to before, or another port there ──> the client
//! ```
//! Each remote end counts as a flow, and obeys the rules of targets. What others send is dropped
//! (RFC 4787: endpoint-independent mapping, address-dependent filtering).

use super::allow::Allow;
use super::anywhere::Anywhere;
use super::guests::{Flow, Guest};
use crate::UDP_IDLE;
use crate::payloads::{Counts, Gone, Payload, Remote, Remotes, Sink, Source, length};
use crate::records::{About, Listed, Records};
use crate::status::flow::Phase;
use crate::udp::lasting;
use anabranch_masque::Target;
use anabranch_tunnel::Treatment;
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Remote ends of a socket at a time, besides its target.
pub(super) const MAX_REMOTES: usize = 256;

/// What an exit decides by.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) allow: Arc<Allow>,
    pub(super) guest: Arc<Guest>,
    pub(super) max_flows: usize,
    pub(super) records: Arc<Records>,
}

/// A remote end.
#[derive(Debug)]
struct End {
    _flow: Flow,
    record: Listed,
    /// Whether something was sent there, as it may be.
    is_sent_to: bool,
    /// How the client asks for it to be carried; `None`: as the target of the request is.
    treatment: Option<Treatment>,
    last: Instant,
}

/// The socket, and whom it speaks to.
#[derive(Debug)]
pub(super) struct Bound {
    socket: Anywhere,
    /// The target of the request, if it has one.
    target: Option<SocketAddr>,
    rules: Rules,
    /// The number of the request's flow, by which the records of all tell that they share a port.
    port: u64,
    /// This machine's addresses when it was made: a first look, before something is sent.
    own: Option<Arc<[IpAddr]>>,
    ends: Mutex<BTreeMap<SocketAddr, End>>,
    /// Remote ends whose contexts are to be closed.
    gone: Gone,
    counts: Arc<Counts>,
}

impl Bound {
    pub(super) async fn new(
        socket: Anywhere,
        target: Option<SocketAddr>,
        rules: Rules,
        port: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            port,
            socket,
            target,
            own: rules.allow.own_addresses().await,
            counts: Arc::clone(&rules.guest.datagrams),
            rules,
            ends: Mutex::default(),
            gone: Gone::default(),
        })
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, End>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_target(&self, remote: SocketAddr) -> bool {
        self.target == Some(remote)
    }

    /// Takes a remote end in, if it can be one and there is room; returns whether it is one now.
    fn admit(&self, remote: SocketAddr) -> bool {
        let can_be = remote.port() != 0
            && remote.ip() == remote.ip().to_canonical()
            && self.socket.has_family_of(remote)
            && self.rules.allow.permits(remote, self.own.as_deref());
        if !can_be {
            return false;
        }
        let mut ends = self.ends();
        if self.is_target(remote) || ends.contains_key(&remote) {
            return true;
        }
        if ends.len() >= MAX_REMOTES {
            ends.retain(|_, end| end.last.elapsed() < UDP_IDLE);
        }
        let Rules {
            guest,
            max_flows,
            records,
            ..
        } = &self.rules;
        if ends.len() >= MAX_REMOTES {
            return false;
        }
        let Some(flow) = Flow::begin(guest, *max_flows) else {
            return false;
        };
        let record = records.begin(About {
            is_udp: true,
            target: Target::from(remote),
            source: None,
            client: Some(guest.id.to_string()),
        });
        record.enter(Phase::Target);
        record.shares(self.port);
        let end = End {
            _flow: flow,
            record,
            is_sent_to: false,
            treatment: None,
            last: Instant::now(),
        };
        ends.insert(remote, end);
        true
    }

    /// Whether datagrams may leave for a remote end; they are counted if so.
    async fn may_send(&self, remote: SocketAddr, run: &[Payload]) -> bool {
        if self.is_target(remote) || self.note_sent(remote, run) {
            return true;
        }
        // As for the target of a request, the rules are asked once, and by what holds now.
        if !self.admit(remote) || !self.rules.allow.leads_to(remote).await {
            self.ends().remove(&remote);
            self.gone.push(remote);
            return false;
        }
        if let Some(end) = self.ends().get_mut(&remote) {
            end.is_sent_to = true;
            end.record.enter(Phase::Open);
        }
        self.note_sent(remote, run)
    }

    /// Counts datagrams for a remote end that was sent to before, if it was.
    fn note_sent(&self, remote: SocketAddr, run: &[Payload]) -> bool {
        let mut ends = self.ends();
        let Some(end) = ends.get_mut(&remote).filter(|end| end.is_sent_to) else {
            return false;
        };
        end.last = Instant::now();
        end.record.carried_out(length(run));
        end.record.received(run.len() as u64);
        true
    }

    /// Whether a datagram of this remote end is wanted.
    fn is_wanted(
        &self,
        ends: &mut BTreeMap<SocketAddr, End>,
        now: Instant,
        remote: SocketAddr,
    ) -> bool {
        if self.is_target(remote) {
            return true;
        }
        if let Some(end) = ends.get_mut(&remote)
            && end.is_sent_to
        {
            end.last = now;
            return true;
        }
        // Another port of an address that was sent to, as translators give.
        let ip = remote.ip();
        let from = SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX);
        self.target.is_some_and(|target| target.ip() == ip)
            || ends.range(from).any(|(_, end)| end.is_sent_to)
    }

    /// Ends what remote ends refuse; an error if that was the only one.
    fn hear(&self) -> io::Result<()> {
        for refused in self.socket.refused() {
            let mut ends = self.ends();
            if let Some(end) = ends.remove(&refused) {
                end.record.ends(&"the target refuses datagrams");
                self.gone.push(refused);
            } else if self.is_target(refused) && ends.is_empty() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        Ok(())
    }

    /// Datagrams could not be sent; returns the error if that ends all.
    fn failed(&self, to: SocketAddr, count: usize, error: io::Error) -> io::Result<()> {
        self.hear()?;
        // What keeps datagrams from one remote end, such as a firewall, is no reason to end the
        // others. A request with nothing but its target ends, as with a connected socket.
        if self.is_target(to) && self.ends().is_empty() {
            return lasting(Err(error));
        }
        self.counts.lose(count as u64);
        Ok(())
    }
}

/// What decides about the contexts of the client.
#[derive(Debug)]
pub(super) struct Gate(pub(super) Arc<Bound>);

impl Remotes for Gate {
    fn allows(&self, remote: SocketAddr) -> bool {
        self.0.admit(remote)
    }

    fn closed(&self, remote: SocketAddr, _: bool) {
        self.0.ends().remove(&remote);
    }

    fn treat(&self, remote: SocketAddr, treatment: Treatment) {
        if let Some(end) = self.0.ends().get_mut(&remote) {
            end.treatment = Some(treatment);
        }
    }

    fn find(&self, remote: SocketAddr) -> Option<Remote> {
        let ends = self.0.ends();
        let end = ends.get(&remote)?;
        Some(Remote {
            treatment: end.treatment,
            record: Arc::clone(&end.record),
            moved: None,
        })
    }
}

/// What remote ends send.
pub(super) struct FromAll<'a> {
    pub(super) bound: &'a Bound,
    pub(super) arena: BytesMut,
}

impl Source for FromAll<'_> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        let (bound, before) = (self.bound, into.len());
        tokio::select! {
            received = bound.socket.receive(&mut self.arena, into) => lasting(received)?,
            () = bound.gone.wait() => {}
        }
        if into.len() == before {
            bound.hear()?;
        }
        let mut kept = before;
        let (mut ends, now) = (bound.ends(), Instant::now());
        for at in before..into.len() {
            let from = into[at].remote;
            if from.is_some_and(|from| bound.is_wanted(&mut ends, now, from)) {
                into[at].remote = from.filter(|from| !bound.is_target(*from));
                into.swap(kept, at);
                kept += 1;
            }
        }
        into.truncate(kept);
        Ok(true)
    }

    fn gone(&mut self) -> Option<SocketAddr> {
        self.bound.gone.pop()
    }
}

/// What is sent to remote ends.
pub(super) struct ToAll<'a>(pub(super) &'a Bound);

impl Sink for ToAll<'_> {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        self.send_run(std::slice::from_ref(&payload)).await
    }

    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        let bound = self.0;
        let to = match run.first().and_then(|first| first.remote) {
            None => bound.target,
            Some(remote) if bound.may_send(remote, run).await => Some(remote),
            Some(_) => None,
        };
        let Some(to) = to else {
            bound.counts.lose(run.len() as u64);
            return Ok(());
        };
        match bound.socket.send_joined(run, to).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => return bound.failed(to, run.len(), error),
        }
        for payload in run {
            if let Err(error) = bound.socket.send_to(&payload.bytes, to).await {
                bound.failed(to, 1, error)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn bound() -> Arc<Bound> {
        let guest = Guest::new(serde_json::from_str("\"0123456789\"").unwrap());
        let rules = Rules {
            allow: Arc::new(Allow::new(vec!["127.0.0.1".parse().unwrap()])),
            guest: Arc::new(guest),
            max_flows: 9,
            records: Arc::default(),
        };
        let target = Some(SocketAddr::from(([127, 0, 0, 1], 9)));
        Bound::new(Anywhere::open().unwrap(), target, rules, 7).await
    }

    #[tokio::test]
    async fn what_a_remote_end_sends_is_carried_as_the_client_asks_as_long_as_it_is_open() {
        let gate = Gate(bound().await);
        let remote = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let of = |port| gate.find(remote(port)).map(|found| found.treatment);
        let swift = Treatment {
            deadline: Some(Duration::from_millis(100)),
            ..Treatment::default()
        };
        assert!(gate.allows(remote(1)) && gate.allows(remote(2)) && gate.allows(remote(9)));
        assert_eq!(of(1), Some(None), "as the target");
        for port in [1, 3, 9] {
            gate.treat(remote(port), swift);
        }
        assert_eq!(of(1), Some(Some(swift)));
        assert_eq!(of(2), Some(None), "it is another one");
        assert_eq!(
            (of(3), of(9)),
            (None, None),
            "nobody, and the target itself"
        );
        gate.closed(remote(1), true);
        assert_eq!(of(1), None);
        assert!(gate.allows(remote(1)));
        assert_eq!(of(1), Some(None), "it begins anew");
    }
}
