//! Variable-length integers (RFC 9000, section 16).

/// The largest value a variable-length integer can hold: 2^62 − 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes of the shortest encoding of `value`: 1, 2, 4 or 8.
///
/// # Panics
/// If `value` exceeds [`MAX`]; callers keep their counters below it.
#[inline]
pub const fn size(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        0x4000_0000..=MAX => 8,
        _ => panic!("a variable-length integer is at most 2^62 - 1"),
    }
}

/// Appends the shortest encoding of `value`, the only one that some peers accept in parameters.
///
/// # Panics
/// If `value` exceeds [`MAX`].
#[inline]
pub fn put(out: &mut Vec<u8>, value: u64) {
    match size(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Reader;
    use crate::testing::{hex, number};
    use proptest::prelude::*;

    #[test]
    fn integers_follow_the_examples_of_the_rfc() {
        let examples = [
            ("c2197c5eff14e88c", 151_288_809_941_952_652),
            ("9d7f3e7d", 494_878_333),
            ("7bbd", 15_293),
            ("25", 37),
        ];
        for (text, value) in examples {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, hex(text));
            assert_eq!(Reader::new(&out).varint(), Ok(value));
        }
    }

    #[test]
    fn longer_forms_than_needed_are_read_as_well() {
        for text in ["25", "4025", "80000025", "c000000000000025"] {
            assert_eq!(Reader::new(&hex(text)).varint(), Ok(37));
        }
    }

    #[test]
    #[should_panic(expected = "at most 2^62 - 1")]
    fn a_number_that_does_not_fit_is_a_mistake_of_the_caller() {
        put(&mut Vec::new(), MAX + 1);
    }

    proptest! {
        #[test]
        fn every_number_comes_back_from_its_shortest_form(value in number()) {
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.is_empty());
            for cut in 0..out.len() {
                prop_assert!(Reader::new(&out[..cut]).varint().is_err());
            }
        }
    }
}
