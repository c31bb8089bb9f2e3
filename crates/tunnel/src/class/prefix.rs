//! Addresses with the number of bits that count, as people write them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A subnet, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// A text that is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrefix {
    /// No address, or no length behind it.
    #[error("expected an address or a subnet, as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")]
    Form,
    /// A length that has bits of the address behind it.
    #[error("the address has bits behind the length: expected {0}")]
    Bits(Prefix),
}

impl Prefix {
    /// Whether it has this address. An IPv4 address is one, also where it is mapped into IPv6.
    pub fn contains(self, address: IpAddr) -> bool {
        masked(address.to_canonical(), self.length) == Some(self.address)
    }
}

/// The first bits of an address; `None` if it has fewer.
fn masked(address: IpAddr, length: u8) -> Option<IpAddr> {
    let length = u32::from(length);
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32u32.checked_sub(length)?);
            Some(IpAddr::V4((ip.to_bits() & mask.unwrap_or(0)).into()))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128u32.checked_sub(length)?);
            Some(IpAddr::V6((ip.to_bits() & mask.unwrap_or(0)).into()))
        }
    }
}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidPrefix::Form)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(all), |length| {
            length.parse().map_err(|_| InvalidPrefix::Form)
        })?;
        let first = masked(address, length).ok_or(InvalidPrefix::Form)?;
        let prefix = Self {
            address: first,
            length,
        };
        if first == address {
            Ok(prefix)
        } else {
            Err(InvalidPrefix::Bits(prefix))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, length } = self;
        write!(f, "{address}/{length}")
    }
}
