//! Datagrams and where they go, as the engine names things at its edge.

use crate::endpoint::Handle;
use std::net::{IpAddr, SocketAddr};

/// A driver's name for one of its sockets.
///
/// An address is not enough to name a path's near end: two modems may both own 192.168.1.2, and
/// sockets may be bound to interfaces. The driver names sockets; the engine compares names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

/// The two ends of a route: a path's current 4-tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// The socket datagrams leave and arrive by.
    pub socket: SocketId,
    /// The local address, where the socket is bound to more than one (a server on a wildcard
    /// address must answer from the address it was asked at).
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: SocketAddr,
}

impl Tuple {
    /// Whether the two differ in the peer's port and in nothing else: most likely a NAT that forgot
    /// a mapping, so the network between is the same (RFC 9000, section 9.4).
    pub(crate) fn differs_by_port(&self, other: &Self) -> bool {
        let mut moved = *self;
        moved.remote.set_port(other.remote.port());
        self != other && moved == *other
    }
}

/// The ECN field of an IP packet, where it is not Not-ECT (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ecn {
    /// ECN-capable transport, codepoint 0.
    Ect0,
    /// ECN-capable transport, codepoint 1.
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// One or more datagrams of equal size to send along one route; the bytes are in the caller's
/// buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The route.
    pub tuple: Tuple,
    /// The ECN field to set.
    pub ecn: Option<Ecn>,
    /// Bytes appended to the buffer.
    pub length: usize,
    /// Size of each datagram if there are several (the last one may be shorter), for GSO.
    pub segment_size: Option<usize>,
    /// The connection they belong to; none for answers sent without one.
    pub connection: Option<Handle>,
}

impl Transmit {
    /// One datagram without an ECN field: of the handshake, or of no connection at all. Counts of
    /// marks are kept for 1-RTT packets of a route only.
    pub(crate) fn single(tuple: Tuple, length: usize) -> Self {
        Self {
            tuple,
            ecn: None,
            length,
            segment_size: None,
            connection: None,
        }
    }
}
