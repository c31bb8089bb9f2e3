//! Who an endpoint is: key pairs, certificates and fingerprints.

use super::{ConfigError, CryptoProvider};
use hmac::{Hmac, KeyInit, Mac};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What precedes the 32 secret bytes of an Ed25519 key in PKCS#8 (RFC 8410, section 7).
const ED25519_PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// SHA-256 of a public key's `SubjectPublicKeyInfo` in DER: 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a `SubjectPublicKeyInfo` in DER.
    pub fn of_spki(spki: &[u8]) -> Self {
        Self(Sha256::digest(spki).into())
    }

    /// The fingerprint of the key that a certificate in DER certifies.
    pub fn of_certificate(der: &[u8]) -> Result<Self, ConfigError> {
        let der = CertificateDer::from(der);
        let parsed = rustls::server::ParsedCertificate::try_from(&der)
            .map_err(|error| ConfigError::Certificate(error.to_string()))?;
        Ok(Self::of_spki(&parsed.subject_public_key_info()))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key fingerprint is 64 hexadecimal digits")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(FingerprintError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let nibble = |digit: u8| char::from(digit).to_digit(16).ok_or(FingerprintError);
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

/// A private key and its public half.
#[derive(Clone)]
pub struct KeyPair {
    pkcs8: Arc<[u8]>,
    spki: Arc<[u8]>,
    signing: Arc<dyn SigningKey>,
}

impl KeyPair {
    /// The Ed25519 key whose secret is `seed`: random bytes from the caller.
    pub fn generate(provider: &CryptoProvider, seed: [u8; 32]) -> Result<Self, ConfigError> {
        Self::from_pkcs8_der(provider, &[&ED25519_PKCS8_PREFIX[..], &seed].concat())
    }

    /// A key of any kind the provider can sign with, from PKCS#8.
    pub fn from_pkcs8_der(provider: &CryptoProvider, der: &[u8]) -> Result<Self, ConfigError> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.to_vec()));
        let signing = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| ConfigError::Key(error.to_string()))?;
        let spki = signing
            .public_key()
            .ok_or_else(|| ConfigError::Key("its public half is not available".into()))?;
        Ok(Self {
            pkcs8: der.into(),
            spki: spki.as_ref().into(),
            signing: Arc::clone(&signing),
        })
    }

    /// The first `PRIVATE KEY` section of a PEM text.
    pub fn from_pem(provider: &CryptoProvider, pem: &str) -> Result<Self, ConfigError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| ConfigError::Key(error.to_string()))?;
        Self::from_pkcs8_der(provider, der.secret_pkcs8_der())
    }

    /// The private key in PKCS#8. It is a secret.
    pub fn pkcs8_der(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The private key as PEM. It is a secret.
    pub fn to_pem(&self) -> String {
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        let text = base64(&self.pkcs8);
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        pem
    }

    /// The public key as `SubjectPublicKeyInfo` in DER: what a raw public key is on the wire.
    pub fn spki_der(&self) -> &[u8] {
        &self.spki
    }

    /// What a peer pins.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_spki(&self.spki)
    }

    /// A secret for another purpose, which `label` names. It stays the same as long as the key
    /// does, and tells nothing about it.
    pub fn derive_secret(&self, label: &[u8]) -> [u8; 32] {
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.pkcs8);
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(label);
        mac.finalize().into_bytes().into()
    }

    /// The key as a raw public key (RFC 7250).
    pub(super) fn raw(&self) -> CertifiedKey {
        let chain = vec![CertificateDer::from(self.spki.to_vec())];
        CertifiedKey::new(chain, Arc::clone(&self.signing))
    }

    /// The key with the certificates that vouch for it, leaf first.
    pub(super) fn certified(&self, chain: &[Vec<u8>]) -> Result<CertifiedKey, ConfigError> {
        let leaf = chain.first().ok_or(ConfigError::NoCertificate)?;
        if Fingerprint::of_certificate(leaf)? != self.fingerprint() {
            return Err(ConfigError::KeyMismatch);
        }
        let chain = chain
            .iter()
            .map(|der| CertificateDer::from(der.clone()))
            .collect();
        Ok(CertifiedKey::new(chain, Arc::clone(&self.signing)))
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPair").field(&self.fingerprint()).finish()
    }
}

/// What an endpoint shows its peer.
#[derive(Debug, Clone)]
pub enum Identity {
    /// The public key alone (RFC 7250): small, and enough for a peer that pins it.
    RawKey(KeyPair),
    /// Certificates.
    Certificates {
        /// In DER, leaf first.
        chain: Vec<Vec<u8>>,
        /// The leaf's key.
        key: KeyPair,
    },
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let symbol = ALPHABET[(group >> (18 - 6 * digit) & 0x3f) as usize];
            text.push(if digit <= chunk.len() {
                char::from(symbol)
            } else {
                '='
            });
        }
    }
    text
}
