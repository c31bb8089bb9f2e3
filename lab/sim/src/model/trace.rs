//! What happened in a worked example, and what can be derived from it.

use anabranch_proto::time::{Duration, Instant};

/// Everything that happened, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// Packets, as they were handed to paths.
    pub sent: Vec<Sent>,
    /// Packets as they arrived; simultaneous ones in order of path.
    pub arrived: Vec<Arrived>,
    /// Acknowledgements, as they reached the sender.
    pub acknowledged: Vec<Acknowledged>,
}

/// A packet was handed to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// When it was chosen.
    pub at: Instant,
    /// The path.
    pub path: usize,
    /// Its number.
    pub packet: u64,
    /// When its first bit left.
    pub departs: Instant,
    /// When it arrives, unless it is lost.
    pub arrives: Instant,
}

/// A packet arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// When.
    pub at: Instant,
    /// On which path.
    pub path: usize,
    /// Its number.
    pub packet: u64,
    /// All numbers up to this one have been delivered.
    pub cumulative: u64,
    /// Numbers that wait behind a gap.
    pub held: Vec<u64>,
    /// Free space that the answer advertises.
    pub advertised: u64,
}

/// An acknowledgement reached the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// When.
    pub at: Instant,
    /// On which path.
    pub path: usize,
    /// The packet it answers.
    pub packet: u64,
    /// Windows, after this acknowledgement was applied.
    pub windows: Vec<u64>,
    /// Packets in flight on each path, before anything is sent in answer.
    pub outstanding_before: Vec<u64>,
    /// Packets in flight on each path after that.
    pub outstanding: Vec<u64>,
    /// Free space that the receiver advertised.
    pub advertised: u64,
    /// What the receiver can still accept, before anything is sent in answer.
    pub peer_window_before: u64,
    /// What the receiver can still accept after that.
    pub peer_window: u64,
    /// What was sent in answer.
    pub sent: Vec<u64>,
}

/// How long one packet took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// The packet.
    pub packet: u64,
    /// From its first bit leaving to its arrival.
    pub transit: Duration,
    /// From its arrival until all packets before it had arrived.
    pub reordering: Duration,
}

impl Trace {
    /// Packet numbers in order of arrival.
    pub fn arrival_order(&self) -> Vec<u64> {
        self.arrived.iter().map(|row| row.packet).collect()
    }

    /// The acknowledgement of a packet.
    pub fn answer_to(&self, packet: u64) -> Option<&Acknowledged> {
        self.acknowledged.iter().find(|row| row.packet == packet)
    }

    /// Delays of the packets 1 to `count`, which must all have been sent and have arrived.
    pub fn delays(&self, count: u64) -> Vec<Delays> {
        let mut in_order = Instant::ZERO;
        let numbers = 1..=count;
        let row = |packet| self.sent.iter().find(move |row| row.packet == packet);
        numbers
            .filter_map(row)
            .map(|row| {
                in_order = in_order.max(row.arrives);
                Delays {
                    packet: row.packet,
                    transit: row.arrives.since(row.departs),
                    reordering: in_order.since(row.arrives),
                }
            })
            .collect()
    }
}
