//! Packet numbers: encoding and expanding truncated ones (RFC 9000, appendix A).

use crate::varint;

/// The largest encoding of a packet number, in bytes.
pub const MAX_LEN: usize = 4;

/// How many bytes to encode `pn` with, 1 to 4, if the peer has acknowledged up to `largest_acked`.
///
/// The peer can identify the number as long as less than half of the range of this many bytes lies
/// between the two (RFC 9000, section 17.1). If a sender is 2^31 packets ahead of its peer's
/// acknowledgements, four bytes are no longer enough.
#[inline]
pub fn encoded_len(pn: u64, largest_acked: Option<u64>) -> usize {
    let unacked = match largest_acked {
        Some(largest) => pn.saturating_sub(largest),
        None => pn.saturating_add(1),
    };
    match unacked {
        0..0x80 => 1,
        0x80..0x8000 => 2,
        0x8000..0x80_0000 => 3,
        _ => MAX_LEN,
    }
}

/// Appends the `len` low bytes of `pn`.
///
/// # Panics
/// If `len` is not 1 to 4.
#[inline]
pub fn put(out: &mut Vec<u8>, pn: u64, len: usize) {
    assert!(
        (1..=MAX_LEN).contains(&len),
        "a packet number takes 1 to 4 bytes"
    );
    out.extend_from_slice(&pn.to_be_bytes()[8 - len..]);
}

/// The packet number closest to `expected` whose `len` low bytes are `truncated`.
///
/// `expected` is one more than the largest number received in this space, or 0 if there is none.
#[inline]
pub fn expand(truncated: u64, len: usize, expected: u64) -> u64 {
    let window = 1_u64 << (8 * len.min(MAX_LEN));
    let half = window / 2;
    let candidate = expected & !(window - 1) | truncated & (window - 1);
    if candidate + half <= expected && candidate + window <= varint::MAX {
        candidate + window
    } else if candidate > expected + half && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_follow_the_examples_of_the_rfc() {
        assert_eq!(encoded_len(0xac_5c02, Some(0xab_e8b3)), 2);
        assert_eq!(encoded_len(0xac_e8fe, Some(0xab_e8b3)), 3);
    }

    #[test]
    fn the_first_packets_take_one_byte() {
        assert_eq!(encoded_len(0, None), 1);
        assert_eq!(encoded_len(126, None), 1);
        assert_eq!(encoded_len(127, None), 2);
        assert_eq!(encoded_len(u64::MAX, None), 4);
    }

    #[test]
    fn each_length_is_used_up_to_half_of_what_it_holds() {
        for (len, first_too_far) in [(1, 0x80), (2, 0x8000), (3, 0x80_0000)] {
            assert_eq!(encoded_len(first_too_far + 9, Some(10)), len);
            assert_eq!(encoded_len(first_too_far + 10, Some(10)), len + 1);
        }
    }

    #[test]
    fn a_number_half_a_window_below_the_expected_one_is_taken_as_above() {
        assert_eq!(expand(0x00, 1, 0x7f), 0x00);
        assert_eq!(expand(0x00, 1, 0x80), 0x100);
        assert_eq!(expand(0x80, 1, 0x100), 0x180);
        assert_eq!(expand(0x81, 1, 0x100), 0x81);
    }

    #[test]
    fn expansion_follows_the_example_of_the_rfc() {
        assert_eq!(expand(0x9b32, 2, 0xa82f_30ea + 1), 0xa82f_9b32);
    }

    #[test]
    fn expansion_stays_within_legal_numbers() {
        assert_eq!(expand(0xff, 1, 0), 0xff);
        assert_eq!(expand(0, 1, varint::MAX), varint::MAX & !0xff);
        assert_eq!(expand(0xff, 1, varint::MAX), varint::MAX);
    }

    #[test]
    fn only_the_low_bytes_are_written() {
        let mut out = vec![9];
        put(&mut out, 0x0102_0304_0506, 3);
        assert_eq!(out, [9, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn a_receiver_that_saw_the_acknowledged_packet_recovers_the_number(
            acked in 0..varint::MAX - (1 << 32),
            ahead in (1_u32..=31).prop_flat_map(|bits| 1..1_u64 << bits),
            behind in 0_u64..1 << 31,
        ) {
            let pn = acked + ahead;
            let len = encoded_len(pn, Some(acked));
            // The receiver has received the acknowledged packet and possibly later ones around
            // `pn`.
            let expected = acked + 1 + behind % ahead;
            prop_assert_eq!(expand(pn & ((1 << (8 * len)) - 1), len, expected), pn);
        }

        #[test]
        fn expansion_keeps_the_low_bytes_and_never_panics(
            truncated in any::<u32>(), len in 1_usize..=4, expected in 0..=varint::MAX,
        ) {
            let mask = (1_u64 << (8 * len)) - 1;
            let pn = expand(u64::from(truncated), len, expected);
            prop_assert_eq!(pn & mask, u64::from(truncated) & mask);
            prop_assert!(pn <= varint::MAX);
        }
    }
}
