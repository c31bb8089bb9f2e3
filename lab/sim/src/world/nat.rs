//! A NAT that hides a network behind one address (RFC 4787: endpoint-independent mapping,
//! address-dependent filtering).

use crate::{Packet, Payload};
use anabranch_proto::time::Instant;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The first port to be assigned.
const FIRST_PORT: u16 = 20_000;

/// After a rebinding, assignment continues this much higher, so that no old port is soon used
/// again.
const REBIND_STEP: u16 = 997;

/// How long a mapping lives without packets from inside (RFC 4787, REQ-5, requires at least two
/// minutes).
const LIFETIME: Duration = Duration::from_secs(120);

/// The most mappings at a time; a new one then replaces the oldest.
const MAX_MAPPINGS: usize = 4096;

#[derive(Debug, Clone)]
struct Mapping {
    inside: SocketAddr,
    used: Instant,
    /// Addresses it sent to, which are allowed to answer.
    peers: Vec<IpAddr>,
}

/// The state of one NAT.
#[derive(Debug, Clone)]
pub(super) struct Nat {
    by_port: BTreeMap<u16, Mapping>,
    by_inside: BTreeMap<SocketAddr, u16>,
    next_port: u16,
}

impl Default for Nat {
    fn default() -> Self {
        Self {
            by_port: BTreeMap::new(),
            by_inside: BTreeMap::new(),
            next_port: FIRST_PORT,
        }
    }
}

impl Nat {
    /// Replaces a packet's inner source address by the outer one. Returns whether the packet may
    /// continue: only UDP is translated and passes.
    pub(super) fn translate_out(
        &mut self,
        now: Instant,
        outer: IpAddr,
        packet: &mut Packet,
    ) -> bool {
        if matches!(packet.payload, Payload::Ip(_)) {
            return false;
        }
        let port = self.port_for(now, packet.from);
        if let Some(mapping) = self.by_port.get_mut(&port) {
            mapping.used = now;
            let peer = packet.to.ip();
            if !mapping.peers.contains(&peer) {
                mapping.peers.push(peer);
            }
        }
        packet.from = SocketAddr::new(outer, port);
        true
    }

    /// Replaces a packet's outer destination by the inner one, if there is a mapping that allows
    /// it.
    pub(super) fn translate_in(&mut self, now: Instant, packet: &mut Packet) -> bool {
        let port = packet.to.port();
        let Some(mapping) = self.by_port.get(&port) else {
            return false;
        };
        if now.since(mapping.used) > LIFETIME {
            self.forget(port);
            return false;
        }
        if !mapping.peers.contains(&packet.from.ip()) {
            return false;
        }
        packet.to = mapping.inside;
        true
    }

    /// The host that packets of `peer` to the outer address reach: the last one that spoke to it.
    pub(super) fn inside_of(&self, peer: IpAddr) -> Option<IpAddr> {
        let open = self.by_port.values();
        let open = open.filter(|mapping| mapping.peers.contains(&peer));
        let latest = open.max_by_key(|mapping| mapping.used)?;
        Some(latest.inside.ip())
    }

    /// Forgets all mappings: existing ones no longer work from outside, and hosts that send again
    /// appear at another port.
    pub(super) fn rebind(&mut self) {
        self.by_port.clear();
        self.by_inside.clear();
        self.next_port = following(self.next_port, REBIND_STEP);
    }

    fn port_for(&mut self, now: Instant, inside: SocketAddr) -> u16 {
        if let Some(port) = self.by_inside.get(&inside).copied() {
            let fresh = |mapping: &Mapping| now.since(mapping.used) <= LIFETIME;
            if self.by_port.get(&port).is_some_and(fresh) {
                return port;
            }
            self.forget(port);
        }
        if self.by_port.len() >= MAX_MAPPINGS {
            let oldest = self.by_port.iter().min_by_key(|(_, mapping)| mapping.used);
            if let Some(port) = oldest.map(|(port, _)| *port) {
                self.forget(port);
            }
        }
        let mut port = self.next_port;
        while self.by_port.contains_key(&port) {
            port = following(port, 1);
        }
        self.next_port = following(port, 1);
        self.by_inside.insert(inside, port);
        let mapping = Mapping {
            inside,
            used: now,
            peers: Vec::new(),
        };
        self.by_port.insert(port, mapping);
        port
    }

    fn forget(&mut self, port: u16) {
        if let Some(mapping) = self.by_port.remove(&port) {
            self.by_inside.remove(&mapping.inside);
        }
    }
}

fn following(port: u16, step: u16) -> u16 {
    let room = u16::MAX - FIRST_PORT;
    FIRST_PORT + (port - FIRST_PORT + step) % room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(from: &str, to: &str) -> Packet {
        Packet {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            ecn: None,
            payload: Payload::Filler(10),
        }
    }

    fn outer() -> IpAddr {
        "198.51.100.1".parse().unwrap()
    }

    /// Sends one packet out; returns the source address it gets.
    fn shown(nat: &mut Nat, at: u64, from: &str) -> SocketAddr {
        let mut packet = packet(from, "203.0.113.1:443");
        assert!(nat.translate_out(
            Instant::ZERO + Duration::from_secs(at),
            outer(),
            &mut packet
        ));
        packet.from
    }

    #[test]
    fn a_host_inside_keeps_its_port_and_is_reached_by_whom_it_spoke_to() {
        let mut nat = Nat::default();
        let first = shown(&mut nat, 0, "10.0.0.1:1000");
        assert_eq!(shown(&mut nat, 100, "10.0.0.1:1000"), first);
        assert_ne!(shown(&mut nat, 100, "10.0.0.2:1000"), first);
        let mut answer = packet("203.0.113.1:443", &first.to_string());
        assert!(nat.translate_in(Instant::ZERO + Duration::from_secs(101), &mut answer));
        assert_eq!(answer.to.to_string(), "10.0.0.1:1000");
        let mut stranger = packet("203.0.113.9:443", &first.to_string());
        assert!(!nat.translate_in(Instant::ZERO, &mut stranger));
    }

    #[test]
    fn a_rebinding_shows_another_port_and_the_old_one_leads_nowhere() {
        let mut nat = Nat::default();
        let first = shown(&mut nat, 0, "10.0.0.1:1000");
        nat.rebind();
        let mut answer = packet("203.0.113.1:443", &first.to_string());
        assert!(!nat.translate_in(Instant::ZERO, &mut answer));
        assert_ne!(shown(&mut nat, 1, "10.0.0.1:1000"), first);
    }

    #[test]
    fn a_silent_mapping_is_forgotten_after_two_minutes() {
        let mut nat = Nat::default();
        let first = shown(&mut nat, 0, "10.0.0.1:1000");
        let mut answer = packet("203.0.113.1:443", &first.to_string());
        assert!(!nat.translate_in(Instant::ZERO + Duration::from_secs(121), &mut answer));
    }

    #[test]
    fn mappings_are_bounded() {
        let mut nat = Nat::default();
        for index in 0..10_000_u32 {
            let from = SocketAddr::new(IpAddr::V4(index.into()), 1);
            nat.port_for(Instant::from_nanos(u64::from(index)), from);
        }
        assert_eq!(nat.by_port.len(), MAX_MAPPINGS);
        assert_eq!(nat.by_inside.len(), MAX_MAPPINGS);
    }
}
