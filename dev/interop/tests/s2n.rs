//! This engine and s2n-quic on one wire: `cargo test -p anabranch-interop --test s2n`.
//!
//! s2n-quic shares no code with us, not even TLS. It sends no Retry on demand, updates keys only at
//! their limit and has no multipath.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod ours;

use anabranch_interop::{Answer, FetchConfig, Request, ServeConfig, s2n_peer};
use ours::{Client, LARGE, Server, Setup, has_ipv6, in_turn, loopback, soon, v6};
use std::net::SocketAddr;

const REQUESTS: [Request; 4] = [
    Request::Get(0),
    Request::Get(1000),
    Request::Get(LARGE),
    Request::Put(LARGE),
];

async fn fetched(server: &Server, request: Request) {
    let config = server.ask_by_certificate(request);
    let fetched = soon(s2n_peer::fetch(&config)).await.unwrap();
    assert_eq!(fetched.answer, Answer::expected(request));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_gets_from_and_puts_to_s2n() {
    let server = s2n_peer::serve(&ServeConfig::default()).await.unwrap();
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    for request in REQUESTS {
        assert_eq!(client.ask(request).await, Answer::expected(request));
    }
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2n_gets_from_and_puts_to_our_server() {
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
    let server = s2n_peer::serve(&config).await.unwrap();
    let client = Client::connect(server.addr(), server.fingerprint()).await;
    let request = Request::Get(LARGE);
    assert_eq!(client.ask(request).await, Answer::expected(request));
    client.close().await;
    let server = Server::start(Setup {
        listen: v6(),
        ..Setup::default()
    });
    fetched(&server, request).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2n_accepts_our_retry() {
    let server = Server::start(Setup {
        retry: true,
        ..Setup::default()
    });
    fetched(&server, Request::Get(LARGE)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_updates_keys_in_mid_transfer() {
    let server = s2n_peer::serve(&ServeConfig::default()).await.unwrap();
    ours::our_client_updates_keys(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_updates_keys_towards_s2n() {
    let mut server = Server::usual();
    let config = server.ask_by_certificate(Request::Get(0));
    ours::our_server_updates_keys(&mut server, |request| {
        let config = FetchConfig {
            request,
            ..config.clone()
        };
        async move { s2n_peer::fetch(&config).await }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_key_ends_the_handshake_on_either_side() {
    let server = s2n_peer::serve(&ServeConfig::default()).await.unwrap();
    let connecting = Client::connect_as(server.addr(), [0; 32], loopback(1), in_turn());
    assert!(connecting.await.is_err());
    let (server, other) = (Server::usual(), Server::usual());
    let mut config = server.ask_by_certificate(Request::Get(1));
    config.trust = anabranch_interop::Trust::Certificate(other.certificate.der.clone());
    assert!(soon(s2n_peer::fetch(&config)).await.is_err());
}
