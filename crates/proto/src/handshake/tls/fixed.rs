//! Keys from the fixed secrets of published vectors, made by the provider's own code.

use super::protect::{Keys, PacketKey};
use rustls::CipherSuite;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider, hmac, ring};
use rustls::quic;
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use std::sync::Arc;

/// The provider with all its cipher suites, or with one only.
pub(crate) fn provider(only: Option<CipherSuite>) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .retain(|suite| only.is_none_or(|only| suite.suite() == only));
    Arc::new(provider)
}

fn suite(name: CipherSuite) -> &'static Tls13CipherSuite {
    let suites = &provider(Some(name)).cipher_suites;
    suites
        .first()
        .and_then(SupportedCipherSuite::tls13)
        .unwrap()
}

/// Stands in for the derivation of Initial secrets: whatever is asked for is `secret`.
struct Fixed {
    real: &'static dyn Hkdf,
    secret: Vec<u8>,
}

impl Hkdf for Fixed {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.extract_from_secret(salt, &[])
    }

    fn extract_from_secret(&self, _: Option<&[u8]>, _: &[u8]) -> Box<dyn HkdfExpander> {
        Box::new(FixedExpander(self.secret.clone()))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        self.real.expander_for_okm(okm)
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        self.real.hmac_sign(key, message)
    }
}

struct FixedExpander(Vec<u8>);

impl HkdfExpander for FixedExpander {
    fn expand_slice(&self, _: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        output.copy_from_slice(&self.0);
        Ok(())
    }

    fn expand_block(&self, _: &[&[u8]]) -> OkmBlock {
        OkmBlock::new(&self.0)
    }

    fn hash_len(&self) -> usize {
        self.0.len()
    }
}

/// The keys that derive from a traffic secret; the same ones for both directions.
pub(crate) fn keys(name: CipherSuite, secret: &[u8]) -> Keys {
    let real = suite(name);
    let hkdf = Box::leak(Box::new(Fixed {
        real: real.hkdf_provider,
        secret: secret.to_vec(),
    }));
    let common = CipherSuiteCommon {
        suite: real.common.suite,
        hash_provider: real.common.hash_provider,
        confidentiality_limit: real.common.confidentiality_limit,
    };
    let suite = Box::leak(Box::new(Tls13CipherSuite {
        common,
        hkdf_provider: hkdf,
        aead_alg: real.aead_alg,
        quic: real.quic,
    }));
    let quic = suite.quic.unwrap();
    quic::Keys::initial(quic::Version::V1, suite, quic, &[], rustls::Side::Client).into()
}

/// An AES-256-GCM key given as such.
pub(crate) fn aes_256_key(key: [u8; 32], iv: [u8; 12]) -> PacketKey {
    let quic = suite(CipherSuite::TLS13_AES_256_GCM_SHA384).quic.unwrap();
    PacketKey::from(quic.packet_key(AeadKey::from(key), Iv::from(iv)))
}
