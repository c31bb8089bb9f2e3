//! The Huffman code of strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: sorted by length and, among equals, by symbol, codes count upwards. The
//! lengths alone define it.

/// Bits of each symbol's code; the last one is the end of a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];
/// Stands for the end of a string, which no string contains.
const END: u16 = 256;
const LONGEST: usize = 30;

/// The codes of each length: which is the first, how many there are, and where their symbols are.
struct Code {
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    start: [u32; LONGEST + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        start: [0; LONGEST + 1],
        symbols: [0; 257],
    };
    let (mut next, mut placed, mut length) = (0, 0, 1);
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = next;
        code.start[length] = placed;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code.symbols[placed as usize] = symbol as u16;
                code.count[length] += 1;
                placed += 1;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// A string that is no Huffman code: the end of a string within it, or wrong bits after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invalid;

/// Decodes a string. It grows to at most 8/5 of its size, as no code is shorter than five bits.
pub(super) fn decode(encoded: &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut out = Vec::with_capacity(encoded.len() * 8 / 5);
    let (mut bits, mut length) = (0u32, 0usize);
    for byte in encoded {
        for shift in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> shift & 1);
            // Every row of 30 bits begins with a code, so that `length` never exceeds that.
            length += 1;
            let Some(offset) = bits.checked_sub(CODE.first[length]) else {
                continue;
            };
            if offset < CODE.count[length] {
                match CODE.symbols[(CODE.start[length] + offset) as usize] {
                    END => return Err(Invalid),
                    symbol => out.push(symbol as u8),
                }
                (bits, length) = (0, 0);
            }
        }
    }
    // What is left over is the beginning of the end: fewer than eight ones (section 5.2).
    if length < 8 && bits == (1 << length) - 1 {
        Ok(out)
    } else {
        Err(Invalid)
    }
}

#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let (mut out, mut bits, mut length) = (Vec::new(), 0u64, 0u32);
    for byte in text {
        let size = usize::from(LENGTHS[usize::from(*byte)]);
        let symbols = &CODE.symbols[CODE.start[size] as usize..];
        let offset = symbols
            .iter()
            .position(|symbol| *symbol == u16::from(*byte));
        let code = CODE.first[size] + offset.expect("each symbol has a place") as u32;
        bits = bits << size | u64::from(code);
        length += size as u32;
        while length >= 8 {
            length -= 8;
            out.push((bits >> length) as u8);
            bits &= (1 << length) - 1;
        }
    }
    if length > 0 {
        out.push((bits << (8 - length)) as u8 | 0xff >> length);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        // RFC 7541, appendices C.4 and C.6.
        let examples = [
            ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", "www.example.com"),
            ("a8eb 1064 9cbf", "no-cache"),
            ("25a8 49e9 5ba9 7d7f", "custom-key"),
            ("25a8 49e9 5bb8 e8b4 bf", "custom-value"),
            ("6402", "302"),
            ("640e ff", "307"),
            ("aec3 771a 4b", "private"),
            (
                "d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (
                "9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3",
                "https://www.example.com",
            ),
            ("9bd9 ab", "gzip"),
        ];
        for (encoded, text) in examples {
            let decoded = decode(&hex(encoded));
            assert_eq!(decoded.as_deref(), Ok(text.as_bytes()), "{text}");
            assert_eq!(encode(text.as_bytes()), hex(encoded), "{text}");
        }
    }

    #[test]
    fn wrong_bits_after_a_string_are_refused() {
        assert_eq!(decode(&hex("1f")), Ok(b"a".to_vec()), "three ones");
        assert_eq!(decode(&hex("1e")), Err(Invalid), "not all ones");
        assert_eq!(decode(&hex("1fff")), Err(Invalid), "eleven ones");
        assert_eq!(decode(&hex("ff")), Err(Invalid), "eight ones");
        assert_eq!(decode(&hex("ffff ffff")), Err(Invalid), "the end itself");
        assert_eq!(decode(&[]), Ok(Vec::new()));
    }

    #[test]
    fn the_longest_codes_are_those_of_the_table() {
        // 10, 13 and 22 have 30 bits: 3ffffffc, 3ffffffd, 3ffffffe; then two ones are left.
        assert_eq!(decode(&hex("ffff fff3")), Ok(vec![10]));
        assert_eq!(decode(&hex("ffff fff7")), Ok(vec![13]));
        assert_eq!(decode(&hex("ffff fffb")), Ok(vec![22]));
    }

    proptest! {
        #[test]
        fn every_string_comes_back(text in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decode(&encode(&text)), Ok(text));
        }

        #[test]
        fn what_is_decoded_has_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decode(&bytes) {
                prop_assert_eq!(encode(&text), bytes);
            }
        }
    }
}
