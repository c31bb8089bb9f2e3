//! A sans-IO multipath QUIC engine (RFC 9000, RFC 9001, RFC 9002, RFC 9221, RFC 10069).
//!
//! Nothing in this crate reads a clock, opens a socket or draws a random number of its own. A
//! caller hands in datagrams, time-outs and commands and drains what they produce; the same calls
//! yield the same bytes. `docs/architecture.md` tells who owns which state and follows a packet
//! through it; `docs/embedding.md` how to drive it.
//!
//! Two endpoints and a network that loses nothing and takes 10 ms:
//!
//! ```
//! use anabranch_proto::config::{ClientConfig, EndpointConfig, ServerConfig};
//! use anabranch_proto::datagram::{SocketId, Tuple};
//! use anabranch_proto::time::{Duration, Instant};
//! use anabranch_proto::{Connection, Endpoint, tls};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let provider = Arc::new(rustls::crypto::ring::default_provider());
//! // On a real network keys and seeds are secret, and new each time.
//! let key = tls::KeyPair::generate(&provider, [1; 32])?;
//! let tls = tls::ServerTls::with_raw_key(Arc::clone(&provider), &key).alpn(&[b"test"]);
//! let mut server = Endpoint::new(EndpointConfig::default(), [2; 32]);
//! server.set_server(Some(Arc::new(ServerConfig::new(tls.build()?))));
//!
//! let tls = tls::ClientTls::pinned(provider, key.fingerprint()).alpn(&[b"test"]);
//! let mut client = Endpoint::new(EndpointConfig::default(), [3; 32]);
//! let to = |remote: &str| Tuple {
//!     socket: SocketId(0),
//!     local: None,
//!     remote: remote.parse().expect("an address"),
//! };
//! let (to_server, to_client) = (to("192.0.2.1:4433"), to("198.51.100.7:5000"));
//! let mut now = Instant::ZERO;
//! let config = ClientConfig::new(tls.build()?);
//! let handle = client.connect(now, config, to_server, "example.net")?;
//!
//! while !client.connection(handle).is_some_and(Connection::is_confirmed) {
//!     let (mut up, mut down) = (Vec::new(), Vec::new());
//!     while client.poll_transmit(now, 1, &mut up).is_some() {
//!         server.handle_datagram(now, to_client, None, &mut std::mem::take(&mut up));
//!     }
//!     now = now + Duration::from_millis(10);
//!     while server.poll_transmit(now, 1, &mut down).is_some() {
//!         client.handle_datagram(now, to_server, None, &mut std::mem::take(&mut down));
//!     }
//!     now = now + Duration::from_millis(10);
//!     client.handle_timeout(now);
//!     server.handle_timeout(now);
//!     while let Some((_, event)) = client.poll_event() {
//!         println!("{now:?} {event:?}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod cid_format;
pub mod config;
pub mod congestion;
pub mod connection;
pub mod datagram;
pub mod endpoint;
pub mod error;
pub mod event;
#[allow(
    unreachable_pub,
    reason = "what of it others may use is named in `tls`, `event` and `connection`"
)]
mod handshake;
mod identity;
mod idle;
mod known_paths;
mod life;
mod outbox;
#[allow(
    unreachable_pub,
    reason = "what of it others may use is named in `internals`"
)]
mod packet;
pub mod path;
mod placement;
mod ranges;
#[allow(
    unreachable_pub,
    reason = "what of it others may use is named in `connection`"
)]
mod recovery;
pub mod resumption;
pub mod rng;
pub mod sched;
pub mod spec;
mod stats;
pub mod streams;
pub mod time;
mod timer;

/// Parts that the engine's own tests and fuzz targets take hold of. No interface: they change with
/// any version.
#[cfg(feature = "internals")]
pub mod internals {
    pub use crate::handshake::Handshake;
    pub use crate::handshake::token::retry_integrity_tag;
    pub use crate::packet::Frames;
    pub use crate::recovery::received::MAX_REPORTED_RANGES;
    pub use crate::recovery::sent::{SentFrame, SentFrames};
}

pub use anabranch_wire as wire;
pub use connection::Connection;
pub use endpoint::{Endpoint, Handle};
pub use event::Event;
pub use handshake::tls;
