//! Which nameservers know which domains, and prefixes of address translation
//! (draft-ietf-masque-connect-ip-dns).

use super::Prefix;
use super::lists::{address_of, put_address, until_end};
use crate::error::{Code, Error, malformed, stream};
use crate::limits;
use crate::target::is_name;
use anabranch_wire::cursor::Reader;
use anabranch_wire::varint;
use bytes::Bytes;
use std::net::{IpAddr, Ipv6Addr};

/// Keys of service parameters (RFC 9460, section 14.3.2).
mod key {
    pub(super) const ALPN: u16 = 1;
    pub(super) const NO_DEFAULT_ALPN: u16 = 2;
    pub(super) const PORT: u16 = 3;
    pub(super) const IPV4_HINT: u16 = 4;
    pub(super) const IPV6_HINT: u16 = 6;
}

/// A nameserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameserver {
    /// Nameservers with a lower number are asked first; not 0.
    pub priority: u16,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The name in its certificate; empty if it has no encrypted transport.
    pub name: String,
    /// Service parameters by their keys, as on the wire (RFC 9460, section 2.2).
    pub parameters: Vec<(u16, Bytes)>,
}

impl Nameserver {
    /// A nameserver that is asked over UDP and TCP, without encryption.
    pub fn plain(addresses: Vec<IpAddr>) -> Self {
        Self {
            priority: 1,
            addresses,
            name: String::new(),
            parameters: Vec::new(),
        }
    }

    /// Whether it answers without encryption.
    pub fn is_plain(&self) -> bool {
        self.parameter(key::NO_DEFAULT_ALPN).is_none()
    }

    /// The port it is asked at, if not that of its transport.
    pub fn port(&self) -> Option<u16> {
        let value = self.parameter(key::PORT)?;
        Some(u16::from_be_bytes(value[..].try_into().ok()?))
    }

    fn parameter(&self, key: u16) -> Option<&Bytes> {
        let found = self.parameters.iter().find(|(own, _)| *own == key);
        found.map(|(_, value)| value)
    }

    /// Whether its parts fit together (draft, section 3.2).
    fn is_consistent(&self) -> bool {
        let has = |key| self.parameter(key).is_some();
        let ascends = self.parameters.is_sorted_by(|a, b| a.0 < b.0);
        let is_reached = !self.is_plain() || !self.addresses.is_empty();
        let is_named = !self.name.is_empty() || !(has(key::ALPN) || has(key::NO_DEFAULT_ALPN));
        let has_hints = has(key::IPV4_HINT) || has(key::IPV6_HINT);
        self.priority != 0 && ascends && is_reached && is_named && !has_hints
    }
}

/// Nameservers, and what they are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DnsConfiguration {
    /// The nameservers.
    pub nameservers: Vec<Nameserver>,
    /// Domains that they know, with all below them; the empty one is all there are.
    pub internal: Vec<String>,
    /// Domains that are appended to names without a dot.
    pub search: Vec<String>,
}

pub(crate) fn put_dns(out: &mut Vec<u8>, configurations: &[DnsConfiguration]) {
    for configuration in configurations {
        varint::put(out, configuration.nameservers.len() as u64);
        for nameserver in &configuration.nameservers {
            put_nameserver(out, nameserver);
        }
        for domains in [&configuration.internal, &configuration.search] {
            varint::put(out, domains.len() as u64);
            for domain in domains {
                put_prefixed(out, domain.as_bytes());
            }
        }
    }
}

fn put_nameserver(out: &mut Vec<u8>, nameserver: &Nameserver) {
    out.extend_from_slice(&nameserver.priority.to_be_bytes());
    for is_ipv4 in [true, false] {
        let addresses = nameserver.addresses.iter();
        let of_family = addresses.filter(|address| address.is_ipv4() == is_ipv4);
        varint::put(out, of_family.clone().count() as u64);
        of_family.for_each(|address| put_address(out, *address));
    }
    put_prefixed(out, nameserver.name.as_bytes());
    let mut parameters = Vec::new();
    for (key, value) in &nameserver.parameters {
        parameters.extend_from_slice(&key.to_be_bytes());
        parameters.extend_from_slice(&(value.len() as u16).to_be_bytes());
        parameters.extend_from_slice(value);
    }
    put_prefixed(out, &parameters);
}

fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads configurations until the end.
pub(crate) fn decode_dns(value: &[u8]) -> Result<Vec<DnsConfiguration>, Error> {
    until_end(value, limits::DNS_SERVERS, |reader| {
        Ok(DnsConfiguration {
            nameservers: list(reader, limits::DNS_SERVERS, nameserver)?,
            internal: list(reader, limits::DNS_DOMAINS, domain)?,
            search: list(reader, limits::DNS_DOMAINS, domain)?,
        })
    })
}

const TOO_MANY: Error = stream(Code::EXCESSIVE_LOAD, "a DNS configuration is too large");
const BROKEN: Error = malformed("a DNS configuration breaks off or cannot be");

/// A number, and as many items: at most `max`.
fn list<'a, T>(
    reader: &mut Reader<'a>,
    max: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let count = reader.varint().map_err(|_| BROKEN)?;
    if count > max as u64 {
        return Err(TOO_MANY);
    }
    (0..count).map(|_| item(reader)).collect()
}

fn nameserver(reader: &mut Reader<'_>) -> Result<Nameserver, Error> {
    let priority = reader.u16().map_err(|_| BROKEN)?;
    let mut addresses = Vec::new();
    for is_ipv4 in [true, false] {
        let of_family = |reader: &mut Reader<'_>| address_of(reader, is_ipv4).map_err(|_| BROKEN);
        addresses.extend(list(reader, limits::DNS_SERVERS, of_family)?);
    }
    let name = domain(reader)?;
    let mut parameters = Vec::new();
    let mut rest = Reader::new(reader.length_prefixed().map_err(|_| BROKEN)?);
    while !rest.is_empty() {
        let key = rest.u16().map_err(|_| BROKEN)?;
        let length = rest.u16().map_err(|_| BROKEN)?;
        let value = rest.bytes(length.into()).map_err(|_| BROKEN)?;
        parameters.push((key, Bytes::copy_from_slice(value)));
    }
    let nameserver = Nameserver {
        priority,
        addresses,
        name,
        parameters,
    };
    if nameserver.is_consistent() {
        Ok(nameserver)
    } else {
        Err(BROKEN)
    }
}

fn domain(reader: &mut Reader<'_>) -> Result<String, Error> {
    let bytes = reader.length_prefixed().map_err(|_| BROKEN)?;
    let text = std::str::from_utf8(bytes).map_err(|_| BROKEN)?;
    if text.is_empty() || is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(BROKEN)
    }
}

/// Bytes of a prefix of address translation: its length, and 96 bits of it.
const PREF64_BYTES: usize = 13;

pub(crate) fn put_pref64(out: &mut Vec<u8>, prefixes: &[Prefix]) {
    for prefix in prefixes {
        if let IpAddr::V6(address) = prefix.address() {
            out.push(prefix.length());
            out.extend_from_slice(&address.octets()[..PREF64_BYTES - 1]);
        }
    }
}

/// Reads prefixes of address translation until the end.
pub(crate) fn decode_pref64(value: &[u8]) -> Result<Vec<Prefix>, Error> {
    let (entries, rest) = value.as_chunks::<PREF64_BYTES>();
    if !rest.is_empty() {
        return Err(malformed("a prefix of address translation breaks off"));
    }
    if entries.len() > limits::ADDRESSES {
        return Err(stream(Code::EXCESSIVE_LOAD, "a list has too many prefixes"));
    }
    let prefixes = entries.iter().map(|[length, high @ ..]| {
        let mut octets = [0; 16];
        octets[..PREF64_BYTES - 1].copy_from_slice(high);
        // RFC 6052, section 2.2.
        let is_length = matches!(length, 32 | 40 | 48 | 56 | 64 | 96);
        let prefix = Prefix::around(Ipv6Addr::from(octets).into(), *length);
        prefix.filter(|_| is_length)
    });
    let prefixes: Option<Vec<_>> = prefixes.collect();
    prefixes.ok_or(malformed("a prefix of address translation cannot be"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn code<T>(result: Result<T, Error>) -> Option<Code> {
        result.err().map(|error| error.code())
    }

    fn split_tunnel() -> DnsConfiguration {
        DnsConfiguration {
            nameservers: vec![Nameserver::plain(vec![ip("192.0.2.33"), ip("2001:db8::1")])],
            internal: vec!["internal.corp.example".into()],
            search: vec!["internal.corp.example".into(), "corp.example".into()],
        }
    }

    fn over_https() -> DnsConfiguration {
        let alpn = Bytes::from_static(b"\x02h2\x02h3");
        let path = Bytes::from_static(b"/dns-query{?dns}");
        let server = Nameserver {
            priority: 1,
            addresses: Vec::new(),
            name: "masque.example.org".into(),
            parameters: vec![
                (key::ALPN, alpn),
                (key::NO_DEFAULT_ALPN, Bytes::new()),
                (7, path),
            ],
        };
        DnsConfiguration {
            nameservers: vec![server],
            internal: vec![String::new()],
            search: Vec::new(),
        }
    }

    #[test]
    fn the_examples_of_the_draft_come_back() {
        let configurations = vec![split_tunnel(), over_https()];
        let mut out = Vec::new();
        put_dns(&mut out, &configurations);
        assert_eq!(out[..8], hex("01 0001 01 c0000221"));
        assert_eq!(decode_dns(&out), Ok(configurations));
        assert!(split_tunnel().nameservers[0].is_plain());
        assert!(!over_https().nameservers[0].is_plain());
        assert_eq!(decode_dns(&[]), Ok(Vec::new()));
    }

    #[test]
    fn a_nameserver_may_have_a_port_of_its_own() {
        let mut server = Nameserver::plain(vec![ip("192.0.2.33")]);
        assert_eq!(server.port(), None);
        server
            .parameters
            .push((key::PORT, Bytes::from_static(&[0x14, 0xe9])));
        assert_eq!(server.port(), Some(5353));
        server.parameters[0].1 = Bytes::from_static(&[1]);
        assert_eq!(server.port(), None);
    }

    #[test]
    fn nameservers_whose_parts_do_not_fit_are_malformed() {
        let refused = |change: fn(&mut Nameserver)| {
            let mut configuration = over_https();
            change(&mut configuration.nameservers[0]);
            let mut out = Vec::new();
            put_dns(&mut out, &[configuration]);
            assert_eq!(code(decode_dns(&out)), Some(Code::MESSAGE_ERROR));
        };
        refused(|server| server.priority = 0);
        refused(|server| server.name.clear());
        refused(|server| server.name = "a b".into());
        refused(|server| drop(server.parameters.remove(1)));
        refused(|server| server.parameters.swap(0, 2));
        refused(|server| server.parameters.push((7, Bytes::new())));
        refused(|server| server.parameters.insert(2, (key::IPV4_HINT, Bytes::new())));
    }

    #[test]
    fn configurations_break_off_nowhere_and_have_bounded_lists() {
        let mut whole = Vec::new();
        put_dns(&mut whole, &[split_tunnel()]);
        for length in 1..whole.len() {
            let broken = code(decode_dns(&whole[..length]));
            assert_eq!(broken, Some(Code::MESSAGE_ERROR), "{length}");
        }
        for text in [
            "11",
            "01 0001 11",
            "01 0001 00 11",
            "00 4101",
            "00 00 4101",
            "ffffffffffffffff",
        ] {
            assert_eq!(
                code(decode_dns(&hex(text))),
                Some(Code::EXCESSIVE_LOAD),
                "{text}"
            );
        }
        let servers = "0001 01 c0000221 00 00 00".repeat(limits::DNS_SERVERS);
        assert!(decode_dns(&hex(&format!("10 {servers} 00 00"))).is_ok());
        let domains = "01 61".repeat(limits::DNS_DOMAINS);
        assert!(decode_dns(&hex(&format!("00 4100 {domains} 00"))).is_ok());
        let empty = hex("000000").repeat(limits::DNS_SERVERS);
        assert_eq!(decode_dns(&empty).unwrap().len(), limits::DNS_SERVERS);
        let one_more = [&empty[..], &[0, 0, 0]].concat();
        assert_eq!(code(decode_dns(&one_more)), Some(Code::EXCESSIVE_LOAD));
    }

    #[test]
    fn prefixes_of_address_translation_have_certain_lengths() {
        let well_known = Prefix::new(ip("64:ff9b::"), 96).unwrap();
        let mut out = Vec::new();
        put_pref64(&mut out, &[well_known]);
        assert_eq!(out, hex("60 0064ff9b0000000000000000"));
        assert_eq!(decode_pref64(&out), Ok(vec![well_known]));
        assert_eq!(decode_pref64(&[]), Ok(Vec::new()));
        for text in [
            "60 0064ff9b00000000000000",
            "21 0064ff9b0000000000000000",
            "80",
        ] {
            assert_eq!(
                code(decode_pref64(&hex(text))),
                Some(Code::MESSAGE_ERROR),
                "{text}"
            );
        }
        let many = out.repeat(limits::ADDRESSES + 1);
        assert_eq!(code(decode_pref64(&many)), Some(Code::EXCESSIVE_LOAD));
    }

    proptest! {
        #[test]
        fn any_bytes_are_configurations_or_refused(bytes in prop::collection::vec(0..9u8, 0..60)) {
            if let Ok(configurations) = decode_dns(&bytes) {
                let mut out = Vec::new();
                put_dns(&mut out, &configurations);
                prop_assert_eq!(decode_dns(&out), Ok(configurations));
            }
            if let Ok(prefixes) = decode_pref64(&bytes) {
                prop_assert_eq!(prefixes.len(), bytes.len() / PREF64_BYTES);
            }
        }
    }
}
