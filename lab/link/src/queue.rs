//! Where packets wait to be transmitted.

use crate::codel::CoDelState;
use crate::config::Queue;
use crate::red::RedState;
use crate::stats::LinkStats;
use std::collections::VecDeque;
use std::time::Duration;

/// A duration in nanoseconds, at most `u64::MAX`, without 128-bit arithmetic.
pub(crate) fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

/// A waiting packet.
#[derive(Debug, Clone)]
pub(crate) struct Waiting<T> {
    pub(crate) size: u32,
    pub(crate) enqueued: u64,
    pub(crate) token: T,
}

/// Packets in order, and the sum of their bytes.
#[derive(Debug, Clone)]
pub(crate) struct Buffer<T> {
    packets: VecDeque<Waiting<T>>,
    bytes: u64,
}

impl<T> Buffer<T> {
    pub(crate) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, packet: Waiting<T>) {
        self.bytes += u64::from(packet.size);
        self.packets.push_back(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.size);
        Some(packet)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }
}

/// The queue: a buffer, and the rules for what enters and leaves it.
#[derive(Debug, Clone)]
pub(crate) struct PacketQueue<T> {
    config: Queue,
    buffer: Buffer<T>,
    codel: CoDelState,
    red: RedState,
    /// Since when nothing has been waiting or being transmitted.
    idle_since: Option<u64>,
}

impl<T> PacketQueue<T> {
    pub(crate) fn new(config: Queue, seed: u64) -> Self {
        Self {
            config,
            buffer: Buffer::new(),
            codel: CoDelState::default(),
            red: RedState::new(seed),
            idle_since: Some(0),
        }
    }

    /// Changes the discipline. Packets that wait stay, even if they would no longer be accepted.
    pub(crate) fn change(&mut self, config: Queue) {
        if std::mem::discriminant(&self.config) != std::mem::discriminant(&config) {
            self.codel = CoDelState::default();
        }
        self.config = config;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Accepts a packet, or counts it as dropped; `packet_time` returns the transmission time of
    /// one packet. A link on which nothing waits or is being transmitted accepts any packet.
    pub(crate) fn push(
        &mut self,
        packet: Waiting<T>,
        packet_time: impl Fn() -> u64,
        stats: &mut LinkStats,
    ) {
        let idle = self.idle_since.take();
        if let Queue::Red(config) = &self.config {
            let idle_ns = idle.map_or(0, |since| packet.enqueued.saturating_sub(since));
            let idle_packets = idle_ns.checked_div(packet_time()).unwrap_or(u64::MAX);
            let idle_packets = if idle_ns == 0 { 0 } else { idle_packets };
            let waiting = self.buffer.bytes();
            if self.red.drops(config, packet.size, waiting, idle_packets) {
                stats.dropped_early += 1;
                self.idle_since = idle.map(|_| packet.enqueued);
                return;
            }
        }
        if idle.is_none() && !self.has_room(packet.size) {
            stats.dropped_full += 1;
            return;
        }
        self.codel.on_enqueued(packet.size);
        self.buffer.push(packet);
    }

    fn has_room(&self, size: u32) -> bool {
        let bytes = self.buffer.bytes() + u64::from(size);
        match &self.config {
            Queue::TailDropBytes(limit) => bytes <= *limit,
            Queue::TailDropPackets(limit) => (self.buffer.len() as u64) < *limit,
            Queue::CoDel(config) => bytes <= config.limit_bytes,
            Queue::Red(config) => bytes <= config.limit_bytes,
        }
    }

    /// The next packet to transmit, now that the serialiser is free.
    pub(crate) fn pop(&mut self, now: u64, stats: &mut LinkStats) -> Option<Waiting<T>> {
        let packet = match &self.config {
            Queue::CoDel(config) => {
                self.codel
                    .pop(config, now, &mut self.buffer, &mut stats.dropped_early)
            }
            _ => self.buffer.pop(),
        };
        match &packet {
            Some(packet) => stats.on_dequeued(now - packet.enqueued),
            None => self.idle_since = Some(now),
        }
        packet
    }
}
