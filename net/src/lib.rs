//! Multipath QUIC on real sockets: the engine of `anabranch-proto`, driven by tokio.

pub mod clock;
pub mod interfaces;
#[cfg(test)]
mod namespace;
pub mod netlink;
pub mod routes;
pub mod sockets;
