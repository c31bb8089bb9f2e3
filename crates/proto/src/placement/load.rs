//! What a decision about data becomes in a packet: whether it would hold any of it, and writing it.

use super::repeats::Repeat;
use super::{Job, Load, Original, Placement, Task};
use crate::handshake::Level;
use crate::packet::{Kind, Packet};
use crate::path::manager::Manager;
use crate::path::state::Path;
use crate::recovery::sent::SentFrame;
use crate::sched::{ClassSet, UnitKind};
use crate::streams::Streams;
use anabranch_wire::PathId;
use anabranch_wire::cid::MAX_CID_LEN;
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

/// What a packet held of the data that was decided on.
pub(super) struct Carried<'a> {
    /// Bytes of streams and datagrams.
    pub(super) bytes: u64,
    /// Stream bytes that were not sent for the first time.
    pub(super) again: u64,
    /// The frames.
    pub(super) frames: &'a [SentFrame],
    /// The datagrams among them that are worth a copy.
    pub(super) datagrams: &'a [Bytes],
}

/// Room that an acknowledgement of one range takes at the most.
const ACK_ROOM: usize = 32;

/// Room for which any stream data is worth a frame.
const COPY_ROOM: usize = 64;

/// The longest packet number, and the tag.
const NUMBER_AND_TAG: usize = 4 + 16;

/// Room for frames in a packet on the path, whatever its packet number and connection IDs.
pub(crate) fn room_on(path: &Path, level: Level) -> usize {
    room_in(path.route().sendable_datagram_size(), level)
}

/// Room for frames in a packet of this size.
pub(crate) fn room_in(size: u64, level: Level) -> usize {
    let header = match level {
        Level::OneRtt => 1 + MAX_CID_LEN,
        // With version, two lengths of connection IDs, and the length of the packet.
        _ => 1 + 4 + 2 * (1 + MAX_CID_LEN) + 2,
    };
    (size as usize).saturating_sub(header + NUMBER_AND_TAG)
}

impl Placement {
    /// Whether a packet with `room` for frames and nothing else in it would hold what the job is
    /// about.
    pub(crate) fn would_write(&self, job: &Job, room: usize, streams: &Streams) -> bool {
        match job.task {
            Task::Data(load) => load.would_write(job.path, room, streams),
            Task::Repeat(number) => self.repeats.would_write(number, room, streams),
            Task::Acknowledge => room >= ACK_ROOM,
            Task::Validate { .. }
            | Task::Probe
            | Task::MtuProbe { .. }
            | Task::Ping
            | Task::Control => true,
        }
    }

    /// Writes what was decided on, as far as there is room beside what the packet holds already.
    pub(crate) fn write(
        &mut self,
        load: Load,
        packet: &mut Packet<'_>,
        paths: &mut Manager,
        streams: &mut Streams,
    ) {
        // What goes along may have taken the room of what was decided on.
        let alone = !packet.has_frames();
        let (path, before) = (packet.path(), packet.frames().mark());
        let mut wrote = Wrote::default();
        match load {
            Load::Waiting { .. } => wrote = write_waiting(load, packet, streams),
            Load::Stream { id: stream, .. } => {
                wrote.fresh = streams.write_stream(packet.frames(), stream, u64::MAX);
            }
            Load::Hole { from, frame } => {
                packet.set_kind(Kind::Copy);
                let bytes = streams.write_copy(packet.frames(), from, path, &[frame]);
                if let Some(path) = paths.open_path_mut(path) {
                    path.count_rescued(bytes);
                }
            }
            Load::Copy(first) => self.write_copies(first, packet, paths, streams),
        }
        if let Some(path) = paths.open_path_mut(path) {
            path.count_written(wrote.fresh, wrote.again);
        }
        let carried = Carried {
            bytes: wrote.again + wrote.fresh + wrote.datagrams,
            again: wrote.again,
            frames: packet.frames().sent_since(before),
            datagrams: &wrote.kept,
        };
        self.carried(path, load, &carried);
        debug_assert!(
            !alone || wrote.holds(load, !packet.frames().is_at(before)),
            "a packet without what it is about: {load:?} {wrote:?}"
        );
    }

    /// Fills the packet with what the oldest packets of other paths carry. What does not fit of one
    /// is left for the next copy: otherwise the few bytes by which two packets differ would wait
    /// for the original after all.
    fn write_copies(
        &mut self,
        first: Original,
        packet: &mut Packet<'_>,
        paths: &mut Manager,
        streams: &mut Streams,
    ) {
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
            let carrier = paths.path(from);
            let original = carrier.and_then(|path| path.space().unacked_from(pn).next());
            let Some((_, original)) = original else {
                return;
            };
            let carried = &original.frames;
            let bytes = streams.write_copy(packet.frames(), from, id, carried);
            let rest = carried.iter().any(|frame| streams.is_copyable(frame, id));
            if let Some(path) = paths.open_path_mut(id) {
                path.count_copied(bytes);
            }
            if rest || bytes == 0 {
                return;
            }
            next = self.oldest_copy(id, class, paths, streams);
        }
    }

    /// Writes the copy of this number, which was asked for together with its original. What does
    /// not fit, as something goes along with it, stays for the next packet.
    pub(crate) fn write_repeat(
        &mut self,
        number: u64,
        packet: &mut Packet<'_>,
        paths: &mut Manager,
        streams: &mut Streams,
    ) {
        packet.set_kind(Kind::Copy);
        let Some(Repeat {
            from,
            frames: carried,
            datagrams,
            ..
        }) = self.repeats.get(number)
        else {
            return;
        };
        let (id, frames) = (packet.path(), packet.frames());
        let count = streams.write_datagram_copies(frames, datagrams);
        let bytes: usize = datagrams[..count].iter().map(Bytes::len).sum();
        let bytes = bytes as u64 + streams.write_copy(frames, *from, id, carried);
        self.repeats.on_written(number, count, streams);
        if let Some(path) = paths.open_path_mut(id) {
            path.count_copied(bytes);
        }
    }
}

/// Writes what waits of one class: first what was asked about, then the rest in the usual
/// order.
fn write_waiting(load: Load, packet: &mut Packet<'_>, streams: &mut Streams) -> Wrote {
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
    let frames = packet.frames();
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

impl Load {
    /// Whether a packet on `path` with `room` for frames would hold any of what it is about.
    pub(super) fn would_write(&self, path: PathId, room: usize, streams: &Streams) -> bool {
        match self {
            Self::Waiting {
                first, class, skip, ..
            } => {
                let of = ClassSet::of(*class);
                match first {
                    UnitKind::Retransmission => streams.would_write_again(of, room),
                    UnitKind::Datagram => streams.would_write_datagram(of, room),
                    UnitKind::Fresh => streams.would_write_fresh(of, room, *skip),
                    UnitKind::Idle => false,
                }
            }
            Self::Stream { id, .. } => streams.would_write_stream(room, *id),
            Self::Hole { frame, .. } => streams.would_copy(frame, path, room),
            // Its frames are looked at where the paths are known.
            Self::Copy(_) => room >= COPY_ROOM,
        }
    }
}
