//! Lists of addresses and routes, as in the capsules of RFC 9484, section 4.7.
//!
//! Each list is the whole list: what an earlier one had and this one has not is withdrawn.

use super::Prefix;
use super::protocol;
use crate::error::{Code, Error, malformed, stream};
use crate::limits;
use anabranch_wire::cursor::{Reader, UnexpectedEnd};
use anabranch_wire::varint;
use std::net::{IpAddr, SocketAddr};

/// An address or prefix that is asked for or assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The request's number; in an assignment, the request it answers, 0 if none.
    pub request_id: u64,
    /// What is asked for or assigned. A request for address 0 leaves the choice to the other side.
    pub prefix: Prefix,
}

impl Address {
    /// The answer to a request that is not granted.
    pub const fn refusal(request: &Self) -> Self {
        let nothing = match request.prefix.address() {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        Self {
            request_id: request.request_id,
            prefix: Prefix::host(nothing),
        }
    }

    /// Whether an assignment says that a request is not granted.
    pub fn is_refusal(&self) -> bool {
        self.prefix.is_host() && self.prefix.address().is_unspecified()
    }
}

/// Addresses that one side forwards to, for one protocol or for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    start: IpAddr,
    end: IpAddr,
    protocol: u8,
}

impl AddressRange {
    /// From `start` to `end`, both included; protocol 0 stands for all. `None` if they are of
    /// different families or in the wrong order.
    pub fn new(start: IpAddr, end: IpAddr, protocol: u8) -> Option<Self> {
        let range = Self {
            start,
            end,
            protocol,
        };
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some(range)
    }

    /// The addresses of a prefix.
    pub fn of_prefix(prefix: Prefix, protocol: u8) -> Self {
        Self {
            start: prefix.address(),
            end: prefix.last(),
            protocol,
        }
    }

    /// The first address.
    pub const fn start(&self) -> IpAddr {
        self.start
    }

    /// The last address.
    pub const fn end(&self) -> IpAddr {
        self.end
    }

    /// The protocol, or 0 for all.
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether packets to this address with this protocol belong to it. ICMP always does.
    pub fn allows(&self, destination: IpAddr, protocol: u8) -> bool {
        let is_icmp = match destination {
            IpAddr::V4(_) => protocol == protocol::ICMP,
            IpAddr::V6(_) => protocol == protocol::ICMPV6,
        };
        let is_within = (self.start..=self.end).contains(&destination);
        is_within && (is_icmp || self.protocol == 0 || self.protocol == protocol)
    }

    /// Splits the range into prefixes, lowest first.
    pub fn prefixes(&self) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        let mut next = Some(self.start);
        while let Some(first) = next.filter(|first| *first <= self.end) {
            // The widest one that begins here and goes no further than the end.
            let bits = if first.is_ipv4() { 32 } else { 128 };
            let widest = (0..=bits).find_map(|length| {
                let prefix = Prefix::new(first, length)?;
                (prefix.last() <= self.end).then_some(prefix)
            });
            let prefix = widest.unwrap_or(Prefix::host(first));
            prefixes.push(prefix);
            next = match prefix.last() {
                IpAddr::V4(last) => last
                    .to_bits()
                    .checked_add(1)
                    .map(|ip| IpAddr::V4(ip.into())),
                IpAddr::V6(last) => last
                    .to_bits()
                    .checked_add(1)
                    .map(|ip| IpAddr::V6(ip.into())),
            };
        }
        prefixes
    }

    /// Whether it must come before `other` in a list: lower, and without a common address if they
    /// are for the same protocol.
    fn precedes(&self, other: &Self) -> bool {
        let order = |range: &Self| (range.start.is_ipv6(), range.protocol);
        order(self) < order(other) || (order(self) == order(other) && self.end < other.start)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// The place in a list of a range that may not be there: out of order, or overlapping another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("address range {0} is out of order or overlaps another")]
pub struct MisplacedRange(pub usize);

/// All that one side forwards: ranges in order, none overlapping another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes(Vec<AddressRange>);

impl Routes {
    /// Takes a list that is in order.
    ///
    /// # Errors
    /// [`MisplacedRange`] if it is not.
    pub fn new(ranges: Vec<AddressRange>) -> Result<Self, MisplacedRange> {
        let pairs = ranges.iter().zip(ranges.iter().skip(1));
        let misplaced = pairs.enumerate().find(|(_, (a, b))| !a.precedes(b));
        if let Some((index, _)) = misplaced {
            return Err(MisplacedRange(index + 1));
        }
        match overlap_with_all(&ranges) {
            Some(index) => Err(MisplacedRange(index)),
            None => Ok(Self(ranges)),
        }
    }

    /// All packets to these prefixes, whatever their order and overlaps.
    pub fn of_prefixes(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let ranges = prefixes.into_iter();
        let mut ranges: Vec<_> = ranges
            .map(|prefix| AddressRange::of_prefix(prefix, 0))
            .collect();
        // Prefixes lie within each other or apart: of those that begin alike, the widest first.
        ranges.sort_unstable_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
        ranges.dedup_by(|next, kept| kept.overlaps(next));
        Self(ranges)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[AddressRange] {
        &self.0
    }

    /// Whether packets to this address with this protocol are forwarded.
    pub fn allow(&self, destination: IpAddr, protocol: u8) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|range| range.allows(destination, protocol))
    }
}

/// The first range that overlaps one for all protocols of the same family, in a list that is in
/// order otherwise. Those for all protocols come first in each family.
fn overlap_with_all(ranges: &[AddressRange]) -> Option<usize> {
    let is_all = |range: &&AddressRange| range.protocol == 0;
    let of_all: Vec<_> = ranges.iter().filter(is_all).collect();
    ranges.iter().position(|range| {
        // The only one that can overlap begins last among those that begin before its end.
        let after = of_all.partition_point(|all| all.start <= range.end);
        let before = after.checked_sub(1).map(|index| of_all[index]);
        range.protocol != 0 && before.is_some_and(|all| all.overlaps(range))
    })
}

pub(crate) fn put_addresses(out: &mut Vec<u8>, addresses: &[Address]) {
    for address in addresses {
        varint::put(out, address.request_id);
        put_versioned(out, address.prefix.address());
        out.push(address.prefix.length());
    }
}

/// Reads addresses until the end.
pub(crate) fn decode_addresses(value: &[u8]) -> Result<Vec<Address>, Error> {
    until_end(value, limits::ADDRESSES, |reader| {
        let address = address(reader).unwrap_or(None);
        address.ok_or(malformed("an address in a list breaks off or cannot be"))
    })
}

/// Reads items until the end: at most `max`.
pub(super) fn until_end<T>(
    value: &[u8],
    max: usize,
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let (mut reader, mut items) = (Reader::new(value), Vec::new());
    while !reader.is_empty() {
        if items.len() == max {
            return Err(stream(Code::EXCESSIVE_LOAD, "a list is too long"));
        }
        items.push(item(&mut reader)?);
    }
    Ok(items)
}

fn address(reader: &mut Reader<'_>) -> Result<Option<Address>, UnexpectedEnd> {
    let request_id = reader.varint()?;
    let Some(address) = versioned(reader)? else {
        return Ok(None);
    };
    let prefix = Prefix::new(address, reader.u8()?);
    Ok(prefix.map(|prefix| Address { request_id, prefix }))
}

pub(crate) fn put_routes(out: &mut Vec<u8>, routes: &Routes) {
    for range in routes.ranges() {
        put_versioned(out, range.start);
        put_address(out, range.end);
        out.push(range.protocol);
    }
}

/// Reads address ranges until the end.
pub(crate) fn decode_routes(value: &[u8]) -> Result<Routes, Error> {
    let ranges = until_end(value, limits::ROUTES, |reader| {
        let range = range(reader).unwrap_or(None);
        range.ok_or(malformed("an address range breaks off or cannot be"))
    })?;
    Routes::new(ranges).map_err(|_| malformed("address ranges are out of order or overlap"))
}

fn range(reader: &mut Reader<'_>) -> Result<Option<AddressRange>, UnexpectedEnd> {
    let Some(start) = versioned(reader)? else {
        return Ok(None);
    };
    let end = address_of(reader, start.is_ipv4())?;
    Ok(AddressRange::new(start, end, reader.u8()?))
}

/// Appends the version of an address, 4 or 6, and the address.
fn put_versioned(out: &mut Vec<u8>, address: IpAddr) {
    out.push(if address.is_ipv4() { 4 } else { 6 });
    put_address(out, address);
}

pub(super) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}

/// Reads a version and an address; `None` if the version is neither 4 nor 6.
fn versioned(reader: &mut Reader<'_>) -> Result<Option<IpAddr>, UnexpectedEnd> {
    match reader.u8()? {
        4 => address_of(reader, true).map(Some),
        6 => address_of(reader, false).map(Some),
        _ => Ok(None),
    }
}

/// Appends a version, an address and a port, as in datagrams for many remote ends.
pub(crate) fn put_socket(out: &mut Vec<u8>, socket: SocketAddr) {
    put_versioned(out, socket.ip());
    out.extend_from_slice(&socket.port().to_be_bytes());
}

/// Reads a version, an address and a port.
pub(crate) fn socket(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let address = versioned(reader).ok()??;
    let port = reader.u16().ok()?;
    Some(SocketAddr::new(address, port))
}

/// Reads an address of one family.
pub(super) fn address_of(reader: &mut Reader<'_>, is_ipv4: bool) -> Result<IpAddr, UnexpectedEnd> {
    if is_ipv4 {
        reader.array::<4>().map(IpAddr::from)
    } else {
        reader.array::<16>().map(IpAddr::from)
    }
}

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
