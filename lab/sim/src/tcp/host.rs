//! The process: any number of connections on one host.

use super::config::TcpConfig;
use super::connection::{Connection, Role, TcpReport};
use super::dialogue::{Client, Completion, Demand, Server};
use super::relay::Relay;
use super::segment::Segment;
use crate::app::Pattern;
use crate::seed::{Dice, Seed};
use crate::{Packet, Payload, Process};
use anabranch_proto::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};

/// The most connections a host accepts over its lifetime.
const MAX_ACCEPTED: usize = 65_536;

/// Identifies a connection of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TcpId(usize);

/// A connection to make.
#[derive(Debug)]
pub struct Connect {
    /// An address of the host, with a port that no other connection to the same peer uses.
    pub from: SocketAddr,
    /// The server.
    pub to: SocketAddr,
    /// When to connect.
    pub at: Instant,
    /// What to ask for.
    pub demand: Box<dyn Demand>,
    /// When to stop, even in the middle of an exchange.
    pub until: Option<Instant>,
    /// Settings of the connection.
    pub config: TcpConfig,
}

/// A TCP stack with its applications. IPv4 only.
#[derive(Debug)]
pub struct TcpHost {
    dice: Dice,
    pattern: Pattern,
    /// The ports that are served, with their settings.
    listening: Vec<(u16, TcpConfig)>,
    /// How connections to any address and port are accepted, for their content to be relayed.
    intercepting: Option<TcpConfig>,
    connections: Vec<Connection>,
    /// Connections by their near and far ends.
    by_ends: BTreeMap<(SocketAddrV4, SocketAddrV4), usize>,
    accepted: usize,
    deadlines: BTreeSet<(Instant, usize)>,
    /// For each connection its entry in `deadlines`.
    armed: Vec<Option<Instant>>,
    /// Connections that may have something to send, each at most once.
    ready: VecDeque<usize>,
    is_ready: Vec<bool>,
    /// Relayed connections to which something has happened.
    changed: BTreeSet<usize>,
    /// Segments that were damaged or belonged to no connection.
    strays: u64,
}

impl TcpHost {
    /// A host without connections. Initial sequence numbers follow from the seed.
    pub fn new(seed: Seed) -> Self {
        Self {
            dice: Dice::new(seed.derive("tcp", 0)),
            pattern: Pattern::new(),
            listening: Vec::new(),
            intercepting: None,
            connections: Vec::new(),
            by_ends: BTreeMap::new(),
            accepted: 0,
            deadlines: BTreeSet::new(),
            armed: Vec::new(),
            ready: VecDeque::new(),
            is_ready: Vec::new(),
            changed: BTreeSet::new(),
            strays: 0,
        }
    }

    /// Serves a port.
    #[must_use]
    pub fn listen(mut self, port: u16, config: TcpConfig) -> Self {
        self.listening.push((port, config));
        self
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// If an address is not IPv4, or the pair of addresses is in use.
    pub fn connect(&mut self, connect: Connect) -> TcpId {
        let ends = (v4(connect.from), v4(connect.to));
        let isn = self.dice.next() as u32;
        let role = Role::Client(Client::new(connect.demand));
        let times = (connect.at, connect.until);
        let connection = Connection::connecting(connect.config, ends, isn, role, times);
        self.add(connection)
    }

    /// Accepts connections to any address and port that nothing here listens on; their content is
    /// [relayed](Self::poll_changed). For a gateway, through which such packets pass.
    #[must_use]
    pub fn intercept(mut self, config: TcpConfig) -> Self {
        self.intercepting = Some(config);
        self
    }

    /// Opens a connection now, whose content is [relayed](Self::poll_changed).
    ///
    /// # Panics
    /// If an address is not IPv4, or the pair of addresses is in use.
    pub fn relay(&mut self, now: Instant, ends: [SocketAddr; 2], config: TcpConfig) -> TcpId {
        let ends = (v4(ends[0]), v4(ends[1]));
        let isn = self.dice.next() as u32;
        let role = Role::Relay(Relay::default());
        self.add(Connection::connecting(config, ends, isn, role, (now, None)))
    }

    /// A relayed connection to which something has happened since it was last named here: it was
    /// accepted, there is something to read or room to write, or it has ended.
    pub fn poll_changed(&mut self) -> Option<TcpId> {
        self.changed.pop_first().map(TcpId)
    }

    /// Bytes that a relayed connection takes now; 0 before it is open and once it is finished.
    pub fn room(&self, id: TcpId) -> u64 {
        self.connections[id.0].room()
    }

    /// Sends on a relayed connection, at most as much as there is [room](Self::room) for.
    pub fn write(&mut self, id: TcpId, bytes: &[u8]) {
        self.connections[id.0].write(bytes);
        self.touch(id.0);
    }

    /// Sends no more on a relayed connection.
    pub fn finish(&mut self, id: TcpId) {
        self.connections[id.0].finish();
        self.touch(id.0);
    }

    /// Breaks a relayed connection off.
    pub fn reset(&mut self, now: Instant, id: TcpId) {
        self.connections[id.0].reset(now);
        self.touch(id.0);
    }

    /// The next piece that has arrived on a relayed connection.
    pub fn read(&mut self, id: TcpId) -> Option<Bytes> {
        let bytes = self.connections[id.0].read();
        self.touch(id.0);
        bytes
    }

    /// Whether all that will ever arrive on a relayed connection was read.
    pub fn is_read(&self, id: TcpId) -> bool {
        self.connections[id.0].is_read()
    }

    /// Whether a relayed connection was reset, refused or given up.
    pub fn has_failed(&self, id: TcpId) -> bool {
        self.connections[id.0].has_failed()
    }

    /// When this stack next has something to do by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn add(&mut self, connection: Connection) -> TcpId {
        let index = self.connections.len();
        let ends = (connection.local, connection.remote);
        let before = self.by_ends.insert(ends, index);
        assert!(before.is_none(), "{} to {} is in use", ends.0, ends.1);
        self.connections.push(connection);
        self.armed.push(None);
        self.is_ready.push(false);
        self.touch(index);
        TcpId(index)
    }

    /// What a connection has done so far.
    pub fn report(&self, id: TcpId) -> TcpReport {
        self.connections[id.0].report()
    }

    /// The completed exchanges of a client; only the first million are kept.
    pub fn completions(&self, id: TcpId) -> &[Completion] {
        self.connections[id.0].completions()
    }

    /// All connections in the order they were created, including accepted ones.
    pub fn reports(&self) -> impl Iterator<Item = TcpReport> + '_ {
        self.connections.iter().map(Connection::report)
    }

    /// Segments that were damaged or belonged to no connection.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Something happened to a connection: it may have something to send, and its deadline may have
    /// changed.
    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.is_ready[index], true) {
            self.ready.push_back(index);
        }
        self.rearm(index);
    }

    fn rearm(&mut self, index: usize) {
        let deadline = self.connections[index].deadline();
        if deadline == self.armed[index] {
            return;
        }
        if let Some(old) = std::mem::replace(&mut self.armed[index], deadline) {
            self.deadlines.remove(&(old, index));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, index));
        }
    }

    /// Something came from the network, or failed to come.
    fn note(&mut self, index: usize) {
        if self.connections[index].is_relayed() {
            self.changed.insert(index);
        }
    }

    fn accept(&mut self, syn: &Segment) -> Option<usize> {
        let port = syn.to.port();
        let served = self.listening.iter().find(|(served, _)| *served == port);
        let (config, role) = match (served, &self.intercepting) {
            (Some((_, config)), _) => (config.clone(), Role::Server(Server::default())),
            (None, Some(config)) => (config.clone(), Role::Relay(Relay::default())),
            (None, None) => return None,
        };
        if !syn.syn || syn.acknowledgement.is_some() || self.accepted >= MAX_ACCEPTED {
            return None;
        }
        self.accepted += 1;
        let isn = self.dice.next() as u32;
        let TcpId(index) = self.add(Connection::accepted(config, syn, isn, role));
        Some(index)
    }
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("{address} is no IPv4 address"),
    }
}

impl Process for TcpHost {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let segment = match &packet.payload {
            Payload::Ip(bytes) => Segment::decode(bytes),
            Payload::Udp(_) | Payload::Filler(_) => None,
        };
        let Some(segment) = segment else {
            self.strays += 1;
            return;
        };
        let known = self.by_ends.get(&(segment.to, segment.from)).copied();
        let Some(index) = known.or_else(|| self.accept(&segment)) else {
            self.strays += 1;
            return;
        };
        if known.is_some() {
            self.connections[index].handle(now, segment, &self.pattern);
            self.touch(index);
        }
        self.note(index);
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, index)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            self.armed[index] = None;
            self.connections[index].handle_timeout(now, &self.pattern);
            self.note(index);
            if !std::mem::replace(&mut self.is_ready[index], true) {
                self.ready.push_back(index);
            }
            // A deadline that remains, such as that of a delayed acknowledgement, is entered again
            // once the connection has been polled for segments.
            if self.connections[index]
                .deadline()
                .is_some_and(|next| next > now)
            {
                self.rearm(index);
            }
        }
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        while let Some(index) = self.ready.front().copied() {
            let segment = self.connections[index].poll(now, &self.pattern);
            if let Some(segment) = segment {
                return Some(Packet {
                    from: segment.from.into(),
                    to: segment.to.into(),
                    ecn: None,
                    payload: Payload::Ip(segment.encode()),
                });
            }
            self.ready.pop_front();
            self.is_ready[index] = false;
            self.rearm(index);
        }
        None
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        self.deadline()
    }
}
