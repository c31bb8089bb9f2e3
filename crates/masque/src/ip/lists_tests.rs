//! Lists of addresses and routes: the way back, and every order that RFC 9484 forbids.

use super::*;
use crate::testing::hex;
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn range_of(start: &str, end: &str, protocol: u8) -> AddressRange {
    AddressRange::new(ip(start), ip(end), protocol).unwrap()
}

fn code<T>(result: Result<T, Error>) -> Option<Code> {
    result.err().map(|error| error.code())
}

#[test]
fn addresses_are_read_as_rfc_9484_writes_them() {
    let read = decode_addresses(&hex(
        "01 04 c0000200 18 00 06 20010db8000000000000000000000001 80",
    ));
    let prefix = |address, length| Prefix::new(ip(address), length).unwrap();
    let wanted = [
        (1, prefix("192.0.2.0", 24)),
        (0, prefix("2001:db8::1", 128)),
    ];
    let wanted = wanted.map(|(request_id, prefix)| Address { request_id, prefix });
    assert_eq!(read, Ok(wanted.to_vec()));
}

#[test]
fn a_refusal_is_address_zero_of_the_family_asked_for() {
    for (asked, refused) in [("10.1.2.3", "0.0.0.0/32"), ("2001:db8::1", "::/128")] {
        let request = Address {
            request_id: 5,
            prefix: Prefix::host(ip(asked)),
        };
        let refusal = Address::refusal(&request);
        assert_eq!(
            (refusal.request_id, &*refusal.prefix.to_string()),
            (5, refused)
        );
        assert!(refusal.is_refusal() && !request.is_refusal());
    }
}

#[test]
fn addresses_that_cannot_be_are_malformed() {
    for text in [
        "01 05 c0000200 18",
        "01 04 c0000200 21",
        "01 04 c0000201 18",
        "01 06 20010db8000000000000000000000001 81",
        "01 04 c00002",
        "01 04 c0000200",
        "01",
        "40",
    ] {
        assert_eq!(
            code(decode_addresses(&hex(text))),
            Some(Code::MESSAGE_ERROR),
            "{text}"
        );
    }
}

#[test]
fn lists_have_a_bounded_length() {
    let address = hex("01 04 c0000200 18");
    let many = |count: usize| decode_addresses(&address.repeat(count));
    assert_eq!(many(limits::ADDRESSES).unwrap().len(), limits::ADDRESSES);
    assert_eq!(
        code(many(limits::ADDRESSES + 1)),
        Some(Code::EXCESSIVE_LOAD)
    );
    let mut routes = Vec::new();
    for n in 0..=limits::ROUTES as u32 {
        let address = IpAddr::V4((n * 2).into());
        put_versioned(&mut routes, address);
        put_address(&mut routes, address);
        routes.push(0);
    }
    assert_eq!(code(decode_routes(&routes)), Some(Code::EXCESSIVE_LOAD));
    assert!(decode_routes(&routes[10..]).is_ok());
}

#[test]
fn routes_are_in_order_and_do_not_overlap() {
    let first = range_of("10.0.0.0", "10.0.0.255", 0);
    let second = range_of("10.0.1.0", "10.0.1.255", 0);
    let tcp = range_of("10.0.2.0", "10.0.2.255", 6);
    let udp = range_of("10.0.2.0", "10.0.2.255", 17);
    let v6 = range_of("2001:db8::", "2001:db8::ff", 0);
    let all = vec![first, second, tcp, udp, v6];
    assert_eq!(Routes::new(all.clone()).unwrap().ranges(), all);
    let misplaced = |list: &[AddressRange]| Routes::new(list.to_vec()).err().map(|at| at.0);
    assert_eq!(misplaced(&[second, first]), Some(1), "addresses descend");
    assert_eq!(misplaced(&[first, first]), Some(1), "twice");
    assert_eq!(
        misplaced(&[first, tcp, second]),
        Some(2),
        "protocols descend"
    );
    assert_eq!(misplaced(&[v6, first]), Some(1), "IPv6 before IPv4");
    let touching = range_of("10.0.0.255", "10.0.1.0", 0);
    assert_eq!(
        misplaced(&[first, touching]),
        Some(1),
        "one address in common"
    );
    for overlapping in [
        range_of("10.0.0.9", "10.0.0.9", 6),
        range_of("9.0.0.0", "10.0.0.0", 6),
        range_of("10.0.0.255", "10.0.0.255", 6),
        range_of("0.0.0.0", "255.255.255.255", 6),
    ] {
        assert_eq!(
            misplaced(&[first, second, overlapping]),
            Some(2),
            "{overlapping:?}"
        );
    }
    assert_eq!(
        misplaced(&[first, second, range_of("10.0.2.0", "10.0.3.0", 6)]),
        None
    );
}

#[test]
fn routes_that_cannot_be_are_malformed() {
    for text in [
        "04 0a000001 0a000000 00",
        "05 0a000000 0a000001 00",
        "04 0a000000 0a000001",
        "04 0a000000 0a0000ff 00 04 0a0000ff 0a0001ff 00",
    ] {
        assert_eq!(
            code(decode_routes(&hex(text))),
            Some(Code::MESSAGE_ERROR),
            "{text}"
        );
    }
}

#[test]
fn a_route_for_a_protocol_takes_icmp_too() {
    let routes = Routes::new(vec![
        range_of("10.0.0.0", "10.0.0.255", 6),
        range_of("2001:db8::", "2001:db8::ff", 17),
    ]);
    let routes = routes.unwrap();
    assert!(routes.allow(ip("10.0.0.1"), 6) && !routes.allow(ip("10.0.0.1"), 17));
    assert!(routes.allow(ip("10.0.0.1"), 1) && !routes.allow(ip("10.0.0.1"), 58));
    assert!(routes.allow(ip("2001:db8::1"), 58) && !routes.allow(ip("2001:db8::1"), 1));
    assert!(!routes.allow(ip("10.0.1.0"), 6) && !routes.allow(ip("::"), 58));
}

#[test]
fn prefixes_make_routes_without_overlaps() {
    let prefix = |text: &str, length| Prefix::new(ip(text), length).unwrap();
    let routes = Routes::of_prefixes([
        prefix("::", 0),
        prefix("10.1.0.0", 16),
        prefix("10.0.0.0", 9),
        prefix("10.0.0.0", 8),
        prefix("9.0.0.0", 8),
    ]);
    let wanted = vec![
        range_of("9.0.0.0", "9.255.255.255", 0),
        range_of("10.0.0.0", "10.255.255.255", 0),
        range_of("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0),
    ];
    assert_eq!(routes, Routes::new(wanted).unwrap());
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (any::<u32>(), 0..=32u8);
    let v6 = (any::<u128>(), 0..=128u8);
    prop_oneof![
        v4.prop_map(|(bits, length)| Prefix::around(IpAddr::V4(bits.into()), length).unwrap()),
        v6.prop_map(|(bits, length)| Prefix::around(IpAddr::V6(bits.into()), length).unwrap()),
    ]
}

proptest! {
    #[test]
    fn addresses_come_back(
        addresses in prop::collection::vec((0..=varint::MAX, any_prefix()), 0..8),
    ) {
        let addresses = addresses.into_iter();
        let addresses = addresses.map(|(request_id, prefix)| Address { request_id, prefix });
        let addresses: Vec<_> = addresses.collect();
        let mut out = Vec::new();
        put_addresses(&mut out, &addresses);
        prop_assert_eq!(decode_addresses(&out), Ok(addresses));
    }

    #[test]
    fn routes_of_any_prefixes_are_in_order_and_come_back(
        prefixes in prop::collection::vec(any_prefix(), 0..12),
    ) {
        let routes = Routes::of_prefixes(prefixes.clone());
        prop_assert_eq!(Routes::new(routes.ranges().to_vec()), Ok(routes.clone()));
        for prefix in prefixes {
            prop_assert!(routes.allow(prefix.address(), 6) && routes.allow(prefix.last(), 17));
        }
        let mut out = Vec::new();
        put_routes(&mut out, &routes);
        prop_assert_eq!(decode_routes(&out), Ok(routes));
    }

    #[test]
    fn overlaps_are_found_as_by_looking_at_all_pairs(
        small in prop::collection::vec((0..40u32, 0..6u32, 0..3u8), 0..6),
    ) {
        let range = |(start, more, protocol): (u32, u32, u8)| {
            AddressRange::new(IpAddr::V4(start.into()), IpAddr::V4((start + more).into()), protocol)
        };
        let mut ranges: Vec<_> = small.into_iter().filter_map(range).collect();
        ranges.sort_unstable_by_key(|range| (range.protocol, range.start));
        let clash = |a: &AddressRange, b: &AddressRange| {
            let together = a.protocol == b.protocol || a.protocol == 0 || b.protocol == 0;
            together && a.overlaps(b)
        };
        let mut each = ranges.iter().enumerate();
        let clashes = each.any(|(at, a)| ranges[..at].iter().any(|b| clash(a, b)));
        prop_assert_eq!(Routes::new(ranges).is_err(), clashes);
    }

    #[test]
    fn any_bytes_are_lists_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(addresses) = decode_addresses(&bytes) {
            let mut out = Vec::new();
            put_addresses(&mut out, &addresses);
            prop_assert_eq!(decode_addresses(&out), Ok(addresses));
        }
        if let Err(error) = decode_routes(&bytes) {
            prop_assert!(!error.is_connection());
        }
    }
}

#[test]
fn a_range_is_the_prefixes_that_have_its_addresses() {
    for (start, end, prefixes) in [
        ("0.0.0.0", "255.255.255.255", "0.0.0.0/0"),
        ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0"),
        (
            "10.0.0.1",
            "10.0.0.4",
            "10.0.0.1/32 10.0.0.2/31 10.0.0.4/32",
        ),
        ("255.255.255.254", "255.255.255.255", "255.255.255.254/31"),
        ("2001:db8::", "2001:db8::", "2001:db8::/128"),
    ] {
        let range = AddressRange::new(start.parse().unwrap(), end.parse().unwrap(), 0).unwrap();
        let found: Vec<String> = range.prefixes().iter().map(ToString::to_string).collect();
        assert_eq!(found.join(" "), prefixes);
    }
}
