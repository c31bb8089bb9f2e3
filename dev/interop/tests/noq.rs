//! This engine and noq on one wire: transfers over one and several paths.
//! `cargo test -p anabranch-interop --test noq`.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::print_stdout, reason = "figures of a run are worth reading")]

mod ours;
mod theirs;

use anabranch_interop::{Answer, FetchConfig, Fetched, FurtherPath, Request, ServeConfig, Trust};
use anabranch_interop::{noq_peer, noq_peer::Listener};
use anabranch_net::Connection;
use anabranch_net::engine::{DelayMethod, PathStats, TransportConfig};
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use ours::{Client, LARGE, Server, Setup, has_ipv6, in_turn, loopback, soon, soon_over, until, v6};
use std::net::SocketAddr;
use std::time::Duration;
use theirs::{FromNoq, ToNoq};

const REQUESTS: [Request; 4] = [
    Request::Get(0),
    Request::Get(1000),
    Request::Get(LARGE),
    Request::Put(LARGE),
];

/// The congestion window noq gets on each path, bytes. noq sends on the lowest path while that has
/// room, and 20 datagrams at most before it looks for what came back: with windows of six packets
/// the third path gets its share, whatever the machine is busy with.
const NARROW: u64 = 6 * 1452;

/// The least each path has to carry of [`LARGE`] to count as used.
const SHARE: u64 = 100_000;

async fn fetched(config: FetchConfig) -> Fetched {
    let fetched = soon(noq_peer::fetch(&config)).await.unwrap();
    assert_eq!(fetched.answer, Answer::expected(config.request));
    fetched
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_multipath_each_gets_from_and_puts_to_the_other() {
    let server = noq_peer::serve(&ServeConfig::default()).await.unwrap();
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    assert!(!client.connection.has_multipath());
    let ours = Server::usual();
    for request in REQUESTS {
        assert_eq!(client.ask(request).await, Answer::expected(request));
        assert!(!fetched(ours.ask(request)).await.multipath);
    }
    client.close().await;
}

/// Makes a request, and asserts that each path of the connection has carried its share.
async fn shared(
    request: Request,
    ours: &Connection,
    theirs: &noq::Connection,
    we_send: bool,
    answer: impl Future<Output = Answer>,
) {
    let carried = |id: PathId| {
        let PathStats { counters, .. } = ours::path(ours, id.0);
        if we_send {
            counters.sent_bytes
        } else {
            counters.received_bytes
        }
    };
    let paths = ours.paths();
    let before: Vec<_> = paths.iter().map(|(id, _)| (*id, carried(*id))).collect();
    assert_eq!(answer.await, Answer::expected(request));
    for (id, before) in &before {
        let (ours, theirs) = (ours::path(ours, id.0), theirs::path(theirs, id.0));
        println!(
            "{request:?} path {id}: carried {}; we sent {} and received {}, noq received {} and \
             sent {}; our srtt {:?}, lost {}",
            carried(*id) - before,
            ours.counters.sent_bytes,
            ours.counters.received_bytes,
            theirs.udp_rx.bytes,
            theirs.udp_tx.bytes,
            ours.smoothed_rtt,
            ours.counters.lost_packets,
        );
        let (there, back) = (theirs.udp_rx.bytes, theirs.udp_tx.bytes);
        assert!(there > 0 && back > 0, "{theirs:?}");
        assert!(carried(*id) - before > SHARE, "path {id} is left out");
    }
}

/// noq has no timestamps, but acknowledges all paths by the lowest: our forward delays can be
/// compared, once each path has carried something of late.
async fn assert_way_back_is_common(client: &Client) {
    let connection = &client.connection;
    let ids: Vec<PathId> = connection.paths().into_iter().map(|(id, _)| id).collect();
    for &id in ids.iter().filter(|&&id| id != PathId::ZERO) {
        let is_late = soon_over();
        let found = loop {
            let found =
                connection.with_engine(|engine| engine.forward_difference(id, PathId::ZERO));
            if let Some(found) = found.unwrap() {
                break found;
            }
            assert!(!is_late(), "no difference is known for path {id}");
            // A datagram in turn on each.
            client.echo(b"there and back").await;
        };
        assert_eq!(found.method, DelayMethod::Shared(PathId::ZERO), "{found:?}");
        let stats = ours::path(connection, id.0);
        assert!(stats.forward_delay_us.is_some(), "{stats:?}");
    }
}

/// Moves [`LARGE`] bytes each way between our client and noq over paths from these addresses.
async fn over_paths_to_noq(first: SocketAddr, locals: &[u8]) {
    let config = ServeConfig {
        listen: first,
        max_paths: theirs::PATHS,
        congestion_window: Some(NARROW),
        ..ServeConfig::default()
    };
    let to = ToNoq::connect_over(Listener::bind(&config).unwrap(), None).await;
    for &last in locals {
        let id = to
            .client
            .open_path(to.path_from(last), PathStatus::Available)
            .await;
        to.events
            .wait("noq to see the path", theirs::is_established(id.0))
            .await;
    }
    let open = to.client.connection.paths().len();
    assert_eq!(open, locals.len() + 1);
    for request in [Request::Put(LARGE), Request::Get(LARGE)] {
        let we_send = matches!(request, Request::Put(_));
        let answer = to.client.ask(request);
        shared(request, &to.client.connection, &to.theirs, we_send, answer).await;
        if we_send {
            assert_way_back_is_common(&to.client).await;
        }
    }
    to.client.close().await;
    // D28: noq may miss a close behind its acknowledgements; ours arrives.
    soon(to.theirs.closed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_uses_two_paths_to_noq() {
    over_paths_to_noq(SocketAddr::new(loopback(1), 0), &[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_uses_three_paths_to_noq() {
    over_paths_to_noq(SocketAddr::new(loopback(1), 0), &[2, 3]).await;
}

/// Moves [`LARGE`] bytes each way between noq's client and our server over so many paths.
async fn over_paths_from_noq(locals: &[u8]) {
    let from = FromNoq::connect_narrowly(NARROW).await;
    let mut open = Vec::new();
    for &last in locals {
        open.push(from.open_path(last, noq::PathStatus::Available).await);
    }
    let ids = 0..=locals.len() as u32;
    until("our side to validate the paths", || {
        ids.clone().all(|id| {
            from.ours
                .path_stats(PathId(id))
                .is_some_and(|path| path.validated)
        })
    })
    .await;
    for request in [Request::Get(LARGE), Request::Put(LARGE)] {
        let we_send = matches!(request, Request::Get(_));
        let answer = from.ask(request);
        shared(
            request,
            &from.ours,
            &from.client.connection,
            we_send,
            answer,
        )
        .await;
    }
    from.client.close().await;
    soon(from.ours.closed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_uses_two_paths_to_our_server() {
    over_paths_from_noq(&[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_uses_three_paths_to_our_server() {
    over_paths_from_noq(&[2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_paths_work_over_ipv6_in_both_roles() {
    if !has_ipv6() {
        return;
    }
    // The loopback interface has one IPv6 address; our client's paths differ in their ports.
    let config = ServeConfig {
        listen: SocketAddr::new(v6(), 0),
        max_paths: theirs::PATHS,
        ..ServeConfig::default()
    };
    let to = ToNoq::connect_over(Listener::bind(&config).unwrap(), None).await;
    let further = FurtherPath {
        local: v6(),
        remote: to.listener.addr(),
    };
    let id = to.client.open_path(further, PathStatus::Available).await;
    let request = Request::Put(LARGE);
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    assert!(ours::path(&to.client.connection, id.0).counters.sent_bytes > SHARE);
    to.client.close().await;

    let server = Server::start(Setup {
        listen: v6(),
        ..Setup::default()
    });
    let mut config = server.ask(Request::Get(LARGE));
    config.further_paths.push(FurtherPath {
        local: v6(),
        remote: server.addr,
    });
    let fetched = fetched(config).await;
    assert!(fetched.multipath);
    assert_eq!(fetched.paths.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_accepts_the_retry_of_the_other_with_multipath_on() {
    let config = ServeConfig {
        retry: true,
        max_paths: theirs::PATHS,
        ..ServeConfig::default()
    };
    let to = ToNoq::connect_over(Listener::bind(&config).unwrap(), None).await;
    to.client
        .open_path(to.path_from(2), PathStatus::Available)
        .await;
    let request = Request::Get(LARGE);
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    to.client.close().await;

    let server = Server::start(Setup {
        retry: true,
        ..Setup::default()
    });
    let mut config = server.ask(request);
    config.further_paths.push(server.path_from(2));
    assert!(fetched(config).await.multipath);
}

/// D10: at each key update noq drops late packets of the old keys on paths whose packet numbers are
/// behind: a burst of loss, which may cost time and must not cost more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_updated_in_mid_transfer_over_two_paths_by_either_side() {
    let to = ToNoq::connect().await;
    to.client
        .open_path(to.path_from(2), PathStatus::Available)
        .await;
    for request in [Request::Put(LARGE), Request::Get(LARGE)] {
        let count = || to.client.connection.stats().keys_updated;
        let before = count();
        let update = ours::update_keys_soon(&to.client.connection);
        let answer = to.client.ask_and(request, LARGE / 4, update).await;
        assert_eq!(answer, Answer::expected(request));
        until("our keys to be updated", || count() > before).await;
        let (before, is_late) = (count(), soon_over());
        // noq does nothing while its last keys are young.
        while count() == before {
            assert!(!is_late(), "noq updates no keys");
            let theirs = to.theirs.clone();
            let update = move || theirs.force_key_update();
            let answer = to.client.ask_and(request, LARGE / 4, update).await;
            assert_eq!(answer, Answer::expected(request));
        }
    }
    for id in 0..2 {
        let path = ours::path(&to.client.connection, id);
        println!("path {id}: {} packets lost", path.counters.lost_packets);
    }
    to.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_come_back_over_either_of_two_paths() {
    let to = ToNoq::connect().await;
    to.client
        .open_path(to.path_from(2), PathStatus::Available)
        .await;
    for _ in 0..10 {
        to.client.echo(b"there and back").await;
    }
    let sent = |id| theirs::path(&to.theirs, id).frame_rx.datagram;
    assert!(sent(0) > 0 && sent(1) > 0, "{} and {}", sent(0), sent(1));
    to.client.close().await;
}

/// D21: noq announces multipath even where an end without connection IDs could not use it; ours
/// always have connection IDs, so the agreement holds whoever limits it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_stays_on_one_path_with_a_server_of_ours_that_allows_one() {
    let transport = TransportConfig {
        max_paths: 1,
        ..in_turn()
    };
    let server = Server::start(Setup {
        transport,
        ..Setup::default()
    });
    let mut config = server.ask(Request::Get(1000));
    config.further_paths.push(server.path_from(2));
    config.trust = Trust::Fingerprint(server.certificate.fingerprint);
    config.path_patience = Duration::from_secs(1);
    let error = soon(noq_peer::fetch(&config)).await.unwrap_err();
    assert!(
        matches!(error, anabranch_interop::Error::Path { path: 1, .. }),
        "{error}"
    );
    config.further_paths.clear();
    fetched(config).await;
}
