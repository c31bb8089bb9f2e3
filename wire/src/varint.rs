//! Variable-length integers (RFC 9000, section 16).

/// The largest value a variable-length integer can hold: 2^62 − 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes the shortest encoding of `value` takes: 1, 2, 4 or 8.
///
/// # Panics
/// If `value` exceeds [`MAX`]; callers bound their counters by it.
pub const fn size(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        0x4000_0000..=MAX => 8,
        _ => panic!("a variable-length integer is at most 2^62 - 1"),
    }
}

/// Appends the shortest encoding of `value`, the only form some peers accept in parameters.
///
/// # Panics
/// If `value` exceeds [`MAX`].
pub fn put(out: &mut Vec<u8>, value: u64) {
    match size(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}
