//! Who this machine is, and whom it trusts.

use crate::failure::{Failure, Outcome};
use crate::url::ServerUrl;
use anabranch_net::engine::tls::{self, Fingerprint, KeyLog, KeyPair};
use anabranch_net::identity::{Identity, provider};
use rustls::KeyLogFile;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::time_provider::DefaultTimeProvider;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The ALPN of HTTP/3.
pub(crate) const ALPN_H3: &[u8] = b"h3";

/// The ALPN of HTTP/0.9, as in the QUIC interop runner.
pub(crate) const ALPN_HQ: &[u8] = b"hq-interop";

/// Where Linux distributions keep the certificates of authorities.
const SYSTEM_ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Whom a client believes, and who it is.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClientTrust {
    /// Certificates (PEM) of authorities to believe, for URLs without pinned key; the system's
    /// unless given
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Directory of the key to show to servers that ask who we are; a new key is made there if
    /// there is none
    #[arg(long, value_name = "DIR", conflicts_with = "cert")]
    pub(crate) identity: Option<PathBuf>,
    /// Certificates (PEM, ours first) to show to servers that let in those of their authorities
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the first certificate (PEM, PKCS#8)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Neither resume an earlier session nor keep this one: the next one takes a round trip more
    #[arg(long)]
    pub(crate) no_resume: bool,
}

/// Who a server is, and whom it lets in.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ServerTrust {
    /// Directory of the server's key; made there if there is none [default: the user's state
    /// directory, such as ~/.local/state/anabranch]
    #[arg(long, value_name = "DIR", conflicts_with = "cert")]
    pub(crate) identity: Option<PathBuf>,
    /// Certificates (PEM, the server's first) instead of a key of its own
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the first certificate (PEM, PKCS#8)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Let in only clients with a certificate of these authorities (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "client_pin")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Let in only clients whose key has this fingerprint; may be repeated
    #[arg(long, value_name = "HEX")]
    pub(crate) client_pin: Vec<Fingerprint>,
    /// Read nothing before the handshake is complete: requests take a round trip more
    #[arg(long)]
    pub(crate) no_early_data: bool,
}

/// Logs the secrets of connections to the file that `SSLKEYLOGFILE` names, if it is set.
fn key_log() -> Option<Arc<dyn KeyLog>> {
    std::env::var_os("SSLKEYLOGFILE")?;
    Some(Arc::new(KeyLogFile::new()))
}

impl ClientTrust {
    /// The TLS settings for a server of files.
    pub(crate) fn config(&self, url: &ServerUrl) -> Outcome<tls::ClientTls> {
        self.config_for(url, &[ALPN_H3])
    }

    /// The TLS settings for a server of one of these protocols.
    pub(crate) fn config_for(
        &self,
        url: &ServerUrl,
        protocols: &[&[u8]],
    ) -> Outcome<tls::ClientTls> {
        let mut builder = if let Some(pin) = url.pin {
            tls::ClientTls::pinned(provider(), pin)
        } else {
            let roots = read_roots(self.ca.as_deref())?;
            tls::ClientTls::with_roots(provider(), roots, Arc::new(DefaultTimeProvider))
        };
        builder = builder.alpn(protocols).resumption(!self.no_resume);
        if let Some(directory) = &self.identity {
            let identity = Identity::load_or_create(directory).map_err(Failure::usage)?;
            builder = builder.identity(tls::Identity::RawKey(identity.key().clone()));
        } else if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let (chain, key) = (read_certificates(cert)?, read_key(key)?);
            builder = builder.identity(tls::Identity::Certificates { chain, key });
        }
        if let Some(log) = key_log() {
            builder = builder.key_log(log);
        }
        builder.build().map_err(Failure::usage)
    }

    /// The fingerprint of the key that is shown to servers, if it can be read.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        let key = match (&self.identity, &self.key) {
            (Some(directory), _) => Identity::load_or_create(directory).ok()?.key().clone(),
            (None, Some(key)) => read_key(key).ok()?,
            (None, None) => return None,
        };
        Some(key.fingerprint())
    }
}

impl ServerTrust {
    /// The TLS settings of a server of files, and the key that clients pin.
    pub(crate) fn config(&self, names: &[&str]) -> Outcome<(tls::ServerTls, KeyPair)> {
        self.config_for(names, &[ALPN_H3, ALPN_HQ])
    }

    /// The TLS settings of a server of these protocols, and the key that clients pin.
    pub(crate) fn config_for(
        &self,
        names: &[&str],
        protocols: &[&[u8]],
    ) -> Outcome<(tls::ServerTls, KeyPair)> {
        let (builder, pair) = if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let chain = read_certificates(cert)?;
            let pair = read_key(key)?;
            (
                tls::ServerTls::with_certificates(provider(), chain, pair.pkcs8_der()),
                pair,
            )
        } else {
            let identity = own_identity(self.identity.as_deref())?;
            let builder = identity.server(names).map_err(Failure::usage)?;
            (Ok(builder), identity.key().clone())
        };
        let mut builder = builder.map_err(Failure::usage)?.alpn(protocols);
        builder = builder
            .client_auth(self.client_auth()?)
            .resumption(tls::ServerResumption {
                clock: Arc::new(DefaultTimeProvider),
                early_data: !self.no_early_data,
            });
        if let Some(log) = key_log() {
            builder = builder.key_log(log);
        }
        Ok((builder.build().map_err(Failure::usage)?, pair))
    }

    fn client_auth(&self) -> Outcome<tls::ClientAuth> {
        if let Some(path) = &self.client_ca {
            let (roots, clock) = (read_certificates(path)?, Arc::new(DefaultTimeProvider));
            return Ok(tls::ClientAuth::Ca { roots, clock });
        }
        Ok(match self.client_pin.as_slice() {
            [] => tls::ClientAuth::None,
            pins => tls::ClientAuth::Pinned(pins.to_vec()),
        })
    }
}

/// The directory of this machine's key: the one given, else the user's state directory.
pub(crate) fn identity_directory(given: Option<&Path>) -> Outcome<PathBuf> {
    let directory = given.map(Path::to_owned).or_else(state_directory);
    directory.ok_or_else(|| {
        let failure = Failure::usage("there is no home directory to keep this machine's key in");
        failure.hint("say where with `--identity DIR`")
    })
}

/// This machine's key, from the directory given, else from the user's state directory.
pub(crate) fn own_identity(given: Option<&Path>) -> Outcome<Identity> {
    let directory = identity_directory(given)?;
    Identity::load_or_create(&directory).map_err(|error| {
        Failure::usage(error).hint("choose another directory with `--identity DIR`")
    })
}

/// Where this user's programs keep their state: XDG's state directory.
pub(crate) fn state_directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    absolute("XDG_STATE_HOME")
        .or_else(home)
        .map(|state| state.join("anabranch"))
}

/// The authorities that are believed: those given, else the system's.
pub(crate) fn read_roots(given: Option<&Path>) -> Outcome<Vec<Vec<u8>>> {
    if let Some(path) = given {
        return read_certificates(path);
    }
    let found = SYSTEM_ROOTS
        .iter()
        .map(Path::new)
        .find(|path| path.exists());
    let found = found.ok_or_else(|| {
        let failure =
            Failure::usage("the URL has no pinned key, and this system has no authorities");
        failure.hint("use the whole URL that `serve` printed, or give `--ca FILE`")
    })?;
    read_certificates(found)
}

/// A private key of any kind, with its public half.
pub(crate) fn read_key(path: &Path) -> Outcome<KeyPair> {
    let der = PrivatePkcs8KeyDer::from_pem_file(path).map_err(|error| {
        let failure = cannot_read(path, error);
        failure.hint("the key must be in PKCS#8: openssl pkcs8 -topk8 -nodes -in OLD")
    })?;
    KeyPair::from_pkcs8_der(&provider(), der.secret_pkcs8_der())
        .map_err(|error| cannot_read(path, error))
}

/// Certificates, at least one.
pub(crate) fn read_certificates(path: &Path) -> Outcome<Vec<Vec<u8>>> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| cannot_read(path, e))?;
    let mut chain = Vec::new();
    for certificate in certificates {
        chain.push(
            certificate
                .map_err(|error| cannot_read(path, error))?
                .to_vec(),
        );
    }
    if chain.is_empty() {
        return Err(cannot_read(path, "it holds no certificate in PEM"));
    }
    Ok(chain)
}

fn cannot_read(path: &Path, error: impl Display) -> Failure {
    Failure::usage(format!("cannot use {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_without_certificate_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        fs::write(&path, "nothing").unwrap();
        let failure = read_certificates(&path).unwrap_err();
        assert!(failure.what().contains("ca.pem"), "{failure:?}");
        assert!(read_certificates(&directory.path().join("missing.pem")).is_err());
    }

    #[test]
    fn the_servers_key_stays_the_same_from_start_to_start() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Some(directory.path().join("state"));
        let trust = ServerTrust {
            identity,
            ..ServerTrust::default()
        };
        let (_, first) = trust.config(&["localhost"]).unwrap();
        let (_, second) = trust.config(&["localhost"]).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
    }
}
