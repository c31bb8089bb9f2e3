//! Datagrams at equal intervals, and statistics of their arrival.

use crate::{Packet, Payload, Process};
use anabranch_proto::time::Instant;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes at the start of each datagram: its flow, its number, and its creation time.
const HEADER: usize = 24;

/// The most flows one sink keeps statistics of.
const MAX_FLOWS: usize = 4096;

/// A flow of datagrams of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFlow {
    /// Its number, by which the sink tells it from other flows.
    pub id: u64,
    /// An address of the host.
    pub from: SocketAddr,
    /// The sink.
    pub to: SocketAddr,
    /// Bytes of content; raised to at least 24.
    pub size: usize,
    /// Time between two datagrams; raised to at least a nanosecond.
    pub interval: Duration,
    /// When the first one leaves.
    pub start: Instant,
    /// No datagram leaves from this time on.
    pub end: Instant,
}

impl UdpFlow {
    /// Sends at this many bits per second, headers of IP and UDP included; raised to at least 1.
    #[must_use]
    pub fn at_rate(self, bits_per_second: u64) -> Self {
        let bits = (self.size.max(HEADER) as u64 + u64::from(crate::UDP_OVERHEAD)) * 8;
        Self {
            interval: Duration::from_nanos(bits * 1_000_000_000 / bits_per_second.max(1)),
            ..self
        }
    }
}

#[derive(Debug)]
struct Running {
    flow: UdpFlow,
    next: Instant,
    sent: u64,
}

/// Sends several flows from one host.
#[derive(Debug, Default)]
pub struct UdpSource {
    flows: Vec<Running>,
}

impl UdpSource {
    /// A source without flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a flow.
    #[must_use]
    pub fn with(mut self, flow: UdpFlow) -> Self {
        self.add(flow);
        self
    }

    /// Adds a flow.
    pub fn add(&mut self, flow: UdpFlow) {
        self.flows.push(Running {
            next: flow.start,
            sent: 0,
            flow,
        });
    }

    /// Datagrams sent so far of each flow, in the order they were added.
    pub fn sent(&self) -> impl Iterator<Item = u64> + '_ {
        self.flows.iter().map(|running| running.sent)
    }
}

impl Process for UdpSource {
    fn handle_packet(&mut self, _: Instant, _: Packet) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let due = |running: &&mut Running| running.next <= now && running.next < running.flow.end;
        let running = self.flows.iter_mut().find(due)?;
        let flow = running.flow;
        let mut bytes = vec![0; flow.size.max(HEADER)];
        bytes[..8].copy_from_slice(&flow.id.to_be_bytes());
        bytes[8..16].copy_from_slice(&running.sent.to_be_bytes());
        bytes[16..HEADER].copy_from_slice(&now.as_nanos().to_be_bytes());
        running.sent += 1;
        running.next += flow.interval.max(Duration::from_nanos(1));
        Some(Packet {
            from: flow.from,
            to: flow.to,
            ecn: None,
            payload: Payload::Udp(bytes),
        })
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let running = self.flows.iter();
        let running = running.filter(|running| running.next < running.flow.end);
        running.map(|running| running.next).min()
    }
}

/// Statistics of one flow at the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpFlowStats {
    /// Datagrams that arrived.
    pub received: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// One more than the highest number that arrived. Minus `received`, it is the number of lost
    /// datagrams, if none arrived twice.
    pub expected: u64,
    /// Datagrams that arrived after one of a higher number.
    pub reordered: u64,
    /// The shortest one-way delay.
    pub delay_min: Duration,
    /// The longest one-way delay.
    pub delay_max: Duration,
    /// The sum of all one-way delays.
    pub delay_total: Duration,
    /// How much the delay varies from one datagram to the next, smoothed (RFC 3550, section 6.4.1).
    pub jitter: Duration,
    last_delay: Duration,
}

impl UdpFlowStats {
    /// Datagrams that did not arrive, up to the highest number that did.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.received)
    }

    /// The mean delay; 0 if nothing arrived.
    pub fn delay_mean(&self) -> Duration {
        let nanos = self.delay_total.as_nanos() / u128::from(self.received.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn note(&mut self, number: u64, delay: Duration, bytes: u64) {
        if self.received == 0 {
            (self.delay_min, self.last_delay) = (delay, delay);
        }
        self.received += 1;
        self.bytes += bytes;
        if number < self.expected {
            self.reordered += 1;
        }
        self.expected = self.expected.max(number + 1);
        self.delay_min = self.delay_min.min(delay);
        self.delay_max = self.delay_max.max(delay);
        self.delay_total += delay;
        let change = delay.abs_diff(self.last_delay);
        self.jitter = (self.jitter * 15 + change) / 16;
        self.last_delay = delay;
    }
}

/// Receives the flows of any number of sources.
#[derive(Debug, Default)]
pub struct UdpSink {
    flows: BTreeMap<u64, UdpFlowStats>,
    strays: u64,
}

impl UdpSink {
    /// A sink that has received nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The statistics of a flow.
    pub fn stats(&self, flow: u64) -> UdpFlowStats {
        self.flows.get(&flow).copied().unwrap_or_default()
    }

    /// Packets that belong to no flow, or that arrived when there were already too many flows.
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

impl Process for UdpSink {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let bytes = match &packet.payload {
            Payload::Udp(bytes) if bytes.len() >= HEADER => bytes,
            _ => {
                self.strays += 1;
                return;
            }
        };
        let number = |at: usize| {
            let part = bytes[at..at + 8].try_into();
            u64::from_be_bytes(part.expect("eight bytes"))
        };
        let flow = number(0);
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&flow) {
            self.strays += 1;
            return;
        }
        let delay = now.since(Instant::from_nanos(number(16)));
        let stats = self.flows.entry(flow).or_default();
        stats.note(number(8).min(u64::MAX - 1), delay, bytes.len() as u64);
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_packet(&mut self, _: Instant) -> Option<Packet> {
        None
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        None
    }
}
