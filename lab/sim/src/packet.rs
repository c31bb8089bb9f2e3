//! What travels through the network.

use anabranch_proto::datagram::Ecn;
use bytes::Bytes;
use std::net::SocketAddr;

/// Bytes of an IPv4 and a UDP header, which links count.
pub const UDP_OVERHEAD: u32 = 28;

/// An IP packet in transit. Links see its size, routers its addresses, hosts the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its source; the address decides which interface of a host it leaves by.
    pub from: SocketAddr,
    /// Its destination; routers look only at the address.
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
    Udp(Vec<u8>),
    /// A whole IP packet with its headers, as a TCP stack makes it; its addresses are repeated in
    /// the `Packet`.
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

/// Smaller buffers are as cheap to allocate as to keep.
const WORTH_KEEPING: usize = 512;

/// Keeping more would only hold memory: what one host has read, another soon writes into.
const MOST_KEPT: usize = 256;

/// Datagram buffers that were read, kept for those to be written. The most recently used one is
/// handed out first, since it is most likely still in the processor's cache when thousands are in
/// use.
#[derive(Debug, Default)]
pub struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// A buffer with this content.
    pub fn filled(&mut self, content: &[u8]) -> Vec<u8> {
        if content.len() < WORTH_KEEPING {
            return content.to_vec();
        }
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(content);
        buffer
    }

    /// Takes back a buffer whose content was read.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() >= WORTH_KEEPING && self.0.len() < MOST_KEPT {
            self.0.push(buffer);
        }
    }
}
