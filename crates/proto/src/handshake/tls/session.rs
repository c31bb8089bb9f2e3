//! One TLS handshake, driven by CRYPTO bytes.

use super::protect::{DirectionKeys, Keys, Secrets};
use super::resume::{self, Collector, SavedSession};
use super::tickets::View;
use super::{ClientTls, ConfigError, ServerTls};
use crate::error::TransportError;
use crate::resumption::{Remembered, Resume};
use anabranch_wire::params::TransportParameters;
use anabranch_wire::{Side, TransportErrorCode};
use rustls::pki_types::ServerName;
use rustls::quic::{self, Version};
use rustls::server::{Acceptor, CertificateType};
use rustls::{AlertDescription, CertificateError, Error, HandshakeKind};
use std::sync::Arc;

/// The type of CRYPTO frames, which all errors of this module arise from.
const CRYPTO: u64 = 0x06;
/// The longest `ClientHello` taken, in bytes: it fits one TLS record; real ones stay below 4096.
const MAX_CLIENT_HELLO: usize = 16 * 1024;

/// New keys; bytes written later belong to their encryption level.
pub(crate) enum KeyChange {
    Handshake(Keys),
    OneRtt(Keys, Secrets),
}

/// The TLS state machine of one connection.
pub(crate) enum Session {
    /// A server that has not seen the whole `ClientHello` yet, which decides its configuration.
    Listening(Box<Listening>),
    Running(Box<Running>),
}

pub(crate) struct Running {
    tls: quic::Connection,
    /// Picks tickets out of what a server sends; `None` if nobody wants them.
    collector: Option<Collector>,
    /// Names whom a client trusts, and who it is.
    trust: [u8; 32],
    /// The client offered a session of an earlier connection.
    has_resumed: bool,
    /// Sessions that a server lets its client resume later.
    tickets: usize,
}

pub(crate) struct Listening {
    config: ServerTls,
    params: Vec<u8>,
    hello: Vec<u8>,
}

impl Session {
    /// Resumes if `resume` fits; then early data may be possible.
    pub(crate) fn client(
        config: &ClientTls,
        server_name: &str,
        params: Vec<u8>,
        resume: Option<&Resume>,
    ) -> Result<Self, ConfigError> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| ConfigError::ServerName(server_name.to_owned()))?;
        let resuming =
            resume.filter(|resume| config.remembers && resume.state.fits(config, server_name));
        let resuming = resuming.and_then(|resume| {
            let Resume {
                state,
                age,
                early_data,
            } = resume;
            resume::resuming(config, &name, &state.session, *age, *early_data)
        });
        let has_resumed = resuming.is_some();
        let tls = resuming.unwrap_or_else(|| Arc::clone(&config.tls));
        let connection = quic::ClientConnection::new(tls, Version::V1, name, params)?;
        Ok(Self::Running(Box::new(Running {
            tls: connection.into(),
            collector: config.remembers.then(Collector::default),
            trust: config.trust,
            has_resumed,
            tickets: 0,
        })))
    }

    pub(crate) fn server(config: &ServerTls, params: Vec<u8>) -> Self {
        Self::Listening(Box::new(Listening {
            config: config.clone(),
            params,
            hello: Vec::new(),
        }))
    }

    /// Takes CRYPTO bytes of one encryption level, in order.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        match self {
            Self::Running(running) => running.read(bytes),
            Self::Listening(listening) => {
                let Some(tls) = listening.read(bytes)? else {
                    return Ok(());
                };
                let hello = std::mem::take(&mut listening.hello);
                let mut running = Box::new(Running {
                    tls,
                    collector: None,
                    trust: [0; 32],
                    has_resumed: false,
                    tickets: listening.config.tickets_given(),
                });
                let result = running.read(&hello);
                *self = Self::Running(running);
                result
            }
        }
    }

    /// Appends CRYPTO bytes to send. To be called until it appends nothing and returns `None`.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> Option<KeyChange> {
        let Self::Running(running) = self else {
            return None;
        };
        running.tls.write_hs(out).map(|change| match change {
            quic::KeyChange::Handshake { keys } => KeyChange::Handshake(keys.into()),
            quic::KeyChange::OneRtt { keys, next } => {
                KeyChange::OneRtt(keys.into(), Secrets::Tls(next))
            }
        })
    }

    fn running(&self) -> Option<&quic::Connection> {
        match self {
            Self::Running(running) => Some(&running.tls),
            Self::Listening(_) => None,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.running()
            .is_some_and(|connection| !connection.is_handshaking())
    }

    /// What the peer announced in this handshake.
    pub(crate) fn peer_params(&self) -> Option<&[u8]> {
        // A session that is resumed was saved without any.
        let params = self.running()?.quic_transport_parameters()?;
        Some(params).filter(|params| !params.is_empty())
    }

    /// Keys of 0-RTT packets: on a client if it may send them, on a server if it reads them.
    pub(crate) fn early_keys(&self) -> Option<DirectionKeys> {
        Some(self.running()?.zero_rtt_keys()?.into())
    }

    /// Whether the server, which answered, reads early data.
    pub(crate) fn is_early_data_accepted(&self) -> bool {
        match self.running() {
            Some(quic::Connection::Client(tls)) => tls.is_early_data_accepted(),
            _ => false,
        }
    }

    /// Whether the server, which answered, is known not to read early data.
    pub(crate) fn has_refused_early_data(&self) -> bool {
        // A server takes it back by a new handshake, or by silence about it beside its parameters.
        let has_extensions = self.peer_params().is_some();
        !self.has_resumed() || has_extensions && !self.is_early_data_accepted()
    }

    /// Whether the session is one of an earlier connection; of a client that has no answer yet,
    /// whether it offers one.
    pub(crate) fn has_resumed(&self) -> bool {
        let Self::Running(running) = self else {
            return false;
        };
        let kind = running.tls.handshake_kind();
        kind.map_or(running.has_resumed, |kind| kind == HandshakeKind::Resumed)
    }

    /// The newest session that a later connection can resume, once.
    pub(crate) fn take_session(&mut self) -> Option<SavedSession> {
        let Self::Running(running) = self else {
            return None;
        };
        let (ticket, key) = running.collector.as_mut()?.take()?;
        let chain = running.tls.peer_certificates()?;
        Some(SavedSession {
            trust: running.trust,
            suite: running.tls.negotiated_cipher_suite()?.suite().into(),
            alpn: running.tls.alpn_protocol()?.to_vec(),
            ticket,
            key,
            chain: chain.iter().map(|part| part.to_vec()).collect(),
        })
    }

    /// How many tickets a server gives its client.
    pub(crate) fn tickets_given(&self) -> usize {
        match self {
            Self::Running(running) => running.tickets,
            Self::Listening(_) => 0,
        }
    }

    pub(crate) fn has_session(&self) -> bool {
        let Self::Running(running) = self else {
            return false;
        };
        running.collector.as_ref().is_some_and(Collector::has_some)
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.running()?.alpn_protocol()
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        match self.running()? {
            quic::Connection::Server(connection) => connection.server_name(),
            quic::Connection::Client(_) => None,
        }
    }

    pub(crate) fn peer_identity(&self) -> Option<Vec<u8>> {
        Some(self.running()?.peer_certificates()?.first()?.to_vec())
    }

    /// Fills `out`; false before the handshake is complete or if `out` is too long.
    pub(crate) fn export(&self, out: &mut [u8], label: &[u8], context: &[u8]) -> bool {
        self.running().is_some_and(|connection| {
            connection
                .export_keying_material(out, label, Some(context))
                .is_ok()
        })
    }
}

impl Running {
    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let tls = &mut self.tls;
        match &mut self.collector {
            Some(collector) if !tls.is_handshaking() => collector.watch(bytes, || read(tls, bytes)),
            _ => read(tls, bytes),
        }
    }
}

impl Listening {
    /// Collects the `ClientHello`; once it is whole, returns the connection that is to read it.
    fn read(&mut self, bytes: &[u8]) -> Result<Option<quic::Connection>, TransportError> {
        self.hello.extend_from_slice(bytes);
        // Type and length come first (RFC 8446, section 4).
        let Some(&[_, high, middle, low]) = self.hello.first_chunk() else {
            return Ok(None);
        };
        let length = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > MAX_CLIENT_HELLO {
            let code = TransportErrorCode::CRYPTO_BUFFER_EXCEEDED;
            return Err(TransportError::new(code, "the ClientHello is too long").in_frame(CRYPTO));
        }
        let Some(hello) = self.hello.get(..length) else {
            return Ok(None);
        };
        let (server_raw, client_raw) = raw_keys_offered(hello);
        let mut tls = self.config.variant(server_raw, client_raw);
        let params = std::mem::take(&mut self.params);
        if let Some(tickets) = &self.config.tickets
            && let Ok(announced) = TransportParameters::decode(&params, Side::Server)
        {
            let tickets = Arc::clone(tickets);
            let announced = Remembered::of(&announced);
            let origin = self.config.client;
            Arc::make_mut(&mut tls).session_storage = Arc::new(View {
                tickets,
                announced,
                origin,
            });
        }
        let connection = quic::ServerConnection::new(tls, Version::V1, params)
            .map_err(|error| TransportError::new(internal(), error.to_string()))?;
        Ok(Some(connection.into()))
    }
}

/// Whether a client takes raw public keys (RFC 7250) from a server, and shows one itself.
///
/// A `ClientHello` that makes no sense offers neither: whoever reads it next reports why.
fn raw_keys_offered(hello: &[u8]) -> (bool, bool) {
    let length = u16::try_from(hello.len()).expect("MAX_CLIENT_HELLO fits a TLS record");
    let [high, low] = length.to_be_bytes();
    let record = [&[0x16, 0x03, 0x03, high, low], hello].concat();
    let mut rest = record.as_slice();
    let mut acceptor = Acceptor::default();
    while !rest.is_empty() {
        if !acceptor.read_tls(&mut rest).is_ok_and(|read| read > 0) {
            return (false, false);
        }
    }
    let Ok(Some(accepted)) = acceptor.accept() else {
        return (false, false);
    };
    let hello = accepted.client_hello();
    let raw = |types: Option<&[CertificateType]>| {
        types.is_some_and(|types| types.contains(&CertificateType::RawPublicKey))
    };
    (
        raw(hello.server_cert_types()),
        raw(hello.client_cert_types()),
    )
}

fn read(connection: &mut quic::Connection, bytes: &[u8]) -> Result<(), TransportError> {
    connection.read_hs(bytes).map_err(|error| {
        let code = connection.alert().map_or(internal(), |alert| {
            TransportErrorCode::crypto(u8::from(alert))
        });
        TransportError::new(code, explain(&error)).in_frame(CRYPTO)
    })
}

fn internal() -> TransportErrorCode {
    TransportErrorCode::crypto(u8::from(AlertDescription::InternalError))
}

/// What went wrong; errors of our own verifiers speak for themselves.
fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.to_string(),
        Error::NoApplicationProtocol => "no application protocol (ALPN) in common".into(),
        _ => error.to_string(),
    }
}
