//! Datagrams at equal intervals, and statistics of their arrival.

use crate::app::{Arrivals, DatagramStats};
use crate::{Packet, Payload, Process};
use anabranch_proto::time::Instant;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes at the start of each datagram: its flow, its number, and its creation time.
const HEADER: usize = 24;

/// The most flows one sink keeps statistics of.
const MAX_FLOWS: usize = 4096;

/// How long a call waits for an answer before it is repeated.
const AGAIN: Duration = Duration::from_secs(1);

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
    /// Whether it is known where to send to.
    is_called: bool,
}

impl Running {
    /// When the next datagram is due.
    fn due(&self) -> Option<Instant> {
        (self.is_called && self.next < self.flow.end).then_some(self.next)
    }
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
        self.push(flow, true);
    }

    /// Adds a flow that goes to whom it is called by, from then on, instead of to its `to`.
    #[must_use]
    pub fn called(mut self, flow: UdpFlow) -> Self {
        self.push(flow, false);
        self
    }

    fn push(&mut self, flow: UdpFlow, is_called: bool) {
        self.flows.push(Running {
            next: flow.start,
            sent: 0,
            flow,
            is_called,
        });
    }

    /// Datagrams sent so far of each flow, in the order they were added.
    pub fn sent(&self) -> impl Iterator<Item = u64> + '_ {
        self.flows.iter().map(|running| running.sent)
    }
}

impl Process for UdpSource {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let waiting = self.flows.iter_mut();
        let mut waiting = waiting.filter(|one| !one.is_called && one.flow.from == packet.to);
        if let Some(running) = waiting.next() {
            running.is_called = true;
            running.flow.to = packet.from;
            running.next = running.next.max(now);
        }
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let due = |running: &&mut Running| running.due().is_some_and(|at| at <= now);
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
        self.flows.iter().filter_map(Running::due).min()
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
    measured: BTreeMap<u64, Arrivals>,
    strays: u64,
    /// Whom it calls, from where, and when next, until something has come.
    call: Option<([SocketAddr; 2], Instant)>,
}

impl UdpSink {
    /// A sink that has received nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also records each datagram of a flow; it is in time if it takes no longer than `deadline`.
    #[must_use]
    pub fn measure(mut self, flow: u64, deadline: Duration) -> Self {
        self.measured.insert(flow, Arrivals::new(deadline));
        self
    }

    /// Calls a [source](UdpSource::called) at this time, from this address of the host, and again
    /// every second until something has come.
    #[must_use]
    pub fn call(mut self, from: SocketAddr, to: SocketAddr, at: Instant) -> Self {
        self.call = Some(([from, to], at));
        self
    }

    /// What was recorded of the datagrams of a flow; `None` if they are not.
    pub fn measured(&self, flow: u64) -> Option<&DatagramStats> {
        self.measured.get(&flow).map(Arrivals::stats)
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
        self.call = None;
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
        if let Some(arrivals) = self.measured.get_mut(&flow) {
            arrivals.take(number(8), delay, bytes.len() as u64);
        }
        let stats = self.flows.entry(flow).or_default();
        stats.note(number(8).min(u64::MAX - 1), delay, bytes.len() as u64);
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let ([from, to], next) = self.call.as_mut()?;
        if *next > now {
            return None;
        }
        *next = now + AGAIN;
        Some(Packet {
            from: *from,
            to: *to,
            ecn: None,
            payload: Payload::Udp(vec![0; HEADER]),
        })
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        self.call.map(|(_, next)| next)
    }
}
