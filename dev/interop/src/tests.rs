//! The foreign stacks against each other: what fails here is no fault of ours.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;

const SIZE: u64 = 3_000_000;

/// A transfer that hangs is a failed one.
async fn soon<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let limit = Duration::from_secs(180);
    tokio::time::timeout(limit, work)
        .await
        .expect("loopback transfers end within minutes")
}

fn by_certificate(server: &Server, request: Request) -> FetchConfig {
    let trust = Trust::Certificate(server.certificate().to_vec());
    FetchConfig::new(server.addr(), trust, request)
}

fn by_fingerprint(server: &Server, request: Request) -> FetchConfig {
    FetchConfig::new(
        server.addr(),
        Trust::Fingerprint(server.fingerprint()),
        request,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_gets_from_and_puts_to_every_server() {
    let config = ServeConfig::default();
    let servers = [
        ("noq", noq_peer::serve(&config).await.unwrap()),
        ("quinn", quinn_peer::serve(&config).await.unwrap()),
        ("s2n", s2n_peer::serve(&config).await.unwrap()),
    ];
    for (name, server) in &servers {
        for request in [Request::Get(SIZE), Request::Put(SIZE), Request::Get(0)] {
            let config = by_certificate(server, request);
            let expected = Answer::expected(request);
            let from = |fetched: Fetched| (fetched.answer, fetched.multipath);
            let noq = soon(noq_peer::fetch(&config)).await.unwrap();
            assert_eq!(from(noq), (expected, false), "noq and {name}");
            let quinn = soon(quinn_peer::fetch(&config)).await.unwrap();
            assert_eq!(from(quinn), (expected, false), "quinn and {name}");
            let s2n = soon(s2n_peer::fetch(&config)).await.unwrap();
            assert_eq!(from(s2n), (expected, false), "s2n and {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_uses_two_paths_between_loopback_addresses() {
    let config = ServeConfig {
        max_paths: 4,
        ..ServeConfig::default()
    };
    let server = noq_peer::serve(&config).await.unwrap();
    let mut config = by_fingerprint(&server, Request::Get(SIZE));
    let local = "127.0.0.2".parse().unwrap();
    config.further_paths.push(FurtherPath {
        local,
        remote: server.addr(),
    });
    let fetched = soon(noq_peer::fetch(&config)).await.unwrap();
    assert!(fetched.multipath);
    assert_eq!(fetched.answer, Answer::expected(config.request));
    assert_eq!(fetched.paths.len(), 2);
    for path in &fetched.paths {
        assert!(
            path.sent_datagrams > 0 && path.received_datagrams > 0,
            "{path:?}"
        );
    }
    let received: u64 = fetched.paths.iter().map(|path| path.received_bytes).sum();
    assert!(received > SIZE, "{received}");
}

#[tokio::test]
async fn a_path_to_a_server_without_multipath_cannot_be_opened() {
    let server = quinn_peer::serve(&ServeConfig::default()).await.unwrap();
    let mut config = by_fingerprint(&server, Request::Get(1));
    let local = "127.0.0.2".parse().unwrap();
    config.further_paths.push(FurtherPath {
        local,
        remote: server.addr(),
    });
    config.path_patience = Duration::from_secs(1);
    let error = soon(noq_peer::fetch(&config)).await.unwrap_err();
    assert!(matches!(error, Error::Path { path: 1, .. }), "{error}");
    let error = soon(quinn_peer::fetch(&config)).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_and_key_update_do_not_disturb_a_transfer() {
    let config = ServeConfig {
        retry: true,
        ..ServeConfig::default()
    };
    let servers = [
        noq_peer::serve(&config).await.unwrap(),
        quinn_peer::serve(&config).await.unwrap(),
    ];
    for server in &servers {
        let mut config = by_fingerprint(server, Request::Get(SIZE));
        config.key_update = true;
        let expected = Answer::expected(config.request);
        assert_eq!(
            soon(noq_peer::fetch(&config)).await.unwrap().answer,
            expected
        );
        assert_eq!(
            soon(quinn_peer::fetch(&config)).await.unwrap().answer,
            expected
        );
    }
}

#[tokio::test]
async fn the_wrong_fingerprint_ends_the_handshake() {
    let server = noq_peer::serve(&ServeConfig::default()).await.unwrap();
    let mut config = by_fingerprint(&server, Request::Get(1));
    config.trust = Trust::Fingerprint([0; 32]);
    let error = soon(noq_peer::fetch(&config)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let error = soon(quinn_peer::fetch(&config)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[tokio::test]
async fn no_protocol_in_common_ends_the_handshake() {
    let server = quinn_peer::serve(&ServeConfig::default()).await.unwrap();
    let mut config = by_fingerprint(&server, Request::Get(1));
    config.alpn = vec![b"something-else".to_vec()];
    let error = soon(noq_peer::fetch(&config)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_dropped_server_stops_listening() {
    let server = quinn_peer::serve(&ServeConfig::default()).await.unwrap();
    let addr: SocketAddr = server.addr();
    drop(server);
    for _ in 0..5000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if tokio::net::UdpSocket::bind(addr).await.is_ok() {
            return;
        }
    }
    panic!("{addr} is still in use");
}
