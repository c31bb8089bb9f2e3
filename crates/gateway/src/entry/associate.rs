//! UDP ASSOCIATE (RFC 1928, section 7): a client's datagrams, each to the target that it names.
//!
//! ```text
//! client ── UDP ──> Association ──> a Flow for each target: a request of its own, or
//!        <── UDP ── the socket  <──  part of that of the first (bundle)
//! ```
//! All of it lasts as long as the TCP connection that the client asked by.

use super::bundle::{Bundle, rest};
use super::flows::{Begun, REFUSED, UdpFlows};
use super::policy::Beginning;
use super::{Entry, owner, socks};
use crate::UDP_IDLE;
use crate::payloads::{Payload, Sink, Source, each};
use crate::udp::{Socket, canonical, lasting};
use anabranch_masque::Target;
use anabranch_tunnel::class::Transport;
use bytes::{Bytes, BytesMut};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Targets of an association at a time.
const MAX_TARGETS: usize = 256;

impl Entry {
    /// Carries the UDP of the client that asked by this TCP connection, until the connection ends.
    pub(super) async fn associate(
        self: &Arc<Self>,
        mut control: TcpStream,
        port: u16,
    ) -> io::Result<()> {
        let here = SocketAddr::new(control.local_addr()?.ip(), 0);
        let socket = Socket::bind(here).await?;
        let at = socket.local_addr()?;
        socks::associated(&mut control, canonical(at)).await?;
        // Its own UDP socket may be anywhere: the process is that of this connection.
        let process = owner::Socket::tcp(control.peer_addr()?, control.local_addr()?);
        let client = Client {
            ip: control.peer_addr()?.ip(),
            process,
            port,
            at: OnceLock::new(),
            socket,
        };
        let association = Association {
            entry: Arc::clone(self),
            client: Arc::new(client),
            bundle: Arc::default(),
            flows: UdpFlows::new(MAX_TARGETS),
        };
        tokio::select! {
            ended = end_of(&mut control) => ended,
            failed = association.run() => failed,
        }
    }
}

/// Waits until a connection ends, and ignores what still comes by it.
async fn end_of(control: &mut TcpStream) -> io::Result<()> {
    let mut ignored = [0; 64];
    while control.read(&mut ignored).await? > 0 {}
    Ok(())
}

/// Whose datagrams an association carries.
#[derive(Debug)]
struct Client {
    ip: IpAddr,
    process: owner::Socket,
    /// The port it said that it would send from; 0 if it said none.
    port: u16,
    /// Where it sends from: the first sender's address and port, if it said no port.
    at: OnceLock<SocketAddr>,
    socket: Socket,
}

impl Client {
    /// Whether a datagram is the client's and not somebody else's.
    fn is_from(&self, remote: SocketAddr) -> bool {
        let may_be = remote.ip() == self.ip && (self.port == 0 || remote.port() == self.port);
        may_be && *self.at.get_or_init(|| remote) == remote
    }
}

struct Association {
    entry: Arc<Entry>,
    client: Arc<Client>,
    /// All targets have one port at the far end.
    bundle: Arc<Bundle>,
    /// By their targets.
    flows: UdpFlows<Target>,
}

impl Association {
    async fn run(mut self) -> io::Result<()> {
        let (mut arena, mut received) = (BytesMut::new(), Vec::new());
        loop {
            lasting(self.client.socket.receive(&mut arena, &mut received).await)?;
            for Payload { remote, bytes } in received.drain(..) {
                if !remote.is_some_and(|remote| self.client.is_from(remote)) {
                    continue;
                }
                let carried = match socks::datagram(&bytes) {
                    Some((target, payload)) => self.carry(&target, payload),
                    None => false,
                };
                if !carried {
                    self.entry.flows.datagrams.lose(1);
                }
            }
        }
    }

    /// Hands a payload to the flow of its target; returns whether there was room.
    fn carry(&mut self, target: &Target, payload: Bytes) -> bool {
        let (entry, client, bundle) = (&self.entry, &self.client, &self.bundle);
        let begin = |begun| {
            let (entry, client) = (Arc::clone(entry), Arc::clone(client));
            let to = (Arc::clone(bundle), target.clone());
            flow(entry, to, begun, client)
        };
        self.flows.carry(target, payload, UDP_IDLE, begin)
    }
}

/// Carries payloads between a client and a target, until nothing happens any more.
async fn flow(
    entry: Arc<Entry>,
    (bundle, target): (Arc<Bundle>, Target),
    begun: Begun,
    client: Arc<Client>,
) {
    let Begun { waiting, activity } = begun;
    let mut source = FromClient(waiting);
    // The client has sent something, or there would be no flow.
    let host = client.at.get().copied();
    let host = host.unwrap_or_else(|| SocketAddr::new(client.ip, client.port));
    let beginning = Beginning {
        transport: Transport::Udp,
        host,
        socket: client.process,
        dscp: None,
    };
    // Clients expect the address that the target's name has led to.
    let sink = |remote: Option<SocketAddr>| {
        let header = socks::datagram_header(&remote.map_or(target.clone(), Target::from));
        ToClient {
            header: header.len(),
            datagram: header,
            client,
        }
    };
    let asked = (beginning, &target);
    let carried = entry.carry_udp(&bundle, asked, &mut source, sink, &activity);
    if carried.await.is_err() {
        // Until then, what the client sends there asks for no new request.
        sleep(REFUSED).await;
    }
}

struct FromClient(mpsc::Receiver<Bytes>);

impl Source for FromClient {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        let Some(bytes) = self.0.recv().await else {
            return Ok(false);
        };
        let all = std::iter::once(bytes).chain(rest(&mut self.0));
        into.extend(all.map(Payload::of_target));
        Ok(true)
    }
}

struct ToClient {
    /// What precedes each payload, and in [`send`](Sink::send) the payload behind it.
    datagram: Vec<u8>,
    header: usize,
    client: Arc<Client>,
}

impl Sink for ToClient {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        // The client has sent something, or there would be no flow.
        let Some(at) = self.client.at.get() else {
            return Ok(());
        };
        if let Some(other) = payload.remote {
            let mut datagram = socks::datagram_header(&other.into());
            datagram.extend_from_slice(&payload.bytes);
            return lasting(self.client.socket.send_to(&datagram, *at).await);
        }
        self.datagram.truncate(self.header);
        self.datagram.extend_from_slice(&payload.bytes);
        lasting(self.client.socket.send_to(&self.datagram, *at).await)
    }

    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        let other = run.first().and_then(|first| first.remote);
        let header = match other {
            Some(other) => &socks::datagram_header(&other.into())[..],
            None => &self.datagram[..self.header],
        };
        if let Some(at) = self.client.at.get()
            && self
                .client
                .socket
                .send_joined(header, run, Some(*at))
                .await?
        {
            return Ok(());
        }
        each(self, run).await
    }
}
