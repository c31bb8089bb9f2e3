//! Connections, as seen by an application.

use crate::engine::{
    self, AbandonPathError, ConnectionError, ConnectionStats, MigrateError, OpenPathError,
    PathNotice, PathOptions, PathStats, PathUnknown,
};
use crate::error::{ExportError, KeyUpdateError};
use crate::state::{Key, Shared, State, Tracked, Wait, add_waker, snapshot};
use crate::streams::{RecvStream, SendStream};
use anabranch_proto::congestion::ControllerFactory;
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::{Dir, ErrorCode, PathId, Side, StreamId};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Poll};
use tokio::sync::broadcast;

/// Keeps a connection open while any handle of it or of its streams exists.
#[derive(Debug)]
pub(crate) struct Holder {
    shared: Arc<Shared>,
    key: Key,
}

impl Holder {
    pub(crate) fn new(shared: Arc<Shared>, key: Key) -> Arc<Self> {
        Arc::new(Self { shared, key })
    }

    /// Runs an action on the connection, unless it has ended, and wakes the driver.
    pub(crate) fn act<R>(
        &self,
        action: impl FnOnce(&mut Tracked, &mut engine::Connection) -> R,
    ) -> Result<R, ConnectionError> {
        self.command(|tracked, connection| (action(tracked, connection), true))
    }

    /// Runs an action that may have to wait. The driver is woken if the action is ready, even if
    /// there is nothing to send, because it then reads sooner what has arrived: without this
    /// wake-up, 64 concurrent requests took a tenth longer.
    pub(crate) fn poll_act<R>(
        &self,
        action: impl FnOnce(&mut Tracked, &mut engine::Connection) -> Poll<R>,
    ) -> Poll<Result<R, ConnectionError>> {
        let poll = self.command(|tracked, connection| {
            let poll = action(tracked, connection);
            let acted = poll.is_ready();
            (poll, acted)
        });
        match poll {
            Ok(poll) => poll.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Runs an action on the connection and wakes the driver if it says so. If the action panics,
    /// only this connection ends, and the panic reaches the caller after the lock is released.
    fn command<R>(
        &self,
        action: impl FnOnce(&mut Tracked, &mut engine::Connection) -> (R, bool),
    ) -> Result<R, ConnectionError> {
        let mut state = self.shared.lock();
        let (tracked, connection) = state.parts(self.key)?;
        // A panic may leave the connection inconsistent, but then it is not used again.
        let result = catch_unwind(AssertUnwindSafe(|| action(tracked, connection)));
        match result {
            Ok((result, acted)) => {
                wake_after(state, acted);
                Ok(result)
            }
            Err(panic) => {
                state.fail(self.shared.clock.now(), self.key);
                drop(state);
                resume_unwind(panic)
            }
        }
    }

    /// Accesses the state that the handles keep for the connection, whether or not it has ended.
    pub(crate) fn tracked<R>(&self, look: impl FnOnce(&mut Tracked) -> R) -> R {
        look(self.shared.lock().tracked(self.key))
    }

    /// For destructors, which must not panic: the action gets `None` if the connection is gone. The
    /// driver is woken if it returns true.
    pub(crate) fn act_for_drop(
        &self,
        action: impl FnOnce(&mut Tracked, Option<&mut engine::Connection>) -> bool,
    ) {
        let mut state = self.shared.lock();
        match state.parts(self.key) {
            Ok((tracked, connection)) => {
                let work = AssertUnwindSafe(|| action(tracked, Some(connection)));
                match catch_unwind(work) {
                    Ok(acted) => wake_after(state, acted),
                    Err(_) => state.fail(self.shared.clock.now(), self.key),
                }
            }
            Err(_) => {
                action(state.tracked(self.key), None);
            }
        }
    }

    /// The time by the clock that drives the connection.
    pub(crate) fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&engine::Connection) -> R) -> Option<R> {
        self.shared.lock().connection(self.key).map(look)
    }

    /// Like [`look`](Self::look), but mutable; also works on a closed connection that is not
    /// forgotten yet.
    pub(crate) fn look_mut<R>(&self, look: impl FnOnce(&mut engine::Connection) -> R) -> Option<R> {
        let mut state = self.shared.lock();
        let handle = state.tracked_ref(self.key).handle?;
        let connection = state.engine.connection_mut(handle)?;
        // A panic may leave the connection inconsistent, but then it is not used again.
        match catch_unwind(AssertUnwindSafe(|| look(connection))) {
            Ok(result) => Some(result),
            Err(panic) => {
                state.fail(self.shared.clock.now(), self.key);
                drop(state);
                resume_unwind(panic)
            }
        }
    }
}

/// Releases the lock, and only then wakes the driver, which would wait for it at once.
fn wake_after(mut state: MutexGuard<'_, State>, acted: bool) {
    let driver = acted.then(|| state.take_driver()).flatten();
    drop(state);
    if let Some(driver) = driver {
        driver.wake();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.lock().release(self.key, &self.shared.clock);
    }
}

/// A connection. It is established unless it was [begun](crate::Endpoint::begin_over) or accepted
/// early. Cheap to clone; when the last clone and the last of its streams are dropped, it is closed
/// with code 0.
#[derive(Debug, Clone)]
pub struct Connection {
    holder: Arc<Holder>,
}

impl Connection {
    pub(crate) fn new(holder: Arc<Holder>) -> Self {
        Self { holder }
    }

    pub(crate) fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// Waits until the handshake is complete.
    ///
    /// # Errors
    ///
    /// The connection ended first.
    pub async fn established(&self) -> Result<(), ConnectionError> {
        self.reached(Wait::Connected, |tracked| tracked.connected)
            .await
    }

    /// Waits until the peer is known to have completed the handshake, too (RFC 9001, section
    /// 4.1.2). From then on keys can be updated, and paths moved.
    ///
    /// # Errors
    ///
    /// The connection ended first.
    pub async fn confirmed(&self) -> Result<(), ConnectionError> {
        self.reached(Wait::Confirmed, |tracked| tracked.confirmed)
            .await
    }

    /// Waits until something `is_reached`, which those in `queue` are woken for.
    async fn reached(
        &self,
        queue: Wait,
        is_reached: impl Fn(&Tracked) -> bool,
    ) -> Result<(), ConnectionError> {
        poll_fn(|cx| {
            self.holder.tracked(|tracked| match &tracked.ended {
                Some(error) => Poll::Ready(Err(error.clone())),
                None if is_reached(tracked) => Poll::Ready(Ok(())),
                None => {
                    tracked.wait(queue, cx);
                    Poll::Pending
                }
            })
        })
        .await
    }

    // Streams.

    /// Opens a bidirectional stream, waiting until the peer allows one more.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = poll_fn(|cx| self.poll_open(cx, Dir::Bi)).await?;
        Ok((self.send_stream(id), self.recv_stream(id)))
    }

    /// Opens a unidirectional stream, waiting until the peer allows one more.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let id = poll_fn(|cx| self.poll_open(cx, Dir::Uni)).await?;
        Ok(self.send_stream(id))
    }

    /// Waits for the peer to open a bidirectional stream.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let id = poll_fn(|cx| self.poll_accept(cx, Dir::Bi)).await?;
        Ok((self.send_stream(id), self.recv_stream(id)))
    }

    /// Waits for the peer to open a unidirectional stream.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        let id = poll_fn(|cx| self.poll_accept(cx, Dir::Uni)).await?;
        Ok(self.recv_stream(id))
    }

    /// Opens a stream and [holds](Tracked::hold) it, or arranges a wake-up. The caller makes the
    /// handles.
    pub(crate) fn poll_open(
        &self,
        cx: &Context<'_>,
        dir: Dir,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        self.holder.poll_act(|tracked, connection| {
            if let Some(id) = connection.open(dir) {
                tracked.hold(id, true, dir == Dir::Bi);
                Poll::Ready(id)
            } else {
                tracked.wait(Wait::open(dir), cx);
                Poll::Pending
            }
        })
    }

    /// Accepts a stream and [holds](Tracked::hold) it, or arranges a wake-up. The caller makes the
    /// handles.
    pub(crate) fn poll_accept(
        &self,
        cx: &Context<'_>,
        dir: Dir,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        self.holder.poll_act(|tracked, connection| {
            if let Some(id) = connection.accept(dir) {
                tracked.hold(id, dir == Dir::Bi, true);
                Poll::Ready(id)
            } else {
                tracked.wait(Wait::accept(dir), cx);
                Poll::Pending
            }
        })
    }

    /// The handle for the sending side of a stream that is held.
    pub(crate) fn send_stream(&self, id: StreamId) -> SendStream {
        SendStream::new(Arc::clone(&self.holder), id)
    }

    /// The handle for the receiving side of a stream that is held.
    pub(crate) fn recv_stream(&self, id: StreamId) -> RecvStream {
        RecvStream::new(Arc::clone(&self.holder), id)
    }

    // Paths.

    /// Opens a path from one of the endpoint's sockets. [`PathNotice::Opened`] reports that it
    /// works.
    ///
    /// # Errors
    ///
    /// The engine's reason, or [`OpenPathError::Closed`].
    pub fn open_path(
        &self,
        socket: SocketId,
        remote: SocketAddr,
        options: PathOptions,
    ) -> Result<PathId, OpenPathError> {
        let now = self.holder.shared.clock.now();
        let tuple = Tuple {
            socket,
            local: None,
            remote,
        };
        let local = self.holder.shared.address_towards(socket, remote);
        self.holder
            .act(|_, connection| connection.open_path_from(now, tuple, local, options))
            .unwrap_or(Err(OpenPathError::Closed))
    }

    /// From now on, sends a path's packets from another socket or to another address. With
    /// multipath, prefer to open a new path and abandon the old one.
    ///
    /// # Errors
    ///
    /// See [`MigrateError`].
    pub fn migrate_path(&self, id: PathId, to: Tuple) -> Result<(), MigrateError> {
        let now = self.holder.shared.clock.now();
        let local = self.holder.shared.address_towards(to.socket, to.remote);
        self.holder
            .act(|_, connection| connection.migrate_path_from(now, id, to, local))
            .unwrap_or(Err(MigrateError::NoSuchPath))
    }

    /// Abandons a path, with a code of the application or the protocol.
    ///
    /// # Errors
    ///
    /// There is no such path, or it is the last one that works.
    pub fn abandon_path(
        &self,
        id: PathId,
        code: impl Into<ErrorCode>,
    ) -> Result<(), AbandonPathError> {
        let now = self.holder.shared.clock.now();
        self.holder
            .act(|_, connection| connection.abandon_path(now, id, code))
            .unwrap_or(Err(AbandonPathError::Unknown))
    }

    /// Tells the peer how to use a path.
    ///
    /// # Errors
    ///
    /// There is no such path.
    pub fn set_path_status(&self, id: PathId, status: PathStatus) -> Result<(), PathUnknown> {
        self.holder
            .act(|_, connection| connection.set_path_status(id, status))
            .unwrap_or(Err(PathUnknown))
    }

    /// Replaces the congestion controllers of all paths, including future ones.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub fn set_congestion(&self, factory: ControllerFactory) -> Result<(), ConnectionError> {
        let now = self.holder.shared.clock.now();
        self.holder
            .act(|_, connection| connection.set_congestion(now, factory))
    }

    /// Starts a key update (RFC 9001, section 6). The engine does this by itself when it is due.
    ///
    /// # Errors
    ///
    /// It is too early for another update, or the connection ended.
    pub fn update_keys(&self) -> Result<(), KeyUpdateError> {
        let now = self.holder.shared.clock.now();
        self.holder
            .act(|_, connection| connection.update_keys(now))?
            .map_err(KeyUpdateError::Refused)
    }

    /// Subscribes to what happens to paths from now on.
    pub fn path_notices(&self) -> PathNotices {
        PathNotices {
            receiver: self.holder.tracked(|tracked| tracked.subscribe()),
        }
    }

    /// Waits until `count` paths are [open](PathStats::is_open) at once. A connection is
    /// established with its first one; the others follow.
    ///
    /// It waits as long as the connection lasts: set a limit of time unless it is certain that
    /// there will be that many.
    ///
    /// # Errors
    ///
    /// The connection ended first.
    pub async fn wait_for_paths(&self, count: usize) -> Result<(), ConnectionError> {
        self.established().await?;
        let mut notices = self.path_notices();
        loop {
            if let Some(error) = self.close_reason() {
                return Err(error);
            }
            let paths = self.paths();
            if paths.iter().filter(|(_, path)| path.is_open()).count() >= count {
                return Ok(());
            }
            if notices.next().await.is_none() {
                return Err(self.closed().await);
            }
        }
    }

    /// All paths with their counters, or their final state if the connection ended. Also those that
    /// are only being opened: [`PathStats::is_open`] tells. Paths that were given up are not among
    /// them.
    pub fn paths(&self) -> Vec<(PathId, PathStats)> {
        self.snapshot().1
    }

    /// The counters of one path.
    pub fn path_stats(&self, id: PathId) -> Option<PathStats> {
        self.paths()
            .into_iter()
            .find_map(|(path, stats)| (path == id).then_some(stats))
    }

    /// What the engine knows of a path, also of one that was given up, until it is discarded.
    pub(crate) fn known_path(&self, id: PathId) -> Option<PathStats> {
        self.holder.look(|connection| connection.path_stats(id))?
    }

    /// The connection's counters, or their final values if it ended.
    pub fn stats(&self) -> ConnectionStats {
        self.snapshot().0
    }

    fn snapshot(&self) -> (ConnectionStats, Vec<(PathId, PathStats)>) {
        let state = self.holder.shared.lock();
        if let Some(last) = &state.tracked_ref(self.holder.key).last {
            return last.clone();
        }
        state
            .connection(self.holder.key)
            .map(snapshot)
            .unwrap_or_default()
    }

    /// Waits until nothing more has to be sent on a stream: the peer has received everything or
    /// wants no more of it, its handle was dropped, or the connection ended. Any task may wait,
    /// whoever holds the stream's [`SendStream`].
    pub async fn send_ended(&self, id: StreamId) {
        poll_fn(|cx| {
            self.holder.tracked(|tracked| {
                let has_ended = tracked.ended.is_some();
                match tracked.sending.get_mut(&id) {
                    Some(sending) if sending.end.is_none() && !has_ended => {
                        add_waker(&mut sending.watchers, cx);
                        Poll::Pending
                    }
                    _ => Poll::Ready(()),
                }
            })
        })
        .await;
    }

    // The whole connection.

    /// Closes the connection. Data that has not arrived is lost.
    pub fn close(&self, code: impl Into<ErrorCode>, reason: &[u8]) {
        let now = self.holder.shared.clock.now();
        // An error means that it is already closed.
        let _ = self
            .holder
            .act(|_, connection| connection.close(now, code, reason));
    }

    /// Waits until the connection has ended; returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        poll_fn(|cx| {
            self.holder.tracked(|tracked| {
                if let Some(error) = &tracked.ended {
                    Poll::Ready(error.clone())
                } else {
                    tracked.wait(Wait::Closed, cx);
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// Why the connection ended, if it has.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.holder.tracked(|tracked| tracked.ended.clone())
    }

    /// Whether this is the client's side or the server's. Not reliable once the connection has been
    /// forgotten.
    pub fn side(&self) -> Side {
        self.holder
            .look(engine::Connection::side)
            .unwrap_or(Side::Client)
    }

    /// The negotiated application protocol.
    pub fn alpn(&self) -> Option<Vec<u8>> {
        self.holder
            .look(|connection| connection.alpn().map(Into::into))?
    }

    /// The peer's raw public key (`SubjectPublicKeyInfo`) or certificate, in DER.
    pub fn peer_identity(&self) -> Option<Vec<u8>> {
        self.holder.look(engine::Connection::peer_identity)?
    }

    /// The server name that the client asked for.
    pub fn server_name(&self) -> Option<String> {
        self.holder
            .look(|connection| connection.server_name().to_owned())
    }

    /// Where the peer is, on the path with the lowest ID that is open, or on the first one while
    /// none is. With several paths each has an address of its own: [`paths`](Self::paths) has them
    /// all.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        let paths = self.paths();
        let open = paths.iter().find(|(_, stats)| stats.is_open());
        open.or(paths.first()).map(|(_, stats)| stats.tuple.remote)
    }

    /// Fills `out` with bytes that both ends of this connection can compute and nobody else (RFC
    /// 5705), to bind something to it.
    ///
    /// # Errors
    ///
    /// The handshake is not complete, `out` is too long, or the connection ended.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.holder
            .act(|_, connection| connection.export_keying_material(out, label, context))?
            .map_err(|_| ExportError::Unavailable)
    }

    /// Whether both sides support multipath QUIC.
    pub fn has_multipath(&self) -> bool {
        self.holder
            .look(engine::Connection::has_multipath)
            .unwrap_or(false)
    }

    /// A reference to this connection that does not keep it open.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.holder))
    }

    /// Runs `action` on the [engine's connection](engine::Connection), for what has no method here.
    /// Keep it short: all connections of the endpoint wait for it. If it panics, this connection
    /// ends.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub fn with_engine<R>(
        &self,
        action: impl FnOnce(&mut engine::Connection) -> R,
    ) -> Result<R, ConnectionError> {
        self.holder.act(|_, connection| action(connection))
    }
}

/// A reference to a connection that does not keep it open.
#[derive(Debug, Clone)]
pub struct WeakConnection(Weak<Holder>);

impl WeakConnection {
    /// The connection, if the application still holds it.
    pub fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection::new)
    }
}

/// Notices about a connection's paths, from the time of subscription on. Does not keep the
/// connection open.
#[derive(Debug)]
pub struct PathNotices {
    receiver: broadcast::Receiver<PathNotice>,
}

/// What a subscriber receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Something happened to a path.
    Path(PathNotice),
    /// The subscriber was too slow and missed notices: see [`Connection::paths`] for the current
    /// state.
    Missed,
}

impl PathNotices {
    /// Waits for the next notice; `None` once the connection has ended. Cancelling loses nothing.
    pub async fn next(&mut self) -> Option<Notice> {
        match self.receiver.recv().await {
            Ok(notice) => Some(Notice::Path(notice)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Notice::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
