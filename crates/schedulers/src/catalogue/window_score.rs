//! Window score: the bonding rule of senders that measure no RTT.
//!
//! As in BELABOX's srtla sender. Each path has a window of its own, in thousandths of a packet: it
//! grows with acknowledgements while the path is filled and shrinks by a tenth of a packet with
//! each loss, and the path with the highest `window / (in flight + 1)` sends. Delays do not count,
//! so the receiver must put packets in order; and reordering taken for loss shrinks good paths. The
//! engine's congestion window still has the last word.

use crate::toolkit::units::packet;
use crate::toolkit::{carried, position};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{Choice, Entry, PathEvent, PathView, Reason, Scheduler, SendView};
use anabranch_proto::wire::PathId;
use smallvec::SmallVec;
use std::cmp::Reverse;

pub(crate) const ENTRY: Entry = Entry {
    name: "window-score",
    summary: "the largest own window per packet in flight, without regard to delay",
    params: &[],
    build: |_| Ok(Box::new(WindowScore::default())),
};

const PACKET: u64 = 1000;
const START: u64 = 20 * PACKET;
const LEAST: u64 = PACKET;
const MOST: u64 = 60 * PACKET;
/// Growth of the window of the path that an acknowledgement is for, and of every path's.
const ACKED: u64 = 29;
const ANY_ACKED: u64 = 1;
const LOST: u64 = 100;

/// Shares traffic by windows of its own.
#[derive(Debug, Default)]
pub(crate) struct WindowScore {
    windows: SmallVec<[Window; MAX_OPEN_PATHS]>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    path: PathId,
    /// In thousandths of a packet.
    size: u64,
    /// In packets, as last seen and less what was acknowledged since.
    in_flight: u64,
    /// As last seen: the size of a packet, the bytes in flight and how many packets they are.
    packet: u64,
    bytes: u64,
    packets: u64,
}

impl WindowScore {
    fn refresh(&mut self, view: &SendView<'_>) {
        for (at, path) in view.paths.iter().enumerate() {
            if let Some(at) = self.position(at, path.id) {
                self.windows[at].see(path);
                continue;
            }
            if self.windows.len() == MAX_OPEN_PATHS {
                self.windows
                    .retain(|window| view.path(window.path).is_some());
            }
            self.windows.push(Window {
                path: path.id,
                size: START,
                in_flight: packets(path),
                packet: packet(path),
                bytes: path.bytes_in_flight,
                packets: packets(path),
            });
        }
    }

    fn position(&self, guess: usize, path: PathId) -> Option<usize> {
        position(&self.windows, guess, |window| window.path == path)
    }

    #[cfg(test)]
    fn score(&self, path: &PathView) -> u64 {
        let at = self.position(0, path.id).expect("a path that was seen");
        self.windows[at].score()
    }

    /// The path that sends: the highest score, of paths that have not carried the data before if
    /// there are such.
    fn best<'a>(&self, view: &SendView<'a>) -> Option<&'a PathView> {
        let mut best: Option<((bool, Reverse<u64>), &PathView)> = None;
        let mut guess = 0;
        for path in view.ready() {
            let Some(at) = self.position(guess, path.id) else {
                continue;
            };
            guess = at + 1;
            let key = (carried(view, path), Reverse(self.windows[at].score()));
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, path));
            }
        }
        best.map(|(_, path)| path)
    }

    fn of(&mut self, path: PathId) -> Option<&mut Window> {
        self.windows.iter_mut().find(|window| window.path == path)
    }

    fn on_acked(&mut self, path: PathId, bytes: u64) {
        let Some(own) = self.of(path) else { return };
        // No window has more steps than this to grow.
        let packets = (bytes / own.packet).clamp(1, MOST);
        if own.in_flight.saturating_mul(PACKET) > own.size {
            own.size += ACKED * packets;
        }
        own.in_flight = own.in_flight.saturating_sub(packets);
        for window in &mut self.windows {
            window.size = (window.size + ANY_ACKED * packets).min(MOST);
        }
    }
}

impl Window {
    /// Notes what is in flight. That of most paths is what it was at the decision before, and need
    /// not be divided again.
    fn see(&mut self, path: &PathView) {
        let packet = packet(path);
        if (self.bytes, self.packet) != (path.bytes_in_flight, packet) {
            (self.bytes, self.packet) = (path.bytes_in_flight, packet);
            self.packets = packets(path);
        }
        self.in_flight = self.packets;
    }

    fn score(&self) -> u64 {
        // Scaled, so that windows of a few packets do not all score 0. Both numbers have 32 bits,
        // which divide faster: with more in flight than that the score is 0 in any case.
        let scaled = (self.size * PACKET) as u32;
        let in_flight = u32::try_from(self.in_flight).unwrap_or(u32::MAX);
        u64::from(scaled / in_flight.saturating_add(1))
    }
}

/// Packets in flight.
fn packets(path: &PathView) -> u64 {
    path.bytes_in_flight.div_ceil(packet(path))
}

impl Scheduler for WindowScore {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.refresh(view);
        match self.best(view) {
            Some(path) => Choice::send(path.id, Reason::Other("window_score")),
            None => view.no_room(),
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        match *event {
            PathEvent::Acked { path, bytes, .. } => self.on_acked(path, bytes),
            PathEvent::Lost { path, bytes } => {
                if let Some(own) = self.of(path) {
                    let packets = bytes.div_ceil(own.packet).min(MOST);
                    own.size = own.size.saturating_sub(LOST * packets).max(LEAST);
                }
            }
            PathEvent::Doubted { path } | PathEvent::Abandoned { path } => {
                self.windows.retain(|window| window.path != path);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fresh;
    use anabranch_proto::sched::Decision;

    fn path(id: u32, in_flight: u64) -> PathView {
        PathView {
            congestion_window: 1_000_000,
            bytes_in_flight: in_flight * 1000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_window_per_packet_in_flight_decides() {
        let mut score = WindowScore::default();
        let paths = [path(0, 9), path(1, 4)];
        let choice = score.select(&fresh(&paths));
        assert_eq!(choice.decision, Decision::Send(PathId(1)));
        assert_eq!(score.score(&paths[0]) / (PACKET * PACKET), 2);
        assert_eq!(score.score(&paths[1]) / (PACKET * PACKET), 4);
    }

    fn sizes(score: &WindowScore) -> Vec<u64> {
        score.windows.iter().map(|window| window.size).collect()
    }

    #[test]
    fn windows_grow_with_acknowledgements_while_they_are_filled() {
        let mut score = WindowScore::default();
        let acked = |id| PathEvent::Acked {
            path: PathId(id),
            bytes: 1000,
            rtt: None,
        };
        score.select(&fresh(&[path(0, 21), path(1, 20)]));
        score.on_event(&acked(0));
        assert_eq!(sizes(&score), [20_030, 20_001]);
        score.on_event(&acked(1));
        assert_eq!(
            sizes(&score),
            [20_031, 20_002],
            "20 in flight do not fill it"
        );
        for _ in 0..100_000 {
            score.on_event(&acked(0));
        }
        assert_eq!(sizes(&score), [60_000, 60_000]);
    }

    #[test]
    fn a_loss_takes_a_tenth_of_a_packet() {
        let mut score = WindowScore::default();
        score.select(&fresh(&[path(0, 0), path(1, 0)]));
        let lost = |bytes| PathEvent::Lost {
            path: PathId(0),
            bytes,
        };
        score.on_event(&lost(1000));
        assert_eq!(sizes(&score), [19_900, 20_000]);
        score.on_event(&lost(5000));
        assert_eq!(sizes(&score), [19_400, 20_000]);
        score.on_event(&lost(u64::MAX));
        assert_eq!(sizes(&score), [1000, 20_000]);
    }

    #[test]
    fn packets_in_flight_settle_in_proportion_to_the_windows() {
        let mut score = WindowScore::default();
        let mut paths = [path(0, 0), path(1, 0)];
        score.select(&fresh(&paths));
        let path = PathId(1);
        score.on_event(&PathEvent::Lost {
            path,
            bytes: 100_000,
        });
        for _ in 0..300 {
            let Decision::Send(id) = score.select(&fresh(&paths)).decision else {
                panic!("both paths are open")
            };
            paths[id.0 as usize].bytes_in_flight += 1000;
        }
        assert_eq!(paths.map(|path| path.bytes_in_flight / 1000), [200, 100]);
    }
}
