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
    /// The request's path leads nowhere.
    NotHere,
    /// The target cannot be reached, for a reason that is not told.
    Unreachable,
    /// The exit has a fault.
    Internal,
    /// No connection to the exit stands.
    NoTunnel,
}

/// Those that a far end can tell.
const TOLD: [Refusal; 15] = [
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
    Refusal::Unreachable,
    Refusal::Internal,
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
            Self::Unreachable | Self::NoTunnel => ProxyError::DestinationUnavailable,
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
        // Where ours is not the status that goes with the name, the name alone means another thing.
        let is_usual = |one: &Self| one.error().is_some_and(|it| it.status() == one.status());
        let has_status = |one: &Self| one.status() == response.status;
        let find = |is_it: &dyn Fn(&Self) -> bool| TOLD.into_iter().find(is_it);
        find(&|one| has_name(one) && has_status(one))
            .or_else(|| find(&|one| has_name(one) && is_usual(one)))
            .unwrap_or_else(|| Self::of_status(response.status))
    }

    /// What a status means without a name beside it, as proxies use it.
    fn of_status(status: u16) -> Self {
        match status {
            400 => Self::BadTarget,
            401 | 407 => Self::Unauthenticated,
            403 => Self::Prohibited,
            404 => Self::NotHere,
            405 | 501 => Self::Unsupported,
            429 => Self::TooMany,
            502 | 503 => Self::Unreachable,
            504 => Self::TimedOut,
            _ => Self::Internal,
        }
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
            Self::Unresolvable | Self::ResolverSilent | Self::TimedOut | Self::Unreachable => {
                HOST_UNREACHABLE
            }
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

impl std::error::Error for Refusal {}

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
            Self::Unreachable => "the far end of the tunnel does not reach the target",
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
        for reason in TOLD {
            assert_eq!(Refusal::of(&reason.response()), reason);
        }
    }

    #[test]
    fn other_proxies_are_understood_by_their_names_of_errors_and_by_their_status() {
        let told = |status, error: &str| {
            let mut response = Response::new(status);
            if !error.is_empty() {
                let value = format!("cdn.example; next-hop=a; error={error}; received-status=1");
                response.headers.push("proxy-status", value);
            }
            Refusal::of(&response)
        };
        for (status, error, reason) in [
            (401, "", Refusal::Unauthenticated),
            (407, "", Refusal::Unauthenticated),
            (403, "", Refusal::Prohibited),
            (405, "", Refusal::Unsupported),
            (418, "", Refusal::Internal),
            (429, "", Refusal::TooMany),
            (500, "", Refusal::Internal),
            (502, "", Refusal::Unreachable),
            (503, "", Refusal::Unreachable),
            (504, "", Refusal::TimedOut),
            (502, "connection_refused", Refusal::ConnectionRefused),
            (500, "destination_ip_unroutable", Refusal::Unroutable),
            (502, "dns_error", Refusal::Unresolvable),
            (502, "tls_protocol_error", Refusal::Unreachable),
            // These two of ours have another status.
            (403, "http_request_denied", Refusal::Prohibited),
            (500, "proxy_internal_error", Refusal::Internal),
        ] {
            assert_eq!(told(status, error), reason, "{status} {error}");
        }
    }
}
