//! A sans-IO multipath QUIC engine (RFC 9000, RFC 9001, RFC 9002, RFC 9221, RFC 10069).
//!
//! Nothing in this crate reads a clock, opens a socket or draws a random number of its own. A
//! caller hands in datagrams, time-outs and commands and drains what they produce; the same calls
//! yield the same bytes. `docs/architecture.md` tells who owns which state and follows a packet
//! through it.

pub mod config;
pub mod congestion;
pub mod connection;
pub mod datagram;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod handshake;
pub mod path;
pub mod qlog;
pub mod ranges;
pub mod recovery;
pub mod resumption;
pub mod rng;
pub mod sched;
pub mod spec;
pub mod streams;
pub mod time;

pub use anabranch_wire as wire;
pub use connection::Connection;
pub use endpoint::{Endpoint, Handle};
pub use event::Event;
pub use handshake::tls;
