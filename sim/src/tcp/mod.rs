//! Plain TCP in the world: competing flows, baselines, and what runs over a bond.
//!
//! A [`TcpHost`] speaks real segments, checksums included, so that anything in the network may cut
//! and join them. Its congestion control is a controller of the engine; the rest is RFC 9293 with
//! NewReno's recovery (RFC 6582) or SACK's (RFC 2018, RFC 6675), time-outs of RFC 6298, delayed
//! acknowledgements of RFC 5681 and window scaling (RFC 7323). What it leaves out, so that results
//! are read rightly:
//!
//! - no timestamps: an RTT is measured on segments that were sent once (Karn's rule);
//! - no undo of a reduction that reordering caused (RFC 3522, RFC 4015), no RACK: reordering deeper
//!   than three segments costs what it costs a Reno of RFC 5681;
//! - a segment that is lost again after its repetition waits for the time-out;
//! - the window falls to two segments at a time-out, where RFC 5681 has one: the controllers'
//!   minimum;
//! - applications read at once, so that windows never close and are never probed.
//!
//! It is not built on smoltcp (0.12), the TCP for programs without a system's: its congestion
//! window limits nothing, it takes no SACK in and sends its whole window again after a loss. Its
//! shares and rates would not be TCP's (docs/dependencies.md has figures). It is the foreign peer
//! of ours in `tests/smoltcp`.

mod config;
mod connection;
mod dialogue;
mod host;
mod receiver;
mod rtt;
mod segment;
mod sender;
#[cfg(test)]
mod tests;

pub use config::TcpConfig;
pub use connection::{TcpReport, TcpState};
pub use dialogue::{Completion, Demand, ENDLESS, Exchange, Once};
pub use host::{Connect, TcpHost, TcpId};
pub use receiver::ReceiveStats;
pub(crate) use segment::{fill_ip_header, ip_addresses, u16_at};

pub use sender::SendStats;
