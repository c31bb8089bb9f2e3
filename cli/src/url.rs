//! The URL that `serve` prints and the other commands take.
//!
//! ```text
//! anabranch://PIN@HOST:PORT,HOST:PORT/PATH
//! ```
//!
//! PIN is the fingerprint of the server's public key: the SHA-256 of its `SubjectPublicKeyInfo` in
//! 64 hexadecimal digits. It stands before the hosts, so that a file's name can be appended.
//! Without it the server must have a certificate for the (first) host's name. Several addresses of
//! one server are separated by commas; a port that is left out is 4433.
//!
//! Everything after the third slash is the path. Characters may be escaped as `%20`, but need not
//! be: a name can be appended as it is, including `?` and `#`.

use anabranch_proto::tls::Fingerprint;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

/// The scheme.
const SCHEME: &str = "anabranch://";

/// The UDP port of servers that name none.
pub(crate) const DEFAULT_PORT: u16 = 4433;

/// Addresses one server may have.
const MAX_HOSTS: usize = 16;

/// A server, and a path on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// The server's key.
    pub(crate) pin: Option<Fingerprint>,
    /// Its addresses, at least one.
    pub(crate) hosts: Vec<Host>,
    /// The path, unescaped, without the first slash.
    pub(crate) path: String,
}

/// One address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// A DNS name or an IP address without brackets.
    pub(crate) name: String,
    /// The UDP port.
    pub(crate) port: u16,
}

/// A text that is not such a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    /// Another scheme, or none.
    #[error(
        "`{0}` is no server URL: expected anabranch://PIN@HOST:PORT/PATH, as `serve` prints it"
    )]
    Scheme(String),
    /// The pin.
    #[error("the key fingerprint before `@` has {0} characters: expected 64 hexadecimal digits")]
    Pin(usize),
    /// A host.
    #[error(
        "`{0}` is no host: expected a name or an address (IPv6 in brackets), perhaps with :PORT"
    )]
    Host(String),
    /// The path.
    #[error(
        "`{0}` is no UTF-8 text once it is unescaped: files of such names can be neither fetched \
         nor sent, give them another name"
    )]
    Path(String),
    /// Too many hosts.
    #[error("{0} hosts: a server has at most {MAX_HOSTS}")]
    TooManyHosts(usize),
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text, DEFAULT_PORT)
    }
}

impl ServerUrl {
    /// Reads a URL in which a port that is left out is this one.
    pub(crate) fn parse(text: &str, port: u16) -> Result<Self, UrlError> {
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| UrlError::Scheme(text.into()))?;
        Self::behind_scheme(rest, port)
    }

    /// Reads what follows a scheme.
    pub(crate) fn behind_scheme(rest: &str, port: u16) -> Result<Self, UrlError> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (pin, hosts) = match authority.split_once('@') {
            Some((pin, hosts)) => {
                let error = || UrlError::Pin(pin.chars().count());
                (Some(pin.parse().map_err(|_| error())?), hosts)
            }
            None => (None, authority),
        };
        let hosts = hosts.split(',').map(|host| Host::parse(host, port));
        let hosts: Vec<Host> = hosts.collect::<Result<_, _>>()?;
        if hosts.len() > MAX_HOSTS {
            return Err(UrlError::TooManyHosts(hosts.len()));
        }
        let path =
            String::from_utf8(unescape(path)).map_err(|_| UrlError::Path(path.to_owned()))?;
        Ok(Self { pin, hosts, path })
    }
}

impl FromStr for Host {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text, DEFAULT_PORT)
    }
}

impl Host {
    /// Reads a host whose port, if it is left out, is this one.
    pub(crate) fn parse(text: &str, default: u16) -> Result<Self, UrlError> {
        let error = || UrlError::Host(text.into());
        let spelling;
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']').ok_or_else(error)?;
                let address: std::net::Ipv6Addr = name.parse().map_err(|_| error())?;
                // An IPv6 address has many spellings, which all name one server.
                spelling = address.to_string();
                (
                    spelling.as_str(),
                    port.strip_prefix(':')
                        .or(port.is_empty().then_some(""))
                        .ok_or_else(error)?,
                )
            }
            None => text.split_once(':').unwrap_or((text, "")),
        };
        let port = if port.is_empty() {
            default
        } else {
            port.parse().map_err(|_| error())?
        };
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if name.is_empty() || port == 0 || !name.chars().all(good) {
            return Err(error());
        }
        Ok(Self {
            name: name.into(),
            port,
        })
    }
}

impl ServerUrl {
    /// The path as it goes into an HTTP request.
    pub(crate) fn request_path(&self) -> String {
        format!("/{}", escape(self.path.as_bytes()))
    }

    /// The last part of the path, if the path names a file.
    pub(crate) fn file_name(&self) -> Option<&str> {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        (!name.is_empty() && name != "." && name != "..").then_some(name)
    }

    /// Whether both name one server, by the same key and hosts.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        (self.pin, &self.hosts) == (other.pin, &other.hosts)
    }

    /// The hosts, for messages.
    pub(crate) fn hosts_text(&self) -> String {
        self.hosts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The key, if it is pinned, and the hosts, as they stand in a URL.
    pub(crate) fn authority(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        let hosts = hosts.join(",");
        self.pin
            .map_or_else(|| hosts.clone(), |pin| format!("{pin}@{hosts}"))
    }

    /// The name to ask the server for.
    pub(crate) fn server_name(&self) -> &str {
        self.hosts.first().map_or("", |host| &host.name)
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.authority())?;
        if !self.path.is_empty() {
            f.write_str(&self.request_path())?;
        }
        Ok(())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            _ => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// Replaces `%41` and the like by their bytes. A `%` without two digits after it stands for itself.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digit = |index: usize| char::from(*bytes.get(index)?).to_digit(16);
        if let (b'%', Some(high), Some(low)) = (byte, digit(at + 1), digit(at + 2)) {
            plain.push((high << 4 | low) as u8);
            at += 3;
        } else {
            plain.push(byte);
            at += 1;
        }
    }
    plain
}

/// Escapes everything but unreserved characters (RFC 3986, section 2.3) and slashes.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn parse(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn a_file_name_can_be_appended_to_what_serve_prints() {
        let base = format!("anabranch://{PIN}@192.0.2.1:4433,[2001:db8::1]:4434");
        assert_eq!(parse(&base).to_string(), base);
        let url = parse(&format!("{base}/a dir/100% #1?.bin"));
        assert_eq!(url.file_name(), Some("100% #1?.bin"));
        assert_eq!(url.request_path(), "/a%20dir/100%25%20%231%3F.bin");
        assert_eq!(
            url.hosts[1],
            Host {
                name: "2001:db8::1".into(),
                port: 4434
            }
        );
        assert_eq!(parse(&url.to_string()), url);
    }

    #[test]
    fn pin_port_and_path_may_be_left_out() {
        let url = parse("anabranch://files.example.org");
        assert_eq!((url.pin, url.path.as_str()), (None, ""));
        assert_eq!(url.hosts[0].port, DEFAULT_PORT);
        assert_eq!(url.file_name(), None);
        assert_eq!(parse("anabranch://[::1]/x").hosts[0].port, DEFAULT_PORT);
    }

    /// Found by the fuzz target `urls`.
    #[test]
    fn spellings_of_an_ipv6_address_name_one_server() {
        let short = parse("anabranch://[2001:db8::]/x");
        let long = parse("anabranch://[2001:DB8::0]/x");
        assert!(short.is_same_server(&long));
        assert_eq!(parse(&long.to_string()), long);
    }

    #[test]
    fn a_directory_has_no_file_name() {
        assert_eq!(parse("anabranch://h/dir/").file_name(), None);
        assert_eq!(parse("anabranch://h/dir/..").file_name(), None);
    }

    #[test]
    fn mistakes_are_told_apart() {
        let error = |text: &str| text.parse::<ServerUrl>().unwrap_err();
        assert!(matches!(error("https://h/x"), UrlError::Scheme(_)));
        assert_eq!(error("anabranch://abcd@h/x"), UrlError::Pin(4));
        for host in [
            "",
            "h:0",
            "h:70000",
            "h:x",
            "[::1",
            "[::1]4433",
            "[h]:1",
            "h,,h",
            "a b",
            "::1",
        ] {
            let text = format!("anabranch://{host}/x");
            assert!(matches!(error(&text), UrlError::Host(_)), "{text}");
        }
        assert_eq!(
            error("anabranch://h/a%ff"),
            UrlError::Path("a%ff".into()),
            "never another file in its place"
        );
        let many = vec!["h"; MAX_HOSTS + 1].join(",");
        assert_eq!(
            error(&format!("anabranch://{many}")),
            UrlError::TooManyHosts(MAX_HOSTS + 1)
        );
    }

    #[test]
    fn escaping_is_undone_by_unescaping() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), all);
        assert_eq!(unescape("%zz%4"), b"%zz%4");
    }
}
