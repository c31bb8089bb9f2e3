//! Other traffic in the world: web users over TCP, and datagrams at a constant rate.

mod constant;
#[cfg(test)]
mod tests;
mod web;

pub use constant::{UdpFlow, UdpFlowStats, UdpSink, UdpSource};
pub use web::{Web, WebConfig};
