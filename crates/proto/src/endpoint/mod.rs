//! An endpoint: its connections, and which datagram belongs to which.

mod accept;
mod admission;
mod contain;
mod deadlines;
mod incoming;
mod memory;
mod route;
mod windows;

pub use accept::ConnectError;
pub(crate) use contain::internal_error;
pub use incoming::{AcceptError, Incoming};

use crate::config::{EndpointConfig, ServerConfig};
use crate::connection::Connection;
use crate::datagram::{Ecn, Transmit, Tuple};
use crate::event::Event;
use crate::handshake::token::EndpointKeys;
use crate::rng::Rng;
use crate::streams::ReadError;
use crate::time::Instant;
use crate::wire::StreamId;
use accept::Stateless;
use admission::{Counted, Crowds, SpentTokens};
use bytes::Bytes;
use contain::contained;
use deadlines::Deadlines;
use incoming::WaitingRoom;
use memory::{Holding, Memory};
use route::{Destination, Routes};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use windows::Windows;

/// Names a connection within its endpoint; reused after [`Event::Drained`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// A connection, and what its endpoint knows of it.
#[derive(Debug)]
struct Member {
    /// Boxed: a map of values as large as this one leaves a third of its room empty.
    connection: Box<Connection>,
    /// Whether it waits for its turn to send.
    is_ready: bool,
    /// Whether its events and routing have to be looked at.
    is_dirty: bool,
    /// Whether its timers have to be looked at.
    is_untimed: bool,
    /// Under which time it is found among the deadlines.
    armed: Option<Instant>,
    /// Where it came from, if it is a server's.
    counted: Option<Counted>,
    /// What it holds of a server's memory.
    holding: Holding,
    /// Whether its end has been told.
    has_ended: bool,
    /// Whether its work panicked.
    has_failed: bool,
}

impl From<Connection> for Member {
    fn from(connection: Connection) -> Self {
        Self {
            connection: Box::new(connection),
            is_ready: false,
            is_dirty: false,
            is_untimed: false,
            armed: None,
            counted: None,
            holding: Holding::default(),
            has_ended: false,
            has_failed: false,
        }
    }
}

impl Member {
    fn of_server(connection: Connection, counted: Counted) -> Self {
        Self {
            counted: Some(counted),
            ..Self::from(connection)
        }
    }
}

/// A set of connections that share sockets.
///
/// Inputs are datagrams, time-outs and commands on connections; after each, drain
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event) and arm a timer for
/// [`next_timeout`](Self::next_timeout). A server that [asks](crate::config::IncomingPolicy::Ask)
/// is drained with [`poll_incoming`](Self::poll_incoming) too.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    server: Option<Arc<ServerConfig>>,
    keys: Arc<EndpointKeys>,
    rng: Rng,
    connections: BTreeMap<Handle, Member>,
    next_handle: u32,
    /// Servers' connections whose handshake is under way: what makes a server busy.
    handshaking: BTreeSet<Handle>,
    crowds: Crowds,
    waiting_room: WaitingRoom,
    memory: Memory,
    windows: Windows,
    spent_tokens: SpentTokens,
    routes: Routes,
    stateless: Stateless,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<Handle>,
    /// Connections whose events and routing have not been looked at since their last input.
    dirty: Vec<Handle>,
    /// Connections whose timers have not been looked at since: that is done when somebody asks how
    /// long to wait.
    untimed: Vec<Handle>,
    deadlines: Deadlines,
    events: VecDeque<(Handle, Event)>,
    /// The latest time it was told.
    clock: Instant,
    #[cfg(feature = "null-protection")]
    is_unprotected: bool,
}

impl Endpoint {
    /// An endpoint without connections. The seed decides every random choice it will make; it must
    /// be secret on a real network.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        let mut rng = Rng::from_seed(seed);
        Self {
            stateless: Stateless::new(config.max_stateless_per_second),
            config,
            server: None,
            keys: Arc::new(EndpointKeys::from_seed(rng.array())),
            rng,
            connections: BTreeMap::new(),
            next_handle: 0,
            handshaking: BTreeSet::new(),
            crowds: Crowds::default(),
            waiting_room: WaitingRoom::default(),
            memory: Memory::default(),
            windows: Windows::default(),
            spent_tokens: SpentTokens::default(),
            routes: Routes::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            untimed: Vec::new(),
            deadlines: Deadlines::default(),
            events: VecDeque::new(),
            clock: Instant::ZERO,
            #[cfg(feature = "null-protection")]
            is_unprotected: false,
        }
    }

    /// Derives stateless reset tokens of future connections from this secret. An endpoint that
    /// restarts with it can reset its former connections at once. The seed, which decides the
    /// connection IDs, must differ all the same (RFC 9000, section 10.3.2).
    pub fn set_reset_secret(&mut self, secret: [u8; 32]) {
        Arc::make_mut(&mut self.keys).set_reset_secret(secret);
    }

    /// Takes the keys of another endpoint: each accepts the address tokens that the other gave
    /// out, and their stateless resets are alike. For those that share their addresses.
    pub fn adopt_keys(&mut self, other: &Self) {
        self.keys = Arc::clone(&other.keys);
    }

    /// Accepts clients from now on, or no more.
    pub fn set_server(&mut self, server: Option<Arc<ServerConfig>>) {
        if let Some(server) = &server {
            self.memory.set_limit(server.send_budget);
        } else {
            self.waiting_room.clear();
        }
        self.server = server;
    }

    /// **Sends and accepts 1-RTT packets without encryption and authentication**, on connections
    /// to come. For simulations, whose networks have no attackers, so that they spend their time on
    /// transport: the handshake is real and packets keep their sizes, so traces do not change. Both
    /// sides must agree.
    ///
    /// Exists only with the feature `null-protection`, and is no setting: no configuration, and so
    /// no file, option or peer, can ask for it, only the program that holds the endpoint. The crate
    /// `net`, which opens sockets, never lets go of its own.
    #[cfg(feature = "null-protection")]
    pub fn leave_unprotected(&mut self) {
        self.is_unprotected = true;
    }

    /// Connection IDs and tokens that are routed to connections.
    #[cfg(feature = "internals")]
    pub fn route_count(&self) -> usize {
        self.routes.count()
    }

    /// A datagram arrived. Its bytes are decrypted in place.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        tuple: Tuple,
        ecn: Option<Ecn>,
        data: &mut [u8],
    ) {
        self.clock = self.clock.max(now);
        match self.routes.find(data, self.config.cids.length()) {
            Destination::Connection(handle, path) => {
                self.work(handle, |connection| {
                    connection.handle_datagram(now, tuple, ecn, path, data);
                });
            }
            Destination::Unknown => self.handle_unknown(now, tuple, ecn, data),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        self.settle();
        self.waiting_room.handle_timeout(now);
        self.relieve_memory(now);
        self.widen_windows(now);
        self.set_timers();
        while let Some((_, handle)) = self.first_deadline().filter(|(at, _)| *at <= now) {
            if let Some(member) = self.connections.get_mut(&handle) {
                self.deadlines.change(handle, member.armed.take(), None);
                self.work(handle, |connection| connection.handle_timeout(now));
            }
        }
        self.settle();
    }

    /// Lets a connection do something, after which it is drained.
    fn work(&mut self, handle: Handle, work: impl FnOnce(&mut Connection)) {
        let Some(member) = self.connections.get_mut(&handle) else {
            return;
        };
        let connection = &mut member.connection;
        match contained(self.config.contain_panics, || work(connection)) {
            Some(()) => touch(member, handle, &mut self.dirty, &mut self.ready),
            None => self.fail(self.clock, handle),
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    ///
    /// Drain first: a connection that was touched since is looked at when it is drained.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        self.settle();
        self.set_timers();
        let first = self.first_deadline().map(|(at, _)| at);
        let own = [
            self.memory.deadline(),
            self.windows.deadline(),
            self.waiting_room.deadline(),
        ];
        own.into_iter().flatten().chain(first).min()
    }

    /// The earliest deadline that some connection is armed for.
    fn first_deadline(&mut self) -> Option<(Instant, Handle)> {
        let connections = &self.connections;
        let armed = |handle| connections.get(&handle).and_then(|member| member.armed);
        self.deadlines.first(armed)
    }

    /// Appends the next datagrams for one route to `buf`: up to `max_segments` of equal size, the
    /// last one perhaps shorter. Connections take turns.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some(transmit) = self.stateless.poll_in_turn(buf) {
            return Some(transmit);
        }
        let of_connection = self.transmit_in_turn(now, max_segments, buf);
        of_connection.or_else(|| self.stateless.poll_transmit(buf))
    }

    /// The next datagrams of the connection whose turn it is.
    fn transmit_in_turn(
        &mut self,
        now: Instant,
        max_segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.clock = self.clock.max(now);
        let start = buf.len();
        while let Some(handle) = self.ready.pop_front() {
            let Some(member) = self.connections.get_mut(&handle) else {
                continue;
            };
            note(&mut member.is_dirty, &mut self.dirty, handle);
            let connection = &mut member.connection;
            let transmit = contained(self.config.contain_panics, || {
                connection.poll_transmit(now, max_segments, buf)
            });
            member.is_ready = matches!(transmit, Some(Some(_)));
            let Some(transmit) = transmit else {
                buf.truncate(start);
                self.fail(now, handle);
                continue;
            };
            if let Some(mut transmit) = transmit {
                transmit.connection = Some(handle);
                self.ready.push_back(handle);
                return Some(transmit);
            }
        }
        None
    }

    /// The next thing an application has to know, and about which connection.
    pub fn poll_event(&mut self) -> Option<(Handle, Event)> {
        if self.events.is_empty() {
            self.settle();
        }
        self.events.pop_front()
    }

    /// A connection, to look at.
    pub fn connection(&self, handle: Handle) -> Option<&Connection> {
        self.connections
            .get(&handle)
            .map(|member| &*member.connection)
    }

    /// A connection, to command. It is drained with the next poll.
    pub fn connection_mut(&mut self, handle: Handle) -> Option<&mut Connection> {
        let member = self.connections.get_mut(&handle)?;
        touch(member, handle, &mut self.dirty, &mut self.ready);
        member.connection.expect_command();
        Some(&mut member.connection)
    }

    /// Reads from a stream of a connection, as [`Connection::read`]; `None` if there is no such
    /// connection. Costs less than [`connection_mut`](Self::connection_mut), after which the
    /// connection is asked once more for all that it may have to send, and tell: reading adds
    /// nothing but credit.
    pub fn read(
        &mut self,
        handle: Handle,
        id: StreamId,
        max: usize,
    ) -> Option<Result<Option<Bytes>, ReadError>> {
        let member = self.connections.get_mut(&handle)?;
        let result = member.connection.read(id, max);
        let is_new = self.windows.note(self.clock, handle, &member.connection);
        if is_new || member.connection.has_control() {
            member.connection.expect_command();
            touch(member, handle, &mut self.dirty, &mut self.ready);
        }
        Some(result)
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = (Handle, &Connection)> {
        self.connections
            .iter()
            .map(|(handle, member)| (*handle, &*member.connection))
    }

    fn touch(&mut self, handle: Handle) {
        if let Some(member) = self.connections.get_mut(&handle) {
            touch(member, handle, &mut self.dirty, &mut self.ready);
        }
    }

    /// Looks at what touched connections have to say: events and routes.
    fn settle(&mut self) {
        // In the order of their handles, not in that in which they were touched. Each stays on the
        // list until its turn: whoever fails comes again, and nobody is left out.
        self.dirty.sort_unstable_by(|one, other| other.cmp(one));
        loop {
            while let Some(handle) = self.dirty.pop() {
                if contained(self.config.contain_panics, || self.settle_one(handle)).is_none() {
                    self.fail(self.clock, handle);
                }
            }
            if !self.serve_writers() {
                self.watch_memory();
                return;
            }
        }
    }

    fn settle_one(&mut self, handle: Handle) {
        let Some(member) = self.connections.get_mut(&handle) else {
            return;
        };
        member.is_dirty = false;
        let connection = &mut member.connection;
        while let Some(change) = connection.poll_routing() {
            self.routes.apply(handle, change);
        }
        let mut drained = false;
        while let Some(event) = connection.poll_event() {
            drained |= event == Event::Drained;
            member.has_ended |= matches!(event, Event::Closed(_));
            self.events.push_back((handle, event));
        }
        self.memory
            .note(self.clock, handle, connection, &mut member.holding);
        self.windows.note(self.clock, handle, connection);
        let is_done = || connection.is_established() || connection.is_closed();
        let ends = !self.handshaking.is_empty() && is_done();
        if !drained {
            note(&mut member.is_untimed, &mut self.untimed, handle);
        }
        if ends {
            self.handshake_ends(handle);
        }
        if drained {
            self.forget(handle);
        }
    }

    /// Looks at the timers of touched connections.
    fn set_timers(&mut self) {
        let mut failed = Vec::new();
        for handle in self.untimed.drain(..) {
            let Some(member) = self.connections.get_mut(&handle) else {
                continue;
            };
            member.is_untimed = false;
            let connection = &mut member.connection;
            let asked = contained(self.config.contain_panics, || connection.next_timeout());
            let Some(deadline) = asked else {
                failed.push(handle);
                continue;
            };
            if member.armed == deadline {
                continue;
            }
            self.deadlines.change(handle, member.armed, deadline);
            member.armed = deadline;
        }
        if !failed.is_empty() {
            failed
                .drain(..)
                .for_each(|handle| self.fail(self.clock, handle));
            self.settle();
            // Who fails once more is gone, so that this ends.
            self.set_timers();
        }
    }

    /// Frees what belongs to a connection, without a look at the others' routes.
    fn forget(&mut self, handle: Handle) {
        self.handshaking.remove(&handle);
        let Some(member) = self.connections.remove(&handle) else {
            return;
        };
        self.deadlines.change(handle, member.armed, None);
        if let Some(counted) = &member.counted {
            self.crowds.leave(counted);
        }
        for change in member.connection.last_routing() {
            self.routes.apply(handle, change);
        }
        debug_assert!(self.routes.is_free(handle), "a route without a connection");
        // What it owns may be anybody's code.
        let _ = contained(self.config.contain_panics, || drop(member));
    }
}

/// Puts a connection on the lists of those that may have something to tell and to send.
fn touch(
    member: &mut Member,
    handle: Handle,
    dirty: &mut Vec<Handle>,
    ready: &mut VecDeque<Handle>,
) {
    note(&mut member.is_dirty, dirty, handle);
    if !std::mem::replace(&mut member.is_ready, true) {
        ready.push_back(handle);
    }
}

/// Puts a connection on a list, unless it is there.
fn note(is_there: &mut bool, list: &mut Vec<Handle>, handle: Handle) {
    if !std::mem::replace(is_there, true) {
        list.push(handle);
    }
}
