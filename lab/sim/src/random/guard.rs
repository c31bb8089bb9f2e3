//! Rules that no connection may break, checked at every packet it sends.

use anabranch_proto::event::Level;
use anabranch_proto::event::{Observation, Observer, ObserverFactory, PathNotice, Purpose};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::{Frame, FrameType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The window and bytes in flight last reported for a path, plus what was sent since.
#[derive(Debug, Clone, Copy)]
struct Flight {
    window: u64,
    in_flight: u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The last packet number used, for each space.
    last: BTreeMap<(u8, PathId), u64>,
    /// Paths for which `PATH_ABANDON` was sent.
    abandoned: BTreeSet<PathId>,
    /// Paths whose state is gone.
    discarded: BTreeSet<PathId>,
    flights: BTreeMap<PathId, Flight>,
    breaches: Vec<String>,
    /// Whether lost data may go beyond the window once after each loss (RFC 9002, section 7.3.2).
    urgent_allowed: bool,
    /// Whether something was lost and nothing has been sent beyond a window since.
    fresh_loss: bool,
}

/// Watches the connections of one host. Clones share what they observe.
#[derive(Debug, Clone)]
pub struct Guard {
    name: &'static str,
    inner: Arc<Mutex<Inner>>,
}

impl Guard {
    /// A guard that refers to its host by this name.
    pub fn new(name: &'static str) -> Self {
        let inner = Arc::default();
        Self { name, inner }
    }

    /// Allows for a retransmission policy of the host that sends one packet beyond the window after
    /// a loss.
    pub fn allow_urgent(&self) {
        self.lock().urgent_allowed = true;
    }

    /// The observer for the host's transport settings; the host must have only one connection.
    pub fn observer(&self) -> ObserverFactory {
        let guard = self.clone();
        ObserverFactory::from_fn(move |_| Some(Box::new(guard.clone())))
    }

    /// The rules that were broken, in words.
    pub fn breaches(&self) -> Vec<String> {
        self.lock().breaches.clone()
    }

    /// Whether any rule was broken.
    pub fn is_breached(&self) -> bool {
        !self.lock().breaches.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Guard {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        let name = self.name;
        let mut inner = self.lock();
        match observation {
            Observation::PacketSent {
                level,
                path,
                pn,
                size,
                purpose,
                frames,
            } => {
                let breach = inner.on_sent(*level, *path, *pn, *size as u64, *purpose, frames);
                if let Some(what) = breach {
                    inner.breaches.push(format!("{now}: {name} {what}"));
                }
            }
            Observation::Metrics { path, metrics } => {
                let flight = Flight {
                    window: metrics.congestion_window,
                    in_flight: metrics.bytes_in_flight,
                };
                inner.flights.insert(*path, flight);
            }
            Observation::PacketLost { .. } => inner.fresh_loss = inner.urgent_allowed,
            Observation::RouteAssigned { path, .. } => {
                inner.flights.remove(path);
                if inner.discarded.contains(path) {
                    let what = format!("{now}: {name} uses path {path} again");
                    inner.breaches.push(what);
                }
            }
            Observation::Path(PathNotice::Discarded { id }) => {
                inner.discarded.insert(*id);
            }
            _ => {}
        }
    }
}

impl Inner {
    fn on_sent(
        &mut self,
        level: Level,
        path: PathId,
        pn: u64,
        size: u64,
        purpose: Purpose,
        frames: &[(FrameType, Frame<'_>)],
    ) -> Option<String> {
        let space = (level as u8, path);
        if let Some(last) = self.last.insert(space, pn)
            && last >= pn
        {
            return Some(format!("sent number {pn} after {last} on path {path}"));
        }
        if level != Level::OneRtt {
            return None;
        }
        let closes =
            |(_, frame): &(FrameType, Frame<'_>)| matches!(frame, Frame::ConnectionClose(_));
        if self.abandoned.contains(&path) && !frames.iter().any(closes) {
            return Some(format!("sends on path {path} after giving it up"));
        }
        for (_, frame) in frames {
            if let Frame::PathAbandon { path, .. } = frame {
                self.abandoned.insert(*path);
            }
        }
        let has_data = frames
            .iter()
            .any(|(_, frame)| matches!(frame, Frame::Stream(_) | Frame::Datagram { .. }));
        let flight = self.flights.get_mut(&path)?;
        let over = has_data && purpose == Purpose::Frames && flight.in_flight >= flight.window;
        let urgent = over && std::mem::take(&mut self.fresh_loss);
        let (window, in_flight) = (flight.window, flight.in_flight);
        // Packets with only acknowledgements, with or without a timestamp, are not in flight (RFC
        // 9002, section 2). Packets that validate a route may use another route than the path's
        // current one, whose bytes in flight they do not change.
        let counts = |(_, frame): &(FrameType, Frame<'_>)| {
            !matches!(frame, Frame::Ack(_) | Frame::Timestamp { .. })
        };
        let validates = |(_, frame): &(FrameType, Frame<'_>)| {
            matches!(
                frame,
                Frame::PathChallenge { .. } | Frame::PathResponse { .. }
            )
        };
        if frames.iter().any(counts) && !frames.iter().any(validates) {
            flight.in_flight += size;
        }
        (over && !urgent).then(|| {
            format!("sends data on path {path} with {in_flight} bytes in flight of {window}")
        })
    }
}
