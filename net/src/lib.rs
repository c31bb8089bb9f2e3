//! Multipath QUIC on real sockets: the engine of `anabranch-proto`, driven by tokio.

pub mod clock;
pub mod connection;
mod driver;
mod early;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod h3;
pub mod identity;
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
#[cfg(test)]
mod tests;

pub use connection::{Connection, Notice, PathNotices};
pub use endpoint::{Builder, Endpoint};
pub use identity::Identity;
pub use manager::{PathManager, PathsConfig, Target};
pub use streams::{RecvStream, SendStream};
