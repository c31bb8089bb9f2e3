//! A program that does anything with this crate's interface, in any order.
//!
//! A script of bytes chooses settings, commands and their arguments for both sides of a connection
//! over the loopback interface. Handles are dropped at any time, and what waits is given up after a
//! moment. Nothing may panic, and another connection of both endpoints works as before. The same
//! play is a fuzz target (`dev/fuzz/fuzz_targets/net_caller.rs`), which is why the crate is called
//! by the name that others call it by.

use super::anabranch_net::engine::{
    AckFrequency, ClientConfig, ConnectionError, IncomingPolicy, PathOptions, ServerConfig,
    TransportConfig, tls,
};
use super::anabranch_net::identity::provider;
use super::anabranch_net::sockets::SocketConfig;
use super::anabranch_net::{
    Connection, DatagramOptions, Endpoint, Identity, PathNotices, RecvStream, SendStream, defaults,
};
use anabranch_proto::congestion::{self, ControllerFactory};
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::{ErrorCode, PathId, StreamId, TransportErrorCode};
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::timeout;

/// Steps of one script: what a longer one finds, a shorter one found before.
const MAX_STEPS: usize = 60;

/// How long a step waits for what need not come.
const STEP: Duration = Duration::from_millis(3);

/// How long a script's connection may take to come about; settings may keep it from doing so.
const OPENING: Duration = Duration::from_secs(2);

/// For what must come, on however busy a machine.
const END: Duration = Duration::from_secs(180);

/// The most that a step reads, writes or asks for at once.
const MAX_BYTES: usize = 100_000;

/// The most handles of a kind, and sockets, that a side holds.
const MAX_HELD: usize = 8;

/// Plays a script to its end.
pub(crate) fn play(script: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let playing = async { timeout(END, Play::run(&mut Script(script))).await };
    runtime.block_on(playing).expect("every step has an end");
}

/// One pair of TLS settings for all.
fn tls_configs() -> (tls::ClientTls, tls::ServerTls) {
    static CONFIGS: OnceLock<(tls::ClientTls, tls::ServerTls)> = OnceLock::new();
    let make = || {
        let identity = Identity::generate().expect("randomness");
        let server = identity.server(&["localhost"]).expect("a certificate");
        let client = tls::ClientTls::pinned(provider(), identity.fingerprint());
        let client = client.alpn(&[b"x"]).build().expect("settings");
        let server = server.alpn(&[b"x"]).build().expect("settings");
        (client, server)
    };
    CONFIGS.get_or_init(make).clone()
}

/// What is left of the script.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().map(|byte| byte & 1 != 0)
    }

    /// A number, mostly one where something begins or ends.
    fn number(&mut self) -> Option<u64> {
        let edges = [
            0,
            1,
            2,
            63,
            1200,
            1 << 14,
            65_527,
            u64::from(u32::MAX),
            1 << 60,
            (1 << 62) - 1,
            1 << 62,
            u64::MAX,
        ];
        let byte = self.byte()?;
        let near = edges[usize::from(byte) % edges.len()];
        Some(match byte >> 6 {
            0 | 1 => near,
            2 => near.saturating_add(1),
            _ => u64::from(byte),
        })
    }

    fn size(&mut self) -> Option<usize> {
        self.number().map(|number| number as usize)
    }

    fn bytes(&mut self) -> Option<Bytes> {
        Some(Bytes::from(vec![1; self.size()?.min(MAX_BYTES)]))
    }

    fn duration(&mut self) -> Option<Duration> {
        Some(match self.byte()? {
            0 => Duration::ZERO,
            1 => Duration::MAX,
            byte => Duration::from_micros(1 << (byte % 40)),
        })
    }

    fn code(&mut self) -> Option<ErrorCode> {
        let number = self.number()?;
        Some(ErrorCode::new(number).unwrap_or(TransportErrorCode(number).into()))
    }

    fn path(&mut self) -> Option<PathId> {
        Some(match self.byte()? {
            byte @ 0..200 => PathId(u32::from(byte % 4)),
            _ => PathId(self.number()? as u32),
        })
    }

    /// An address of this machine, which may be nobody's.
    fn address(&mut self, known: &[SocketAddr]) -> Option<SocketAddr> {
        let byte = self.byte()?;
        let known = known.get(usize::from(byte % 4)).copied();
        Some(known.unwrap_or((Ipv4Addr::new(127, 0, 0, 1 + byte % 3), u16::from(byte / 4)).into()))
    }

    fn congestion(&mut self) -> Option<ControllerFactory> {
        let registry = congestion::Registry::builtin();
        let at = usize::from(self.byte()?) % registry.entries().len();
        let spec = registry.entries()[at].name.parse().expect("a name");
        Some(registry.factory(&spec).expect("a controller of the list"))
    }

    fn scheduler(&mut self) -> Option<SchedulerFactory> {
        let registry = anabranch_schedulers::builtin();
        let at = usize::from(self.byte()?) % registry.entries().len();
        let spec = registry.entries()[at].name.parse().expect("a name");
        // Some of them need parameters.
        Some(SchedulerFactory::new(&registry, &spec).unwrap_or_default())
    }

    /// Changes a setting at a time, as many as the script says: mostly none, since with
    /// many of them nothing comes about that could be played with.
    fn transport(&mut self) -> Option<TransportConfig> {
        let mut config = defaults::transport();
        for _ in 0..(self.byte()? % 16).saturating_sub(11) {
            let (what, limits) = (self.byte()? % 16, &mut config.streams);
            match what {
                0 => limits.receive_window = self.number()?,
                1 => limits.stream_receive_window = self.number()?,
                2 => limits.send_buffer = self.number()?,
                3 => limits.max_streams_bidi = self.number()?,
                4 => limits.max_streams_uni = self.number()?,
                5 => limits.datagram_receive_buffer = self.size()?,
                6 => limits.datagram_send_buffer = self.size()?,
                7 => limits.max_datagram_frame_size = self.number()?,
                8 => config.max_idle_timeout = Some(self.duration()?),
                9 => config.keep_alive = Some(self.duration()?),
                10 => config.max_paths = self.number()? as u32,
                11 => config.max_ack_delay = self.duration()?,
                12 => config.initial_mtu = self.number()? as u16,
                13 => config.congestion = self.congestion()?,
                14 => config.scheduler = self.scheduler()?,
                _ => {
                    config.ack_frequency = AckFrequency {
                        accept: self.flag()?,
                        immediate: self.flag()?,
                        most_packets: Some(self.number()? as u32),
                    }
                }
            }
        }
        Some(config)
    }
}

/// Waits for a moment: what does not come by then is given up.
async fn briefly<T>(waiting: impl Future<Output = T>) -> Option<T> {
    timeout(STEP, waiting).await.ok()
}

/// What one program holds.
struct Side {
    endpoint: Option<Endpoint>,
    connection: Option<Connection>,
    sends: Vec<SendStream>,
    recvs: Vec<RecvStream>,
    notices: Option<PathNotices>,
}

impl Side {
    fn new(endpoint: &Endpoint, connection: Connection) -> Self {
        Self {
            endpoint: Some(endpoint.clone()),
            connection: Some(connection),
            sends: Vec::new(),
            recvs: Vec::new(),
            notices: None,
        }
    }

    fn hold(&mut self, send: Option<SendStream>, recv: Option<RecvStream>) {
        self.sends.extend(send);
        self.recvs.extend(recv);
        // The oldest is dropped.
        if self.sends.len() > MAX_HELD {
            self.sends.remove(0);
        }
        if self.recvs.len() > MAX_HELD {
            self.recvs.remove(0);
        }
    }

    /// A command about a stream of which this side sends.
    async fn send(&mut self, what: u8, script: &mut Script<'_>) -> Option<()> {
        let at = usize::from(script.byte()?);
        let count = self.sends.len();
        let Some(stream) = self.sends.get_mut(at % count.max(1)) else {
            return Some(());
        };
        match what % 8 {
            0 | 1 => drop(briefly(stream.write_bytes(script.bytes()?)).await),
            2 => drop(briefly(stream.write_all(&script.bytes()?)).await),
            3 => drop(stream.finish()),
            4 => drop(stream.reset(script.code()?)),
            5 => drop(stream.set_priority(script.number()? as i32)),
            6 => drop(briefly(stream.stopped()).await),
            _ => drop(self.sends.swap_remove(at % count)),
        }
        Some(())
    }

    /// A command about a stream of which this side receives.
    async fn receive(&mut self, what: u8, script: &mut Script<'_>) -> Option<()> {
        let at = usize::from(script.byte()?);
        let count = self.recvs.len();
        let Some(stream) = self.recvs.get_mut(at % count.max(1)) else {
            return Some(());
        };
        let size = script.size()?;
        let mut buffer = vec![0; size.min(MAX_BYTES)];
        match what % 8 {
            0 | 1 => drop(briefly(stream.read_chunk(size)).await),
            2 => drop(briefly(stream.read(&mut buffer)).await),
            3 => drop(briefly(stream.read_exact(&mut buffer)).await),
            4 | 5 => drop(briefly(stream.read_to_end(size)).await),
            6 => drop(stream.stop(script.code()?)),
            _ => drop(self.recvs.swap_remove(at % count)),
        }
        Some(())
    }

    /// Opens or accepts streams, and moves datagrams.
    async fn exchange(&mut self, what: u8, script: &mut Script<'_>) -> Option<()> {
        let Some(connection) = self.connection.clone() else {
            return Some(());
        };
        match what % 12 {
            0 | 1 => {
                if let Some(Ok((send, recv))) = briefly(connection.open_bi()).await {
                    self.hold(Some(send), Some(recv));
                }
            }
            2 | 3 => {
                let send = briefly(connection.open_uni()).await;
                self.hold(send.and_then(Result::ok), None);
            }
            4 => {
                if let Some(Ok((send, recv))) = briefly(connection.accept_bi()).await {
                    self.hold(Some(send), Some(recv));
                }
            }
            5 => {
                let recv = briefly(connection.accept_uni()).await;
                self.hold(None, recv.and_then(Result::ok));
            }
            6 => drop(connection.send_datagram(script.bytes()?)),
            7 => {
                let options = DatagramOptions {
                    flow: script.number()?,
                    within: Some(script.duration()?),
                    max_skew: None,
                    repair: false,
                    critical: script.flag()?,
                    class: script.byte()?,
                    tag: script.number()?,
                };
                drop(connection.send_datagram_with(script.bytes()?, options));
            }
            8 => drop(briefly(connection.send_datagram_wait(script.bytes()?)).await),
            9 => drop(briefly(connection.read_datagram()).await),
            10 => {
                let mut into = Vec::new();
                drop(briefly(connection.read_datagrams(script.size()?, &mut into)).await);
            }
            _ => {
                briefly(connection.send_ended(StreamId(script.number()?))).await;
            }
        }
        Some(())
    }

    /// A command about paths and sockets.
    async fn paths(&mut self, what: u8, script: &mut Script<'_>) -> Option<()> {
        let (Some(connection), Some(endpoint)) = (self.connection.clone(), self.endpoint.clone())
        else {
            return Some(());
        };
        let sockets = endpoint.sockets();
        let path = script.path()?;
        let at = usize::from(script.byte()?);
        let known = sockets.get(at % sockets.len().max(1));
        let socket = known.map_or(SocketId(at as u32), |info| info.id);
        let remotes: Vec<SocketAddr> = connection.remote_addr().into_iter().collect();
        match what % 14 {
            0..=2 => {
                let remote = script.address(&remotes)?;
                let _ = connection.open_path(socket, remote, PathOptions::default());
            }
            3 => {
                let to = Tuple {
                    socket,
                    local: None,
                    remote: script.address(&remotes)?,
                };
                let _ = connection.migrate_path(path, to);
            }
            4 => drop(connection.abandon_path(path, script.code()?)),
            5 => drop(connection.set_path_status(path, PathStatus::Backup)),
            6 => drop(connection.set_congestion(script.congestion()?)),
            7 => drop(connection.update_keys()),
            8 => self.notices = Some(connection.path_notices()),
            9 => {
                if let Some(notices) = &mut self.notices {
                    briefly(notices.next()).await;
                }
            }
            10 => drop(briefly(connection.wait_for_paths(script.size()?)).await),
            11 if sockets.len() < MAX_HELD => {
                let local = script.address(&[])?.ip();
                let device = script.flag()?.then(|| "lo".to_owned());
                let config = SocketConfig {
                    recv_buffer: script.size()?,
                    send_buffer: script.size()?,
                    ..SocketConfig::path(local, device)
                };
                let _ = endpoint.add_socket(&config);
            }
            12 => endpoint.report_fault(socket),
            // The bystander's connection lives on the first one.
            13 if Some(socket) != sockets.first().map(|info| info.id) => {
                endpoint.remove_socket(socket);
            }
            _ => {}
        }
        Some(())
    }

    /// A question, or the end of something.
    async fn whole(&mut self, what: u8, script: &mut Script<'_>) -> Option<()> {
        let Some(connection) = self.connection.clone() else {
            return Some(());
        };
        match what % 10 {
            0 => drop((connection.stats(), connection.paths())),
            1 => drop((connection.alpn(), connection.peer_identity())),
            2 => drop((connection.server_name(), connection.has_multipath())),
            3 => {
                let mut out = vec![0; script.size()?.min(MAX_BYTES)];
                let label = vec![b'x'; script.size()?.min(1000)];
                let _ = connection.export_keying_material(&mut out, &label, &[7; 300]);
            }
            4 => {
                let _ = connection.max_datagram_payload();
            }
            5 => drop(connection.downgrade().upgrade()),
            6 => drop(briefly(connection.closed()).await),
            7 if script.byte()? > 200 => connection.close(script.code()?, &script.bytes()?),
            8 if script.byte()? > 200 => self.connection = None,
            9 if script.byte()? > 230 => {
                if let Some(endpoint) = self.endpoint.take() {
                    endpoint.close(script.code()?, &script.bytes()?);
                    briefly(endpoint.say_goodbye()).await;
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// Both sides, and a connection beside theirs.
struct Play {
    sides: [Side; 2],
    bystander: [Connection; 2],
}

impl Play {
    async fn run(script: &mut Script<'_>) {
        let (client_tls, server_tls) = tls_configs();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = defaults::server(server_tls.clone());
        let server = Endpoint::server(config, &[listen]).expect("a server");
        let client = Endpoint::client().expect("a client");
        let socket = SocketConfig::path(Ipv4Addr::LOCALHOST.into(), None);
        let socket = client.add_socket(&socket).expect("a socket");
        let remote = server.local_addrs()[0];
        let config = defaults::client(client_tls.clone());
        let connecting = client.connect_over(socket, remote, "localhost", config);
        let (connected, accepted) = tokio::join!(connecting, server.accept());
        let bystander = [connected.expect("a client"), accepted.expect("a server")];
        let Some(connections) = Self::begin(script, [&client, &server], socket, remote).await
        else {
            works(&bystander).await;
            return;
        };
        let [client_connection, server_connection] = connections;
        let mut play = Self {
            sides: [
                Side::new(&client, client_connection),
                Side::new(&server, server_connection),
            ],
            bystander,
        };
        for _ in 0..MAX_STEPS {
            if play.step(script).await.is_none() {
                break;
            }
        }
        play.end().await;
    }

    /// A connection with settings of the script, of which each side has its end.
    async fn begin(
        script: &mut Script<'_>,
        [client, server]: [&Endpoint; 2],
        socket: SocketId,
        remote: SocketAddr,
    ) -> Option<[Connection; 2]> {
        let (client_tls, server_tls) = tls_configs();
        let mut config = ServerConfig::new(server_tls);
        config.transport = Arc::new(script.transport()?);
        let answer = script.byte()?;
        if answer > 200 {
            config.incoming = IncomingPolicy::Ask;
        }
        server.set_server(Some(config));
        let mut config = ClientConfig::new(client_tls);
        config.transport = Arc::new(script.transport()?);
        let connecting = client.connect_over(socket, remote, "localhost", config);
        let accepting = tokio::spawn(accept(server.clone(), answer));
        let stop = accepting.abort_handle();
        let patience = if answer % 16 == 15 { STEP } else { OPENING };
        let Ok(Ok(connected)) = timeout(patience, connecting).await else {
            stop.abort();
            return None;
        };
        let accepted = timeout(patience, accepting).await;
        stop.abort();
        Some([connected, accepted.ok()?.ok()??])
    }

    async fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let what = script.byte()?;
        let side = &mut self.sides[usize::from(what >> 7)];
        let which = what >> 3;
        match what % 8 {
            0 | 1 => side.exchange(which, script).await,
            2 | 3 => side.send(which, script).await,
            4 => side.receive(which, script).await,
            5 | 6 => side.paths(which, script).await,
            _ => side.whole(which, script).await,
        }
    }

    /// Drops everything of the script; what stands beside it works.
    async fn end(self) {
        let Self { sides, bystander } = self;
        let is_whole = sides.iter().all(|side| side.endpoint.is_some());
        for connection in sides.iter().filter_map(|side| side.connection.as_ref()) {
            assert!(!has_panicked(connection), "it ended by a panic");
        }
        drop(sides);
        if is_whole {
            works(&bystander).await;
        }
    }
}

/// Takes a client, if the server is asked about it, in one of the ways there are.
async fn accept(server: Endpoint, answer: u8) -> Option<Connection> {
    if answer <= 200 {
        return server.accept().await;
    }
    loop {
        let incoming = server.incoming().await?;
        match answer % 6 {
            2 if incoming.may_retry() => drop(incoming.retry()),
            3 => incoming.refuse(),
            4 => incoming.ignore(),
            5 => drop(incoming),
            _ => return incoming.accept().ok(),
        }
    }
}

/// The endpoint contains a panic in a connection, which then ends with these words.
fn has_panicked(connection: &Connection) -> bool {
    match connection.close_reason() {
        Some(ConnectionError::Transport(error) | ConnectionError::PeerClosed(error)) => {
            error.reason == "internal error"
        }
        _ => false,
    }
}

/// Something goes over a connection and back.
async fn works([client, server]: &[Connection; 2]) {
    let asking = async {
        let (mut send, mut recv) = client.open_bi().await.expect("it lives");
        send.write_all(&[7; 5000]).await.expect("it lives");
        send.finish().expect("it is open");
        recv.read_to_end(5000).await.expect("an answer")
    };
    let answering = async {
        let (mut send, mut recv) = server.accept_bi().await.expect("it lives");
        let asked = recv.read_to_end(5000).await.expect("a question");
        send.write_bytes(asked).await.expect("it lives");
        send.finish().expect("it is open");
    };
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(&answer[..], &[7; 5000]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn nothing_that_a_program_does_panics_or_ends_another_connection(
            script in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            super::play(&script);
        }
    }
}
