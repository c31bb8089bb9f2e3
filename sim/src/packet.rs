//! What travels through the network.

use anabranch_proto::datagram::Ecn;
use bytes::Bytes;
use std::net::SocketAddr;

/// Bytes of an IPv4 and a UDP header, which links count.
pub const UDP_OVERHEAD: u32 = 28;

/// An IP packet under way. Links see its size, routers its addresses, hosts the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where it comes from; the address decides which interface of a host it leaves by.
    pub from: SocketAddr,
    /// Where it goes; routers look at the address only.
    pub to: SocketAddr,
    /// The ECN field.
    pub ecn: Option<Ecn>,
    /// What it carries.
    pub payload: Payload,
}

/// What a packet carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A UDP datagram's content.
    Udp(Bytes),
    /// A whole IP packet with its headers, as a TCP stack makes them; the addresses are repeated
    /// outside.
    Ip(Bytes),
    /// A datagram whose content does not matter, of this many bytes.
    Filler(u32),
}

impl Packet {
    /// Bytes of the IP packet: what a link's rate and queue count.
    pub fn size(&self) -> u32 {
        match &self.payload {
            Payload::Udp(bytes) => bytes.len() as u32 + UDP_OVERHEAD,
            Payload::Ip(bytes) => bytes.len() as u32,
            Payload::Filler(length) => length + UDP_OVERHEAD,
        }
    }
}
