//! The task that drives an endpoint: it receives datagrams, handles time-outs and events, and sends
//! datagrams.
//!
//! ```text
//! each ready socket -> one batch -> engine   (in turn, so that no socket starves another)
//!                          -> the inbox of another worker, if the connection belongs to that one
//! time-outs, events -> wakers            (time-outs only after pending datagrams have been read)
//! engine -> outbox -> each socket        (a full socket keeps its datagrams; the others continue)
//! ```
//!
//! Timers: the engine's next time-out, as one sleep; the pause after a receive error of a socket.

mod ready;

use crate::engine::Handle;
use crate::sockets::{Outgoing, RecvBatch, SendError, Socket, is_fault};
use crate::state::{Shared, State};
use crate::workers::Colleagues;
use anabranch_proto::datagram::{SocketId, Transmit, Tuple};
use anabranch_proto::time::Instant;
use ready::{Entry, Ready};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::{Instant as TokioInstant, Sleep};

/// The most rounds before the driver lets other tasks run.
const ROUNDS: usize = 16;

/// Consecutive rounds in which time-outs are postponed because datagrams are still waiting: they
/// may show that nothing is late. In this many rounds, more is read than the largest receive buffer
/// holds.
const PUT_OFF: usize = 16;

/// A time-out this late is a sign that the process was not running. The runtime may then report the
/// timer before the datagrams that arrived in the meantime.
const SUSPICIOUS: Duration = Duration::from_millis(5);

/// The most datagrams of equal size that the engine may put into one transmit: what fits the
/// kernel's 64 KiB at common sizes.
const MAX_SEGMENTS: usize = 44;

/// Bytes taken from the engine before they are sent. This limits how long the lock is held for
/// sending, and how long received datagrams wait for their acknowledgement.
const OUTBOX_BYTES: usize = 512 << 10;

/// Bytes a full socket may keep waiting. Anything beyond that is dropped, as in any full queue; the
/// congestion controller sees it as a loss.
const MAX_BLOCKED_BYTES: usize = 1 << 20;

/// How long a socket is left alone after a receive error.
const RECEIVE_PAUSE: Duration = Duration::from_millis(100);

/// What failed during this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Failure {
    /// Nothing gets through this socket any more.
    Socket(SocketId),
    /// The kernel has no route for this 4-tuple of a connection.
    Route(Handle, Tuple),
}

/// A socket and the datagrams waiting for it.
#[derive(Debug)]
struct Lane {
    id: SocketId,
    socket: Arc<Socket>,
    entry: Arc<Entry>,
    /// Wakes the driver to read this socket.
    readable: Waker,
    blocked: VecDeque<(Transmit, Vec<u8>)>,
    blocked_bytes: usize,
    paused_until: Option<Pin<Box<Sleep>>>,
}

/// Drives one endpoint until the endpoint and its connections are gone.
#[derive(Debug)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    /// The other workers of this endpoint, if there are any.
    colleagues: Option<Colleagues>,
    lanes: Vec<Lane>,
    /// The generation of [`State::sockets`] that `lanes` reflects.
    generation: u64,
    ready: Arc<Ready>,
    /// The sockets to be read in this round.
    reading: Vec<SocketId>,
    batch: RecvBatch,
    bytes: Vec<u8>,
    transmits: Vec<Transmit>,
    woken: Vec<Waker>,
    /// Consecutive rounds in which time-outs were postponed.
    put_off: usize,
    failures: Vec<Failure>,
    timer: Pin<Box<Sleep>>,
    timer_at: Option<Instant>,
}

/// What was received in one round.
#[derive(Debug, Clone, Copy, Default)]
struct Received {
    any: bool,
    /// Whether some socket filled a batch and so may hold more.
    more: bool,
}

/// What remains to be done after a turn of the engine.
struct Round {
    finished: bool,
    more: bool,
    deadline: Option<Instant>,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, colleagues: Option<Colleagues>) -> Self {
        Self {
            shared,
            colleagues,
            lanes: Vec::new(),
            generation: 0,
            ready: Arc::default(),
            reading: Vec::new(),
            batch: RecvBatch::new(),
            bytes: Vec::with_capacity(OUTBOX_BYTES + (64 << 10)),
            transmits: Vec::new(),
            woken: Vec::new(),
            put_off: 0,
            failures: Vec::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
        }
    }

    /// Takes one batch from every socket that has datagrams.
    fn receive(&mut self, cx: &Context<'_>) -> Received {
        let mut received = Received::default();
        let unannounced = self.is_late();
        let mut reading = std::mem::take(&mut self.reading);
        self.ready.take(cx.waker(), &mut reading);
        if unannounced {
            reading.clear();
            reading.extend(self.lanes.iter().map(|lane| lane.id));
        }
        for socket in reading.drain(..) {
            let Some(at) = position(&self.lanes, socket) else {
                continue;
            };
            let lane = &mut self.lanes[at];
            match lane.receive(&mut self.batch, unannounced) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => {
                    received.any = true;
                    received.more |= self.batch.is_full();
                    self.hand_over(socket);
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(socket = socket.0, "receiving failed: {error}");
                    if is_fault(&error) {
                        self.failures.push(Failure::Socket(socket));
                    }
                }
            }
        }
        self.reading = reading;
        received.any |= self.receive_from_colleagues(cx);
        if unannounced && !received.more {
            // This timer has been dealt with; the next one is a different one.
            self.timer_at = None;
        }
        received
    }

    /// Whether the timer should have fired considerably earlier.
    fn is_late(&self) -> bool {
        self.timer_at
            .is_some_and(|at| self.shared.clock.now().since(at) >= SUSPICIOUS)
    }

    /// Whether time-outs may be handled: no waiting datagram could disprove them, or they have been
    /// postponed long enough.
    fn believes(&mut self, received: Received) -> bool {
        if received.more && self.put_off < PUT_OFF {
            self.put_off += 1;
            return false;
        }
        self.put_off = 0;
        true
    }

    fn hand_over(&mut self, socket: SocketId) {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        for received in self.batch.datagrams() {
            if received.data.is_empty() {
                continue;
            }
            let tuple = Tuple {
                socket,
                local: received.local,
                remote: received.remote,
            };
            if let Some(colleagues) = &mut self.colleagues
                && colleagues.take(tuple, received.ecn, received.data)
            {
                continue;
            }
            state
                .engine
                .handle_datagram(now, tuple, received.ecn, received.data);
        }
        drop(state);
        if let Some(colleagues) = &mut self.colleagues {
            colleagues.pass_on();
        }
    }

    /// Takes what other workers received for connections of this one; returns whether there was
    /// anything.
    fn receive_from_colleagues(&self, cx: &Context<'_>) -> bool {
        let Some(colleagues) = &self.colleagues else {
            return false;
        };
        let passed = colleagues.receive(cx);
        if passed.is_empty() {
            return false;
        }
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        for mut datagram in passed {
            let (tuple, ecn) = (datagram.tuple, datagram.ecn);
            state
                .engine
                .handle_datagram(now, tuple, ecn, &mut datagram.data);
        }
        true
    }

    /// Lets the engine do what is due, and takes what it wants to send.
    fn turn(&mut self, cx: &Context<'_>, received: Received) -> Round {
        let believes = self.believes(received);
        let now = self.shared.clock.now();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let mut more = self.refresh_lanes(&state);
        self.report_failures(&mut state, now);
        if believes && state.engine.next_timeout().is_some_and(|at| at <= now) {
            state.engine.handle_timeout(now);
        }
        loop {
            if self.bytes.len() >= OUTBOX_BYTES {
                more = true;
                break;
            }
            match state
                .engine
                .poll_transmit(now, MAX_SEGMENTS, &mut self.bytes)
            {
                Some(transmit) => self.transmits.push(transmit),
                None => break,
            }
        }
        state.drain_events(&shared.clock, &mut self.woken);
        let deadline = state.engine.next_timeout();
        state.driver_waits(cx);
        Round {
            finished: state.is_finished() && self.transmits.is_empty(),
            more: more || deadline.is_some_and(|at| at <= now),
            deadline,
        }
    }

    /// Adds lanes for new sockets and drops those of removed ones. Returns whether anything
    /// changed.
    fn refresh_lanes(&mut self, state: &State) -> bool {
        if self.generation == state.generation {
            return false;
        }
        self.generation = state.generation;
        self.lanes
            .retain(|lane| state.sockets.contains_key(&lane.id));
        for (&id, socket) in &state.sockets {
            // Both are in ascending order: IDs only grow.
            if self.lanes.last().is_none_or(|last| last.id < id) {
                self.lanes.push(Lane::new(id, socket, &self.ready));
            }
        }
        true
    }

    fn report_failures(&mut self, state: &mut State, now: Instant) {
        self.failures.sort_unstable();
        self.failures.dedup();
        for failure in self.failures.drain(..) {
            match failure {
                Failure::Socket(socket) => state.report_fault(now, socket),
                Failure::Route(handle, tuple) => state.order(now, handle, |connection| {
                    connection.on_route_error(now, tuple);
                }),
            }
        }
    }

    /// Sends what was waiting for room, then what is new.
    fn send(&mut self, cx: &mut Context<'_>) {
        for lane in &mut self.lanes {
            lane.flush(cx, &mut self.failures);
        }
        let mut start = 0;
        for transmit in self.transmits.drain(..) {
            let contents = &self.bytes[start..start + transmit.length];
            start += transmit.length;
            // The socket was removed in the meantime: its path is about to be abandoned.
            let Some(at) = position(&self.lanes, transmit.tuple.socket) else {
                continue;
            };
            self.lanes[at].send(cx, transmit, contents, &mut self.failures);
        }
        self.bytes.clear();
    }

    /// Arranges a wake-up at `deadline`. Returns true if it has already passed.
    fn arm(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else {
            self.timer_at = None;
            return false;
        };
        if self.timer_at != Some(deadline) {
            let at: TokioInstant = self.shared.clock.to_tokio(deadline);
            self.timer.as_mut().reset(at);
            self.timer_at = Some(deadline);
        }
        let elapsed = self.timer.as_mut().poll(cx).is_ready();
        if elapsed {
            self.timer_at = None;
        }
        elapsed
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut has_woken = false;
        for _ in 0..ROUNDS {
            let received = self.receive(cx);
            let round = self.turn(cx, received);
            let wakes = !self.woken.is_empty();
            self.woken.drain(..).for_each(Waker::wake);
            if round.finished {
                return Poll::Ready(());
            }
            self.send(cx);
            let busy = received.any || round.more || !self.failures.is_empty();
            if !busy && !self.arm(cx, round.deadline) {
                return Poll::Pending;
            }
            // The runtime may keep who was woken for this very thread until this task lets go: a
            // writer would be idle meanwhile, and what it wrote before would be sent twice. One
            // more round is most often the last: it finds nothing.
            if has_woken {
                break;
            }
            has_woken = wakes;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.lock().driver_ends();
    }
}

/// Where the lane of a socket is among all, which are in ascending order.
fn position(lanes: &[Lane], socket: SocketId) -> Option<usize> {
    lanes.binary_search_by_key(&socket, |lane| lane.id).ok()
}

impl Lane {
    fn new(id: SocketId, socket: &Arc<Socket>, ready: &Arc<Ready>) -> Self {
        let entry = Entry::new(id, ready);
        Self {
            id,
            socket: Arc::clone(socket),
            readable: Waker::from(Arc::clone(&entry)),
            entry,
            blocked: VecDeque::new(),
            blocked_bytes: 0,
            paused_until: None,
        }
    }

    /// Takes a batch, or arranges to be read when there is one. After an error the socket is left
    /// alone for a while.
    fn receive(&mut self, batch: &mut RecvBatch, unannounced: bool) -> Poll<io::Result<()>> {
        self.entry.taken();
        let cx = &mut Context::from_waker(&self.readable);
        if let Some(pause) = &mut self.paused_until {
            ready!(pause.as_mut().poll(cx));
            self.paused_until = None;
        }
        let mut polled = self.socket.poll_recv(cx, batch);
        if polled.is_pending() && unannounced {
            polled = self.socket.recv_unannounced(batch);
        }
        match &polled {
            Poll::Pending => {}
            // There may be more, and no wake-up is arranged.
            Poll::Ready(Ok(())) => self.entry.relist(),
            Poll::Ready(Err(_)) => {
                let mut pause = Box::pin(tokio::time::sleep(RECEIVE_PAUSE));
                // Polled once, so that its end has the socket read again.
                let _ = pause.as_mut().poll(cx);
                self.paused_until = Some(pause);
            }
        }
        polled
    }

    fn send(
        &mut self,
        cx: &mut Context<'_>,
        transmit: Transmit,
        contents: &[u8],
        failures: &mut Vec<Failure>,
    ) {
        // Queue behind datagrams that already wait: this keeps their order, and trying a full
        // socket is pointless.
        if !self.blocked.is_empty() {
            self.keep(transmit, contents);
            return;
        }
        if let Some(sent) = self.attempt(&transmit, contents, failures) {
            self.keep(transmit, &contents[sent..]);
            // There may be room again by now. If not, this arranges to be woken when there is.
            self.flush(cx, failures);
        }
    }

    /// Sends; if the socket became full, returns how many bytes were sent before that.
    fn attempt(
        &self,
        transmit: &Transmit,
        contents: &[u8],
        failures: &mut Vec<Failure>,
    ) -> Option<usize> {
        let outgoing = Outgoing {
            remote: transmit.tuple.remote,
            local: transmit.tuple.local,
            ecn: transmit.ecn,
            segment_size: transmit.segment_size,
            contents,
        };
        match self.socket.try_send(&outgoing) {
            // This happens to probes for a larger MTU; the engine learns of it when they are lost.
            Ok(()) | Err((_, SendError::TooBig)) => {}
            Err((sent, SendError::Blocked)) => return Some(sent),
            Err((_, SendError::Fault(error))) if !self.socket.is_wildcard() => {
                tracing::debug!(socket = self.id.0, "sending failed: {error}");
                // A peer that provokes an answer outside any connection must not harm connections.
                if transmit.connection.is_some() {
                    failures.push(Failure::Socket(self.id));
                }
            }
            Err((_, SendError::Fault(error) | SendError::Unreachable(error))) => {
                let to = transmit.tuple.remote;
                tracing::debug!(socket = self.id.0, "there is no way to {to}: {error}");
                let of = transmit.connection;
                failures.extend(of.map(|handle| Failure::Route(handle, transmit.tuple)));
            }
            Err((_, SendError::Dropped(error))) => {
                tracing::debug!(socket = self.id.0, "a datagram was dropped: {error}");
            }
        }
        None
    }

    fn keep(&mut self, transmit: Transmit, contents: &[u8]) {
        if self.blocked_bytes + contents.len() <= MAX_BLOCKED_BYTES {
            self.blocked_bytes += contents.len();
            self.blocked.push_back((transmit, contents.to_vec()));
        }
    }

    /// Sends what waits, as long as there is room.
    fn flush(&mut self, cx: &mut Context<'_>, failures: &mut Vec<Failure>) {
        while let Some((transmit, contents)) = self.blocked.pop_front() {
            self.blocked_bytes -= contents.len();
            let sent = match self.socket.poll_writable(cx) {
                Poll::Pending => Some(0),
                Poll::Ready(Err(_)) => None,
                Poll::Ready(Ok(())) => self.attempt(&transmit, &contents, failures),
            };
            let Some(sent) = sent else { continue };
            self.blocked_bytes += contents.len() - sent;
            let rest = if sent == 0 {
                contents
            } else {
                contents[sent..].to_vec()
            };
            self.blocked.push_front((transmit, rest));
            // Check again: either there is room after all, or the wake-up is arranged.
            if self.socket.poll_writable(cx).is_pending() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
