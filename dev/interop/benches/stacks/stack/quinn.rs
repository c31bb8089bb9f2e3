//! quinn.

use super::{LOOPBACK, Stack, answer, request, rustls_pair};
use anabranch_interop::SERVER_NAME;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) struct Quinn {
    client: quinn::Endpoint,
    remote: SocketAddr,
}

impl Stack for Quinn {
    type Connection = quinn::Connection;

    fn start(paths: usize) -> Self {
        assert_eq!(paths, 1, "quinn has no multipath");
        let (server, client) = rustls_pair();
        let server = QuicServerConfig::try_from(server).unwrap();
        let server = quinn::ServerConfig::with_crypto(Arc::new(server));
        let server = quinn::Endpoint::server(server, LOOPBACK).unwrap();
        let remote = server.local_addr().unwrap();
        tokio::spawn(async move {
            while let Some(incoming) = server.accept().await {
                tokio::spawn(serve(incoming));
            }
        });
        let config = QuicClientConfig::try_from(client).unwrap();
        let mut client = quinn::Endpoint::client(LOOPBACK).unwrap();
        client.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
        Self { client, remote }
    }

    async fn connect(&self) -> quinn::Connection {
        let connecting = self.client.connect(self.remote, SERVER_NAME).unwrap();
        connecting.await.unwrap()
    }

    async fn ask(connection: &quinn::Connection, bytes: usize) -> usize {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&request(bytes)).await.unwrap();
        send.finish().unwrap();
        let mut got = 0;
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.unwrap() {
            got += chunk.bytes.len();
        }
        got
    }
}

async fn serve(incoming: quinn::Incoming) {
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
