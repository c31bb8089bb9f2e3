//! Request streams in all cuts, and every sequence of frames that a peer may not send.

use super::*;
use crate::message::{Request, RequestLine, Response};
use crate::testing::{self, hex};
use proptest::prelude::*;

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
            Item::Data(bytes) => Some(bytes),
            _ => None,
        }
    }
}

fn read(side: Side, chunks: &[Bytes], is_finished: bool) -> (Vec<Item>, Option<Error>) {
    testing::read(Reader::new(side), chunks, is_finished)
}

fn reads(side: Side, bytes: &[u8], is_finished: bool) -> (Vec<Item>, Option<Error>) {
    testing::reads(|| Reader::new(side), bytes, is_finished)
}

fn code(side: Side, bytes: &[u8], is_finished: bool) -> Option<Code> {
    reads(side, bytes, is_finished).1.map(|error| error.code())
}

fn connect() -> Vec<Field> {
    let authority = "a.example:443".to_owned();
    Request::new(RequestLine::Connect { authority }).to_fields()
}

fn get() -> Vec<Field> {
    let line = RequestLine::Other {
        method: "GET".into(),
        scheme: "https".into(),
        authority: Some("a.example".into()),
        path: "/".into(),
    };
    Request::new(line).to_fields()
}

/// A header section and frames given in hexadecimal.
fn with(fields: &[Field], more: &str) -> Vec<u8> {
    [headers(fields), hex(more)].concat()
}

fn data(text: &'static str) -> Item {
    Item::Data(Bytes::from_static(text.as_bytes()))
}

#[test]
fn a_connect_is_a_head_and_the_bytes_of_the_tunnel() {
    let bytes = with(
        &connect(),
        "21 02 ffff 00 03 616263 00 00 4040 00 00 4003 646566",
    );
    let items = vec![Item::Head(connect()), data("abcdef"), Item::End];
    assert_eq!(reads(Side::Server, &bytes, true), (items, None));
}

#[test]
fn payload_is_handed_on_without_copying() {
    let bytes = Bytes::from(with(&connect(), "00 05 6162636465"));
    let mut reader = Reader::new(Side::Server);
    reader.push(bytes.clone());
    assert!(matches!(reader.poll(), Ok(Some(Item::Head(_)))));
    let Ok(Some(Item::Data(payload))) = reader.poll() else {
        panic!("there is payload");
    };
    assert_eq!(payload.as_ptr(), bytes[bytes.len() - 5..].as_ptr());
    assert_eq!(reader.poll(), Ok(None));
}

#[test]
fn a_head_does_not_hold_the_datagram_it_came_in() {
    let bytes = Bytes::from(with(&connect(), "00 01 61"));
    let mut reader = Reader::new(Side::Server);
    reader.push(bytes.clone());
    let Ok(Some(Item::Head(fields))) = reader.poll() else {
        panic!("there is a head");
    };
    let is_within = |part: &Bytes| bytes.as_ptr_range().contains(&part.as_ptr());
    let mut parts = fields.iter().flat_map(|field| [&field.name, &field.value]);
    assert!(!parts.any(is_within));
}

#[test]
fn interim_responses_precede_the_final_one() {
    let status = |status| Response::new(status).to_fields();
    let bytes = [
        headers(&status(100)),
        headers(&status(103)),
        with(&status(200), "0001 61"),
    ];
    let heads = [100, 103, 200].map(|code| Item::Head(status(code)));
    let mut items = heads.to_vec();
    items.extend([data("a"), Item::End]);
    assert_eq!(reads(Side::Client, &bytes.concat(), true), (items, None));
}

#[test]
fn a_refusal_may_have_content_and_trailers() {
    let refusal = Response::new(502).to_fields();
    let trailers = headers(&[Field::new("proxy-status", "x")]);
    let bytes = [with(&refusal, "0002 6162"), trailers, hex("2100")].concat();
    let items = vec![Item::Head(refusal), data("ab"), Item::End];
    assert_eq!(reads(Side::Client, &bytes, true), (items, None));
}

#[test]
fn only_data_and_unknown_frames_follow_a_connect() {
    let success = Response::new(200).to_fields();
    for frame in [
        "01 02 0000",
        "03 00",
        "04 00",
        "05 00",
        "07 00",
        "0d 00",
        "02 00",
        "06 00",
    ] {
        let unexpected = Some(Code::FRAME_UNEXPECTED);
        let request = with(&connect(), frame);
        assert_eq!(code(Side::Server, &request, false), unexpected, "{frame}");
        let response = with(&success, frame);
        assert_eq!(code(Side::Client, &response, false), unexpected, "{frame}");
    }
}

#[test]
fn sequences_that_are_no_message_close_the_connection() {
    let trailers = headers(&[Field::new("x", "y")]);
    let unexpected = Some(Code::FRAME_UNEXPECTED);
    assert_eq!(code(Side::Server, &hex("0000"), false), unexpected);
    let twice = [headers(&get()), trailers.clone(), trailers.clone()].concat();
    assert_eq!(code(Side::Server, &twice, false), unexpected);
    let data_last = [headers(&get()), trailers, hex("0000")].concat();
    assert_eq!(code(Side::Server, &data_last, false), unexpected);
    for frame in [
        "03 01 00", "04 00", "05 00", "07 01 00", "0d 01 00", "08 00", "09 00",
    ] {
        let bytes = with(&get(), frame);
        assert_eq!(code(Side::Server, &bytes, false), unexpected, "{frame}");
    }
}

#[test]
fn a_promise_of_a_push_is_refused_as_none_was_allowed() {
    assert_eq!(
        code(Side::Client, &hex("05 03 000000"), false),
        Some(Code::ID_ERROR)
    );
}

#[test]
fn trailers_with_pseudo_headers_are_malformed() {
    let bytes = [headers(&get()), headers(&get())].concat();
    let (items, error) = reads(Side::Server, &bytes, false);
    assert_eq!(items, [Item::Head(get())]);
    assert_eq!(
        error.map(|error| (error.code(), error.is_connection())),
        Some((Code::MESSAGE_ERROR, false))
    );
}

#[test]
fn a_stream_that_ends_within_a_frame_closes_the_connection() {
    let complete = with(&connect(), "00 02 6162 4040 01 00");
    let first = headers(&connect()).len();
    let between = [first, first + 4];
    for cut in 1..complete.len() {
        let wanted = (!between.contains(&cut)).then_some(Code::FRAME_ERROR);
        let (_, error) = read(Side::Server, &[complete[..cut].to_vec().into()], true);
        assert_eq!(error.map(|error| error.code()), wanted, "{cut}");
    }
}

#[test]
fn a_stream_that_ends_too_early_ends_alone() {
    for (side, wanted) in [
        (Side::Server, Code::REQUEST_INCOMPLETE),
        (Side::Client, Code::MESSAGE_ERROR),
    ] {
        let (items, error) = read(side, &[], true);
        assert!(items.is_empty());
        let error = error.unwrap();
        assert_eq!((error.code(), error.is_connection()), (wanted, false));
    }
    let interim = headers(&Response::new(103).to_fields());
    assert_eq!(
        code(Side::Client, &interim, true),
        Some(Code::MESSAGE_ERROR)
    );
}

#[test]
fn a_header_section_that_is_too_large_is_not_read() {
    // A length of 16385: refused before any byte of it came.
    let error = reads(Side::Server, &hex("01 80004001"), false).1.unwrap();
    assert_eq!(
        (error.code(), error.is_connection()),
        (Code::EXCESSIVE_LOAD, false)
    );
    let trailers = with(&get(), "01 80004001");
    assert_eq!(
        code(Side::Server, &trailers, false),
        Some(Code::EXCESSIVE_LOAD)
    );
    // 500 fields of a byte each, which count 36 each.
    let fields: Vec<Field> = (0..500).map(|_| Field::new("age", "0")).collect();
    let bytes = headers(&fields);
    let (items, error) = read(Side::Server, &[bytes.into()], false);
    assert!(items.is_empty());
    assert_eq!(error.map(|error| error.code()), Some(Code::EXCESSIVE_LOAD));
}

#[test]
fn a_section_that_cannot_be_decoded_closes_the_connection() {
    let error = reads(Side::Server, &hex("01 03 000080"), false).1.unwrap();
    assert_eq!(error.code(), Code::QPACK_DECOMPRESSION_FAILED);
    assert!(error.is_connection());
}

#[test]
fn an_unknown_frame_of_any_length_takes_no_room() {
    let mut reader = Reader::new(Side::Server);
    reader.push(hex("21 ffffffffffffffff").into());
    for _ in 0..1000 {
        reader.push(Bytes::from_static(&[0; 1000]));
        assert_eq!(reader.poll(), Ok(None));
        assert!(reader.input.is_empty());
    }
}

#[test]
fn after_an_error_or_the_end_nothing_is_read() {
    let mut reader = Reader::new(Side::Server);
    reader.push(hex("0000").into());
    assert!(reader.poll().is_err());
    reader.push(headers(&connect()).into());
    assert_eq!(reader.poll(), Ok(None));
    assert!(reader.input.is_empty());
    let mut reader = Reader::new(Side::Server);
    reader.push(headers(&connect()).into());
    reader.finish();
    assert!(matches!(reader.poll(), Ok(Some(Item::Head(_)))));
    assert_eq!(reader.poll(), Ok(Some(Item::End)));
    assert_eq!(reader.poll(), Ok(None));
}

proptest! {
    #[test]
    fn payload_comes_back_whatever_the_frames(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
        chunk in 1..50usize,
    ) {
        let mut bytes = headers(&connect());
        for part in &parts {
            let before = bytes.len();
            put_data_header(&mut bytes, part.len());
            prop_assert_eq!(bytes.len() - before, data_header_size(part.len()));
            bytes.extend_from_slice(part);
        }
        let chunks: Vec<Bytes> = bytes.chunks(chunk).map(Bytes::copy_from_slice).collect();
        let (items, error) = read(Side::Server, &chunks, true);
        prop_assert_eq!(error, None);
        let sent: Vec<u8> = parts.concat();
        let received: Vec<u8> = items.iter().filter_map(|item| match item {
            Item::Data(data) => Some(data.to_vec()),
            _ => None,
        }).flatten().collect();
        prop_assert_eq!(received, sent);
        prop_assert_eq!(items.last(), Some(&Item::End));
    }

    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(
        bytes in prop::collection::vec(any::<u8>(), 1..24),
        starts_well: bool,
        is_client: bool,
        is_finished: bool,
    ) {
        let side = if is_client { Side::Client } else { Side::Server };
        let start = if starts_well { headers(&connect()) } else { Vec::new() };
        reads(side, &[start, bytes].concat(), is_finished);
    }
}
