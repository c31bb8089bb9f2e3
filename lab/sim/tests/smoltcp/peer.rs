//! A host that runs smoltcp's TCP, with one connection.
//!
//! It speaks the exchanges of `TcpHost`, implemented here a second time: a request starts with its
//! own length and that of the response, 8 bytes each, and the rest of both directions is a pattern
//! that depends on the offset.

use anabranch_proto::time::Instant;
use anabranch_sim::tcp::Exchange;
use anabranch_sim::{Packet, Payload, Process};
use bytes::Bytes;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::Instant as Time;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Bytes of these two numbers.
const HEADER: u64 = 16;

/// The largest IP packet, in bytes.
const MTU: usize = 1500;

/// The pattern's byte at an offset.
fn pattern(offset: u64) -> u8 {
    let at = (offset % 65_521) as u32;
    (at.wrapping_mul(0x9e37_79b1) >> 19) as u8
}

/// Which side of the connection a host is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// Accepts on this port.
    Server(u16),
    /// Connects from a port to a server and performs one exchange.
    Client(u16, SocketAddrV4, Exchange),
}

/// How its stack behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerConfig {
    /// The congestion control to use.
    pub(crate) congestion: CongestionControl,
    /// Bytes of the socket's buffer in each direction, and so of the windows.
    pub(crate) buffer: usize,
}

/// The process.
pub(crate) struct Peer {
    interface: Interface,
    wire: Wire,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    /// A server learns the lengths from the first bytes it receives.
    exchange: Option<Exchange>,
    is_client: bool,
    header: Vec<u8>,
    sent: u64,
    received: u64,
    intact: bool,
    finished: bool,
    now: Instant,
}

impl Debug for Peer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("state", &self.state())
            .field("exchange", &self.exchange)
            .field("sent", &self.sent)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl Peer {
    /// A host with this address, which reaches all its peers directly.
    pub(crate) fn new(address: Ipv4Addr, side: Side, config: PeerConfig) -> Self {
        let mut wire = Wire::default();
        let mut medium = Config::new(HardwareAddress::Ip);
        medium.random_seed = 1;
        let mut interface = Interface::new(medium, &mut wire, Time::ZERO);
        interface.update_ip_addrs(|addresses| {
            let everywhere = IpCidr::new(address.into(), 0);
            addresses.push(everywhere).expect("room for one address");
        });
        let buffer = || SocketBuffer::new(vec![0; config.buffer]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(config.congestion);
        let exchange = match side {
            Side::Server(port) => {
                socket.listen(port).expect("a port");
                None
            }
            Side::Client(port, server, exchange) => {
                let connected = socket.connect(interface.context(), server, port);
                connected.expect("two addresses");
                Some(exchange)
            }
        };
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self {
            interface,
            wire,
            sockets,
            socket,
            is_client: exchange.is_some(),
            exchange,
            header: Vec::new(),
            sent: 0,
            received: 0,
            intact: true,
            finished: false,
            now: Instant::ZERO,
        }
    }

    /// The state of the connection.
    pub(crate) fn state(&self) -> State {
        self.sockets.get::<Socket<'_>>(self.socket).state()
    }

    /// Bytes the application received, in order.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Whether all of them match the pattern.
    pub(crate) fn is_intact(&self) -> bool {
        self.intact
    }

    /// Whether it has sent and received all of its exchange.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Lets the stack and the application run until neither has more to do.
    fn run(&mut self, now: Instant) {
        self.now = now;
        let time = Time::from_micros((now.as_nanos() / 1000) as i64);
        loop {
            let before = self.wire.outgoing.len();
            self.interface.poll(time, &mut self.wire, &mut self.sockets);
            let moved = self.talk();
            // One poll sends one segment per socket.
            if !moved && self.wire.outgoing.len() == before {
                break;
            }
        }
    }

    /// The application; returns whether it read or wrote a byte, or closed.
    fn talk(&mut self) -> bool {
        let was = (self.sent, self.received, self.finished);
        self.take();
        if self.exchange.is_none() && self.header.len() as u64 == HEADER {
            let number = |at: usize| {
                let part = self.header[at..at + 8].try_into();
                u64::from_be_bytes(part.expect("eight bytes"))
            };
            self.exchange = Some(Exchange {
                request: number(0),
                response: number(8),
            });
        }
        if let Some(exchange) = self.exchange {
            self.give(exchange);
        }
        was != (self.sent, self.received, self.finished)
    }

    /// Reads what has arrived.
    fn take(&mut self) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        while socket.can_recv() {
            let (is_client, at) = (self.is_client, self.received);
            let header = &mut self.header;
            let took = socket.recv(|bytes| {
                let mut right = true;
                for (offset, byte) in (at..).zip(bytes.iter()) {
                    if !is_client && offset < HEADER {
                        header.push(*byte);
                    } else {
                        right &= *byte == pattern(offset);
                    }
                }
                (bytes.len(), (bytes.len() as u64, right))
            });
            let (count, right) = took.expect("there was something");
            self.received += count;
            self.intact &= right;
        }
    }

    /// Writes what there is room for, and closes after the last byte of both directions.
    fn give(&mut self, exchange: Exchange) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let (mut to_send, mut to_receive) = (exchange.request, exchange.response);
        if !self.is_client {
            (to_send, to_receive) = (to_receive, to_send);
        }
        let answers = self.is_client || self.received == to_receive;
        if answers && self.sent < to_send && socket.may_send() {
            let (is_client, at) = (self.is_client, self.sent);
            let mut header = exchange.request.to_be_bytes().to_vec();
            header.extend(exchange.response.to_be_bytes());
            let gave = socket.send(|room| {
                let count = (room.len() as u64).min(to_send - at) as usize;
                for (offset, byte) in (at..).zip(&mut room[..count]) {
                    *byte = match header.get(offset as usize) {
                        Some(byte) if is_client => *byte,
                        _ => pattern(offset),
                    };
                }
                (count, count as u64)
            });
            self.sent += gave.expect("may send");
        }
        if !self.finished && self.sent == to_send && self.received == to_receive {
            self.finished = true;
            socket.close();
        }
    }
}

impl Process for Peer {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        if let Payload::Ip(bytes) = packet.payload {
            self.wire.incoming = Some(bytes);
            self.run(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.run(now);
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        if now == Instant::ZERO && self.wire.outgoing.is_empty() {
            self.run(now);
        }
        let packet = self.wire.outgoing.pop_front()?;
        let (from, to) = ends(&packet);
        Some(Packet {
            from,
            to,
            ecn: None,
            payload: Payload::Ip(packet.into()),
        })
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let time = Time::from_micros((self.now.as_nanos() / 1000) as i64);
        let at = self.interface.poll_at(time, &self.sockets)?;
        let at = Instant::from_nanos(at.total_micros() as u64 * 1000);
        // smoltcp reports a time in the past when it has more to send than the window allows.
        Some(at.max(self.now + Duration::from_millis(1)))
    }
}

/// Sender and receiver of an IPv4 packet with TCP in it.
fn ends(packet: &[u8]) -> (SocketAddr, SocketAddr) {
    let end = |ip: usize, port: usize| {
        let octets: [u8; 4] = packet[ip..ip + 4].try_into().expect("four bytes");
        let port = u16::from_be_bytes([packet[port], packet[port + 1]]);
        SocketAddr::from((Ipv4Addr::from(octets), port))
    };
    (end(12, 20), end(16, 22))
}

/// The device smoltcp sees.
#[derive(Debug, Default)]
struct Wire {
    incoming: Option<Bytes>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _now: Time) -> Option<(Arrived, Outgoing<'_>)> {
        let packet = self.incoming.take()?;
        Some((Arrived(packet), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _now: Time) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}

struct Arrived(Bytes);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Outgoing<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}
