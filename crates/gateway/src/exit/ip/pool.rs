//! Addresses of clients: each has one number, which stands for an address of each family.
//!
//! ```text
//! 10.90.0.0/16, fd90::/64:    number 1, this node    10.90.0.1    fd90::1
//!                             number 2, a client     10.90.0.2    fd90::2
//! ```

use anabranch_masque::ip::{Address, AddressRange, Prefix, Routes};
use anabranch_masque::target::{IpTarget, Scope};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of this node.
const NODE: u32 = 1;
/// The first number of a client.
pub(super) const FIRST: u32 = 2;
/// The last there may be.
const LAST: u32 = 1 << 24;

/// Why there are no such pools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPools {
    /// There are two pools of one address family.
    #[error("{0} and {1}: one pool for each of IPv4 and IPv6")]
    Two(Prefix, Prefix),
    /// The pool has too few addresses, or more than there should be.
    #[error("{0}: expected a prefix of 8 to 29 bits for IPv4, of 32 to 120 for IPv6")]
    Size(Prefix),
}

/// The addresses that clients get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    v4: Option<Prefix>,
    v6: Option<Prefix>,
}

impl Pools {
    /// From at most one prefix of each family; `None` without any.
    ///
    /// # Errors
    ///
    /// They cannot be pools.
    pub fn new(prefixes: &[Prefix]) -> Result<Option<Self>, NoPools> {
        let (mut v4, mut v6) = (None, None);
        for &prefix in prefixes {
            let (slot, lengths) = match prefix.address() {
                IpAddr::V4(_) => (&mut v4, 8..=29),
                IpAddr::V6(_) => (&mut v6, 32..=120),
            };
            if let Some(before) = slot.replace(prefix) {
                return Err(NoPools::Two(before, prefix));
            }
            if !lengths.contains(&prefix.length()) {
                return Err(NoPools::Size(prefix));
            }
        }
        let is_any = v4.is_some() || v6.is_some();
        Ok(is_any.then_some(Self { v4, v6 }))
    }

    /// The prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.v4.into_iter().chain(self.v6)
    }

    /// The last number of a client.
    pub(super) fn last(&self) -> u32 {
        let last = |prefix: &Prefix| match prefix.address() {
            // The last address is for all.
            IpAddr::V4(_) => (1u32 << (32 - prefix.length())) - 2,
            IpAddr::V6(_) => LAST,
        };
        let last = self.prefixes().map(|prefix| {
            let room = 1u128.checked_shl(u32::from(128 - prefix.length()));
            let is_v6 = prefix.address().is_ipv6();
            let most = room.filter(|_| is_v6).map_or(LAST.into(), |room| room - 1);
            last(&prefix).min(most.min(LAST.into()) as u32)
        });
        last.min().unwrap_or(0)
    }

    /// Whether an address is one that clients may have, or this node.
    pub(super) fn contain(&self, ip: IpAddr) -> bool {
        self.prefixes().any(|prefix| prefix.contains(ip))
    }

    /// The addresses of a number.
    pub(super) fn lease(&self, number: u32) -> Lease {
        let v4 = self.v4.map(|prefix| match prefix.address() {
            IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() + number),
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        });
        let v6 = self.v6.map(|prefix| match prefix.address() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() + u128::from(number)),
            IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
        });
        Lease { v4, v6 }
    }

    /// The addresses of this node.
    pub(super) fn node(&self) -> Lease {
        self.lease(NODE)
    }

    /// Whose an address is.
    pub(super) fn number(&self, ip: IpAddr) -> Option<u32> {
        let prefix = self.prefixes().find(|prefix| prefix.contains(ip))?;
        let number = match (ip, prefix.address()) {
            (IpAddr::V4(ip), IpAddr::V4(first)) => u128::from(ip.to_bits() - first.to_bits()),
            (IpAddr::V6(ip), IpAddr::V6(first)) => ip.to_bits() - first.to_bits(),
            _ => return None,
        };
        let number = u32::try_from(number).ok()?;
        (FIRST..=self.last()).contains(&number).then_some(number)
    }
}

/// The addresses of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Lease {
    pub(super) fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.v4.map(IpAddr::V4);
        v4.into_iter().chain(self.v6.map(IpAddr::V6))
    }

    pub(super) fn holds(self, ip: IpAddr) -> bool {
        self.addresses().any(|own| own == ip)
    }

    /// The client's address of the same family as `other`.
    pub(super) fn beside(self, other: IpAddr) -> Option<IpAddr> {
        let mut own = self.addresses();
        own.find(|ip| ip.is_ipv4() == other.is_ipv4())
    }

    /// The answer to a client that asks for addresses: all that it has, and a refusal of whatever
    /// else it asked for.
    pub(super) fn assignment(self, asked: &[Address]) -> Vec<Address> {
        let mut answers = Vec::new();
        let mut left: Vec<IpAddr> = self.addresses().collect();
        for one in asked {
            let is_ipv4 = one.prefix.address().is_ipv4();
            let found = left.iter().position(|ip| ip.is_ipv4() == is_ipv4);
            answers.push(match found {
                Some(at) => Address {
                    request_id: one.request_id,
                    prefix: Prefix::host(left.remove(at)),
                },
                None => Address::refusal(one),
            });
        }
        let unasked = left.into_iter().map(|ip| Address {
            request_id: 0,
            prefix: Prefix::host(ip),
        });
        answers.extend(unasked);
        answers
    }

    /// Where a client is led to, of what it asks for.
    pub(super) fn routes(self, scope: &Scope) -> Routes {
        let protocol = scope.protocol.unwrap_or(0);
        let everything = self.addresses().filter_map(|ip| Prefix::around(ip, 0));
        let prefixes: Vec<Prefix> = match &scope.target {
            IpTarget::Prefix(prefix) => vec![*prefix],
            IpTarget::Any | IpTarget::Name(_) => everything.collect(),
        };
        let ranges = prefixes.into_iter();
        let ranges = ranges.map(|prefix| AddressRange::of_prefix(prefix, protocol));
        // One of each family is always in order.
        Routes::new(ranges.collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(texts: &[&str]) -> Pools {
        let prefixes: Vec<Prefix> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Pools::new(&prefixes).unwrap().unwrap()
    }

    #[test]
    fn a_number_is_an_address_of_each_family_and_back() {
        let pools = pools(&["10.90.0.0/16", "fd90::/64"]);
        let lease = pools.lease(258);
        let addresses: Vec<String> = lease.addresses().map(|ip| ip.to_string()).collect();
        assert_eq!(addresses, ["10.90.1.2", "fd90::102"]);
        for ip in lease.addresses() {
            assert_eq!(pools.number(ip), Some(258));
        }
        for nobody in [
            "10.90.0.0",
            "10.90.0.1",
            "10.90.255.255",
            "fd90::1",
            "10.91.0.2",
        ] {
            assert_eq!(pools.number(nobody.parse().unwrap()), None, "{nobody}");
        }
        assert_eq!(pools.number("fd90::1:0:0:2".parse().unwrap()), None);
    }

    #[test]
    fn there_are_as_many_clients_as_the_smaller_pool_has_addresses() {
        for (texts, last) in [
            (&["10.0.0.0/29"][..], 6),
            (&["10.0.0.0/8"], (1 << 24) - 2),
            (&["fd00::/120"], 255),
            (&["fd00::/32"], LAST),
            (&["10.0.0.0/16", "fd00::/64"], 65_534),
        ] {
            assert_eq!(pools(texts).last(), last, "{texts:?}");
        }
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        let of = |texts: &[&str]| {
            let prefixes: Vec<Prefix> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Pools::new(&prefixes)
        };
        assert_eq!(of(&[]), Ok(None));
        for wrong in ["10.0.0.0/7", "10.0.0.0/30", "fd00::/31", "fd00::/121"] {
            let refused = of(&[wrong]);
            assert!(matches!(refused, Err(NoPools::Size(_))), "{wrong}");
        }
        let two = of(&["10.0.0.0/16", "10.1.0.0/16"]);
        assert!(matches!(two, Err(NoPools::Two(..))), "{two:?}");
    }

    #[test]
    fn an_assignment_is_all_that_a_client_has_and_answers_what_it_asks_for() {
        let lease = pools(&["10.90.0.0/16"]).lease(2);
        let ask = |id, ip: &str| Address {
            request_id: id,
            prefix: Prefix::host(ip.parse().unwrap()),
        };
        assert_eq!(lease.assignment(&[]), [ask(0, "10.90.0.2")]);
        let asked = [ask(1, "0.0.0.0"), ask(2, "::"), ask(3, "192.0.2.1")];
        let answers = [ask(1, "10.90.0.2"), ask(2, "::"), ask(3, "0.0.0.0")];
        assert_eq!(lease.assignment(&asked), answers);
    }
}
