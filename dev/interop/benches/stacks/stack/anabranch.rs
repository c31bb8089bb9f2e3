//! This engine, with the defaults of `anabranch-net`; its cryptography can be another.

use super::{ALPN, ANY, Stack, answer, request};
use anabranch_interop::SERVER_NAME;
use anabranch_net::engine::tls::{ClientTls, CryptoProvider, ServerTls};
use anabranch_net::engine::{ClientConfig, ServerConfig};
use anabranch_net::identity::{Identity, provider};
use anabranch_net::{Connection, Endpoint, PathManager, PathsConfig, Target};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

pub(crate) struct Anabranch<C = Shipped> {
    client: Endpoint,
    config: ClientConfig,
    remote: SocketAddr,
    paths: usize,
    cryptography: PhantomData<C>,
}

/// Whose cryptography protects packets and handshakes.
pub(crate) trait Cryptography: Send + Sync + 'static {
    fn provider() -> Arc<CryptoProvider>;
}

/// What ships.
pub(crate) struct Shipped;

impl Cryptography for Shipped {
    fn provider() -> Arc<CryptoProvider> {
        provider()
    }
}

/// AWS-LC, with cipher suites in the order of what ships.
#[cfg(feature = "aws-lc")]
pub(crate) struct AwsLc;

#[cfg(feature = "aws-lc")]
impl Cryptography for AwsLc {
    fn provider() -> Arc<CryptoProvider> {
        let mut aws_lc = rustls::crypto::aws_lc_rs::default_provider();
        let shipped = provider();
        aws_lc.cipher_suites.sort_by_key(|suite| {
            let mut order = shipped.cipher_suites.iter();
            order.position(|shipped| shipped.suite() == suite.suite())
        });
        Arc::new(aws_lc)
    }
}

impl<C: Cryptography> Stack for Anabranch<C> {
    /// The manager looks after the paths as long as it lives.
    type Connection = (Connection, Arc<PathManager>);

    fn start(paths: usize) -> Self {
        let identity = Identity::generate().unwrap();
        let chain = vec![identity.certificate(&[SERVER_NAME]).unwrap()];
        let key = identity.key().pkcs8_der();
        let server = ServerTls::with_certificates(C::provider(), chain, key).unwrap();
        let server = ServerConfig::new(server.alpn(&[ALPN]).build().unwrap());
        let server = Endpoint::server(server, &[ANY]).unwrap();
        let port = server.local_addrs()[0].port();
        tokio::spawn(async move {
            while let Some(connection) = server.accept().await {
                tokio::spawn(serve(connection));
            }
        });
        let config = ClientTls::pinned(C::provider(), identity.fingerprint());
        Self {
            client: Endpoint::client().unwrap(),
            config: ClientConfig::new(config.alpn(&[ALPN]).build().unwrap()),
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            paths,
            cryptography: PhantomData,
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
