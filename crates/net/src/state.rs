//! What the driver and the handles share: the engine behind a lock, and who waits for what.
//!
//! The lock is held only for bookkeeping, never across a system call or an await.

use crate::clock::Clock;
use crate::engine::{
    self, ConnectionError, ConnectionStats, Event, Handle, PathNotice, PathStats, StreamEvent,
};
use crate::sockets::Socket;
use anabranch_proto::datagram::SocketId;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, PathId, StreamId};
use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::broadcast;

/// Path notices by which a subscriber may fall behind before it misses some.
const NOTICES: usize = 64;

/// Failed handshakes kept until someone asks for them; beyond that, the oldest are dropped.
const FAILURES: usize = 64;

/// A client whose handshake failed.
#[derive(Debug, Clone)]
pub struct FailedHandshake {
    /// The client's address.
    pub remote: SocketAddr,
    /// Why it failed. If the key is not the pinned one, this contains its fingerprint.
    pub error: ConnectionError,
}

/// Identifies a connection forever, unlike the engine's handles, which are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

/// What a task can wait for on a connection, apart from its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Connected,
    Confirmed,
    Closed,
    AcceptBi,
    AcceptUni,
    OpenBi,
    OpenUni,
    DatagramIn,
    DatagramOut,
    DatagramsExpired,
    Resumable,
}

impl Wait {
    const KINDS: usize = 11;

    pub(crate) fn accept(dir: Dir) -> Self {
        if dir == Dir::Bi {
            Self::AcceptBi
        } else {
            Self::AcceptUni
        }
    }

    pub(crate) fn open(dir: Dir) -> Self {
        if dir == Dir::Bi {
            Self::OpenBi
        } else {
            Self::OpenUni
        }
    }
}

/// How the sending side of a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendEnd {
    /// The peer has received everything.
    Acknowledged,
    /// The peer wants no more of it.
    Stopped(u64),
}

/// The sending side of a stream that has a handle.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Whoever writes.
    pub(crate) waker: Option<Waker>,
    /// Whoever waits for the end only.
    pub(crate) watchers: Vec<Waker>,
    pub(crate) end: Option<SendEnd>,
}

/// The state that handles keep for a connection.
#[derive(Debug)]
pub(crate) struct Tracked {
    /// The engine's handle for it; `None` once the engine has forgotten it.
    pub(crate) handle: Option<Handle>,
    pub(crate) connected: bool,
    pub(crate) confirmed: bool,
    /// Whether there is something with which a later connection can resume.
    pub(crate) resumable: bool,
    pub(crate) ended: Option<ConnectionError>,
    /// The final counters.
    pub(crate) last: Option<(ConnectionStats, Vec<(PathId, PathStats)>)>,
    /// Whether the application has a handle for it.
    held: bool,
    /// Whether it is or was in the queue of connections to be accepted.
    offered: bool,
    waiting: [Vec<Waker>; Wait::KINDS],
    pub(crate) receiving: BTreeMap<StreamId, Option<Waker>>,
    pub(crate) sending: BTreeMap<StreamId, Sending>,
    /// For those who subscribed: the queue of a connection whose notices nobody wants is not made.
    /// `None` once the connection has ended.
    notices: Option<OnceCell<broadcast::Sender<PathNotice>>>,
}

impl Tracked {
    fn new(handle: Handle, held: bool) -> Self {
        Self {
            handle: Some(handle),
            connected: false,
            confirmed: false,
            resumable: false,
            offered: false,
            ended: None,
            last: None,
            held,
            waiting: Default::default(),
            receiving: BTreeMap::new(),
            sending: BTreeMap::new(),
            notices: Some(OnceCell::new()),
        }
    }

    /// Whether to offer the connection to the application, which happens only once.
    fn is_new(&mut self) -> bool {
        !self.held && !std::mem::replace(&mut self.offered, true)
    }

    /// Arranges for `cx`'s task to be woken.
    pub(crate) fn wait(&mut self, kind: Wait, cx: &Context<'_>) {
        add_waker(&mut self.waiting[kind as usize], cx);
    }

    /// Starts to track the sides of a stream that get a handle.
    pub(crate) fn hold(&mut self, id: StreamId, sends: bool, receives: bool) {
        if sends {
            self.sending.insert(id, Sending::default());
        }
        if receives {
            self.receiving.insert(id, None);
        }
    }

    /// Path notices from now on; none if the connection has ended.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<PathNotice> {
        match &self.notices {
            Some(notices) => {
                let queue = notices.get_or_init(|| broadcast::channel(NOTICES).0);
                queue.subscribe()
            }
            None => broadcast::channel(1).1,
        }
    }

    /// Marks the connection as ended and wakes every task that waits for something on it.
    fn end(&mut self, error: ConnectionError, woken: &mut Vec<Waker>) {
        self.ended.get_or_insert(error);
        self.notices = None;
        self.wake_all(woken);
    }

    fn wake(&mut self, kind: Wait, woken: &mut Vec<Waker>) {
        woken.append(&mut self.waiting[kind as usize]);
    }

    fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.waiting
            .iter_mut()
            .for_each(|waiting| woken.append(waiting));
        woken.extend(self.receiving.values_mut().filter_map(Option::take));
        for sending in self.sending.values_mut() {
            woken.extend(sending.waker.take());
            woken.append(&mut sending.watchers);
        }
    }

    fn on_stream(&mut self, event: &StreamEvent, woken: &mut Vec<Waker>) {
        match *event {
            StreamEvent::Opened { dir } => self.wake(Wait::accept(dir), woken),
            StreamEvent::Available { dir } => self.wake(Wait::open(dir), woken),
            StreamEvent::DatagramReceived => self.wake(Wait::DatagramIn, woken),
            StreamEvent::DatagramsUnblocked => self.wake(Wait::DatagramOut, woken),
            StreamEvent::DatagramsExpired => self.wake(Wait::DatagramsExpired, woken),
            StreamEvent::Readable { id } => {
                woken.extend(self.receiving.get_mut(&id).and_then(Option::take));
            }
            StreamEvent::Writable { id } => self.on_send(id, None, woken),
            StreamEvent::Finished { id } => self.on_send(id, Some(SendEnd::Acknowledged), woken),
            StreamEvent::Stopped { id, code } => {
                self.on_send(id, Some(SendEnd::Stopped(code)), woken);
            }
            _ => {}
        }
    }

    /// Why the peer wanted no more of a stream that has a handle, if it did not.
    pub(crate) fn stopped(&self, id: StreamId) -> Option<u64> {
        match self.sending.get(&id)?.end {
            Some(SendEnd::Stopped(code)) => Some(code),
            _ => None,
        }
    }

    fn on_send(&mut self, id: StreamId, end: Option<SendEnd>, woken: &mut Vec<Waker>) {
        // Streams without a handle are of no interest.
        let Some(sending) = self.sending.get_mut(&id) else {
            return;
        };
        sending.end = sending.end.or(end);
        woken.extend(sending.waker.take());
        if end.is_some() {
            woken.append(&mut sending.watchers);
        }
    }
}

/// Adds a task's waker, unless it is already there.
pub(crate) fn add_waker(waiting: &mut Vec<Waker>, cx: &Context<'_>) {
    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
        waiting.push(cx.waker().clone());
    }
}

/// The engine with everything around it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: engine::Endpoint,
    connections: BTreeMap<Key, Tracked>,
    by_handle: BTreeMap<Handle, Key>,
    next_key: u64,
    pub(crate) sockets: BTreeMap<SocketId, Arc<Socket>>,
    /// Counts changes to `sockets`.
    pub(crate) generation: u64,
    next_socket: u32,
    /// Connections not accepted by the application yet.
    accepted: VecDeque<Key>,
    accepting: Vec<Waker>,
    /// Who waits for clients to decide about.
    deciding: Vec<Waker>,
    /// Failed handshakes of clients.
    failures: VecDeque<FailedHandshake>,
    failing: Vec<Waker>,
    idle: Vec<Waker>,
    /// Whether the application still has a handle for the endpoint.
    open: bool,
    driver: Option<Waker>,
    /// Counts the driver's rounds.
    turns: u64,
    /// Who waits for the next round.
    turning: Vec<Waker>,
    /// Whether the driver has ended, either with the runtime or by a panic.
    driver_gone: bool,
}

/// Shared by the driver and every handle.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) clock: Clock,
}

impl Shared {
    pub(crate) fn new(engine: engine::Endpoint) -> Self {
        let state = State {
            engine,
            connections: BTreeMap::new(),
            by_handle: BTreeMap::new(),
            next_key: 0,
            sockets: BTreeMap::new(),
            generation: 0,
            next_socket: 0,
            accepted: VecDeque::new(),
            accepting: Vec::new(),
            deciding: Vec::new(),
            failures: VecDeque::new(),
            failing: Vec::new(),
            idle: Vec::new(),
            open: true,
            driver: None,
            turns: 0,
            turning: Vec::new(),
            driver_gone: false,
        };
        Self {
            state: Mutex::new(state),
            clock: Clock::new(),
        }
    }

    /// A panic under the lock, here or in the engine, ends only the connection whose work it
    /// interrupted. The other connections continue, so a poisoned lock is used as before.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address that datagrams from this socket to `remote` leave from, as far as that is known.
    pub(crate) fn address_towards(&self, id: SocketId, remote: SocketAddr) -> Option<IpAddr> {
        // The system is asked without the lock.
        let socket = Arc::clone(self.lock().sockets.get(&id)?);
        socket.address_towards(remote)
    }
}

impl State {
    /// Wakes the driver to look at what changed.
    pub(crate) fn wake_driver(&mut self) {
        if let Some(waker) = self.take_driver() {
            waker.wake();
        }
    }

    /// The driver's waker, for whoever wants to wake it without the lock.
    pub(crate) fn take_driver(&mut self) -> Option<Waker> {
        self.driver.take()
    }

    /// Registers the driver, which has gone round and goes to sleep, to be woken by the next
    /// command.
    pub(crate) fn driver_waits(&mut self, cx: &Context<'_>) {
        self.turns += 1;
        self.turning.drain(..).for_each(Waker::wake);
        match &mut self.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.driver = Some(cx.waker().clone()),
        }
    }

    /// The driver's rounds so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Waits until the driver has made more than `before` turns; wakes it for that.
    pub(crate) fn poll_turned(&mut self, cx: &Context<'_>, before: u64) -> Poll<()> {
        if self.turns > before {
            return Poll::Ready(());
        }
        add_waker(&mut self.turning, cx);
        self.wake_driver();
        Poll::Pending
    }

    /// Whether nothing is left to drive and nothing more can be started.
    pub(crate) fn is_finished(&self) -> bool {
        !self.open && self.by_handle.is_empty()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open && !self.driver_gone
    }

    /// Handles of the connections the engine knows.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.by_handle.keys().copied().collect()
    }

    pub(crate) fn add_socket(&mut self, socket: Socket) -> SocketId {
        let id = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(id, Arc::new(socket));
        self.generation += 1;
        self.wake_driver();
        id
    }

    pub(crate) fn remove_socket(&mut self, id: SocketId) {
        if self.sockets.remove(&id).is_some() {
            self.generation += 1;
            self.wake_driver();
        }
    }

    /// Nothing gets through this socket any more.
    pub(crate) fn report_fault(&mut self, now: Instant, socket: SocketId) {
        self.order_all(now, |connection| connection.on_socket_error(now, socket));
    }

    /// Runs `work` on every connection, as [`order`](Self::order) does on one.
    pub(crate) fn order_all(
        &mut self,
        now: Instant,
        mut work: impl FnMut(&mut engine::Connection),
    ) {
        for handle in self.handles() {
            self.order(now, handle, &mut work);
        }
        self.wake_driver();
    }

    /// Runs `work` on a connection on behalf of something other than its own handles. If this
    /// panics, the connection ends and the panic goes no further.
    pub(crate) fn order(
        &mut self,
        now: Instant,
        handle: Handle,
        work: impl FnOnce(&mut engine::Connection),
    ) {
        let Some(connection) = self.engine.connection_mut(handle) else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| work(connection))).is_err() {
            self.engine.fail(now, handle);
        }
    }

    /// Ends a connection because a command on it panicked.
    pub(crate) fn fail(&mut self, now: Instant, key: Key) {
        if let Some(handle) = self.tracked_ref(key).handle {
            self.engine.fail(now, handle);
        }
        self.wake_driver();
    }

    /// Starts to track a connection; `held` means that the application gets a handle at once.
    pub(crate) fn track(&mut self, handle: Handle, held: bool) -> Key {
        let key = Key(self.next_key);
        self.next_key += 1;
        self.connections.insert(key, Tracked::new(handle, held));
        self.by_handle.insert(handle, key);
        key
    }

    pub(crate) fn tracked(&mut self, key: Key) -> &mut Tracked {
        self.connections
            .get_mut(&key)
            .expect("a held connection is tracked")
    }

    pub(crate) fn tracked_ref(&self, key: Key) -> &Tracked {
        self.connections
            .get(&key)
            .expect("a held connection is tracked")
    }

    /// The engine's connection, as long as there is one.
    pub(crate) fn connection(&self, key: Key) -> Option<&engine::Connection> {
        self.engine.connection(self.tracked_ref(key).handle?)
    }

    /// The handles' state and the engine's connection, unless the connection has ended.
    pub(crate) fn parts(
        &mut self,
        key: Key,
    ) -> Result<(&mut Tracked, &mut engine::Connection), ConnectionError> {
        let tracked = self
            .connections
            .get_mut(&key)
            .expect("a held connection is tracked");
        if let Some(error) = &tracked.ended {
            return Err(error.clone());
        }
        let connection = tracked
            .handle
            .and_then(|handle| self.engine.connection_mut(handle));
        Ok((tracked, connection.ok_or(ConnectionError::LocallyClosed)?))
    }

    /// The application dropped its last handle of a connection.
    pub(crate) fn release(&mut self, key: Key, clock: &Clock) {
        if let Some(handle) = self.tracked_ref(key).handle {
            let now = clock.now();
            // Has no effect if it has ended.
            self.order(now, handle, |connection| connection.close(now, 0, b""));
            self.wake_driver();
        }
        let tracked = self.tracked(key);
        tracked.held = false;
        if tracked.handle.is_none() {
            self.connections.remove(&key);
        }
    }

    /// The application dropped its last handle of the endpoint.
    pub(crate) fn close_endpoint(&mut self, clock: &Clock) {
        self.open = false;
        self.engine.set_server(None);
        for key in std::mem::take(&mut self.accepted) {
            if self.connections.contains_key(&key) {
                self.release(key, clock);
            }
        }
        self.accepting.drain(..).for_each(Waker::wake);
        self.deciding.drain(..).for_each(Waker::wake);
        self.failing.drain(..).for_each(Waker::wake);
        self.wake_driver();
    }

    /// The next connection from a client; ready with `None` when there will be no more.
    pub(crate) fn poll_accept(&mut self, cx: &Context<'_>) -> Poll<Option<Key>> {
        while let Some(key) = self.accepted.pop_front() {
            if let Some(tracked) = self.connections.get_mut(&key)
                && tracked.ended.is_none()
            {
                tracked.held = true;
                return Poll::Ready(Some(key));
            }
        }
        if !self.is_open() {
            return Poll::Ready(None);
        }
        add_waker(&mut self.accepting, cx);
        Poll::Pending
    }

    /// The next client that waits for an answer; ready with `None` when there will be no more.
    pub(crate) fn poll_incoming(&mut self, cx: &Context<'_>) -> Poll<Option<engine::Incoming>> {
        if !self.is_open() {
            return Poll::Ready(None);
        }
        if let Some(client) = self.engine.poll_incoming() {
            return Poll::Ready(Some(client));
        }
        add_waker(&mut self.deciding, cx);
        Poll::Pending
    }

    /// The next failed handshake; ready with `None` when there will be no more.
    pub(crate) fn poll_failure(&mut self, cx: &Context<'_>) -> Poll<Option<FailedHandshake>> {
        if let Some(failed) = self.failures.pop_front() {
            return Poll::Ready(Some(failed));
        }
        if !self.is_open() {
            return Poll::Ready(None);
        }
        add_waker(&mut self.failing, cx);
        Poll::Pending
    }

    /// Ready once every connection has ended and the peer knows, or has been given up on.
    pub(crate) fn poll_idle(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.by_handle.is_empty() || self.driver_gone {
            return Poll::Ready(());
        }
        add_waker(&mut self.idle, cx);
        Poll::Pending
    }

    /// Delivers the engine's events to those who wait for them. Wakers are collected in `woken`, to
    /// be woken after the lock is released.
    pub(crate) fn drain_events(&mut self, clock: &Clock, woken: &mut Vec<Waker>) {
        if self.engine.has_incoming() {
            woken.append(&mut self.deciding);
        }
        while let Some((handle, event)) = self.engine.poll_event() {
            if matches!(event, Event::Handshaking) {
                // One that the application decided about is tracked already.
                if !self.by_handle.contains_key(&handle) {
                    self.track(handle, false);
                }
                continue;
            }
            let Some(&key) = self.by_handle.get(&handle) else {
                continue;
            };
            let Some(tracked) = self.connections.get_mut(&key) else {
                continue;
            };
            match event {
                Event::Handshaking | Event::EarlyDataRejected => {}
                Event::Connected => {
                    tracked.connected = true;
                    tracked.wake(Wait::Connected, woken);
                    if tracked.is_new() {
                        self.on_accepted(key, clock, woken);
                    }
                }
                Event::Confirmed => {
                    tracked.confirmed = true;
                    tracked.wake(Wait::Confirmed, woken);
                }
                // A client's own connection already has a handle, so it is not offered.
                Event::EarlyDataAccepted => {
                    if tracked.is_new() {
                        self.on_accepted(key, clock, woken);
                    }
                }
                Event::Resumable => {
                    tracked.resumable = true;
                    tracked.wake(Wait::Resumable, woken);
                }
                Event::Stream(event) => tracked.on_stream(&event, woken),
                Event::Path(notice) => {
                    // An error means that nobody is listening.
                    let queue = tracked.notices.as_ref().and_then(OnceCell::get);
                    let _ = queue.map(|queue| queue.send(notice));
                }
                Event::Closed(error) => {
                    let connection = self.engine.connection(handle);
                    // A connection that ended by a panic may panic again when asked for its
                    // counters.
                    let figures = AssertUnwindSafe(|| connection.map(snapshot));
                    tracked.last = catch_unwind(figures).ok().flatten();
                    if let Some(failed) = failure(tracked, &error) {
                        if self.failures.len() >= FAILURES {
                            self.failures.pop_front();
                        }
                        self.failures.push_back(failed);
                        woken.append(&mut self.failing);
                    }
                    tracked.end(error, woken);
                }
                Event::Drained => self.on_drained(handle, key, woken),
            }
        }
    }

    fn on_accepted(&mut self, key: Key, clock: &Clock, woken: &mut Vec<Waker>) {
        if self.open {
            self.accepted.push_back(key);
            woken.append(&mut self.accepting);
        } else {
            self.release(key, clock);
        }
    }

    fn on_drained(&mut self, handle: Handle, key: Key, woken: &mut Vec<Waker>) {
        self.by_handle.remove(&handle);
        if let Some(tracked) = self.connections.get_mut(&key) {
            tracked.handle = None;
            tracked.end(ConnectionError::LocallyClosed, woken);
            if !tracked.held {
                self.connections.remove(&key);
            }
        }
        if self.by_handle.is_empty() {
            woken.append(&mut self.idle);
        }
    }

    /// The driver ends: nothing will happen any more, so everyone who waits is woken.
    pub(crate) fn driver_ends(&mut self) {
        self.driver_gone = true;
        let mut woken = std::mem::take(&mut self.accepting);
        woken.append(&mut self.deciding);
        woken.append(&mut self.failing);
        woken.append(&mut self.idle);
        for tracked in self.connections.values_mut() {
            tracked.end(ConnectionError::LocallyClosed, &mut woken);
        }
        self.sockets.clear();
        woken.into_iter().for_each(Waker::wake);
    }
}

/// The report for a client whose connection ended before it was established.
fn failure(tracked: &Tracked, error: &ConnectionError) -> Option<FailedHandshake> {
    if tracked.held || tracked.connected {
        return None;
    }
    let (_, stats) = tracked.last.as_ref()?.1.first()?;
    Some(FailedHandshake {
        remote: stats.tuple.remote,
        error: error.clone(),
    })
}

/// A connection's counters.
pub(crate) fn snapshot(
    connection: &engine::Connection,
) -> (ConnectionStats, Vec<(PathId, PathStats)>) {
    let paths = connection
        .paths()
        .filter_map(|id| Some((id, connection.path_stats(id)?)));
    (connection.stats(), paths.collect())
}
