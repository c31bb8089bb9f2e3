//! Packets with data: what was decided on, and what goes along with it.

use super::Connection;
use crate::packet::{Kind, Packet};
use crate::placement::{Carried, Load, Original, Repeat};
use crate::sched::{ClassSet, UnitKind};
use crate::time::Instant;
use crate::wire::PathId;
use bytes::Bytes;

/// Most packets of other paths merged into one: only leftovers of copies are small enough.
const MAX_COPIED_PACKETS: usize = 8;

/// The kinds of what waits, in the order in which they are sent.
const IN_ORDER: [UnitKind; 3] = [
    UnitKind::Retransmission,
    UnitKind::Datagram,
    UnitKind::Fresh,
];

/// Bytes of what waited that a packet holds.
#[derive(Debug, Default)]
struct Wrote {
    /// Of streams, sent before.
    again: u64,
    /// Of streams, sent for the first time.
    fresh: u64,
    datagrams: u64,
    /// The datagrams that are worth a copy.
    kept: Vec<Bytes>,
    /// Whether data of the decided kind was written.
    of_first: bool,
}

impl Wrote {
    /// Whether the packet holds what was decided on, if it holds `any` data.
    fn holds(&self, load: Load, any: bool) -> bool {
        any && (self.of_first || !matches!(load, Load::Waiting { .. }))
    }
}

impl Connection {
    pub(super) fn write_data(&mut self, now: Instant, load: Load, packet: &mut Packet<'_>) {
        let id = packet.path();
        self.write_acks(now, packet, false);
        if self.has_control() {
            self.write_control(packet);
        }
        let is_first = self
            .paths
            .path(id)
            .is_some_and(|path| self.is_first_after_quiet(path));
        if is_first {
            self.ask_for_answer(packet.frames());
        }
        // What goes along may have taken the room of what was decided on.
        let alone = !packet.has_frames();
        let before = packet.frames().mark();
        let wrote = self.write_load(load, packet);
        debug_assert!(
            !alone || wrote.holds(load, !packet.frames().is_at(before)),
            "a packet without what it is about: {load:?} {wrote:?}"
        );
        if !is_first && self.is_last_for_now() {
            self.ask_for_answer(packet.frames());
        }
    }

    fn write_load(&mut self, load: Load, packet: &mut Packet<'_>) -> Wrote {
        let (path, before) = (packet.path(), packet.frames().mark());
        let mut wrote = Wrote::default();
        match load {
            Load::Waiting { .. } => wrote = self.write_waiting(load, packet),
            Load::Stream { id: stream, .. } => {
                let frames = packet.frames();
                wrote.fresh = self.streams.write_stream(frames, stream, u64::MAX);
            }
            Load::Hole { from, frame } => {
                packet.set_kind(Kind::Copy);
                let frames = packet.frames();
                let bytes = self.streams.write_copy(frames, from, path, &[frame]);
                self.count_copied(path, bytes, true);
            }
            Load::Copy(first) => self.write_copies(first, packet),
        }
        self.count_stream_bytes(path, wrote.again + wrote.fresh, wrote.again);
        let carried = Carried {
            bytes: wrote.again + wrote.fresh + wrote.datagrams,
            again: wrote.again,
            frames: packet.frames().sent_since(before),
            datagrams: &wrote.kept,
        };
        self.placement.carried(path, load, &carried);
        wrote
    }

    /// Writes what waits of one class: first what was asked about, then the rest in the usual
    /// order.
    fn write_waiting(&mut self, load: Load, packet: &mut Packet<'_>) -> Wrote {
        let mut wrote = Wrote::default();
        let Load::Waiting {
            first,
            class,
            skip,
            budget,
            also,
            overtakes,
            beyond,
        } = load
        else {
            return wrote;
        };
        let (path, of) = (packet.path(), ClassSet::of(class));
        let (streams, frames) = (&mut self.streams, packet.frames());
        let others = IN_ORDER.into_iter().filter(|kind| *kind != first);
        for kind in [first].into_iter().chain(others) {
            let left = budget.saturating_sub(wrote.again + wrote.fresh + wrote.datagrams);
            let before = frames.mark();
            match kind {
                UnitKind::Retransmission if !overtakes => {
                    let before = streams.bytes_retransmitted();
                    streams.write_lost_data(frames, of, path, left);
                    wrote.again = streams.bytes_retransmitted() - before;
                }
                UnitKind::Datagram if !beyond && streams.has_datagrams() => {
                    let keep = (!also.is_empty()).then_some(&mut wrote.kept);
                    wrote.datagrams = streams.write_datagrams(frames, of, left, keep);
                }
                UnitKind::Fresh => {
                    wrote.fresh = streams.write_fresh_data(frames, of, skip, left);
                }
                _ => {}
            }
            wrote.of_first |= kind == first && !frames.is_at(before);
        }
        wrote
    }

    /// Fills the packet with what the oldest packets of other paths carry. What does not fit of one
    /// is left for the next copy: otherwise the few bytes by which two packets differ would wait
    /// for the original after all.
    fn write_copies(&mut self, first: Original, packet: &mut Packet<'_>) {
        packet.set_kind(Kind::Copy);
        let id = packet.path();
        let mut next = Some(first);
        for _ in 0..MAX_COPIED_PACKETS {
            let Some(original) = next else {
                return;
            };
            let Original {
                path: from,
                pn,
                class,
                ..
            } = original;
            let carrier = self.paths.path(from);
            let original = carrier.and_then(|path| path.space().unacked_from(pn).next());
            let Some((_, original)) = original else {
                return;
            };
            let carried = &original.frames;
            let streams = &mut self.streams;
            let bytes = streams.write_copy(packet.frames(), from, id, carried);
            let rest = carried.iter().any(|frame| streams.is_copyable(frame, id));
            self.count_copied(id, bytes, false);
            if rest || bytes == 0 {
                return;
            }
            next = self
                .placement
                .oldest_copy(id, class, &self.paths, &self.streams);
        }
    }

    /// Writes a copy that was asked for together with its original. What does not fit, as something
    /// goes along with it, stays for the next packet.
    pub(super) fn write_repeat(&mut self, now: Instant, number: u64, packet: &mut Packet<'_>) {
        self.write_acks(now, packet, false);
        packet.set_kind(Kind::Copy);
        let Some(Repeat {
            from,
            frames: carried,
            datagrams,
            ..
        }) = self.placement.repeat(number)
        else {
            return;
        };
        let (id, frames) = (packet.path(), packet.frames());
        let streams = &mut self.streams;
        let count = streams.write_datagram_copies(frames, datagrams);
        let bytes: usize = datagrams[..count].iter().map(Bytes::len).sum();
        let bytes = bytes as u64 + streams.write_copy(frames, *from, id, carried);
        self.placement.repeated(number, count, &self.streams);
        self.count_copied(id, bytes, false);
    }

    /// Counts stream bytes written on a path, `again` of them not for the first time.
    pub(super) fn count_stream_bytes(&mut self, id: PathId, bytes: u64, again: u64) {
        if let Some(path) = self.paths.open_path_mut(id) {
            path.counters_mut().fresh_bytes += bytes.saturating_sub(again);
            path.counters_mut().retransmitted_bytes += again;
        }
    }

    /// Counts bytes copied onto a path, for rescue or at the scheduler's request.
    fn count_copied(&mut self, id: PathId, bytes: u64, rescued: bool) {
        if let Some(path) = self.paths.open_path_mut(id) {
            path.counters_mut().copied_bytes += bytes;
            path.counters_mut().rescued_bytes += if rescued { bytes } else { 0 };
        }
    }
}
