//! Loss recovery (RFC 9002): what was sent, what arrived, what is lost.

pub mod pacer;
pub mod rate;
pub mod received;
pub mod sent;

pub use pacer::Pacer;
pub use received::ReceivedPackets;
pub use sent::{SentFrame, SentFrames};
