//! Identifiers on the wire: paths, streams, sides.

use std::fmt;

/// A path ID (RFC 10069): one packet number space in each direction, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathId(pub u32);

impl PathId {
    /// The path of the handshake.
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One of the two endpoints of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The endpoint that sent the first Initial packet.
    Client,
    /// The endpoint that answered.
    Server,
}

impl Side {
    /// The other side.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Whether this is the client.
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Client)
    }

    /// Whether this is the server.
    pub const fn is_server(self) -> bool {
        matches!(self, Self::Server)
    }
}

/// Whether a stream carries data in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dir {
    /// In both directions.
    Bi,
    /// Only from the initiator.
    Uni,
}

/// A stream ID (RFC 9000, section 2.1): index, direction and initiator in one integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The `index`-th stream of its kind, counting from 0.
    pub const fn new(initiator: Side, dir: Dir, index: u64) -> Self {
        Self(index << 2 | (dir as u64) << 1 | initiator as u64)
    }

    /// The side that opens this stream.
    pub const fn initiator(self) -> Side {
        if self.0 & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        }
    }

    /// Whether the stream carries data in both directions.
    pub const fn dir(self) -> Dir {
        if self.0 & 2 == 0 { Dir::Bi } else { Dir::Uni }
    }

    /// Its position among the streams of its kind, counting from 0.
    pub const fn index(self) -> u64 {
        self.0 >> 2
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_ids_follow_table_1_of_rfc_9000() {
        let kinds = [
            (Side::Client, Dir::Bi),
            (Side::Server, Dir::Bi),
            (Side::Client, Dir::Uni),
            (Side::Server, Dir::Uni),
        ];
        for (low_bits, (initiator, dir)) in (0..).zip(kinds) {
            let id = StreamId::new(initiator, dir, 5);
            assert_eq!(id.0, 20 + low_bits);
            assert_eq!((id.initiator(), id.dir(), id.index()), (initiator, dir, 5));
        }
    }
}
