//! What runs on a host.

use crate::{Buffers, Packet};
use anabranch_proto::time::Instant;
use std::any::Any;
use std::fmt::Debug;
use std::net::IpAddr;

/// A machine on a host: a QUIC endpoint with its application, a TCP stack, a source of datagrams.
///
/// The contract is that of the engine: after each input the world takes packets until there are no
/// more, then sleeps until exactly [`next_timeout`](Self::next_timeout).
pub trait Process: Debug + Any {
    /// A packet for one of this process's addresses has arrived.
    fn handle_packet(&mut self, now: Instant, packet: Packet);

    /// The announced time has come.
    fn handle_timeout(&mut self, now: Instant);

    /// The next packet to send. `Packet::from` must be an address of the host.
    fn poll_packet(&mut self, now: Instant) -> Option<Packet>;

    /// When to wake the process if nothing arrives.
    fn next_timeout(&mut self) -> Option<Instant>;

    /// Swaps its store of buffers with this one. The world lends each process its own store while
    /// the process reads and writes packets, so that one process writes into buffers another has
    /// read.
    fn exchange_buffers(&mut self, _store: &mut Buffers) {}

    /// An interface of the host was taken down or brought up, and the host was notified.
    fn handle_interface(&mut self, _now: Instant, _address: IpAddr, _up: bool) {}

    /// An interface of the host has a new address from now on.
    fn handle_readdress(&mut self, _now: Instant, _old: IpAddr, _new: IpAddr) {}
}
