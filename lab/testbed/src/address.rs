//! An interface's address with the length of its network's prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::Error;

/// An address and how many of its bits name the network, such as `10.0.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    ip: IpAddr,
    prefix_len: u8,
}

impl Address {
    /// An address whose first `prefix_len` bits name the network.
    ///
    /// # Errors
    /// [`Error::Address`] if the address has fewer bits.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Result<Self, Error> {
        let most = if ip.is_ipv4() { 32 } else { 128 };
        if prefix_len > most {
            return Err(Error::Address(format!("{ip}/{prefix_len}")));
        }
        Ok(Self { ip, prefix_len })
    }

    /// How many bits name the network.
    #[must_use]
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// The address without the prefix length.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.ip
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Address(text.to_owned());
        let (ip, prefix_len) = text.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let prefix_len: u8 = prefix_len.parse().map_err(|_| wrong())?;
        Self::new(ip, prefix_len).map_err(|_| wrong())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}
