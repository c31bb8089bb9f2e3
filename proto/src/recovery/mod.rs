//! Loss recovery (RFC 9002): what was sent, what arrived, what is lost.

pub mod rate;
pub mod sent;
