//! Where the exit connects to: everywhere on the net, but not into its own neighbourhood.
//!
//! What a name leads to is checked after it was resolved, so that no name opens what its address
//! does not.

use anabranch_masque::ip::Prefix;
use anabranch_net::interfaces::{self, Interface};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long the list of this machine's addresses counts before it is read again.
const OWN_FOR: Duration = Duration::from_secs(5);

/// Private addresses and ports that clients may reach anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    network: Prefix,
    /// All ports if empty.
    ports: Vec<RangeInclusive<u16>>,
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected ADDRESS[/PREFIX][,PORT[-PORT]...], such as 192.168.1.0/24 or 10.0.0.5,22,8000-8999"
)]
pub struct NoRule;

impl FromStr for Rule {
    type Err = NoRule;

    fn from_str(text: &str) -> Result<Self, NoRule> {
        let mut parts = text.split(',');
        let network = parts.next().unwrap_or_default();
        let (ip, prefix) = match network.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (network, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| NoRule)?;
        let network = match prefix {
            Some(length) => Prefix::around(ip, length.parse().map_err(|_| NoRule)?),
            None => Some(Prefix::host(ip)),
        };
        let ports = parts.map(ports).collect::<Option<_>>();
        network
            .zip(ports)
            .map(|(network, ports)| Self { network, ports })
            .ok_or(NoRule)
    }
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

impl Rule {
    fn holds(&self, address: SocketAddr) -> bool {
        let has_port = |range: &RangeInclusive<u16>| range.contains(&address.port());
        self.network.contains(address.ip())
            && (self.ports.is_empty() || self.ports.iter().any(has_port))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.network)?;
        self.ports
            .iter()
            .try_for_each(|range| match range.clone().into_inner() {
                (first, last) if first == last => write!(f, ",{first}"),
                (first, last) => write!(f, ",{first}-{last}"),
            })
    }
}

/// The rules, and this machine's own addresses.
#[derive(Debug, Default)]
pub(crate) struct Allow {
    rules: Vec<Rule>,
    /// Where no rule leads.
    never: Vec<Prefix>,
    own: Mutex<Own>,
}

/// The addresses of this machine.
#[derive(Debug, Default)]
struct Own {
    /// None before they could be listed for the first time.
    addresses: Option<Arc<[IpAddr]>>,
    /// When that was tried last.
    at: Option<Instant>,
}

impl Allow {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self {
            rules,
            never: Vec::new(),
            own: Mutex::default(),
        }
    }

    /// Forbids these addresses, whatever the rules say: they are addresses of clients.
    pub(crate) fn forbid(&mut self, prefixes: impl Iterator<Item = Prefix>) {
        self.never.extend(prefixes);
    }

    /// Leaves only the addresses that may be connected to.
    pub(crate) async fn filter(&self, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let own = self.own_addresses().await;
        let addresses = addresses.into_iter();
        addresses
            .filter(|address| self.permits(*address, own.as_deref()))
            .collect()
    }

    /// Whether packets may be sent to an address; without a port, only where all ports are open.
    pub(crate) async fn leads_to(&self, address: SocketAddr) -> bool {
        let own = self.own_addresses().await;
        self.permits(address, own.as_deref())
    }

    /// Whether an address may be connected to; `own` are this machine's addresses. If they are not
    /// known, only what the rules allow may be.
    pub(super) fn permits(&self, address: SocketAddr, own: Option<&[IpAddr]>) -> bool {
        let ip = address.ip().to_canonical();
        let address = SocketAddr::new(ip, address.port());
        if self.never.iter().any(|prefix| prefix.contains(ip)) {
            return false;
        }
        if self.rules.iter().any(|rule| rule.holds(address)) {
            return true;
        }
        is_on_the_net(ip) && own.is_some_and(|own| !own.contains(&ip))
    }

    /// The addresses of this machine, which change.
    pub(super) async fn own_addresses(&self) -> Option<Arc<[IpAddr]>> {
        let mut own = self.own.lock().await;
        if own.at.is_none_or(|at| at.elapsed() >= OWN_FOR) {
            own.keep(interfaces::list().await);
        }
        own.addresses.clone()
    }
}

impl Own {
    /// Takes a new list. If there is none, the last one still counts.
    fn keep(&mut self, listed: Result<Vec<Interface>, impl fmt::Display>) {
        self.at = Some(Instant::now());
        match listed {
            Ok(listed) => {
                let all = listed.iter().flat_map(|interface| &interface.addresses);
                self.addresses = Some(all.map(|address| address.ip).collect());
            }
            Err(error) => {
                let effect = match self.addresses {
                    Some(_) => "the last list counts",
                    None => "nobody is led anywhere but by --allow",
                };
                tracing::warn!("this machine's addresses cannot be listed ({effect}): {error}");
            }
        }
    }
}

/// Whether an address is one that anybody on the net may be at.
fn is_on_the_net(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => match embedded(ip) {
            Some(ip) => is_public_v4(ip),
            None => is_public_v6(ip),
        },
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_of_protocols = (a, b, c) == (192, 0, 0);
    let is_for_benchmarks = a == 198 && (18..20).contains(&b);
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || is_shared
        || is_of_protocols
        || is_for_benchmarks
        || a == 0
        || a >= 240)
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    // Global unicast is all that is assigned (RFC 4291, section 2.4), so nothing else is the net:
    // no loopback, link-local, unique local or multicast address.
    ip.segments()[0] & 0xe000 == 0x2000
}

/// The IPv4 address that a translator or relay would send to: NAT64 (RFC 6052), 6to4 (RFC 3056).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => from(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_net_is_led_to_unless_told_otherwise() {
        let allow = Allow::default();
        let own: Option<&[IpAddr]> = Some(&["203.0.113.9".parse().unwrap()]);
        for open in [
            "192.0.2.1:80",
            "8.8.8.8:53",
            "[2001:db8::1]:443",
            "100.63.0.1:1",
            "[64:ff9b::808:808]:1",
        ] {
            assert!(allow.permits(address(open), own), "{open}");
        }
        for closed in [
            "127.0.0.1:80",
            "10.0.0.1:1",
            "172.31.0.1:1",
            "192.168.1.1:80",
            "169.254.169.254:80",
            "100.64.0.1:1",
            "0.0.0.0:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "240.0.0.1:1",
            "198.18.0.1:1",
            "192.0.0.8:1",
            "203.0.113.9:443",
            "[::1]:80",
            "[::]:80",
            "[fe80::1]:1",
            "[fc00::1]:1",
            "[ff02::1]:1",
            "[::ffff:127.0.0.1]:1",
            "[::ffff:203.0.113.9]:1",
            "[64:ff9b::7f00:1]:1",
            "[2002:7f00:1::]:1",
            "[64:ff9b:1::a00:1]:1",
        ] {
            assert!(!allow.permits(address(closed), own), "{closed}");
        }
    }

    #[test]
    fn rules_open_networks_and_ports() {
        let rules = [
            "192.168.1.0/24",
            "10.0.0.5,22,8000-8999",
            "::1",
            "fd00::/8,443",
        ];
        let allow = Allow::new(rules.map(|rule| rule.parse().unwrap()).to_vec());
        for open in [
            "192.168.1.77:1",
            "10.0.0.5:22",
            "10.0.0.5:8500",
            "[::1]:9",
            "[fd12::1]:443",
            "[::ffff:192.168.1.77]:1",
        ] {
            assert!(allow.permits(address(open), Some(&[])), "{open}");
        }
        for closed in [
            "192.168.2.1:1",
            "10.0.0.5:80",
            "10.0.0.6:22",
            "[fd12::1]:80",
        ] {
            assert!(!allow.permits(address(closed), Some(&[])), "{closed}");
        }
        let all = Allow::new(vec!["0.0.0.0/0".parse().unwrap()]);
        assert!(all.permits(address("127.0.0.1:80"), Some(&[])));
        let mut with_clients = Allow::new(vec!["0.0.0.0/0".parse().unwrap()]);
        with_clients.forbid(["10.90.0.0/16".parse().unwrap()].into_iter());
        let leads = |ip: &str| {
            let address = SocketAddr::new(ip.parse().unwrap(), 80);
            with_clients.permits(address, Some(&[]))
        };
        assert!(leads("10.91.0.1") && !leads("10.90.0.3") && !leads("::ffff:10.90.0.3"));
    }

    #[test]
    fn a_machine_that_cannot_tell_its_addresses_leads_by_its_rules_alone() {
        let failed = || Err("no answer");
        let allow = Allow::new(vec!["10.0.0.5".parse().unwrap()]);
        let (open, closed) = (address("10.0.0.5:22"), address("192.0.2.1:80"));
        let led_to = |own: &Own| {
            [open, closed].map(|address| allow.permits(address, own.addresses.as_deref()))
        };
        let mut own = Own::default();
        assert_eq!(led_to(&own), [true, false]);
        own.keep(failed());
        assert_eq!(led_to(&own), [true, false]);
        own.keep(Ok::<_, &str>(Vec::new()));
        own.keep(failed());
        assert_eq!(led_to(&own), [true, true], "the last list counts");
    }

    #[test]
    fn what_is_no_rule_is_refused_and_what_is_one_comes_back() {
        for text in [
            "",
            "x",
            "10.0.0.0/33",
            "10.0.0.1,",
            "10.0.0.1,0",
            "10.0.0.1,9-8",
            "::/129",
        ] {
            assert_eq!(text.parse::<Rule>(), Err(NoRule), "{text}");
        }
        let rule: Rule = "10.0.0.5/32,22,8000-8999".parse().unwrap();
        assert_eq!(rule.to_string(), "10.0.0.5/32,22,8000-8999");
    }
}
