//! Multipath QUIC (RFC 10069) on real sockets: the engine of `anabranch-proto`, driven by tokio.
//!
//! An [`Endpoint`] owns UDP sockets, one for each local address that paths leave from, and drives
//! all connections over them. [`Endpoint::connect`] races the wanted paths and returns with the
//! first one that answers; a [`PathManager`] opens the others, and opens them again as interfaces
//! go and come. A [`Connection`] has streams, datagrams and paths. There are no certificates to
//! buy: an [`Identity`] is a key, and a client pins its fingerprint.
//!
//! ```
//! use anabranch_net::engine::tls;
//! use anabranch_net::identity::provider;
//! use anabranch_net::{Endpoint, Identity, PathsConfig, Target, defaults};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::generate()?;
//! let tls = identity.server(&["localhost"])?.alpn(&[b"hello"]).build()?;
//! let server = Endpoint::server(defaults::server(tls), &["127.0.0.1:0".parse()?])?;
//! let remotes = server.local_addrs();
//! tokio::spawn(async move {
//!     let connection = server.accept().await.expect("a client");
//!     let mut stream = connection.open_uni().await.expect("a stream");
//!     stream.write_all(b"hello").await.expect("room");
//!     stream.finish().expect("an open stream");
//!     connection.closed().await;
//! });
//!
//! let tls = tls::ClientTls::pinned(provider(), identity.fingerprint());
//! let config = defaults::client(tls.alpn(&[b"hello"]).build()?);
//! let target = Target { name: "localhost".into(), remotes };
//! // `specs` names interfaces or addresses, one for each path; an empty list leaves the choice to
//! // the kernel.
//! let paths = PathsConfig { specs: vec!["127.0.0.1".parse()?], ..PathsConfig::default() };
//! let client = Endpoint::client()?;
//! let (connection, _manager) = client.connect(&target, config, &paths).await?;
//! let mut stream = connection.accept_uni().await?;
//! assert_eq!(&stream.read_to_end(10).await?[..], b"hello");
//! connection.close(0, b"");
//! # Ok(())
//! # }
//! ```
//!
//! The examples `client`, `server`, `two-paths` and `datagrams` are programs of their own;
//! `event-loop` drives the engine without this crate.

mod clock;
pub mod connection;
mod datagrams;
pub mod defaults;
mod driver;
mod early;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod h3;
pub mod identity;
mod incoming;
pub mod interfaces;
pub mod manager;
#[cfg(test)]
mod namespace;
mod netlink;
mod race;
pub mod routes;
pub mod sockets;
mod state;
pub mod streams;
#[cfg(test)]
mod tests;
mod workers;

pub use connection::{Connection, Notice, PathNotices};
pub use datagrams::DatagramOptions;
pub use endpoint::{Builder, Endpoint};
pub use identity::Identity;
pub use incoming::Incoming;
pub use manager::{PathManager, PathsConfig, Target};
pub use streams::{RecvStream, SendStream};
