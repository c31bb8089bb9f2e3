//! Other QUIC implementations as peers for tests: noq (multipath), quinn and s2n-quic.
//!
//! Nothing of ours runs here: each module wraps one foreign stack on real sockets, with the same
//! two doors. `serve` starts a server and says where and with which certificate; `fetch` is a
//! client that makes one request and says what came back. All of them speak the request format of
//! [`service`] under the ALPN `hq-interop`, so every pair can be put together.
//!
//! Which stack can do what:
//!
//! | | multipath | TLS | keys it takes | Retry | key update on demand |
//! |---|---|---|---|---|---|
//! | [`noq_peer`] | yes | rustls | any | yes | yes |
//! | [`quinn_peer`] | no | rustls | any | yes | yes |
//! | [`s2n_peer`] | no | s2n-tls | ECDSA, RSA; no Ed25519, no pinning | no | no |

pub mod noq_peer;
pub mod quinn_peer;
pub mod s2n_peer;
pub mod service;
pub mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

pub use service::{Answer, Request};
pub use tls::Trust;

/// The application protocol all peers offer unless told otherwise.
pub const ALPN: &[u8] = b"hq-interop";
/// The name in every peer's certificate.
pub const SERVER_NAME: &str = "localhost";

/// Why a foreign peer could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be set up: a socket, a certificate, a setting.
    #[error("cannot set up {peer}: {reason}")]
    Setup {
        /// Which implementation.
        peer: &'static str,
        /// What it said.
        reason: String,
    },
    /// The handshake failed.
    #[error("{peer} cannot connect: {reason}")]
    Connect {
        /// Which implementation.
        peer: &'static str,
        /// What it said.
        reason: String,
    },
    /// A further path could not be opened.
    #[error("{peer} cannot open path {path}: {reason}")]
    Path {
        /// Which implementation.
        peer: &'static str,
        /// Position in [`FetchConfig::further_paths`], from 1.
        path: usize,
        /// What it said.
        reason: String,
    },
    /// The connection or stream broke, or the answer was no answer.
    #[error("transfer with {peer} failed: {reason}")]
    Transfer {
        /// Which implementation.
        peer: &'static str,
        /// What it said.
        reason: String,
    },
    /// The peer does not have this feature.
    #[error("{peer} has no {what}")]
    Unsupported {
        /// Which implementation.
        peer: &'static str,
        /// What was asked for.
        what: &'static str,
    },
}

/// How a foreign server is started.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Where it listens; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Application protocols, the preferred one first.
    pub alpn: Vec<Vec<u8>>,
    /// Paths it allows at the same time; 0 leaves multipath out of the handshake.
    pub max_paths: u32,
    /// Whether it answers a first Initial with a Retry.
    pub retry: bool,
    /// Whether it reads data that a client it knows sends before the handshake ends (0-RTT). Only
    /// [`quinn_peer`] can.
    pub early_data: bool,
    /// A congestion window for each path that stays as it is, bytes, in place of the stack's own
    /// congestion control. Only [`noq_peer`] can.
    pub congestion_window: Option<u64>,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
            alpn: vec![ALPN.to_vec()],
            max_paths: 0,
            retry: false,
            early_data: false,
            congestion_window: None,
        }
    }
}

/// A foreign server; it stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    certificate: tls::Certificate,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
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

    /// Its self-signed certificate, DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate.der
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a foreign client connects and what it asks for.
#[derive(Debug, Clone)]
pub struct FetchConfig {
    /// Where the server listens.
    pub server: SocketAddr,
    /// How the server proves who it is.
    pub trust: Trust,
    /// Application protocols to offer.
    pub alpn: Vec<Vec<u8>>,
    /// Local address of the first path.
    pub local: IpAddr,
    /// Further paths to open before the request is made; not empty turns multipath on.
    pub further_paths: Vec<FurtherPath>,
    /// What to ask for.
    pub request: Request,
    /// How long to go on trying to open a further path: what that takes from the server may be
    /// long on its way to a machine that is busy.
    pub path_patience: Duration,
    /// Whether to update the packet protection keys once before the request.
    pub key_update: bool,
    /// A congestion window for each path that stays as it is, bytes, in place of the stack's own
    /// congestion control. Only [`noq_peer`] can.
    pub congestion_window: Option<u64>,
}

impl FetchConfig {
    /// A plain request from a loopback address.
    #[must_use]
    pub fn new(server: SocketAddr, trust: Trust, request: Request) -> Self {
        Self {
            server,
            trust,
            alpn: vec![ALPN.to_vec()],
            local: Ipv4Addr::LOCALHOST.into(),
            further_paths: Vec::new(),
            path_patience: noq_peer::PATH_PATIENCE,
            request,
            key_update: false,
            congestion_window: None,
        }
    }
}

/// A path beside the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FurtherPath {
    /// Local address; the port is the client's one socket's.
    pub local: IpAddr,
    /// Address of the server for this path.
    pub remote: SocketAddr,
}

/// What a foreign client saw.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The server's answer.
    pub answer: Answer,
    /// Whether both sides agreed on multipath.
    pub multipath: bool,
    /// Every path that was open at the end, in the order of path IDs; empty for a stack that
    /// does not tell.
    pub paths: Vec<PathUse>,
}

/// What one path carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathUse {
    /// UDP datagrams sent on it.
    pub sent_datagrams: u64,
    /// UDP datagrams received on it.
    pub received_datagrams: u64,
    /// Bytes of the received ones.
    pub received_bytes: u64,
}

#[cfg(test)]
mod tests;
