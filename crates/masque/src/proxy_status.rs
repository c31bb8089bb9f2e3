//! The field `proxy-status` (RFC 9209): why a proxy could not do what it was asked.

use crate::field::Headers;
use crate::structured::{self, Bare};

/// The name of the field.
pub const NAME: &str = "proxy-status";

/// What went wrong between the proxy and the target (RFC 9209, section 2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyError {
    /// The name was not resolved in time.
    DnsTimeout,
    /// The name cannot be resolved.
    DnsError,
    /// The proxy does not know where the target is.
    DestinationNotFound,
    /// The target is unavailable now.
    DestinationUnavailable,
    /// The proxy does not connect to the target's address.
    DestinationIpProhibited,
    /// There is no route to the target's address.
    DestinationIpUnroutable,
    /// The target refused the connection.
    ConnectionRefused,
    /// The connection broke off before it could be used.
    ConnectionTerminated,
    /// The connection was not established in time.
    ConnectionTimeout,
    /// The proxy has as many connections as it allows.
    ConnectionLimitReached,
    /// The proxy does not serve this client, or not this.
    HttpRequestDenied,
    /// The proxy failed.
    ProxyInternalError,
    /// The proxy is set up wrongly.
    ProxyConfigurationError,
    /// The target leads back to the proxy.
    ProxyLoopDetected,
    /// Another type, by its name.
    Other(String),
}

const KNOWN: [(ProxyError, &str, u16); 14] = [
    (ProxyError::DnsTimeout, "dns_timeout", 504),
    (ProxyError::DnsError, "dns_error", 502),
    (
        ProxyError::DestinationNotFound,
        "destination_not_found",
        500,
    ),
    (
        ProxyError::DestinationUnavailable,
        "destination_unavailable",
        503,
    ),
    (
        ProxyError::DestinationIpProhibited,
        "destination_ip_prohibited",
        502,
    ),
    (
        ProxyError::DestinationIpUnroutable,
        "destination_ip_unroutable",
        502,
    ),
    (ProxyError::ConnectionRefused, "connection_refused", 502),
    (
        ProxyError::ConnectionTerminated,
        "connection_terminated",
        502,
    ),
    (ProxyError::ConnectionTimeout, "connection_timeout", 504),
    (
        ProxyError::ConnectionLimitReached,
        "connection_limit_reached",
        503,
    ),
    (ProxyError::HttpRequestDenied, "http_request_denied", 403),
    (ProxyError::ProxyInternalError, "proxy_internal_error", 500),
    (
        ProxyError::ProxyConfigurationError,
        "proxy_configuration_error",
        500,
    ),
    (ProxyError::ProxyLoopDetected, "proxy_loop_detected", 502),
];

impl ProxyError {
    /// Its name in the registry.
    pub fn token(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => {
                let row = KNOWN.iter().find(|(error, ..)| error == known);
                row.map_or("proxy_internal_error", |(_, token, _)| token)
            }
        }
    }

    /// The status that RFC 9209 recommends.
    pub fn status(&self) -> u16 {
        let row = KNOWN.iter().find(|(error, ..)| error == self);
        row.map_or(502, |(.., status)| *status)
    }

    fn from_token(token: String) -> Self {
        let row = KNOWN.iter().find(|(_, known, _)| *known == token);
        row.map_or(Self::Other(token), |(error, ..)| error.clone())
    }
}

/// What one proxy says about a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyStatus {
    /// The name of the proxy that reports.
    pub proxy: String,
    /// What went wrong.
    pub error: Option<ProxyError>,
    /// Details of it for people who look for the cause.
    pub details: Option<String>,
    /// The address or name that was connected to.
    pub next_hop: Option<String>,
}

impl ProxyStatus {
    /// The value of the field.
    pub fn to_value(&self) -> String {
        let mut out = String::new();
        structured::put(&mut out, &self.proxy);
        if let Some(error) = &self.error {
            out.push_str("; error=");
            structured::put(&mut out, error.token());
        }
        if let Some(next_hop) = &self.next_hop {
            out.push_str("; next-hop=");
            structured::put_string(&mut out, next_hop);
        }
        if let Some(details) = &self.details {
            out.push_str("; details=");
            structured::put_string(&mut out, details);
        }
        out
    }

    /// What the proxies on the way say, the one closest to the target first. Fields that cannot be
    /// read say nothing.
    pub fn read(headers: &Headers) -> Vec<Self> {
        let members = structured::members(headers, NAME);
        members.filter_map(Self::of_member).collect()
    }

    fn of_member(member: structured::Member) -> Option<Self> {
        let mut status = Self {
            proxy: member.value.into_text()?,
            ..Self::default()
        };
        for (key, value) in member.parameters {
            match (key.as_str(), value) {
                // A token by the RFC; masque-go writes a string.
                ("error", value) => status.error = value.into_text().map(ProxyError::from_token),
                ("details", Bare::String(text)) => status.details = Some(text),
                ("next-hop", value) => status.next_hop = value.into_text(),
                _ => {}
            }
        }
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &'static str) -> Vec<ProxyStatus> {
        ProxyStatus::read(&Headers::new().with(NAME, value))
    }

    #[test]
    fn an_error_is_told_with_its_name_and_details() {
        let status = ProxyStatus {
            proxy: "exit.example".into(),
            error: Some(ProxyError::ConnectionRefused),
            details: Some("port \"22\" is closed".into()),
            next_hop: Some("2001:db8::1".into()),
        };
        let value = status.to_value();
        let wanted = "exit.example; error=connection_refused; next-hop=\"2001:db8::1\"; \
                      details=\"port \\\"22\\\" is closed\"";
        assert_eq!(value, wanted);
        assert_eq!(
            ProxyStatus::read(&Headers::new().with(NAME, value)),
            [status]
        );
    }

    #[test]
    fn the_examples_of_rfc_9209_are_read() {
        let value = "revproxy1.example.net, ExampleCDN; error=connection_timeout;received-status=2";
        let read = read(value);
        assert_eq!(read.len(), 2);
        assert_eq!(
            (&*read[0].proxy, &read[0].error),
            ("revproxy1.example.net", &None)
        );
        assert_eq!(read[1].error, Some(ProxyError::ConnectionTimeout));
        let read = self::read("cdn.example.org; next-hop=backend.example.org:8001");
        assert_eq!(
            read[0].next_hop.as_deref(),
            Some("backend.example.org:8001")
        );
    }

    #[test]
    fn errors_that_are_not_known_keep_their_names() {
        let read = read("p; error=tls_alert_received");
        let other = ProxyError::Other("tls_alert_received".into());
        assert_eq!((other.token(), other.status()), ("tls_alert_received", 502));
        assert_eq!(read[0].error, Some(other));
        let told = |value| self::read(value)[0].error.clone();
        assert_eq!(told("p; error=\"dns_error\""), Some(ProxyError::DnsError));
        assert_eq!(told("p; error=7"), None, "no text");
        assert_eq!(
            self::read("p; error"),
            [ProxyStatus {
                proxy: "p".into(),
                ..ProxyStatus::default()
            }]
        );
        assert_eq!(self::read("p; \u{e4}"), []);
    }

    #[test]
    fn every_error_has_a_name_a_status_and_comes_back() {
        for (error, token, status) in KNOWN {
            assert_eq!((error.token(), error.status()), (token, status));
            assert_eq!(ProxyError::from_token(token.to_owned()), error);
        }
        assert_eq!(ProxyError::DnsTimeout.status(), 504);
    }
}
