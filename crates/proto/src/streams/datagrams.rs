//! DATAGRAM frames (RFC 9221): unreliable and bounded in both directions. Those that the
//! application wants repaired are sent again when they are lost, while that is in time; a scheduler
//! may send copies.

mod expired;
mod outgoing;
mod repairs;

use super::SendDatagramError;
use crate::error::TransportError;
use crate::packet::Frames;
use crate::recovery::sent::SentFrame;
use crate::sched::{ClassSet, known_class};
use crate::time::{Duration, Instant};
use anabranch_wire::frame::{datagram_header_len, put_datagram_header};
use anabranch_wire::{MIN_DATAGRAM_SIZE, PathId, varint};
use bytes::{Bytes, BytesMut};
use expired::Expired;
use outgoing::{Item, Outgoing};
use repairs::Repairs;
use std::collections::VecDeque;
use std::num::NonZeroU64;

/// What a queued datagram costs besides its bytes, so that empty ones are bounded too.
const OVERHEAD: usize = 32;

/// Received datagrams are copied into shared blocks of this size.
const ARENA: usize = 64 * 1024;

/// What is under way and may be sent again takes so many times what may wait to be sent.
const UNDER_WAY: usize = 8;

/// Room for frames that any path has: the smallest datagram less a short header of the largest size
/// (1 + 20 + 4 bytes) and the tag of the cipher (16 bytes).
const SURE_ROOM: usize = MIN_DATAGRAM_SIZE - 41;

/// What the application knows of a datagram it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramOptions {
    /// A number for the flow it belongs to, which schedulers may keep on one path; 0 means none.
    pub flow: u64,
    /// When it loses its worth: it is dropped and counted if it was not sent by then.
    pub deadline: Option<Instant>,
    /// How far behind the fastest path it may arrive: the peer reorders the flow and waits this
    /// long. `None`: any delay. Schedulers that know it send it by no slower path.
    pub max_skew: Option<Duration>,
    /// Whether it is sent again when it is lost, if it can then be no later than `max_skew` allows.
    /// It may arrive twice: the peer's application must know datagrams apart.
    pub repair: bool,
    /// Whether its loss costs more than its bytes. Only such datagrams are copied where a scheduler
    /// wants copies, and each copy arrives at the peer's application: it must know them apart.
    pub critical: bool,
    /// The kind of traffic it belongs to, for schedulers: 0 unless set, and below
    /// [`MAX_CLASSES`](crate::sched::MAX_CLASSES). Those of one class wait for none of another.
    pub class: u8,
    /// What the application calls it, or all that it counts together: of those that are dropped as
    /// their deadline passes, each tag's [are told](crate::streams::StreamEvent::DatagramsExpired).
    pub tag: u64,
}

/// A datagram that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// The path its packet came by.
    pub path: PathId,
    /// What the peer's application sent.
    pub data: Bytes,
}

impl DatagramOptions {
    /// Whether one decision of a scheduler may cover a datagram of each.
    fn goes_with(&self, other: &Self) -> bool {
        self.flow == other.flow
            && self.class == other.class
            && self.critical == other.critical
            && self.max_skew == other.max_skew
            && self.repair == other.repair
            && self.deadline.is_some() == other.deadline.is_some()
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[derive(Debug)]
pub(super) struct Datagrams {
    outgoing: Outgoing,
    repairs: Repairs,
    incoming: Incoming,
    /// No queued datagram has an earlier deadline.
    earliest_deadline: Option<Instant>,
    /// The peer's limit on the frame; 0 if it takes none.
    peer_max_frame: u64,
    own_max_frame: u64,
    /// Room for frames in the largest packet that every path in use carries.
    room: usize,
    arena: BytesMut,
    wants_send: bool,
    wants_recv: bool,
    /// Received datagrams given up because the application did not read them.
    pub(super) overflowed: u64,
    /// Datagrams given up because the room in packets shrank.
    pub(super) outgrown: u64,
    /// Datagrams given up because their deadline passed before they were sent.
    pub(super) expired: Expired,
}

/// What arrived and was not read yet.
#[derive(Debug)]
struct Incoming {
    items: VecDeque<(Bytes, PathId)>,
    cost: usize,
    limit: usize,
}

impl Incoming {
    fn new(limit: usize) -> Self {
        Self {
            items: VecDeque::new(),
            cost: 0,
            limit,
        }
    }

    /// Whether an item of `length` bytes stays within the limit. One item always does.
    fn has_space(&self, length: usize) -> bool {
        self.items.is_empty() || self.cost + length + OVERHEAD <= self.limit
    }

    fn push(&mut self, item: Bytes, path: PathId) {
        self.cost += item.len() + OVERHEAD;
        self.items.push_back((item, path));
    }

    fn pop(&mut self) -> Option<(Bytes, PathId)> {
        let (item, path) = self.items.pop_front()?;
        self.cost -= item.len() + OVERHEAD;
        Some((item, path))
    }
}

impl Datagrams {
    pub(super) fn new(send_limit: usize, receive_limit: usize, own_max_frame: u64) -> Self {
        Self {
            outgoing: Outgoing::new(send_limit),
            repairs: Repairs::new(send_limit.saturating_mul(UNDER_WAY)),
            incoming: Incoming::new(receive_limit),
            peer_max_frame: 0,
            own_max_frame,
            room: SURE_ROOM,
            arena: BytesMut::new(),
            wants_send: false,
            wants_recv: true,
            overflowed: 0,
            outgrown: 0,
            expired: Expired::default(),
            earliest_deadline: None,
        }
    }

    pub(super) fn set_peer_max_frame(&mut self, bytes: u64) {
        self.peer_max_frame = bytes;
    }

    /// Sets the room for frames in a packet that every path in use can carry. Datagrams that fit no
    /// more are dropped: they would block those behind them for ever.
    pub(super) fn set_room(&mut self, bytes: usize) {
        let shrunk = bytes < self.room;
        self.room = bytes;
        let Some(max) = self.max_payload().filter(|_| shrunk) else {
            return;
        };
        self.outgrown += self.outgoing.retain(|item| item.data.len() <= max);
    }

    /// The largest payload that can be sent; `None` if the peer takes no datagrams.
    pub(super) fn max_payload(&self) -> Option<usize> {
        if self.peer_max_frame == 0 {
            return None;
        }
        let frame = usize::try_from(self.peer_max_frame)
            .unwrap_or(usize::MAX)
            .min(self.room);
        let after = |length_field: usize| {
            let payload = frame.saturating_sub(1 + length_field);
            (varint::size(payload as u64) <= length_field).then_some(payload)
        };
        [1, 2, 4, 8].into_iter().find_map(after)
    }

    /// Queues a datagram.
    pub(super) fn send(
        &mut self,
        data: Bytes,
        options: DatagramOptions,
        now: Instant,
    ) -> Result<(), SendDatagramError> {
        let max = self.max_payload().ok_or(SendDatagramError::Unsupported)?;
        if data.len() > max {
            return Err(SendDatagramError::TooLarge { max });
        }
        if !self.outgoing.has_space(data.len()) {
            self.drop_all_late(now);
        }
        if !self.outgoing.has_space(data.len()) {
            self.wants_send = true;
            return Err(SendDatagramError::Full);
        }
        let deadlines = self.earliest_deadline.into_iter().chain(options.deadline);
        self.earliest_deadline = deadlines.min();
        let class = known_class(options.class);
        self.outgoing
            .push(data, DatagramOptions { class, ..options });
        Ok(())
    }

    /// Drops datagrams at the front of their class whose time is over.
    pub(super) fn drop_late(&mut self, now: Instant) {
        if self.earliest_deadline.is_none_or(|earliest| now < earliest) {
            return;
        }
        let expired = &mut self.expired;
        self.outgoing.drop_late(now, |item| expired.note(item));
        if !self.has_waiting() {
            self.earliest_deadline = None;
        }
    }

    /// Drops datagrams anywhere in the queue whose time is over.
    fn drop_all_late(&mut self, now: Instant) {
        if self.earliest_deadline.is_none_or(|earliest| now < earliest) {
            return;
        }
        let expired = &mut self.expired;
        let keep = |item: &Item| {
            let is_late = item.options.is_late(now);
            if is_late {
                expired.note(item);
            }
            !is_late
        };
        self.outgoing.retain(keep);
        self.earliest_deadline = self.outgoing.earliest_deadline();
    }

    /// The options of the datagram of these classes that is sent next.
    pub(super) fn front(&self, of: ClassSet) -> Option<&DatagramOptions> {
        self.outgoing.front(of).map(|item| &item.options)
    }

    /// The length of the datagram of these classes that is sent next.
    pub(super) fn front_len(&self, of: ClassSet) -> Option<usize> {
        self.outgoing.front(of).map(|item| item.data.len())
    }

    /// Bytes waiting to be sent; an empty datagram counts as one.
    pub(super) fn waiting(&self) -> u64 {
        let bytes = self.outgoing.bytes();
        (bytes + usize::from(bytes == 0 && self.has_waiting())) as u64
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The classes of what waits to be sent.
    pub(super) fn waiting_classes(&self) -> ClassSet {
        self.outgoing.waiting()
    }

    /// Whether any class beside the first was ever used.
    pub(super) fn has_classes(&self) -> bool {
        self.outgoing.has_classes()
    }

    /// Appends the next datagram of these classes in a frame if it fits and goes with `previous`;
    /// returns its length and what is known of it. One that is critical is also appended to
    /// `copyable`, if copies are wanted.
    pub(super) fn write(
        &mut self,
        now: Instant,
        frames: &mut Frames<'_>,
        of: ClassSet,
        previous: Option<&DatagramOptions>,
        copyable: Option<&mut Vec<Bytes>>,
    ) -> Option<(usize, DatagramOptions)> {
        let next = self.outgoing.front(of)?;
        let fits = previous.is_none_or(|previous| next.options.goes_with(previous))
            && put_datagram(frames, &next.data);
        if !fits {
            return None;
        }
        let class = next.options.class;
        let item = self.outgoing.pop(class)?;
        let (length, options) = (item.data.len(), item.options);
        if let Some(copyable) = copyable.filter(|_| options.critical) {
            copyable.push(item.data.clone());
        }
        frames.note(SentFrame::Datagram {
            length: length as u16,
            repair: self.repairs.keep(now, item),
        });
        Some((length, options))
    }

    /// Nothing is sent again from now on.
    pub(super) fn forget_sent(&mut self) {
        self.repairs.clear();
    }

    /// One under this number needs no repair any more.
    pub(super) fn on_acked(&mut self, number: NonZeroU64) {
        self.repairs.take(number);
    }

    /// One under this number was lost, or is on a path that went silent: it is queued again if that
    /// is in time. Returns whether it is.
    pub(super) fn repair(&mut self, now: Instant, number: NonZeroU64) -> bool {
        let Some(mut item) = self.repairs.take(number) else {
            return false;
        };
        let length = item.data.len();
        let fits = self.max_payload().is_some_and(|max| length <= max);
        let Some(until) = item.until.filter(|until| *until > now && fits) else {
            return false;
        };
        if !self.outgoing.has_space(length) {
            return false;
        }
        item.options.max_skew = Some(until.since(now));
        let deadline = item.options.deadline.map_or(until, |at| at.min(until));
        item.options.deadline = Some(deadline);
        let deadlines = self.earliest_deadline.into_iter().chain(Some(deadline));
        self.earliest_deadline = deadlines.min();
        self.outgoing.put_back(item);
        true
    }

    /// Whether the application, turned away before, can send again.
    pub(super) fn take_unblocked(&mut self) -> bool {
        let unblocked = self.wants_send && self.outgoing.is_half_free();
        self.wants_send &= !unblocked;
        unblocked
    }

    /// Takes a payload received on a path; returns whether the application waits for it. If the
    /// application does not keep up, the oldest datagrams go: newer ones are worth more to what
    /// uses them.
    pub(super) fn on_received(
        &mut self,
        path: PathId,
        data: &[u8],
    ) -> Result<bool, TransportError> {
        if self.own_max_frame == 0 {
            return Err(TransportError::violation(
                "a DATAGRAM frame that was not negotiated",
            ));
        }
        if data.len() as u64 + 1 > self.own_max_frame {
            return Err(TransportError::violation(
                "a DATAGRAM frame above the limit",
            ));
        }
        while !self.incoming.has_space(data.len()) {
            self.incoming.pop();
            self.overflowed += 1;
        }
        if self.arena.capacity() < data.len() {
            self.arena.reserve(ARENA.max(data.len()));
        }
        self.arena.extend_from_slice(data);
        self.incoming.push(self.arena.split().freeze(), path);
        Ok(std::mem::take(&mut self.wants_recv))
    }

    /// The oldest received datagram.
    pub(super) fn recv(&mut self) -> Option<ReceivedDatagram> {
        let datagram = self.incoming.pop();
        self.wants_recv |= datagram.is_none();
        datagram.map(|(data, path)| ReceivedDatagram { path, data })
    }
}

/// Appends one frame; returns whether it fits. The caller notes it in the packet's record.
pub(super) fn put_datagram(frames: &mut Frames<'_>, data: &Bytes) -> bool {
    let length = data.len();
    let Some(room) = frames.room().checked_sub(length) else {
        return false;
    };
    let (out, _) = frames.raw();
    if room >= datagram_header_len(length, true) {
        put_datagram_header(out, Some(length));
    } else {
        // The frame extends to the end of the packet; padding closes a gap of a byte or more that
        // is too short for a length.
        let Some(padding) = room.checked_sub(datagram_header_len(length, false)) else {
            return false;
        };
        out.resize(out.len() + padding, 0);
        put_datagram_header(out, None);
    }
    out.extend_from_slice(data);
    true
}

#[cfg(test)]
mod tests;
