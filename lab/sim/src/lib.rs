//! A deterministic network in virtual time around the unchanged engine.
//!
//! A [`World`] is a graph of nodes and links. Its hosts run [`Process`]es: QUIC endpoints with
//! their applications, TCP stacks, plain UDP sources. Time jumps to the next event; simultaneous
//! events happen in the order they were caused. There is no clock, no thread and no hash map, so
//! the same seed gives the same trace.
//!
//! All input is passed in as values: this crate neither reads nor writes files.

pub mod model;
mod packet;
mod process;
mod seed;
mod world;

pub mod app;
pub mod bond;
pub mod conformance;
pub mod profile;
pub mod quic;
pub mod random;
pub mod record;
pub mod scene;
pub mod tcp;
pub mod traffic;
pub mod tunnel;

pub use packet::{Buffers, Packet, Payload, UDP_OVERHEAD};
pub use process::Process;
pub use seed::{Dice, Seed};
pub use world::{
    Change, Direction, Directions, Fade, FlowStats, LinkChange, LinkId, NodeId, NodeKind,
    ProcessId, World,
};
