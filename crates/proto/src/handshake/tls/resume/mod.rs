//! TLS sessions that outlive a process.
//!
//! The TLS library resumes sessions, but keeps what it needs for that in a value that cannot be
//! written down. So a client writes down what the value is made of: the ticket as it came, the key
//! that goes with it (see [`tap`]), the cipher suite and whom the server proved to be. To resume,
//! it has the library make the value again, by a handshake that never leaves this function: a
//! server made up for the purpose shows the saved certificate or key, and then repeats the saved
//! ticket.
//!
//! The rehearsal is run with the configuration of the connection to come. So whoever is trusted is
//! asked again: a server that is not pinned any more, or whose certificate has expired, is not
//! resumed. Only the signature is another one, by a key that exists for the rehearsal alone
//! ([`Gate`]): the ticket's key stands for the proof that was given when it was issued.

mod tap;

use super::verify::PinVerifier;
use super::{ClientTls, CryptoProvider, KeyPair, NoClock};
use crate::resumption::MAX_STATES;
use crate::time::Duration;
use anabranch_wire::cursor::Reader;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::quic::{self, Version};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, Error, NamedGroup, NoKeyLog, SignatureScheme};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
pub(super) use tap::tapped;

/// The type of a `NewSessionTicket` message (RFC 8446, section 4).
const NEW_SESSION_TICKET: u8 = 4;
/// Type and length of a message.
const HEADER: usize = 4;
/// The longest message of a server after the handshake that is collected.
const MAX_MESSAGE: usize = 8 * 1024;
/// Turns in which a rehearsal is over: client, server, client, server.
const MAX_TURNS: usize = 6;

/// What a TLS session is resumed from. It holds a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SavedSession {
    /// Digest of whom the client trusted, and who it was.
    pub(crate) trust: [u8; 32],
    /// The number of the cipher suite.
    pub(crate) suite: u16,
    /// The application protocol, which early data belongs to.
    pub(crate) alpn: Vec<u8>,
    /// The `NewSessionTicket` message.
    pub(crate) ticket: Vec<u8>,
    /// The key that goes with the ticket.
    pub(crate) key: Vec<u8>,
    /// The server's certificates, or its bare key.
    pub(crate) chain: Vec<Vec<u8>>,
}

impl SavedSession {
    /// For how long the server remembers the session, counted from when the ticket came.
    pub(crate) fn lifetime(&self) -> Duration {
        let seconds = self.number_at(HEADER).unwrap_or(0);
        // RFC 8446, section 4.6.1: a week at the most.
        Duration::from_secs(u64::from(seconds.min(7 * 24 * 60 * 60)))
    }

    fn number_at(&self, offset: usize) -> Option<u32> {
        let bytes = self.ticket.get(offset..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    }

    /// The ticket as it would be if it came now: its lifetime is shorter, and its age, which the
    /// server checks, goes into the number that the age is masked with.
    fn aged(&self, age: Duration) -> Option<Vec<u8>> {
        let left = self.lifetime().checked_sub(age)?.as_secs();
        let mask = self.number_at(HEADER + 4)?;
        let age_ms = age.as_millis() as u32;
        let mut ticket = self.ticket.clone();
        let left = u32::try_from(left).ok().filter(|left| *left > 0)?;
        ticket[HEADER..HEADER + 4].copy_from_slice(&left.to_be_bytes());
        let masked = mask.wrapping_add(age_ms).to_be_bytes();
        ticket[HEADER + 4..HEADER + 8].copy_from_slice(&masked);
        Some(ticket)
    }

    /// Whether it can have been made by [`Collector`]: what is loaded need not.
    pub(crate) fn is_plausible(&self) -> bool {
        let length = self.ticket.len().saturating_sub(HEADER) as u32;
        let is_ticket = self.ticket.len() <= MAX_MESSAGE
            && self.number_at(0) == Some(u32::from(NEW_SESSION_TICKET) << 24 | length)
            && self.number_at(HEADER + 4).is_some();
        is_ticket && [32, 48].contains(&self.key.len()) && !self.chain.is_empty()
    }
}

/// Picks the tickets out of what a server says after the handshake.
#[derive(Default)]
pub(super) struct Collector {
    /// The beginning of a message.
    message: Vec<u8>,
    /// The library reads messages that were too long for the collector.
    is_lost: bool,
    keys: VecDeque<Vec<u8>>,
    found: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Collector {
    /// Has `read` take `bytes`, and looks at what it makes of them.
    pub(super) fn watch<T>(&mut self, bytes: &[u8], read: impl FnOnce() -> T) -> T {
        let (result, keys) = tap::listen(read);
        if self.is_lost {
            return result;
        }
        self.keys.extend(keys);
        self.message.extend_from_slice(bytes);
        while let Some(message) = self.pop() {
            if message[0] == NEW_SESSION_TICKET
                && let Some(key) = self.keys.pop_front()
            {
                self.found.push_back((message, key));
            }
        }
        // Keys are derived when their message is complete: none may be left over.
        if self.message.len() > MAX_MESSAGE || !self.keys.is_empty() {
            self.is_lost = true;
            self.message = Vec::new();
            self.keys.clear();
        }
        // Until somebody asks for them.
        while self.found.len() > MAX_STATES {
            self.found.pop_front();
        }
        result
    }

    /// The next whole message.
    fn pop(&mut self) -> Option<Vec<u8>> {
        let mut reader = Reader::new(&self.message);
        let head = reader.u32().ok()?;
        let length = HEADER + (head & 0x00ff_ffff) as usize;
        (self.message.len() >= length).then(|| self.message.drain(..length).collect())
    }

    /// The newest ticket and its key.
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.found.pop_back()
    }

    pub(super) fn has_some(&self) -> bool {
        !self.found.is_empty()
    }
}

/// The configuration that resumes `saved`, `age` after its ticket came; `None` if the configuration
/// would not trust that server, or if the session is over.
pub(super) fn resuming(
    config: &ClientTls,
    name: &ServerName<'static>,
    saved: &SavedSession,
    age: Duration,
    early_data: bool,
) -> Option<Arc<rustls::ClientConfig>> {
    let store = Arc::new(OneTicket::default());
    let mut tls = rustls::ClientConfig::clone(&config.tls);
    tls.resumption = Resumption::store(Arc::clone(&store) as Arc<dyn ClientSessionStore>);
    let mut real = tls.clone();
    real.enable_early_data = early_data && tls.alpn_protocols.contains(&saved.alpn);
    // Its secrets would be taken for those of a connection.
    tls.key_log = Arc::new(NoKeyLog);
    tls.alpn_protocols = vec![saved.alpn.clone()];
    rehearse(config, tls, name, saved, &saved.aged(age)?)?;
    let is_there = store.ticket().is_some();
    is_there.then(|| Arc::new(real))
}

fn rehearse(
    config: &ClientTls,
    tls: rustls::ClientConfig,
    name: &ServerName<'static>,
    saved: &SavedSession,
    ticket: &[u8],
) -> Option<()> {
    let mut seed = [0; 32];
    config.provider.secure_random.fill(&mut seed).ok()?;
    let key = KeyPair::generate(&config.provider, seed).ok()?;
    let raw_client = tls.client_auth_cert_resolver.only_raw_public_keys();
    let server = stand_in(config, raw_client, saved, &key)?;
    let mut client =
        quic::ClientConnection::new(Arc::new(tls), Version::V1, name.clone(), Vec::new()).ok()?;
    let mut server = quic::ServerConnection::new(Arc::new(server), Version::V1, Vec::new()).ok()?;
    Gate::admit(key.spki_der(), || {
        for _ in 0..MAX_TURNS {
            hand_over(
                |out| client.write_hs(out).is_some(),
                |said| server.read_hs(said),
            )?;
            hand_over(
                |out| server.write_hs(out).is_some(),
                |said| client.read_hs(said),
            )?;
            if !client.is_handshaking() {
                break;
            }
        }
        (!client.is_handshaking()).then_some(())
    })?;
    tap::speak(&saved.key, || client.read_hs(ticket)).ok()
}

/// Moves what one side says to the other, encryption level by encryption level.
fn hand_over(
    mut write: impl FnMut(&mut Vec<u8>) -> bool,
    mut read: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Option<()> {
    loop {
        let mut said = Vec::new();
        let more = write(&mut said);
        if said.is_empty() && !more {
            return Some(());
        }
        if !said.is_empty() {
            read(&said).ok()?;
        }
    }
}

/// A server that shows what the real one showed.
fn stand_in(
    config: &ClientTls,
    raw_client: bool,
    saved: &SavedSession,
    key: &KeyPair,
) -> Option<rustls::ServerConfig> {
    let mut provider = CryptoProvider::clone(&config.provider);
    let suites = &mut provider.cipher_suites;
    suites.retain(|suite| u16::from(suite.suite()) == saved.suite);
    let chain = saved.chain.iter().cloned().map(CertificateDer::from);
    let mut shown = key.raw();
    shown.cert = chain.collect();
    let clients = PinVerifier {
        pins: Vec::new(),
        raw: raw_client,
        algorithms: provider.signature_verification_algorithms,
    };
    let server = rustls::ServerConfig::builder_with_details(Arc::new(provider), Arc::new(NoClock));
    let mut server = server
        .with_protocol_versions(&[&TLS13])
        .ok()?
        .with_client_cert_verifier(Arc::new(clients))
        .with_cert_resolver(Arc::new(Shown {
            key: Arc::new(shown),
            raw: config.raw_server,
        }));
    server.alpn_protocols = vec![saved.alpn.clone()];
    server.send_tls13_tickets = 0;
    Some(server)
}

#[derive(Debug)]
struct Shown {
    key: Arc<CertifiedKey>,
    raw: bool,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key))
    }

    fn only_raw_public_keys(&self) -> bool {
        self.raw
    }
}

thread_local! {
    /// The key that signs in the rehearsal which this thread is in.
    static REHEARSING: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Has whoever judges servers judge them, but takes the signature of a rehearsal's own key while
/// that rehearsal lasts.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) inner: Arc<dyn ServerCertVerifier>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Gate {
    /// Runs `work` in a rehearsal in which `spki` signs.
    fn admit<T>(spki: &[u8], work: impl FnOnce() -> T) -> T {
        struct Scope;
        impl Drop for Scope {
            fn drop(&mut self) {
                REHEARSING.set(None);
            }
        }
        REHEARSING.set(Some(spki.to_vec()));
        let _scope = Scope;
        work()
    }
}

impl ServerCertVerifier for Gate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match REHEARSING.with_borrow(Clone::clone) {
            None => self.inner.verify_tls13_signature(message, cert, signed),
            Some(spki) => {
                let spki = SubjectPublicKeyInfoDer::from(spki.as_slice());
                verify_tls13_signature_with_raw_key(message, &spki, signed, &self.algorithms)
            }
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }
}

/// Holds the session of one connection attempt.
#[derive(Debug, Default)]
struct OneTicket(Mutex<Option<Tls13ClientSessionValue>>);

impl OneTicket {
    fn ticket(&self) -> std::sync::MutexGuard<'_, Option<Tls13ClientSessionValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for OneTicket {
    fn set_kx_hint(&self, _name: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _name: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _name: ServerName<'static>, _value: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _name: &ServerName<'static>) {}

    /// Tickets of the connection itself are [collected](Collector), not stored.
    fn insert_tls13_ticket(&self, _name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.ticket().get_or_insert(value);
    }

    fn take_tls13_ticket(&self, _name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.ticket().take()
    }
}
