//! noq: the one peer that speaks multipath.

use std::any::Any;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq::congestion::{Controller, ControllerFactory};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{Connection, Endpoint, FourTuple, PathStatus, TransportConfig};

use crate::tls::{Certificate, client_config, server_config};
use crate::{
    Error, FetchConfig, Fetched, FurtherPath, PathUse, SERVER_NAME, ServeConfig, Server, service,
};

const PEER: &str = "noq";
/// Most paths a client's connection may have.
const CLIENT_PATHS: u32 = 8;
/// How long opening a path is tried while the server's connection IDs are on their way, unless the
/// caller says.
pub(crate) const PATH_PATIENCE: Duration = Duration::from_secs(150);
/// The pause between two tries.
const PATH_RETRY: Duration = Duration::from_millis(50);

/// A server whose connections the caller sees.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    certificate: Certificate,
    addr: SocketAddr,
    retry: bool,
}

impl Listener {
    /// Binds the socket.
    ///
    /// # Errors
    /// [`Error::Setup`] if the socket or the configuration is refused.
    pub fn bind(config: &ServeConfig) -> Result<Self, Error> {
        let setup = |reason: String| Error::Setup { peer: PEER, reason };
        let certificate = Certificate::generate()?;
        let crypto = server_config(&certificate, &config.alpn).map_err(|e| setup(e.to_string()))?;
        let crypto = QuicServerConfig::try_from(crypto).map_err(|e| setup(e.to_string()))?;
        let mut server = noq::ServerConfig::with_crypto(Arc::new(crypto));
        let transport = transport(config.max_paths, config.congestion_window);
        server.transport_config(Arc::new(transport));
        let endpoint = Endpoint::server(server, config.listen).map_err(|e| setup(e.to_string()))?;
        let addr = endpoint.local_addr().map_err(|e| setup(e.to_string()))?;
        Ok(Self {
            endpoint,
            certificate,
            addr,
            retry: config.retry,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// SHA-256 of the public key in its certificate, as SPKI DER.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.certificate.fingerprint
    }

    /// The next connection, established and served in the background; none once the endpoint is
    /// closed. Handshakes that fail are passed over.
    pub async fn accept(&self) -> Option<Connection> {
        loop {
            if let Some(connecting) = self.next().await?
                && let Ok(connection) = connecting.await
            {
                tokio::spawn(serve_connection(connection.clone()));
                return Some(connection);
            }
        }
    }

    /// The next attempt to connect; `Some(None)` if it was answered with a Retry or refused.
    async fn next(&self) -> Option<Option<noq::Connecting>> {
        let incoming = self.endpoint.accept().await?;
        if self.retry && !incoming.remote_address_validated() {
            // It fails only for an address that is validated.
            let _ = incoming.retry();
            return Some(None);
        }
        Some(incoming.accept().ok())
    }
}

/// Starts a server.
///
/// # Errors
/// [`Error::Setup`] if the socket or the configuration is refused.
#[allow(
    clippy::unused_async,
    reason = "the endpoint needs a runtime around it; all doors agree"
)]
pub async fn serve(config: &ServeConfig) -> Result<Server, Error> {
    let listener = Listener::bind(config)?;
    let (addr, certificate) = (listener.addr, listener.certificate.clone());
    let task = tokio::spawn(async move {
        while let Some(next) = listener.next().await {
            let Some(connecting) = next else { continue };
            tokio::spawn(async move {
                if let Ok(connection) = connecting.await {
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

/// A client's connection, established and confirmed.
#[derive(Debug)]
pub struct Client {
    /// Its endpoint: one socket, for all paths.
    pub endpoint: Endpoint,
    /// The connection.
    pub connection: Connection,
}

impl Client {
    /// Connects as `config` says, allowing `max_paths` paths; 0 leaves multipath out. Opens no
    /// further path and makes no request.
    ///
    /// # Errors
    /// Which step failed and what noq said.
    pub async fn connect(config: &FetchConfig, max_paths: u32) -> Result<Self, Error> {
        let setup = |reason: String| Error::Setup { peer: PEER, reason };
        let connect = |reason: String| Error::Connect { peer: PEER, reason };
        let crypto =
            client_config(&config.trust, &config.alpn).map_err(|e| setup(e.to_string()))?;
        let crypto = QuicClientConfig::try_from(crypto).map_err(|e| setup(e.to_string()))?;
        let mut client = noq::ClientConfig::new(Arc::new(crypto));
        let transport = transport(max_paths, config.congestion_window);
        client.transport_config(Arc::new(transport));
        // One socket for all local addresses when there are several.
        let local = match (max_paths, config.server.is_ipv4()) {
            (0, _) => config.local,
            (_, true) => Ipv4Addr::UNSPECIFIED.into(),
            (_, false) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(local, 0);
        let endpoint = Endpoint::client(local).map_err(|e| setup(e.to_string()))?;
        let connecting = endpoint.connect_with(client, config.server, SERVER_NAME);
        let connecting = connecting.map_err(|e| connect(e.to_string()))?;
        let connection = connecting.await.map_err(|e| connect(e.to_string()))?;
        connection
            .handshake_confirmed()
            .await
            .map_err(|e| connect(e.to_string()))?;
        Ok(Self {
            endpoint,
            connection,
        })
    }

    /// Opens a path, waiting until the server's connection IDs for it are there: minutes, if need
    /// be.
    ///
    /// # Errors
    /// [`Error::Path`] with number `path` and what noq said last.
    pub async fn open_path(
        &self,
        further: FurtherPath,
        status: PathStatus,
        path: usize,
    ) -> Result<noq::Path, Error> {
        let tuple = FourTuple::new(further.remote, Some(further.local));
        open_path(&self.connection, tuple, status, path, PATH_PATIENCE).await
    }

    /// Says goodbye and waits until that is sent.
    pub async fn close(self) {
        self.connection.close(0_u32.into(), b"done");
        self.endpoint.wait_all_draining().await;
    }
}

/// Connects, opens the paths, makes the request and says what came back.
///
/// # Errors
/// Which step failed and what noq said.
pub async fn fetch(config: &FetchConfig) -> Result<Fetched, Error> {
    let transfer = |reason: String| Error::Transfer { peer: PEER, reason };
    let max_paths = if config.further_paths.is_empty() {
        0
    } else {
        CLIENT_PATHS
    };
    let client = Client::connect(config, max_paths).await?;
    let connection = &client.connection;
    let mut open = Vec::new();
    open.extend(connection.path(noq::PathId::ZERO));
    for (at, &further) in config.further_paths.iter().enumerate() {
        let tuple = FourTuple::new(further.remote, Some(further.local));
        let (status, patience) = (PathStatus::Available, config.path_patience);
        open.push(open_path(connection, tuple, status, at + 1, patience).await?);
    }
    if config.key_update {
        connection.force_key_update();
    }
    let (send, receive) = connection
        .open_bi()
        .await
        .map_err(|e| transfer(e.to_string()))?;
    let answer = service::ask(config.request, receive, send).await;
    let answer = answer.map_err(|e| transfer(e.to_string()))?;
    let fetched = Fetched {
        answer,
        multipath: connection.is_multipath_enabled(),
        paths: open.iter().map(path_use).collect(),
    };
    client.close().await;
    Ok(fetched)
}

/// Opens a path once the server's connection IDs for it are there.
async fn open_path(
    connection: &Connection,
    tuple: FourTuple,
    status: PathStatus,
    path: usize,
    patience: Duration,
) -> Result<noq::Path, Error> {
    let started = Instant::now();
    loop {
        match connection.open_path(tuple, status).await {
            Ok(path) => return Ok(path),
            Err(_) if started.elapsed() < patience && connection.close_reason().is_none() => {}
            Err(e) => {
                return Err(Error::Path {
                    peer: PEER,
                    path,
                    reason: e.to_string(),
                });
            }
        }
        tokio::time::sleep(PATH_RETRY).await;
    }
}

fn path_use(path: &noq::Path) -> PathUse {
    let stats = path.stats();
    PathUse {
        sent_datagrams: stats.udp_tx.datagrams,
        received_datagrams: stats.udp_rx.datagrams,
        received_bytes: stats.udp_rx.bytes,
    }
}

fn transport(max_paths: u32, window: Option<u64>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_multipath_paths(max_paths);
    if let Some(window) = window {
        transport.congestion_controller_factory(Arc::new(FixedWindow(window)));
    }
    transport
}

/// A congestion window that neither grows nor shrinks, bytes.
#[derive(Debug, Clone, Copy)]
struct FixedWindow(u64);

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}

impl Controller for FixedWindow {
    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _is_persistent_congestion: bool,
        _is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost_pn: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
