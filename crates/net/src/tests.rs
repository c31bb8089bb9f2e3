//! The whole crate together: clients and servers over the loopback interface, and over links in
//! network namespaces that appear, disappear and fall silent.

mod caller;
mod containment;
mod ending;
mod incoming;
mod links;
mod protection;
mod remembered;
mod waiting;
mod workers;

// `caller` is also a fuzz target, which knows this crate by its name.
extern crate self as anabranch_net;

use crate::engine::{ClientConfig, ServerConfig, TransportConfig, tls};
use crate::error::{ConnectError, ReadToEndError, SendDatagramError, WriteError};
use crate::identity::{Identity, provider};
use crate::interfaces::spec::PathSpec;
use crate::manager::EntryState;
use crate::namespace::{in_namespace, ip};
use crate::{Connection, DatagramOptions, Endpoint, PathsConfig, Target};
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::wire::PathId;
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ALPN: &[u8] = b"anabranch-test";

struct Pair {
    server: Endpoint,
    client: Endpoint,
    config: ClientConfig,
    target: Target,
}

/// A server on all addresses, and a client that trusts it.
fn pair() -> Pair {
    pair_with(crate::defaults::transport())
}

/// A pair whose server treats its connections as `transport` says.
fn pair_with(transport: TransportConfig) -> Pair {
    pair_of(|server| server.transport = Arc::new(transport))
}

/// A pair whose server has settings of its own.
fn pair_of(change: impl FnOnce(&mut ServerConfig)) -> Pair {
    pair_of_workers(NonZeroUsize::MIN, change)
}

/// A pair whose server has so many workers, and settings of its own.
fn pair_of_workers(count: NonZeroUsize, change: impl FnOnce(&mut ServerConfig)) -> Pair {
    let identity = Identity::generate().unwrap();
    let server_tls = identity
        .server(&["localhost"])
        .unwrap()
        .alpn(&[ALPN])
        .build()
        .unwrap();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let mut server = ServerConfig::new(server_tls);
    change(&mut server);
    let builder = Endpoint::builder().server(server).listen(any);
    let server = builder.workers(count).bind().unwrap();
    let client_tls = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let config = crate::defaults::client(client_tls.alpn(&[ALPN]).build().unwrap());
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addrs()[0].port()));
    let target = Target {
        name: "localhost".into(),
        remotes: vec![remote],
    };
    Pair {
        client: Endpoint::client().unwrap(),
        server,
        config,
        target,
    }
}

fn paths(specs: &[&str]) -> PathsConfig {
    let specs: Vec<PathSpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
    PathsConfig {
        specs,
        ..PathsConfig::default()
    }
}

/// Fails a test instead of letting it hang. What usually takes a moment gets minutes, in case the
/// machine is busy with something else.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(180), future)
        .await
        .expect("in time")
}

impl Pair {
    /// Makes the client use all its paths, whatever their RTTs.
    fn use_paths_in_turn(&mut self) {
        let spec = "round-robin".parse().unwrap();
        self.config.transport = Arc::new(TransportConfig {
            scheduler: SchedulerFactory::new(&anabranch_schedulers::builtin(), &spec).unwrap(),
            ..crate::defaults::transport()
        });
    }

    async fn connect(&self, specs: &[&str]) -> (Connection, Connection, crate::PathManager) {
        let paths = paths(specs);
        let connecting = self
            .client
            .connect(&self.target, self.config.clone(), &paths);
        // Attempts overlap: on a slow machine several of them may reach the server, and the client
        // keeps the one that it saw complete first.
        let mut accepted: Vec<Connection> = Vec::new();
        let connected = soon(async {
            tokio::pin!(connecting);
            loop {
                tokio::select! {
                    connected = &mut connecting => return connected,
                    next = self.server.accept() => accepted.push(next.unwrap()),
                }
            }
        })
        .await;
        let (connection, manager) = connected.unwrap();
        let name = |end: &Connection| end.with_engine(|engine| engine.original_dcid()).ok();
        let chosen = name(&connection);
        let is_other_end = |end: &Connection| name(end) == chosen;
        while !accepted.last().is_some_and(is_other_end) {
            let Some(at) = accepted.iter().position(is_other_end) else {
                accepted.push(soon(self.server.accept()).await.unwrap());
                continue;
            };
            accepted.truncate(at + 1);
        }
        (connection, accepted.pop().unwrap(), manager)
    }
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Echoes the first stream. The connection is returned because it ends when it is dropped, and the
/// client could not read what it has not read by then.
async fn echo(connection: Connection) -> Connection {
    let (mut send, mut recv) = connection.accept_bi().await.unwrap();
    while let Some(piece) = recv.read_chunk(usize::MAX).await.unwrap() {
        send.write_bytes(piece).await.unwrap();
    }
    send.finish().unwrap();
    // The client may have received everything and close before it acknowledges it.
    let _ = send.stopped().await;
    connection
}

/// Sends `data` and returns what comes back.
async fn round_trip(connection: &Connection, data: &Bytes) -> Bytes {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let sending = async {
        send.write_bytes(data.clone()).await.unwrap();
        send.finish().unwrap();
    };
    let ((), received) = tokio::join!(sending, recv.read_to_end(data.len()));
    received.unwrap()
}

#[tokio::test]
async fn a_stream_comes_back_whole() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    assert_eq!(client.alpn().as_deref(), Some(ALPN));
    assert!(client.peer_identity().is_some());
    let echo = tokio::spawn(echo(server));
    let data = pattern(3_000_000);
    assert_eq!(soon(round_trip(&client, &data)).await, data);
    soon(echo).await.unwrap();
    client.close(7, b"done");
    soon(pair.client.wait_idle()).await;
}

#[tokio::test]
async fn the_peer_learns_why_a_connection_was_closed() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    client.close(7, b"done");
    let error = soon(server.closed()).await.to_string();
    assert!(error.contains("0x7") && error.contains("done"), "{error}");
    assert!(client.open_bi().await.is_err());
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_connection() {
    let pair = pair();
    let (client, server, manager) = pair.connect(&[]).await;
    let (send, recv) = client.open_bi().await.unwrap();
    drop(client);
    assert!(server.close_reason().is_none(), "streams keep it open");
    drop((send, recv));
    soon(server.closed()).await;
    drop(manager);
}

#[tokio::test]
async fn a_server_learns_which_clients_it_refused_and_why() {
    let (own, known, stranger) = (
        Identity::generate().unwrap(),
        Identity::generate().unwrap(),
        Identity::generate().unwrap(),
    );
    let builder = own.server(&["localhost"]).unwrap().alpn(&[ALPN]);
    let pins = tls::ClientAuth::Pinned(vec![known.fingerprint()]);
    let config = ServerConfig::new(builder.client_auth(pins).build().unwrap());
    let server = Endpoint::server(config, &[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
    let builder = tls::ClientTls::pinned(provider(), own.fingerprint()).alpn(&[ALPN]);
    let shown = tls::Identity::RawKey(stranger.key().clone());
    let config = ClientConfig::new(builder.identity(shown).build().unwrap());
    let target = Target {
        name: "localhost".into(),
        remotes: server.local_addrs(),
    };
    let client = Endpoint::client().unwrap();
    // The client may consider the connection established before the server rejects it.
    let paths = PathsConfig::default();
    let _connected = soon(client.connect(&target, config, &paths)).await;
    let failed = soon(server.failed_handshake()).await.unwrap();
    assert_eq!(failed.remote.ip(), Ipv4Addr::LOCALHOST);
    let words = failed.error.to_string();
    assert!(
        words.contains(&stranger.fingerprint().to_string()),
        "{words}"
    );
}

#[tokio::test]
async fn who_works_for_a_stream_learns_that_the_peer_wants_no_more_of_it() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let (answer, _question) = soon(server.accept_bi()).await.unwrap();
    let ended = server.send_ended(answer.id());
    tokio::pin!(ended);
    let early = tokio::time::timeout(Duration::from_millis(20), &mut ended).await;
    assert!(early.is_err(), "the peer still waits");
    recv.stop(7).unwrap();
    soon(ended).await;
    // A caller who asks later gets an answer too.
    soon(server.send_ended(answer.id())).await;
}

#[tokio::test]
async fn whoever_waits_for_the_end_of_a_stream_does_not_keep_its_writer_asleep() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let mut send = client.open_uni().await.unwrap();
    let id = send.id();
    // More than credit and buffers allow, so that the writer has to be woken.
    let data = pattern(40_000_000);
    let writing = tokio::spawn({
        let data = data.clone();
        async move {
            send.write_all(&data).await.unwrap();
            send.finish().unwrap();
            send
        }
    });
    let mut recv = soon(server.accept_uni()).await.unwrap();
    let watcher = client.clone();
    let watching = tokio::spawn(async move { watcher.send_ended(id).await });
    tokio::task::yield_now().await;
    assert_eq!(soon(recv.read_to_end(data.len())).await.unwrap(), data);
    let send = soon(writing).await.unwrap();
    soon(watching).await.unwrap();
    drop(send);
}

#[tokio::test]
async fn whoever_waits_for_the_end_of_a_stream_learns_that_its_handle_is_gone() {
    let pair = pair();
    let (client, _server, _manager) = pair.connect(&[]).await;
    let send = client.open_uni().await.unwrap();
    let (watcher, id) = (client.clone(), send.id());
    let watching = tokio::spawn(async move { watcher.send_ended(id).await });
    tokio::task::yield_now().await;
    drop(send);
    soon(watching).await.unwrap();
}

#[tokio::test]
async fn reset_and_stop_reach_the_other_side_with_their_codes() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let (mut server_send, mut server_recv) = soon(server.accept_bi()).await.unwrap();
    send.reset(5).unwrap();
    let error = loop {
        match soon(server_recv.read_chunk(10)).await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(error, Err(crate::error::ReadError::Reset(5)));
    recv.stop(6).unwrap();
    assert_eq!(soon(server_send.stopped()).await.unwrap(), Some(6));
    assert_eq!(
        server_send.write_all(b"y").await,
        Err(WriteError::Stopped(6))
    );
    // The next stream's packets acknowledge the end of this one, which the engine then forgets.
    for _ in 0..3 {
        let (mut send, mut recv) = client.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        let (mut back, _) = soon(server.accept_bi()).await.unwrap();
        back.write_all(b"x").await.unwrap();
        soon(recv.read_chunk(1)).await.unwrap();
    }
    assert_eq!(
        server_send.write_all(b"y").await,
        Err(WriteError::Stopped(6))
    );
}

#[tokio::test]
async fn a_stream_dropped_unfinished_is_not_taken_for_whole() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let mut send = client.open_uni().await.unwrap();
    send.write_all(b"half").await.unwrap();
    drop(send);
    let mut recv = soon(server.accept_uni()).await.unwrap();
    assert!(matches!(
        soon(recv.read_to_end(100)).await,
        Err(ReadToEndError::Read(_))
    ));
}

#[tokio::test]
async fn a_stream_longer_than_allowed_is_refused() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let mut send = client.open_uni().await.unwrap();
    send.write_all(b"too long").await.unwrap();
    send.finish().unwrap();
    let mut recv = soon(server.accept_uni()).await.unwrap();
    assert_eq!(
        soon(recv.read_to_end(3)).await,
        Err(ReadToEndError::TooLong(3))
    );
}

#[tokio::test]
async fn streams_work_as_readers_and_writers() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    let echo = tokio::spawn(async move {
        let (mut send, mut recv) = server.accept_bi().await.unwrap();
        tokio::io::copy(&mut recv, &mut send).await.unwrap();
        AsyncWriteExt::shutdown(&mut send).await.unwrap();
        send.stopped().await.unwrap();
    });
    AsyncWriteExt::write_all(&mut send, b"hello").await.unwrap();
    AsyncWriteExt::shutdown(&mut send).await.unwrap();
    let mut answer = String::new();
    soon(recv.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "hello");
    soon(echo).await.unwrap();
}

#[tokio::test]
async fn datagrams_arrive() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    client
        .send_datagram_wait(Bytes::from_static(b"ping"))
        .await
        .unwrap();
    assert_eq!(&soon(server.read_datagram()).await.unwrap()[..], b"ping");
}

#[tokio::test]
async fn datagrams_are_sent_and_read_in_batches_with_the_path_they_came_by() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let largest = client
        .max_datagram_payload()
        .expect("the server takes some");
    let options = DatagramOptions {
        flow: 7,
        within: Some(Duration::from_secs(60)),
        max_skew: None,
        repair: false,
        critical: false,
        class: 0,
        tag: 0,
    };
    let sizes = [0, 100, largest, largest + 1, 200];
    let batch = sizes.map(|size| (Bytes::from(vec![1; size]), options));
    assert_eq!(
        client.send_datagrams(batch),
        Ok(3),
        "the fourth is too large"
    );
    let too_large = client.send_datagram_with(vec![1; largest + 1].into(), options);
    assert!(matches!(too_large, Err(SendDatagramError::TooLarge { .. })));
    let mut received = Vec::new();
    while received.len() < 3 {
        soon(server.read_datagrams(2, &mut received)).await.unwrap();
    }
    assert!(
        received
            .iter()
            .all(|datagram| datagram.path == PathId::ZERO)
    );
    let mut arrived: Vec<usize> = received
        .iter()
        .map(|datagram| datagram.data.len())
        .collect();
    arrived.sort_unstable();
    assert_eq!(arrived, [0, 100, largest]);
}

#[tokio::test]
async fn both_ends_export_the_same_keying_material_and_know_each_other_s_address() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    assert_eq!(client.remote_addr(), pair.target.remotes.first().copied());
    let ours = server.remote_addr().expect("an address");
    assert!(ours.ip().is_loopback());
    let (mut one, mut other) = ([0; 32], [0; 32]);
    client
        .export_keying_material(&mut one, b"label", b"context")
        .unwrap();
    server
        .export_keying_material(&mut other, b"label", b"context")
        .unwrap();
    assert_eq!(one, other);
    assert_ne!(one, [0; 32]);
}

#[test]
fn an_endpoint_outside_a_runtime_is_an_error() {
    let error = Endpoint::client().unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
}

#[tokio::test]
async fn nobody_at_the_other_end_is_an_error_within_the_time_limit() {
    let pair = pair();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let remotes = vec![silent.local_addr().unwrap()];
    let target = Target {
        name: "localhost".into(),
        remotes,
    };
    let paths = PathsConfig {
        timeout: Duration::from_millis(300),
        ..PathsConfig::default()
    };
    let result = soon(pair.client.connect(&target, pair.config.clone(), &paths)).await;
    let error = result.unwrap_err();
    let limit = paths.timeout;
    assert!(
        matches!(error, ConnectError::TimedOut(after) if after == limit),
        "{error}"
    );
    assert!(error.to_string().contains("no answer"));
}

#[tokio::test]
async fn an_unknown_interface_is_named_before_anything_is_sent() {
    let pair = pair();
    let paths = paths(&["lp"]);
    let result = pair
        .client
        .connect(&pair.target, pair.config.clone(), &paths)
        .await;
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("no interface `lp`") && error.contains("did you mean `lo`"),
        "{error}"
    );
}

#[tokio::test]
async fn every_wanted_address_gets_a_path_and_all_of_them_carry_data() {
    let mut pair = pair();
    pair.use_paths_in_turn();
    let specs = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
    let (client, server, mut manager) = pair.connect(&specs).await;
    assert!(client.has_multipath());
    let open = soon(all_open(&mut manager)).await;
    let mut locals: Vec<IpAddr> = open.iter().map(|(local, _)| *local).collect();
    // The first one is the winner of the race.
    locals.sort_unstable();
    assert_eq!(locals, specs.map(|spec| spec.parse::<IpAddr>().unwrap()));
    let echo = tokio::spawn(echo(server));
    let traffic = Traffic::start(&client).await;
    // How soon depends on how often a busy machine causes one of them to be doubted.
    let carried = |id: PathId| client.path_stats(id).unwrap().counters.fresh_bytes;
    soon(async {
        while open.iter().any(|(_, id)| carried(*id) < 500_000) {
            traffic.passes(100_000).await;
        }
    })
    .await;
    soon(traffic.end()).await;
    soon(echo).await.unwrap();
    client.close(0, b"");
    let outlives = |(_, id): &(IpAddr, PathId)| client.path_stats(*id).is_some();
    assert!(open.iter().all(outlives), "counters outlive the connection");
}

/// A path manager that missed notices keeps its socket as long as it is told of.
#[tokio::test]
async fn a_path_that_is_given_up_is_known_until_the_peer_has_been_told() {
    let pair = pair();
    let (client, _server, mut manager) = pair.connect(&["127.0.0.2", "127.0.0.3"]).await;
    let open = soon(all_open(&mut manager)).await;
    let (_, id) = open[1];
    client.abandon_path(id, 0).unwrap();
    let known = client.known_path(id).expect("the peer does not know yet");
    assert!(known.closing);
    assert!(client.paths().iter().all(|(open, _)| *open != id));
}

/// Waits until every wanted path is open. Returns their local addresses and IDs. The IDs are not
/// fixed, since an attempt that failed for lack of time has used one.
async fn all_open(manager: &mut crate::PathManager) -> Vec<(IpAddr, PathId)> {
    loop {
        let entries = manager.entries();
        let open = entries.iter().filter_map(|entry| match entry.state {
            EntryState::Open(id) => Some((entry.candidate.local, id)),
            _ => None,
        });
        let open: Vec<_> = open.collect();
        if open.len() == entries.len() {
            return open;
        }
        assert!(manager.changed().await, "the connection lives");
    }
}

#[tokio::test]
async fn a_server_behind_a_wildcard_answers_from_the_address_it_was_asked_at() {
    let mut pair = pair();
    let port = pair.target.remotes[0].port();
    pair.target.remotes = vec![SocketAddr::from((Ipv4Addr::new(127, 0, 0, 99), port))];
    let (client, server, _manager) = pair.connect(&["127.0.0.2"]).await;
    let tuple = server.path_stats(PathId(0)).unwrap().tuple;
    assert_eq!(tuple.local, Some(IpAddr::from([127, 0, 0, 99])));
    drop(client);
}

#[tokio::test]
async fn http3_works_over_it() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let serving = tokio::spawn(async move {
        let mut server = h3::server::Connection::new(crate::h3::H3Connection::new(server))
            .await
            .unwrap();
        let resolver = server.accept().await.unwrap().unwrap();
        let (request, mut stream) = resolver.resolve_request().await.unwrap();
        assert_eq!(request.uri().path(), "/river");
        let response = http::Response::builder().status(200).body(()).unwrap();
        stream.send_response(response).await.unwrap();
        stream
            .send_data(Bytes::from_static(b"anabranch"))
            .await
            .unwrap();
        stream.finish().await.unwrap();
        // Until the client closes.
        let _ = server.accept().await;
    });
    let (mut driver, mut sender) = h3::client::new(crate::h3::H3Connection::new(client))
        .await
        .unwrap();
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    soon(async {
        let request = http::Request::get("https://localhost/river")
            .body(())
            .unwrap();
        let mut stream = sender.send_request(request).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 200);
        let mut body = Vec::new();
        while let Some(mut piece) = stream.recv_data().await.unwrap() {
            use bytes::Buf;
            body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        assert_eq!(body, b"anabranch");
    })
    .await;
    drop(sender);
    soon(driving).await.unwrap();
    soon(serving).await.unwrap();
}

/// Prepares to drop packets to an address silently, in the test's own namespace: afterwards rules
/// can precede the kernel's own table.
fn prepare_silencing() {
    ip("link set lo up");
    ip("rule add pref 10 lookup local");
    ip("rule del pref 0");
}

fn silence(address: &str) {
    ip(&format!("rule add pref 5 to {address} blackhole"));
}

#[test]
fn a_dead_first_path_costs_a_quarter_of_a_second() {
    in_namespace(|| async {
        prepare_silencing();
        silence("127.0.0.2");
        let pair = pair();
        let started = Instant::now();
        let (client, _server, manager) = pair.connect(&["127.0.0.2", "127.0.0.3"]).await;
        let took = started.elapsed();
        // Less than the time limit, because the attempts overlap. How much less depends on the
        // machine.
        let limit = PathsConfig::default().timeout;
        assert!(
            took >= Duration::from_millis(250) && took < limit,
            "{took:?}"
        );
        assert_eq!(
            manager.entries()[0].candidate.local,
            IpAddr::from([127, 0, 0, 3])
        );
        drop(client);
    });
}

/// Sends pieces of a pattern and reads them back, until told to stop.
struct Traffic {
    enough: Arc<AtomicBool>,
    received: Arc<AtomicUsize>,
    sending: tokio::task::JoinHandle<()>,
    reading: tokio::task::JoinHandle<()>,
}

impl Traffic {
    async fn start(connection: &Connection) -> Self {
        const PIECE: usize = 251 << 10;
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        let (enough, received) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (is_enough, count) = (Arc::clone(&enough), Arc::clone(&received));
        let sending = tokio::spawn(async move {
            let piece = pattern(PIECE);
            while !is_enough.load(Ordering::Relaxed) {
                send.write_bytes(piece.clone()).await.unwrap();
            }
            send.finish().unwrap();
            send.stopped().await.unwrap();
        });
        let reading = tokio::spawn(async move {
            while let Some(piece) = recv.read_chunk(usize::MAX).await.unwrap() {
                let at = count.fetch_add(piece.len(), Ordering::Relaxed);
                let right = |(n, byte): (usize, &u8)| usize::from(*byte) == (at + n) % 251;
                assert!(piece.iter().enumerate().all(right), "wrong bytes at {at}");
            }
        });
        Self {
            enough,
            received,
            sending,
            reading,
        }
    }

    /// Waits until this many more bytes have come back.
    async fn passes(&self, bytes: usize) {
        let until = self.received.load(Ordering::Relaxed) + bytes;
        while self.received.load(Ordering::Relaxed) < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) {
        self.enough.store(true, Ordering::Relaxed);
        self.sending.await.unwrap();
        self.reading.await.unwrap();
    }
}

/// A server that supports resumption, and a client that resumes.
fn resuming_pair() -> Pair {
    let mut pair = pair();
    let identity = Identity::generate().unwrap();
    let server = identity.server(&["localhost"]).unwrap().alpn(&[ALPN]);
    let server = server.resumption(tls::ServerResumption {
        clock: Arc::new(rustls::time_provider::DefaultTimeProvider),
        early_data: true,
    });
    let server = ServerConfig::new(server.build().unwrap());
    pair.server.set_server(Some(server));
    let client = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let client = client.alpn(&[ALPN]).resumption(true);
    pair.config = ClientConfig::new(client.build().unwrap());
    pair
}

#[tokio::test]
async fn what_is_written_before_the_handshake_ends_is_read_by_a_server_that_knows_the_client() {
    let mut pair = resuming_pair();
    let (connection, accepted, _) = pair.connect(&[]).await;
    soon(connection.resumable()).await;
    let state = connection.take_resumption().unwrap();
    assert!(!connection.is_resumed());
    drop((connection, accepted));
    pair.config.resume = Some(crate::engine::Resume {
        state,
        age: Duration::ZERO,
        early_data: true,
    });
    let socket = crate::sockets::SocketConfig::path(Ipv4Addr::LOCALHOST.into(), None);
    let socket = pair.client.add_socket(&socket).unwrap();
    let remote = pair.target.remotes[0];
    let connection = pair
        .client
        .begin_over(socket, remote, "localhost", pair.config.clone())
        .unwrap();
    assert!(connection.may_send_early_data());
    let (mut send, mut recv) = soon(connection.open_bi()).await.unwrap();
    soon(send.write_all(b"early")).await.unwrap();
    send.finish().unwrap();
    let serving = async {
        let accepted = pair.server.accept().await.unwrap();
        let (mut send, mut recv) = accepted.accept_bi().await.unwrap();
        let asked = recv.read_to_end(10).await.unwrap();
        send.write_all(&asked).await.unwrap();
        send.finish().unwrap();
        accepted
    };
    let asking = async { recv.read_to_end(10).await.unwrap() };
    let (_accepted, answer) = soon(async { tokio::join!(serving, asking) }).await;
    assert_eq!(&answer[..], b"early");
    soon(connection.established()).await.unwrap();
    assert_eq!(connection.early_data_accepted(), Some(true));
    assert!(connection.is_resumed());
}

#[tokio::test]
async fn each_attempt_of_a_race_resumes_from_a_state_of_its_own() {
    let mut pair = resuming_pair();
    let (connection, accepted, _) = pair.connect(&[]).await;
    let mut states = Vec::new();
    soon(async {
        while states.len() < 3 {
            connection.resumable().await;
            states.extend(connection.take_resumption());
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop((connection, accepted));
    // The first address does not answer.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    pair.target.remotes.insert(0, silent.local_addr().unwrap());
    let left = std::sync::Mutex::new(states);
    let begun = std::sync::Mutex::new(Vec::new());
    let resume = async || {
        Some(crate::engine::Resume {
            state: left.lock().unwrap().pop()?,
            age: Duration::ZERO,
            early_data: true,
        })
    };
    let (target, config) = (&pair.target, pair.config.clone());
    let paths = PathsConfig::default();
    let early = |connection| begun.lock().unwrap().push(connection);
    let connecting = pair
        .client
        .connect_early(target, config, &paths, resume, early);
    let (connection, _manager) = soon(connecting).await.unwrap();
    assert!(connection.is_resumed());
    assert_eq!(connection.early_data_accepted(), Some(true));
    let begun = begun.into_inner().unwrap();
    assert!(begun.len() == 2 && begun[1].is(&connection));
    // None was spent on attempts that were not made.
    assert_eq!(left.into_inner().unwrap().len(), 1);
}
