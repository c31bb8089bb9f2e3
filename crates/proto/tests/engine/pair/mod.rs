//! Two endpoints, one virtual clock, and links that can be slowed, cut and healed.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file includes it and uses its part"
)]

pub mod flow;
pub mod watch;

use anabranch_proto::config::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig};
use anabranch_proto::connection::Connection;
use anabranch_proto::datagram::{Ecn, SocketId, Transmit, Tuple};
use anabranch_proto::event::{Event, PathNotice};
use anabranch_proto::path::PathOptions;
use anabranch_proto::streams::{ReadError, StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::tls;
use anabranch_proto::wire::{Dir, PathId, StreamId};
use anabranch_proto::{Endpoint, Handle};
use bytes::Bytes;
use flow::Flow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const MBIT: u64 = 1_000_000 / 8;

/// One way through the network: a client socket and a server socket, joined by two links.
#[derive(Debug, Clone)]
pub struct Way {
    pub client: Tuple,
    pub server: Tuple,
    pub delay: Duration,
    /// The delay from server to client, if it is another.
    pub delay_down: Option<Duration>,
    /// Bytes per second in each direction; 0 means unlimited.
    pub rate: u64,
    /// Bytes a queue holds before it drops.
    pub queue: u64,
    /// Bytes of UDP payload that pass; larger datagrams vanish. 0 means any.
    pub mtu: u64,
    pub up: bool,
    pub down: bool,
    /// Every n-th packet is lost; 0 means none.
    pub drop_every: u64,
    /// Packets with an ECN mark are lost.
    pub drops_marks: bool,
    /// Packets of a thousand that are lost, repeated, and that arrive up to `jitter` late.
    pub loss: u64,
    pub repeat: u64,
    pub late: u64,
    pub jitter: Duration,
    busy_until: [Instant; 2],
    carried: [u64; 2],
}

impl Way {
    pub fn new(index: u16) -> Self {
        let client: SocketAddr = format!("10.0.{index}.1:1000").parse().expect("an address");
        let server: SocketAddr = "10.1.0.1:4433".parse().expect("an address");
        let id = SocketId(u32::from(index));
        Self {
            client: Tuple {
                socket: id,
                local: None,
                remote: server,
            },
            server: Tuple {
                socket: SocketId(0),
                local: None,
                remote: client,
            },
            delay: Duration::from_millis(10),
            delay_down: None,
            rate: 0,
            queue: 100_000,
            mtu: 0,
            up: true,
            down: true,
            drop_every: 0,
            drops_marks: false,
            loss: 0,
            repeat: 0,
            late: 0,
            jitter: Duration::ZERO,
            busy_until: [Instant::ZERO; 2],
            carried: [0; 2],
        }
    }

    pub fn delay(mut self, ms: u64) -> Self {
        self.delay = Duration::from_millis(ms);
        self
    }

    /// Delays from client to server and back.
    pub fn delays(mut self, up_ms: u64, down_ms: u64) -> Self {
        self.delay_down = Some(Duration::from_millis(down_ms));
        self.delay(up_ms)
    }

    pub fn rate(mut self, bytes_per_second: u64) -> Self {
        self.rate = bytes_per_second;
        self
    }

    /// A queue that takes `ms` to drain.
    pub fn queue_ms(mut self, ms: u64) -> Self {
        self.queue = self.rate * ms / 1000;
        self
    }

    /// Loses `per_mille` of a thousand packets at random.
    pub fn loss(mut self, per_mille: u64) -> Self {
        self.loss = per_mille;
        self
    }

    /// Cuts or heals both directions.
    pub fn set_open(&mut self, open: bool) {
        self.up = open;
        self.down = open;
    }
}

/// A datagram under way.
#[derive(Clone)]
struct Flight {
    to_server: bool,
    tuple: Tuple,
    ecn: Option<Ecn>,
    bytes: Vec<u8>,
}

/// Two endpoints and the ways between them.
pub struct Pair {
    pub now: Instant,
    /// What the server's clock shows more than the client's. It may grow.
    pub server_ahead: Duration,
    pub client: Endpoint,
    pub server: Endpoint,
    pub ways: Vec<Way>,
    pub client_handle: Handle,
    pub server_handle: Option<Handle>,
    pub client_events: Vec<(Instant, Event)>,
    pub server_events: Vec<(Instant, Event)>,
    /// What the server received on its streams.
    pub received: BTreeMap<StreamId, Vec<u8>>,
    pub finished: Vec<StreamId>,
    flights: BTreeMap<(Instant, u64), Flight>,
    sequence: u64,
    /// Datagrams handed over so far.
    pub delivered: u64,
    /// Received bytes are only counted.
    pub discard: bool,
    pub received_bytes: u64,
    /// Streams that carry a pattern, either way.
    pub flows: Vec<Flow>,
    /// Hash of everything sent, and when.
    pub trace: u64,
    pub dice: Dice,
    /// Arrivals and time-outs handled so far.
    pub steps: u64,
    /// What the watched server sends with `PATH_ABANDON` in it is lost.
    pub swallow: Option<Arc<Mutex<watch::Seen>>>,
}

/// Small seeded random numbers (`SplitMix64`).
#[derive(Debug, Clone, Copy)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn per_mille(&mut self, share: u64) -> bool {
        share > 0 && self.below(1000) < share
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub fn tls_pair() -> (tls::ClientTls, tls::ServerTls) {
    let key = tls::KeyPair::generate(&provider(), [7; 32]).expect("a key");
    let server = tls::ServerTls::with_raw_key(provider(), &key)
        .alpn(&[b"test"])
        .build();
    let client = tls::ClientTls::pinned(provider(), key.fingerprint())
        .alpn(&[b"test"])
        .build();
    (
        client.expect("a client configuration"),
        server.expect("a server configuration"),
    )
}

pub fn configs(client: TransportConfig, server: TransportConfig) -> (ClientConfig, ServerConfig) {
    let (client_tls, server_tls) = tls_pair();
    let mut server_config = ServerConfig::new(server_tls);
    server_config.transport = Arc::new(server);
    let mut config = ClientConfig::new(client_tls);
    config.transport = Arc::new(client);
    (config, server_config)
}

/// The client and the server.
pub fn endpoints() -> [Endpoint; 2] {
    [[1; 32], [2; 32]].map(|seed| Endpoint::new(EndpointConfig::default(), seed))
}

impl Pair {
    pub fn new(ways: Vec<Way>, transport: TransportConfig) -> Self {
        Self::with(ways, transport.clone(), transport)
    }

    /// Connected, with a path on every way and time for each to be validated.
    pub fn connected(ways: Vec<Way>, transport: TransportConfig) -> Self {
        let mut pair = Self::new(ways, transport);
        pair.connect();
        pair.open_all();
        pair.run_for(Duration::from_millis(300));
        pair
    }

    pub fn with(ways: Vec<Way>, client: TransportConfig, server: TransportConfig) -> Self {
        let (client, server) = configs(client, server);
        Self::with_configs(ways, client, server)
    }

    pub fn with_configs(ways: Vec<Way>, client: ClientConfig, server: ServerConfig) -> Self {
        Self::between(endpoints(), ways, client, server)
    }

    /// A client of this server, which were prepared before they meet.
    pub fn between(
        [mut client_endpoint, mut server_endpoint]: [Endpoint; 2],
        ways: Vec<Way>,
        client: ClientConfig,
        server: ServerConfig,
    ) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        server_endpoint.set_server(Some(Arc::new(server)));
        let handle = client_endpoint
            .connect(now, client, ways[0].client, "server.test")
            .expect("a connection attempt");
        Self {
            now,
            server_ahead: Duration::ZERO,
            client: client_endpoint,
            server: server_endpoint,
            ways,
            client_handle: handle,
            server_handle: None,
            client_events: Vec::new(),
            server_events: Vec::new(),
            received: BTreeMap::new(),
            finished: Vec::new(),
            flights: BTreeMap::new(),
            sequence: 0,
            delivered: 0,
            discard: false,
            received_bytes: 0,
            flows: Vec::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            dice: Dice(1),
            steps: 0,
            swallow: None,
        }
    }

    /// The client's connection ends, and some time later a client comes to the same server again.
    pub fn come_again(&mut self, client: ClientConfig) {
        let now = self.now;
        self.client_conn().close(now, 0, b"");
        self.run_for(Duration::from_secs(5));
        let mut seed = [1; 32];
        seed[0] = self.dice.next() as u8;
        self.client = Endpoint::new(EndpointConfig::default(), seed);
        let connected = self
            .client
            .connect(self.now, client, self.ways[0].client, "server.test");
        self.client_handle = connected.expect("a connection attempt");
        self.server_handle = None;
        self.client_events.clear();
        self.server_events.clear();
        self.received.clear();
        self.finished.clear();
    }

    /// The connection of one side, while it is there.
    pub fn side(&mut self, server: bool) -> Option<&mut Connection> {
        if server {
            let handle = self.server_handle?;
            self.server.connection_mut(handle)
        } else {
            self.client.connection_mut(self.client_handle)
        }
    }

    pub fn client_conn(&mut self) -> &mut Connection {
        let events = &self.client_events;
        self.client
            .connection_mut(self.client_handle)
            .unwrap_or_else(|| panic!("the client is gone: {events:?}"))
    }

    pub fn server_conn(&mut self) -> &mut Connection {
        let handle = self.server_handle.expect("the server has seen the client");
        self.server
            .connection_mut(handle)
            .expect("the server's connection")
    }

    /// Both ends send what they have to send.
    fn drain(&mut self) {
        for to_server in [true, false] {
            let mut buf = Vec::new();
            for round in 0.. {
                assert!(
                    round < 100_000,
                    "an endpoint sends without end at {}",
                    self.now
                );
                buf.clear();
                let (endpoint, now) = if to_server {
                    (&mut self.client, self.now)
                } else {
                    (&mut self.server, self.now + self.server_ahead)
                };
                let Some(transmit) = endpoint.poll_transmit(now, 10, &mut buf) else {
                    break;
                };
                assert_eq!(transmit.length, buf.len());
                self.launch(to_server, &transmit, &buf);
            }
            self.collect(to_server);
        }
    }

    fn launch(&mut self, to_server: bool, transmit: &Transmit, bytes: &[u8]) {
        if let Some(seen) = self.swallow.as_ref().filter(|_| !to_server) {
            let mut seen = seen.lock().expect("no test thread panicked");
            if std::mem::take(&mut seen.abandoned_just_now) {
                return;
            }
        }
        let size = transmit.segment_size.unwrap_or(bytes.len());
        for datagram in bytes.chunks(size) {
            self.hash(to_server, &transmit.tuple, datagram.len());
            let at = self.ways.iter().position(|way| {
                let near = if to_server { &way.client } else { &way.server };
                *near == transmit.tuple
            });
            let Some(at) = at else { continue };
            if self.ways[at].drops_marks && transmit.ecn.is_some() {
                continue;
            }
            let Some((arrival, tuple)) = self.travel(at, to_server, datagram.len() as u64) else {
                continue;
            };
            let flight = Flight {
                to_server,
                tuple,
                ecn: transmit.ecn,
                bytes: datagram.to_vec(),
            };
            if self.dice.per_mille(self.ways[at].repeat) {
                self.sequence += 1;
                let again = (arrival + Duration::from_micros(300), self.sequence);
                self.flights.insert(again, flight.clone());
            }
            self.sequence += 1;
            self.flights.insert((arrival, self.sequence), flight);
        }
    }

    /// When and where a packet arrives; `None` if it does not.
    fn travel(&mut self, at: usize, to_server: bool, bytes: u64) -> Option<(Instant, Tuple)> {
        let (way, dice) = (&mut self.ways[at], &mut self.dice);
        let side = usize::from(!to_server);
        way.carried[side] += 1;
        let open = if to_server { way.up } else { way.down };
        let turn = way.drop_every > 0 && way.carried[side] % way.drop_every == 0;
        let fits = way.mtu == 0 || bytes <= way.mtu;
        if !open || !fits || turn || dice.per_mille(way.loss) {
            return None;
        }
        let mut end = way.busy_until[side].max(self.now);
        if way.rate > 0 {
            let waiting = end.since(self.now).as_nanos() * u128::from(way.rate) / 1_000_000_000;
            if waiting as u64 > way.queue {
                return None;
            }
            end += Duration::from_nanos(bytes * 1_000_000_000 / way.rate);
            way.busy_until[side] = end;
        }
        let down = way.delay_down.filter(|_| !to_server);
        let mut arrival = end + down.unwrap_or(way.delay);
        if dice.per_mille(way.late) {
            arrival += way.jitter.mul_f64(dice.below(1000) as f64 / 1000.0);
        }
        let tuple = if to_server { way.server } else { way.client };
        Some((arrival, tuple))
    }

    /// The bytes themselves differ from run to run: TLS draws its own random numbers.
    fn hash(&mut self, to_server: bool, tuple: &Tuple, length: usize) {
        let text = format!("{} {to_server} {} {length}", self.now, tuple.remote);
        for byte in text.bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn collect(&mut self, to_server: bool) {
        loop {
            let endpoint = if to_server {
                &mut self.client
            } else {
                &mut self.server
            };
            let Some((handle, event)) = endpoint.poll_event() else {
                break;
            };
            if let Event::Stream(stream) = &event
                && to_server
            {
                self.serve_client(*stream);
            }
            if to_server {
                self.client_events.push((self.now, event));
                continue;
            }
            if event == Event::Handshaking {
                self.server_handle = Some(handle);
            }
            if let Event::Stream(stream) = &event {
                self.serve(handle, *stream);
            }
            self.server_events.push((self.now, event));
        }
    }

    /// The server reads whatever comes.
    fn serve(&mut self, handle: Handle, event: StreamEvent) {
        let Some(connection) = self.server.connection_mut(handle) else {
            return;
        };
        for id in flow::to_read(connection, event) {
            loop {
                match connection.read(id, 1 << 16) {
                    Ok(Some(bytes)) => {
                        if flow::take(&mut self.flows, self.now, true, id, &bytes) {
                            continue;
                        }
                        self.received_bytes += bytes.len() as u64;
                        if !self.discard {
                            self.received
                                .entry(id)
                                .or_default()
                                .extend_from_slice(&bytes);
                        }
                    }
                    Ok(None) => {
                        flow::end(&mut self.flows, self.now, true, id);
                        self.finished.push(id);
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(_) | ReadError::Closed)
                        if self.finished.contains(&id) || flow::is_over(&self.flows, true, id) =>
                    {
                        break;
                    }
                    Err(error) => panic!("reading stream {id}: {error}"),
                }
            }
        }
    }

    /// Handles the next arrival or time-out. Returns whether anything was left to do.
    pub fn step(&mut self) -> bool {
        self.step_before(Instant::FAR_FUTURE)
    }

    /// As `step`, unless it would lie behind `end`: then only the clock moves there.
    fn step_before(&mut self, end: Instant) -> bool {
        self.pump_flows();
        self.drain();
        let arrival = self.flights.keys().next().map(|(at, _)| *at);
        let of_server = self.server.next_timeout();
        let of_server = of_server.map(|at| at - self.server_ahead);
        let timers = [self.client.next_timeout(), of_server];
        let timer = timers.into_iter().flatten().min();
        let Some(next) = [arrival, timer].into_iter().flatten().min() else {
            self.now = if end == Instant::FAR_FUTURE {
                self.now
            } else {
                end
            };
            return false;
        };
        if next > end {
            self.now = end;
            return false;
        }
        self.now = self.now.max(next);
        self.steps += 1;
        if arrival == Some(next) {
            let ((_, _), mut flight) = self.flights.pop_first().expect("a datagram is under way");
            self.delivered += 1;
            let (endpoint, now) = if flight.to_server {
                (&mut self.server, self.now + self.server_ahead)
            } else {
                (&mut self.client, self.now)
            };
            endpoint.handle_datagram(now, flight.tuple, flight.ecn, &mut flight.bytes);
        } else {
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now + self.server_ahead);
        }
        true
    }

    /// Runs until `done`, for at most `limit` of virtual time. Returns whether it came true.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        let mut still = 0;
        loop {
            if done(self) {
                return true;
            }
            let before = self.now;
            if !self.step_before(end) {
                return done(self);
            }
            still = if self.now == before { still + 1 } else { 0 };
            assert!(
                still < 20_000,
                "time stands still at {}: {:?} {:?}",
                self.now,
                self.client
                    .connection(self.client_handle)
                    .map(Connection::next_timer),
                self.server_handle
                    .and_then(|h| self.server.connection(h))
                    .map(Connection::next_timer),
            );
        }
    }

    pub fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        self.run_until(span, |pair| pair.now >= end);
    }

    /// Completes the handshake.
    pub fn connect(&mut self) {
        let established = self.run_until(Duration::from_secs(10), |pair| {
            pair.client
                .connection(pair.client_handle)
                .is_some_and(Connection::is_confirmed)
        });
        assert!(
            established,
            "no handshake: {:?} {:?}",
            self.client_events, self.server_events
        );
    }

    /// Opens a path on every way but the first.
    pub fn open_all(&mut self) -> Vec<PathId> {
        let mut ids = vec![PathId::ZERO];
        for index in 1..self.ways.len() {
            ids.push(self.open_path(index));
        }
        ids
    }

    pub fn open_path(&mut self, way: usize) -> PathId {
        let tuple = self.ways[way].client;
        let mut opened = None;
        self.run_until(Duration::from_secs(5), |pair| {
            let now = pair.now;
            opened = pair
                .client_conn()
                .open_path(now, tuple, PathOptions::default())
                .ok();
            opened.is_some()
        });
        let id = opened.expect("a path can be opened");
        let validated = self.run_until(Duration::from_secs(5), |pair| {
            pair.client_conn()
                .path_stats(id)
                .is_some_and(|stats| stats.validated)
        });
        assert!(validated, "path {id} was not validated");
        id
    }

    /// Sends `length` bytes on a new stream and runs until the server has them all.
    pub fn upload(&mut self, length: usize, limit: Duration) -> Duration {
        let started = self.now;
        let id = self
            .client_conn()
            .open(Dir::Uni)
            .expect("a stream can be opened");
        let data: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251) as u8).collect();
        let mut left = Bytes::from(data.clone());
        let mut finished = false;
        let done = self.run_until(limit, |pair| {
            while !left.is_empty() {
                match pair.client_conn().write(id, &mut left) {
                    Ok(_) => {}
                    Err(WriteError::Blocked) => break,
                    Err(error) => panic!("writing: {error}"),
                }
            }
            if left.is_empty() && !finished {
                finished = true;
                pair.client_conn().finish(id).expect("the stream is open");
            }
            pair.finished.contains(&id)
        });
        let got = self.received.get(&id).map_or(0, Vec::len);
        assert!(
            done,
            "{got} of {length} bytes after {limit:?}; client: {:#?}; server: {:#?}",
            tail(&self.client_events),
            tail(&self.server_events)
        );
        assert!(
            self.discard || self.received[&id] == data,
            "the bytes arrived changed"
        );
        self.now.since(started)
    }

    pub fn has_notice(&self, wanted: impl Fn(&PathNotice) -> bool) -> bool {
        self.client_events
            .iter()
            .chain(&self.server_events)
            .any(|(_, event)| matches!(event, Event::Path(notice) if wanted(notice)))
    }
}

fn tail(events: &[(Instant, Event)]) -> &[(Instant, Event)] {
    &events[events.len().saturating_sub(12)..]
}
