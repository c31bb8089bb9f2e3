//! Copies of what other paths carry, requested by the scheduler.

use super::fronts::Fronts;
use super::{Original, Placement};
use crate::path::manager::Manager;
use crate::recovery::sent::SentFrame;
use crate::streams::Streams;
use anabranch_wire::PathId;

impl Placement {
    /// The oldest packet in flight elsewhere with data of a class that is not under way on `path`.
    /// It may be a copy itself: what `path` lost may be left on the slowest path alone.
    pub(crate) fn oldest_copy(
        &mut self,
        path: PathId,
        class: u8,
        paths: &Manager,
        streams: &Streams,
    ) -> Option<Original> {
        let at = usize::from(class);
        if at >= self.fronts.len() {
            self.fronts.resize_with(at + 1, Fronts::default);
        }
        oldest(&mut self.fronts[at], path, class, paths, streams)
    }
}

fn oldest(
    fronts: &mut Fronts,
    path: PathId,
    class: u8,
    paths: &Manager,
    streams: &Streams,
) -> Option<Original> {
    let losses = streams.losses();
    let is_one =
        |frame: &SentFrame| streams.is_of(frame, class) && streams.is_copyable(frame, path);
    let mut oldest = None;
    for other in paths.open().filter_map(|slot| slot.open()) {
        let id = other.id();
        if id == path {
            continue;
        }
        let find = |from| {
            let mut packets = other.space().unacked_from(from);
            let (pn, packet) = packets
                .find(|(_, packet)| packet.ack_eliciting && packet.frames.iter().any(is_one))?;
            Some(Original {
                sent: packet.time_sent,
                path: id,
                pn,
                class,
            })
        };
        let found = find(fronts.first(path, id, losses));
        debug_assert_eq!(
            found,
            find(0),
            "only a loss makes worth a copy what was not"
        );
        let next = found.map_or_else(|| other.space().peek_pn(), |original| original.pn);
        fronts.pass(path, id, next, losses);
        oldest = oldest.into_iter().chain(found).min();
    }
    oldest
}

impl Original {
    /// Whether a packet on `path` with `room` for frames would hold any of its data.
    pub(super) fn would_write(
        &self,
        path: PathId,
        room: usize,
        paths: &Manager,
        streams: &Streams,
    ) -> bool {
        let carrier = paths.path(self.path);
        let packet = carrier.and_then(|carrier| carrier.space().unacked_from(self.pn).next());
        packet.is_some_and(|(pn, packet)| {
            let mut frames = packet.frames.iter();
            pn == self.pn && frames.any(|frame| streams.would_copy(frame, path, room))
        })
    }
}
