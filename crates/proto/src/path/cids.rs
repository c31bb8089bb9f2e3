//! Connection IDs of one path (RFC 9000, section 5.1; RFC 10069).
//!
//! [`LocalCids`] are those we issued: the peer puts them on packets to us. [`RemoteCids`] are those
//! the peer issued: we put one of them on packets to it. Both count sequence numbers per path. Who
//! makes connection IDs, and that no two paths share one, is the path manager's part.

mod local;
mod remote;
#[cfg(test)]
mod tests;

pub(crate) use local::LocalCids;
pub(crate) use remote::RemoteCids;

/// Whether a frame about a connection ID still has to reach the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// To be sent, or to be sent again.
    Due,
    /// Sent; neither acknowledged nor lost.
    Sent,
    /// The peer has it.
    Done,
}
