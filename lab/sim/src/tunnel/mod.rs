//! A tunnel between two gateways, for hosts that know nothing of it (the fourth paper).
//!
//! ```text
//! host --TCP, UDP-- gateway A ==(one connection over all links)== gateway B --TCP, UDP-- host
//! ```
//! A [`Gateway`] ends the TCP connections of the hosts behind it and carries each on a stream of
//! its own, as the product's near end does by `--capture` and its far end behind it. Half-closes
//! and resets pass in both directions; what the streams do not take yet is left to TCP's window.
//! Steering and priority are those of the connection's class.
//!
//! The datagrams of a flow of UDP are numbered and travel in QUIC datagrams by any path; the other
//! gateway passes each on once, and in order where that costs little time. Which class a flow is
//! of, what that means and how long a gap is waited for is decided by the product's own logic (the
//! crate `anabranch-tunnel`).
//!
//! Where it differs from the product: a stream begins with a few bytes, which name the target and
//! the class, and not with HTTP/3; what a host sends over TCP goes with them, where the product
//! waits for the far end's answer, a round trip; flows of UDP last as long as the connection.

mod head;
mod relay;
#[cfg(test)]
mod tests;
mod udp;

pub use udp::UdpRelayed;

use crate::quic::{QuicHost, SessionId};
use crate::tcp::{TcpConfig, TcpHost};
use crate::{Buffers, Packet, Payload, Process, Seed};
use anabranch_proto::time::Instant;
use anabranch_tunnel::Classes;
use relay::{Relay, Side};
use std::net::{IpAddr, Ipv4Addr};

/// One end of the tunnel, the process of a [`Gateway`](crate::NodeKind::Gateway) node.
#[derive(Debug)]
pub struct Gateway {
    /// Its application is the [`Relay`].
    quic: QuicHost,
    /// Addresses that were its own: what is under way to them is nobody's.
    former: Vec<IpAddr>,
}

impl Gateway {
    /// The near end: it takes in every TCP connection and every datagram that passes, and carries
    /// them on this connection, which `quic` dials.
    pub fn near(quic: QuicHost, session: SessionId, seed: Seed, config: TcpConfig) -> Self {
        let tcp = TcpHost::new(seed.derive("near", 0)).intercept(config);
        Self::with(quic.app(Relay::new(tcp, Side::Near(session))))
    }

    /// The far end: it connects to the targets from this address of its own, on the side of the
    /// targets.
    pub fn far(quic: QuicHost, address: Ipv4Addr, seed: Seed, config: TcpConfig) -> Self {
        let tcp = TcpHost::new(seed.derive("far", 0));
        Self::with(quic.app(Relay::new(tcp, Side::far(address, config))))
    }

    fn with(quic: QuicHost) -> Self {
        Self {
            quic,
            former: Vec::new(),
        }
    }

    /// The classes by which the near end tells flows apart; those of the product unless set.
    #[must_use]
    pub fn classes(mut self, classes: Classes) -> Self {
        self.quic.get_mut::<Relay>().classes = classes;
        self
    }

    /// The end of the connection that joins the two.
    pub fn quic(&self) -> &QuicHost {
        &self.quic
    }

    /// The TCP that ends here.
    pub fn tcp(&self) -> &TcpHost {
        self.quic.get::<Relay>().tcp()
    }

    /// What was seen of each flow of UDP, in the order in which they began.
    pub fn udp(&self) -> impl Iterator<Item = &UdpRelayed> {
        self.quic.get::<Relay>().udp.seen()
    }
}

impl Process for Gateway {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let is_passing = match packet.payload {
            Payload::Udp(_) => {
                !self.quic.has_socket(packet.to) && !self.former.contains(&packet.to.ip())
            }
            Payload::Ip(_) => true,
            Payload::Filler(_) => false,
        };
        if is_passing {
            self.quic
                .act::<Relay>(now, |relay, host| relay.handle_packet(host, packet));
        } else {
            self.quic.handle_packet(now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.quic.handle_timeout(now);
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        // What the connection brings is for the hosts, so that they have their turn last.
        let packet = self.quic.poll_packet(now);
        packet.or_else(|| self.quic.get_mut::<Relay>().poll_packet(now))
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        self.quic.next_timeout()
    }

    fn exchange_buffers(&mut self, store: &mut Buffers) {
        self.quic.exchange_buffers(store);
    }

    fn handle_interface(&mut self, now: Instant, address: IpAddr, up: bool) {
        self.quic.handle_interface(now, address, up);
    }

    fn handle_readdress(&mut self, now: Instant, old: IpAddr, new: IpAddr) {
        self.quic.handle_readdress(now, old, new);
        self.former.retain(|former| *former != new);
        self.former.push(old);
    }
}
