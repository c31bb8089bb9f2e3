//! Header fields by which both sides of a tunnel agree on what it can carry.

use crate::field::Headers;
use crate::structured::{self, Bare};
use std::net::SocketAddr;

/// Says that the stream carries capsules (RFC 9297, section 3.4).
pub const CAPSULE_PROTOCOL: &str = "capsule-protocol";
/// draft-ihlar-masque-datagram-numbers.
const DG_SEQUENCE: &str = "dg-sequence";
/// Datagrams that have numbers are sent again when they are lost, as long as the other side waits
/// for them. Ours: no document describes it.
const DG_REPAIR: &str = "dg-repair";
/// draft-ietf-masque-connect-udp-listen.
const CONNECT_UDP_BIND: &str = "connect-udp-bind";
const PROXY_PUBLIC_ADDRESS: &str = "proxy-public-address";

const TRUE: &str = "?1";

/// What one side offers in its headers, or what both have offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions {
    /// Datagrams may be numbered.
    pub numbers: bool,
    /// Numbered datagrams may come twice, since lost ones are sent again.
    pub repair: bool,
    /// Datagrams of CONNECT-UDP may be for other remote ends than the target.
    pub bind: bool,
}

impl Extensions {
    /// What these headers offer.
    pub fn read(headers: &Headers) -> Self {
        Self {
            numbers: headers.is_true(DG_SEQUENCE),
            repair: headers.is_true(DG_REPAIR),
            bind: headers.is_true(CONNECT_UDP_BIND),
        }
    }

    /// Offers this in headers of a tunnel of capsules.
    pub fn put(self, headers: &mut Headers) {
        headers.push(CAPSULE_PROTOCOL, TRUE);
        if self.numbers {
            headers.push(DG_SEQUENCE, TRUE);
        }
        if self.repair {
            headers.push(DG_REPAIR, TRUE);
        }
        if self.bind {
            headers.push(CONNECT_UDP_BIND, TRUE);
        }
    }

    /// What both offer: only that may be used.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            numbers: self.numbers && other.numbers,
            repair: self.repair && other.repair,
            bind: self.bind && other.bind,
        }
    }
}

/// Tells a client under which addresses its bound UDP socket is reached.
pub fn put_public_addresses(headers: &mut Headers, addresses: &[SocketAddr]) {
    let mut value = String::new();
    for address in addresses {
        if !value.is_empty() {
            value.push_str(", ");
        }
        structured::put_string(&mut value, &address.to_string());
    }
    headers.push(PROXY_PUBLIC_ADDRESS, value);
}

/// The addresses under which a bound UDP socket is reached. What is no address is left out.
pub fn public_addresses(headers: &Headers) -> Vec<SocketAddr> {
    let members = structured::members(headers, PROXY_PUBLIC_ADDRESS);
    let addresses = members.filter_map(|member| match member.value {
        Bare::String(text) => text.parse().ok(),
        _ => None,
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_offer_is_agreed_on() {
        let all = Extensions {
            numbers: true,
            repair: true,
            bind: true,
        };
        let mut headers = Headers::new();
        all.put(&mut headers);
        assert!(headers.is_true(CAPSULE_PROTOCOL));
        assert_eq!(Extensions::read(&headers), all);
        let other = Headers::new()
            .with("dg-sequence", "?1;x")
            .with("dg-repair", "?0")
            .with("connect-udp-bind", "1");
        let agreed = all.and(Extensions::read(&other));
        assert!(agreed.numbers && !agreed.repair && !agreed.bind);
        let mut nothing = Headers::new();
        Extensions::default().put(&mut nothing);
        assert_eq!(Extensions::read(&nothing), Extensions::default());
    }

    #[test]
    fn addresses_of_a_bound_socket_are_a_list_of_strings() {
        let addresses = ["192.0.2.45:54321", "[2001:db8::1234]:54321"];
        let addresses = addresses.map(|text| text.parse().unwrap());
        let mut headers = Headers::new();
        put_public_addresses(&mut headers, &addresses);
        let value = headers.text("proxy-public-address").unwrap();
        assert_eq!(value, r#""192.0.2.45:54321", "[2001:db8::1234]:54321""#);
        assert_eq!(public_addresses(&headers), addresses);
        let broken = Headers::new().with("proxy-public-address", r#""a", "1.2.3.4:5", 7"#);
        assert_eq!(public_addresses(&broken), ["1.2.3.4:5".parse().unwrap()]);
    }
}
