//! IP as a tunnel sees it: addresses and routes that are agreed on (RFC 9484), and packets.

mod dns;
mod icmp;
mod lists;
mod packet;
mod prefix;

pub use dns::{DnsConfiguration, Nameserver};
pub(crate) use dns::{decode_dns, decode_pref64, put_dns, put_pref64};
pub use icmp::{Undeliverable, error_message};
pub use lists::{Address, AddressRange, MisplacedRange, Routes};
pub(crate) use lists::{
    decode_addresses, decode_routes, put_addresses, put_routes, put_socket, socket,
};
pub use packet::{InvalidPacket, Packet};
pub use prefix::{NoPrefix, Prefix};

/// Internet protocol numbers that are named here.
pub mod protocol {
    /// ICMP, which is always allowed over IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP of IPv6, which is always allowed over IPv6.
    pub const ICMPV6: u8 = 58;
}
