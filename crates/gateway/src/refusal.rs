//! Why a connection is not made: as the exit tells it by HTTP, and as the entry tells its hosts.

use crate::identity::Refused;
use anabranch_masque::proxy_status::NAME;
use anabranch_masque::target;
use anabranch_masque::{Headers, ProxyError, ProxyStatus, Response};
use std::fmt;

/// A reason. Those with a name in RFC 9209 are told by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The target is no host and port.
    BadTarget,
    /// The name has no address.
    Unresolvable,
    /// The resolver did not answer in time.
    ResolverSilent,
    /// The exit does not connect to such addresses or ports.
    Prohibited,
    /// No route leads there.
    Unroutable,
    /// The target refused.
    ConnectionRefused,
    /// The target did not answer in time.
    TimedOut,
    /// The client has as many connections as it may have.
    TooMany,
    /// Nobody is let in without an invitation.
    Unauthenticated,
    /// The exit has let in as many clients as it may.
    Full,
    /// The exit cannot write down whom it lets in.
    NotRecorded,
    /// The exit knows no such protocol.
    Unsupported,
    /// There is nothing of this path.
    NotHere,
    /// The exit has a fault.
    Internal,
    /// There is no connection to the exit.
    NoTunnel,
}

const ALL: [Refusal; 15] = [
    Refusal::BadTarget,
    Refusal::Unresolvable,
    Refusal::ResolverSilent,
    Refusal::Prohibited,
    Refusal::Unroutable,
    Refusal::ConnectionRefused,
    Refusal::TimedOut,
    Refusal::TooMany,
    Refusal::Unauthenticated,
    Refusal::Full,
    Refusal::NotRecorded,
    Refusal::Unsupported,
    Refusal::NotHere,
    Refusal::Internal,
    Refusal::NoTunnel,
];

impl Refusal {
    /// What RFC 9209 calls it.
    fn error(self) -> Option<ProxyError> {
        Some(match self {
            Self::Unresolvable => ProxyError::DnsError,
            Self::ResolverSilent => ProxyError::DnsTimeout,
            Self::Prohibited => ProxyError::DestinationIpProhibited,
            Self::Unroutable => ProxyError::DestinationIpUnroutable,
            Self::ConnectionRefused => ProxyError::ConnectionRefused,
            Self::TimedOut => ProxyError::ConnectionTimeout,
            Self::TooMany => ProxyError::ConnectionLimitReached,
            Self::Full => ProxyError::HttpRequestDenied,
            Self::Internal | Self::NotRecorded => ProxyError::ProxyInternalError,
            Self::NoTunnel => ProxyError::DestinationUnavailable,
            Self::BadTarget | Self::Unauthenticated | Self::Unsupported | Self::NotHere => {
                return None;
            }
        })
    }

    /// The status of HTTP.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::BadTarget => 400,
            Self::Unauthenticated => 401,
            Self::NotHere => 404,
            Self::Unsupported => 501,
            // Somebody may make room, so it is worth asking again.
            Self::Full | Self::NotRecorded => 503,
            other => other.error().map_or(500, |error| error.status()),
        }
    }

    /// The field `Proxy-Status`.
    pub(crate) fn proxy_status(self) -> Option<String> {
        let status = ProxyStatus {
            proxy: crate::AUTHORITY.into(),
            error: Some(self.error()?),
            ..ProxyStatus::default()
        };
        Some(status.to_value())
    }

    /// The answer to the request.
    pub(crate) fn response(self) -> Response {
        let mut headers = Headers::new();
        if let Some(value) = self.proxy_status() {
            headers.push(NAME, value);
        }
        if self == Self::Unauthenticated {
            headers.push("www-authenticate", "Bearer");
        }
        Response {
            status: self.status(),
            headers,
        }
    }

    /// What an answer other than 2xx means.
    pub(crate) fn of(response: &Response) -> Self {
        // The proxy closest to the target knows best.
        let told = ProxyStatus::read(&response.headers)
            .into_iter()
            .find_map(|one| one.error);
        let has_name = |one: &Self| told.is_some() && one.error() == told;
        let has_status = |one: &Self| one.status() == response.status;
        let find = |is_it: &dyn Fn(&Self) -> bool| ALL.into_iter().find(is_it);
        find(&|one| has_name(one) && has_status(one))
            .or_else(|| find(&has_name))
            .or_else(|| find(&has_status))
            .unwrap_or(Self::Internal)
    }

    /// The reply code of SOCKS (RFC 1928, section 6).
    pub(crate) fn socks(self) -> u8 {
        const GENERAL_FAILURE: u8 = 1;
        const NOT_ALLOWED: u8 = 2;
        const NETWORK_UNREACHABLE: u8 = 3;
        const HOST_UNREACHABLE: u8 = 4;
        const CONNECTION_REFUSED: u8 = 5;
        const NO_SUCH_COMMAND: u8 = 7;
        match self {
            Self::Prohibited => NOT_ALLOWED,
            Self::Unroutable | Self::NoTunnel => NETWORK_UNREACHABLE,
            Self::Unresolvable | Self::ResolverSilent | Self::TimedOut => HOST_UNREACHABLE,
            Self::ConnectionRefused => CONNECTION_REFUSED,
            Self::Unsupported => NO_SUCH_COMMAND,
            Self::BadTarget
            | Self::TooMany
            | Self::Unauthenticated
            | Self::Full
            | Self::NotRecorded
            | Self::NotHere
            | Self::Internal => GENERAL_FAILURE,
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown => Self::Unauthenticated,
            Refused::Full => Self::Full,
            Refused::File(_) => Self::NotRecorded,
        }
    }
}

impl From<target::Refusal> for Refusal {
    fn from(refusal: target::Refusal) -> Self {
        match refusal {
            target::Refusal::NoTunnel | target::Refusal::Path => Self::NotHere,
            target::Refusal::Protocol => Self::Unsupported,
            target::Refusal::Target(_) | target::Refusal::Scope => Self::BadTarget,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadTarget => "that is no host and port",
            Self::Unresolvable => "the name has no address, as the far end of the tunnel sees it",
            Self::ResolverSilent => "the resolver at the far end of the tunnel does not answer",
            Self::Prohibited => "the far end of the tunnel does not lead there: see its --allow",
            Self::Unroutable => "the far end of the tunnel has no route there",
            Self::ConnectionRefused => "the target refuses the connection",
            Self::TimedOut => "the target does not answer",
            Self::TooMany => "this machine has as many connections as the far end allows",
            Self::Unauthenticated => "the far end of the tunnel does not let this machine in",
            Self::Full => {
                "the far end of the tunnel has let in as many machines as it may: revoke one there"
            }
            Self::NotRecorded => {
                "the far end of the tunnel cannot write down whom it lets in: see its log"
            }
            Self::Unsupported | Self::NotHere => "the far end of the tunnel cannot do that",
            Self::Internal => "the far end of the tunnel failed",
            Self::NoTunnel => "there is no connection to the far end of the tunnel",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_same_on_both_sides() {
        for reason in ALL {
            assert_eq!(Refusal::of(&reason.response()), reason);
        }
    }

    #[test]
    fn other_proxies_are_understood_by_their_status() {
        assert_eq!(Refusal::of(&Response::new(401)), Refusal::Unauthenticated);
        let mut other = Response::new(502);
        let status = "cdn.example; next-hop=a; error=connection_refused; received-status=1";
        other.headers.push("proxy-status", status);
        assert_eq!(Refusal::of(&other), Refusal::ConnectionRefused);
        assert_eq!(Refusal::of(&Response::new(418)), Refusal::Internal);
    }
}
