//! TLS configuration, and the only module (with its children) that knows the TLS library.
//!
//! A client that pins a key asks for it either bare (RFC 7250) or inside a certificate. A server
//! that has both answers in the form the client's first message asks for, so that peers without
//! raw public keys reach it too. The cryptography is a [`CryptoProvider`] that the caller supplies:
//! this crate links none.
//!
//! A client resumes what it was given for one connection (`resume`); a server remembers sessions
//! in memory, each for one use (`tickets`). Neither does so unless it is asked to.

#[cfg(test)]
pub(crate) mod fixed;
mod identity;
mod protect;
mod resume;
mod session;
mod tickets;
mod verify;

pub use identity::{Fingerprint, FingerprintError, Identity, KeyPair};
pub(crate) use protect::{
    DirectionKeys, HeaderKey, InitialSuite, Keys, PacketKey, PhaseKeys, Secrets, TAG_LEN,
};
pub(crate) use resume::SavedSession;
pub use rustls::KeyLog;
pub use rustls::crypto::CryptoProvider;
pub use rustls::pki_types::UnixTime;
pub use rustls::time_provider::TimeProvider;
pub(crate) use session::{KeyChange, Session};

use crate::resumption::MAX_STATES;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{self, Version};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{CipherSuite, NoKeyLog, RootCertStore, SupportedCipherSuite, Tls13CipherSuite};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use tickets::{Origin, Tickets};
use verify::PinVerifier;

/// A configuration or a connection attempt that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Initial packets need `TLS_AES_128_GCM_SHA256` (RFC 9001, section 5.2).
    #[error("the cryptography provider lacks TLS_AES_128_GCM_SHA256 for QUIC")]
    NoInitialSuite,
    /// QUIC requires ALPN (RFC 9001, section 8.1).
    #[error("no application protocol (ALPN) is configured")]
    NoAlpn,
    /// An ALPN name is 1 to 255 bytes long.
    #[error("an application protocol name is 1 to 255 bytes long")]
    BadAlpn,
    /// A list of certificates is empty.
    #[error("no certificate was given")]
    NoCertificate,
    /// A list of pinned keys is empty.
    #[error("no pinned key was given")]
    NoPin,
    /// The certificate is for another key.
    #[error("the certificate does not certify this key")]
    KeyMismatch,
    /// A private key cannot be used.
    #[error("the private key cannot be used: {0}")]
    Key(String),
    /// A certificate cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
    /// Neither a DNS name nor an IP address.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
    /// The TLS library refused.
    #[error("TLS: {0}")]
    Tls(String),
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error.to_string())
    }
}

/// Which clients a server admits.
#[derive(Debug, Clone, Default)]
pub enum ClientAuth {
    /// All clients; none is asked for a certificate.
    #[default]
    None,
    /// Clients that hold one of these keys, shown bare or in a certificate.
    Pinned(Vec<Fingerprint>),
    /// Clients with a certificate that leads to one of these roots.
    Ca {
        /// Certificates of the authorities, in DER.
        roots: Vec<Vec<u8>>,
        /// Tells the time that validity periods are compared with.
        clock: Arc<dyn TimeProvider>,
    },
}

/// Stands in where time decides nothing: pinned keys do not expire.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}

fn initial_suite(provider: &CryptoProvider) -> Result<InitialSuite, ConfigError> {
    let suites = provider
        .cipher_suites
        .iter()
        .filter_map(SupportedCipherSuite::tls13);
    suites
        .filter(|suite| suite.common.suite == CipherSuite::TLS13_AES_128_GCM_SHA256)
        .find_map(Tls13CipherSuite::quic_suite)
        .map(InitialSuite)
        .ok_or(ConfigError::NoInitialSuite)
}

fn checked_alpn(protocols: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ConfigError> {
    if protocols.is_empty() {
        return Err(ConfigError::NoAlpn);
    }
    if protocols
        .iter()
        .any(|name| name.is_empty() || name.len() > 255)
    {
        return Err(ConfigError::BadAlpn);
    }
    Ok(protocols)
}

fn root_store(roots: &[Vec<u8>]) -> Result<Arc<RootCertStore>, ConfigError> {
    if roots.is_empty() {
        return Err(ConfigError::NoCertificate);
    }
    let mut store = RootCertStore::empty();
    for der in roots {
        store
            .add(CertificateDer::from(der.as_slice()))
            .map_err(|error| ConfigError::Certificate(error.to_string()))?;
    }
    Ok(Arc::new(store))
}

/// The TLS part of a client's settings: whom it trusts, who it is. What else a connection needs is
/// in [`config::ClientConfig`](crate::config::ClientConfig), which holds one of these. Cheap to
/// clone.
#[derive(Clone)]
pub struct ClientTls {
    tls: Arc<rustls::ClientConfig>,
    initial: InitialSuite,
    provider: Arc<CryptoProvider>,
    /// Whether servers must show a raw key.
    raw_server: bool,
    remembers: bool,
    trust: [u8; 32],
}

impl ClientTls {
    /// Takes a configuration of rustls as it is: whom it trusts, who it is, its application
    /// protocols, its key log. Sessions are not resumed: that needs a configuration made by the
    /// other functions.
    ///
    /// # Errors
    ///
    /// It lacks what QUIC needs: TLS 1.3, `TLS_AES_128_GCM_SHA256`, an application protocol.
    pub fn from_rustls(mut tls: rustls::ClientConfig) -> Result<Self, ConfigError> {
        let provider = Arc::clone(tls.crypto_provider());
        let initial = initial_suite(&provider)?;
        tls.alpn_protocols = checked_alpn(tls.alpn_protocols)?;
        tls.resumption = Resumption::disabled();
        tls.enable_early_data = false;
        let tls = Arc::new(tls);
        // The library checks its versions only when it makes a connection.
        let nobody = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
        quic::ClientConnection::new(Arc::clone(&tls), Version::V1, nobody, Vec::new())?;
        Ok(Self {
            tls,
            initial,
            provider,
            raw_server: false,
            remembers: false,
            trust: Sha256::digest(b"rustls").into(),
        })
    }

    /// Accepts only the server whose raw public key (RFC 7250) has this fingerprint.
    pub fn pinned(provider: Arc<CryptoProvider>, pin: Fingerprint) -> ClientTlsBuilder {
        ClientTlsBuilder::new(provider, Trust::Pin { pin, raw: true })
    }

    /// Accepts only a server whose certificate, by whomever signed, certifies the key with this
    /// fingerprint: for servers that do not know raw public keys.
    pub fn pinned_certificate(provider: Arc<CryptoProvider>, pin: Fingerprint) -> ClientTlsBuilder {
        ClientTlsBuilder::new(provider, Trust::Pin { pin, raw: false })
    }

    /// Accepts servers with a certificate for their name that leads to one of `roots` (in DER) and
    /// is valid at the time `clock` tells.
    pub fn with_roots(
        provider: Arc<CryptoProvider>,
        roots: Vec<Vec<u8>>,
        clock: Arc<dyn TimeProvider>,
    ) -> ClientTlsBuilder {
        ClientTlsBuilder::new(provider, Trust::Roots { roots, clock })
    }

    /// Whether packets of paths other than 0 can be protected.
    pub fn supports_multipath(&self) -> bool {
        self.initial.supports_multipath()
    }

    /// A digest of whom the client trusts and its own identity. Saved state is reused only where it
    /// is equal.
    pub fn trust_digest(&self) -> [u8; 32] {
        self.trust
    }

    pub(crate) fn initial_suite(&self) -> InitialSuite {
        self.initial
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Trust {
    Pin {
        pin: Fingerprint,
        raw: bool,
    },
    Roots {
        roots: Vec<Vec<u8>>,
        clock: Arc<dyn TimeProvider>,
    },
}

/// Builds a [`ClientTls`].
#[derive(Debug)]
#[must_use]
pub struct ClientTlsBuilder {
    provider: Arc<CryptoProvider>,
    trust: Trust,
    alpn: Vec<Vec<u8>>,
    identity: Option<Identity>,
    key_log: Arc<dyn KeyLog>,
    remembers: bool,
}

impl ClientTlsBuilder {
    fn new(provider: Arc<CryptoProvider>, trust: Trust) -> Self {
        Self {
            provider,
            trust,
            alpn: Vec::new(),
            identity: None,
            key_log: Arc::new(NoKeyLog),
            remembers: false,
        }
    }

    /// Application protocols, the preferred one first. At least one is needed.
    pub fn alpn(mut self, protocols: &[&[u8]]) -> Self {
        self.alpn = protocols.iter().map(|name| name.to_vec()).collect();
        self
    }

    /// The client's identity, for servers that ask.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Where to write the secrets that decrypt recorded packets.
    pub fn key_log(mut self, key_log: Arc<dyn KeyLog>) -> Self {
        self.key_log = key_log;
        self
    }

    /// Whether sessions can be resumed: connections yield what they are
    /// [resumed from](crate::Connection::take_resumption).
    pub fn resumption(mut self, on: bool) -> Self {
        self.remembers = on;
        self
    }

    /// Checks everything once, for all connections.
    pub fn build(self) -> Result<ClientTls, ConfigError> {
        let initial = initial_suite(&self.provider)?;
        let alpn = checked_alpn(self.alpn)?;
        let trust = trust_digest(&self.trust, self.identity.as_ref());
        let clock: Arc<dyn TimeProvider> = match &self.trust {
            Trust::Pin { .. } => Arc::new(NoClock),
            Trust::Roots { clock, .. } => Arc::clone(clock),
        };
        let provider = if self.remembers {
            resume::tapped(&self.provider)
        } else {
            self.provider
        };
        let mut verifier = self.trust.verifier(&provider)?;
        if self.remembers {
            verifier = Arc::new(resume::Gate {
                inner: verifier,
                algorithms: provider.signature_verification_algorithms,
            });
        }
        let builder = rustls::ClientConfig::builder_with_details(Arc::clone(&provider), clock)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier));
        let mut tls = match self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity::RawKey(key)) => builder.with_client_cert_resolver(Arc::new(
                AlwaysResolvesClientRawPublicKeys::new(Arc::new(key.raw())),
            )),
            Some(Identity::Certificates { chain, key }) => builder.with_client_cert_resolver(
                Arc::new(SingleCertAndKey::from(key.certified(&chain)?)),
            ),
        };
        tls.alpn_protocols = alpn;
        tls.key_log = self.key_log;
        tls.resumption = Resumption::disabled();
        Ok(ClientTls {
            tls: Arc::new(tls),
            initial,
            provider,
            raw_server: verifier.requires_raw_public_keys(),
            remembers: self.remembers,
            trust,
        })
    }
}

impl Trust {
    /// Who judges servers.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
        Ok(match self {
            Self::Pin { pin, raw } => Arc::new(PinVerifier {
                pins: vec![*pin],
                raw: *raw,
                algorithms: provider.signature_verification_algorithms,
            }),
            Self::Roots { roots, .. } => {
                WebPkiServerVerifier::builder_with_provider(root_store(roots)?, provider.clone())
                    .build()
                    .map_err(|error| ConfigError::Tls(error.to_string()))?
            }
        })
    }
}

/// Each part with its length, so that no two settings make the same bytes.
fn trust_digest(trust: &Trust, identity: Option<&Identity>) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    match trust {
        Trust::Pin { pin, raw } => {
            part(if *raw { b"raw key" } else { b"certified key" });
            part(&pin.0);
        }
        Trust::Roots { roots, .. } => {
            part(b"roots");
            for root in roots {
                part(root);
            }
        }
    }
    match identity {
        None => part(b"nobody"),
        Some(Identity::RawKey(key)) => {
            part(b"as raw key");
            part(key.spki_der());
        }
        Some(Identity::Certificates { chain, .. }) => {
            part(b"as certified");
            for der in chain {
                part(der);
            }
        }
    }
    digest.finalize().into()
}

/// The TLS part of a server's settings: who it is, whom it admits. What else it needs is in
/// [`config::ServerConfig`](crate::config::ServerConfig), which holds one of these. Cheap to clone.
#[derive(Clone)]
pub struct ServerTls {
    /// By whether the server shows a raw key, and whether the client does.
    variants: [[Option<Arc<rustls::ServerConfig>>; 2]; 2],
    initial: InitialSuite,
    /// The sessions that can be resumed, if any.
    tickets: Option<Arc<Tickets>>,
    /// Where the client is that a connection is made for.
    client: Origin,
}

impl ServerTls {
    /// Takes a configuration of rustls as it is: its certificates, which clients it admits, its
    /// application protocols, its key log. It gives no tickets: that needs a configuration made by
    /// the other functions.
    ///
    /// # Errors
    ///
    /// It lacks what QUIC needs: TLS 1.3, `TLS_AES_128_GCM_SHA256`, an application protocol.
    pub fn from_rustls(mut tls: rustls::ServerConfig) -> Result<Self, ConfigError> {
        let initial = initial_suite(tls.crypto_provider())?;
        tls.alpn_protocols = checked_alpn(tls.alpn_protocols)?;
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        let tls = Arc::new(tls);
        // The library checks its versions only when it makes a connection.
        quic::ServerConnection::new(Arc::clone(&tls), Version::V1, Vec::new())?;
        Ok(Self {
            variants: [[Some(tls), None], [None, None]],
            initial,
            tickets: None,
            client: Origin::default(),
        })
    }

    /// Shows the bare public key (RFC 7250). Only clients that ask for one get through.
    pub fn with_raw_key(provider: Arc<CryptoProvider>, key: &KeyPair) -> ServerTlsBuilder {
        ServerTlsBuilder::new(provider, Identity::RawKey(key.clone()))
    }

    /// Shows the certificates (in DER, leaf first), or the bare public key to a client that asks
    /// for one. `key` is the leaf's private key in PKCS#8.
    pub fn with_certificates(
        provider: Arc<CryptoProvider>,
        chain: Vec<Vec<u8>>,
        key: &[u8],
    ) -> Result<ServerTlsBuilder, ConfigError> {
        let key = KeyPair::from_pkcs8_der(&provider, key)?;
        Ok(ServerTlsBuilder::new(
            provider,
            Identity::Certificates { chain, key },
        ))
    }

    /// Whether packets of paths other than 0 can be protected.
    pub fn supports_multipath(&self) -> bool {
        self.initial.supports_multipath()
    }

    pub(crate) fn initial_suite(&self) -> InitialSuite {
        self.initial
    }

    /// Tickets for each connection.
    fn tickets_given(&self) -> usize {
        self.tickets.as_ref().map_or(0, |_| MAX_STATES)
    }

    /// This configuration for a client at this address, which shares the memory for tickets with
    /// the others.
    pub(crate) fn for_client(&self, client: Origin) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// The variant for a client that would accept, or would show, a raw public key.
    ///
    /// Where there is none, the nearest one is picked; it then refuses with the right alert.
    fn variant(&self, server_raw: bool, client_raw: bool) -> Arc<rustls::ServerConfig> {
        let wanted = [
            (server_raw, client_raw),
            (server_raw, !client_raw),
            (!server_raw, client_raw),
            (!server_raw, !client_raw),
        ];
        let found = wanted.into_iter().find_map(|(server, client)| {
            self.variants[usize::from(server)][usize::from(client)].clone()
        });
        found.expect("a server configuration is built with at least one variant")
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// Builds a [`ServerTls`].
#[derive(Debug)]
#[must_use]
pub struct ServerTlsBuilder {
    provider: Arc<CryptoProvider>,
    identity: Identity,
    alpn: Vec<Vec<u8>>,
    client_auth: ClientAuth,
    key_log: Arc<dyn KeyLog>,
    resumption: Option<ServerResumption>,
}

/// How a server has its clients resume.
#[derive(Debug, Clone)]
pub struct ServerResumption {
    /// Tells the age of tickets: early data that is older than its client says is not read.
    pub clock: Arc<dyn TimeProvider>,
    /// Whether data is read that clients send before the handshake ends. Each ticket is good once
    /// in this process; what reads such data must not mind that it may come twice if the client
    /// [sends it again](crate::Event::EarlyDataRejected) to another process of the same server.
    pub early_data: bool,
}

impl ServerTlsBuilder {
    fn new(provider: Arc<CryptoProvider>, identity: Identity) -> Self {
        Self {
            provider,
            identity,
            alpn: Vec::new(),
            client_auth: ClientAuth::None,
            key_log: Arc::new(NoKeyLog),
            resumption: None,
        }
    }

    /// Application protocols, the preferred one first. At least one is needed.
    pub fn alpn(mut self, protocols: &[&[u8]]) -> Self {
        self.alpn = protocols.iter().map(|name| name.to_vec()).collect();
        self
    }

    /// Which clients are admitted.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> Self {
        self.client_auth = client_auth;
        self
    }

    /// Where to write the secrets that decrypt recorded packets.
    pub fn key_log(mut self, key_log: Arc<dyn KeyLog>) -> Self {
        self.key_log = key_log;
        self
    }

    /// Has clients resume; they pay for a full handshake each time unless this is called, and if
    /// they are admitted by certificates ([`ClientAuth::Ca`]): a session that is resumed shows
    /// none, so that nobody would notice when they expire.
    pub fn resumption(mut self, resumption: ServerResumption) -> Self {
        self.resumption = Some(resumption);
        self
    }

    /// Checks everything once, for all connections.
    pub fn build(self) -> Result<ServerTls, ConfigError> {
        let initial = initial_suite(&self.provider)?;
        let alpn = checked_alpn(self.alpn.clone())?;
        let (raw, certified) = match &self.identity {
            Identity::RawKey(key) => (key.raw(), None),
            Identity::Certificates { chain, key } => (key.raw(), Some(key.certified(chain)?)),
        };
        let expire = matches!(self.client_auth, ClientAuth::Ca { .. });
        let resumption = self.resumption.clone().filter(|_| !expire);
        let by_certificate = certified
            .map(|key| Arc::new(SingleCertAndKey::from(key)) as Arc<dyn ResolvesServerCert>);
        let by_raw_key = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(raw)));
        let mut variants: [[Option<Arc<rustls::ServerConfig>>; 2]; 2] = Default::default();
        for (row, resolver) in variants
            .iter_mut()
            .zip([by_certificate, Some(by_raw_key as Arc<_>)])
        {
            let Some(resolver) = resolver else { continue };
            for (cell, client_raw) in row.iter_mut().zip([false, true]) {
                let Some((verifier, clock)) = self.verifier(client_raw)? else {
                    continue;
                };
                let mut tls =
                    rustls::ServerConfig::builder_with_details(Arc::clone(&self.provider), clock)
                        .with_protocol_versions(&[&TLS13])?
                        .with_client_cert_verifier(verifier)
                        .with_cert_resolver(Arc::clone(&resolver));
                tls.alpn_protocols.clone_from(&alpn);
                tls.key_log = Arc::clone(&self.key_log);
                tls.send_tls13_tickets = 0;
                if let Some(resumption) = &resumption {
                    tls.send_tls13_tickets = MAX_STATES;
                    tls.time_provider = Arc::clone(&resumption.clock);
                    // QUIC knows no other amounts (RFC 9001, section 4.6.1).
                    tls.max_early_data_size = if resumption.early_data { u32::MAX } else { 0 };
                }
                *cell = Some(Arc::new(tls));
            }
        }
        Ok(ServerTls {
            variants,
            initial,
            tickets: resumption.map(|_| Arc::default()),
            client: Origin::default(),
        })
    }

    /// Who judges clients that show raw keys or certificates, and by which clock; `None` if such
    /// clients are not admitted.
    fn verifier(&self, raw: bool) -> Result<Option<Judge>, ConfigError> {
        let algorithms = self.provider.signature_verification_algorithms;
        let pins = match &self.client_auth {
            // A client may announce a raw key that nobody asks for: its form is still agreed on.
            ClientAuth::None => Vec::new(),
            ClientAuth::Pinned(pins) if pins.is_empty() => return Err(ConfigError::NoPin),
            ClientAuth::Pinned(pins) => pins.clone(),
            ClientAuth::Ca { .. } if raw => return Ok(None),
            ClientAuth::Ca { roots, clock } => {
                let provider = Arc::clone(&self.provider);
                let roots = root_store(roots)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|error| ConfigError::Tls(error.to_string()))?;
                return Ok(Some((verifier, Arc::clone(clock))));
            }
        };
        Ok(Some((
            Arc::new(PinVerifier {
                pins,
                raw,
                algorithms,
            }),
            Arc::new(NoClock),
        )))
    }
}

type Judge = (Arc<dyn ClientCertVerifier>, Arc<dyn TimeProvider>);
