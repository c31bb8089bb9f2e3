//! UDP of captured hosts: a flow and a socket for each host and target.

use super::doors::{Datagrams, First, in_the_name_of, speaking_as};
use super::unreachable::longest;
use crate::entry::Entry;
use crate::entry::bundle::{Bundle, Bundles};
use crate::entry::flows::{Begun, REFUSED, UdpFlows};
use crate::entry::owner;
use crate::entry::policy::Beginning;
use crate::ip::room::SMALL_FOR;
use crate::payloads::{Payload, Sink, Source, each};
use crate::refusal::Refusal;
use crate::relay::Cut;
use crate::session::Broken;
use crate::udp::{Socket, lasting};
use crate::{UDP_IDLE, entry};
use anabranch_masque::ip::Undeliverable;
use anabranch_masque::{Code, Target};
use anabranch_tunnel::class::Transport;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// Flows of one address family at a time.
const MAX_FLOWS: usize = 1024;
/// How long a flow of a resolver lasts on which nothing happens: a question has its port for
/// itself, and there are many.
const RESOLVER_IDLE: Duration = Duration::from_secs(15);
const RESOLVER: u16 = 53;
/// Ports of known addresses other than those that were sent to, for which a flow keeps sockets: one
/// such port of a peer is what translators give.
const MAX_OTHERS: usize = 4;
/// Before a host is told once more how long a datagram may be.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// Sizes that differ by less are of one path.
const HEADERS: usize = 32;
/// The longest datagram, and more.
const BUFFER: usize = 1 << 16;

impl Entry {
    /// Carries the datagrams that come out of this door.
    pub(in crate::entry) async fn captured_udp(self: Arc<Self>, door: Arc<Datagrams>) {
        let mut flows = UdpFlows::new(MAX_FLOWS);
        let mut bundles = Bundles::default();
        let mut buffer = vec![0; BUFFER];
        loop {
            let first = match door.receive(&mut buffer).await {
                Ok(Some(first)) => first,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!("no datagram can be taken: {error}");
                    sleep(entry::EXHAUSTED).await;
                    continue;
                }
            };
            let First {
                host,
                target,
                dscp,
                length,
            } = first;
            // Somebody has found the port.
            if target.ip().is_loopback() {
                continue;
            }
            let idle = match target.port() {
                RESOLVER => RESOLVER_IDLE,
                _ => UDP_IDLE,
            };
            let beginning = Beginning {
                transport: Transport::Udp,
                host,
                socket: owner::Socket::udp(host, target),
                dscp,
            };
            let bundle = bundles.of(host);
            let begin = |begun| flow(Arc::clone(&self), beginning, (bundle, target), begun);
            let payload = Bytes::copy_from_slice(&buffer[..length]);
            if !flows.carry(&(host, target), payload, idle, begin) {
                self.flows.datagrams.lose(1);
            }
        }
    }
}

/// Carries payloads between a host and a target, until nothing happens any more.
async fn flow(
    entry: Arc<Entry>,
    beginning: Beginning,
    (bundle, target): (Arc<Bundle>, SocketAddr),
    begun: Begun,
) {
    let (host, Begun { waiting, activity }) = (beginning.host, begun);
    let socket = match in_the_name_of(target, host).and_then(Socket::of) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            tracing::warn!("{host} has sent to {target}, which cannot be answered: {error}");
            return sleep(REFUSED).await;
        }
    };
    let mut source = FromHost {
        waiting,
        socket: Arc::clone(&socket),
        arena: BytesMut::new(),
        entry: Arc::clone(&entry),
        addresses: (host, target),
        telling: Telling::default(),
    };
    let sink = |_| ToHost {
        socket,
        host,
        others: VecDeque::new(),
    };
    let name = Target::from(target);
    let asked = (beginning, &name);
    let carried = entry.carry_udp(&bundle, asked, &mut source, sink, &activity);
    let why = match carried.await {
        Err(Refusal::ConnectionRefused) => Undeliverable::PortUnreachable,
        Err(Refusal::Prohibited) => Undeliverable::Prohibited,
        Err(_) => Undeliverable::HostUnreachable,
        // The far end's flow goes on, so what is sent next may be taken.
        Ok(Err(Cut::Deaf)) => {
            if let Some(unreachable) = entry.unreachable() {
                unreachable.tell(host, target, Undeliverable::PortUnreachable);
            }
            return;
        }
        // The target told the far end so.
        Ok(Err(Cut::Stream(Broken::GivenUp(Code::CONNECT_ERROR)))) => {
            Undeliverable::PortUnreachable
        }
        Ok(_) => return,
    };
    if let Some(unreachable) = entry.unreachable() {
        unreachable.tell(host, target, why);
    }
    // Until then the socket takes what the host sends there, and no new request is made.
    sleep(REFUSED).await;
}

/// What the host sends: at first by the door, then by the flow's own socket.
struct FromHost {
    waiting: mpsc::Receiver<Bytes>,
    socket: Arc<Socket>,
    arena: BytesMut,
    entry: Arc<Entry>,
    /// The host's, and the target's.
    addresses: (SocketAddr, SocketAddr),
    telling: Telling,
}

impl Source for FromHost {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        tokio::select! {
            // What came first goes first.
            biased;
            first = self.waiting.recv() => {
                let Some(bytes) = first else { return Ok(false) };
                into.push(Payload::of_target(bytes));
            }
            received = self.socket.receive(&mut self.arena, into) => {
                lasting(received)?;
                for payload in into {
                    payload.remote = None;
                }
            }
        }
        Ok(true)
    }

    fn too_large(&mut self, remote: Option<SocketAddr>, most: usize) {
        let (host, target) = self.addresses;
        let target = remote.unwrap_or(target);
        if self.telling.is_due(most, Instant::now())
            && let Some(unreachable) = self.entry.unreachable()
        {
            unreachable.tell(host, target, longest(target, most));
        }
    }
}

/// When a host is told how long a datagram may be: hosts keep that for minutes, and a path that has
/// just begun carries little until it was probed.
#[derive(Debug, Default)]
struct Telling {
    /// What was carried at most, and since when.
    most: Option<(usize, Instant)>,
    told: Option<Instant>,
}

impl Telling {
    /// A datagram was too large where `most` would have been carried.
    fn is_due(&mut self, most: usize, now: Instant) -> bool {
        let since = match self.most {
            // What precedes a payload differs by its remote end.
            Some((before, since)) if before.abs_diff(most) < HEADERS => since,
            _ => now,
        };
        self.most = Some((most, since));
        let was_told = |told: Instant| now - told < TOLD_EVERY;
        if now - since < SMALL_FOR || self.told.is_some_and(was_told) {
            return false;
        }
        self.told = Some(now);
        true
    }
}

/// What goes to the host.
struct ToHost {
    socket: Arc<Socket>,
    host: SocketAddr,
    /// Sockets of others than the target, the one that was used last at the end.
    others: VecDeque<(SocketAddr, Socket)>,
}

impl ToHost {
    /// A socket that speaks in the name of another port of an address that was sent to. What the
    /// host answers comes out of the door, and begins a flow.
    fn as_other(&mut self, other: SocketAddr) -> io::Result<&Socket> {
        let known = self.others.iter().position(|(name, _)| *name == other);
        let one = match known.and_then(|at| self.others.remove(at)) {
            Some(one) => one,
            None => (other, Socket::of(speaking_as(other)?)?),
        };
        if self.others.len() >= MAX_OTHERS {
            self.others.pop_front();
        }
        self.others.push_back(one);
        Ok(&self.others[self.others.len() - 1].1)
    }
}

impl Sink for ToHost {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        let Some(other) = payload.remote else {
            return lasting(self.socket.send(&payload.bytes).await);
        };
        let host = self.host;
        let sent = match self.as_other(other) {
            Ok(socket) => socket.send_to(&payload.bytes, host).await,
            Err(_) => return Ok(()),
        };
        if let Err(error) = sent {
            tracing::debug!("{host} cannot hear of {other}: {error}");
        }
        Ok(())
    }

    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        let is_of_target = run.first().is_some_and(Payload::is_of_target);
        if is_of_target && self.socket.send_joined(&[], run, None).await? {
            return Ok(());
        }
        each(self, run).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_is_told_of_a_size_that_has_lasted_and_not_for_each_datagram() {
        let (mut telling, at) = (Telling::default(), Instant::now());
        let mut due = |most, after| telling.is_due(most, at + after);
        assert!(!due(1280, Duration::ZERO));
        assert!(!due(1400, SMALL_FOR), "it grows");
        assert!(!due(1400, SMALL_FOR * 3 / 2));
        assert!(due(1400, SMALL_FOR * 2));
        assert!(!due(1400, SMALL_FOR * 2 + TOLD_EVERY / 2));
        assert!(due(1400, SMALL_FOR * 2 + TOLD_EVERY));
        assert!(!due(1280, SMALL_FOR * 4), "another path");
    }
}
