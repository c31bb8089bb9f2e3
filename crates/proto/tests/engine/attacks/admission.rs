//! Beginnings in masses: first packets, Retry, tokens, CRYPTO data, addresses (rows 18, 24, 31 to
//! 34 and 42).

use crate::raw::{Packet, RawPeer, Setup, encode, route, tls_configs};
use anabranch_proto::config::{
    ClientConfig, EndpointConfig, IncomingPolicy, RetryPolicy, ServerConfig,
};
use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::Level;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::header::{self, Header};
use anabranch_proto::wire::{Dir, Side};
use anabranch_proto::{Connection, Endpoint, Handle};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// A server, and any number of clients at addresses of their choice.
pub(super) struct Server {
    pub(super) now: Instant,
    pub(super) endpoint: Endpoint,
    /// Retry packets it sent.
    retries: usize,
    /// Makes each client another one.
    seed: u8,
}

/// A client of its own endpoint.
pub(super) struct Client {
    pub(super) endpoint: Endpoint,
    pub(super) handle: Handle,
    pub(super) at: Tuple,
}

impl Server {
    pub(super) fn new(change: fn(&mut ServerConfig)) -> Self {
        Self::with(EndpointConfig::default(), change)
    }

    pub(super) fn with(settings: EndpointConfig, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::new(tls_configs().1);
        change(&mut config);
        let mut endpoint = Endpoint::new(settings, [2; 32]);
        endpoint.set_server(Some(Arc::new(config)));
        Self {
            now: Instant::from_nanos(1_000_000_000),
            endpoint,
            retries: 0,
            seed: 10,
        }
    }

    /// A client asks from the `n`-th address; what it knows after some round trips.
    pub(super) fn client(&mut self, n: u16, token: &[u8]) -> Client {
        let mut config = ClientConfig::new(tls_configs().0);
        config.token = token.to_vec();
        self.seed += 1;
        let mut endpoint = Endpoint::new(EndpointConfig::default(), [self.seed; 32]);
        let to_server = route(Side::Client, 1);
        let handle = endpoint
            .connect(self.now, config, to_server, "server.test")
            .expect("a client");
        let at = route(Side::Server, n);
        let mut client = Client {
            endpoint,
            handle,
            at,
        };
        self.exchange(&mut client);
        client
    }

    pub(super) fn exchange(&mut self, client: &mut Client) {
        self.exchange_with(&mut [client]);
    }

    /// What goes to anybody else is lost.
    pub(super) fn exchange_with(&mut self, clients: &mut [&mut Client]) {
        for _ in 0..10 {
            self.now += Duration::from_millis(30);
            self.endpoint.handle_timeout(self.now);
            let mut bytes = Vec::new();
            for client in &mut *clients {
                client.endpoint.handle_timeout(self.now);
                while client
                    .endpoint
                    .poll_transmit(self.now, 1, &mut bytes)
                    .is_some()
                {
                    let (now, at) = (self.now, client.at);
                    self.endpoint.handle_datagram(now, at, None, &mut bytes);
                    bytes.clear();
                }
            }
            while let Some(transmit) = self.endpoint.poll_transmit(self.now, 1, &mut bytes) {
                let is_retry = matches!(header::parse(&bytes, 8), Ok(Header::Retry { .. }));
                self.retries += usize::from(is_retry);
                let mut clients = clients.iter_mut();
                if let Some(client) = clients.find(|client| transmit.tuple == client.at) {
                    let from = route(Side::Client, 1);
                    let now = self.now;
                    client.endpoint.handle_datagram(now, from, None, &mut bytes);
                }
                bytes.clear();
            }
            while self.endpoint.poll_event().is_some() {}
        }
    }
}

impl Client {
    fn is_established(&self) -> bool {
        let connection = self.endpoint.connection(self.handle);
        connection.is_some_and(Connection::is_established)
    }

    fn token(&self) -> Vec<u8> {
        let connection = self.endpoint.connection(self.handle);
        connection.expect("a connection").next_token().to_vec()
    }
}

/// Row 31: what uses up the rate of other answers does not keep clients out.
#[test]
fn noise_does_not_keep_a_retry_from_a_client() {
    let mut peer = RawPeer::client(Setup {
        server: |config| config.retry = RetryPolicy::Always,
        ..Setup::default()
    });
    let tuple = route(Side::Server, 9);
    for n in 0..5_u32 {
        for _ in 0..100 {
            let mut bytes = vec![0x45; 22];
            bytes[1..5].copy_from_slice(&n.to_be_bytes());
            peer.victim
                .handle_datagram(peer.now, tuple, None, &mut bytes);
        }
        peer.receive();
    }
    peer.unopened.clear();
    peer.send_crypto_at(Level::Initial);
    let retried = |bytes: &Vec<u8>| matches!(header::parse(bytes, 8), Ok(Header::Retry { .. }));
    assert!(peer.unopened.iter().any(retried), "no Retry was sent");
}

/// First packets arrive, each of another client; returns how large each is.
fn flood(server: &mut Server, count: u32) -> usize {
    let mut endpoint = Endpoint::new(EndpointConfig::default(), [9; 32]);
    let config = ClientConfig::new(tls_configs().0);
    let handle = endpoint.connect(server.now, config, route(Side::Client, 1), "server.test");
    handle.expect("a client");
    let mut first = Vec::new();
    endpoint.poll_transmit(server.now, 1, &mut first);
    for n in 0..count {
        let mut bytes = first.clone();
        bytes[6..10].copy_from_slice(&n.to_be_bytes());
        let tuple = route(Side::Server, 2 + (n % 250) as u16);
        server
            .endpoint
            .handle_datagram(server.now, tuple, None, &mut bytes);
    }
    first.len()
}

/// Row 31: first packets in masses cost a bounded number of answers in waiting, each smaller than
/// what asked for it, and no connection.
#[test]
fn a_flood_of_first_packets_leaves_nothing_behind() {
    let mut server = Server::new(|config| config.retry = RetryPolicy::Always);
    let size = flood(&mut server, 5_000);
    let (mut bytes, mut answers) = (Vec::new(), 0);
    while server
        .endpoint
        .poll_transmit(server.now, 1, &mut bytes)
        .is_some()
    {
        assert!(bytes.len() * 3 < size, "{} bytes", bytes.len());
        bytes.clear();
        answers += 1;
    }
    assert!((64..=1024).contains(&answers), "{answers} answers wait");
    assert_eq!(server.endpoint.connections().count(), 0);
    assert_eq!(server.endpoint.next_timeout(), None);
}

/// Row 31: nor do first packets in masses hold up those who are connected.
#[test]
fn connections_take_turns_with_answers_to_first_packets() {
    let mut server = Server::new(|config| config.retry = RetryPolicy::Always);
    let client = server.client(1, b"");
    assert!(client.is_established());
    flood(&mut server, 500);
    let handles = server.endpoint.connections().map(|(handle, _)| handle);
    let handle = handles.max().expect("a connection");
    let connection = server
        .endpoint
        .connection_mut(handle)
        .expect("a connection");
    let id = connection.open(Dir::Uni).expect("a stream");
    let mut data = Bytes::from(vec![1; 10_000]);
    connection.write(id, &mut data).expect("credit");
    let mut bytes = Vec::new();
    let turns: Vec<bool> = (0..10)
        .map(|_| {
            bytes.clear();
            let transmit = server.endpoint.poll_transmit(server.now, 1, &mut bytes);
            transmit.expect("there is enough to send").tuple == client.at
        })
        .collect();
    assert_eq!(turns, [false, true].repeat(5));
}

/// Row 32.
#[test]
fn a_token_of_an_earlier_connection_is_good_once() {
    let mut server = Server::new(|config| config.retry = RetryPolicy::Always);
    let first = server.client(1, b"");
    assert!(first.is_established());
    assert_eq!(server.retries, 1);
    let token = first.token();
    assert!(!token.is_empty());
    let second = server.client(1, &token);
    assert!(second.is_established());
    assert_eq!(server.retries, 1, "the token proves the address");
    // Whoever has seen the second client's first packet knows the token too.
    let third = server.client(1, &token);
    assert_eq!(server.retries, 2, "used up: a Retry asks for another proof");
    assert!(third.is_established());
    // It got a token of its own.
    assert_ne!(third.token(), token);
    server.client(1, &third.token());
    assert_eq!(server.retries, 2);
}

/// Row 33.
#[test]
fn an_address_has_a_bounded_number_of_connections() {
    let mut server = Server::new(|config| config.max_connections_per_address = 3);
    let clients: Vec<_> = (0..6).map(|_| server.client(1, b"")).collect();
    let established = |clients: &[Client]| clients.iter().filter(|c| c.is_established()).count();
    assert_eq!(established(&clients), 3);
    assert_eq!(server.retries, 3, "the address has to be proven first");
    assert!(server.client(2, b"").is_established(), "others are served");
    // Those that end make room.
    let mut first = clients.into_iter().next().expect("a client");
    let connection = first.endpoint.connection_mut(first.handle);
    connection.expect("a connection").close(server.now, 0, b"");
    server.exchange(&mut first);
    server.now += Duration::from_secs(10);
    assert!(server.client(1, b"").is_established());
}

/// Row 33: who forges first packets from an address costs its owner one round trip.
#[test]
fn forged_first_packets_do_not_keep_the_owner_of_an_address_out() {
    let mut server = Server::new(|config| config.max_connections_per_address = 3);
    for seed in 0..10 {
        let mut forger = Endpoint::new(EndpointConfig::default(), [100 + seed; 32]);
        let config = ClientConfig::new(tls_configs().0);
        let to_server = route(Side::Client, 1);
        let forged = forger.connect(server.now, config, to_server, "server.test");
        forged.expect("a client");
        let mut bytes = Vec::new();
        while forger.poll_transmit(server.now, 1, &mut bytes).is_some() {
            let from = route(Side::Server, 1);
            let now = server.now;
            server.endpoint.handle_datagram(now, from, None, &mut bytes);
            bytes.clear();
        }
    }
    assert_eq!(server.endpoint.connections().count(), 3);
    assert!(server.client(1, b"").is_established());
}

/// Row 34: bytes of a handshake that come one by one, behind one far ahead.
#[test]
fn a_trickle_of_crypto_data_is_taken_and_ends_at_the_limits() {
    let mut peer = RawPeer::client(Setup::default());
    let mut hello = vec![0_u8; 16_000];
    // A ClientHello that never ends.
    hello[..4].copy_from_slice(&[1, 0, 0x3e, 0x7c]);
    let far = Frame::Crypto {
        offset: 65_534,
        data: &[0],
    };
    peer.send(Packet::new(Level::Initial, encode(&[far])));
    for (piece, at) in hello[..8_000].chunks(100).zip((0..).step_by(100)) {
        let frames: Vec<_> = piece
            .chunks(1)
            .zip(at..)
            .map(|(data, offset)| Frame::Crypto { offset, data })
            .collect();
        peer.send(Packet::new(Level::Initial, encode(&frames)));
    }
    assert_eq!(peer.ended(), None);
    let beyond = Frame::Crypto {
        offset: 80_000,
        data: &[0],
    };
    peer.send(Packet::new(Level::Initial, encode(&[beyond])));
    assert!(peer.ended().is_some(), "what waits is bounded");
}

/// Row 42: forged addresses take at most half of the places of those who wait for an answer.
#[test]
fn forged_clients_do_not_keep_a_client_from_waiting_for_its_answer() {
    let mut server = Server::new(|config| config.incoming = IncomingPolicy::Ask);
    flood(&mut server, 5_000);
    let mut waiting = 0;
    while server.endpoint.poll_incoming().is_some() {
        waiting += 1;
    }
    assert_eq!(
        waiting, 128,
        "the places for clients that have proven nothing"
    );
    // What the flood is answered leaves first.
    server.exchange_with(&mut []);
    let before = server.retries;
    let mut client = server.client(1, b"");
    assert_eq!(server.retries, before + 1, "it had to prove where it is");
    let incoming = server.endpoint.poll_incoming().expect("the client");
    assert!(incoming.is_validated());
    let (endpoint, now) = (&mut server.endpoint, server.now);
    endpoint.accept(now, incoming, None).expect("a connection");
    server.exchange(&mut client);
    assert!(client.is_established());
    server
        .endpoint
        .handle_timeout(server.now + Duration::from_secs(11));
    assert!(server.endpoint.poll_incoming().is_none());
}
