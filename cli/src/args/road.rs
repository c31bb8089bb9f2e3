//! Command-line values that map the paths of a scenario to real interfaces and addresses.

use crate::url::Host;
use anabranch_proto::tls::Fingerprint;
use std::net::IpAddr;
use std::str::FromStr;

/// The other machine of a laboratory, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The key it must have.
    pub(crate) key: Fingerprint,
    /// Where its agent listens.
    pub(crate) host: Host,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected KEY@HOST:PORT, as `anabranch lab agent --listen` prints it";
        let Some((key, host)) = text.split_once('@') else {
            return Err(format!("there is no key in it: {expected}"));
        };
        let key = key.parse().map_err(|_| {
            let digits = key.chars().count();
            format!("the key has {digits} characters: expected 64 hexadecimal digits")
        })?;
        let host = host
            .parse()
            .map_err(|error: crate::url::UrlError| error.to_string())?;
        Ok(Self { key, host })
    }
}

/// What the command line says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoadSpec {
    /// The path's name in the scenario.
    pub(crate) path: String,
    /// The interface it uses.
    pub(crate) interface: String,
    /// Which of the interface's addresses to use; a suitable one unless given.
    pub(crate) local: Option<IpAddr>,
    /// The address it leads to; the peer's unless given.
    pub(crate) remote: Option<IpAddr>,
}

impl FromStr for RoadSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected NAME=IFACE, NAME=IFACE:LOCAL or either with =REMOTE, as \
                        dsl=eth0:192.0.2.4=203.0.113.9";
        let mut parts = text.split('=');
        let (Some(path), Some(leaves), remote, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(expected.to_owned());
        };
        // No interface has a colon in its name.
        let (interface, local) = match leaves.split_once(':') {
            Some((interface, local)) => (interface, Some(local)),
            None => (leaves, None),
        };
        if path.is_empty() || interface.is_empty() {
            return Err(expected.to_owned());
        }
        let address = |text: &str| {
            let inner = text
                .strip_prefix('[')
                .and_then(|text| text.strip_suffix(']'));
            let parsed = inner.unwrap_or(text).parse::<IpAddr>();
            parsed.map_err(|_| format!("`{text}` is no address: {expected}"))
        };
        Ok(Self {
            path: path.to_owned(),
            interface: interface.to_owned(),
            local: local.map(address).transpose()?,
            remote: remote.map(address).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leaves_by_an_interface_and_the_rest_may_be_left_out() {
        let spec = |text: &str| text.parse::<RoadSpec>().unwrap();
        let short = spec("dsl=eth0");
        assert_eq!((&*short.path, &*short.interface), ("dsl", "eth0"));
        assert_eq!((short.local, short.remote), (None, None));
        let long = spec("lte=wwan0:10.0.0.2=203.0.113.9");
        assert_eq!(long.local, Some([10, 0, 0, 2].into()));
        assert_eq!(long.remote, Some([203, 0, 113, 9].into()));
        let six = spec("lte=wwan0:2001:db8::2=[2001:db8::9]");
        assert_eq!(six.local, "2001:db8::2".parse().ok());
        assert_eq!(six.remote, "2001:db8::9".parse().ok());
        assert_eq!(spec("a=b=10.0.0.1").local, None);
        for wrong in ["", "dsl", "=eth0", "dsl=", "dsl=eth0=x", "a=b=10.0.0.1=c"] {
            let why = wrong.parse::<RoadSpec>().unwrap_err();
            assert!(why.contains("NAME=IFACE"), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_peer_has_a_key_and_an_address() {
        let key = "ab".repeat(32);
        let peer: Peer = format!("{key}@192.0.2.7:4440").parse().unwrap();
        assert_eq!((&*peer.host.name, peer.host.port), ("192.0.2.7", 4440));
        assert_eq!(peer.key.to_string(), key);
        let why = "192.0.2.7:4440".parse::<Peer>().unwrap_err();
        assert!(why.contains("no key") && why.contains("lab agent"), "{why}");
        let why = "abc@192.0.2.7".parse::<Peer>().unwrap_err();
        assert!(why.contains("3 characters"), "{why}");
    }
}
