//! Streams and datagrams (RFC 9000, sections 2 to 4; RFC 9221): what the application writes and
//! reads.
//!
//! [`Streams`] owns stream IDs, flow control in both directions, priorities, the bytes on their way
//! out and in, and the queues of DATAGRAM frames. It turns them into frames on request and learns
//! which frames were acknowledged or lost. It does not decide when or on which path anything is
//! sent, and it knows packets only as lists of `SentFrame`s.
//!
//! Streams are forgotten once both halves are done; that a stream existed is then told by counters.

mod ages;
mod budget;
mod buffers;
mod carriers;
mod datagrams;
mod flow;
mod ids;
mod incoming;
mod outgoing;
mod prospects;
mod reassembly;
mod receive_budget;
mod recovered;
mod recv;
mod send;
mod send_buf;
mod stats;
mod view;

pub(crate) use budget::{Account, SendBudget};
pub use buffers::{Blockade, CreditUpdate, Hole, Release};
pub use datagrams::{DatagramOptions, ReceivedDatagram};
pub use receive_budget::ReceiveBudget;
pub use stats::StreamStats;

use crate::path::MAX_OPEN_PATHS;
use crate::sched::known_class;
use crate::time::{Duration, Instant};
use anabranch_wire::params::TransportParameters;
use anabranch_wire::{Dir, ErrorCode, Side, StreamId};
use bytes::Bytes;
use datagrams::Datagrams;
use flow::{Inbound, Outbound, Tuning};
use ids::{LocalIds, RemoteIds};
use recv::{Read, Recv};
use send::{ABOVE, AGAIN, FREE, Ready, Send};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Sizes and counts this side allows. Bytes unless named otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Unread bytes of all streams together, at first.
    pub receive_window: u64,
    /// What the receive window may grow to, as far as the endpoint's
    /// [budget](crate::config::EndpointConfig::receive_budget) has room.
    pub max_receive_window: u64,
    /// Unread bytes beyond that, taken so that streams which nobody reads do not stop the others:
    /// at most as many as were read before. With 0, streams that nobody reads stop all others once
    /// they fill the receive window.
    pub receive_reserve: u64,
    /// Unread bytes of one stream, at first.
    pub stream_receive_window: u64,
    /// What the receive window of one stream may grow to.
    pub max_stream_receive_window: u64,
    /// Whether windows grow with what waits behind gaps, too, and not only with what is read.
    pub widen_behind_gaps: bool,
    /// Written and unacknowledged bytes of all streams together.
    pub send_buffer: u64,
    /// Bytes of one stream that may wait to be sent for the first time; more where more is under
    /// way, up to a quarter of that. Who forwards what others send keeps little: what waits here is
    /// late. Unlimited by default: whole files may be written at once.
    pub stream_unsent: u64,
    /// Bidirectional streams the peer may have open at a time.
    pub max_streams_bidi: u64,
    /// Unidirectional streams the peer may have open at a time.
    pub max_streams_uni: u64,
    /// Received datagrams waiting for the application.
    pub datagram_receive_buffer: usize,
    /// Datagrams waiting to be sent.
    pub datagram_send_buffer: usize,
    /// The largest DATAGRAM frame accepted, type and length included; 0 turns datagrams off.
    pub max_datagram_frame_size: u64,
    /// How often the peer is told of new credit.
    pub credit_update: CreditUpdate,
    /// When the send buffer gives up bytes.
    pub release: Release,
    /// The most paths that carry the same stream bytes at a time because copies of them were made;
    /// the one that carried them first counts.
    pub max_copies: usize,
}

impl Default for Limits {
    /// Windows that carry 1 Gbit/s over 20 ms from the start and grow to twice the product of
    /// 2 Gbit/s and 100 ms.
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            receive_window: 3 * MIB,
            max_receive_window: 48 * MIB,
            receive_reserve: 0,
            stream_receive_window: 2 * MIB,
            max_stream_receive_window: 32 * MIB,
            widen_behind_gaps: true,
            send_buffer: 16 * MIB,
            stream_unsent: u64::MAX,
            max_streams_bidi: 128,
            max_streams_uni: 128,
            datagram_receive_buffer: 1 << 20,
            datagram_send_buffer: 1 << 20,
            max_datagram_frame_size: 65_535,
            credit_update: CreditUpdate::default(),
            release: Release::default(),
            max_copies: MAX_OPEN_PATHS,
        }
    }
}

impl Limits {
    /// Writes the limits into the parameters the peer is told. [`Streams`] holds the peer to them.
    pub fn announce(&self, params: &mut TransportParameters) {
        params.initial_max_data = self.receive_window;
        params.initial_max_stream_data_bidi_local = self.stream_receive_window;
        params.initial_max_stream_data_bidi_remote = self.stream_receive_window;
        params.initial_max_stream_data_uni = self.stream_receive_window;
        params.initial_max_streams_bidi = self.max_streams_bidi;
        params.initial_max_streams_uni = self.max_streams_uni;
        params.max_datagram_frame_size = self.max_datagram_frame_size;
    }
}

/// What the application may want to act on.
///
/// Events come when something changes from the state in which the application was last turned away:
/// read, write, accept and receive until that happens, then wait for the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "the fields are named by the variant they belong to"
)]
pub enum StreamEvent {
    /// The peer opened streams: [accept](Streams::accept) until there is none.
    Opened { dir: Dir },
    /// [`read`](Streams::read) yields bytes, the end or a reset.
    Readable { id: StreamId },
    /// [`write`](Streams::write) takes bytes again.
    Writable { id: StreamId },
    /// The peer has received the whole stream.
    Finished { id: StreamId },
    /// The peer wants no more of this stream; it was reset with this code.
    Stopped { id: StreamId, code: u64 },
    /// [`open`](Streams::open) yields a stream again.
    Available { dir: Dir },
    /// [`recv_datagram`](Streams::recv_datagram) yields a datagram.
    DatagramReceived,
    /// [`send_datagram`](Streams::send_datagram) has space again.
    DatagramsUnblocked,
    /// Datagrams were dropped before they were sent, as their deadline passed:
    /// [`take_expired`](Streams::take_expired) says whose.
    DatagramsExpired,
}

/// Why nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Flow control or the send buffer takes no more now; [`StreamEvent::Writable`] follows.
    #[error("no more can be written now")]
    Blocked,
    /// The peer asked to stop, with this code.
    #[error("the peer stopped the stream with code {0:#x}")]
    Stopped(u64),
    /// The stream is finished, reset or unknown.
    #[error("the stream is closed for writing")]
    Closed,
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The next byte has not arrived; [`StreamEvent::Readable`] follows.
    #[error("nothing to read now")]
    Blocked,
    /// The peer gave the stream up with this code.
    #[error("the peer reset the stream with code {0:#x}")]
    Reset(u64),
    /// The stream was read to its end, was stopped or is unknown.
    #[error("the stream is closed for reading")]
    Closed,
}

/// The half of the stream that the call needs is closed or never existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream is closed")]
pub struct ClosedStream;

/// Why a datagram was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendDatagramError {
    /// The datagram fits no packet, or exceeds the peer's limit.
    #[error("the datagram is larger than {max} bytes")]
    TooLarge {
        /// The largest payload at present.
        max: usize,
    },
    /// The peer takes no datagrams.
    #[error("the peer takes no datagrams")]
    Unsupported,
    /// Too many wait to be sent; [`StreamEvent::DatagramsUnblocked`] follows.
    #[error("too many datagrams wait to be sent")]
    Full,
}

/// One stream. A half that does not exist or is done is `None`.
#[derive(Debug)]
struct Stream {
    send: Option<Send>,
    recv: Option<Recv>,
    control: StreamControl,
}

/// Control frames one stream has to send.
#[derive(Debug, Default)]
struct StreamControl {
    /// Whether the stream is in [`Control::streams`].
    queued: bool,
    reset: bool,
    stop: bool,
    max_data: bool,
    blocked: bool,
}

/// Control frames to send. Values are filled in when a frame is written, so they are never old.
#[derive(Debug, Default)]
struct Control {
    max_data: bool,
    data_blocked: bool,
    /// By [`Dir`].
    max_streams: [bool; 2],
    /// By [`Dir`].
    streams_blocked: [bool; 2],
    streams: VecDeque<StreamId>,
}

impl Stream {
    /// Forgets control frames that have become pointless; returns whether any is left.
    fn settle_control(&mut self) -> bool {
        let due = &mut self.control;
        due.reset &= self.send.as_ref().is_some_and(|send| send.reset.is_some());
        due.stop &= self.recv.as_ref().and_then(Recv::stop_code).is_some();
        due.max_data &= self.recv.as_ref().is_some_and(Recv::wants_credit);
        due.blocked &= self.send.as_ref().is_some_and(|send| send.credit() == 0);
        due.queued = due.reset || due.stop || due.max_data || due.blocked;
        due.queued
    }
}

impl Control {
    /// Queues a stream for the control frames marked in `control`.
    fn enqueue(&mut self, id: StreamId, control: &mut StreamControl) {
        if !std::mem::replace(&mut control.queued, true) {
            self.streams.push_back(id);
        }
    }
}

/// Initial limits of the peer on the streams it shares with us.
#[derive(Debug, Clone, Copy, Default)]
struct PeerLimits {
    bidi_local: u64,
    bidi_remote: u64,
    uni: u64,
}

/// The streams and datagrams of a connection.
#[derive(Debug)]
pub struct Streams {
    side: Side,
    limits: Limits,
    peer: PeerLimits,
    /// Streams not forgotten yet.
    live: BTreeMap<StreamId, Box<Stream>>,
    /// By [`Dir`].
    local: [LocalIds; 2],
    /// By [`Dir`].
    remote: [RemoteIds; 2],
    inbound: Inbound,
    outbound: Outbound,
    ready: Ready,
    control: Control,
    /// Streams whose application waits for space in the send buffer.
    waiting: VecDeque<StreamId>,
    /// A server's budget is what they wait for.
    is_short: bool,
    /// Streams whose application waits since it met the peer's limit.
    starved: BTreeSet<StreamId>,
    datagrams: Datagrams,
    events: VecDeque<StreamEvent>,
    tuning: Tuning,
    /// The time of the packet that is being written.
    clock: Instant,
    stats: StreamStats,
    /// How often data of a path stopped counting as under way there, or changed its class.
    losses: u64,
}

impl Streams {
    /// No streams yet; none can be opened before [`Self::on_peer_params`].
    pub fn new(side: Side, limits: &Limits) -> Self {
        Self {
            side,
            peer: PeerLimits::default(),
            live: BTreeMap::new(),
            local: [LocalIds::default(), LocalIds::default()],
            remote: [limits.max_streams_bidi, limits.max_streams_uni].map(RemoteIds::new),
            inbound: Inbound::new(limits),
            outbound: Outbound::default(),
            ready: Ready::default(),
            control: Control::default(),
            waiting: VecDeque::new(),
            is_short: false,
            starved: BTreeSet::new(),
            datagrams: Datagrams::new(
                limits.datagram_send_buffer,
                limits.datagram_receive_buffer,
                limits.max_datagram_frame_size,
            ),
            events: VecDeque::new(),
            tuning: Tuning::default(),
            clock: Instant::ZERO,
            stats: StreamStats::default(),
            losses: 0,
            limits: limits.clone(),
        }
    }

    /// What is written counts on this budget as well.
    pub(crate) fn charge_to(&mut self, budget: SendBudget) {
        self.ready.account = Account::new(budget);
    }

    /// What it holds of a server's budget.
    pub(crate) fn account(&self) -> &Account {
        &self.ready.account
    }

    /// Whether writers wait, and a server's budget is why.
    pub(crate) fn waits_for_budget(&self) -> bool {
        self.is_short && !self.waiting.is_empty()
    }

    /// The server's budget has room again.
    pub(crate) fn on_budget(&mut self) {
        self.is_short = false;
        self.wake_writers();
    }

    /// The connection is over: nothing of what was written will be sent again.
    pub(crate) fn forget_written(&mut self) {
        let ids: Vec<_> = self.live.keys().copied().collect();
        for id in ids {
            if let Ok(send) = self.send_half(id) {
                send.buf.clear();
                self.refresh(id);
            }
        }
        self.datagrams.forget_sent();
    }

    /// Takes the peer's limits from its transport parameters.
    pub fn on_peer_params(&mut self, params: &TransportParameters) {
        self.peer = PeerLimits {
            bidi_local: params.initial_max_stream_data_bidi_local,
            bidi_remote: params.initial_max_stream_data_bidi_remote,
            uni: params.initial_max_stream_data_uni,
        };
        self.datagrams
            .set_peer_max_frame(params.max_datagram_frame_size);
        self.on_max_data(params.initial_max_data);
        self.raise_limits_of_own_streams();
        self.on_max_streams(Dir::Bi, params.initial_max_streams_bidi);
        self.on_max_streams(Dir::Uni, params.initial_max_streams_uni);
    }

    /// Sets what receive windows are tuned by: the largest smoothed RTT of the paths (zero while
    /// unknown) and the time. To be called before received frames and reads are processed.
    pub fn set_tuning(&mut self, rtt: Duration, now: Instant) {
        self.tuning = Tuning {
            rtt,
            now,
            is_tight: false,
        };
    }

    /// Opens a stream; `None` if the peer allows no more now ([`StreamEvent::Available`] follows).
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let Some(index) = self.local[dir as usize].open() else {
            if self.local[dir as usize].note_blocked() {
                self.control.streams_blocked[dir as usize] = true;
            }
            return None;
        };
        let id = StreamId::new(self.side, dir, index);
        self.insert(id);
        Some(id)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        let index = self.remote[dir as usize].accept()?;
        Some(StreamId::new(self.side.peer(), dir, index))
    }

    fn insert(&mut self, id: StreamId) {
        let is_ours = id.initiator() == self.side;
        let sends = match (id.dir(), is_ours) {
            (Dir::Bi, true) => Some(self.peer.bidi_remote),
            (Dir::Bi, false) => Some(self.peer.bidi_local),
            (Dir::Uni, true) => Some(self.peer.uni),
            (Dir::Uni, false) => None,
        };
        let receives = id.dir() == Dir::Bi || !is_ours;
        let stream = Stream {
            send: sends.map(|max_data| Send::new(max_data, self.limits.release)),
            recv: receives.then(|| Recv::new(&self.limits, self.tuning)),
            control: StreamControl::default(),
        };
        self.live.insert(id, Box::new(stream));
    }

    /// Takes bytes off the front of `data`; returns how many, 0 only if there are none.
    ///
    /// # Errors
    /// [`WriteError::Blocked`] if nothing can be taken now.
    pub fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        let stream = self.live.get_mut(&id).ok_or(WriteError::Closed)?;
        let send = stream.send.as_mut().ok_or(WriteError::Closed)?;
        if let Some(code) = send.stopped {
            return Err(WriteError::Stopped(code));
        }
        if !send.is_open() {
            return Err(WriteError::Closed);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let own = self
            .limits
            .send_buffer
            .saturating_sub(self.ready.totals().held);
        let space = own.min(self.ready.account.room());
        let credit = send.credit();
        let (unsent, _) = send.unsent(self.limits.stream_unsent);
        let count = space.min(credit).min(unsent).min(data.len() as u64) as usize;
        if count == 0 {
            send.wants_write = true;
            if credit == 0 {
                self.starved.insert(id);
                if send.blocked_at.replace(send.max_data) != Some(send.max_data) {
                    stream.control.blocked = true;
                    self.control.enqueue(id, &mut stream.control);
                    self.stats.blocked_by_stream += 1;
                }
            } else if space == 0 {
                self.stats.blocked_by_send_buffer += 1;
                self.is_short |= own > 0;
                if !std::mem::replace(&mut send.waits_for_space, true) {
                    self.waiting.push_back(id);
                }
            }
            return Err(WriteError::Blocked);
        }
        if std::mem::take(&mut send.wants_write) {
            self.starved.remove(&id);
        }
        send.buf.write(data.split_to(count));
        self.ready.refresh(id, send);
        self.note_blocked();
        Ok(count)
    }

    /// Ends the stream behind what was written.
    pub fn finish(&mut self, id: StreamId) -> Result<(), ClosedStream> {
        let send = self.send_half(id)?;
        if !send.is_open() {
            return Err(ClosedStream);
        }
        send.buf.finish();
        self.starved.remove(&id);
        self.refresh(id);
        Ok(())
    }

    /// Gives up sending: bytes not acknowledged are dropped, and the peer learns `code`. Does
    /// nothing to a stream that was reset before, by the application or because the peer stopped
    /// it.
    pub fn reset(&mut self, id: StreamId, code: ErrorCode) -> Result<(), ClosedStream> {
        self.reset_with(id, code.value())
    }

    fn reset_with(&mut self, id: StreamId, code: u64) -> Result<(), ClosedStream> {
        let send = self.send_half(id)?;
        if send.reset.is_none() {
            send.reset(code);
            self.starved.remove(&id);
            self.refresh(id);
            self.mark_control(id, |control| control.reset = true);
            self.wake_writers();
        }
        Ok(())
    }

    /// Sets the priority of what the stream sends: higher goes first; 0 unless set. Streams of the
    /// same priority take turns.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), ClosedStream> {
        let stream = self.live.get_mut(&id).ok_or(ClosedStream)?;
        let send = stream.send.as_mut().ok_or(ClosedStream)?;
        self.ready.set_priority(id, send, priority);
        Ok(())
    }

    /// Sets the class of what the stream sends, for schedulers: 0 unless set; a number beyond the
    /// highest one stands for that.
    pub fn set_class(&mut self, id: StreamId, class: u8) -> Result<(), ClosedStream> {
        let stream = self.live.get_mut(&id).ok_or(ClosedStream)?;
        let send = stream.send.as_mut().ok_or(ClosedStream)?;
        if self.ready.set_class(id, send, known_class(class)) {
            // What is under way may be worth a copy in the new class.
            self.losses += 1;
        }
        Ok(())
    }

    /// The next bytes in order, at most `max`; `None` at the end of the stream, once.
    ///
    /// # Errors
    /// [`ReadError::Blocked`] if the next byte has not arrived. [`ReadError::Reset`] is told once.
    pub fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        let stream = self.live.get_mut(&id).ok_or(ReadError::Closed)?;
        let recv = stream.recv.as_mut().ok_or(ReadError::Closed)?;
        let tuning = Tuning {
            is_tight: self.inbound.is_tight(),
            ..self.tuning
        };
        match recv.read(max, self.inbound.most_of_stream(), tuning)? {
            Read::Data { bytes, announce } => {
                let window = recv.grant.window();
                if announce {
                    stream.control.max_data = true;
                    self.control.enqueue(id, &mut stream.control);
                }
                let is_held_up = recv.is_held_up();
                let length = bytes.len() as u64;
                self.stats.bytes_delivered += length;
                self.inbound.on_read(length, window, tuning);
                self.control.max_data |= self.inbound.is_due();
                if is_held_up {
                    self.widen_behind_gaps(id);
                }
                Ok(Some(bytes))
            }
            Read::End => {
                self.close_recv(id);
                Ok(None)
            }
            Read::Reset { code } => {
                self.close_recv(id);
                Err(ReadError::Reset(code))
            }
            Read::Blocked => Err(ReadError::Blocked),
        }
    }

    /// Stops reading: what arrives from now on is dropped, and the peer is asked to stop sending.
    ///
    /// If the end of the stream is known already the peer is not asked: it has sent everything
    /// once.
    pub fn stop(&mut self, id: StreamId, code: ErrorCode) -> Result<(), ClosedStream> {
        let stream = self.live.get_mut(&id).ok_or(ClosedStream)?;
        let recv = stream.recv.as_mut().ok_or(ClosedStream)?;
        let before = recv.out_of_order();
        let discarded = recv.stop(code.value())?;
        self.stats.buffered_out_of_order -= before;
        let is_done = recv.is_done();
        self.release(discarded);
        if is_done {
            self.close_recv(id);
        } else {
            self.mark_control(id, |control| control.stop = true);
        }
        Ok(())
    }

    /// Sets the time at which packets are written from now on, and drops datagrams that are late.
    pub fn set_clock(&mut self, now: Instant) {
        self.clock = now;
        self.datagrams.drop_late(now);
        self.tell_expired();
    }

    fn tell_expired(&mut self) {
        if self.datagrams.expired.take_news() {
            self.events.push_back(StreamEvent::DatagramsExpired);
        }
    }

    /// How many datagrams of each tag were dropped before they were sent, as their deadline passed,
    /// since this was asked last. Those that were sent once, and waited to be sent again, are not
    /// among them. More than 1024 tags are not told apart: what is beyond is counted in
    /// [`StreamStats::datagrams_expired`] alone.
    pub fn take_expired(&mut self) -> BTreeMap<u64, u64> {
        self.datagrams.expired.take()
    }

    /// Queues a datagram.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_datagram_with(data, DatagramOptions::default())
    }

    /// Queues a datagram of which more is known.
    pub fn send_datagram_with(
        &mut self,
        data: Bytes,
        options: DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        let sent = self.datagrams.send(data, options, self.clock);
        self.tell_expired();
        sent
    }

    /// The oldest received datagram.
    pub fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
        self.datagrams.recv()
    }

    /// The largest datagram that can be sent at present; `None` if the peer takes none.
    pub fn max_datagram_payload(&self) -> Option<usize> {
        self.datagrams.max_payload()
    }

    /// Sets the room for frames in a packet that every path in use can carry. Queued datagrams that
    /// fit no more are dropped.
    pub fn set_datagram_room(&mut self, bytes: usize) {
        self.datagrams.set_room(bytes);
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front()?;
        if let StreamEvent::Opened { dir } = event {
            self.remote[dir as usize].announced = false;
        }
        Some(event)
    }

    /// Stream bytes sent again after a loss or after their path became doubtful.
    pub fn bytes_retransmitted(&self) -> u64 {
        self.stats.bytes_retransmitted
    }

    /// Whether bytes are here that nobody can read, because earlier ones are missing.
    pub fn has_gap(&self) -> bool {
        self.stats.buffered_out_of_order > 0
    }

    /// Whether nothing waits to be sent or to be acknowledged.
    pub fn is_idle(&self) -> bool {
        self.ready.totals().held == 0 && !self.has_control() && !self.has_datagrams()
    }

    /// Counters.
    pub fn stats(&self) -> StreamStats {
        StreamStats {
            open_streams: self.live.len() as u64,
            receive_window: self.inbound.window(),
            datagrams_overflowed: self.datagrams.overflowed,
            datagrams_outgrown: self.datagrams.outgrown,
            datagrams_expired: self.datagrams.expired.count,
            ..self.stats.clone()
        }
    }

    fn send_half(&mut self, id: StreamId) -> Result<&mut Send, ClosedStream> {
        self.live
            .get_mut(&id)
            .and_then(|stream| stream.send.as_mut())
            .ok_or(ClosedStream)
    }

    /// Brings the order of sending up to date after a change to a stream.
    fn refresh(&mut self, id: StreamId) {
        if let Some(send) = self
            .live
            .get_mut(&id)
            .and_then(|stream| stream.send.as_mut())
        {
            self.ready.refresh(id, send);
            // Half of it, or an application would write in small pieces.
            if send.wants_write && !send.waits_for_space && send.is_open() {
                let (room, most) = send.unsent(self.limits.stream_unsent);
                if room > most / 2 && send.credit() > 0 {
                    send.wants_write = false;
                    self.events.push_back(StreamEvent::Writable { id });
                }
            }
        }
    }

    /// Marks control frames of a stream as due.
    fn mark_control(&mut self, id: StreamId, mark: impl FnOnce(&mut StreamControl)) {
        if let Some(stream) = self.live.get_mut(&id) {
            mark(&mut stream.control);
            self.control.enqueue(id, &mut stream.control);
        }
    }

    /// Tells the peer, once for each limit, that the connection's credit is used up.
    fn note_blocked(&mut self) {
        let is_blocked = self.outbound.credit() == 0 && self.ready.totals().above > 0;
        if is_blocked && self.outbound.note_blocked() {
            self.control.data_blocked = true;
            self.stats.blocked_by_connection += 1;
        }
    }

    /// Returns connection credit for bytes that nobody will read.
    fn release(&mut self, bytes: u64) {
        self.inbound.on_discarded(bytes);
        self.control.max_data |= self.inbound.is_due();
    }

    /// Tells waiting writers once a quarter of the send buffer is free: less would make them write
    /// in small pieces.
    fn wake_writers(&mut self) {
        let space = self
            .limits
            .send_buffer
            .saturating_sub(self.ready.totals().held);
        let has_space = space >= self.limits.send_buffer / 4;
        if self.waiting.is_empty() || !has_space {
            return;
        }
        if !self.account().has_room() {
            self.is_short = true;
            return;
        }
        self.is_short = false;
        for id in self.waiting.drain(..) {
            let Some(stream) = self.live.get_mut(&id) else {
                continue;
            };
            let Some(send) = stream.send.as_mut() else {
                continue;
            };
            send.waits_for_space = false;
            self.starved.remove(&id);
            if std::mem::take(&mut send.wants_write) && send.is_open() {
                self.events.push_back(StreamEvent::Writable { id });
            }
        }
    }

    fn close_send(&mut self, id: StreamId) {
        if let Some(stream) = self.live.get_mut(&id) {
            stream.send = None;
        }
        self.starved.remove(&id);
        self.forget_if_done(id);
    }

    fn close_recv(&mut self, id: StreamId) {
        if let Some(stream) = self.live.get_mut(&id) {
            stream.recv = None;
        }
        self.forget_if_done(id);
    }

    fn forget_if_done(&mut self, id: StreamId) {
        let is_done = |stream: &Stream| stream.send.is_none() && stream.recv.is_none();
        if !self.live.get(&id).is_some_and(|stream| is_done(stream)) {
            return;
        }
        self.live.remove(&id);
        if id.initiator() != self.side {
            let dir = id.dir() as usize;
            self.control.max_streams[dir] |= self.remote[dir].on_closed();
        }
    }
}

#[cfg(test)]
mod tests;
