//! Hosts and ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest name in the domain name system (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 253;
/// The longest part of one.
const MAX_LABEL: usize = 63;

/// A host, by name or address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A name that is resolved by whoever connects to it.
    Name(String),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, without a zone.
    V6(Ipv6Addr),
}

/// What cannot be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// Neither an address nor a name.
    #[error("the host is neither an address nor a name")]
    Host,
    /// No number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl Host {
    /// The address, unless it is a name.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::V4(address) => Some(IpAddr::V4(*address)),
            Self::V6(address) => Some(IpAddr::V6(*address)),
        }
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6(address),
        }
    }
}

/// Reads a host without brackets. What resolvers would take for an address in another notation, such
/// as `127.1` or `0x7f000001`, is no name.
impl FromStr for Host {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = |label: &str| {
            let hex = label.strip_prefix("0x").or(label.strip_prefix("0X"));
            let hex = hex.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
            hex || label.bytes().all(|byte| byte.is_ascii_digit())
        };
        if is_name(text) && !is_number(last) {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err(InvalidTarget::Host)
        }
    }
}

/// Whether a text is a domain name, with or without a dot at its end.
pub(crate) fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(is_fine)
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// As in a URI's variable: IPv6 addresses have no brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => address.fmt(f),
        }
    }
}

/// A host and a port: what TCP and UDP connect to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, which is not 0.
    pub port: u16,
}

impl Target {
    /// A target from the two variables of a URI template.
    ///
    /// # Errors
    /// [`InvalidTarget`] says which of them cannot be.
    pub fn new(host: &str, port: &str) -> Result<Self, InvalidTarget> {
        let host = host.parse()?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port != 0);
        let port = port.ok_or(InvalidTarget::Port)?;
        Ok(Self { host, port })
    }

    /// The address and port, unless the host is a name.
    pub fn address(&self) -> Option<SocketAddr> {
        let ip = self.host.address()?;
        Some(SocketAddr::new(ip, self.port))
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().into(),
            port: address.port(),
        }
    }
}

/// Reads an authority, as in a plain CONNECT: `host:port`, IPv6 addresses in brackets.
impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidTarget::Port)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let target = Self::new(bracketed.unwrap_or(host), port)?;
        match (&target.host, bracketed) {
            (Host::V6(_), Some(_)) | (Host::V4(_) | Host::Name(_), None) => Ok(target),
            _ => Err(InvalidTarget::Host),
        }
    }
}

/// As an authority.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::V6(address) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_are_written_as_authorities() {
        for text in [
            "a.example:443",
            "192.0.2.6:1",
            "[2001:db8::42]:65535",
            "x_y.local.:53",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_host_with_a_port_is_refused() {
        let port = Err(InvalidTarget::Port);
        for text in ["a", "a:", "a:0", "a:65536", "a:+1", "a:1x", "192.0.2.1:-1"] {
            assert_eq!(text.parse::<Target>(), port, "{text}");
        }
        let long = format!("{}:1", "a.".repeat(130));
        let label = format!("{}:1", "a".repeat(64));
        let host = Err(InvalidTarget::Host);
        for text in [
            ":1",
            "::1:1",
            "[::1]",
            "[a]:1",
            "[192.0.2.1]:1",
            "[::1:1",
            "[fe80::1%eth0]:1",
            "a b:1",
            "a/b:1",
            "u@a:1",
            "a..b:1",
            ".:1",
            "\u{e4}:1",
            "*:1",
            &long,
            &label,
        ] {
            assert_eq!(text.parse::<Target>(), host, "{text}");
        }
    }

    #[test]
    fn addresses_in_other_notations_are_no_names() {
        for text in [
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "1.2.3.4.5",
            "a.1",
            "a.0x",
            "1.",
        ] {
            assert_eq!(text.parse::<Host>(), Err(InvalidTarget::Host), "{text}");
        }
        assert!("1a".parse::<Host>().is_ok() && "4.example".parse::<Host>().is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_that_comes_back_or_none(text in "[a-z0-9:.\\[\\]%*-]{0,20}") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target.clone()));
                let host = target.host.to_string();
                prop_assert_eq!(Target::new(&host, &target.port.to_string()), Ok(target));
            }
        }
    }
}
