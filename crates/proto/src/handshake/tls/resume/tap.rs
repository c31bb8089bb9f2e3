//! Sees the one secret that the TLS library keeps to itself: the key that goes with a ticket.
//!
//! A ticket's key is derived by HKDF under the label "resumption" (RFC 8446, section 4.6.1), by the
//! cryptography provider. Its cipher suites are wrapped here. The wrapper passes everything
//! through; while a closure given to [`listen`] runs it notes the keys of tickets, and while one
//! given to [`speak`] runs it answers with a key that was noted before.

use rustls::crypto::CryptoProvider;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{ActiveKeyExchange, CipherSuiteCommon, hmac};
use rustls::{Error, SupportedCipherSuite, Tls13CipherSuite};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// What the derivations of tickets' keys on this thread are to do.
enum Mode {
    Pass,
    Listen(Vec<Vec<u8>>),
    Speak(Vec<u8>),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Pass) };
}

/// Puts the mode back when the closure ends, however it ends.
struct Scope;

impl Drop for Scope {
    fn drop(&mut self) {
        MODE.set(Mode::Pass);
    }
}

/// Runs `work`; returns also the keys of tickets that were derived meanwhile.
pub(super) fn listen<T>(work: impl FnOnce() -> T) -> (T, Vec<Vec<u8>>) {
    MODE.set(Mode::Listen(Vec::new()));
    let scope = Scope;
    let result = work();
    let heard = match MODE.replace(Mode::Pass) {
        Mode::Listen(heard) => heard,
        Mode::Pass | Mode::Speak(_) => Vec::new(),
    };
    drop(scope);
    (result, heard)
}

/// Runs `work`, in which tickets get this key.
pub(super) fn speak<T>(key: &[u8], work: impl FnOnce() -> T) -> T {
    MODE.set(Mode::Speak(key.to_vec()));
    let _scope = Scope;
    work()
}

/// The provider with its TLS 1.3 cipher suites wrapped.
pub(in crate::handshake::tls) fn tapped(provider: &CryptoProvider) -> Arc<CryptoProvider> {
    let mut provider = provider.clone();
    for suite in &mut provider.cipher_suites {
        if let Some(inner) = suite.tls13() {
            *suite = SupportedCipherSuite::Tls13(wrap(inner));
        }
    }
    Arc::new(provider)
}

/// The wrapper of a cipher suite. Suites live for ever, so there is one wrapper for each: as many
/// as the providers of this process have suites.
fn wrap(inner: &'static Tls13CipherSuite) -> &'static Tls13CipherSuite {
    type Pair = (&'static Tls13CipherSuite, &'static Tls13CipherSuite);
    static KNOWN: Mutex<Vec<Pair>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let find = |(from, to): &Pair| std::ptr::eq(*from, inner).then_some(*to);
    if let Some(wrapper) = known.iter().find_map(find) {
        return wrapper;
    }
    let hkdf: &'static Tapped = Box::leak(Box::new(Tapped(inner.hkdf_provider)));
    let common = CipherSuiteCommon {
        suite: inner.common.suite,
        hash_provider: inner.common.hash_provider,
        confidentiality_limit: inner.common.confidentiality_limit,
    };
    let wrapper: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite {
        common,
        hkdf_provider: hkdf,
        aead_alg: inner.aead_alg,
        quic: inner.quic,
    }));
    known.push((inner, wrapper));
    wrapper
}

struct Tapped(&'static dyn Hkdf);

impl Hkdf for Tapped {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.0.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.0.extract_from_secret(salt, secret)
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, Error> {
        self.0.extract_from_kx_shared_secret(salt, kx, peer_pub_key)
    }

    /// The secret that tickets' keys derive from is a block of earlier output.
    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(TappedExpander(self.0.expander_for_okm(okm)))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        self.0.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct TappedExpander(Box<dyn HkdfExpander>);

impl HkdfExpander for TappedExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let block = self.0.expand_block(info);
        if !is_of_ticket(info) {
            return block;
        }
        MODE.with_borrow_mut(|mode| match mode {
            Mode::Pass => block,
            Mode::Listen(heard) => {
                heard.push(block.as_ref().to_vec());
                block
            }
            Mode::Speak(key) => OkmBlock::new(key),
        })
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

/// Whether this is `HKDF-Expand-Label(_, "resumption", nonce, length)` (RFC 8446, section 7.1):
/// two bytes of length and the label with its own length in front.
fn is_of_ticket(info: &[&[u8]]) -> bool {
    let bytes = info.concat();
    bytes
        .get(2..)
        .is_some_and(|label| label.starts_with(b"\x10tls13 resumption"))
}
