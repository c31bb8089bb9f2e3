//! Which packets of a client go on, and which for it: a pure function of their headers.

use super::pool::{Lease, Pools};
use crate::ip::forwarded;
use anabranch_masque::ip::{Packet, protocol};
use anabranch_masque::target::{IpTarget, Scope};
use std::net::{IpAddr, SocketAddr};

/// Why a packet of a client does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Not a packet of IP, or one that no router forwards.
    NoPacket,
    /// The source is not one of the client's addresses.
    WrongSource,
    /// The packet is for another client, or outside what was asked for.
    Prohibited,
}

/// What a client may send and get.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) lease: Lease,
    pub(super) scope: Scope,
}

impl Bounds {
    /// Whether a packet of the client may go on, as far as its headers say; where it goes then is
    /// for the rules of the exit to judge.
    pub(super) fn outward<'a>(
        &self,
        bytes: &'a [u8],
        pools: &Pools,
    ) -> Result<(Packet<'a>, SocketAddr), (Refused, Option<Packet<'a>>)> {
        let packet = forwarded(bytes).ok_or((Refused::NoPacket, None))?;
        if !self.lease.holds(packet.source()) {
            return Err((Refused::WrongSource, None));
        }
        // The kernel judges an error by what it quotes: that must be a packet to this client.
        if packet.payload().is_some()
            && packet.is_icmp_error()
            && packet
                .quoted()
                .is_none_or(|quoted| !self.lease.holds(quoted.destination()))
        {
            return Err((Refused::WrongSource, None));
        }
        let destination = packet.destination();
        if pools.contain(destination) || !self.has_asked_for(destination, packet.protocol()) {
            return Err((Refused::Prohibited, Some(packet)));
        }
        // What has no port is led only where all ports are open.
        let port = packet.ports().map_or(0, |(_, port)| port);
        Ok((packet, SocketAddr::new(destination, port)))
    }

    /// Whether a packet goes to the client.
    pub(super) fn inward(&self, packet: &Packet<'_>, pools: &Pools) -> bool {
        let source = packet.source();
        // Errors come from this node and from routers on the way.
        let is_asked_for = || self.has_asked_for(source, packet.protocol());
        pools.node().holds(source)
            || !pools.contain(source) && (packet.is_icmp_error() || is_asked_for())
    }

    fn has_asked_for(&self, ip: IpAddr, kind: u8) -> bool {
        let is_there = match &self.scope.target {
            IpTarget::Any => true,
            IpTarget::Prefix(prefix) => prefix.contains(ip),
            IpTarget::Name(_) => false,
        };
        let icmp = match ip {
            IpAddr::V4(_) => protocol::ICMP,
            IpAddr::V6(_) => protocol::ICMPV6,
        };
        is_there
            && self
                .scope
                .protocol
                .is_none_or(|only| only == kind || kind == icmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::tests::packet;
    use proptest::prelude::*;

    fn pools() -> Pools {
        let prefixes = ["10.90.0.0/16", "fd90::/64"].map(|text| text.parse().unwrap());
        Pools::new(&prefixes).unwrap().unwrap()
    }

    fn bounds(scope: Scope) -> Bounds {
        let lease = pools().lease(2);
        Bounds { lease, scope }
    }

    fn with_payload(head: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut packet = [head, payload].concat();
        let length = (packet.len() as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&length);
        packet
    }

    #[test]
    fn a_client_sends_from_its_own_addresses_and_to_no_other_client() {
        let bounds = bounds(Scope::ALL);
        for (source, destination, expected) in [
            ("10.90.0.2", "198.51.100.1", None),
            ("fd90::2", "2001:db8::1", None),
            ("10.90.0.3", "198.51.100.1", Some(Refused::WrongSource)),
            ("fd90::3", "2001:db8::1", Some(Refused::WrongSource)),
            ("192.0.2.1", "198.51.100.1", Some(Refused::WrongSource)),
            ("10.90.0.2", "10.90.0.3", Some(Refused::Prohibited)),
            ("10.90.0.2", "10.90.0.1", Some(Refused::Prohibited)),
            ("fd90::2", "fd90::3", Some(Refused::Prohibited)),
            ("10.90.0.2", "224.0.0.1", Some(Refused::NoPacket)),
        ] {
            let packet = packet(source, destination, 47, &[]);
            let refused = bounds.outward(&packet, &pools()).err();
            let refused = refused.map(|(why, _)| why);
            assert_eq!(refused, expected, "{source} {destination}");
        }
    }

    #[test]
    fn an_error_about_what_others_send_is_not_passed_on() {
        let bounds = bounds(Scope::ALL);
        for (quoted, expected) in [
            ("10.90.0.2", None),
            ("10.90.0.3", Some(Refused::WrongSource)),
        ] {
            let about = with_payload(&packet("198.51.100.1", quoted, 17, &[]), &[0; 8]);
            let error = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &about].concat();
            let head = packet("10.90.0.2", "198.51.100.1", protocol::ICMP, &[]);
            let packet = with_payload(&head, &error);
            let refused = bounds.outward(&packet, &pools()).err();
            assert_eq!(refused.map(|(why, _)| why), expected, "{quoted}");
        }
    }

    #[test]
    fn packets_come_to_a_client_from_the_net_and_from_this_node_alone() {
        let bounds = bounds(Scope::ALL);
        for (source, comes) in [
            ("198.51.100.1", true),
            ("10.90.0.1", true),
            ("10.90.0.3", false),
        ] {
            let bytes = packet(source, "10.90.0.2", 47, &[]);
            let packet = Packet::read(&bytes).unwrap();
            assert_eq!(bounds.inward(&packet, &pools()), comes, "{source}");
        }
    }

    #[test]
    fn a_request_for_one_network_or_protocol_gets_no_other() {
        let scope = Scope {
            target: IpTarget::Prefix("198.51.100.0/24".parse().unwrap()),
            protocol: Some(47),
        };
        let bounds = bounds(scope);
        for (destination, protocol, passes) in [
            ("198.51.100.7", 47, true),
            ("198.51.100.7", 1, true),
            ("198.51.100.7", 50, false),
            ("192.0.2.1", 47, false),
        ] {
            let head = packet("10.90.0.2", destination, protocol, &[]);
            let packet = with_payload(&head, &[8, 0, 0, 0]);
            let passed = bounds.outward(&packet, &pools()).is_ok();
            assert_eq!(passed, passes, "{destination} {protocol}");
        }
    }

    proptest! {
        #[test]
        fn of_any_bytes_only_packets_from_the_client_to_outside_go_on(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            is_shaped in any::<bool>(),
        ) {
            if is_shaped && bytes.len() >= 20 {
                bytes[0] = 0x45;
                let length = (bytes.len() as u16).to_be_bytes();
                bytes[2..4].copy_from_slice(&length);
                let last = bytes[12] % 4;
                bytes[12..16].copy_from_slice(&[10, 90, 0, last]);
            }
            let (pools, bounds) = (pools(), bounds(Scope::ALL));
            if let Ok((packet, to)) = bounds.outward(&bytes, &pools) {
                prop_assert!(bounds.lease.holds(packet.source()));
                prop_assert_eq!(packet.destination(), to.ip());
                prop_assert!(!pools.contain(to.ip()) && !to.ip().is_multicast());
                prop_assert_eq!(packet.bytes(), &bytes[..]);
            }
        }
    }
}
