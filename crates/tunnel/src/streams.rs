//! Streams that carry the TCP connections of others.
//!
//! Both ends pass on what somebody else sends, and that somebody waits: what lies in a buffer here
//! is late. So a stream holds little, where one that carries a file may hold all of it.

use anabranch_proto::streams::Limits;

/// Streams of one client at a time, each a TCP connection or another request.
const MOST: u64 = 4096;

/// Unread bytes of one stream at first. It grows where somebody reads fast.
const WINDOW: u64 = 256 << 10;

/// Bytes of one stream that may wait at a node at first. It grows with the bytes in flight.
const WAITING: u64 = 64 << 10;

/// Unread bytes of all streams beyond those that a window may hold. Hosts pause what they fetch, a
/// film for instance, and must not stop each other: it is the first window of 256 streams.
const RESERVE: u64 = 64 << 20;

/// Sets what differs from a connection that moves files.
pub fn suit(limits: &mut Limits) {
    limits.max_streams_bidi = MOST;
    limits.stream_receive_window = WINDOW;
    limits.stream_unsent = WAITING;
    limits.widen_behind_gaps = false;
    limits.receive_reserve = RESERVE;
}
