//! Applications: what they transfer, and what is measured of it.
//!
//! Senders and receivers do not know which side of the connection they are on, so an upload and a
//! download differ only in which host runs which.

mod bulk;
mod chunks;
mod datagrams;
mod files;
mod pattern;
mod receive;
mod requests;
mod schedule;
#[cfg(test)]
mod tests;

pub use bulk::{Amount, Bulk};
pub use chunks::{ChunkSink, ChunkStats, Chunks, Processing};
pub(crate) use datagrams::Arrivals;
pub use datagrams::{DatagramSink, DatagramSource, DatagramStats};
pub use files::{File, Files, Sent};
pub(crate) use pattern::Pattern;
pub use receive::{Received, Receiver, StreamRecord};
pub use requests::{Exchange, Request, Requests, Responder};
