//! Plain TCP in the world: competing flows, baselines, and the traffic over a bond.
//!
//! A [`TcpHost`] exchanges real segments, checksums included, so that anything in the network may
//! split and join them. Its congestion control is a controller of the engine. The rest is RFC 9293
//! with the recovery of NewReno (RFC 6582) or SACK (RFC 2018, RFC 6675), time-outs of RFC 6298,
//! delayed acknowledgements of RFC 5681 and window scaling (RFC 7323). It leaves the following out,
//! which matters for reading its results:
//!
//! - no timestamps: the RTT is measured only on segments that were sent once (Karn's rule);
//! - no undo of a reduction caused by reordering (RFC 3522, RFC 4015), no RACK: reordering deeper
//!   than three segments costs as much as it costs a Reno of RFC 5681;
//! - a retransmission that is lost waits for the time-out;
//! - a time-out reduces the window to two segments, the controllers' minimum, where RFC 5681 has
//!   one;
//! - a window that has closed is not probed: only those of relayed connections close, and what
//!   tells that they are open again must not be lost.
//!
//! It is not built on smoltcp (0.12), a TCP for programs without an operating system's stack. That
//! one has a congestion window that limits nothing, ignores incoming SACK blocks and sends its
//! whole window again after a loss, so its shares and rates would not be those of TCP
//! (docs/dependencies.md has figures). It serves as a foreign peer for ours in `tests/smoltcp`.

mod config;
mod connection;
mod dialogue;
mod host;
mod receiver;
mod relay;
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
