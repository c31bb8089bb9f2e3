//! Helpers for the tests of several modules.

use crate::cid::{ConnectionId, MAX_CID_LEN};
use crate::varint;
use proptest::prelude::*;

/// The bytes given in hexadecimal by `text`, ignoring blanks.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Any value of a variable-length integer, with each encoded length equally likely.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..0x40_u64,
        0x40..0x4000_u64,
        0x4000..0x4000_0000_u64,
        0x4000_0000..=varint::MAX
    ]
}

pub(crate) fn cid() -> impl Strategy<Value = ConnectionId> {
    cid_of(0)
}

/// A connection ID of at least `min` bytes.
pub(crate) fn cid_of(min: usize) -> impl Strategy<Value = ConnectionId> {
    prop::collection::vec(any::<u8>(), min..=MAX_CID_LEN)
        .prop_map(|bytes| ConnectionId::new(&bytes).unwrap())
}
