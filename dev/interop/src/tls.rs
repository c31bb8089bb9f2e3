//! Certificates and trust, shared by the stacks that use rustls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use sha2::{Digest as _, Sha256};

use crate::{Error, SERVER_NAME};

/// How a client knows the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The SHA-256 of its public key (SPKI DER) is this; nothing else in the certificate counts.
    Fingerprint([u8; 32]),
    /// It shows this certificate, DER, which names [`SERVER_NAME`].
    Certificate(Vec<u8>),
}

/// A self-signed certificate with its key.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// Its private key, PKCS #8 DER.
    pub key: Vec<u8>,
    /// The certificate, PEM.
    pub pem: String,
    /// Its private key, PEM.
    pub key_pem: String,
    /// SHA-256 of its public key, SPKI DER.
    pub fingerprint: [u8; 32],
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs, also a test's.
        f.debug_struct("Certificate")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Makes one for [`SERVER_NAME`] with an ECDSA P-256 key, which every stack here accepts.
    ///
    /// # Errors
    /// [`Error::Setup`] if the key cannot be made.
    pub fn generate() -> Result<Self, Error> {
        let failed = |e: rcgen::Error| Error::Setup {
            peer: "rcgen",
            reason: e.to_string(),
        };
        let made = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()]);
        let rcgen::CertifiedKey { cert, signing_key } = made.map_err(failed)?;
        let der = cert.der().to_vec();
        let fingerprint = fingerprint(&der).ok_or_else(|| Error::Setup {
            peer: "rcgen",
            reason: "its certificate cannot be read".to_owned(),
        })?;
        Ok(Self {
            der,
            key: signing_key.serialize_der(),
            pem: cert.pem(),
            key_pem: signing_key.serialize_pem(),
            fingerprint,
        })
    }
}

/// SHA-256 of the public key in a certificate, as SPKI DER; nothing if it cannot be read.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> Option<[u8; 32]> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(Sha256::digest(parsed.public_key().raw).into())
}

/// TLS of a server that shows this certificate.
///
/// # Errors
/// What rustls does not like about it.
pub fn server_config(
    certificate: &Certificate,
    alpn: &[Vec<u8>],
) -> Result<rustls::ServerConfig, rustls::Error> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certificate.key.clone()));
    let chain = vec![CertificateDer::from(certificate.der.clone())];
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = alpn.to_vec();
    Ok(config)
}

/// TLS of a client that trusts as told.
///
/// # Errors
/// [`rustls::Error::InvalidCertificate`] for a certificate that cannot be read.
pub fn client_config(
    trust: &Trust,
    alpn: &[Vec<u8>],
) -> Result<rustls::ClientConfig, rustls::Error> {
    let pinned = match trust {
        Trust::Fingerprint(fingerprint) => *fingerprint,
        Trust::Certificate(der) => fingerprint(der).ok_or(rustls::Error::InvalidCertificate(
            rustls::CertificateError::BadEncoding,
        ))?,
    };
    let verifier = Arc::new(PinnedKey {
        pinned,
        provider: provider(),
    });
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = alpn.to_vec();
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts the holder of one public key and nobody else.
#[derive(Debug)]
struct PinnedKey {
    pinned: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if fingerprint(end_entity) == Some(self.pinned) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
