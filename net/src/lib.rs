//! Multipath QUIC on real sockets: the engine of `anabranch-proto`, driven by tokio.

pub mod clock;
pub mod connection;
mod driver;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod h3;
pub mod interfaces;
pub mod manager;
#[cfg(test)]
mod namespace;
pub mod netlink;
mod race;
pub mod routes;
pub mod sockets;
mod state;
pub mod streams;
