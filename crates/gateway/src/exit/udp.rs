//! UDP of the exit (RFC 9298): a socket for each request, which lasts as long as that. It is
//! connected to the target, or bound if the client asks for that.

use super::allow::Allow;
use super::anywhere::Anywhere;
use super::bound::{Bound, FromAll, Gate, Rules, ToAll};
use super::guests::{Flow, Guest};
use super::names::Names;
use super::{Exit, HEAD, Visit, tcp};
use crate::UDP_IDLE;
use crate::payloads::{
    self, Activity, Nobody, Payload, Receiver, Remotes, Sender, Sink, Source, Talk, each, relay,
};
use crate::records::{Meter, Record, Tally};
use crate::refusal::Refusal;
use crate::relay::Cut;
use crate::session::{Broken, Incoming, Outgoing};
use crate::status::flow::Phase;
use crate::udp::{Socket, canonical, lasting};
use anabranch_masque::extensions::put_public_addresses;
use anabranch_masque::{
    Contexts, Extensions, Headers, Host, Protocol, ProxyStatus, Response, Settings, Target,
    proxy_status,
};
use anabranch_proto::wire::Side;
use anabranch_tunnel::Treatment;
use bytes::BytesMut;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::time::timeout;

/// What stands for the target of a request that has none.
const ANYBODY: Target = Target {
    host: Host::V4(Ipv4Addr::UNSPECIFIED),
    port: 0,
};

/// What a request is carried by.
enum Way {
    Connected(Socket),
    Bound(Arc<Bound>),
}

/// A request that is granted.
struct Led {
    flow: Flow,
    way: Way,
    /// Where its target is, if it has one.
    remote: Option<SocketAddr>,
    /// What is told of the socket's own addresses.
    public: Vec<SocketAddr>,
}

impl Exit {
    /// Carries UDP between a client and a target, or whomever it names if there is none.
    pub(super) async fn associate(
        &self,
        visit: &Visit,
        guest: &Arc<Guest>,
        target: Option<Target>,
        (offered, treatment): (Extensions, Treatment),
        (mut outgoing, incoming): (Outgoing, Incoming),
    ) -> Result<(), Broken> {
        // What a client sends before it has the answer waits for it.
        let datagrams = visit.session.datagrams(outgoing.id());
        let agreed = payloads::OURS.and(offered);
        let shown = target.clone().unwrap_or(ANYBODY);
        let record = self.enlist(guest, &shown, true);
        let led = tokio::select! {
            led = self.lead(guest, target.as_ref(), agreed.bind.then_some(&record)) => led,
            broken = outgoing.given_up() => return Err(broken),
        };
        let led = match led {
            Ok(led) => led,
            Err(refusal) => {
                record.ends(&refusal);
                tracing::debug!("{shown}, UDP: {refusal}");
                return outgoing.answer(incoming, &refusal.response()).await;
            }
        };
        // A peer that says nothing about itself is taken to know no datagrams.
        let settings = timeout(HEAD, visit.session.settings()).await;
        let settings = settings.unwrap_or_else(|_| Ok(Settings::default()))?;
        let in_datagrams = visit.session.has_datagrams(&settings);
        outgoing.treat(&treatment);
        outgoing.head(&led.response(agreed).to_fields()).await?;
        let contexts = Contexts::new(Side::Server, Protocol::Udp, agreed, target.is_some());
        let ends = (outgoing, incoming, datagrams);
        let tally = Tally {
            all: led.flow.datagrams(),
            record: Arc::clone(&record),
        };
        let talk = Talk::of_udp(treatment, led.gate(), false);
        let halves = payloads::split(ends, contexts, in_datagrams, tally, talk);
        if let Some(remote) = led.remote {
            record.led_to(remote);
        }
        record.enter(Phase::Open);
        let meter = Meter {
            all: led.flow.moved(),
            record: &record,
        };
        if let Err(cut) = led.carry(halves, meter).await {
            record.ends(&cut);
            tracing::debug!("{shown}, UDP: {cut}");
        }
        Ok(())
    }

    async fn lead(
        &self,
        guest: &Arc<Guest>,
        target: Option<&Target>,
        bound_as: Option<&Record>,
    ) -> Result<Led, Refusal> {
        let flow = Flow::begin(guest, self.max_flows).ok_or(Refusal::TooMany)?;
        let connected = match target {
            Some(target) => Some(connect(target, &guest.names, &self.allow).await?),
            None => None,
        };
        let remote = connected.as_ref().map(|(_, remote)| *remote);
        let (way, public) = match (connected, bound_as) {
            // The connected socket has shown that there is a route.
            (_, Some(record)) => self
                .bind(guest, remote, record)
                .await
                .map_err(|error| tcp::refusal(&error))?,
            (Some((socket, _)), None) => (Way::Connected(socket), Vec::new()),
            (None, None) => return Err(Refusal::BadTarget),
        };
        Ok(Led {
            flow,
            way,
            remote,
            public,
        })
    }

    async fn bind(
        &self,
        guest: &Arc<Guest>,
        target: Option<SocketAddr>,
        record: &Record,
    ) -> io::Result<(Way, Vec<SocketAddr>)> {
        let socket = Anywhere::open()?;
        let public = socket.addresses().await?;
        let rules = Rules {
            allow: Arc::clone(&self.allow),
            guest: Arc::clone(guest),
            max_flows: self.max_flows,
            records: Arc::clone(&self.records),
        };
        let (target, port) = (target.map(canonical), record.number());
        record.shares(port);
        let bound = Bound::new(socket, target, rules, port).await;
        Ok((Way::Bound(bound), public))
    }
}

impl Led {
    fn gate(&self) -> Arc<dyn Remotes> {
        match &self.way {
            Way::Connected(_) => Arc::new(Nobody),
            Way::Bound(bound) => Arc::new(Gate(Arc::clone(bound))),
        }
    }

    /// Success, with the address that a name has led to and those of the bound socket.
    fn response(&self, agreed: Extensions) -> Response {
        let status = ProxyStatus {
            proxy: crate::AUTHORITY.into(),
            next_hop: self.remote.map(|remote| remote.to_string()),
            ..ProxyStatus::default()
        };
        let mut headers = Headers::new().with(proxy_status::NAME, status.to_value());
        agreed.put(&mut headers);
        if agreed.bind {
            put_public_addresses(&mut headers, &self.public);
        }
        Response {
            status: 200,
            headers,
        }
    }

    async fn carry(&self, halves: (Sender, Receiver), meter: Meter<'_>) -> Result<(), Cut> {
        let (activity, arena) = (Activity::new(UDP_IDLE), BytesMut::new());
        match &self.way {
            Way::Connected(socket) => {
                let source = FromTarget { socket, arena };
                relay(source, ToTarget(socket), halves, meter, &activity).await
            }
            Way::Bound(bound) => {
                let source = FromAll { bound, arena };
                relay(source, ToAll(bound), halves, meter, &activity).await
            }
        }
    }
}

/// A socket for the first address of the target that may be sent to and has a route.
async fn connect(
    target: &Target,
    names: &Names,
    allow: &Allow,
) -> Result<(Socket, SocketAddr), Refusal> {
    let mut failure = Refusal::Prohibited;
    for remote in names.addresses(target, allow).await? {
        match Socket::connect(remote).await {
            Ok(socket) => return Ok((socket, remote)),
            Err(error) => failure = tcp::refusal(&error),
        }
    }
    Err(failure)
}

/// What the target sends.
struct FromTarget<'a> {
    socket: &'a Socket,
    arena: BytesMut,
}

impl Source for FromTarget<'_> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        let before = into.len();
        lasting(self.socket.receive(&mut self.arena, into).await)?;
        for payload in &mut into[before..] {
            payload.remote = None;
        }
        Ok(true)
    }
}

/// What is sent to the target.
struct ToTarget<'a>(&'a Socket);

impl Sink for ToTarget<'_> {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        lasting(self.0.send(&payload.bytes).await)
    }

    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        if self.0.send_joined(&[], run, None).await? {
            return Ok(());
        }
        each(self, run).await
    }
}
