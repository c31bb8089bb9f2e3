//! Decides whether the key a peer proves to hold is the expected one.

use super::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
};
use std::sync::Arc;

/// The peer's key is not one of those that were pinned.
#[derive(Debug, thiserror::Error)]
#[error("the peer's key has the fingerprint {found}, which is not {}", expected(.pins))]
struct PinMismatch {
    found: Fingerprint,
    pins: Vec<Fingerprint>,
}

fn expected(pins: &[Fingerprint]) -> String {
    match pins {
        [only] => format!("the pinned {only}"),
        _ => format!("among the {} pinned ones", pins.len()),
    }
}

/// Accepts a peer by its key alone: names, chains and validity times of certificates do not count.
#[derive(Debug)]
pub(super) struct PinVerifier {
    /// The keys that are accepted.
    pub(super) pins: Vec<Fingerprint>,
    /// Whether the key arrives bare (RFC 7250) or inside a certificate.
    pub(super) raw: bool,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        let found = if self.raw {
            Fingerprint::of_spki(presented)
        } else {
            let parsed = ParsedCertificate::try_from(presented)?;
            Fingerprint::of_spki(&parsed.subject_public_key_info())
        };
        if self.pins.contains(&found) {
            return Ok(());
        }
        let mismatch = PinMismatch {
            found,
            pins: self.pins.clone(),
        };
        Err(CertificateError::Other(OtherError(Arc::new(mismatch))).into())
    }

    fn signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.raw {
            let spki = SubjectPublicKeyInfoDer::from(presented.as_ref());
            verify_tls13_signature_with_raw_key(message, &spki, signed, &self.algorithms)
        } else {
            verify_tls13_signature(message, presented, signed, &self.algorithms)
        }
    }
}

/// What the verifiers of both sides have to answer, and answer alike.
macro_rules! check_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(no_tls12())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signature(message, cert, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            self.raw
        }
    };
}

fn no_tls12() -> Error {
    PeerIncompatible::Tls13RequiredForQuic.into()
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    check_signatures!();
}

impl ClientCertVerifier for PinVerifier {
    /// Without pins, clients are not asked who they are.
    fn offer_client_auth(&self) -> bool {
        !self.pins.is_empty()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    check_signatures!();
}
