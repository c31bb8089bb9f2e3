//! The encoding of QUIC v1 (RFC 9000) and multipath QUIC (RFC 10069): codecs without state.
//!
//! This crate decides what bytes mean and whether they are well formed. Whether a well-formed frame
//! is acceptable in a connection's current state is the engine's decision.

pub mod cid;
pub mod code;
pub mod cursor;
pub mod frame;
pub mod header;
pub mod id;
pub mod packet_number;
pub mod params;
pub mod varint;

pub use cid::{ConnectionId, ResetToken};
pub use code::{ErrorCode, TransportErrorCode};
pub use id::{Dir, PathId, Side, StreamId};

/// QUIC version 1 (RFC 9000, section 15).
pub const VERSION_1: u32 = 0x0000_0001;

/// The smallest UDP payload every QUIC path must carry (RFC 9000, section 14).
pub const MIN_DATAGRAM_SIZE: usize = 1200;

#[cfg(test)]
mod testing;
