//! Bonding below the transport: a gateway at each end spreads the packets of unmodified hosts over
//! several links (the fourth paper).
//!
//! ```text
//! host -- gateway A ==(links)== gateway B -- host
//! ```
//! A [`Bond`] is the process of a [`Gateway`](crate::NodeKind::Gateway) node. Each link is a
//! tunnel: packets travel inside UDP, with 4 more bytes of header. The [`Striping`] decides which
//! link a packet takes, and [`BondConfig::ordered`] whether the far end restores the order.

mod frame;
mod join;
mod split;
#[cfg(test)]
mod tests;

pub use join::JoinStats;

use crate::{Packet, Payload, Process};
use anabranch_proto::time::Instant;
use bytes::Bytes;
use frame::{Fragment, Frame, HEADER, PROBE_BYTES};
use join::Joiner;
use split::{Belief, Turns};
use std::collections::btree_map::OccupiedEntry as BTreeEntry;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Bytes that a tunnel adds to each packet or fragment.
pub const OVERHEAD: u32 = crate::UDP_OVERHEAD + HEADER as u32;

/// The longest time a packet is held to match a slower link.
const MAX_HOLD: Duration = Duration::from_millis(100);

/// Samples behind each estimate.
const SAMPLES: usize = 15;

/// One link of a bond, seen from one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BondLink {
    /// Near end of the tunnel.
    pub local: SocketAddr,
    /// Far end.
    pub remote: SocketAddr,
    /// Its assumed rate in bits per second, until probes have measured it; raised to at least 1.
    pub rate: u64,
    /// Its assumed one-way delay, until probes have measured it.
    pub latency: Duration,
}

/// How the link for a packet is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Striping {
    /// One after the other, regardless of their properties: Linux's balance-rr.
    RoundRobin,
    /// In proportion to these weights, one for each link.
    Weighted(Vec<u32>),
    /// The link on which the packet arrives first, by the estimated rates and delays.
    EarliestArrival,
    /// Each packet is cut into one fragment per link, so that all arrive together (multilink PPP
    /// with unequal fragments).
    Proportional,
    /// Each packet is cut into fragments of this many bytes, at least 200; each fragment takes the
    /// link on which it arrives first (multilink PPP with equal fragments).
    EqualFragments(u32),
}

/// How one end of a bond works. Both ends need the same setting of `ordered`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BondConfig {
    /// How the link for a packet is chosen.
    pub striping: Striping,
    /// Whether the receiving end restores the order. Fragments require it.
    pub ordered: bool,
    /// The longest wait for a missing fragment.
    pub wait: Duration,
    /// Whether the sender holds packets so that all links have the delay of the slowest.
    pub equalise: bool,
    /// How often the rate and delay of the links are probed; probing never stops.
    pub probing: Option<Duration>,
}

impl BondConfig {
    /// A bond with this striping. It restores the order only if the striping requires it, and does
    /// not probe.
    pub fn new(striping: Striping) -> Self {
        let ordered = matches!(
            striping,
            Striping::Proportional | Striping::EqualFragments(_)
        );
        Self {
            striping,
            ordered,
            wait: Duration::from_millis(100),
            equalise: false,
            probing: None,
        }
    }
}

/// What one link of a bond carried from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BondLinkStats {
    /// Packets or fragments.
    pub frames: u64,
    /// Their bytes, without the tunnel's headers.
    pub bytes: u64,
}

/// What one end of a bond did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BondStats {
    /// Packets that came in from hosts at this end.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that left for hosts at this end.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets dropped here, because no link was up or because they are not IPv4.
    pub refused: u64,
    /// Pieces that arrived after a higher number.
    pub late: u64,
    /// The largest distance between a late number and the highest one.
    pub depth: u64,
    /// What the reassembling end did, if it restores the order.
    pub join: JoinStats,
}

#[derive(Debug)]
struct Tunnel {
    link: BondLink,
    belief: Belief,
    up: bool,
    last_release: Instant,
    next_probe: Instant,
    /// The first probe of a pair: when it was sent and when it arrived.
    probe: Option<(Instant, Instant)>,
    delays: VecDeque<Duration>,
    gaps: VecDeque<Duration>,
    stats: BondLinkStats,
}

/// One end of a bond.
#[derive(Debug)]
pub struct Bond {
    config: BondConfig,
    tunnels: Vec<Tunnel>,
    turns: Turns,
    /// The number of the next piece.
    number: u64,
    /// One more than the highest number that arrived.
    highest: u64,
    joiner: Joiner,
    ready: VecDeque<Packet>,
    /// Packets held at the sender, by release time; equal times keep the order of submission.
    held: BTreeMap<(Instant, u64), Packet>,
    submitted: u64,
    stats: BondStats,
}

impl Bond {
    /// One end of a bond with these links.
    ///
    /// # Panics
    /// If there are no links, or the weights are not one per link, all above 0.
    pub fn new(config: BondConfig, links: Vec<BondLink>) -> Self {
        assert!(!links.is_empty(), "a bond has links");
        let weights = match &config.striping {
            Striping::Weighted(weights) => weights.clone(),
            _ => vec![1; links.len()],
        };
        assert!(
            weights.len() == links.len() && weights.iter().all(|weight| *weight > 0),
            "a weight for each link"
        );
        let tunnel = |link: BondLink| Tunnel {
            belief: Belief {
                rate: link.rate.max(1),
                latency: link.latency,
                busy_until: Instant::ZERO,
            },
            link,
            up: true,
            last_release: Instant::ZERO,
            next_probe: Instant::ZERO,
            probe: None,
            delays: VecDeque::new(),
            gaps: VecDeque::new(),
            stats: BondLinkStats::default(),
        };
        Self {
            joiner: Joiner::new(links.len(), config.wait),
            tunnels: links.into_iter().map(tunnel).collect(),
            turns: Turns::new(weights),
            config,
            number: 0,
            highest: 0,
            ready: VecDeque::new(),
            held: BTreeMap::new(),
            submitted: 0,
            stats: BondStats::default(),
        }
    }

    /// What it has done so far.
    pub fn stats(&self) -> BondStats {
        BondStats {
            join: self.joiner.stats,
            ..self.stats
        }
    }

    /// What each link carried from this end.
    pub fn link_stats(&self) -> impl Iterator<Item = BondLinkStats> + '_ {
        self.tunnels.iter().map(|tunnel| tunnel.stats)
    }

    /// The estimated rate in bits per second and one-way delay of each link.
    pub fn beliefs(&self) -> impl Iterator<Item = (u64, Duration)> + '_ {
        let tunnels = self.tunnels.iter();
        tunnels.map(|tunnel| (tunnel.belief.rate, tunnel.belief.latency))
    }

    /// Sends a host's packet to the other end.
    fn stripe(&mut self, now: Instant, packet: &Packet) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += u64::from(packet.size());
        let Some(bytes) = frame::to_bytes(packet) else {
            self.stats.refused += 1;
            return;
        };
        let length = bytes.len() as u64;
        let pieces = match &self.config.striping {
            Striping::RoundRobin | Striping::Weighted(_) => {
                let tunnels = &self.tunnels;
                let link = self.turns.next(|link| tunnels[link].up);
                link.map(|link| vec![(link, length)])
            }
            Striping::EarliestArrival => {
                let link = split::earliest(&self.links_up(), now, wire_size(length));
                link.map(|link| vec![(link, length)])
            }
            Striping::Proportional => {
                let parts = split::proportional(&self.links_up(), now, length);
                let parts: Vec<_> = parts.into_iter().enumerate().collect();
                let used = parts.into_iter().filter(|(_, part)| *part > 0).collect();
                Some(used).filter(|used: &Vec<_>| !used.is_empty())
            }
            Striping::EqualFragments(size) => self.equal_fragments(now, length, (*size).max(200)),
        };
        let Some(pieces) = pieces else {
            self.stats.refused += 1;
            return;
        };
        let (mut rest, count) = (bytes, pieces.len());
        for (index, (link, length)) in pieces.into_iter().enumerate() {
            let fragment = Fragment {
                first: index == 0,
                last: index + 1 == count,
                bytes: rest.split_to(length as usize),
            };
            self.send_fragment(now, link, &fragment);
        }
    }

    fn links_up(&self) -> Vec<Option<Belief>> {
        let tunnels = self.tunnels.iter();
        tunnels
            .map(|tunnel| tunnel.up.then_some(tunnel.belief))
            .collect()
    }

    fn equal_fragments(&self, now: Instant, length: u64, size: u32) -> Option<Vec<(usize, u64)>> {
        let mut beliefs = self.links_up();
        let mut pieces = Vec::new();
        // As many fragments as the size requires, of lengths that differ by a byte at most.
        let count = length.div_ceil(u64::from(size)).max(1);
        for index in 0..count {
            let part = length / count + u64::from(index < length % count);
            let link = split::earliest(&beliefs, now, wire_size(part))?;
            if let Some(belief) = &mut beliefs[link] {
                belief.occupy(now, wire_size(part));
            }
            pieces.push((link, part));
        }
        Some(pieces)
    }

    fn send_fragment(&mut self, now: Instant, link: usize, fragment: &Fragment) {
        let length = fragment.bytes.len() as u64;
        let frame = fragment.encode(self.number);
        self.number += 1;
        let slowest = self.tunnels.iter().filter(|tunnel| tunnel.up);
        let slowest = slowest.map(|tunnel| tunnel.belief.latency).max();
        let tunnel = &mut self.tunnels[link];
        tunnel.belief.occupy(now, wire_size(length));
        tunnel.stats.frames += 1;
        tunnel.stats.bytes += length;
        let packet = tunnel.wrap(frame);
        let hold = slowest
            .unwrap_or_default()
            .saturating_sub(tunnel.belief.latency);
        if !self.config.equalise {
            self.ready.push_back(packet);
            return;
        }
        // A packet never overtakes one on the same link that is held longer.
        let release = tunnel.last_release.max(now + hold.min(MAX_HOLD));
        tunnel.last_release = release;
        self.submitted += 1;
        self.held.insert((release, self.submitted), packet);
    }

    /// Takes a frame that arrived over a link.
    fn handle_frame(&mut self, now: Instant, link: usize, frame: Frame) {
        match frame {
            Frame::Piece { number, fragment } => {
                let number = frame::full_number(number, self.highest);
                if number < self.highest {
                    self.stats.late += 1;
                    self.stats.depth = self.stats.depth.max(self.highest - 1 - number);
                }
                self.highest = self.highest.max(number + 1);
                if self.config.ordered {
                    let mut whole = Vec::new();
                    self.joiner.handle(now, link, number, fragment, &mut whole);
                    self.pass_on(whole);
                } else if fragment.first && fragment.last {
                    self.pass_on(vec![fragment.bytes]);
                }
            }
            Frame::Probe { sent, second } => {
                let tunnel = &mut self.tunnels[link];
                if !second {
                    tunnel.probe = Some((sent, now));
                    return;
                }
                let first = tunnel.probe.take_if(|(first, _)| *first == sent);
                if let Some((_, arrived)) = first {
                    let report = frame::report(arrived.since(sent), now.since(arrived));
                    let packet = tunnel.wrap(report);
                    tunnel.belief.occupy(now, u64::from(packet.size()));
                    self.ready.push_back(packet);
                }
            }
            Frame::Report { delay, gap } => self.tunnels[link].learn(delay, gap),
        }
    }

    /// Passes complete packets on to hosts.
    fn pass_on(&mut self, whole: Vec<Bytes>) {
        for bytes in whole {
            let Some(packet) = frame::from_bytes(&bytes) else {
                self.stats.refused += 1;
                continue;
            };
            self.stats.packets_out += 1;
            self.stats.bytes_out += u64::from(packet.size());
            self.ready.push_back(packet);
        }
    }

    fn send_probes(&mut self, now: Instant) {
        let Some(interval) = self.config.probing else {
            return;
        };
        for tunnel in &mut self.tunnels {
            if tunnel.next_probe > now {
                continue;
            }
            tunnel.next_probe = now + interval.max(Duration::from_millis(1));
            // Stamped with the time the link should be free: the measured delay is then that of the
            // link without the queue of what this end sent before.
            let start = tunnel.belief.busy_until.max(now);
            for second in [false, true] {
                let packet = tunnel.wrap(frame::probe(start, second));
                tunnel.belief.occupy(now, u64::from(packet.size()));
                self.ready.push_back(packet);
            }
        }
    }
}

/// Bytes a piece takes on a link.
fn wire_size(length: u64) -> u64 {
    length + u64::from(OVERHEAD)
}

impl Tunnel {
    fn wrap(&self, frame: Bytes) -> Packet {
        Packet {
            from: self.link.local,
            to: self.link.remote,
            ecn: None,
            payload: Payload::Udp(frame.into()),
        }
    }

    /// Learns from a pair of probes: the gap between them is the transmission time of one at the
    /// link's rate. Estimates are medians.
    fn learn(&mut self, delay: Duration, gap: Duration) {
        for (samples, sample) in [(&mut self.delays, delay), (&mut self.gaps, gap)] {
            if samples.len() == SAMPLES {
                samples.pop_front();
            }
            samples.push_back(sample);
        }
        let gap = median(&self.gaps).as_nanos().max(1);
        let bits = (PROBE_BYTES as u128 + u128::from(crate::UDP_OVERHEAD)) * 8;
        self.belief.rate = u64::try_from(bits * 1_000_000_000 / gap)
            .unwrap_or(u64::MAX)
            .max(1);
        // The transmission time of the probe itself is not part of the delay.
        let own = Duration::from_nanos(u64::try_from(gap).unwrap_or(u64::MAX));
        self.belief.latency = median(&self.delays).saturating_sub(own);
    }
}

fn median(samples: &VecDeque<Duration>) -> Duration {
    let mut sorted: Vec<_> = samples.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

impl Process for Bond {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let is_link =
            |tunnel: &Tunnel| tunnel.link.local == packet.to && tunnel.link.remote == packet.from;
        let Some(link) = self.tunnels.iter().position(is_link) else {
            return self.stripe(now, &packet);
        };
        let frame = match packet.payload {
            Payload::Udp(bytes) => Frame::decode(&bytes.into()),
            _ => None,
        };
        match frame {
            Some(frame) => self.handle_frame(now, link, frame),
            None => self.stats.refused += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.send_probes(now);
        if self.config.ordered {
            let mut whole = Vec::new();
            self.joiner.handle_timeout(now, &mut whole);
            self.pass_on(whole);
        }
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        if let Some(packet) = self.ready.pop_front() {
            return Some(packet);
        }
        let due = self.held.first_entry().filter(|entry| entry.key().0 <= now);
        due.map(BTreeEntry::remove)
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let held = self.held.first_key_value().map(|((at, _), _)| *at);
        let probe = self.tunnels.iter().map(|tunnel| tunnel.next_probe).min();
        let probe = probe.filter(|_| self.config.probing.is_some());
        [held, probe, self.joiner.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_interface(&mut self, _: Instant, address: IpAddr, up: bool) {
        for tunnel in &mut self.tunnels {
            if tunnel.link.local.ip() == address {
                tunnel.up = up;
            }
        }
    }

    fn handle_readdress(&mut self, _: Instant, old: IpAddr, new: IpAddr) {
        for tunnel in &mut self.tunnels {
            if tunnel.link.local.ip() == old {
                tunnel.link.local.set_ip(new);
            }
        }
    }
}
