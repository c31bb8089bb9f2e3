//! Segments on the wire: IPv4 and TCP headers (RFC 791, RFC 9293), with both checksums.

use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of the IPv4 header and of the TCP header without options.
const HEADERS: usize = IP_HEADER + TCP_HEADER;

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const PROTOCOL_TCP: u8 = 6;

/// The most SACK blocks one segment carries.
pub(super) const MAX_SACK: usize = 3;

const FIN: u8 = 1;
const SYN: u8 = 1 << 1;
const RST: u8 = 1 << 2;
const ACK: u8 = 1 << 4;

/// A TCP segment, with sequence numbers as on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) sequence: u32,
    /// The acknowledgement number, if there is one.
    pub(super) acknowledgement: Option<u32>,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
    pub(super) window: u16,
    /// With SYN only: maximum segment size.
    pub(super) mss: Option<u16>,
    /// With SYN only: the shift of all later windows, in bits.
    pub(super) window_scale: Option<u8>,
    /// With SYN only.
    pub(super) sack_permitted: bool,
    /// For each block, its first number and one past its last (RFC 2018); empty blocks do not
    /// count.
    pub(super) sack: [(u32, u32); MAX_SACK],
    pub(super) payload: Bytes,
}

impl Segment {
    /// A segment without flags or content.
    pub(super) fn new(from: SocketAddrV4, to: SocketAddrV4) -> Self {
        Self {
            from,
            to,
            sequence: 0,
            acknowledgement: None,
            syn: false,
            fin: false,
            rst: false,
            window: 0,
            mss: None,
            window_scale: None,
            sack_permitted: false,
            sack: [(0, 0); MAX_SACK],
            payload: Bytes::new(),
        }
    }

    /// The whole IP packet.
    pub(super) fn encode(&self) -> Bytes {
        let mut packet = Vec::with_capacity(HEADERS + 40 + self.payload.len());
        packet.resize(IP_HEADER, 0);
        packet.extend(self.from.port().to_be_bytes());
        packet.extend(self.to.port().to_be_bytes());
        packet.extend(self.sequence.to_be_bytes());
        packet.extend(self.acknowledgement.unwrap_or(0).to_be_bytes());
        packet.extend([0, self.flags()]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]);
        self.encode_options(&mut packet);
        let header_words = (packet.len() - IP_HEADER) / 4;
        packet[IP_HEADER + 12] = (header_words as u8) << 4;
        packet.extend(&self.payload);
        let sum = checksum(
            &packet[IP_HEADER..],
            pseudo_header(*self.from.ip(), *self.to.ip(), packet.len() - IP_HEADER),
        );
        packet[IP_HEADER + 16..IP_HEADER + 18].copy_from_slice(&sum.to_be_bytes());
        fill_ip_header(&mut packet, PROTOCOL_TCP, 0, *self.from.ip(), *self.to.ip());
        packet.into()
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.fin, FIN)
            | flag(self.syn, SYN)
            | flag(self.rst, RST)
            | flag(self.acknowledgement.is_some(), ACK)
    }

    fn encode_options(&self, packet: &mut Vec<u8>) {
        if let Some(mss) = self.mss {
            packet.extend([2, 4]);
            packet.extend(mss.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            packet.extend([1, 3, 3, scale]);
        }
        if self.sack_permitted {
            packet.extend([1, 1, 4, 2]);
        }
        let blocks = self.sack_blocks().count();
        if blocks > 0 {
            packet.extend([1, 1, 5, 2 + 8 * blocks as u8]);
            for (start, end) in self.sack_blocks() {
                packet.extend(start.to_be_bytes());
                packet.extend(end.to_be_bytes());
            }
        }
    }

    /// The SACK blocks that are present.
    pub(super) fn sack_blocks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.sack
            .iter()
            .copied()
            .filter(|(start, end)| start != end)
    }

    /// Decodes an IP packet; `None` if it is not a TCP segment or was damaged.
    pub(super) fn decode(packet: &Bytes) -> Option<Self> {
        let (from, to) = ip_addresses(packet)?;
        let length = usize::from(u16_at(packet, 2)?);
        if packet.len() < length || length < HEADERS || packet[9] != PROTOCOL_TCP {
            return None;
        }
        let tcp = &packet[IP_HEADER..length];
        if checksum(tcp, pseudo_header(from, to, tcp.len())) != 0 {
            return None;
        }
        let header = usize::from(tcp[12] >> 4) * 4;
        let options = tcp.get(TCP_HEADER..header)?;
        let flags = tcp[13];
        let mut segment = Self::new(
            SocketAddrV4::new(from, u16_at(tcp, 0)?),
            SocketAddrV4::new(to, u16_at(tcp, 2)?),
        );
        segment.sequence = u32_at(tcp, 4)?;
        segment.acknowledgement = (flags & ACK != 0).then_some(u32_at(tcp, 8)?);
        segment.syn = flags & SYN != 0;
        segment.fin = flags & FIN != 0;
        segment.rst = flags & RST != 0;
        segment.window = u16_at(tcp, 14)?;
        segment.decode_options(options)?;
        segment.payload = packet.slice(IP_HEADER + header..length);
        Some(segment)
    }

    fn decode_options(&mut self, mut options: &[u8]) -> Option<()> {
        while let Some((&kind, rest)) = options.split_first() {
            match kind {
                0 => break,
                1 => {
                    options = rest;
                    continue;
                }
                _ => {}
            }
            let length = usize::from(*rest.first()?);
            let content = options.get(2..length)?;
            match kind {
                2 => self.mss = Some(u16_at(content, 0)?),
                // RFC 7323, section 2.3: values above 14 count as 14.
                3 => self.window_scale = Some((*content.first()?).min(14)),
                4 => self.sack_permitted = true,
                5 => {
                    for (block, bytes) in self.sack.iter_mut().zip(content.chunks_exact(8)) {
                        *block = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
                    }
                }
                _ => {}
            }
            options = &options[length..];
        }
        Some(())
    }
}

/// Writes the header of an IPv4 packet without options into its first 20 bytes.
pub(crate) fn fill_ip_header(
    packet: &mut [u8],
    protocol: u8,
    ecn: u8,
    from: Ipv4Addr,
    to: Ipv4Addr,
) {
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    packet[..IP_HEADER].fill(0);
    packet[0] = 0x45;
    packet[1] = ecn;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    // Don't fragment.
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&packet[..IP_HEADER], 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The source and destination of an IPv4 packet without options; `None` if it is not one or was
/// damaged.
pub(crate) fn ip_addresses(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let header = packet.get(..IP_HEADER)?;
    if header[0] != 0x45 || checksum(header, 0) != 0 {
        return None;
    }
    let address = |at: usize| u32_at(header, at).map(Ipv4Addr::from);
    Some((address(12)?, address(16)?))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn pseudo_header(from: Ipv4Addr, to: Ipv4Addr, length: usize) -> u64 {
    let halves = |ip: Ipv4Addr| {
        let bits = u64::from(u32::from(ip));
        (bits >> 16) + (bits & 0xffff)
    };
    halves(from) + halves(to) + u64::from(PROTOCOL_TCP) + length as u64
}

/// The Internet checksum (RFC 1071) of these bytes, continuing the sum in `before`; 0 over bytes
/// that contain their own checksum.
fn checksum(bytes: &[u8], before: u64) -> u16 {
    let mut sum = before;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    sum += u64::from(u32::from_be_bytes(last));
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        let mut segment = Segment::new(
            "10.0.0.1:1000".parse().unwrap(),
            "10.0.0.2:80".parse().unwrap(),
        );
        segment.sequence = 0xfeed_beef;
        segment.acknowledgement = Some(77);
        segment.window = 5;
        segment.payload = Bytes::from_static(b"seven b");
        segment
    }

    #[test]
    fn a_segment_survives_the_wire_with_all_options() {
        let mut one = segment();
        one.sack = [(1, 2), (3, 9), (0, 0)];
        assert_eq!(Segment::decode(&one.encode()), Some(one));
        let mut syn = segment();
        (syn.syn, syn.payload) = (true, Bytes::new());
        (syn.mss, syn.window_scale, syn.sack_permitted) = (Some(1460), Some(7), true);
        assert_eq!(syn.encode().len(), HEADERS + 12);
        assert_eq!(Segment::decode(&syn.encode()), Some(syn));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = segment().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let decoded = Segment::decode(&Bytes::from(bad));
            assert_eq!(decoded, None, "bit {bit}");
        }
    }

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes, 0), !0xddf2);
    }

    #[test]
    fn any_prefix_is_refused_without_panic() {
        let good = segment().encode();
        for length in 0..good.len() {
            assert_eq!(Segment::decode(&good.slice(..length)), None);
        }
    }
}
