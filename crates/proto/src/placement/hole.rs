//! Which paths carry the data that everything else waits for.

use crate::path::PathSet;
use crate::path::manager::{Manager, Slot};
use crate::path::state::Path;
use crate::streams::{Hole, Streams};
use anabranch_wire::PathId;

/// Packets of a path searched for the oldest data: what was sent before it is acknowledged, so few
/// precede it.
const MAX_SEARCHED: usize = 64;

/// How much of a hole, from its first byte on, a packet of the path carries.
fn carried_by(path: &Path, hole: &Hole) -> u64 {
    let packets = path.space().iter_unacked().take(MAX_SEARCHED);
    let frames = packets.flat_map(|(_, packet)| packet.frames.iter());
    let mut carried = frames.map(|frame| Streams::carried(frame, hole));
    carried.find(|bytes| *bytes > 0).unwrap_or(0)
}

/// The paths that carry a hole.
fn carriers(paths: &Manager, hole: &Hole) -> PathSet {
    if !hole.ever.is_empty() {
        return hole.live;
    }
    let paths = paths.in_use().filter_map(Slot::path);
    paths
        .filter(|path| carried_by(path, hole) > 0)
        .map(Path::id)
        .collect()
}

/// The path that will fill the hole first.
pub(super) fn owner(paths: &Manager, hole: &Hole) -> Option<PathId> {
    let carriers = carriers(paths, hole);
    let carriers = carriers.iter().filter_map(|id| paths.path(id));
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
    let path = paths.path(from);
    path.map_or(0, |path| carried_by(path, hole).min(hole.length))
}
