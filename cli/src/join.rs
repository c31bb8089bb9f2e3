//! The URL that `tunnel join` takes: the one that `tunnel serve` and `tunnel invite` print, or that
//! of a proxy of others ([`foreign`]).
//!
//! ```text
//! anabranch://PIN@HOST:PORT,HOST:PORT/join/INVITATION
//! https://HOST:PORT/
//! ```
//!
//! The pin and the hosts are those of any server, but a port that is left out is 4434. The
//! invitation is good for one machine, which needs no more than the rest from then on.

use crate::foreign::{self, ProxyUrlError};
use crate::url::{ServerUrl, UrlError};
use anabranch_gateway::identity::Secret;
use anabranch_proto::tls::Fingerprint;
use std::fmt;
use std::str::FromStr;

/// The UDP port of far ends that name none: where they listen, and where they are looked for.
pub(crate) const PORT: u16 = 4434;

/// Before an invitation.
const JOIN: &str = "join/";

/// The far end of a tunnel, and what lets a machine in there.
#[derive(Debug, Clone)]
pub(crate) struct JoinUrl {
    /// The far end, without a path.
    pub(crate) server: ServerUrl,
    /// Its key.
    pub(crate) pin: Fingerprint,
    /// The invitation.
    pub(crate) invitation: Option<Secret>,
}

/// What `tunnel join` may lead to.
#[derive(Debug, Clone)]
pub(crate) enum FarEnd {
    /// A far end of ours.
    Exit(JoinUrl),
    /// A proxy of others.
    Proxy(ServerUrl),
}

impl FarEnd {
    /// Where it is, and its key if that is pinned.
    pub(crate) fn server(&self) -> &ServerUrl {
        match self {
            Self::Exit(url) => &url.server,
            Self::Proxy(url) => url,
        }
    }
}

/// A text that is neither URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FarEndError {
    /// Not the one that is printed.
    #[error(transparent)]
    Exit(#[from] JoinUrlError),
    /// Not that of a proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyUrlError),
}

impl FromStr for FarEnd {
    type Err = FarEndError;

    fn from_str(text: &str) -> Result<Self, FarEndError> {
        Ok(match text.strip_prefix(foreign::SCHEME) {
            Some(rest) => Self::Proxy(foreign::parse(rest)?),
            None => Self::Exit(text.parse()?),
        })
    }
}

impl fmt::Display for FarEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(url) => url.fmt(f),
            Self::Proxy(url) => write!(f, "{}{}/", foreign::SCHEME, url.authority()),
        }
    }
}

/// A text that is no URL of a far end of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinUrlError {
    /// It is no URL of a server.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Without the key, anybody could answer in the far end's place.
    #[error(
        "the URL pins no key: expected anabranch://PIN@HOST:PORT/..., as `tunnel serve` prints it"
    )]
    Pin,
    /// The path.
    #[error(
        "`/{0}` leads into no tunnel: expected the whole URL that `tunnel serve` or `tunnel \
         invite` prints, which ends in /join/ and an invitation"
    )]
    Path(String),
}

impl FromStr for JoinUrl {
    type Err = JoinUrlError;

    fn from_str(text: &str) -> Result<Self, JoinUrlError> {
        let mut server = ServerUrl::parse(text, PORT)?;
        let pin = server.pin.ok_or(JoinUrlError::Pin)?;
        let path = std::mem::take(&mut server.path);
        let invitation = match path.strip_prefix(JOIN) {
            _ if path.is_empty() => None,
            Some(text) => Some(text.parse().map_err(|_| JoinUrlError::Path(path.clone()))?),
            None => return Err(JoinUrlError::Path(path)),
        };
        Ok(Self {
            server,
            pin,
            invitation,
        })
    }
}

impl fmt::Display for JoinUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server)?;
        match &self.invitation {
            Some(invitation) => write!(f, "/{JOIN}{}", invitation.as_str()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn what_is_printed_can_be_joined_with_and_without_the_invitation() {
        let bare = format!("anabranch://{PIN}@192.0.2.1:4434,[2001:db8::1]:4434");
        let invitation = "abcdefghijklmnopqrstu_-";
        let whole = format!("{bare}/join/{invitation}");
        let parsed: JoinUrl = whole.parse().unwrap();
        assert_eq!(parsed.to_string(), whole);
        assert_eq!(parsed.server.to_string(), bare);
        assert!(!format!("{parsed:?}").contains(invitation));
        let parsed: JoinUrl = bare.parse().unwrap();
        assert!(parsed.invitation.is_none());
    }

    #[test]
    fn a_port_that_is_left_out_is_the_one_where_far_ends_listen() {
        let parsed: JoinUrl = format!("anabranch://{PIN}@192.0.2.1,[2001:db8::1],h:5")
            .parse()
            .unwrap();
        let ports: Vec<u16> = parsed.server.hosts.iter().map(|host| host.port).collect();
        assert_eq!(ports, [PORT, PORT, 5]);
    }

    #[test]
    fn the_scheme_tells_a_proxy_of_others_from_a_far_end_of_ours() {
        let far_end = |text: &str| text.parse::<FarEnd>().unwrap();
        let ours = format!("anabranch://{PIN}@192.0.2.1:4434");
        assert!(matches!(far_end(&ours), FarEnd::Exit(_)));
        assert_eq!(far_end(&ours).to_string(), ours);
        for (text, shown) in [
            ("https://h", "https://h:443/"),
            ("https://h:1,[::1]:2/", "https://h:1,[::1]:2/"),
        ] {
            assert!(matches!(far_end(text), FarEnd::Proxy(_)));
            assert_eq!(far_end(text).to_string(), shown);
            assert_eq!(far_end(shown).to_string(), shown);
        }
        let error = |text: &str| text.parse::<FarEnd>().unwrap_err();
        assert!(matches!(error("https://u:p@h/"), FarEndError::Proxy(_)));
        assert!(matches!(error("http://h/"), FarEndError::Exit(_)));
    }

    #[test]
    fn what_leads_into_no_tunnel_is_told_apart() {
        let error = |text: &str| text.parse::<JoinUrl>().unwrap_err();
        assert_eq!(error("anabranch://h:4434/join/x"), JoinUrlError::Pin);
        let of_files = error(&format!("anabranch://{PIN}@h/file"));
        assert_eq!(of_files, JoinUrlError::Path("file".into()));
        let short = error(&format!("anabranch://{PIN}@h/join/short"));
        assert_eq!(short, JoinUrlError::Path("join/short".into()));
        assert!(matches!(error("https://h/"), JoinUrlError::Url(_)));
    }
}
