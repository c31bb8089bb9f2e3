//! One connection: handshake, both halves, closing (RFC 9293).
//!
//! ```text
//! client  SynSent     --SYN+ACK--> Open --both ends closed--> Done
//! server  SynReceived --ACK------> Open --both ends closed--> Done
//! any     --reset, refused, no answer--> Failed
//! ```
//! Offsets count the bytes of a stream from 0; on the wire, offset 0 is the initial sequence number
//! plus one. A connection that is done still acknowledges segments that arrive again.

use super::config::TcpConfig;
use super::dialogue::{Client, Completion, Server};
use super::receiver::{ReceiveStats, Receiver};
use super::relay::Relay;
use super::rtt::Rtt;
use super::segment::{MAX_SACK, Segment};
use super::sender::{Acked, Piece, SendStats, Sender, SenderInit};
use crate::app::Pattern;
use anabranch_proto::congestion::ControllerInit;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use std::net::SocketAddrV4;
use std::time::Duration;

/// The segment size assumed for a peer that announces none (RFC 9293, section 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// The connection is given up after this many SYNs without an answer, as Linux does.
const MAX_SYNS: u32 = 7;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpState {
    /// A client that has not sent its SYN yet.
    Idle,
    /// A client that sent its SYN.
    SynSent,
    /// A server that answered a SYN.
    SynReceived,
    /// Data may flow.
    Open,
    /// Both sides have sent and received everything.
    Done,
    /// The connection was reset, refused or given up.
    Failed,
}

/// What a connection has done so far.
#[derive(Debug, Clone)]
pub struct TcpReport {
    /// Near address.
    pub local: SocketAddrV4,
    /// Far address.
    pub remote: SocketAddrV4,
    /// Its state.
    pub state: TcpState,
    /// When the handshake completed.
    pub opened: Option<Instant>,
    /// When it ended, successfully or not.
    pub ended: Option<Instant>,
    /// Statistics of the sending half.
    pub sent: SendStats,
    /// Statistics of the receiving half.
    pub received: ReceiveStats,
    /// Bytes the application received, in order.
    pub received_bytes: u64,
    /// Whether all of them match what was sent.
    pub intact: bool,
    /// Smoothed round-trip time; 0 before the first sample.
    pub smoothed_rtt: Duration,
    /// The smallest sample, if there is one.
    pub min_rtt: Option<Duration>,
    /// Congestion window in bytes; 0 before the connection is open.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Completed exchanges.
    pub completed: u64,
}

/// Who is above a connection.
#[derive(Debug)]
pub(super) enum Role {
    /// A client: sends requests.
    Client(Client),
    /// A server: answers requests.
    Server(Server),
    /// A relay: reads and writes when it likes.
    Relay(Relay),
}

/// The state machine of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    config: TcpConfig,
    pub(super) local: SocketAddrV4,
    pub(super) remote: SocketAddrV4,
    role: Role,
    state: TcpState,
    isn: u32,
    /// Known once the SYN has arrived.
    peer_isn: u32,
    peer_mss: u16,
    peer_shift: u8,
    shift: u8,
    scaling: bool,
    sack: bool,
    syn_at: Option<Instant>,
    syns: u32,
    syn_due: bool,
    reset_due: bool,
    sender: Option<Sender>,
    receiver: Receiver,
    received_bytes: u64,
    intact: bool,
    until: Option<Instant>,
    opened: Option<Instant>,
    ended: Option<Instant>,
}

impl Connection {
    fn new(config: TcpConfig, ends: (SocketAddrV4, SocketAddrV4), isn: u32, role: Role) -> Self {
        let buffer = config.receive_buffer.clamp(4096, 1 << 30);
        Self {
            local: ends.0,
            remote: ends.1,
            role,
            state: TcpState::Idle,
            isn,
            peer_isn: 0,
            peer_mss: DEFAULT_MSS,
            peer_shift: 0,
            shift: (0..14)
                .find(|shift| buffer >> shift <= 0xffff)
                .unwrap_or(14),
            scaling: false,
            sack: false,
            syn_at: None,
            syns: 0,
            syn_due: false,
            reset_due: false,
            sender: None,
            receiver: Receiver::new(buffer, config.delayed_ack),
            received_bytes: 0,
            intact: true,
            until: None,
            opened: None,
            ended: None,
            config,
        }
    }

    /// The end that connects, at the first of these times; at the second one it stops.
    pub(super) fn connecting(
        config: TcpConfig,
        ends: (SocketAddrV4, SocketAddrV4),
        isn: u32,
        role: Role,
        times: (Instant, Option<Instant>),
    ) -> Self {
        let mut new = Self::new(config, ends, isn, role);
        new.syn_at = Some(times.0);
        new.until = times.1;
        new
    }

    /// The end that received this SYN.
    pub(super) fn accepted(config: TcpConfig, syn: &Segment, isn: u32, role: Role) -> Self {
        let ends = (syn.to, syn.from);
        let mut new = Self::new(config, ends, isn, role);
        new.state = TcpState::SynReceived;
        new.take_syn(syn);
        new.syn_due = true;
        new
    }

    fn take_syn(&mut self, syn: &Segment) {
        self.peer_isn = syn.sequence;
        self.peer_mss = syn.mss.unwrap_or(DEFAULT_MSS).max(64);
        self.scaling = syn.window_scale.is_some();
        self.peer_shift = syn.window_scale.unwrap_or(0);
        self.sack = self.config.sack && syn.sack_permitted;
    }

    pub(super) fn report(&self) -> TcpReport {
        let sender = self.sender.as_ref();
        TcpReport {
            local: self.local,
            remote: self.remote,
            state: self.state,
            opened: self.opened,
            ended: self.ended,
            sent: sender.map(|sender| sender.stats).unwrap_or_default(),
            received: self.receiver.stats,
            received_bytes: self.received_bytes,
            intact: self.intact,
            smoothed_rtt: sender
                .map(|sender| sender.rtt.smoothed())
                .unwrap_or_default(),
            min_rtt: sender
                .map(|sender| sender.rtt.min)
                .filter(|min| *min != Duration::MAX),
            window: sender.map_or(0, Sender::window),
            in_flight: sender.map_or(0, Sender::in_flight),
            completed: match &self.role {
                Role::Client(client) => client.completed,
                Role::Server(_) | Role::Relay(_) => 0,
            },
        }
    }

    pub(super) fn completions(&self) -> &[Completion] {
        match &self.role {
            Role::Client(client) => &client.completions,
            Role::Server(_) | Role::Relay(_) => &[],
        }
    }

    /// Whether its content is relayed.
    pub(super) fn is_relayed(&self) -> bool {
        matches!(self.role, Role::Relay(_))
    }

    /// Whether it was reset, refused or given up.
    pub(super) fn has_failed(&self) -> bool {
        self.state == TcpState::Failed
    }

    /// Bytes that a relay may write now.
    pub(super) fn room(&self) -> u64 {
        let open = self.sender.as_ref().filter(|sender| !sender.is_closed());
        let open = open.filter(|_| self.state == TcpState::Open);
        open.map_or(0, Sender::room)
    }

    /// A relay writes. What does not fit is kept all the same: [`Self::room`] tells how much does.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if let (Role::Relay(relay), Some(sender)) = (&mut self.role, &mut self.sender) {
            relay.keep(bytes);
            sender.extend(bytes.len() as u64);
        }
    }

    /// A relay writes no more.
    pub(super) fn finish(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.close();
        }
    }

    /// A relay gives the connection up; the peer is told if it knows of it.
    pub(super) fn reset(&mut self, now: Instant) {
        if !self.is_over() {
            self.reset_due = !matches!(self.state, TcpState::Idle | TcpState::SynSent);
            self.end(now, TcpState::Failed);
        }
    }

    /// A relay reads.
    pub(super) fn read(&mut self) -> Option<bytes::Bytes> {
        let bytes = self.receiver.read()?;
        self.received_bytes += bytes.len() as u64;
        self.receiver.tell_of_room();
        Some(bytes)
    }

    /// Whether a relay has read all there is and will be.
    pub(super) fn is_read(&self) -> bool {
        self.receiver.is_finished() && !self.receiver.has_unread()
    }

    fn is_over(&self) -> bool {
        matches!(self.state, TcpState::Done | TcpState::Failed)
    }

    fn end(&mut self, now: Instant, state: TcpState) {
        if !self.is_over() {
            self.state = state;
            self.ended = Some(now);
            self.syn_at = None;
            self.until = None;
        }
    }

    /// Handles a segment for this connection.
    pub(super) fn handle(&mut self, now: Instant, segment: Segment, pattern: &Pattern) {
        if segment.rst {
            let fits = segment.acknowledgement.is_none_or(|ack| {
                let sent = self.sender.as_ref().map_or(0, Sender::next);
                ack.wrapping_sub(self.isn) <= (sent as u32).wrapping_add(1)
            });
            if self.state != TcpState::Idle && fits {
                self.end(now, TcpState::Failed);
            }
            return;
        }
        match self.state {
            TcpState::SynSent if segment.syn => {
                if segment.acknowledgement != Some(self.isn.wrapping_add(1)) {
                    return;
                }
                self.take_syn(&segment);
                self.open(now, &segment);
                self.receiver.acknowledge_now();
            }
            TcpState::SynReceived if segment.syn => self.syn_due = true,
            TcpState::SynReceived => {
                if segment.acknowledgement != Some(self.isn.wrapping_add(1)) {
                    return;
                }
                self.open(now, &segment);
                self.take(now, segment);
            }
            TcpState::Open | TcpState::Done if segment.syn => self.receiver.acknowledge_now(),
            TcpState::Open | TcpState::Done => self.take(now, segment),
            _ => {}
        }
        self.run(now, pattern);
    }

    fn open(&mut self, now: Instant, segment: &Segment) {
        self.state = TcpState::Open;
        self.opened = Some(now);
        self.syn_at = None;
        let mss = self.config.mss.min(self.peer_mss).max(64);
        let init = ControllerInit {
            max_datagram_size: mss,
            now,
            seed: u64::from(self.isn),
            path: PathId(0),
        };
        // The window of a SYN is not shifted (RFC 7323, section 2.2).
        let shift = if segment.syn || !self.scaling {
            0
        } else {
            self.peer_shift
        };
        self.sender = Some(Sender::new(SenderInit {
            mss: u64::from(mss),
            sack: self.sack,
            buffer: self.config.send_buffer.max(u64::from(mss)),
            limit: u64::from(segment.window) << shift,
            controller: self.config.congestion.build(&init),
            rtt: Rtt::new(self.config.min_timeout),
        }));
    }

    /// Handles a segment in a state in which data may flow.
    fn take(&mut self, now: Instant, segment: Segment) {
        let (Some(sender), Some(ack)) = (&mut self.sender, segment.acknowledgement) else {
            return;
        };
        let near = |wire: u32, isn: u32, about: u64| {
            let base = isn.wrapping_add(1).wrapping_add(about as u32);
            about.checked_add_signed(i64::from(wire.wrapping_sub(base) as i32))
        };
        let una = sender.una();
        let Some(next) = near(ack, self.isn, una) else {
            return;
        };
        let mut blocks = [(0, 0); MAX_SACK];
        let mut count = 0;
        for (start, end) in segment.sack_blocks() {
            if let (Some(start), Some(end)) = (near(start, self.isn, una), near(end, self.isn, una))
            {
                blocks[count] = (start, end);
                count += 1;
            }
        }
        let shift = if self.scaling { self.peer_shift } else { 0 };
        sender.handle_ack(
            now,
            &Acked {
                next,
                limit: next + (u64::from(segment.window) << shift),
                sack: &blocks[..count],
                is_bare: segment.payload.is_empty() && !segment.fin,
            },
        );
        if segment.payload.is_empty() && !segment.fin {
            return;
        }
        let expected = self.receiver.next();
        match near(segment.sequence, self.peer_isn, expected) {
            Some(start) => self
                .receiver
                .handle(now, start, segment.payload, segment.fin),
            None => self.receiver.acknowledge_now(),
        }
    }

    /// Lets the application make progress.
    fn run(&mut self, now: Instant, pattern: &Pattern) {
        match (&mut self.role, &self.sender) {
            (_, None) => return,
            (Role::Relay(relay), Some(sender)) => relay.release(sender.acknowledged()),
            _ => self.converse(now, pattern),
        }
        let is_sent = self.sender.as_ref().is_some_and(Sender::is_finished);
        if is_sent && self.receiver.is_finished() {
            self.end(now, TcpState::Done);
        }
    }

    /// Asks and answers.
    fn converse(&mut self, now: Instant, pattern: &Pattern) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        while let Some(bytes) = self.receiver.read() {
            self.received_bytes += bytes.len() as u64;
            let right = match &mut self.role {
                Role::Client(client) => client.receive(pattern, &bytes),
                Role::Server(server) => {
                    let (right, answer) = server.receive(pattern, &bytes);
                    sender.extend(answer);
                    right
                }
                Role::Relay(_) => true,
            };
            self.intact &= right;
        }
        match &mut self.role {
            Role::Client(client) if !sender.is_closed() => {
                let bytes = client.advance(now, sender.acknowledged());
                sender.extend(bytes);
                if client.finished {
                    sender.close();
                }
            }
            Role::Server(_) if self.receiver.is_finished() => sender.close(),
            _ => {}
        }
    }

    /// Stops the application: unsent data is discarded, and a response still expected is refused
    /// with a reset.
    fn stop(&mut self, now: Instant) {
        self.until = None;
        let (Some(sender), Role::Client(client)) = (&mut self.sender, &mut self.role) else {
            return self.end(now, TcpState::Failed);
        };
        if client.expects_response() {
            self.reset_due = true;
            self.end(now, TcpState::Done);
        } else {
            client.finished = true;
            sender.cut();
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, pattern: &Pattern) {
        if self.is_over() {
            return;
        }
        if self.until.is_some_and(|until| until <= now) {
            self.stop(now);
        }
        if self.syn_at.is_some_and(|at| at <= now) {
            self.syn_at = None;
            if self.syns >= MAX_SYNS {
                return self.end(now, TcpState::Failed);
            }
            if self.state == TcpState::Idle {
                self.state = TcpState::SynSent;
            }
            self.syn_due = true;
        }
        let alive = self
            .sender
            .as_mut()
            .is_none_or(|sender| sender.handle_timeout(now));
        if !alive {
            return self.end(now, TcpState::Failed);
        }
        self.run(now, pattern);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.is_over() {
            return self
                .receiver
                .deadline()
                .filter(|_| self.state == TcpState::Done);
        }
        let client = match &self.role {
            Role::Client(client) if self.sender.is_some() => client.deadline(),
            _ => None,
        };
        let sender = self.sender.as_ref().and_then(Sender::deadline);
        let receiver = self.receiver.deadline().filter(|_| self.sender.is_some());
        [self.syn_at, self.until, client, sender, receiver]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next segment to send.
    pub(super) fn poll(&mut self, now: Instant, pattern: &Pattern) -> Option<Segment> {
        if std::mem::take(&mut self.reset_due) {
            let mut reset = self.segment(None);
            reset.rst = true;
            return Some(reset);
        }
        if self.state == TcpState::Failed {
            return None;
        }
        if std::mem::take(&mut self.syn_due) {
            return Some(self.syn(now));
        }
        if let Some(piece) = self.sender.as_mut().and_then(|sender| sender.poll(now)) {
            let mut segment = self.segment(Some(piece.start));
            segment.payload = self.content(pattern, piece);
            segment.fin = piece.fin;
            // SACK blocks are sent in a segment of their own, so that no segment exceeds the MTU.
            if self.receiver.sack().next().is_none() {
                self.receiver.on_acknowledged();
            }
            return Some(segment);
        }
        if self.sender.is_some() && self.receiver.wants_to_acknowledge(now) {
            let segment = self.segment(None);
            self.receiver.on_acknowledged();
            return Some(segment);
        }
        None
    }

    fn content(&self, pattern: &Pattern, piece: Piece) -> bytes::Bytes {
        match &self.role {
            Role::Client(client) => client.content(pattern, piece.start, piece.length),
            Role::Server(_) => pattern.piece(piece.start, piece.length),
            Role::Relay(relay) => relay.content(piece.start, piece.length),
        }
    }

    fn syn(&mut self, now: Instant) -> Segment {
        let mut syn = Segment::new(self.local, self.remote);
        syn.sequence = self.isn;
        syn.syn = true;
        syn.window = self.config.receive_buffer.min(0xffff) as u16;
        syn.mss = Some(self.config.mss);
        if self.state == TcpState::SynReceived {
            syn.acknowledgement = Some(self.peer_isn.wrapping_add(1));
            syn.window_scale = self.scaling.then_some(self.shift);
            syn.sack_permitted = self.sack;
        } else {
            syn.window_scale = Some(self.shift);
            syn.sack_permitted = self.config.sack;
        }
        self.syn_at = Some(now + Duration::from_secs(1 << self.syns));
        self.syns += 1;
        syn
    }

    /// A segment without content that acknowledges what has arrived.
    fn segment(&self, offset: Option<u64>) -> Segment {
        let mut segment = Segment::new(self.local, self.remote);
        let next = self.sender.as_ref().map_or(0, Sender::next);
        let wire = |isn: u32, offset: u64| isn.wrapping_add(1).wrapping_add(offset as u32);
        segment.sequence = wire(self.isn, offset.unwrap_or(next));
        segment.acknowledgement = Some(wire(self.peer_isn, self.receiver.next()));
        let shift = if self.scaling { self.shift } else { 0 };
        segment.window = (self.receiver.window() >> shift).min(0xffff) as u16;
        if self.sack && offset.is_none() {
            for (block, (start, end)) in segment.sack.iter_mut().zip(self.receiver.sack()) {
                *block = (wire(self.peer_isn, start), wire(self.peer_isn, end));
            }
        }
        segment
    }
}
