//! Field sections: examples of the RFCs, the way back, and what a hostile peer may send.

use super::*;
use crate::testing::hex;
use proptest::prelude::*;

const MAX: usize = 16 * 1024;

fn read(text: &str) -> Result<Vec<(String, String)>, Code> {
    let fields = decode(&hex(text).into(), MAX).map_err(|error| error.code())?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ok(fields
        .iter()
        .map(|field| (text(&field.name), text(&field.value)))
        .collect())
}

fn one(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned())]
}

#[test]
fn the_example_with_a_static_name_is_read() {
    // RFC 9204, appendix B.1.
    let section = "0000 510b 2f69 6e64 6578 2e68 746d 6c";
    assert_eq!(read(section), Ok(one(":path", "/index.html")));
}

#[test]
fn the_examples_with_a_dynamic_table_are_refused() {
    // RFC 9204, appendices B.2 and B.4, and the last one for each form of reference with
    // Required Insert Count 0.
    for section in [
        "0381 10 11",
        "0500 80 c1 81",
        "0000 80",
        "0000 10",
        "0000 40 00",
        "0000 00 00",
    ] {
        let refused = Err(Code::QPACK_DECOMPRESSION_FAILED);
        assert_eq!(read(section), refused, "{section}");
    }
}

#[test]
fn a_connect_request_is_two_fields_in_few_bytes() {
    let fields = [
        Field::new(":method", "CONNECT"),
        Field::new(":authority", "a.example:443"),
    ];
    let section = encode(&fields);
    assert_eq!(section[..5], [0, 0, 0xc0 | 15, 0x50, 13]);
    assert_eq!(decode(&section.into(), MAX).unwrap(), fields);
}

#[test]
fn huffman_coded_names_and_values_are_read() {
    let name = huffman::encode(b"custom-key");
    let value = huffman::encode(b"custom-value");
    let mut section = vec![0, 0];
    put_string(&mut section, 0x28, 3, &name);
    put_string(&mut section, 0x80, 7, &value);
    let fields = decode(&section.into(), MAX).unwrap();
    assert_eq!(fields, [Field::new("custom-key", "custom-value")]);
}

#[test]
fn credentials_are_marked_as_not_to_be_indexed() {
    let section = encode(&[Field::new("authorization", "Bearer x")]);
    assert_eq!(section[2] & 0xf0, 0x70);
    let section = encode(&[Field::new("proxy-authorization", "Basic x")]);
    assert_eq!(section[2] & 0xf0, 0x30);
    let fields = decode(&section.into(), MAX).unwrap();
    assert_eq!(fields, [Field::new("proxy-authorization", "Basic x")]);
}

#[test]
fn strings_that_are_not_huffman_codes_are_not_copied() {
    let section = Bytes::from(encode(&[Field::new("some-name", "some value")]));
    let fields = decode(&section, MAX).unwrap();
    let within = |part: &Bytes| section.as_ptr_range().contains(&part.as_ptr());
    assert!(within(&fields[0].name) && within(&fields[0].value));
}

#[test]
fn a_section_beyond_the_limit_costs_the_stream_and_not_the_connection() {
    let fields: Vec<Field> = (0..100).map(|_| Field::new("age", "0")).collect();
    let section = Bytes::from(encode(&fields));
    assert_eq!(section.len(), 102);
    let size = 100 * (4 + FIELD_OVERHEAD);
    assert_eq!(decode(&section, size).unwrap().len(), 100);
    let error = decode(&section, size - 1).unwrap_err();
    assert_eq!(error.code(), Code::EXCESSIVE_LOAD);
    assert!(!error.is_connection());
}

#[test]
fn damaged_sections_close_the_connection() {
    for section in [
        "",
        "00",
        "ff",
        "0000 ff",
        "0000 ff80808080808080808001",
        "0000 ff24",
        "0000 51",
        "0000 5105 61",
        "0000 23 6161",
        "0000 2a 61 61",
        "0000 51 82 ffff",
        "0080",
        "00ff",
    ] {
        let refused = Err(Code::QPACK_DECOMPRESSION_FAILED);
        assert_eq!(read(section), refused, "{section}");
    }
    assert_eq!(
        read("00 7f01"),
        Ok(Vec::new()),
        "any Base that is not negative"
    );
}

#[test]
fn the_last_entry_of_the_static_table_is_the_last_that_can_be_named() {
    assert_eq!(read("0000 ff24"), Err(Code::QPACK_DECOMPRESSION_FAILED));
    assert_eq!(read("0000 ff23"), Ok(one("x-frame-options", "sameorigin")));
    assert_eq!(read("0000 c0"), Ok(one(":authority", "")));
}

#[test]
fn the_static_table_is_that_of_the_rfc() {
    // Computed from a table of other people, entry by entry.
    let lines = ENTRIES
        .iter()
        .flat_map(|(name, value)| [*name, "\n", *value, "\n"]);
    let bytes = lines.flat_map(str::bytes);
    let sum = bytes.fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(byte));
    assert_eq!(sum, 0x1dfd_61b1);
}

#[test]
fn integers_longer_than_needed_are_read_up_to_four_bytes_more() {
    let connect = Ok(one(":path", "/"));
    assert_eq!(read("00 7f80808000 c1"), connect);
    let too_long = read("00 7f8080808000 c1");
    assert_eq!(too_long, Err(Code::QPACK_DECOMPRESSION_FAILED));
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

proptest! {
    #[test]
    fn fields_come_back_in_order(
        own in prop::collection::vec((text(), text()), 0..6),
        known in prop::collection::vec(0..ENTRIES.len(), 0..6),
    ) {
        let known = known.into_iter().map(|index| ENTRIES[index]);
        let mut fields: Vec<Field> = known.map(|(name, value)| Field::new(name, value)).collect();
        fields.extend(own.into_iter().map(|(name, value)| Field::new(name, value)));
        let section = Bytes::from(encode(&fields));
        prop_assert_eq!(decode(&section, MAX), Ok(fields));
    }

    #[test]
    fn any_bytes_are_a_section_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(fields) = decode(&bytes.into(), MAX) {
            let again = Bytes::from(encode(&fields));
            prop_assert_eq!(decode(&again, MAX), Ok(fields));
        }
    }
}
