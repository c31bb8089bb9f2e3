//! Packets that came before their keys.

use crate::datagram::{Ecn, Tuple};
use crate::time::Instant;
use anabranch_wire::PathId;

/// A handshake flight and the first data behind it.
const MOST: usize = 16;

/// When and how a datagram arrived.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// When: what its packets wait for keys is no part of the round trips that they measure.
    pub came_at: Instant,
    /// The route it came by.
    pub tuple: Tuple,
    /// Its ECN mark.
    pub ecn: Option<Ecn>,
    /// The path whose connection ID it bears.
    pub path: PathId,
}

/// A packet as it arrived.
#[derive(Debug)]
pub struct Early {
    /// When and how.
    pub from: Origin,
    /// The packet's bytes.
    pub bytes: Vec<u8>,
}

/// Packets that wait for their keys, to be tried once more.
#[derive(Debug, Default)]
pub struct Undecryptable(Vec<Early>);

impl Undecryptable {
    /// Keeps a packet, if there is room; returns whether there was.
    pub fn keep(&mut self, packet: impl FnOnce() -> Early) -> bool {
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push(packet());
        }
        has_room
    }

    /// All that are kept, in the order of their arrival.
    pub fn take(&mut self) -> Vec<Early> {
        std::mem::take(&mut self.0)
    }
}
