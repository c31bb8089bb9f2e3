//! Rules no connection may break, checked at every packet it sends.

use super::Pair;
use anabranch_proto::event::Level;
use anabranch_proto::event::{Observation, Observer, PathNotice};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::{Frame, FrameType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What a watched connection did.
#[derive(Debug, Default)]
pub struct Seen {
    /// The last packet number used, for each space.
    last: BTreeMap<(u8, PathId), u64>,
    /// Paths for which `PATH_ABANDON` left.
    abandoned: BTreeSet<PathId>,
    /// Paths of which the application was told that they were given up.
    ended: BTreeSet<PathId>,
    /// `PATH_ABANDON` left since somebody asked.
    pub abandoned_just_now: bool,
    /// 1-RTT packets sent, for each path.
    pub sent: BTreeMap<PathId, u64>,
    pub lost: BTreeMap<PathId, u64>,
    /// Paths that were found to carry no ECN marks.
    pub ecn_failed: Vec<PathId>,
    /// Stream bytes sent, in packets that are not repeated elsewhere.
    pub stream_bytes: BTreeMap<PathId, u64>,
    /// The order of paths in which stream data left.
    pub order: Vec<(PathId, u64)>,
    /// The congestion window of each path as last told.
    pub windows: BTreeMap<PathId, u64>,
}

impl Seen {
    /// Nothing is told of a path that is given up but that it is gone.
    fn check(&mut self, name: &str, now: Instant, notice: &PathNotice) {
        let Some(path) = path_of(notice) else { return };
        match notice {
            PathNotice::Abandoned { .. } => {
                assert!(self.ended.insert(path), "{name}: path {path} ends twice");
            }
            PathNotice::Discarded { .. } => {
                assert!(self.ended.contains(&path), "{name}: path {path} vanishes");
            }
            _ => assert!(
                !self.ended.contains(&path),
                "{name} at {now} tells {notice:?} after the end of the path"
            ),
        }
    }
}

/// The path that a notice is about.
pub fn path_of(notice: &PathNotice) -> Option<PathId> {
    match *notice {
        PathNotice::Capacity => None,
        PathNotice::Opened { id, .. }
        | PathNotice::Doubted { id }
        | PathNotice::Recovered { id, .. }
        | PathNotice::Moved { id, .. }
        | PathNotice::Abandoned { id, .. }
        | PathNotice::Discarded { id } => Some(id),
    }
}

#[derive(Debug)]
struct Watch {
    name: &'static str,
    seen: Arc<Mutex<Seen>>,
}

impl Observer for Watch {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        let mut seen = self.seen.lock().expect("no test thread panicked");
        let name = self.name;
        match observation {
            Observation::PacketSent {
                level,
                path,
                pn,
                frames,
                ..
            } => {
                // 0-RTT and 1-RTT packets are numbered together.
                let level_of_space = if level.is_data() {
                    Level::OneRtt
                } else {
                    *level
                };
                let space = (level_of_space as u8, *path);
                if let Some(last) = seen.last.insert(space, *pn) {
                    assert!(last < *pn, "{name} used {pn} after {last} in {space:?}");
                }
                let closes =
                    |frame: &(FrameType, Frame<'_>)| matches!(frame.1, Frame::ConnectionClose(_));
                let may = !seen.abandoned.contains(path) || frames.iter().any(closes);
                assert!(
                    *level != Level::OneRtt || may,
                    "{name} sends on path {path} at {now} after giving it up: {frames:?}"
                );
                *seen.sent.entry(*path).or_default() += 1;
                let mut bytes = 0;
                for frame in *frames {
                    match &frame.1 {
                        Frame::PathAbandon { path, .. } => {
                            seen.abandoned.insert(*path);
                            seen.abandoned_just_now = true;
                        }
                        Frame::Stream(stream) => bytes += stream.data.len() as u64,
                        _ => {}
                    }
                }
                if bytes > 0 {
                    *seen.stream_bytes.entry(*path).or_default() += bytes;
                    seen.order.push((*path, bytes));
                }
            }
            Observation::Path(notice) => seen.check(name, now, notice),
            Observation::Metrics { path, metrics } => {
                seen.windows.insert(*path, metrics.congestion_window);
            }
            Observation::EcnFailed { path } => seen.ecn_failed.push(*path),
            Observation::PacketLost { path, .. } => *seen.lost.entry(*path).or_default() += 1,
            _ => {}
        }
    }
}

impl Pair {
    /// Watches one side from now on.
    pub fn watch(&mut self, server: bool) -> Arc<Mutex<Seen>> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let name = if server { "the server" } else { "the client" };
        let watch = Watch {
            name,
            seen: seen.clone(),
        };
        let connection = self.side(server).expect("a connection");
        connection.set_observer(Some(Box::new(watch)));
        seen
    }
}
