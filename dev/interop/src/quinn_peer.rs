//! quinn: single path, the stack noq grew out of.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint};

use crate::tls::{Certificate, client_config, server_config};
use crate::{Error, FetchConfig, Fetched, PathUse, SERVER_NAME, ServeConfig, Server, service};

const PEER: &str = "quinn";

/// Starts a server.
///
/// # Errors
/// [`Error::Setup`] if the socket or the configuration is refused; [`Error::Unsupported`] for
/// multipath.
#[allow(
    clippy::unused_async,
    reason = "the endpoint needs a runtime around it; all doors agree"
)]
pub async fn serve(config: &ServeConfig) -> Result<Server, Error> {
    let setup = |reason: String| Error::Setup { peer: PEER, reason };
    if config.max_paths > 0 {
        return Err(Error::Unsupported {
            peer: PEER,
            what: "multipath",
        });
    }
    let certificate = Certificate::generate()?;
    let mut crypto = server_config(&certificate, &config.alpn).map_err(|e| setup(e.to_string()))?;
    if config.early_data {
        // QUIC knows no other amount (RFC 9001, section 4.6.1).
        crypto.max_early_data_size = u32::MAX;
    }
    let crypto = QuicServerConfig::try_from(crypto).map_err(|e| setup(e.to_string()))?;
    let server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let endpoint = Endpoint::server(server, config.listen).map_err(|e| setup(e.to_string()))?;
    let addr = endpoint.local_addr().map_err(|e| setup(e.to_string()))?;
    let retry = config.retry;
    let task = tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            if retry && !incoming.remote_address_validated() {
                // It fails only for an address that is validated.
                let _ = incoming.retry();
                continue;
            }
            tokio::spawn(async move {
                if let Ok(connection) = incoming.await {
                    serve_connection(connection).await;
                }
            });
        }
    });
    Ok(Server {
        addr,
        certificate,
        task,
    })
}

/// Answers requests and echoes datagrams until the connection ends.
async fn serve_connection(connection: Connection) {
    let echo = connection.clone();
    tokio::spawn(async move {
        while let Ok(datagram) = echo.read_datagram().await {
            if echo.send_datagram(datagram).is_err() {
                break;
            }
        }
    });
    while let Ok((send, receive)) = connection.accept_bi().await {
        // A client that goes away early is no failure of the server.
        tokio::spawn(async move { service::answer(receive, send).await });
    }
}

/// Connects, makes the request and says what came back.
///
/// # Errors
/// Which step failed and what quinn said; [`Error::Unsupported`] for further paths.
pub async fn fetch(config: &FetchConfig) -> Result<Fetched, Error> {
    let setup = |reason: String| Error::Setup { peer: PEER, reason };
    let connect = |reason: String| Error::Connect { peer: PEER, reason };
    let transfer = |reason: String| Error::Transfer { peer: PEER, reason };
    if !config.further_paths.is_empty() {
        return Err(Error::Unsupported {
            peer: PEER,
            what: "multipath",
        });
    }
    let crypto = client_config(&config.trust, &config.alpn).map_err(|e| setup(e.to_string()))?;
    let crypto = QuicClientConfig::try_from(crypto).map_err(|e| setup(e.to_string()))?;
    let client = quinn::ClientConfig::new(Arc::new(crypto));
    let local = SocketAddr::new(config.local, 0);
    let endpoint = Endpoint::client(local).map_err(|e| setup(e.to_string()))?;
    let connecting = endpoint.connect_with(client, config.server, SERVER_NAME);
    let connecting = connecting.map_err(|e| connect(e.to_string()))?;
    let connection = connecting.await.map_err(|e| connect(e.to_string()))?;
    if config.key_update {
        connection.force_key_update();
    }
    let (send, receive) = connection
        .open_bi()
        .await
        .map_err(|e| transfer(e.to_string()))?;
    let answer = service::ask(config.request, receive, send).await;
    let answer = answer.map_err(|e| transfer(e.to_string()))?;
    let stats = connection.stats();
    let path = PathUse {
        sent_datagrams: stats.udp_tx.datagrams,
        received_datagrams: stats.udp_rx.datagrams,
        received_bytes: stats.udp_rx.bytes,
    };
    connection.close(0_u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(Fetched {
        answer,
        multipath: false,
        paths: vec![path],
    })
}

/// A client that knows servers it was at before.
#[derive(Debug)]
pub struct Visitor {
    endpoint: Endpoint,
    server: SocketAddr,
}

/// What came of a request that was made before the handshake ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    /// The server's answer.
    pub answer: service::Answer,
    /// Whether the server read the request when it came; otherwise it was made again.
    pub is_accepted: bool,
}

impl Visitor {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// [`Error::Setup`] if the socket or the configuration is refused.
    pub fn new(config: &FetchConfig) -> Result<Self, Error> {
        let setup = |reason: String| Error::Setup { peer: PEER, reason };
        let crypto = client_config(&config.trust, &config.alpn);
        let mut crypto = crypto.map_err(|e| setup(e.to_string()))?;
        crypto.enable_early_data = true;
        let crypto = QuicClientConfig::try_from(crypto).map_err(|e| setup(e.to_string()))?;
        let local = SocketAddr::new(config.local, 0);
        let mut endpoint = Endpoint::client(local).map_err(|e| setup(e.to_string()))?;
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        Ok(Self {
            endpoint,
            server: config.server,
        })
    }

    /// Connects, makes the request and says goodbye. Tickets that came meanwhile are kept.
    ///
    /// # Errors
    /// Which step failed and what quinn said.
    pub async fn visit(&self, request: service::Request) -> Result<service::Answer, Error> {
        let connect = |reason: String| Error::Connect { peer: PEER, reason };
        let connection = self.connecting()?.await;
        let connection = connection.map_err(|e| connect(e.to_string()))?;
        let answer = ask(&connection, request).await;
        connection.close(0_u32.into(), b"done");
        answer
    }

    /// Makes the request in the client's first packets.
    ///
    /// # Errors
    /// [`Error::Connect`] if there is no ticket that allows it; or as [`visit`](Self::visit).
    pub async fn visit_early(&self, request: service::Request) -> Result<Early, Error> {
        let connect = |reason: &str| Error::Connect {
            peer: PEER,
            reason: reason.to_owned(),
        };
        let begun = self.connecting()?.into_0rtt();
        let (connection, accepted) = begun.map_err(|_| connect("no ticket for early data"))?;
        let (asked, is_accepted) = tokio::join!(ask(&connection, request), accepted);
        let answer = match asked {
            // quinn ends the streams of early data that was refused; the connection goes on.
            Err(_) if !is_accepted => ask(&connection, request).await?,
            asked => asked?,
        };
        connection.close(0_u32.into(), b"done");
        Ok(Early {
            answer,
            is_accepted,
        })
    }

    fn connecting(&self) -> Result<quinn::Connecting, Error> {
        let connecting = self.endpoint.connect(self.server, SERVER_NAME);
        connecting.map_err(|e| Error::Connect {
            peer: PEER,
            reason: e.to_string(),
        })
    }
}

async fn ask(connection: &Connection, request: service::Request) -> Result<service::Answer, Error> {
    let transfer = |reason: String| Error::Transfer { peer: PEER, reason };
    let stream = connection.open_bi().await;
    let (send, receive) = stream.map_err(|e| transfer(e.to_string()))?;
    let answer = service::ask(request, receive, send).await;
    answer.map_err(|e| transfer(e.to_string()))
}
