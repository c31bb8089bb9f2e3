//! Control streams in all cuts, and what a hostile peer may do with its streams.

use super::*;
use crate::testing::{cuts, hex};
use proptest::prelude::*;

/// What a peer says on one stream, or which error it is.
fn say(peer: &mut Peer, chunks: &[Bytes]) -> Result<Vec<Event>, Code> {
    let (mut stream, mut events) = (Unidirectional::new(), Vec::new());
    for chunk in chunks {
        stream.push(chunk.clone());
        while let Some(event) = stream.poll(peer).map_err(|error| error.code())? {
            events.push(event);
        }
    }
    Ok(events)
}

/// The same in every way to cut it.
fn says(side: Side, text: &str) -> Result<Vec<Event>, Code> {
    let mut all = cuts(&hex(text)).into_iter();
    let first = say(&mut Peer::new(side), &all.next().unwrap());
    for chunks in all {
        assert_eq!(
            say(&mut Peer::new(side), &chunks),
            first,
            "{text} as {chunks:?}"
        );
    }
    first
}

const NO_SETTINGS: Event = Event::Settings(Settings {
    connect_protocol: false,
    h3_datagram: false,
    max_field_section_size: None,
});

#[test]
fn our_own_control_stream_is_understood() {
    let mut bytes = preface(&Settings::OURS);
    bytes.extend_from_slice(&goaway(8));
    bytes.extend_from_slice(&goaway(4));
    let wanted = [
        Event::Settings(Settings::OURS),
        Event::GoAway(8),
        Event::GoAway(4),
    ];
    for chunks in cuts(&bytes) {
        let mut peer = Peer::new(Side::Server);
        assert!(!peer.takes_datagrams(&Settings::OURS));
        assert_eq!(say(&mut peer, &chunks).unwrap(), wanted);
        assert!(peer.takes_datagrams(&Settings::OURS) && peer.takes_extended_connect());
        assert!(
            !peer.takes_datagrams(&Settings::default()),
            "both have to say so"
        );
        assert_eq!(
            (peer.settings(), peer.goaway()),
            (Some(&Settings::OURS), Some(4))
        );
    }
}

#[test]
fn unknown_frames_after_the_settings_are_skipped() {
    let events = says(
        Side::Client,
        "00 0400 21 03 616263 4040 00 0d 01 05 800f0700 02 0000 07 01 00",
    );
    assert_eq!(events, Ok(vec![NO_SETTINGS, Event::GoAway(0)]));
}

#[test]
fn a_control_stream_begins_with_settings_and_has_them_once() {
    for text in ["00 07 01 00", "00 21 00", "00 00 00", "00 0d 01 00"] {
        assert_eq!(
            says(Side::Client, text),
            Err(Code::MISSING_SETTINGS),
            "{text}"
        );
    }
    assert_eq!(
        says(Side::Client, "00 0400 0400"),
        Err(Code::FRAME_UNEXPECTED)
    );
}

#[test]
fn frames_that_belong_elsewhere_close_the_connection() {
    for kind in ["00", "01", "05", "02", "06", "08", "09"] {
        for side in [Side::Client, Side::Server] {
            let text = format!("00 0400 {kind} 00");
            assert_eq!(says(side, &text), Err(Code::FRAME_UNEXPECTED), "{text}");
        }
    }
    let from_a_server = says(Side::Server, "00 0400 0d 01 00");
    assert_eq!(from_a_server, Err(Code::FRAME_UNEXPECTED), "MAX_PUSH_ID");
}

#[test]
fn frames_of_one_integer_have_exactly_that() {
    for text in [
        "07 00",
        "07 02 0000",
        "07 01 40",
        "07 09 000000000000000000",
        "03 00",
        "0d 00",
    ] {
        let text = format!("00 0400 {text}");
        assert_eq!(says(Side::Client, &text), Err(Code::FRAME_ERROR), "{text}");
    }
    let longer_than_needed = says(Side::Client, "00 0400 07 08 c000000000000004");
    assert_eq!(longer_than_needed, Ok(vec![NO_SETTINGS, Event::GoAway(4)]));
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let refused = Err(Code::ID_ERROR);
    assert_eq!(
        says(Side::Server, "00 0400 07 01 03"),
        refused,
        "no request stream"
    );
    assert_eq!(
        says(Side::Server, "00 0400 07 01 04 07 01 08"),
        refused,
        "rises"
    );
    assert_eq!(
        says(Side::Client, "00 0400 07 01 01 07 01 02"),
        refused,
        "rises"
    );
    assert_eq!(
        says(Side::Client, "00 0400 0d 01 05 0d 01 04"),
        refused,
        "lowered"
    );
    assert_eq!(
        says(Side::Client, "00 0400 03 01 00"),
        refused,
        "nothing was promised"
    );
    assert_eq!(
        says(Side::Server, "00 0400 03 01 00"),
        refused,
        "nothing was allowed"
    );
}

#[test]
fn a_number_may_be_said_again() {
    let twice = says(Side::Server, "00 0400 07 01 04 07 01 04");
    let goaway = Event::GoAway(4);
    assert_eq!(twice, Ok(vec![NO_SETTINGS, goaway, goaway]));
    let twice = says(Side::Client, "00 0400 0d 01 05 0d 01 05");
    assert_eq!(twice, Ok(vec![NO_SETTINGS]));
}

#[test]
fn settings_without_end_are_not_read() {
    assert_eq!(
        says(Side::Client, "00 04 9000 0000"),
        Err(Code::EXCESSIVE_LOAD)
    );
}

#[test]
fn what_exists_once_is_opened_once() {
    for text in ["00", "02", "03"] {
        let mut peer = Peer::new(Side::Client);
        let bytes = [Bytes::from(hex(text))];
        assert_eq!(say(&mut peer, &bytes), Ok(vec![]));
        let twice = Err(Code::STREAM_CREATION_ERROR);
        assert_eq!(say(&mut peer, &bytes), twice, "{text}");
    }
}

#[test]
fn nobody_pushes() {
    assert_eq!(
        says(Side::Client, "01 00"),
        Err(Code::STREAM_CREATION_ERROR)
    );
    assert_eq!(says(Side::Server, "01 00"), Err(Code::ID_ERROR));
}

#[test]
fn streams_of_unknown_types_are_no_error_whatever_they_say() {
    for text in ["21 ff", "4040 00 04 00", "c0000000000000ff 00"] {
        assert_eq!(says(Side::Client, text), Ok(vec![Event::Unknown]), "{text}");
    }
}

#[test]
fn only_streams_that_are_critical_may_not_end() {
    let ended = |text: &str| {
        let (mut stream, mut peer) = (Unidirectional::new(), Peer::new(Side::Client));
        stream.push(hex(text).into());
        while let Ok(Some(_)) = stream.poll(&mut peer) {}
        stream.finish().map_err(|error| error.code())
    };
    for text in ["", "40", "21", "21 00", "8000"] {
        assert_eq!(ended(text), Ok(()), "{text}");
    }
    for text in ["00", "00 0400", "00 04", "02", "02 20", "03"] {
        assert_eq!(ended(text), Err(Code::CLOSED_CRITICAL_STREAM), "{text}");
    }
}

#[test]
fn instructions_for_a_table_without_room_are_refused() {
    assert_eq!(says(Side::Client, "02 20 20"), Ok(vec![]));
    for text in ["21", "3fbd01", "c00f", "4a63", "02", "20 00"] {
        let text = format!("02 {text}");
        assert_eq!(
            says(Side::Client, &text),
            Err(Code::QPACK_ENCODER_STREAM_ERROR),
            "{text}"
        );
    }
}

#[test]
fn a_decoder_may_cancel_streams_and_acknowledge_nothing() {
    assert_eq!(says(Side::Client, "03 48 7f80808001 7f00 40"), Ok(vec![]));
    for text in ["84", "01", "00", "7fffffffffffffffffffff", "48 84"] {
        let text = format!("03 {text}");
        assert_eq!(
            says(Side::Client, &text),
            Err(Code::QPACK_DECODER_STREAM_ERROR),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(
        start in prop::sample::select(vec!["", "00", "00 0400", "02", "03"]),
        bytes in prop::collection::vec(any::<u8>(), 1..24),
    ) {
        let mut all = hex(start);
        all.extend_from_slice(&bytes);
        let mut ways = cuts(&all).into_iter();
        let first = say(&mut Peer::new(Side::Server), &ways.next().unwrap());
        for chunks in ways {
            prop_assert_eq!(&say(&mut Peer::new(Side::Server), &chunks), &first);
        }
    }
}
