//! This engine and quinn on one wire: `cargo test -p anabranch-interop --test quinn`.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod ours;

use anabranch_interop::{Answer, FetchConfig, Fetched, Request, ServeConfig, quinn_peer};
use anabranch_net::engine::{PathNotice, TransportConfig};
use anabranch_testbed::Relay;
use ours::{Client, LARGE, Server, Setup, has_ipv6, in_turn, loopback, soon, v6, watch};
use std::net::SocketAddr;

async fn quinn_server(config: ServeConfig) -> anabranch_interop::Server {
    quinn_peer::serve(&config).await.unwrap()
}

/// All of `requests` over one connection.
async fn all(client: &Client, requests: &[Request]) {
    for &request in requests {
        assert_eq!(client.ask(request).await, Answer::expected(request));
    }
}

async fn fetched(server: &Server, request: Request) -> Fetched {
    let fetched = soon(quinn_peer::fetch(&server.ask(request))).await.unwrap();
    assert_eq!(fetched.answer, Answer::expected(request));
    fetched
}

const REQUESTS: [Request; 4] = [
    Request::Get(0),
    Request::Get(1000),
    Request::Get(LARGE),
    Request::Put(LARGE),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_gets_from_and_puts_to_quinn() {
    let server = quinn_server(ServeConfig::default()).await;
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    assert!(!client.connection.has_multipath());
    all(&client, &REQUESTS).await;
    let path = ours::path(&client.connection, 0);
    assert!(path.ecn, "quinn reports what marks arrive");
    assert!(path.mtu > 1200, "{}", path.mtu);
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quinn_gets_from_and_puts_to_our_server() {
    let server = Server::usual();
    for request in REQUESTS {
        fetched(&server, request).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_work_over_ipv6() {
    if !has_ipv6() {
        return;
    }
    let config = ServeConfig {
        listen: SocketAddr::new(v6(), 0),
        ..ServeConfig::default()
    };
    let server = quinn_server(config).await;
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    all(&client, &[Request::Get(LARGE)]).await;
    client.close().await;
    let server = Server::start(Setup {
        listen: v6(),
        ..Setup::default()
    });
    fetched(&server, Request::Get(LARGE)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_accepts_the_retry_of_the_other() {
    let config = ServeConfig {
        retry: true,
        ..ServeConfig::default()
    };
    let server = quinn_server(config).await;
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    all(&client, &[Request::Get(LARGE)]).await;
    client.close().await;
    let server = Server::start(Setup {
        retry: true,
        ..Setup::default()
    });
    fetched(&server, Request::Get(LARGE)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_updates_keys_in_mid_transfer() {
    let server = quinn_server(ServeConfig::default()).await;
    ours::our_client_updates_keys(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quinn_updates_keys_towards_our_server() {
    let mut server = Server::usual();
    for request in [Request::Get(LARGE), Request::Put(LARGE)] {
        let mut config = server.ask(request);
        config.key_update = true;
        let fetched = soon(quinn_peer::fetch(&config)).await.unwrap();
        assert_eq!(fetched.answer, Answer::expected(request));
        let accepted = server.accepted().await;
        assert!(accepted.stats().keys_updated >= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_updates_keys_towards_quinn() {
    let mut server = Server::usual();
    let config = server.ask(Request::Get(0));
    ours::our_server_updates_keys(&mut server, |request| {
        let config = FetchConfig {
            request,
            ..config.clone()
        };
        async move { quinn_peer::fetch(&config).await }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_come_back_from_quinn() {
    let server = quinn_server(ServeConfig::default()).await;
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    client.echo(b"there and back").await;
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_key_ends_the_handshake_on_either_side() {
    let server = quinn_server(ServeConfig::default()).await;
    let connecting = Client::connect_as(server.addr(), [0; 32], loopback(1), in_turn());
    assert!(connecting.await.is_err());
    let server = Server::usual();
    let mut config = server.ask(Request::Get(1));
    config.trust = anabranch_interop::Trust::Fingerprint([0; 32]);
    assert!(soon(quinn_peer::fetch(&config)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_follows_a_quinn_client_whose_address_changes() {
    let mut server = Server::usual();
    let relay = Relay::start(SocketAddr::new(loopback(1), 0), server.addr).unwrap();
    relay.rebind_after(LARGE / 4);
    let mut config = server.ask(Request::Put(LARGE));
    config.server = relay.addr();
    let fetching = tokio::spawn(async move { quinn_peer::fetch(&config).await });
    let accepted = server.accepted().await;
    let notices = watch(&accepted);
    let fetched = soon(fetching).await.unwrap().unwrap();
    assert_eq!(fetched.answer, Answer::expected(Request::Put(LARGE)));
    let moved = |notice: &PathNotice| matches!(notice, PathNotice::Moved { .. });
    notices.wait("the move to be noticed", moved).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quinn_follows_our_client_whose_address_changes() {
    let server = quinn_server(ServeConfig::default()).await;
    let relay = Relay::start(SocketAddr::new(loopback(1), 0), server.addr()).unwrap();
    let transport = TransportConfig::default();
    let pin = server.fingerprint();
    let client = Client::connect_as(relay.addr(), pin, loopback(1), transport);
    let client = client.await.unwrap();
    relay.rebind_after(LARGE / 4);
    let request = Request::Put(LARGE);
    let answer = client.ask(request).await;
    assert_eq!(answer, Answer::expected(request));
    client.close().await;
}
