//! The kinds of tunnels that are asked for by `:protocol`.

use std::fmt;

/// What an extended CONNECT carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Bytes of a TCP connection, in capsules (draft-ietf-httpbis-connect-tcp).
    Tcp,
    /// UDP payloads (RFC 9298).
    Udp,
    /// IP packets (RFC 9484).
    Ip,
}

impl Protocol {
    /// The value of `:protocol`.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Tcp => "connect-tcp",
            Self::Udp => "connect-udp",
            Self::Ip => "connect-ip",
        }
    }

    /// The protocol of this name, or `None` for one that this crate does not know.
    pub fn from_token(token: &str) -> Option<Self> {
        match token {
            // Peers of the draft use its number until it is an RFC.
            "connect-tcp" | "connect-tcp-12" => Some(Self::Tcp),
            "connect-udp" => Some(Self::Udp),
            "connect-ip" => Some(Self::Ip),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}
