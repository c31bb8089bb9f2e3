//! Far ends that are not ours: proxies for HTTP/3, as a URL and options name them.
//!
//! ```text
//! https://PIN@HOST:PORT,HOST:PORT/
//! ```
//! The pin and further hosts are as in our own URLs, and may be left out like the port, which is
//! 443 then. Without a pin the certificate has to be that of the first host.

use crate::failure::{Failure, Outcome};
use crate::trust::ClientTrust;
use crate::url::{ServerUrl, UrlError};
use anabranch_gateway::entry::{Credential, Proxy};
use anabranch_proto::tls::Fingerprint;
use std::path::{Path, PathBuf};

/// The scheme of their URLs.
pub(crate) const SCHEME: &str = "https://";

/// The UDP port of proxies that name none.
const PORT: u16 = 443;

/// A text that is no such URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProxyUrlError {
    /// Its host.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Lists of processes would show it.
    #[error(
        "the URL has a user or password in it: put USER:PASSWORD into a file, `--credential FILE`"
    )]
    Secret,
    /// The path.
    #[error(
        "`/{0}` is no part of a proxy's URL: expected https://HOST:PORT/, and its paths, if they \
         are not the usual ones, by `--udp-template` and `--ip-template`"
    )]
    Path(String),
}

/// Reads the URL of a proxy, of which the scheme was taken.
pub(crate) fn parse(rest: &str) -> Result<ServerUrl, ProxyUrlError> {
    let authority = rest.split('/').next().unwrap_or_default();
    if let Some((pin, _)) = authority.split_once('@')
        && pin.parse::<Fingerprint>().is_err()
    {
        return Err(ProxyUrlError::Secret);
    }
    let mut server = ServerUrl::behind_scheme(rest, PORT)?;
    match std::mem::take(&mut server.path) {
        path if path.is_empty() => Ok(server),
        path => Err(ProxyUrlError::Path(path)),
    }
}

/// A text without what lets somebody in, for messages.
pub(crate) fn without_secret(text: &str) -> String {
    match text.strip_prefix(SCHEME).and_then(|it| it.rsplit_once('@')) {
        Some((_, rest)) => format!("{SCHEME}...@{rest}"),
        None => text.to_owned(),
    }
}

/// What only a proxy of others takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Foreign {
    /// Show the proxy what is in this file with each request: USER:PASSWORD, or a token
    #[arg(long, value_name = "FILE")]
    credential: Option<PathBuf>,
    /// Certificates (PEM) of authorities to believe, for a proxy's URL without pinned key; the
    /// system's unless given
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificates (PEM, ours first) to show to a proxy that lets in those of its authorities
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the first certificate (PEM, PKCS#8)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Ask a proxy for UDP by this URI template, or by this path [default:
    /// /.well-known/masque/udp/{target_host}/{target_port}/]
    #[arg(long, value_name = "TEMPLATE", value_parser = udp_template)]
    udp_template: Option<String>,
    /// Ask a proxy for packets of IP by this URI template, or by this path [default:
    /// /.well-known/masque/ip/*/*/]
    #[arg(long, value_name = "TEMPLATE", value_parser = ip_template)]
    ip_template: Option<String>,
}

fn udp_template(text: &str) -> Result<String, String> {
    let proxy = Proxy::at("h").ok_or("no proxy")?;
    let asked = proxy.with_udp(text).map_err(|error| error.to_string());
    asked.map(|_| text.to_owned())
}

fn ip_template(text: &str) -> Result<String, String> {
    let proxy = Proxy::at("h").ok_or("no proxy")?;
    let asked = proxy.with_ip(text).map_err(|error| error.to_string());
    asked.map(|_| text.to_owned())
}

impl Foreign {
    /// One of these options that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let all = [
            ("--credential", self.credential.is_some()),
            ("--ca", self.ca.is_some()),
            ("--cert", self.cert.is_some()),
            ("--udp-template", self.udp_template.is_some()),
            ("--ip-template", self.ip_template.is_some()),
        ];
        let mut given = all.iter().filter(|(_, is_given)| *is_given);
        given.next().map(|(option, _)| *option)
    }

    /// Whom we believe, and who we are.
    pub(crate) fn trust(&self) -> ClientTrust {
        ClientTrust {
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            identity: None,
            no_resume: true,
        }
    }

    /// How the proxy of this URL is asked.
    ///
    /// # Errors
    ///
    /// A template or the file with the credential cannot be used.
    pub(crate) fn proxy(&self, url: &ServerUrl) -> Outcome<Proxy> {
        let no_host = || Failure::usage(format!("`{}` is no host of a proxy", url.hosts_text()));
        let host = url.hosts.first().ok_or_else(no_host)?;
        let mut authority = host.to_string();
        if host.port == PORT {
            authority.truncate(authority.len() - format!(":{PORT}").len());
        }
        let mut proxy = Proxy::at(&authority).ok_or_else(no_host)?;
        if let Some(template) = &self.udp_template {
            proxy = proxy.with_udp(template).map_err(Failure::usage)?;
        }
        if let Some(template) = &self.ip_template {
            proxy = proxy.with_ip(template).map_err(Failure::usage)?;
        }
        if let Some(file) = &self.credential {
            proxy = proxy.with_credential(read_credential(file)?);
        }
        Ok(proxy)
    }
}

fn read_credential(file: &Path) -> Outcome<Credential> {
    let place = file.display();
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure::usage(format!("--credential: {place}: {error}")))?;
    let line = text.trim_end_matches(['\n', '\r']);
    line.parse()
        .map_err(|error| Failure::usage(format!("--credential: {place}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn a_proxy_has_a_host_and_may_have_more_and_a_pin() {
        let short = parse("proxy.example").unwrap();
        assert_eq!((short.pin, short.hosts[0].port), (None, 443));
        assert_eq!(parse("proxy.example:4433/").unwrap().hosts[0].port, 4433);
        let long = parse(&format!("{PIN}@192.0.2.1,[2001:db8::1]:4433/")).unwrap();
        assert_eq!(long.pin, PIN.parse().ok());
        assert_eq!(long.hosts_text(), "192.0.2.1:443, [2001:db8::1]:4433");
    }

    #[test]
    fn what_is_no_url_of_a_proxy_is_told_apart() {
        let error = |text: &str| parse(text).unwrap_err();
        assert_eq!(error("user:password@h/"), ProxyUrlError::Secret);
        assert_eq!(error("h/masque"), ProxyUrlError::Path("masque".into()));
        assert!(matches!(error("h:x/"), ProxyUrlError::Url(_)));
        assert!(matches!(error(""), ProxyUrlError::Url(_)));
        let told = without_secret("https://user:pass@word@h/");
        assert_eq!(told, "https://...@h/");
    }

    #[test]
    fn only_what_can_be_used_is_taken() {
        assert!(udp_template("/u/{target_host}/{target_port}").is_ok());
        assert!(udp_template("https://a/{target_host},{target_port}").is_ok());
        let told = udp_template("/u/{target_host}").unwrap_err();
        assert!(told.contains("target_port"), "{told}");
        assert!(ip_template("/ip/*/*/").is_ok() && ip_template("ip").is_err());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credential");
        std::fs::write(&file, "two words\n").unwrap();
        let failure = read_credential(&file).unwrap_err();
        assert!(
            failure.what().contains("expected USER:PASSWORD"),
            "{failure:?}"
        );
        std::fs::write(&file, "user: pass word \r\n").unwrap();
        let read = read_credential(&file).unwrap();
        assert_eq!(read, "user: pass word ".parse().unwrap());
    }
}
