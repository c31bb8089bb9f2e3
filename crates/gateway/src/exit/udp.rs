//! UDP of the exit (RFC 9298): a connected socket for each request, which lasts as long as that.

use super::allow::Allow;
use super::guests::{Flow, Guest};
use super::names::Names;
use super::{Exit, HEAD, Visit, tcp};
use crate::UDP_IDLE;
use crate::payloads::{self, Activity, Payload, Sink, Source};
use crate::records::{Meter, Tally};
use crate::refusal::Refusal;
use crate::session::{Broken, Incoming, Outgoing};
use crate::status::flow::Phase;
use crate::udp::{Socket, lasting};
use anabranch_masque::{
    Contexts, Extensions, Headers, Protocol, ProxyStatus, Response, Settings, Target, proxy_status,
};
use anabranch_proto::wire::Side;
use anabranch_tunnel::Treatment;
use bytes::BytesMut;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::timeout;

impl Exit {
    /// Carries UDP between a client and a target.
    pub(super) async fn associate(
        &self,
        visit: &Visit,
        guest: &Arc<Guest>,
        target: &Target,
        (offered, treatment): (Extensions, Treatment),
        (mut outgoing, incoming): (Outgoing, Incoming),
    ) -> Result<(), Broken> {
        // What a client sends before it has the answer waits for it.
        let datagrams = visit.session.datagrams(outgoing.id());
        let record = self.enlist(guest, target, true);
        let connected = tokio::select! {
            connected = self.udp_socket(guest, target) => connected,
            broken = outgoing.given_up() => return Err(broken),
        };
        let (flow, socket, remote) = match connected {
            Ok(connected) => connected,
            Err(refusal) => {
                record.ends(&refusal);
                tracing::debug!("{target}, UDP: {refusal}");
                return outgoing.answer(incoming, &refusal.response()).await;
            }
        };
        // A peer that says nothing about itself is taken to know no datagrams.
        let settings = timeout(HEAD, visit.session.settings()).await;
        let settings = settings.unwrap_or_else(|_| Ok(Settings::default()))?;
        let in_datagrams = visit.session.has_datagrams(&settings);
        let agreed = payloads::OURS.and(offered);
        outgoing.head(&response(agreed, remote).to_fields()).await?;
        let contexts = Contexts::new(Side::Server, Protocol::Udp, agreed, true);
        let ends = (outgoing, incoming, datagrams);
        let tally = Tally {
            all: flow.datagrams(),
            record: Arc::clone(&record),
        };
        let halves = payloads::split(ends, contexts, in_datagrams, treatment, tally);
        record.led_to(remote);
        record.enter(Phase::Open);
        let meter = Meter {
            all: flow.moved(),
            record: &record,
        };
        let source = FromTarget {
            socket: &socket,
            arena: BytesMut::new(),
        };
        let sink = ToTarget(&socket);
        let activity = Activity::new(UDP_IDLE);
        if let Err(cut) = payloads::relay(source, sink, halves, meter, &activity).await {
            record.ends(&cut);
            tracing::debug!("{target}, UDP: {cut}");
        }
        Ok(())
    }

    async fn udp_socket(
        &self,
        guest: &Arc<Guest>,
        target: &Target,
    ) -> Result<(Flow, Socket, SocketAddr), Refusal> {
        let flow = Flow::begin(guest, self.max_flows).ok_or(Refusal::TooMany)?;
        let (socket, remote) = connect(target, &guest.names, &self.allow).await?;
        Ok((flow, socket, remote))
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

/// Success, with the address that a name has led to.
fn response(agreed: Extensions, remote: SocketAddr) -> Response {
    let status = ProxyStatus {
        proxy: crate::AUTHORITY.into(),
        next_hop: Some(remote.to_string()),
        ..ProxyStatus::default()
    };
    let mut headers = Headers::new().with(proxy_status::NAME, status.to_value());
    agreed.put(&mut headers);
    Response {
        status: 200,
        headers,
    }
}

/// What the target sends.
struct FromTarget<'a> {
    socket: &'a Socket,
    arena: BytesMut,
}

impl Source for FromTarget<'_> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        lasting(self.socket.receive(&mut self.arena, into).await)?;
        Ok(true)
    }
}

/// What is sent to the target.
struct ToTarget<'a>(&'a Socket);

impl Sink for ToTarget<'_> {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        lasting(self.0.send(&payload.bytes).await)
    }
}
