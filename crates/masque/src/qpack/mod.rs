//! Field sections (RFC 9204) without a dynamic table.
//!
//! Both sides announce a table without room, or say nothing, which means the same. Sections then
//! depend on nothing but themselves: literals, and references to the static table. A reference to
//! anything else breaks the connection. We write no Huffman codes but read them.

mod huffman;
mod static_table;

use crate::error::{Code, Error, connection, stream};
use crate::field::Field;
use bytes::{Buf as _, Bytes};
use static_table::{ENTRIES, Found};

/// What each field counts beside its name and value (RFC 9114, section 4.2.2).
pub const FIELD_OVERHEAD: usize = 32;

/// Encodes a field section.
pub fn encode(fields: &[Field]) -> Vec<u8> {
    // Required Insert Count and Base are 0: nothing refers to the dynamic table.
    let mut out = vec![0, 0];
    for field in fields {
        match static_table::find(&field.name, &field.value) {
            Found::Whole(index) => put_integer(&mut out, 0xc0, 6, index),
            Found::Name(index) => {
                let never_indexed = if field.is_secret() { 0x20 } else { 0 };
                put_integer(&mut out, 0x50 | never_indexed, 4, index);
                put_string(&mut out, 0, 7, &field.value);
            }
            Found::Nothing => {
                let never_indexed = if field.is_secret() { 0x10 } else { 0 };
                put_string(&mut out, 0x20 | never_indexed, 3, &field.name);
                put_string(&mut out, 0, 7, &field.value);
            }
        }
    }
    out
}

/// Decodes a field section of at most `max` bytes, by the count of RFC 9114, section 4.2.2. Names
/// and values that are not Huffman codes are parts of `section`, not copies.
///
/// # Errors
/// Of the connection if the section cannot be decoded, of the stream if it is too large.
pub fn decode(section: &Bytes, max: usize) -> Result<Vec<Field>, Error> {
    let mut section = Cursor(section.clone());
    if section.integer(8)? != 0 {
        return Err(failed("a field section waits for the dynamic table"));
    }
    // The other bits of Base mean nothing where nothing is relative to it.
    if section.peek()? & 0x80 != 0 {
        return Err(failed("a field section has a negative Base"));
    }
    section.integer(7)?;
    let mut fields = Vec::new();
    let mut room = max;
    while !section.0.is_empty() {
        let field = section.field()?;
        let size = field.name.len() + field.value.len() + FIELD_OVERHEAD;
        room = room.checked_sub(size).ok_or(stream(
            Code::EXCESSIVE_LOAD,
            "a field section is larger than announced",
        ))?;
        fields.push(field);
    }
    Ok(fields)
}

fn failed(reason: &'static str) -> Error {
    connection(Code::QPACK_DECOMPRESSION_FAILED, reason)
}

/// Appends an integer whose first byte has `bits` bits for it (RFC 7541, section 5.1).
fn put_integer(out: &mut Vec<u8>, first: u8, bits: u8, value: usize) {
    let most = (1usize << bits) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn put_string(out: &mut Vec<u8>, first: u8, bits: u8, text: &[u8]) {
    put_integer(out, first, bits, text.len());
    out.extend_from_slice(text);
}

/// The part of a section that was not read yet.
struct Cursor(Bytes);

impl Cursor {
    fn peek(&self) -> Result<u8, Error> {
        let first = self.0.first().copied();
        first.ok_or(failed("a field section ends within a field"))
    }

    /// The integer whose first byte has `bits` bits for it.
    fn integer(&mut self, bits: u8) -> Result<usize, Error> {
        let most = (1usize << bits) - 1;
        let mut value = usize::from(self.peek()?) & most;
        self.0.advance(1);
        if value < most {
            return Ok(value);
        }
        // Four bytes hold more than any section that is read has bytes.
        for shift in [0, 7, 14, 21] {
            let byte = self.peek()?;
            self.0.advance(1);
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(failed("an integer in a field section is too large"))
    }

    /// A string whose first byte has `bits` bits for its length and one before for its encoding.
    fn string(&mut self, bits: u8) -> Result<Bytes, Error> {
        let is_huffman = self.peek()? & 1 << bits != 0;
        let length = self.integer(bits)?;
        if length > self.0.len() {
            return Err(failed("a field section ends within a string"));
        }
        let text = self.0.split_to(length);
        if !is_huffman {
            return Ok(text);
        }
        let text = huffman::decode(&text);
        let text = text.map_err(|_| failed("a string is not Huffman-coded as it says"))?;
        Ok(text.into())
    }

    fn entry(&mut self, bits: u8) -> Result<(Bytes, Bytes), Error> {
        let index = self.integer(bits)?;
        let (name, value) = ENTRIES
            .get(index)
            .ok_or(failed("there is no such entry in the static table"))?;
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        Ok((text(name), text(value)))
    }

    /// One field line (RFC 9204, section 4.5).
    fn field(&mut self) -> Result<Field, Error> {
        let first = self.peek()?;
        let (name, value) = if first & 0xc0 == 0xc0 {
            self.entry(6)?
        } else if first & 0xd0 == 0x50 {
            (self.entry(4)?.0, self.string(7)?)
        } else if first & 0xe0 == 0x20 {
            (self.string(3)?, self.string(7)?)
        } else {
            return Err(failed(
                "a field refers to the dynamic table, which is empty",
            ));
        };
        Ok(Field { name, value })
    }
}

#[cfg(test)]
mod tests;
