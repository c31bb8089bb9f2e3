//! `STREAM` (RFC 9000, section 19.8) and `DATAGRAM` (RFC 9221, section 4) frames.

use super::{FrameErrorKind, FrameType};
use crate::cursor::Reader;
use crate::id::StreamId;
use crate::varint;

const FIN_BIT: u64 = 0x01;
const LENGTH_BIT: u64 = 0x02;
const OFFSET_BIT: u64 = 0x04;

/// `STREAM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream<'a> {
    /// The stream's ID.
    pub id: StreamId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Whether this data ends the stream.
    pub fin: bool,
    /// The bytes.
    pub data: &'a [u8],
}

impl<'a> Stream<'a> {
    /// Decodes the fields after the type.
    pub(super) fn decode(reader: &mut Reader<'a>, kind: u64) -> Result<Self, FrameErrorKind> {
        let id = StreamId(reader.varint()?);
        let offset = if kind & OFFSET_BIT == 0 {
            0
        } else {
            reader.varint()?
        };
        let data = if kind & LENGTH_BIT == 0 {
            reader.rest()
        } else {
            reader.length_prefixed()?
        };
        check_end(offset, data)?;
        Ok(Self {
            id,
            offset,
            fin: kind & FIN_BIT != 0,
            data,
        })
    }
}

/// Checks that data does not go beyond the largest offset (RFC 9000, sections 19.6 and 19.8).
pub(super) fn check_end(offset: u64, data: &[u8]) -> Result<(), FrameErrorKind> {
    if offset + data.len() as u64 > varint::MAX {
        return Err(FrameErrorKind::Invalid("data beyond offset 2^62 - 1"));
    }
    Ok(())
}

/// The type of a `STREAM` frame with these fields.
pub(super) const fn stream_type(offset: u64, with_length: bool, fin: bool) -> FrameType {
    let offset_bit = if offset > 0 { OFFSET_BIT } else { 0 };
    let length_bit = if with_length { LENGTH_BIT } else { 0 };
    FrameType(FrameType::STREAM.0 | offset_bit | length_bit | fin as u64)
}

/// Bytes of a `STREAM` frame before its data.
#[inline]
pub fn stream_header_len(id: StreamId, offset: u64, data_len: usize, with_length: bool) -> usize {
    let offset_len = if offset == 0 { 0 } else { varint::size(offset) };
    let length_len = if with_length {
        varint::size(data_len as u64)
    } else {
        0
    };
    1 + varint::size(id.0) + offset_len + length_len
}

/// Appends the part of a `STREAM` frame before the data, which the caller appends.
///
/// Without `data_len` the frame extends to the end of the packet.
#[inline]
pub fn put_stream_header(
    out: &mut Vec<u8>,
    id: StreamId,
    offset: u64,
    data_len: Option<usize>,
    fin: bool,
) {
    out.push(stream_type(offset, data_len.is_some(), fin).0 as u8);
    varint::put(out, id.0);
    if offset > 0 {
        varint::put(out, offset);
    }
    if let Some(length) = data_len {
        varint::put(out, length as u64);
    }
}

/// Bytes of a `DATAGRAM` frame before its data.
pub fn datagram_header_len(data_len: usize, with_length: bool) -> usize {
    1 + if with_length {
        varint::size(data_len as u64)
    } else {
        0
    }
}

/// Appends the part of a `DATAGRAM` frame before the data, which the caller appends.
///
/// Without `data_len` the frame extends to the end of the packet.
pub fn put_datagram_header(out: &mut Vec<u8>, data_len: Option<usize>) {
    match data_len {
        None => out.push(FrameType::DATAGRAM.0 as u8),
        Some(length) => {
            out.push(FrameType::DATAGRAM_WITH_LENGTH.0 as u8);
            varint::put(out, length as u64);
        }
    }
}
