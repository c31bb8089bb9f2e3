//! This engine, with the defaults of `anabranch-net`.

use super::{ALPN, ANY, Stack, answer, request};
use anabranch_interop::SERVER_NAME;
use anabranch_net::engine::{ClientConfig, ServerConfig, tls};
use anabranch_net::identity::{Identity, provider};
use anabranch_net::{Connection, Endpoint, PathManager, PathsConfig, Target};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

pub(crate) struct Anabranch {
    client: Endpoint,
    config: ClientConfig,
    remote: SocketAddr,
    paths: usize,
}

impl Stack for Anabranch {
    /// The manager looks after the paths as long as it lives.
    type Connection = (Connection, Arc<PathManager>);

    fn start(paths: usize) -> Self {
        let identity = Identity::generate().unwrap();
        let server = identity.server(&[SERVER_NAME]).unwrap();
        let server = ServerConfig::new(server.alpn(&[ALPN]).build().unwrap());
        let server = Endpoint::server(server, &[ANY]).unwrap();
        let port = server.local_addrs()[0].port();
        tokio::spawn(async move {
            while let Some(connection) = server.accept().await {
                tokio::spawn(serve(connection));
            }
        });
        let config = tls::ClientTls::pinned(provider(), identity.fingerprint());
        Self {
            client: Endpoint::client().unwrap(),
            config: ClientConfig::new(config.alpn(&[ALPN]).build().unwrap()),
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            paths,
        }
    }

    async fn connect(&self) -> Self::Connection {
        let target = Target {
            name: SERVER_NAME.into(),
            remotes: vec![self.remote],
        };
        let several = (1..=self.paths).filter(|_| self.paths > 1);
        let specs = several.map(|path| format!("127.0.0.{path}").parse().unwrap());
        let config = PathsConfig {
            specs: specs.collect(),
            ..PathsConfig::default()
        };
        let connecting = self.client.connect(&target, self.config.clone(), &config);
        let (connection, manager) = connecting.await.unwrap();
        connection.wait_for_paths(self.paths).await.unwrap();
        (connection, Arc::new(manager))
    }

    async fn ask((connection, _): &Self::Connection, bytes: usize) -> usize {
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

async fn serve(connection: Connection) {
    // An error is the end of the connection.
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let request = receive.read_to_end(8).await.unwrap();
            for piece in answer(&request) {
                send.write_bytes(piece).await.unwrap();
            }
            send.finish().unwrap();
        });
    }
}
