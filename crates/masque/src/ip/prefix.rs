//! Addresses with the number of bits that count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Bits of an address of this family.
pub(super) const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// A prefix: all bits of its address behind its length are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// A prefix, unless it is longer than an address or its address has bits behind it.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let prefix = Self { address, length };
        let is_short = length <= bits(address);
        (is_short && masked(address, length) == address).then_some(prefix)
    }

    /// The prefix of this length that an address is in; `None` if it is longer than an address.
    pub fn around(address: IpAddr, length: u8) -> Option<Self> {
        let is_short = length <= bits(address);
        is_short.then(|| Self {
            address: masked(address, length),
            length,
        })
    }

    /// The prefix of a single address.
    pub const fn host(address: IpAddr) -> Self {
        let length = bits(address);
        Self { address, length }
    }

    /// The first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// The number of bits that all its addresses have in common.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The last address.
    pub fn last(self) -> IpAddr {
        with_rest(self.address, self.length, true)
    }

    /// Whether it has this address.
    pub fn contains(self, address: IpAddr) -> bool {
        masked(address, self.length) == self.address
    }

    /// Whether it is one address.
    pub const fn is_host(self) -> bool {
        self.length == bits(self.address)
    }
}

/// An address without its bits behind `length`.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    with_rest(address, length, false)
}

/// An address with its bits behind `length` all set, or none of them.
fn with_rest(address: IpAddr, length: u8, is_set: bool) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let rest = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let set = if is_set { rest } else { 0 };
            Ipv4Addr::from_bits(address.to_bits() & !rest | set).into()
        }
        IpAddr::V6(address) => {
            let rest = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let set = if is_set { rest } else { 0 };
            Ipv6Addr::from_bits(address.to_bits() & !rest | set).into()
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A text that is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS/LENGTH with no bits behind the length, such as 10.90.0.0/16")]
pub struct NoPrefix;

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let (address, length) = text.split_once('/').ok_or(NoPrefix)?;
        let address = address.parse().map_err(|_| NoPrefix)?;
        let length = length.parse().map_err(|_| NoPrefix)?;
        Self::new(address, length).ok_or(NoPrefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn bits_behind_a_prefix_are_zero() {
        assert!(Prefix::new(ip("192.0.2.0"), 24).is_some());
        assert!(Prefix::new(ip("192.0.2.1"), 24).is_none());
        assert!(Prefix::new(ip("192.0.2.1"), 33).is_none());
        assert!(Prefix::new(ip("0.0.0.0"), 0).is_some());
        assert!(Prefix::new(ip("2001:db8::"), 32).is_some());
        assert!(Prefix::new(ip("2001:db8::"), 28).is_none());
        assert!(Prefix::new(ip("::"), 129).is_none());
        let around = Prefix::around(ip("192.0.2.77"), 26).unwrap();
        assert_eq!(around.to_string(), "192.0.2.64/26");
        assert_eq!(Prefix::around(ip("192.0.2.77"), 33), None);
    }

    #[test]
    fn a_prefix_has_the_addresses_from_its_first_to_its_last() {
        let prefix = Prefix::new(ip("192.0.2.64"), 26).unwrap();
        assert_eq!(prefix.last(), ip("192.0.2.127"));
        assert!(prefix.contains(ip("192.0.2.127")) && !prefix.contains(ip("192.0.2.128")));
        assert!(!prefix.contains(ip("::")));
        let all = Prefix::new(ip("::"), 0).unwrap();
        assert!(!all.contains(prefix.last()) && all.contains(ip("ff02::1")));
        assert_eq!(all.last(), ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
        let host = Prefix::host(ip("2001:db8::1"));
        assert!(host.is_host() && host.last() == host.address());
    }

    #[test]
    fn a_prefix_is_read_as_it_is_written() {
        for text in ["10.90.0.0/16", "fd90::/64", "0.0.0.0/0"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "::/x", "/8"] {
            assert_eq!(text.parse::<Prefix>(), Err(NoPrefix), "{text}");
        }
    }
}
