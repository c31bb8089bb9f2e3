//! What a datagram begins with, as headers alone tell.

use crate::event::DropReason;
use crate::handshake::Level;
use anabranch_wire::header::{self, Header, LongType};
use anabranch_wire::{ConnectionId, Side};

/// A packet that keys of its level may open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incoming {
    pub(crate) level: Level,
    pub(crate) pn_offset: usize,
    /// Of the packet, in bytes.
    pub(crate) length: usize,
    /// The peer's source connection ID, in long headers.
    pub(crate) scid: Option<ConnectionId>,
}

/// The first part of a datagram.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A packet; others may follow.
    Packet(Incoming),
    /// The server asks for proof of the address. It is all of the datagram.
    Retry {
        scid: ConnectionId,
        token: &'a [u8],
        /// What the tag is about.
        body: &'a [u8],
        tag: [u8; 16],
    },
    /// The server speaks other versions. It is all of the datagram.
    VersionNegotiation { scid: &'a [u8], versions: &'a [u8] },
    /// Nothing that can be used, nor can what follows.
    Useless(DropReason),
}

impl<'a> Piece<'a> {
    /// Looks at what `receiver` got; its connection IDs have `cid_len` bytes.
    pub(crate) fn first_of(bytes: &'a [u8], cid_len: usize, receiver: Side) -> Self {
        match header::parse(bytes, cid_len) {
            // RFC 9000, section 17.2.2: only clients send tokens.
            Ok(Header::Initial { token, .. }) if receiver.is_client() && !token.is_empty() => {
                Self::Useless(DropReason::ServerToken)
            }
            Ok(Header::Initial {
                scid,
                pn_offset,
                packet_len,
                ..
            }) => Self::long(Level::Initial, scid, pn_offset, packet_len),
            Ok(Header::Long {
                kind,
                scid,
                pn_offset,
                packet_len,
                ..
            }) => match kind {
                LongType::Handshake => Self::long(Level::Handshake, scid, pn_offset, packet_len),
                LongType::ZeroRtt if receiver.is_server() => {
                    Self::long(Level::ZeroRtt, scid, pn_offset, packet_len)
                }
                _ => Self::Useless(DropReason::Unsupported),
            },
            Ok(Header::Short {
                pn_offset,
                packet_len,
                ..
            }) => Self::Packet(Incoming {
                level: Level::OneRtt,
                pn_offset,
                length: packet_len,
                scid: None,
            }),
            Ok(Header::Retry {
                scid,
                token,
                integrity_tag: tag,
                ..
            }) => Self::Retry {
                scid,
                token,
                body: &bytes[..bytes.len() - tag.len()],
                tag,
            },
            Ok(Header::VersionNegotiation { scid, versions, .. }) => {
                Self::VersionNegotiation { scid, versions }
            }
            Ok(Header::Unsupported { .. }) => Self::Useless(DropReason::Unsupported),
            Err(_) => Self::Useless(DropReason::MalformedHeader),
        }
    }

    fn long(level: Level, scid: ConnectionId, pn_offset: usize, length: usize) -> Self {
        Self::Packet(Incoming {
            level,
            pn_offset,
            length,
            scid: Some(scid),
        })
    }
}
