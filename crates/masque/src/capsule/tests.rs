//! Capsules in all cuts, and those that a hostile peer may send.

use super::*;
use crate::ip::{AddressRange, Prefix};
use crate::testing::{self, hex};
use proptest::prelude::*;

const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Ip];

impl testing::Stream for Reader {
    type Item = Item;

    fn push(&mut self, bytes: Bytes) {
        self.push(bytes);
    }

    fn finish(&mut self) {
        self.finish();
    }

    fn poll(&mut self) -> Result<Option<Item>, Error> {
        self.poll()
    }

    fn piece(item: &mut Item) -> Option<&mut Bytes> {
        match item {
            Item::Payload(bytes) => Some(bytes),
            _ => None,
        }
    }
}

fn read(protocol: Protocol, chunks: &[Bytes], is_finished: bool) -> (Vec<Item>, Option<Error>) {
    testing::read(Reader::new(protocol), chunks, is_finished)
}

fn reads(protocol: Protocol, bytes: &[u8], is_finished: bool) -> (Vec<Item>, Option<Error>) {
    testing::reads(|| Reader::new(protocol), bytes, is_finished)
}

fn code(protocol: Protocol, text: &str, is_finished: bool) -> Option<Code> {
    let error = reads(protocol, &hex(text), is_finished).1?;
    assert!(!error.is_connection());
    Some(error.code())
}

fn capsule(protocol: Protocol, text: &str) -> Capsule {
    match reads(protocol, &hex(text), false) {
        (mut items, None) if items.len() == 1 => match items.remove(0) {
            Item::Capsule(capsule) => capsule,
            item => panic!("{item:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn encoded(capsule: &Capsule) -> Vec<u8> {
    let mut out = Vec::new();
    capsule.encode(&mut out);
    out
}

#[test]
fn datagrams_are_read_between_capsules_that_nobody_knows() {
    let text = "00 03 00abcd  40ff 02 ffff  00 00  2a 00  00 01 00";
    let datagram = |text: &str| Item::Capsule(Capsule::Datagram(hex(text).into()));
    let items = vec![datagram("00abcd"), datagram(""), datagram("00"), Item::End];
    for protocol in [Protocol::Udp, Protocol::Ip] {
        assert_eq!(reads(protocol, &hex(text), true), (items.clone(), None));
    }
}

#[test]
fn a_datagram_in_one_chunk_is_not_copied() {
    let bytes = Bytes::from(hex("00 03 00abcd"));
    let mut reader = Reader::new(Protocol::Udp);
    reader.push(bytes.clone());
    let Ok(Some(Item::Capsule(Capsule::Datagram(payload)))) = reader.poll() else {
        panic!("there is a datagram");
    };
    assert_eq!(payload.as_ptr(), bytes[2..].as_ptr());
}

#[test]
fn a_tcp_connection_comes_in_chunks_and_ends_once() {
    let text = "a028d7f2 03 616263 a028d7f2 00 40ff 01 00 a028d7f3 02 6465";
    let payload = |text: &'static str| Item::Payload(Bytes::from_static(text.as_bytes()));
    let items = vec![payload("abcde"), Item::Final, Item::End];
    assert_eq!(reads(Protocol::Tcp, &hex(text), true), (items, None));
    for more in ["a028d7f2 00", "a028d7f3 00"] {
        let text = format!("{text} {more}");
        assert_eq!(code(Protocol::Tcp, &text, false), Some(Code::MESSAGE_ERROR));
    }
    let mut out = Vec::new();
    put_payload_header(&mut out, 3, false);
    put_payload_header(&mut out, 0, true);
    assert_eq!(out, hex("a028d7f2 03 a028d7f3 00"));
}

#[test]
fn capsules_of_other_protocols_mean_nothing() {
    for text in [
        "01 01 ff",
        "02 00",
        "03 01 04",
        "11 00",
        "12 00",
        "13 00",
        "a028d7f2 01 00",
    ] {
        let of = match &text[..2] {
            "11" | "12" | "13" => Protocol::Udp,
            "a0" => Protocol::Tcp,
            _ => Protocol::Ip,
        };
        for protocol in ALL.into_iter().filter(|protocol| *protocol != of) {
            let read = reads(protocol, &hex(text), true);
            assert_eq!(read, (vec![Item::End], None), "{protocol} {text}");
        }
    }
    let numbers = reads(Protocol::Tcp, &hex("9f8c62a5 01 02"), true);
    assert_eq!(numbers, (vec![Item::End], None));
}

#[test]
fn a_datagram_where_there_are_none_ends_the_stream() {
    assert_eq!(
        code(Protocol::Tcp, "00 01 00", false),
        Some(Code::DATAGRAM_ERROR)
    );
}

#[test]
fn contexts_are_registered_acknowledged_and_closed() {
    let assign = |context, remote: Option<&str>| Capsule::CompressionAssign {
        context,
        remote: remote.map(|text| text.parse().unwrap()),
    };
    let read = capsule(Protocol::Udp, "11 02 02 00");
    assert_eq!(read, assign(2, None));
    let read = capsule(Protocol::Udp, "11 08 04 04 c0000206 01bb");
    assert_eq!(read, assign(4, Some("192.0.2.6:443")));
    let v6 = "11 14 05 06 20010db8000000000000000000000042 01bb";
    assert_eq!(
        capsule(Protocol::Udp, v6),
        assign(5, Some("[2001:db8::42]:443"))
    );
    let ack = Capsule::CompressionAck { context: 2 };
    assert_eq!(capsule(Protocol::Udp, "12 01 02"), ack);
    let close = Capsule::CompressionClose { context: 300 };
    assert_eq!(capsule(Protocol::Udp, "13 02 412c"), close);
    let register = |bits| Capsule::RegisterSequence {
        context: 2,
        payload_context: 0,
        bits,
    };
    let with_bits = capsule(Protocol::Ip, "9f8c62a5 03 02 00 20");
    assert_eq!(with_bits, register(Some(NumberBits::ThirtyTwo)));
    assert_eq!(capsule(Protocol::Udp, "9f8c62a5 02 02 00"), register(None));
}

#[test]
fn nameservers_and_translated_prefixes_are_told() {
    let dns = "9ace79ec 11 01 0001 01 c0000221 00 00 00 01 00 01 02 6161";
    let DnsConfiguration {
        nameservers,
        internal,
        search,
    } = match capsule(Protocol::Ip, dns) {
        Capsule::DnsAssign(mut all) if all.len() == 1 => all.remove(0),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        nameservers[0].addresses,
        [std::net::IpAddr::from([192, 0, 2, 33])]
    );
    assert_eq!(
        (internal, search),
        (vec![String::new()], vec!["aa".to_owned()])
    );
    let pref64 = capsule(Protocol::Ip, "a74c0fbc 0d 60 0064ff9b0000000000000000");
    let prefix = Prefix::new("64:ff9b::".parse().unwrap(), 96).unwrap();
    assert_eq!(pref64, Capsule::Pref64(vec![prefix]));
    assert_eq!(
        encoded(&pref64),
        hex("a74c0fbc 0d 60 0064ff9b0000000000000000")
    );
    assert_eq!(
        code(Protocol::Ip, "9ace79ec 01 01", false),
        Some(Code::MESSAGE_ERROR)
    );
}

#[test]
fn capsules_with_more_or_less_than_their_fields_are_malformed() {
    for (protocol, text) in [
        (Protocol::Udp, "11 00"),
        (Protocol::Udp, "11 01 02"),
        (Protocol::Udp, "11 03 02 00 00"),
        (Protocol::Udp, "11 02 02 05"),
        (Protocol::Udp, "11 07 04 04 c0000206 01"),
        (Protocol::Udp, "11 09 04 04 c0000206 01bb 00"),
        (Protocol::Udp, "12 00"),
        (Protocol::Udp, "12 02 02 00"),
        (Protocol::Udp, "13 01 40"),
        (Protocol::Udp, "9f8c62a5 01 02"),
        (Protocol::Udp, "9f8c62a5 03 02 00 21"),
        (Protocol::Udp, "9f8c62a5 04 02 00 20 00"),
        (Protocol::Ip, "01 01 00"),
        (Protocol::Ip, "02 00"),
        (Protocol::Ip, "02 07 00 04 00000000 20"),
        (Protocol::Ip, "03 05 04 00000000"),
    ] {
        assert_eq!(
            code(protocol, text, false),
            Some(Code::MESSAGE_ERROR),
            "{text}"
        );
    }
}

#[test]
fn a_stream_that_ends_within_a_capsule_is_malformed() {
    for text in ["00", "40", "00 02 00", "40ff 01", "01 07 00"] {
        assert_eq!(
            code(Protocol::Ip, text, true),
            Some(Code::MESSAGE_ERROR),
            "{text}"
        );
    }
    assert_eq!(
        code(Protocol::Tcp, "a028d7f2 02 00", true),
        Some(Code::MESSAGE_ERROR)
    );
}

#[test]
fn a_datagram_that_is_too_long_is_dropped_and_other_capsules_end_the_stream() {
    let mut bytes = Vec::new();
    put_datagram_header(&mut bytes, limits::DATAGRAM_BYTES + 1);
    bytes.resize(bytes.len() + limits::DATAGRAM_BYTES + 1, 0);
    bytes.extend_from_slice(&hex("00 01 00"));
    let mut reader = Reader::new(Protocol::Ip);
    for chunk in bytes.chunks(1000) {
        assert_eq!(reader.poll(), Ok(None));
        assert!(reader.input.is_empty());
        reader.push(Bytes::copy_from_slice(chunk));
    }
    let next = Capsule::Datagram(Bytes::from_static(&[0]));
    assert_eq!(reader.poll(), Ok(Some(Item::Capsule(next))));
    for kind in ["01", "02", "03"] {
        let text = format!("{kind} 80010001");
        assert_eq!(code(Protocol::Ip, &text, false), Some(Code::EXCESSIVE_LOAD));
    }
}

#[test]
fn the_longest_datagram_is_read() {
    let longest = Capsule::Datagram(vec![7; limits::DATAGRAM_BYTES].into());
    let chunks: Vec<_> = encoded(&longest)
        .chunks(1200)
        .map(Bytes::copy_from_slice)
        .collect();
    assert_eq!(
        read(Protocol::Ip, &chunks, false),
        (vec![Item::Capsule(longest)], None)
    );
}

#[test]
fn unknown_capsules_of_any_length_take_no_room() {
    let mut reader = Reader::new(Protocol::Udp);
    reader.push(hex("40ff ffffffffffffffff").into());
    for _ in 0..1000 {
        reader.push(Bytes::from_static(&[0; 1000]));
        assert_eq!(reader.poll(), Ok(None));
        assert!(reader.input.is_empty());
    }
}

/// Types of capsules, known and not.
const FIRST: [&str; 14] = [
    "", "00", "01", "02", "03", "04", "11", "12", "13", "a028d7f2", "a028d7f3", "9f8c62a5",
    "9ace79ec", "a74c0fbc",
];

fn context() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, 0..=varint::MAX]
}

fn capsules() -> impl Strategy<Value = (Protocol, Capsule)> {
    let bits = [
        NumberBits::Eight,
        NumberBits::Sixteen,
        NumberBits::ThirtyTwo,
    ];
    let bits = prop::option::of(prop::sample::select(bits.to_vec()));
    let register = (context(), context(), bits).prop_map(|(context, payload_context, bits)| {
        Capsule::RegisterSequence {
            context,
            payload_context,
            bits,
        }
    });
    let assign =
        (context(), prop::option::of(any::<SocketAddr>())).prop_map(|(context, remote)| {
            let remote = remote.map(|remote| SocketAddr::new(remote.ip(), remote.port()));
            Capsule::CompressionAssign { context, remote }
        });
    let datagram = prop::collection::vec(any::<u8>(), 0..200);
    let class = (context(), datagram.clone()).prop_map(|(context, class)| {
        let class = class.into();
        Capsule::ContextClass { context, class }
    });
    let address = (1..=varint::MAX, any::<std::net::IpAddr>(), 0..=32u8);
    let address = address.prop_map(|(request_id, address, length)| Address {
        request_id,
        prefix: Prefix::around(address, length).unwrap(),
    });
    let addresses = prop::collection::vec(address, 1..5);
    let routes = any::<std::net::IpAddr>().prop_map(|address| {
        let range = AddressRange::new(address, address, 17).unwrap();
        Capsule::RouteAdvertisement(Routes::new(vec![range]).unwrap())
    });
    let udp = |capsule: Capsule| (Protocol::Udp, capsule);
    let ip = |capsule: Capsule| (Protocol::Ip, capsule);
    prop_oneof![
        register.prop_map(udp),
        assign.prop_map(udp),
        context().prop_map(|context| (Protocol::Udp, Capsule::CompressionAck { context })),
        context().prop_map(|context| (Protocol::Udp, Capsule::CompressionClose { context })),
        class.prop_map(udp),
        datagram.prop_map(|bytes| (Protocol::Udp, Capsule::Datagram(bytes.into()))),
        addresses
            .clone()
            .prop_map(Capsule::AddressAssign)
            .prop_map(ip),
        addresses.prop_map(Capsule::AddressRequest).prop_map(ip),
        routes.prop_map(ip),
    ]
}

proptest! {
    #[test]
    fn capsules_come_back((protocol, capsule) in capsules()) {
        let bytes = encoded(&capsule);
        let items = vec![Item::Capsule(capsule), Item::End];
        prop_assert_eq!(reads(protocol, &bytes, true), (items, None));
    }

    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(
        protocol in prop::sample::select(ALL.to_vec()),
        first in prop::sample::select(FIRST.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 1..24),
        is_finished: bool,
    ) {
        reads(protocol, &[hex(first), bytes].concat(), is_finished);
    }
}
