//! A deterministic network in virtual time around the unchanged engine.
//!
//! A world is a graph of nodes and links. On its hosts run [`Process`]es: QUIC endpoints
//! with their applications, TCP stacks, plain UDP sources. Time jumps to the next event; events of
//! the same time happen in the order they were caused. There is no clock, no thread and no hash
//! map, so the same seed gives the same trace, byte for byte.
//!
//! What runs in it comes as values: this crate reads no file and writes none.

pub mod model;
mod packet;
mod process;

pub use packet::{Packet, Payload};
pub use process::Process;
