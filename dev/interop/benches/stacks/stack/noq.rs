//! noq, with multipath if asked for.

use super::{ANY, Stack, answer, request, rustls_pair};
use anabranch_interop::SERVER_NAME;
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Noq {
    client: noq::Endpoint,
    remote: SocketAddr,
    paths: u8,
}

impl Stack for Noq {
    type Connection = noq::Connection;

    fn start(paths: usize) -> Self {
        let (server, client) = rustls_pair();
        let mut transport = noq::TransportConfig::default();
        if paths > 1 {
            transport.max_concurrent_multipath_paths(4);
        }
        let transport = Arc::new(transport);
        let server = QuicServerConfig::try_from(server).unwrap();
        let mut server = noq::ServerConfig::with_crypto(Arc::new(server));
        server.transport_config(transport.clone());
        let server = noq::Endpoint::server(server, ANY).unwrap();
        let port = server.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Some(incoming) = server.accept().await {
                tokio::spawn(serve(incoming));
            }
        });
        let config = QuicClientConfig::try_from(client).unwrap();
        let mut config = noq::ClientConfig::new(Arc::new(config));
        config.transport_config(transport);
        let client = noq::Endpoint::client(ANY).unwrap();
        client.set_default_client_config(config);
        Self {
            client,
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            paths: u8::try_from(paths).unwrap(),
        }
    }

    async fn connect(&self) -> noq::Connection {
        let connecting = self.client.connect(self.remote, SERVER_NAME).unwrap();
        let connection = connecting.await.unwrap();
        for path in 1..self.paths {
            // It refuses a path for which the server has not sent a connection ID yet, and does
            // not say when one has come.
            connection.handshake_confirmed().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            let local = Ipv4Addr::new(127, 0, 0, 1 + path);
            let tuple = noq::FourTuple::new(self.remote, Some(local.into()));
            let opening = connection.open_path(tuple, noq::PathStatus::Available);
            // A path lasts without its handle.
            opening.await.unwrap();
        }
        connection
    }

    async fn ask(connection: &noq::Connection, bytes: usize) -> usize {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&request(bytes)).await.unwrap();
        send.finish().unwrap();
        let mut got = 0;
        while let Some(chunk) = receive.read_chunk(usize::MAX).await.unwrap() {
            got += chunk.len();
        }
        got
    }
}

async fn serve(incoming: noq::Incoming) {
    let connection = incoming.await.unwrap();
    // An error is the end of the connection.
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let request = receive.read_to_end(8).await.unwrap();
            for piece in answer(&request) {
                send.write_chunk(piece).await.unwrap();
            }
            send.finish().unwrap();
        });
    }
}
