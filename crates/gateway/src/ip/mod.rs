//! IP packets of a tunnel (RFC 9484), as both nodes carry them between the kernel and a request.
//!
//! ```text
//! kernel ── TUN device ──> checks ──> datagrams of one request ══> peer
//!        <── TUN device ── checks <── datagrams, capsules <══════ peer
//! ```
//! Both kernels forward, so each of them takes one off a packet's time to live and tells its sender
//! if it is too large; here nothing of a packet is changed.

pub(crate) mod device;
pub(crate) mod keeper;
pub(crate) mod kernel;
pub(crate) mod room;

use anabranch_masque::ip::Packet;
use std::net::IpAddr;

/// The least that every link of IPv6 carries (RFC 8200, section 5).
pub(crate) const LEAST_V6: u16 = 1280;

/// Whether routers pass on packets from or to this address: it is that of one host, and means the
/// same everywhere.
pub(crate) fn is_forwarded(ip: IpAddr) -> bool {
    let is_one = !ip.is_multicast() && !ip.is_unspecified() && !ip.is_loopback();
    is_one
        && match ip {
            IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_broadcast() && ip.octets()[0] != 0,
            // One that stands for an IPv4 address is on no wire.
            IpAddr::V6(ip) => !ip.is_unicast_link_local() && ip.to_ipv4_mapped().is_none(),
        }
}

/// The packet that these bytes are, if it is one that routers pass on: none between neighbours or
/// to many, and none that chooses its own way behind the destination that is checked.
pub(crate) fn forwarded(bytes: &[u8]) -> Option<Packet<'_>> {
    let packet = Packet::read(bytes).ok()?;
    let is_passed_on = is_forwarded(packet.source()) && is_forwarded(packet.destination());
    (is_passed_on && !has_source_route(bytes)).then_some(packet)
}

/// Whether a packet of IPv4 names routers on its way (RFC 791, section 3.1). Options that cannot be
/// read are taken for that.
fn has_source_route(bytes: &[u8]) -> bool {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    let header = match bytes.first() {
        Some(first) if first >> 4 == 4 => usize::from(first & 15) * 4,
        _ => return false,
    };
    let mut options = bytes.get(20..header).unwrap_or_default();
    while let Some((&kind, rest)) = options.split_first() {
        options = match (kind, rest.first()) {
            (END, _) => return false,
            (NOTHING, _) => rest,
            (LOOSE | STRICT, _) => return true,
            (_, Some(&length)) if length >= 2 => match options.get(usize::from(length)..) {
                Some(behind) => behind,
                None => return true,
            },
            _ => return true,
        };
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A packet without payload, and with these options if it is one of IPv4.
    pub(crate) fn packet(source: &str, destination: &str, protocol: u8, options: &[u8]) -> Vec<u8> {
        match (source.parse().unwrap(), destination.parse().unwrap()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = 20 + options.len() as u8;
                let mut packet = vec![0x40 | (length / 4), 0, 0, length];
                packet.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
                packet.extend(source.octets().into_iter().chain(destination.octets()));
                packet.extend(options);
                packet
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
                packet.extend(source.octets().into_iter().chain(destination.octets()));
                packet
            }
            _ => panic!("of two families"),
        }
    }

    #[test]
    fn what_is_between_neighbours_or_to_many_is_not_passed_on() {
        for (source, destination, is_passed_on) in [
            ("192.0.2.1", "198.51.100.1", true),
            ("2001:db8::1", "fd00::1", true),
            ("169.254.0.1", "198.51.100.1", false),
            ("192.0.2.1", "224.0.0.1", false),
            ("192.0.2.1", "255.255.255.255", false),
            ("0.0.0.0", "198.51.100.1", false),
            ("192.0.2.1", "127.0.0.1", false),
            ("fe80::1", "2001:db8::1", false),
            ("2001:db8::1", "ff02::1", false),
            ("::", "2001:db8::1", false),
            ("2001:db8::1", "::ffff:10.0.0.1", false),
        ] {
            let packet = packet(source, destination, 47, &[]);
            let found = forwarded(&packet).is_some();
            assert_eq!(found, is_passed_on, "{source} {destination}");
        }
        assert!(forwarded(b"E").is_none());
    }

    #[test]
    fn packets_that_choose_their_way_are_not_passed_on() {
        for (options, is_passed_on) in [
            ([1, 1, 1, 0], true),
            ([148, 4, 0, 0], true),
            ([131, 3, 4, 0], false),
            ([1, 137, 3, 4], false),
            ([0, 131, 3, 4], true),
            ([7, 9, 4, 0], false),
            ([7, 1, 4, 0], false),
            ([1, 1, 1, 7], false),
        ] {
            let packet = packet("192.0.2.1", "198.51.100.1", 1, &options);
            assert_eq!(forwarded(&packet).is_some(), is_passed_on, "{options:?}");
        }
    }
}
