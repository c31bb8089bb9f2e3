//! The contenders: each opens one stream from server to client and fills it.

use anabranch_interop::tls::Certificate;
use anabranch_interop::{SERVER_NAME, Trust};
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ALPN: &[u8] = b"bulk";
/// Bytes handed to a stream at once.
const PIECE: usize = 64 << 10;
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Moves `bytes` and tells how long it took, connecting not included.
pub(crate) async fn transfer(name: &str, bytes: usize) -> Duration {
    match name {
        "quinn" => quinn(bytes).await,
        "noq" => noq(bytes, 1).await,
        "noq-2" => noq(bytes, 2).await,
        "anabranch" => anabranch(bytes, 1).await,
        "anabranch-2" => anabranch(bytes, 2).await,
        other => panic!("no contender is called {other}"),
    }
}

fn rustls_pair() -> (rustls::ServerConfig, rustls::ClientConfig) {
    let certificate = Certificate::generate().unwrap();
    let trust = Trust::Fingerprint(certificate.fingerprint);
    let alpn = [ALPN.to_vec()];
    let server = anabranch_interop::tls::server_config(&certificate, &alpn).unwrap();
    let client = anabranch_interop::tls::client_config(&trust, &alpn).unwrap();
    (server, client)
}

async fn quinn(bytes: usize) -> Duration {
    use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
    let (server, client) = rustls_pair();
    let server = QuicServerConfig::try_from(server).unwrap();
    let server = quinn::ServerConfig::with_crypto(Arc::new(server));
    let server = quinn::Endpoint::server(server, LOOPBACK).unwrap();
    let remote = server.local_addr().unwrap();
    tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        let piece = Bytes::from(vec![7; PIECE]);
        for _ in 0..bytes / PIECE {
            stream.write_chunk(piece.clone()).await.unwrap();
        }
        stream.finish().unwrap();
        connection.closed().await;
    });
    let endpoint = quinn::Endpoint::client(LOOPBACK).unwrap();
    let client = QuicClientConfig::try_from(client).unwrap();
    let client = quinn::ClientConfig::new(Arc::new(client));
    let connection = endpoint
        .connect_with(client, remote, SERVER_NAME)
        .unwrap()
        .await
        .unwrap();
    let mut stream = connection.accept_uni().await.unwrap();
    let started = Instant::now();
    let mut got = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await.unwrap() {
        got += chunk.bytes.len();
    }
    assert_eq!(got, bytes / PIECE * PIECE);
    started.elapsed()
}

async fn noq(bytes: usize, paths: usize) -> Duration {
    use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
    let (server, client) = rustls_pair();
    let mut transport = noq::TransportConfig::default();
    if paths > 1 {
        transport.max_concurrent_multipath_paths(4);
    }
    let transport = Arc::new(transport);
    let server = QuicServerConfig::try_from(server).unwrap();
    let mut server = noq::ServerConfig::with_crypto(Arc::new(server));
    server.transport_config(transport.clone());
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let server = noq::Endpoint::server(server, any).unwrap();
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port()));
    tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let (mut stream, _) = connection.accept_bi().await.unwrap();
        let piece = Bytes::from(vec![7; PIECE]);
        for _ in 0..bytes / PIECE {
            stream.write_chunk(piece.clone()).await.unwrap();
        }
        stream.finish().unwrap();
        connection.closed().await;
    });
    let endpoint = noq::Endpoint::client(any).unwrap();
    let client = QuicClientConfig::try_from(client).unwrap();
    let mut client = noq::ClientConfig::new(Arc::new(client));
    client.transport_config(transport);
    let connection = endpoint
        .connect_with(client, remote, SERVER_NAME)
        .unwrap()
        .await
        .unwrap();
    connection.handshake_confirmed().await.unwrap();
    let mut open = Vec::new();
    for path in 1..paths {
        let local = Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(path).unwrap());
        let tuple = noq::FourTuple::new(remote, Some(local.into()));
        tokio::time::sleep(Duration::from_millis(200)).await;
        open.push(
            connection
                .open_path(tuple, noq::PathStatus::Available)
                .await
                .unwrap(),
        );
    }
    let (mut ask, mut stream) = connection.open_bi().await.unwrap();
    ask.write_all(b"go").await.unwrap();
    let started = Instant::now();
    let mut got = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX).await.unwrap() {
        got += chunk.len();
    }
    assert_eq!(got, bytes / PIECE * PIECE);
    started.elapsed()
}

async fn anabranch(bytes: usize, paths: usize) -> Duration {
    use anabranch_net::engine::{ClientConfig, ServerConfig, tls};
    use anabranch_net::identity::{Identity, provider};
    use anabranch_net::{Endpoint, PathsConfig, Target};
    let identity = Identity::generate().unwrap();
    let server = identity
        .server(&[SERVER_NAME])
        .unwrap()
        .alpn(&[ALPN])
        .build()
        .unwrap();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let server = Endpoint::server(ServerConfig::new(server), &[any]).unwrap();
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addrs()[0].port()));
    tokio::spawn(async move {
        let connection = server.accept().await.unwrap();
        let (mut stream, _ask) = connection.accept_bi().await.unwrap();
        let piece = Bytes::from(vec![7; PIECE]);
        for _ in 0..bytes / PIECE {
            stream.write_bytes(piece.clone()).await.unwrap();
        }
        stream.finish().unwrap();
        connection.closed().await;
    });
    let endpoint = Endpoint::client().unwrap();
    let client = tls::ClientConfig::pinned(provider(), identity.fingerprint());
    let client = ClientConfig::new(client.alpn(&[ALPN]).build().unwrap());
    let target = Target {
        name: SERVER_NAME.into(),
        remotes: vec![remote],
    };
    let specs = (1..=paths)
        .map(|path| format!("127.0.0.{path}").parse().unwrap())
        .collect();
    let config = PathsConfig {
        specs,
        ..PathsConfig::default()
    };
    let (connection, _manager) = endpoint.connect(&target, client, &config).await.unwrap();
    while connection
        .paths()
        .iter()
        .filter(|(_, stats)| stats.validated)
        .count()
        < paths
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut ask, mut stream) = connection.open_bi().await.unwrap();
    ask.write_all(b"go").await.unwrap();
    let started = Instant::now();
    let mut got = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX).await.unwrap() {
        got += chunk.len();
    }
    assert_eq!(got, bytes / PIECE * PIECE);
    started.elapsed()
}
