//! Two sides that register contexts, and peers that break the rules.

use super::*;
use crate::testing::hex;
use proptest::prelude::*;

const BOTH: Extensions = Extensions {
    numbers: true,
    repair: true,
    bind: true,
};

fn side(side: Side) -> Contexts {
    Contexts::new(side, Protocol::Udp, BOTH, true)
}

fn pair() -> (Contexts, Contexts) {
    (side(Side::Client), side(Side::Server))
}

fn remote(last: u8) -> SocketAddr {
    format!("192.0.2.{last}:443").parse().unwrap()
}

/// Hands a capsule over; returns the answers.
fn give(to: &mut Contexts, capsule: &Capsule) -> Vec<Capsule> {
    to.on_capsule(capsule, |_| true).unwrap()
}

fn code(contexts: &mut Contexts, capsule: &Capsule) -> Option<Code> {
    let error = contexts.on_capsule(capsule, |_| true).err()?;
    assert!(!error.is_connection());
    Some(error.code())
}

fn assign(context: u64, remote: Option<SocketAddr>) -> Capsule {
    Capsule::CompressionAssign { context, remote }
}

fn register(context: u64, payload_context: u64, bits: Option<NumberBits>) -> Capsule {
    Capsule::RegisterSequence {
        context,
        payload_context,
        bits,
    }
}

fn read(contexts: &Contexts, text: &str) -> Option<Received> {
    contexts.read(hex(text).into()).unwrap()
}

#[test]
fn context_0_is_the_payload_itself() {
    let bytes = Bytes::from(hex("00 abcd"));
    let received = side(Side::Client).read(bytes.clone()).unwrap().unwrap();
    assert_eq!(
        (received.context, received.number, received.remote),
        (0, None, None)
    );
    assert_eq!(received.payload.as_ptr(), bytes[1..].as_ptr());
    assert_eq!(
        read(&side(Side::Client), "00").unwrap().payload,
        Bytes::new()
    );
}

#[test]
fn numbers_precede_what_their_context_stands_for() {
    let (mut client, mut server) = pair();
    let (id, capsule) = client.number(0, NumberBits::ThirtyTwo).unwrap();
    assert_eq!(
        (id, &capsule),
        (2, &register(2, 0, Some(NumberBits::ThirtyTwo)))
    );
    assert_eq!(
        read(&server, "02 00000007 abcd"),
        None,
        "not registered yet"
    );
    assert_eq!(give(&mut server, &capsule), []);
    for contexts in [&client, &server] {
        let received = read(contexts, "02 00000007 abcd").unwrap();
        assert_eq!(received.number, Some((7, NumberBits::ThirtyTwo)));
        assert_eq!(received.payload, hex("abcd"));
    }
    assert_eq!(
        give(&mut client, &register(1, 0, Some(NumberBits::Eight))),
        []
    );
    assert_eq!(
        read(&client, "01 ff").unwrap().number,
        Some((255, NumberBits::Eight))
    );
}

#[test]
fn the_size_of_numbers_may_be_missing_in_all_but_the_first_registration() {
    let mut server = side(Side::Server);
    let missing = register(2, 0, None);
    assert_eq!(code(&mut server, &missing), Some(Code::MESSAGE_ERROR));
    give(&mut server, &register(2, 0, Some(NumberBits::Sixteen)));
    give(&mut server, &register(4, 0, None));
    let bits = NumberBits::Sixteen;
    assert_eq!(server.find(4), Some(Context::Numbered { payload: 0, bits }));
}

#[test]
fn one_socket_serves_many_remote_ends() {
    let (mut client, mut server) = pair();
    assert_eq!(client.toward(remote(1)), None);
    let (any, capsule) = client.open_any().unwrap();
    assert_eq!((any, &capsule), (2, &assign(2, None)));
    let answers = give(&mut server, &capsule);
    assert_eq!(answers, [Capsule::CompressionAck { context: 2 }]);
    assert_eq!(client.toward(remote(1)), None, "not acknowledged yet");
    give(&mut client, &answers[0]);
    assert_eq!(client.toward(remote(1)), Some(2));
    let received = read(&server, "02 04 c0000201 01bb abcd").unwrap();
    assert_eq!(
        (received.remote, received.payload),
        (Some(remote(1)), hex("abcd").into())
    );

    let (one, capsule) = server.open(remote(1)).unwrap();
    assert_eq!((one, &capsule), (1, &assign(1, Some(remote(1)))));
    let answers = give(&mut client, &capsule);
    give(&mut server, &answers[0]);
    assert_eq!(
        (client.toward(remote(1)), server.toward(remote(1))),
        (Some(1), Some(1))
    );
    assert_eq!(server.toward(remote(2)), Some(2));
    let received = read(&client, "01 abcd").unwrap();
    assert_eq!(received.remote, Some(remote(1)));
}

#[test]
fn remote_ends_can_be_numbered_too() {
    let (mut client, mut server) = pair();
    let (any, capsule) = client.open_any().unwrap();
    give(&mut server, &capsule);
    let (numbered, capsule) = client.number(any, NumberBits::Eight).unwrap();
    give(&mut server, &capsule);
    assert_eq!(numbered, 4);
    let received = read(&server, "04 09 04 c0000201 01bb abcd").unwrap();
    assert_eq!(received.number, Some((9, NumberBits::Eight)));
    assert_eq!(
        (received.remote, received.payload),
        (Some(remote(1)), hex("abcd").into())
    );
    give(&mut server, &Capsule::CompressionClose { context: any });
    assert_eq!(
        read(&server, "04 09 04 c0000201 01bb abcd"),
        None,
        "closed with it"
    );
}

#[test]
fn numbers_of_a_remote_end_serve_both_directions_until_it_is_closed() {
    let (mut client, mut server) = pair();
    let (one, assigned) = client.open(remote(1)).unwrap();
    let (numbers, registered) = client.number(one, NumberBits::Sixteen).unwrap();
    assert_eq!((one, numbers), (2, 4));
    // Both may be sent with the first datagram, before the answer.
    let ack = Capsule::CompressionAck { context: one };
    assert_eq!(give(&mut server, &assigned), [ack]);
    assert_eq!(give(&mut server, &registered), []);
    for contexts in [&client, &server] {
        assert_eq!(contexts.of_remote(remote(1)), Some(one));
        let found = contexts.numbers_of(one);
        assert_eq!(found, Some((numbers, NumberBits::Sixteen)));
        assert_eq!(contexts.numbers_of(0), None);
        let received = read(contexts, "04 0007 abcd").unwrap();
        assert_eq!(received.remote, Some(remote(1)));
        assert_eq!(received.number, Some((7, NumberBits::Sixteen)));
    }
    give(&mut server, &client.close(one).unwrap());
    for contexts in [&client, &server] {
        assert_eq!(contexts.of_remote(remote(1)), None);
        assert_eq!(contexts.numbers_of(one), None);
        assert_eq!(read(contexts, "04 0007 abcd"), None);
    }
}

#[test]
fn numbers_for_a_context_that_was_closed_meanwhile_change_nothing() {
    let (mut client, mut server) = pair();
    let (one, _) = client.open(remote(1)).unwrap();
    let (id, numbers) = client.number(one, NumberBits::Sixteen).unwrap();
    // The proxy refused the context that the numbers were for.
    assert_eq!(give(&mut server, &numbers), []);
    assert_eq!(server.find(id), None);
    assert_eq!(give(&mut server, &register(6, 0, None)), []);
    let bits = NumberBits::Sixteen;
    assert_eq!(server.find(6), Some(Context::Numbered { payload: 0, bits }));
}

#[test]
fn a_remote_end_that_is_not_allowed_is_answered_with_a_close() {
    let mut server = side(Side::Server);
    let answers = server
        .on_capsule(&assign(2, Some(remote(1))), |_| false)
        .unwrap();
    assert_eq!(answers, [Capsule::CompressionClose { context: 2 }]);
    assert_eq!(server.find(2), None);
}

#[test]
fn of_two_contexts_for_the_same_remote_end_that_of_the_proxy_goes() {
    let (mut client, mut server) = pair();
    let (_, any) = client.open_any().unwrap();
    give(&mut server, &any);
    let (ours, from_client) = client.open(remote(1)).unwrap();
    let (theirs, from_server) = server.open(remote(1)).unwrap();
    let close = Capsule::CompressionClose { context: theirs };
    assert_eq!(
        give(&mut client, &from_server),
        std::slice::from_ref(&close)
    );
    let ack = Capsule::CompressionAck { context: ours };
    assert_eq!(
        give(&mut server, &from_client),
        [close.clone(), ack.clone()]
    );
    give(&mut server, &close);
    give(&mut client, &close);
    give(&mut client, &ack);
    assert_eq!(
        (client.toward(remote(1)), server.toward(remote(1))),
        (Some(ours), Some(ours))
    );
}

#[test]
fn closed_contexts_mean_nothing_and_their_ids_are_not_given_again() {
    let (mut client, mut server) = pair();
    let (first, capsule) = client.open(remote(1)).unwrap();
    give(&mut server, &capsule);
    let close = client.close(first).unwrap();
    assert_eq!(client.close(first), None);
    give(&mut server, &close);
    assert_eq!(
        (read(&client, "02 ab"), read(&server, "02 ab")),
        (None, None)
    );
    // The acknowledgement and the close crossed each other.
    give(&mut client, &Capsule::CompressionAck { context: first });
    assert_eq!(client.toward(remote(1)), None);
    let (second, _) = client.open(remote(1)).unwrap();
    assert_eq!(second, 4);
}

#[test]
fn a_context_is_closed_only_if_the_peer_takes_notice() {
    let numbers = Extensions {
        numbers: true,
        repair: false,
        bind: false,
    };
    // A tunnel of IP packets has no bound socket, whatever the headers offered.
    for (protocol, extensions) in [
        (Protocol::Udp, numbers),
        (Protocol::Ip, numbers),
        (Protocol::Ip, BOTH),
    ] {
        let mut client = Contexts::new(Side::Client, protocol, extensions, true);
        let (id, _) = client.number(0, NumberBits::Eight).unwrap();
        assert_eq!(client.close(id), None, "{protocol} {extensions:?}");
        let received = read(&client, "02 07 abcd").unwrap();
        assert_eq!(received.payload, hex("abcd"), "the peer may still use it");
    }
}

#[test]
fn a_proxy_opens_nothing_that_the_client_did_not_ask_for() {
    let (mut client, mut server) = pair();
    assert_eq!(server.open(remote(1)), None, "nothing is open");
    assert_eq!(server.open_any(), None, "never");
    let (any, capsule) = client.open_any().unwrap();
    assert_eq!(client.open_any(), None, "one at a time");
    give(&mut server, &capsule);
    assert!(server.open(remote(1)).is_some());
    give(&mut server, &Capsule::CompressionClose { context: any });
    assert_eq!(server.open(remote(2)), None, "closed again");
}

#[test]
fn registrations_that_break_the_rules_are_malformed() {
    let refused = Some(Code::MESSAGE_ERROR);
    let bits = Some(NumberBits::Eight);
    for capsule in [
        assign(0, None),
        assign(1, None),
        assign(3, Some(remote(1))),
        register(0, 0, bits),
        register(1, 0, bits),
        Capsule::CompressionClose { context: 0 },
        Capsule::CompressionAck { context: 0 },
        Capsule::CompressionAck { context: 1 },
        Capsule::CompressionAck { context: 2 },
    ] {
        assert_eq!(
            code(&mut side(Side::Server), &capsule),
            refused,
            "{capsule:?}"
        );
    }
    let numbers = Extensions {
        numbers: true,
        repair: false,
        bind: false,
    };
    let mut unbound = Contexts::new(Side::Server, Protocol::Udp, numbers, true);
    let unknown = register(2, 4, bits);
    assert_eq!(code(&mut unbound, &unknown), refused, "never registered");
    let mut client = side(Side::Client);
    assert_eq!(
        code(&mut client, &assign(1, None)),
        refused,
        "only clients do"
    );
    let mut server = side(Side::Server);
    give(&mut server, &assign(2, None));
    give(&mut server, &assign(4, Some(remote(1))));
    give(&mut server, &register(6, 0, bits));
    for capsule in [
        assign(2, Some(remote(2))),
        assign(8, None),
        assign(8, Some(remote(1))),
        register(6, 0, bits),
        register(4, 0, bits),
        register(8, 6, bits),
    ] {
        assert_eq!(code(&mut server, &capsule), refused, "{capsule:?}");
    }
}

#[test]
fn datagrams_that_are_not_what_their_context_says_end_the_stream() {
    let mut server = side(Side::Server);
    give(&mut server, &assign(2, None));
    give(&mut server, &register(4, 0, Some(NumberBits::SixtyFour)));
    for text in [
        "",
        "40",
        "02",
        "02 05 c0000201 01bb",
        "02 04 c0000201 01",
        "04 00000000000000",
    ] {
        let error = server.read(hex(text).into()).unwrap_err();
        assert_eq!(
            (error.code(), error.is_connection()),
            (Code::DATAGRAM_ERROR, false),
            "{text}"
        );
    }
    assert_eq!(
        read(&server, "06 abcd"),
        None,
        "unknown contexts are dropped"
    );
    let longest = vec![0; limits::UDP_PAYLOAD_BYTES + 1];
    assert!(server.read(longest.into()).unwrap().is_some());
    let longer = Bytes::from(vec![0; limits::UDP_PAYLOAD_BYTES + 2]);
    assert!(server.read(longer.clone()).is_err());
    let ip = Contexts::new(Side::Server, Protocol::Ip, BOTH, true);
    assert!(ip.read(longer).is_ok());
}

#[test]
fn without_a_target_context_0_means_nothing() {
    let mut server = Contexts::new(Side::Server, Protocol::Udp, BOTH, false);
    let error = server.read(hex("00 abcd").into()).unwrap_err();
    assert_eq!(error.code(), Code::DATAGRAM_ERROR);
    assert_eq!(
        (server.find(0), server.number(0, NumberBits::Eight)),
        (None, None)
    );
}

#[test]
fn what_was_not_agreed_on_changes_nothing() {
    let mut server = Contexts::new(Side::Server, Protocol::Udp, Extensions::default(), true);
    let bits = Some(NumberBits::Eight);
    for capsule in [
        assign(2, None),
        register(2, 0, bits),
        Capsule::CompressionAck { context: 9 },
    ] {
        assert_eq!(give(&mut server, &capsule), []);
        assert_eq!(server.find(2), None);
    }
    assert_eq!(server.number(0, NumberBits::Eight), None);
    assert_eq!(server.open(remote(1)), None);
}

#[test]
fn a_request_has_a_bounded_number_of_contexts() {
    let mut server = side(Side::Server);
    for n in 1..=limits::CONTEXTS as u64 {
        let remote = SocketAddr::from(([10, 0, 0, 1], n as u16));
        let ack = Capsule::CompressionAck { context: 2 * n };
        assert_eq!(give(&mut server, &assign(2 * n, Some(remote))), [ack]);
    }
    let one_more = 2 * limits::CONTEXTS as u64 + 2;
    let close = Capsule::CompressionClose { context: one_more };
    assert_eq!(
        give(&mut server, &assign(one_more, Some(remote(1)))),
        [close]
    );
    let numbers = register(one_more, 0, Some(NumberBits::Eight));
    assert_eq!(code(&mut server, &numbers), Some(Code::EXCESSIVE_LOAD));
    assert_eq!(server.number(0, NumberBits::Eight), None);
}

proptest! {
    #[test]
    fn whatever_a_peer_registers_and_sends_nothing_breaks(
        capsules in prop::collection::vec((0..4u8, 0..8u64, 0..4u8), 0..20),
        datagrams in prop::collection::vec(prop::collection::vec(0..9u8, 0..12), 0..6),
    ) {
        let mut server = side(Side::Server);
        for (kind, context, more) in capsules {
            let capsule = match kind {
                0 => assign(context, (more > 0).then(|| remote(more))),
                1 => register(context, more.into(), (more > 1).then_some(NumberBits::Eight)),
                2 => Capsule::CompressionAck { context },
                _ => Capsule::CompressionClose { context },
            };
            let _ = server.on_capsule(&capsule, |_| more != 3);
            let _ = server.open(remote(more));
        }
        let is_one = |entry: &&Entry| matches!(entry.context, Context::Remote(_));
        let for_one = server.open.values().filter(is_one).count();
        prop_assert_eq!(server.by_remote.len(), for_one);
        for datagram in datagrams {
            let length = datagram.len();
            if let Ok(Some(received)) = server.read(datagram.into()) {
                prop_assert!(received.payload.len() < length);
            }
        }
    }
}
