//! A deterministic network in virtual time around the unchanged engine.
//!
//! A [`World`] is a graph of nodes and links. On its hosts run [`Process`]es: QUIC endpoints
//! with their applications, TCP stacks, plain UDP sources. Time jumps to the next event; events of
//! the same time happen in the order they were caused. There is no clock, no thread and no hash
//! map, so the same seed gives the same trace.
//!
//! What runs in it comes as values: this crate reads no file and writes none.

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

pub use packet::{Buffers, Packet, Payload, UDP_OVERHEAD};
pub use process::Process;
pub use seed::{Dice, Seed};
pub use world::{
    Change, Direction, Directions, Fade, FlowStats, LinkChange, LinkId, NodeId, NodeKind,
    ProcessId, World,
};
