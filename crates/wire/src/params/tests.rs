//! Encoding, decoding and rejecting transport parameters.

use super::*;
use crate::testing::{cid, cid_of, hex, number};
use proptest::prelude::*;

fn encoded(params: &TransportParameters, side: Side) -> Vec<u8> {
    let mut out = Vec::new();
    params.encode(&mut out, side);
    out
}

fn from_server(text: &str) -> Result<TransportParameters, ParamsError> {
    TransportParameters::decode(&hex(text), Side::Server)
}

fn refused(text: &str) -> ParamsError {
    from_server(text).expect_err(text)
}

#[test]
fn the_parameters_in_the_client_hello_of_rfc_9001_are_read() {
    let bytes = hex(
        "0408ffffffffffffffff 05048000ffff 07048000ffff 080110 01048000 7530 090110
        0f088394c8f03e515708 06048000ffff",
    );
    let expected = TransportParameters {
        max_idle_timeout_ms: 30_000,
        initial_max_data: varint::MAX,
        initial_max_stream_data_bidi_local: 65_535,
        initial_max_stream_data_bidi_remote: 65_535,
        initial_max_stream_data_uni: 65_535,
        initial_max_streams_bidi: 16,
        initial_max_streams_uni: 16,
        initial_source_cid: ConnectionId::new(&hex("8394c8f03e515708")),
        ..TransportParameters::default()
    };
    assert_eq!(
        TransportParameters::decode(&bytes, Side::Client),
        Ok(expected)
    );
}

#[test]
fn the_empty_list_means_the_defaults() {
    assert_eq!(from_server(""), Ok(TransportParameters::default()));
    assert_eq!(encoded(&TransportParameters::default(), Side::Server), []);
}

#[test]
fn the_multipath_parameter_is_one_integer_up_to_32_bits() {
    let path_limit = |text: &str| from_server(text).map(|params| params.initial_max_path_id);
    assert_eq!(path_limit("3e 01 03"), Ok(Some(PathId(3))));
    assert_eq!(path_limit("3e 01 00"), Ok(Some(PathId(0))));
    assert_eq!(
        path_limit("3e 08 c0000000ffffffff"),
        Ok(Some(PathId(u32::MAX)))
    );
    assert_eq!(path_limit(""), Ok(None));
    assert_eq!(refused("3e 08 c000000100000000").parameter, Some(0x3e));
    let params = TransportParameters {
        initial_max_path_id: Some(PathId(3)),
        ..TransportParameters::default()
    };
    assert_eq!(encoded(&params, Side::Client), hex("3e 01 03"));
}

#[test]
fn the_timestamp_parameter_is_one_two_or_three() {
    let timestamps = |text: &str| from_server(text).map(|params| params.enable_timestamp);
    for (value, direction) in [
        ("01", Timestamps::Receive),
        ("02", Timestamps::Send),
        ("03", Timestamps::Both),
    ] {
        let text = format!("8000 7158 01 {value}");
        assert_eq!(timestamps(&text), Ok(Some(direction)));
        let params = TransportParameters {
            enable_timestamp: Some(direction),
            ..TransportParameters::default()
        };
        assert_eq!(encoded(&params, Side::Client), hex(&text));
    }
    assert_eq!(timestamps(""), Ok(None));
    for wrong in ["01 00", "01 04", "00", "02 0303", "08 c000000000000100"] {
        let error = refused(&format!("80007158 {wrong}"));
        assert_eq!(error.parameter, Some(0x7158));
        assert_eq!(error.code(), TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
    }
}

#[test]
fn integers_are_written_in_their_shortest_form_and_read_in_any() {
    let params = TransportParameters {
        initial_max_data: 37,
        ..TransportParameters::default()
    };
    assert_eq!(encoded(&params, Side::Client), hex("04 01 25"));
    assert_eq!(from_server("04 08 c000000000000025"), Ok(params));
}

#[test]
fn unknown_parameters_are_skipped() {
    assert_eq!(
        from_server("1b 03 aabbcc 04 01 25")
            .unwrap()
            .initial_max_data,
        37
    );
}

#[test]
fn a_parameter_that_comes_twice_is_refused_known_or_not() {
    assert_eq!(refused("04 01 25 05 01 01 04 01 25").parameter, Some(0x04));
    assert_eq!(refused("1b 00 04 01 25 1b 01 00").parameter, Some(0x1b));
    // The same ID in another encoding is still the same parameter.
    assert_eq!(refused("04 01 25 4004 01 25").parameter, Some(0x04));
}

#[test]
fn clients_do_not_send_what_only_servers_send() {
    let preferred = "0d 2a 00000000 0000 00000000000000000000000000000000 0000 01 07 \
        000102030405060708090a0b0c0d0e0f";
    let token = "02 10 000102030405060708090a0b0c0d0e0f";
    for text in ["00 01 07", token, preferred, "10 01 07", "a16e6162 00"] {
        assert!(from_server(text).is_ok(), "{text}");
        let error = TransportParameters::decode(&hex(text), Side::Client).expect_err(text);
        assert_eq!(error.problem, "only servers send it");
    }
    let all = from_server(&format!("00 01 07 {token} {preferred} 10 01 07 04 01 01")).unwrap();
    assert_eq!(encoded(&all, Side::Client), hex("04 01 01"));
}

#[test]
fn values_at_their_bounds_are_accepted_and_values_beyond_refused() {
    let bounds = [
        ("03 02 44b0", "03 02 44af"),
        ("0a 01 14", "0a 01 15"),
        ("0b 02 7fff", "0b 04 80004000"),
        ("0e 01 02", "0e 01 01"),
        ("08 08 d000000000000000", "08 08 d000000000000001"),
        ("09 08 d000000000000000", "09 08 d000000000000001"),
        (
            "0f 14 0101010101010101010101010101010101010101",
            "0f 15 010101010101010101010101010101010101010101",
        ),
        ("0c 00", "0c 01 00"),
        ("6ab2 00", "6ab2 01 00"),
        (
            "c0000000ff04de1b 04 800061a8",
            "c0000000ff04de1b 04 800061a9",
        ),
        (
            "02 10 000102030405060708090a0b0c0d0e0f",
            "02 0f 000102030405060708090a0b0c0d0e",
        ),
        ("04 01 25", "04 02 2500"),
    ];
    for (legal, illegal) in bounds {
        assert!(
            from_server(legal).is_ok(),
            "{legal}: {:?}",
            from_server(legal)
        );
        let error = refused(illegal);
        assert_eq!(error.code(), TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
        assert_ne!(name(error.parameter.unwrap()), "unknown");
    }
}

#[test]
fn the_ack_delay_bounds_hold_in_either_order_of_the_list() {
    assert!(from_server("c0000000ff04de1b 04 800061a9 0b 01 1a").is_ok());
    assert!(from_server("0b 01 1a c0000000ff04de1b 04 800061a9").is_ok());
    assert_eq!(
        refused("c0000000ff04de1b 02 47d0 0b 01 01").parameter,
        Some(0xff04_de1b)
    );
}

#[test]
fn a_preferred_address_needs_a_connection_id_and_nothing_more() {
    let fields = "c0000201 01bb 20010db8000000000000000000000001 01bb";
    let token = "000102030405060708090a0b0c0d0e0f";
    let preferred = from_server(&format!("0d 2a {fields} 01 07 {token}")).unwrap();
    let preferred = preferred.preferred_address.unwrap();
    assert_eq!(preferred.ipv4.unwrap().to_string(), "192.0.2.1:443");
    assert_eq!(preferred.ipv6.unwrap().to_string(), "[2001:db8::1]:443");
    assert_eq!(preferred.cid.as_slice(), [7]);
    let empty = refused(&format!("0d 29 {fields} 00 {token}"));
    assert_eq!(empty.problem, "its connection ID is empty");
    let longer = refused(&format!("0d 2b {fields} 01 07 {token} 00"));
    assert_eq!(longer.problem, "it is longer than its fields");
    let shorter = refused(&format!("0d 29 {fields} 01 07 {}", &token[..30]));
    assert_eq!(shorter.problem, "it ends early");
}

#[test]
fn an_address_of_all_zeros_is_none() {
    let zeros = "00".repeat(16);
    let only_v6 = format!("0d 2a 00000000 0000 {zeros} 01bb 01 07 {zeros}");
    let preferred = from_server(&only_v6).unwrap().preferred_address.unwrap();
    assert_eq!(preferred.ipv4, None);
    assert_eq!(preferred.ipv6.unwrap().to_string(), "[::]:443");
}

#[test]
fn an_error_names_the_parameter_and_the_problem() {
    let message = refused("03 02 44af").to_string();
    assert_eq!(
        message,
        "transport parameter max_udp_payload_size (0x3): it is below 1200"
    );
    assert_eq!(
        refused("44").to_string(),
        "transport parameters: the list ends early"
    );
}

fn preferred_address() -> impl Strategy<Value = PreferredAddress> {
    let v4 = (any::<[u8; 4]>(), 1_u16..).prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port));
    let v6 = (any::<[u8; 16]>(), 1_u16..)
        .prop_map(|(ip, port)| SocketAddrV6::new(ip.into(), port, 0, 0));
    (
        prop::option::of(v4),
        prop::option::of(v6),
        cid_of(1),
        any::<[u8; 16]>(),
    )
        .prop_map(|(ipv4, ipv6, cid, token)| PreferredAddress {
            ipv4,
            ipv6,
            cid,
            reset_token: ResetToken(token),
        })
}

fn parameters() -> impl Strategy<Value = TransportParameters> {
    let cids = (
        prop::option::of(cid()),
        prop::option::of(cid()),
        prop::option::of(cid()),
    );
    let windows = (number(), number(), number(), number(), 0..=MAX_STREAM_COUNT);
    let delays = (
        0..=20_u64,
        25..1_u64 << 14,
        prop::option::of(0..=25_000_u64),
        number(),
    );
    let optional = (
        prop::option::of(any::<u32>()),
        prop::option::of(prop::sample::select(vec![
            Timestamps::Receive,
            Timestamps::Send,
            Timestamps::Both,
        ])),
        prop::option::of(any::<[u8; 16]>()),
        prop::option::of(preferred_address()),
    );
    let rest = (
        any::<bool>(),
        any::<bool>(),
        1200..=varint::MAX,
        2..=varint::MAX,
        number(),
        any::<bool>(),
    );
    (cids, windows, delays, optional, rest).prop_map(|(cids, windows, delays, optional, rest)| {
        TransportParameters {
            original_dcid: cids.0,
            initial_source_cid: cids.1,
            retry_source_cid: cids.2,
            initial_max_data: windows.0,
            initial_max_stream_data_bidi_local: windows.1,
            initial_max_stream_data_bidi_remote: windows.2,
            initial_max_stream_data_uni: windows.3,
            initial_max_streams_bidi: windows.4,
            initial_max_streams_uni: MAX_STREAM_COUNT - windows.4,
            ack_delay_exponent: delays.0,
            max_ack_delay_ms: delays.1,
            min_ack_delay_us: delays.2,
            max_idle_timeout_ms: delays.3,
            initial_max_path_id: optional.0.map(PathId),
            enable_timestamp: optional.1,
            reset_token: optional.2.map(ResetToken),
            preferred_address: optional.3,
            disable_active_migration: rest.0,
            grease_quic_bit: rest.1,
            max_udp_payload_size: rest.2,
            active_connection_id_limit: rest.3,
            max_datagram_frame_size: rest.4,
            handshake_by_any_path: rest.5,
        }
    })
}

proptest! {
    #[test]
    fn a_servers_parameters_come_back_as_written(params in parameters()) {
        let bytes = encoded(&params, Side::Server);
        prop_assert_eq!(TransportParameters::decode(&bytes, Side::Server), Ok(params));
    }

    #[test]
    fn a_clients_parameters_come_back_without_those_of_servers(params in parameters()) {
        let bytes = encoded(&params, Side::Client);
        let expected = TransportParameters {
            original_dcid: None,
            retry_source_cid: None,
            reset_token: None,
            preferred_address: None,
            handshake_by_any_path: false,
            ..params
        };
        prop_assert_eq!(TransportParameters::decode(&bytes, Side::Client), Ok(expected));
    }

    #[test]
    fn a_list_cut_short_within_a_parameter_is_refused(params in parameters()) {
        let bytes = encoded(&params, Side::Server);
        let mut ends = vec![0];
        let mut reader = Reader::new(&bytes);
        while !reader.is_empty() {
            reader.varint().unwrap();
            reader.length_prefixed().unwrap();
            ends.push(bytes.len() - reader.remaining());
        }
        for cut in 0..bytes.len() {
            let result = TransportParameters::decode(&bytes[..cut], Side::Server);
            // Cutting off max_ack_delay keeps min_ack_delay valid: no generated max_ack_delay is
            // below the default.
            prop_assert_eq!(result.is_ok(), ends.contains(&cut));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = TransportParameters::decode(&bytes, Side::Server);
    }
}
