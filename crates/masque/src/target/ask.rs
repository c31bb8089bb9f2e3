//! What a client asks of a tunnel: conversion to and from requests.

use super::{Host, InvalidTarget, InvalidTemplate, Target, Template};
use crate::ip::Prefix;
use crate::message::RequestLine;
use crate::protocol::Protocol;
use std::net::IpAddr;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A TCP connection whose bytes are the content of DATA frames (CONNECT).
    Connect(Target),
    /// A TCP connection whose bytes are in capsules (connect-tcp).
    Tcp(Target),
    /// UDP to one target, or to none in particular: only with the header `connect-udp-bind`.
    Udp(Option<Target>),
    /// IP packets.
    Ip(Scope),
}

/// What is carried of IP (RFC 9484, section 4.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Packets to and from these addresses are carried.
    pub target: IpTarget,
    /// The IP protocol (ICMP is included), or `None` for all.
    pub protocol: Option<u8>,
}

impl Scope {
    /// All packets.
    pub const ALL: Self = Self {
        target: IpTarget::Any,
        protocol: None,
    };
}

/// Where IP packets of a tunnel go to or come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpTarget {
    /// Anywhere.
    Any,
    /// Addresses of this prefix.
    Prefix(Prefix),
    /// Addresses of this name.
    Name(String),
}

/// Why a request cannot be what it asks for, with the status to answer it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No CONNECT: there are no resources here.
    #[error("there is nothing here but tunnels")]
    NoTunnel,
    /// A protocol that this crate does not know.
    #[error("the protocol is not known")]
    Protocol,
    /// A path that is not of the protocol's template.
    #[error("the path is not that of the protocol's template")]
    Path,
    /// A host or port that cannot be.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// A prefix or IP protocol that cannot be.
    #[error("the target or ipproto is no prefix, name, number or star")]
    Scope,
}

impl Refusal {
    /// The status of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::NoTunnel | Self::Path => 404,
            Self::Protocol => 501,
            Self::Target(_) | Self::Scope => 400,
        }
    }
}

/// The URI templates of one proxy, one for each protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Templates {
    tcp: Template,
    udp: Template,
    ip: Template,
}

const HOST: &str = "target_host";
const PORT: &str = "target_port";
const TARGET: &str = "target";
const IPPROTO: &str = "ipproto";
/// Stands for anything.
const ANY: &str = "*";

impl Templates {
    /// The default templates of a proxy, which is a host with its port if that is not 443; `None` if
    /// that is no authority.
    pub fn of_proxy(authority: &str) -> Option<Self> {
        let template = |rest| {
            let text = format!("https://{authority}/.well-known/masque/{rest}");
            let template = Template::parse(&text).ok();
            template.filter(|template| template.authority() == authority)
        };
        Some(Self {
            tcp: template("tcp/{target_host}/{target_port}/")?,
            udp: template("udp/{target_host}/{target_port}/")?,
            ip: template("ip/{target}/{ipproto}/")?,
        })
    }

    /// These templates with another one for a protocol: with `target_host` and `target_port` for TCP and
    /// UDP; for IP it may have `target` and `ipproto`.
    ///
    /// # Errors
    /// [`InvalidTemplate`], if it is none, or lacks its variables.
    pub fn with(mut self, protocol: Protocol, template: &str) -> Result<Self, InvalidTemplate> {
        let template = Template::parse(template)?;
        let slot = match protocol {
            Protocol::Ip => &mut self.ip,
            _ if !template.has(HOST) || !template.has(PORT) => {
                return Err(InvalidTemplate::Variables);
            }
            Protocol::Tcp => &mut self.tcp,
            Protocol::Udp => &mut self.udp,
        };
        *slot = template;
        Ok(self)
    }

    /// The request for a tunnel.
    pub fn request(&self, ask: &Ask) -> RequestLine {
        match ask {
            Ask::Connect(target) => RequestLine::Connect {
                authority: target.to_string(),
            },
            Ask::Tcp(target) => extended(Protocol::Tcp, &self.tcp, Some(target)),
            Ask::Udp(target) => extended(Protocol::Udp, &self.udp, target.as_ref()),
            Ask::Ip(scope) => {
                let target = match &scope.target {
                    IpTarget::Any => ANY.to_owned(),
                    IpTarget::Prefix(prefix) if prefix.is_host() => prefix.address().to_string(),
                    IpTarget::Prefix(prefix) => prefix.to_string(),
                    IpTarget::Name(name) => name.clone(),
                };
                let ipproto = scope
                    .protocol
                    .map_or(ANY.to_owned(), |number| number.to_string());
                let path = self.ip.expand(&[(TARGET, &target), (IPPROTO, &ipproto)]);
                line(Protocol::Ip, &self.ip, path)
            }
        }
    }

    /// What a request asks for. Its scheme and authority are not compared: a proxy has many names.
    ///
    /// # Errors
    /// [`Refusal`], if it asks for nothing that there is.
    pub fn read(&self, line: &RequestLine) -> Result<Ask, Refusal> {
        let (protocol, path) = match line {
            RequestLine::Connect { authority } => return Ok(Ask::Connect(authority.parse()?)),
            RequestLine::Other { .. } => return Err(Refusal::NoTunnel),
            RequestLine::Extended { protocol, path, .. } => (protocol, path),
        };
        match Protocol::from_token(protocol).ok_or(Refusal::Protocol)? {
            Protocol::Tcp => {
                let (host, port) = host_and_port(&self.tcp, path)?;
                Ok(Ask::Tcp(Target::new(&host, &port)?))
            }
            Protocol::Udp => {
                let (host, port) = host_and_port(&self.udp, path)?;
                if host == ANY && port == ANY {
                    return Ok(Ask::Udp(None));
                }
                Ok(Ask::Udp(Some(Target::new(&host, &port)?)))
            }
            Protocol::Ip => {
                let values = self.ip.read(path).ok_or(Refusal::Path)?;
                let value = |name| value(&values, name).unwrap_or(ANY);
                Ok(Ask::Ip(Scope {
                    target: ip_target(value(TARGET))?,
                    protocol: ip_protocol(value(IPPROTO))?,
                }))
            }
        }
    }
}

fn extended(protocol: Protocol, template: &Template, target: Option<&Target>) -> RequestLine {
    let host = target.map_or(ANY.to_owned(), |target| target.host.to_string());
    let port = target.map_or(ANY.to_owned(), |target| target.port.to_string());
    let path = template.expand(&[(HOST, &host), (PORT, &port)]);
    line(protocol, template, path)
}

fn line(protocol: Protocol, template: &Template, path: String) -> RequestLine {
    RequestLine::Extended {
        protocol: protocol.token().to_owned(),
        scheme: template.scheme().to_owned(),
        authority: template.authority().to_owned(),
        path,
    }
}

fn host_and_port(template: &Template, path: &str) -> Result<(String, String), Refusal> {
    let values = template.read(path).ok_or(Refusal::Path)?;
    let value = |name| value(&values, name).map(str::to_owned).ok_or(Refusal::Path);
    Ok((value(HOST)?, value(PORT)?))
}

fn value<'a>(values: &'a [(&str, String)], name: &str) -> Option<&'a str> {
    let found = values.iter().find(|(own, _)| *own == name);
    found.map(|(_, value)| value.as_str())
}

fn ip_target(text: &str) -> Result<IpTarget, Refusal> {
    if text == ANY {
        return Ok(IpTarget::Any);
    }
    if let Some((address, length)) = text.split_once('/') {
        let address = address.parse::<IpAddr>().ok();
        let prefix = address
            .zip(number(length))
            .and_then(|(a, length)| Prefix::new(a, length));
        return prefix.map(IpTarget::Prefix).ok_or(Refusal::Scope);
    }
    match text.parse::<Host>() {
        Ok(Host::Name(name)) => Ok(IpTarget::Name(name)),
        Ok(host) => {
            let prefix = host.address().map(Prefix::host);
            prefix.map(IpTarget::Prefix).ok_or(Refusal::Scope)
        }
        Err(_) => Err(Refusal::Scope),
    }
}

fn ip_protocol(text: &str) -> Result<Option<u8>, Refusal> {
    if text == ANY {
        return Ok(None);
    }
    number(text).map(Some).ok_or(Refusal::Scope)
}

/// A number of one to three digits.
fn number(text: &str) -> Option<u8> {
    let is_number = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn templates() -> Templates {
        Templates::of_proxy("proxy.example:4443").unwrap()
    }

    fn path(ask: &Ask) -> String {
        match templates().request(ask) {
            RequestLine::Extended { path, .. } => path,
            line => panic!("{line:?}"),
        }
    }

    fn read(protocol: &str, path: &str) -> Result<Ask, Refusal> {
        templates().read(&RequestLine::Extended {
            protocol: protocol.to_owned(),
            scheme: "https".to_owned(),
            authority: "proxy.example:4443".to_owned(),
            path: path.to_owned(),
        })
    }

    fn prefix(text: &str, length: u8) -> IpTarget {
        IpTarget::Prefix(Prefix::new(text.parse().unwrap(), length).unwrap())
    }

    #[test]
    fn what_is_asked_for_is_in_the_path_and_comes_back() {
        let target: Target = "[2001:db8::42]:443".parse().unwrap();
        let scope = |target, protocol| Ask::Ip(Scope { target, protocol });
        for (ask, wanted) in [
            (Ask::Tcp(target.clone()), "tcp/2001%3Adb8%3A%3A42/443/"),
            (Ask::Udp(Some(target)), "udp/2001%3Adb8%3A%3A42/443/"),
            (Ask::Udp(None), "udp/%2A/%2A/"),
            (Ask::Ip(Scope::ALL), "ip/%2A/%2A/"),
            (
                scope(prefix("2001:db8::", 32), Some(17)),
                "ip/2001%3Adb8%3A%3A%2F32/17/",
            ),
            (scope(prefix("192.0.2.6", 32), None), "ip/192.0.2.6/%2A/"),
            (
                scope(IpTarget::Name("a.example".into()), Some(0)),
                "ip/a.example/0/",
            ),
        ] {
            assert_eq!(path(&ask), format!("/.well-known/masque/{wanted}"));
            assert_eq!(templates().read(&templates().request(&ask)), Ok(ask));
        }
        let ask = Ask::Connect("a.example:22".parse().unwrap());
        assert_eq!(templates().read(&templates().request(&ask)), Ok(ask));
    }

    #[test]
    fn a_proxy_is_a_host_and_perhaps_a_port() {
        for text in ["a/b", "a/", "a?b", "a#b", "u@a", "{a}", "a b", ""] {
            assert_eq!(Templates::of_proxy(text), None, "{text}");
        }
        for text in ["a", "a.example:4443", "192.0.2.1:443", "[2001:db8::1]:443"] {
            assert!(Templates::of_proxy(text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_template_without_variables_asks_for_everything() {
        let vpn = "https://proxy.example/vpn?user=bob";
        let templates = templates().with(Protocol::Ip, vpn).unwrap();
        let ask = Ask::Ip(Scope::ALL);
        assert_eq!(templates.read(&templates.request(&ask)), Ok(ask));
    }

    #[test]
    fn a_template_for_tcp_or_udp_says_to_what_host_and_port() {
        let with = |protocol, text| templates().with(protocol, text).err();
        let missing = Some(InvalidTemplate::Variables);
        assert_eq!(with(Protocol::Udp, "https://a/{target_host}/"), missing);
        assert_eq!(with(Protocol::Tcp, "https://a/{target_port}/"), missing);
        assert_eq!(
            with(Protocol::Udp, "https://a/{?target_host,target_port}"),
            None
        );
        assert_eq!(with(Protocol::Ip, "https://a"), Some(InvalidTemplate::Form));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_a_status() {
        for (protocol, path, status) in [
            ("websocket", "/", 501),
            ("connect-udp", "/", 404),
            ("connect-udp", "/.well-known/masque/ip/%2A/%2A/", 404),
            ("connect-udp", "/.well-known/masque/udp/a/0/", 400),
            ("connect-udp", "/.well-known/masque/udp/a%20b/1/", 400),
            ("connect-udp", "/.well-known/masque/udp/%2A/1/", 400),
            ("connect-udp", "/.well-known/masque/udp/a/%2A/", 400),
            ("connect-tcp", "/.well-known/masque/tcp/%2A/%2A/", 400),
            (
                "connect-udp",
                "/.well-known/masque/udp/fe80%3A%3A1%25eth0/1/",
                400,
            ),
            (
                "connect-ip",
                "/.well-known/masque/ip/192.0.2.1%2F24/%2A/",
                400,
            ),
            (
                "connect-ip",
                "/.well-known/masque/ip/192.0.2.0%2F33/%2A/",
                400,
            ),
            ("connect-ip", "/.well-known/masque/ip/a%2F3/%2A/", 400),
            ("connect-ip", "/.well-known/masque/ip/%2A/256/", 400),
            ("connect-ip", "/.well-known/masque/ip/%2A/+1/", 404),
            ("connect-ip", "/.well-known/masque/ip/%2A/0017/", 400),
        ] {
            let refusal = read(protocol, path).unwrap_err();
            assert_eq!(refusal.status(), status, "{protocol} {path}");
        }
        let other = RequestLine::Other {
            method: "GET".to_owned(),
            scheme: "https".to_owned(),
            authority: None,
            path: "/".to_owned(),
        };
        assert_eq!(templates().read(&other), Err(Refusal::NoTunnel));
        let authority = "a.example".to_owned();
        let refusal = templates().read(&RequestLine::Connect { authority });
        assert_eq!(refusal.unwrap_err().status(), 400);
    }

    #[test]
    fn peers_of_the_draft_may_name_its_number() {
        let ask = read("connect-tcp-12", "/.well-known/masque/tcp/a.example/22/");
        assert_eq!(ask, Ok(Ask::Tcp("a.example:22".parse().unwrap())));
    }
}
