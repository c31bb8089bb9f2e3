//! Applications: what is transferred, and what is measured of it.
//!
//! Senders and receivers do not know which side of the connection they are on, so an upload and a
//! download differ only in the host each is put on.

mod bulk;
mod pattern;
mod receive;

pub use bulk::{Amount, Bulk};
pub use receive::{Received, Receiver, StreamRecord};
