//! Capsules: what a tunnel's stream carries (RFC 9297, section 3).
//!
//! Which capsules have a meaning depends on the tunnel's protocol; others are skipped without being
//! kept. Those of connect-tcp are handed on in the chunks they came in, all others as a whole.

mod kind;

use crate::error::{Code, Error, malformed, stream};
use crate::frame::{self, Frames, How, Piece};
use crate::input::Input;
use crate::ip::{self, Address, DnsConfiguration, Prefix, Routes};
use crate::limits;
use crate::protocol::Protocol;
use anabranch_wire::cursor::Reader as Cursor;
use anabranch_wire::varint;
use bytes::Bytes;
use std::net::SocketAddr;

/// Bits of a datagram's number (draft-ihlar-masque-datagram-numbers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberBits {
    /// One byte.
    Eight,
    /// Two bytes.
    Sixteen,
    /// Four bytes.
    ThirtyTwo,
    /// Eight bytes.
    SixtyFour,
}

impl NumberBits {
    /// The number of bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
            Self::SixtyFour => 64,
        }
    }

    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            8 => Some(Self::Eight),
            16 => Some(Self::Sixteen),
            32 => Some(Self::ThirtyTwo),
            64 => Some(Self::SixtyFour),
            _ => None,
        }
    }
}

const NOT_ITS_FIELDS: Error = malformed("a capsule has more or less than its fields");

/// A capsule that is read and written as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capsule {
    /// An HTTP datagram, for peers that do not take QUIC DATAGRAM frames.
    Datagram(Bytes),
    /// All addresses that its receiver may send from.
    AddressAssign(Vec<Address>),
    /// Addresses that its sender would like to have: at least one.
    AddressRequest(Vec<Address>),
    /// All that its sender forwards.
    RouteAdvertisement(Routes),
    /// All that its sender knows of nameservers.
    DnsAssign(Vec<DnsConfiguration>),
    /// All prefixes under which its sender translates IPv6 to IPv4; others than IPv6 are left out.
    Pref64(Vec<Prefix>),
    /// Datagrams of this context begin with a number.
    RegisterSequence {
        /// The context.
        context: u64,
        /// The context that says what follows the number.
        payload_context: u64,
        /// The size of the number; it may be missing in all but the first of a request.
        bits: Option<NumberBits>,
    },
    /// Datagrams of this context are for one remote end, or name one each.
    CompressionAssign {
        /// The context.
        context: u64,
        /// The remote end, or `None` if each datagram names it.
        remote: Option<SocketAddr>,
    },
    /// The context of a `CompressionAssign` may be used.
    CompressionAck {
        /// The context.
        context: u64,
    },
    /// A context is not used, or no longer.
    CompressionClose {
        /// The context.
        context: u64,
    },
    /// How what comes back by a context is to be treated. It is advice, which is not answered.
    ContextClass {
        /// The context.
        context: u64,
        /// What the applications of both sides understand.
        class: Bytes,
    },
}

impl Capsule {
    const fn kind(&self) -> u64 {
        match self {
            Self::Datagram(_) => kind::DATAGRAM,
            Self::AddressAssign(_) => kind::ADDRESS_ASSIGN,
            Self::AddressRequest(_) => kind::ADDRESS_REQUEST,
            Self::RouteAdvertisement(_) => kind::ROUTE_ADVERTISEMENT,
            Self::DnsAssign(_) => kind::DNS_ASSIGN,
            Self::Pref64(_) => kind::PREF64,
            Self::RegisterSequence { .. } => kind::REGISTER_SEQUENCE_CONTEXT,
            Self::CompressionAssign { .. } => kind::COMPRESSION_ASSIGN,
            Self::CompressionAck { .. } => kind::COMPRESSION_ACK,
            Self::CompressionClose { .. } => kind::COMPRESSION_CLOSE,
            Self::ContextClass { .. } => kind::CONTEXT_CLASS,
        }
    }

    /// Appends the capsule. Context and request IDs are at most 2^62 - 1.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        match self {
            Self::Datagram(payload) => {
                put_datagram_header(out, payload.len());
                return out.extend_from_slice(payload);
            }
            Self::AddressAssign(addresses) | Self::AddressRequest(addresses) => {
                ip::put_addresses(&mut value, addresses);
            }
            Self::RouteAdvertisement(routes) => ip::put_routes(&mut value, routes),
            Self::DnsAssign(configurations) => ip::put_dns(&mut value, configurations),
            Self::Pref64(prefixes) => ip::put_pref64(&mut value, prefixes),
            Self::RegisterSequence {
                context,
                payload_context,
                bits,
            } => {
                varint::put(&mut value, *context);
                varint::put(&mut value, *payload_context);
                value.extend(bits.map(NumberBits::bits));
            }
            Self::CompressionAssign { context, remote } => {
                varint::put(&mut value, *context);
                match remote {
                    Some(remote) => ip::put_socket(&mut value, *remote),
                    None => value.push(0),
                }
            }
            Self::CompressionAck { context } | Self::CompressionClose { context } => {
                varint::put(&mut value, *context);
            }
            Self::ContextClass { context, class } => {
                varint::put(&mut value, *context);
                value.extend_from_slice(class);
            }
        }
        frame::put_header(out, self.kind(), value.len());
        out.extend_from_slice(&value);
    }

    /// Reads the value of a capsule of a type that is read as a whole.
    fn decode(kind: u64, value: Bytes) -> Result<Self, Error> {
        match kind {
            kind::DATAGRAM => Ok(Self::Datagram(value)),
            kind::ADDRESS_ASSIGN => Ok(Self::AddressAssign(ip::decode_addresses(&value)?)),
            kind::ADDRESS_REQUEST => {
                let addresses = ip::decode_addresses(&value)?;
                if addresses.is_empty() {
                    return Err(malformed("a request for addresses asks for none"));
                }
                if addresses.iter().any(|address| address.request_id == 0) {
                    return Err(malformed("a request for an address has ID 0"));
                }
                Ok(Self::AddressRequest(addresses))
            }
            kind::DNS_ASSIGN => Ok(Self::DnsAssign(ip::decode_dns(&value)?)),
            kind::PREF64 => Ok(Self::Pref64(ip::decode_pref64(&value)?)),
            kind::CONTEXT_CLASS => {
                let mut cursor = Cursor::new(&value);
                let context = cursor.varint().map_err(|_| NOT_ITS_FIELDS)?;
                let class = value.slice(value.len() - cursor.remaining()..);
                Ok(Self::ContextClass { context, class })
            }
            kind::ROUTE_ADVERTISEMENT => Ok(Self::RouteAdvertisement(ip::decode_routes(&value)?)),
            _ => {
                let mut cursor = Cursor::new(&value);
                let capsule = Self::of_context(kind, &mut cursor);
                let capsule = capsule.filter(|_| cursor.is_empty());
                capsule.ok_or(NOT_ITS_FIELDS)
            }
        }
    }

    /// One of those that begin with a context ID.
    fn of_context(kind: u64, cursor: &mut Cursor<'_>) -> Option<Self> {
        let context = cursor.varint().ok()?;
        Some(match kind {
            kind::REGISTER_SEQUENCE_CONTEXT => {
                let payload_context = cursor.varint().ok()?;
                let bits = match cursor.u8() {
                    Ok(bits) => Some(NumberBits::from_bits(bits)?),
                    Err(_) => None,
                };
                Self::RegisterSequence {
                    context,
                    payload_context,
                    bits,
                }
            }
            kind::COMPRESSION_ASSIGN if cursor.peek()? == 0 => {
                cursor.u8().ok()?;
                let remote = None;
                Self::CompressionAssign { context, remote }
            }
            kind::COMPRESSION_ASSIGN => {
                let remote = Some(ip::socket(cursor)?);
                Self::CompressionAssign { context, remote }
            }
            kind::COMPRESSION_ACK => Self::CompressionAck { context },
            _ => Self::CompressionClose { context },
        })
    }
}

/// Appends what precedes an HTTP datagram of `length` bytes in a capsule.
pub fn put_datagram_header(out: &mut Vec<u8>, length: usize) {
    frame::put_header(out, kind::DATAGRAM, length);
}

/// Appends what precedes `length` bytes of a TCP connection (connect-tcp): the last, or not.
pub fn put_payload_header(out: &mut Vec<u8>, length: usize, is_final: bool) {
    let kind = if is_final {
        kind::TCP_FINAL_DATA
    } else {
        kind::TCP_DATA
    };
    frame::put_header(out, kind, length);
}

/// What is read from a tunnel's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A capsule.
    Capsule(Capsule),
    /// Bytes of a TCP connection (connect-tcp).
    Payload(Bytes),
    /// No more bytes of the TCP connection follow: it got a FIN.
    Final,
    /// The stream ended between capsules.
    End,
}

/// Reads the capsules of one direction of a tunnel.
#[derive(Debug)]
pub struct Reader {
    protocol: Protocol,
    input: Input,
    frames: Frames,
    /// Nothing more is read: the end, or an error.
    is_over: bool,
    /// The last byte of the TCP connection came.
    is_final: bool,
}

impl Reader {
    /// For a tunnel of this protocol.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            input: Input::default(),
            frames: Frames::default(),
            is_over: false,
            is_final: false,
        }
    }

    /// Takes what DATA frames carried. Items are to be read until there are none before more is
    /// pushed.
    pub fn push(&mut self, bytes: Bytes) {
        if !self.is_over {
            self.input.push(bytes);
        }
    }

    /// The peer finished the stream.
    pub fn finish(&mut self) {
        self.input.finish();
    }

    /// The next item, or `None` until more is received.
    ///
    /// # Errors
    /// Of the stream: the peer broke the rules. Nothing more is read.
    pub fn poll(&mut self) -> Result<Option<Item>, Error> {
        let next = self.read();
        if next.is_err() {
            self.is_over = true;
            self.input = Input::default();
        }
        next
    }

    fn read(&mut self) -> Result<Option<Item>, Error> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            let (protocol, is_final) = (self.protocol, self.is_final);
            let how = |kind, length| how(protocol, is_final, kind, length);
            match self.frames.next(&mut self.input, how)? {
                Some(Piece::Whole(kind, value)) => {
                    return Capsule::decode(kind, value).map(|it| Some(Item::Capsule(it)));
                }
                Some(Piece::Chunk(bytes)) => return Ok(Some(Item::Payload(bytes))),
                Some(Piece::Last(kind::TCP_FINAL_DATA)) => {
                    self.is_final = true;
                    return Ok(Some(Item::Final));
                }
                Some(Piece::Last(_)) => {}
                None => return self.end(),
            }
        }
    }

    /// What it means that nothing more can be read for now.
    fn end(&mut self) -> Result<Option<Item>, Error> {
        if !self.input.is_finished() {
            return Ok(None);
        }
        if !self.frames.is_between() || !self.input.is_empty() {
            return Err(malformed("a stream ends within a capsule"));
        }
        self.is_over = true;
        Ok(Some(Item::End))
    }
}

/// How a capsule is read; `is_final` once the last byte of the TCP connection came.
fn how(protocol: Protocol, is_final: bool, kind: u64, length: u64) -> Result<How, Error> {
    let is_known = match kind {
        kind::DATAGRAM if protocol == Protocol::Tcp => {
            let reason = "a datagram in a tunnel that has none";
            return Err(stream(Code::DATAGRAM_ERROR, reason));
        }
        // Datagrams are unreliable: one that is too long may be dropped.
        kind::DATAGRAM => length <= limits::DATAGRAM_BYTES as u64,
        kind::ADDRESS_ASSIGN
        | kind::ADDRESS_REQUEST
        | kind::ROUTE_ADVERTISEMENT
        | kind::DNS_ASSIGN
        | kind::PREF64 => protocol == Protocol::Ip,
        kind::REGISTER_SEQUENCE_CONTEXT => protocol != Protocol::Tcp,
        kind::COMPRESSION_ASSIGN
        | kind::COMPRESSION_ACK
        | kind::COMPRESSION_CLOSE
        | kind::CONTEXT_CLASS => protocol == Protocol::Udp,
        kind::TCP_DATA | kind::TCP_FINAL_DATA if protocol == Protocol::Tcp => {
            if is_final {
                return Err(malformed("TCP data after the last"));
            }
            return Ok(How::Chunks);
        }
        _ => false,
    };
    if !is_known {
        return Ok(How::Skipped);
    }
    if kind != kind::DATAGRAM && length > limits::CAPSULE_BYTES as u64 {
        return Err(stream(Code::EXCESSIVE_LOAD, "a capsule is too long"));
    }
    Ok(How::Whole)
}

#[cfg(test)]
mod tests;
