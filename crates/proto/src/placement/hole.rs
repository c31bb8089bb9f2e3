//! Which paths carry the data that everything else waits for.

use crate::path::manager::{Manager, Slot};
use crate::path::state::Path;
use crate::recovery::SentPacket;
use crate::streams::{Hole, Streams};
use anabranch_wire::PathId;
use smallvec::SmallVec;

/// Packets of a path searched for the oldest data: what was sent before it is acknowledged, so few
/// precede it.
const MAX_SEARCHED: usize = 64;

/// How much of a hole, from its first byte on, a packet carries.
fn carried_in(packet: &SentPacket, hole: &Hole) -> u64 {
    let frames = packet.frames.iter();
    let mut carried = frames.map(|frame| Streams::carried(frame, hole));
    carried.find(|bytes| *bytes > 0).unwrap_or(0)
}

/// The packets of a path that are searched for a hole.
fn searched(path: &Path) -> impl Iterator<Item = &SentPacket> {
    let unacked = path.space().iter_unacked();
    unacked.map(|(_, packet)| packet).take(MAX_SEARCHED)
}

/// The path of the packet that carries the beginning of a hole that was sent once: the paths are
/// searched side by side, because it is among the oldest packets of its own.
fn only_carrier(paths: &Manager, hole: &Hole) -> Option<PathId> {
    let paths = paths.in_use().filter_map(Slot::path);
    let mut searches: SmallVec<[_; 4]> = paths.map(|path| (path.id(), searched(path))).collect();
    while !searches.is_empty() {
        let mut found = None;
        searches.retain(|(id, packets)| {
            let packet = packets.next();
            if packet.is_some_and(|packet| carried_in(packet, hole) > 0) {
                found = Some(*id);
            }
            packet.is_some()
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The path that will fill the hole first.
pub(super) fn owner(paths: &Manager, hole: &Hole) -> Option<PathId> {
    if hole.ever.is_empty() {
        return only_carrier(paths, hole);
    }
    let carriers = hole.live.iter().filter_map(|id| paths.path(id));
    carriers
        .min_by_key(|path| path.route().rtt().smoothed())
        .map(Path::id)
}

/// How much of a hole a copy may hold that is to stand for what `from` carries. Bytes that were
/// sent once have no history but the packet they are in: the next ones may travel elsewhere,
/// and would be taken for carried by `from` for good.
pub(super) fn copyable_of(paths: &Manager, hole: &Hole, from: PathId) -> u64 {
    if !hole.ever.is_empty() {
        return hole.length;
    }
    let packets = paths.path(from).into_iter().flat_map(searched);
    let mut carried = packets.map(|packet| carried_in(packet, hole));
    let first = carried.find(|bytes| *bytes > 0);
    first.map_or(0, |bytes| bytes.min(hole.length))
}
