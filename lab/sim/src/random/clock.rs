//! A host whose clock jumps, like a machine that slept or a virtual machine that was paused.

use crate::quic::QuicHost;
use crate::{Buffers, Packet, Process};
use anabranch_proto::time::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// A host with a clock of its own that runs ahead of the world's.
#[derive(Debug)]
pub(super) struct Clocked {
    pub(super) host: QuicHost,
    ahead: Duration,
}

impl Clocked {
    pub(super) fn new(host: QuicHost) -> Self {
        let ahead = Duration::ZERO;
        Self { host, ahead }
    }

    /// The host's time at this world time.
    pub(super) fn time(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// Moves the host's clock forward.
    pub(super) fn jump(&mut self, by: Duration) {
        self.ahead += by;
    }
}

impl Process for Clocked {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.host.handle_packet(now + self.ahead, packet);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.host.handle_timeout(now + self.ahead);
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        self.host.poll_packet(now + self.ahead)
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        // A deadline that the jump skipped is due at once: world time never goes back.
        Some(self.host.next_timeout()? - self.ahead)
    }

    fn exchange_buffers(&mut self, store: &mut Buffers) {
        self.host.exchange_buffers(store);
    }

    fn handle_interface(&mut self, now: Instant, address: IpAddr, up: bool) {
        self.host.handle_interface(now + self.ahead, address, up);
    }

    fn handle_readdress(&mut self, now: Instant, old: IpAddr, new: IpAddr) {
        self.host.handle_readdress(now + self.ahead, old, new);
    }
}
