//! This machine's key: stored in a file, presented bare or in a certificate.
//!
//! The file holds only the private key. The certificate is created from it when needed. Peers pin
//! the key, so the certificate may differ from one start to the next.

use crate::endpoint::random_seed;
use crate::engine::tls::{ConfigError, CryptoProvider, Fingerprint, KeyPair};
use crate::engine::tls::{ServerTls, ServerTlsBuilder};
use rustls::CipherSuite;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// The file's name in the state directory.
pub const KEY_FILE: &str = "identity.pem";

/// Permissions of the key file: only the owner may read it.
const PRIVATE: u32 = 0o600;

/// Why there is no identity to use.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file does not hold a key.
    #[error("{}: {error}; move the file away to have a new key made", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ConfigError,
    },
    /// No key could be generated.
    #[error("cannot make a key: {0}")]
    Generate(ConfigError),
    /// The system has no randomness.
    #[error("cannot make a key: {0}")]
    Random(io::Error),
    /// No certificate could be created.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// The cryptography all connections use. The cipher suite that is cheapest on this machine comes
/// first: AES-128-GCM with instructions for AES, and ChaCha20-Poly1305 without them. A server goes
/// by the order of the client.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = rustls::crypto::ring::default_provider();
        let suites = &mut provider.cipher_suites;
        suites.sort_by_key(|suite| cost(suite.suite(), has_aes_instructions()));
        Arc::new(provider)
    });
    Arc::clone(&PROVIDER)
}

/// Orders cipher suites by what they cost on a machine with or without instructions for AES.
/// AES-256-GCM comes with SHA-384, which makes handshakes dearer too.
fn cost(suite: CipherSuite, aes_instructions: bool) -> u8 {
    match suite {
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 if !aes_instructions => 0,
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 1,
        CipherSuite::TLS13_AES_256_GCM_SHA384 => 2,
        _ => 3,
    }
}

fn has_aes_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// An Ed25519 key.
#[derive(Debug, Clone)]
pub struct Identity {
    key: KeyPair,
}

impl Identity {
    /// A new key that is not stored anywhere.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn generate() -> Result<Self, IdentityError> {
        let seed = random_seed().map_err(IdentityError::Random)?;
        let key = KeyPair::generate(&provider(), seed).map_err(IdentityError::Generate)?;
        Ok(Self { key })
    }

    /// The key in [`KEY_FILE`] of this directory. If there is none, it is created, and the
    /// directory too.
    ///
    /// # Errors
    ///
    /// The file cannot be read, written or understood. An existing file is never changed.
    pub fn load_or_create(directory: &Path) -> Result<Self, IdentityError> {
        let path = directory.join(KEY_FILE);
        if let Some(identity) = Self::load(&path)? {
            return Ok(identity);
        }
        let identity = Self::generate()?;
        let created = identity.store(directory, &path);
        match created {
            Ok(()) => Ok(identity),
            // Another process created a key first: use that one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::load(&path)?.ok_or(IdentityError::File { path, error })
            }
            Err(error) => Err(IdentityError::File { path, error }),
        }
    }

    fn load(path: &Path) -> Result<Option<Self>, IdentityError> {
        let fail = |error| IdentityError::File {
            path: path.into(),
            error,
        };
        let pem = match fs::read_to_string(path) {
            Ok(pem) => pem,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let mode = fs::metadata(path).map_err(fail)?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!("{} can be read by others: chmod 600 it", path.display());
        }
        let key = KeyPair::from_pem(&provider(), &pem);
        let key = key.map_err(|error| IdentityError::Key {
            path: path.into(),
            error,
        })?;
        Ok(Some(Self { key }))
    }

    /// Writes the file under a temporary name and then links it, so that nobody reads an incomplete
    /// file and no existing key is overwritten.
    fn store(&self, directory: &Path, path: &Path) -> io::Result<()> {
        // Other secrets may follow.
        private_directory(directory)?;
        let draft = directory.join(format!(".{KEY_FILE}.{}", std::process::id()));
        let written = write_private(&draft, self.key.to_pem().as_bytes());
        let linked = written.and_then(|()| fs::hard_link(&draft, path));
        let removed = fs::remove_file(&draft);
        linked.and(removed)?;
        File::open(directory)?.sync_all()
    }

    /// The key.
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The fingerprint that peers pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.key.fingerprint()
    }

    /// A certificate for these names (DNS names or addresses), signed by the key itself, in DER.
    ///
    /// # Errors
    ///
    /// One of the names is not valid.
    pub fn certificate(&self, names: &[&str]) -> Result<Vec<u8>, IdentityError> {
        let key = rcgen::KeyPair::try_from(self.key.pkcs8_der())?;
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "anabranch");
        Ok(params.self_signed(&key)?.der().to_vec())
    }

    /// Settings of a server that presents this key: bare to clients that ask for a raw public key,
    /// in a certificate for these names to others.
    ///
    /// # Errors
    ///
    /// One of the names is not valid.
    pub fn server(&self, names: &[&str]) -> Result<ServerTlsBuilder, IdentityError> {
        let chain = vec![self.certificate(names)?];
        ServerTls::with_certificates(provider(), chain, self.key.pkcs8_der())
            .map_err(IdentityError::Generate)
    }
}

/// Creates a directory that only its owner may read, with its parents. One that exists keeps its
/// permissions.
///
/// # Errors
///
/// It cannot be made.
pub fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(path)?;
    // The mode above applies only to a new file.
    file.set_permissions(fs::Permissions::from_mode(PRIVATE))?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory that is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let scratch = Scratch::new("identity");
        let directory = scratch.0.join("state");
        let made = Identity::load_or_create(&directory).unwrap();
        let found = Identity::load_or_create(&directory).unwrap();
        assert_eq!(made.fingerprint(), found.fingerprint());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory.join(KEY_FILE)), 0o600);
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(
            fs::read_dir(&directory).unwrap().count(),
            1,
            "no draft is left behind"
        );
    }

    #[test]
    fn a_broken_key_file_is_reported_and_left_alone() {
        let scratch = Scratch::new("broken");
        fs::create_dir_all(&scratch.0).unwrap();
        let path = scratch.0.join(KEY_FILE);
        fs::write(&path, "not a key").unwrap();
        let error = Identity::load_or_create(&scratch.0)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(KEY_FILE) && error.contains("move the file away"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "not a key");
    }

    #[test]
    fn the_certificate_certifies_the_key() {
        let identity = Identity::generate().unwrap();
        let certificate = identity.certificate(&["example.org", "192.0.2.1"]).unwrap();
        assert_eq!(
            Fingerprint::of_certificate(&certificate).unwrap(),
            identity.fingerprint()
        );
        let server = identity
            .server(&["localhost"])
            .unwrap()
            .alpn(&[b"test"])
            .build()
            .unwrap();
        assert!(server.supports_multipath());
    }

    #[test]
    fn two_keys_differ() {
        let (one, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        assert_ne!(one.fingerprint(), other.fingerprint());
    }

    #[test]
    fn the_cheapest_cipher_suite_comes_first() {
        let order = |aes_instructions| {
            let mut suites = [
                CipherSuite::TLS13_AES_256_GCM_SHA384,
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_128_GCM_SHA256,
            ];
            suites.sort_by_key(|suite| cost(*suite, aes_instructions));
            suites[0]
        };
        assert_eq!(order(true), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(order(false), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
        let first = provider().cipher_suites[0].suite();
        assert_eq!(first, order(has_aes_instructions()));
    }
}
