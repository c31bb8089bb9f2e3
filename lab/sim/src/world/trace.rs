//! A fingerprint of everything that happened.

use crate::Packet;
use anabranch_proto::time::Instant;
use std::net::{IpAddr, SocketAddr};

/// What happened to a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    /// A process sent it.
    Sent = 1,
    /// The packet came out of a link.
    Carried = 2,
    /// The packet reached a process.
    Delivered = 3,
    /// The packet had no receiver, or no route.
    Dropped = 4,
}

/// The addresses of a packet in the trace's format, computed once because each packet is recorded
/// several times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    from: u64,
    to: u64,
}

impl Ends {
    pub(super) fn of(packet: &Packet) -> Self {
        Self {
            from: address(&packet.from),
            to: address(&packet.to),
        }
    }
}

/// A running hash of times, sizes, addresses and places. Contents are left out: TLS draws different
/// random numbers in each run, but the sizes of packets stay the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    pub(super) fn note(
        &mut self,
        now: Instant,
        fate: Fate,
        place: u32,
        packet: &Packet,
        ends: Ends,
    ) {
        self.mix(now.as_nanos());
        let ecn = packet.ecn.map_or(0, |ecn| ecn as u64 + 1);
        self.mix(fate as u64 | ecn << 4 | u64::from(place) << 8);
        self.mix(u64::from(packet.size()));
        self.mix(ends.from);
        self.mix(ends.to);
    }

    pub(super) fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        self.0 ^= self.0 >> 32;
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

fn address(address: &SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u64::from(u32::from(ip)),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            (bits >> 64) as u64 ^ (bits as u64).rotate_left(17)
        }
    };
    ip << 16 ^ u64::from(address.port())
}
