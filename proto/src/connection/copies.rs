//! Copies of what other paths carry: by a scheduler's wish, or of the data that everything waits
//! for.

use super::Connection;
use super::builder::Packet;
use crate::path::MAX_OPEN_PATHS;
use crate::time::Instant;
use crate::wire::PathId;
use smallvec::SmallVec;

/// Packets of other paths copied into one at the most: only rests of copies are small.
const MAX_COPIED_PACKETS: usize = 8;

/// A packet in flight whose data another path may carry too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Original {
    /// When it was sent.
    pub(super) sent: Instant,
    /// By which path.
    path: PathId,
    pn: u64,
}

impl Connection {
    /// The oldest packet in flight elsewhere whose data `path` has not carried.
    pub(super) fn oldest_copy(&mut self, path: PathId) -> Option<Original> {
        let others = self.paths.open().map(|slot| slot.id);
        let others = others.filter(|id| *id != path);
        let others: SmallVec<[PathId; MAX_OPEN_PATHS]> = others.collect();
        let losses = self.streams.losses();
        let mut oldest = None;
        for other in others {
            let copies = self.paths.path(path)?.copies();
            let (from, copied) = (copies.first(other, losses), copies.copied(other));
            let found = self.first_copyable(other, from, path);
            debug_assert_eq!(
                found,
                self.first_copyable(other, copied, path),
                "only a loss makes worth a copy what was not"
            );
            let next = match found {
                Some(original) => original.pn,
                None => self.paths.path(other)?.space().peek_pn(),
            };
            let copies = self.paths.open_path_mut(path)?.copies_mut();
            copies.pass(other, next, losses);
            oldest = oldest.into_iter().chain(found).min();
        }
        oldest
    }

    /// The first packet of `other`, from number `from` on, with data that is worth a copy on
    /// `path`.
    fn first_copyable(&self, other: PathId, from: u64, path: PathId) -> Option<Original> {
        let mut packets = self.paths.path(other)?.space().unacked_from(from);
        let (pn, packet) = packets.find(|(_, packet)| {
            !packet.is_copy
                && packet.ack_eliciting
                && packet
                    .frames
                    .iter()
                    .any(|frame| self.streams.is_copyable(frame, path))
        })?;
        Some(Original {
            sent: packet.time_sent,
            path: other,
            pn,
        })
    }

    /// Fills the packet with what the oldest packets of other paths carry. What does not fit of one
    /// is left for the next copy: otherwise the few bytes by which two packets differ would wait
    /// for the original after all.
    pub(super) fn write_next_copy(&mut self, id: PathId, packet: &mut Packet, buf: &mut Vec<u8>) {
        packet.is_copy = true;
        for _ in 0..MAX_COPIED_PACKETS {
            let Some(Original { path: from, pn, .. }) = self.oldest_copy(id) else {
                return;
            };
            let frames = self.paths.path(from).and_then(|path| {
                let (_, original) = path.space().unacked_from(pn).next()?;
                Some(original.frames.clone())
            });
            let frames = frames.unwrap_or_default();
            let (end, sent) = (packet.end, &mut packet.frames);
            let bytes = self.streams.write_copy(buf, end, from, id, &frames, sent);
            let rest = frames
                .iter()
                .any(|frame| self.streams.is_copyable(frame, id));
            let next = if rest { pn } else { pn + 1 };
            let Some(path) = self.paths.open_path_mut(id) else {
                return;
            };
            path.counters_mut().copied_bytes += bytes;
            path.copies_mut().on_copied(from, next);
            if rest || bytes == 0 {
                return;
            }
        }
    }

    /// Writes what everything waits for, which `from` carries.
    pub(super) fn write_hole(&mut self, from: PathId, packet: &mut Packet, buf: &mut Vec<u8>) {
        packet.is_copy = true;
        let (id, end) = (packet.path, packet.end);
        let room = packet.room(buf) as u64;
        let Some(hole) = self.streams.hole() else {
            return;
        };
        let length = self.copyable_of(&hole, from).min(room);
        let Some(frame) = self.streams.frame_of(&hole, length) else {
            return;
        };
        let sent = &mut packet.frames;
        let bytes = self.streams.write_copy(buf, end, from, id, &[frame], sent);
        if let Some(path) = self.paths.open_path_mut(id) {
            path.counters_mut().copied_bytes += bytes;
            path.counters_mut().rescued_bytes += bytes;
        }
    }
}
