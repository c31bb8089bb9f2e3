//! What a connection has to tell: events, which wait for the application, and observations, which
//! an observer sees at once.

use crate::event::{DropReason, Event, LossTrigger, Observation, Observer, PathNotice};
use crate::handshake::Level;
use crate::packet::Sealed;
use crate::recovery::{SentPacket, loss};
use crate::stats::ConnectionStats;
use crate::time::Instant;
use anabranch_wire::PathId;
use anabranch_wire::cursor::Reader;
use anabranch_wire::frame;
use std::collections::VecDeque;

/// What waits to be told, and who watches.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    events: VecDeque<Event>,
    observer: Option<Box<dyn Observer>>,
    /// The key generation the observer knows of.
    keys: u64,
    packets_dropped: u64,
    duplicate_packets: u64,
}

impl Outbox {
    /// Queues an event for the application.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The next event that waits.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Tells application and observer of a path.
    pub(crate) fn notice(&mut self, now: Instant, notice: PathNotice) {
        self.observe(now, &Observation::Path(notice));
        self.tell(Event::Path(notice));
    }

    /// Another observer, or none, sees what happens from now on; `keys` is the generation of keys
    /// in use.
    pub(crate) fn set_observer(&mut self, observer: Option<Box<dyn Observer>>, keys: u64) {
        self.observer = observer;
        self.keys = keys;
    }

    /// Whether it is worth collecting what only an observer wants.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Shows something to the observer.
    pub(crate) fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.observe(now, observation);
        }
    }

    /// Shows a key update, if there was one since the last time.
    pub(crate) fn observe_keys(&mut self, now: Instant, generation: u64, by_peer: bool) {
        if self.is_observed() && generation != self.keys {
            self.keys = generation;
            let update = Observation::KeyUpdated {
                generation,
                by_peer,
            };
            self.observe(now, &update);
        }
    }

    /// Shows a packet that was sealed with this payload.
    pub(crate) fn observe_sent(&mut self, now: Instant, sealed: &Sealed, payload: &[u8]) {
        let mut frames = Vec::new();
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let Ok(typed) = frame::decode(&mut reader) else {
                debug_assert!(false, "a frame of ours does not decode");
                break;
            };
            frames.push(typed);
        }
        let sent = Observation::PacketSent {
            level: sealed.level,
            path: sealed.path,
            pn: sealed.leaving.pn,
            size: sealed.leaving.size,
            purpose: sealed.purpose,
            frames: &frames,
        };
        self.observe(now, &sent);
    }

    /// Shows packets that count as lost; `largest_acked` is that of their space.
    pub(crate) fn observe_lost(
        &mut self,
        now: Instant,
        (level, path): (Level, PathId),
        largest_acked: Option<u64>,
        lost: &[(u64, SentPacket)],
    ) {
        for (pn, packet) in lost {
            let overtaken =
                largest_acked.is_some_and(|largest| pn + loss::PACKET_THRESHOLD <= largest);
            let observation = Observation::PacketLost {
                level,
                path,
                pn: *pn,
                size: usize::from(packet.size),
                is_mtu_probe: packet.is_mtu_probe,
                trigger: if overtaken {
                    LossTrigger::Reordering
                } else {
                    LossTrigger::Time
                },
            };
            self.observe(now, &observation);
        }
    }

    /// Counts bytes of a datagram that could not be used.
    #[cold]
    pub(crate) fn on_dropped(&mut self, now: Instant, path: PathId, size: usize, why: DropReason) {
        if why == DropReason::Duplicate {
            self.duplicate_packets += 1;
        } else {
            self.packets_dropped += 1;
        }
        self.observe(now, &Observation::PacketDropped { path, size, why });
    }

    /// What is counted here.
    pub(crate) fn stats(&self) -> ConnectionStats {
        ConnectionStats {
            packets_dropped: self.packets_dropped,
            duplicate_packets: self.duplicate_packets,
            ..ConnectionStats::default()
        }
    }
}
