//! TCP connections on one side, streams on the other, and what passes between them.

use super::head::{self, Carried, Head};
use super::udp::Udp;
use crate::quic::{App, SessionId, Sessions};
use crate::tcp::{TcpConfig, TcpHost, TcpId};
use crate::{Packet, Payload, Process};
use anabranch_proto::streams::{ReadError, StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use anabranch_proto::{Connection, Event};
use anabranch_tunnel::class::{Flow as Asked, LightPriority, Transport};
use anabranch_tunnel::{Classes, Treatment};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Bytes read from a stream at a time.
const PIECE: u64 = 64 << 10;

/// What a stream is reset with when its TCP connection was: `H3_CONNECT_ERROR` (RFC 9114, section
/// 4.4).
const CONNECT_ERROR: u32 = 0x10f;

/// The first port from which the far end connects.
const FIRST_PORT: u16 = 32_768;

/// A stream of a connection.
pub(super) type Tube = (SessionId, StreamId);

/// Which end this is.
#[derive(Debug)]
pub(super) enum Side {
    /// Connections are carried on this session.
    Near(SessionId),
    /// Targets are reached from this address.
    Far {
        from: SocketAddrV4,
        config: TcpConfig,
    },
}

impl Side {
    pub(super) fn far(address: Ipv4Addr, config: TcpConfig) -> Self {
        let from = SocketAddrV4::new(address, FIRST_PORT);
        Self::Far { from, config }
    }

    /// The far end's next address of its own.
    fn next_from(from: &mut SocketAddrV4) -> SocketAddrV4 {
        let own = *from;
        from.set_port(own.port().checked_add(1).unwrap_or(FIRST_PORT));
        own
    }
}

/// A TCP connection and its stream.
#[derive(Debug)]
struct Lane {
    tube: Tube,
    /// Read from TCP, and not taken by the stream yet.
    pending: Bytes,
    /// Whether the stream needs no more from TCP.
    is_sent: bool,
    /// Whether TCP needs no more from the stream.
    is_received: bool,
    /// Of its class, the priority that holds while little is carried, if it is one of those.
    light: Option<LightPriority>,
}

impl Lane {
    /// Is sent before others or behind them, and steered, as its class is.
    fn treat(&mut self, connection: &mut Connection, treatment: &Treatment) {
        self.light = LightPriority::of(treatment);
        // An error means that the stream has ended.
        let _ = connection.set_priority(self.tube.1, treatment.priority);
        if treatment.class() != 0 {
            let _ = connection.set_class(self.tube.1, treatment.class());
        }
    }

    /// Has its priority only if it still carries little with so many bytes more.
    fn weigh(&mut self, now: Instant, bytes: usize, connection: &mut Connection) {
        let now = now.since(Instant::ZERO);
        if let Some(light) = &mut self.light
            && let Some(priority) = light.carry(bytes, now)
        {
            let _ = connection.set_priority(self.tube.1, priority);
        }
    }
}

/// How a flow between these ends is treated.
pub(super) fn treatment(
    classes: &Classes,
    transport: Transport,
    [source, target]: [SocketAddr; 2],
) -> Treatment {
    let class = classes.of(&Asked {
        transport,
        source: Some(source.ip()),
        target: Some(target.ip()),
        domain: None,
        port: target.port(),
        dscp: None,
        owner: None,
    });
    class.treatment
}

/// The application of a gateway.
#[derive(Debug)]
pub(super) struct Relay {
    side: Side,
    tcp: TcpHost,
    lanes: BTreeMap<TcpId, Lane>,
    by_tube: BTreeMap<Tube, TcpId>,
    /// Accepted connections that have no stream yet.
    waiting: VecDeque<TcpId>,
    /// Streams whose head has not arrived as a whole.
    heads: BTreeMap<Tube, Vec<u8>>,
    /// By which flows are treated, at the near end; the far end is told.
    pub(super) classes: Classes,
    pub(super) udp: Udp,
}

impl Relay {
    pub(super) fn new(tcp: TcpHost, side: Side) -> Self {
        Self {
            side,
            tcp,
            lanes: BTreeMap::new(),
            by_tube: BTreeMap::new(),
            waiting: VecDeque::new(),
            heads: BTreeMap::new(),
            classes: Classes::default(),
            udp: Udp::new(),
        }
    }

    pub(super) fn tcp(&self) -> &TcpHost {
        &self.tcp
    }

    /// A packet from the hosts on this side.
    pub(super) fn handle_packet(&mut self, host: &mut Sessions<'_>, packet: Packet) {
        if let Payload::Udp(bytes) = packet.payload {
            let is_near = matches!(self.side, Side::Near(_));
            let classes = is_near.then_some(&self.classes);
            let ends = [packet.from, packet.to];
            self.udp.handle_packet(host, ends, bytes.into(), classes);
            return self.open(host);
        }
        self.tcp.handle_packet(host.now, packet);
        self.follow(host);
    }

    /// A packet for the hosts on this side.
    pub(super) fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let packet = self.udp.poll_packet();
        packet.or_else(|| self.tcp.poll_packet(now))
    }

    /// Carries on what has changed on TCP's side.
    fn follow(&mut self, host: &mut Sessions<'_>) {
        while let Some(id) = self.tcp.poll_changed() {
            if self.lanes.contains_key(&id) {
                self.carry(host, id);
            } else if !self.tcp.has_failed(id) && !self.tcp.is_read(id) {
                self.wait(id);
            }
        }
        self.open(host);
    }

    /// Puts a connection that was just accepted in the queue. The far end accepts none.
    fn wait(&mut self, id: TcpId) {
        if matches!(self.side, Side::Near(_)) && !self.waiting.contains(&id) {
            self.waiting.push_back(id);
        }
    }

    /// Opens a stream for each accepted connection, as far as the peer allows.
    fn open(&mut self, host: &mut Sessions<'_>) {
        let Side::Near(session) = self.side else {
            return;
        };
        while let Some(id) = self.waiting.front().copied() {
            if !host.is_open(session) {
                return;
            }
            let connection = host.connection(session);
            let Some(stream) = connection.and_then(|connection| connection.open(Dir::Bi)) else {
                return;
            };
            self.waiting.pop_front();
            let report = self.tcp.report(id);
            let (source, target) = (report.remote, report.local);
            let ends = [source, target].map(SocketAddr::V4);
            let treatment = treatment(&self.classes, Transport::Tcp, ends);
            let head = Head {
                carried: Carried::Tcp,
                treatment,
                target,
            };
            let pending = head.encode().into();
            self.join(host, id, (session, stream), treatment, pending);
        }
        self.udp.open(host, session);
    }

    fn join(
        &mut self,
        host: &mut Sessions<'_>,
        id: TcpId,
        tube: Tube,
        treatment: Treatment,
        pending: Bytes,
    ) {
        let mut lane = Lane {
            tube,
            pending,
            is_sent: false,
            is_received: false,
            light: None,
        };
        if let Some(connection) = host.connection(tube.0) {
            lane.treat(connection, &treatment);
        }
        self.lanes.insert(id, lane);
        self.by_tube.insert(tube, id);
        self.carry(host, id);
    }

    /// Moves what can be moved, both ways.
    fn carry(&mut self, host: &mut Sessions<'_>, id: TcpId) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        send(&mut self.tcp, host, id, lane);
        receive(&mut self.tcp, host, id, lane);
        if lane.is_sent && lane.is_received {
            let tube = lane.tube;
            self.lanes.remove(&id);
            self.by_tube.remove(&tube);
        }
    }

    /// Reads the head of a stream that the near end opened, and begins what it asks for.
    fn greet(&mut self, host: &mut Sessions<'_>, tube: Tube) {
        let Some(mut bytes) = self.heads.remove(&tube) else {
            return;
        };
        while bytes.len() < head::LENGTH {
            match host.read(tube.0, tube.1, head::LENGTH - bytes.len()) {
                Ok(Some(more)) => bytes.extend(more),
                Err(ReadError::Blocked) => {
                    self.heads.insert(tube, bytes);
                    return;
                }
                Ok(None) | Err(_) => return,
            }
        }
        let head = bytes.first_chunk().and_then(Head::decode);
        let (Some(head), Side::Far { from, config }) = (head, &mut self.side) else {
            return;
        };
        let (target, treatment) = (head.target, head.treatment);
        let own = Side::next_from(from);
        match head.carried {
            Carried::Tcp => {
                let ends = [own, target].map(SocketAddr::V4);
                let id = self.tcp.relay(host.now, ends, config.clone());
                self.join(host, id, tube, treatment, Bytes::new());
            }
            Carried::Udp => self.udp.accept(host, tube, [target, own], treatment),
        }
    }

    /// A session is over: so are the connections that it carried.
    fn give_up(&mut self, now: Instant, session: SessionId) {
        let of_it = |tube: &Tube| tube.0 == session;
        self.heads.retain(|tube, _| !of_it(tube));
        let tubes = self.by_tube.keys().copied().filter(of_it);
        for tube in tubes.collect::<Vec<_>>() {
            if let Some(id) = self.by_tube.remove(&tube) {
                self.lanes.remove(&id);
                self.tcp.reset(now, id);
            }
        }
        self.udp.give_up(session);
        if matches!(self.side, Side::Near(own) if own == session) {
            for id in std::mem::take(&mut self.waiting) {
                self.tcp.reset(now, id);
            }
        }
    }
}

/// From TCP to the stream.
fn send(tcp: &mut TcpHost, host: &mut Sessions<'_>, id: TcpId, lane: &mut Lane) {
    let ((session, stream), now) = (lane.tube, host.now);
    while !lane.is_sent {
        if lane.pending.is_empty() {
            lane.pending = tcp.read(id).unwrap_or_default();
        }
        if lane.pending.is_empty() && tcp.has_failed(id) {
            return abort(tcp, host, id, lane);
        }
        let is_over = lane.pending.is_empty() && tcp.is_read(id);
        if lane.pending.is_empty() && !is_over {
            return;
        }
        let Some(connection) = host.connection(session) else {
            return;
        };
        if is_over {
            lane.is_sent = true;
            // The peer may have stopped the stream in the meantime, and then says so.
            let _ = connection.finish(stream);
            return;
        }
        match connection.write(stream, &mut lane.pending) {
            Ok(taken) => lane.weigh(now, taken, connection),
            Err(WriteError::Blocked) => return,
            Err(_) => return abort(tcp, host, id, lane),
        }
    }
}

/// From the stream to TCP.
fn receive(tcp: &mut TcpHost, host: &mut Sessions<'_>, id: TcpId, lane: &mut Lane) {
    let (session, stream) = lane.tube;
    while !lane.is_received {
        let room = tcp.room(id).min(PIECE);
        if room == 0 {
            return;
        }
        match host.read(session, stream, room as usize) {
            Ok(Some(bytes)) => tcp.write(id, &bytes),
            Ok(None) => {
                tcp.finish(id);
                lane.is_received = true;
            }
            Err(ReadError::Blocked) => return,
            Err(_) => return abort(tcp, host, id, lane),
        }
    }
}

/// One of the two broke off: so does the other.
fn abort(tcp: &mut TcpHost, host: &mut Sessions<'_>, id: TcpId, lane: &mut Lane) {
    (lane.is_sent, lane.is_received) = (true, true);
    lane.pending.clear();
    tcp.reset(host.now, id);
    if let Some(connection) = host.connection(lane.tube.0) {
        // Halves that are closed already need nothing.
        let _ = connection.reset(lane.tube.1, CONNECT_ERROR);
        let _ = connection.stop(lane.tube.1, CONNECT_ERROR);
    }
}

impl App for Relay {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        match event {
            Event::Connected | Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => {
                self.open(host);
            }
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => loop {
                let connection = host.connection(session);
                let Some(stream) = connection.and_then(|connection| connection.accept(Dir::Bi))
                else {
                    return;
                };
                self.heads.insert((session, stream), Vec::new());
                self.greet(host, (session, stream));
            },
            Event::Stream(StreamEvent::Stopped { id, .. }) => {
                if let Some(lane) = self.by_tube.get(&(session, *id)) {
                    self.tcp.reset(host.now, *lane);
                    self.carry(host, *lane);
                }
            }
            Event::Stream(StreamEvent::Readable { id } | StreamEvent::Writable { id }) => {
                let tube = (session, *id);
                if self.udp.on_stream(host, tube) {
                    return;
                }
                match self.by_tube.get(&tube) {
                    Some(lane) => self.carry(host, *lane),
                    None => self.greet(host, tube),
                }
            }
            Event::Stream(StreamEvent::DatagramReceived) => self.udp.receive(host, session),
            Event::Closed(_) => self.give_up(host.now, session),
            _ => {}
        }
    }

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        self.udp.handle_timeout(host.now);
        self.tcp.handle_timeout(host.now);
        self.follow(host);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let deadlines = [self.tcp.deadline(), self.udp.deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.lanes.is_empty() && self.waiting.is_empty()
    }
}
