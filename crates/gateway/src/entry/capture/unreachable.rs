//! ICMP to captured hosts whose datagrams cannot be delivered.

use super::OURS;
use anabranch_masque::ip::{Packet, Undeliverable, error_message};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;

/// Where such messages are sent from. Without the right to make these sockets (`CAP_NET_RAW`) hosts
/// are told nothing, and wait.
#[derive(Debug)]
pub(in crate::entry) struct Unreachable {
    v4: Option<Socket>,
    v6: Option<Socket>,
}

impl Unreachable {
    pub(super) fn open() -> Self {
        let open = |domain, protocol| {
            let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
            socket.set_mark(OURS)?;
            socket.set_nonblocking(true)?;
            // Nothing is read from it.
            socket.set_recv_buffer_size(0)?;
            io::Result::Ok(socket)
        };
        Self {
            v4: open(Domain::IPV4, Protocol::ICMPV4).ok(),
            v6: open(Domain::IPV6, Protocol::ICMPV6).ok(),
        }
    }

    /// Tells a host that what it has sent to a target does not get there.
    pub(super) fn tell(&self, host: SocketAddr, target: SocketAddr, why: Undeliverable) {
        let socket = if host.is_ipv4() { &self.v4 } else { &self.v6 };
        let (Some(socket), Some(message)) = (socket, message(host, target, why)) else {
            return;
        };
        // An error means that the host is not told.
        let _ = socket.send_to(&message, &SocketAddr::new(host.ip(), 0).into());
    }
}

/// What a host is told whose datagrams to a target may have a payload of `most` bytes.
pub(super) fn longest(target: SocketAddr, most: usize) -> Undeliverable {
    let mtu = header_of(target) + UDP_HEADER + most;
    Undeliverable::TooBig {
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
    }
}

/// The length of a header of IP, of this address' family.
fn header_of(address: SocketAddr) -> usize {
    if address.is_ipv4() {
        V4_HEADER
    } else {
        V6_HEADER
    }
}

/// The message about a datagram, without the header of IP. That of IPv6 has its checksum from the
/// kernel, who knows where it leaves from.
fn message(host: SocketAddr, target: SocketAddr, why: Undeliverable) -> Option<Vec<u8>> {
    let (packet, from): (Vec<u8>, IpAddr) = match (host.ip(), target.ip()) {
        (IpAddr::V4(host), IpAddr::V4(target)) => {
            let length = (V4_HEADER + UDP_HEADER) as u8;
            let mut header = vec![0x45, 0, 0, length, 0, 0, 0, 0, HOP_LIMIT, UDP, 0, 0];
            header.extend(host.octets().into_iter().chain(target.octets()));
            (header, Ipv4Addr::LOCALHOST.into())
        }
        (IpAddr::V6(host), IpAddr::V6(target)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, UDP_HEADER as u8, UDP, HOP_LIMIT];
            header.extend(host.octets().into_iter().chain(target.octets()));
            (header, Ipv6Addr::LOCALHOST.into())
        }
        _ => return None,
    };
    let mut packet = packet;
    packet.extend(host.port().to_be_bytes());
    packet.extend(target.port().to_be_bytes());
    packet.extend([0, UDP_HEADER as u8, 0, 0]);
    let message = error_message(&Packet::read(&packet).ok()?, from, why)?;
    let header = header_of(host);
    Some(message[header..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_of_the_longest_packet_with_the_headers_of_its_family() {
        for (target, mtu) in [("198.51.100.1:53", 1428), ("[2001:db8::2]:53", 1448)] {
            let longest = longest(target.parse().unwrap(), 1400);
            assert_eq!(longest, Undeliverable::TooBig { mtu });
        }
    }

    #[test]
    fn a_message_quotes_the_ports_of_the_datagram_it_is_about() {
        for (host, target, kind, header) in [
            ("192.0.2.1:4660", "198.51.100.1:53", [3, 3], 20),
            ("[2001:db8::1]:4660", "[2001:db8::2]:53", [1, 4], 40),
        ] {
            let (host, target) = (host.parse().unwrap(), target.parse().unwrap());
            let message = message(host, target, Undeliverable::PortUnreachable).unwrap();
            assert_eq!(message[..2], kind);
            assert_eq!(message[8 + header..][..4], [0x12, 0x34, 0, 53]);
        }
    }
}
