//! HTTP/3 frames (RFC 9114, section 7): their types, and how a stream of them is read. Capsules
//! have the same form.

use crate::error::Error;
use crate::input::{Gather, Input};
use anabranch_wire::varint;
use bytes::Bytes;

pub(crate) const DATA: u64 = 0x00;
pub(crate) const HEADERS: u64 = 0x01;
pub(crate) const CANCEL_PUSH: u64 = 0x03;
pub(crate) const SETTINGS: u64 = 0x04;
pub(crate) const PUSH_PROMISE: u64 = 0x05;
pub(crate) const GOAWAY: u64 = 0x07;
pub(crate) const MAX_PUSH_ID: u64 = 0x0d;

/// Whether a type is one of HTTP/2 that no HTTP/3 frame has (RFC 9114, section 7.2.8).
pub(crate) const fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}

/// How the payload of a frame is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// As a whole; its length was compared with a limit.
    Whole,
    /// In the chunks it comes in.
    Chunks,
    /// Not at all.
    Skipped,
}

/// What is read of a stream of frames.
#[derive(Debug)]
pub(crate) enum Piece {
    /// The whole payload of a frame of this type.
    Whole(u64, Bytes),
    /// A part of a payload that is read in chunks.
    Chunk(Bytes),
    /// All chunks of a frame of this type were read.
    Last(u64),
}

/// Reads frames, however they are cut.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    part: Part,
}

/// Where in a frame the stream is.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Type,
    Length(u64),
    Whole(u64, Gather),
    Chunks(u64, u64),
    Skipped(u64),
}

impl Frames {
    /// The next piece, or `None` until there is more `input`. How a frame is read is asked once its
    /// type and length are known.
    pub(crate) fn next(
        &mut self,
        input: &mut Input,
        how: impl Fn(u64, u64) -> Result<How, Error>,
    ) -> Result<Option<Piece>, Error> {
        loop {
            match &mut self.part {
                Part::Type => match input.varint() {
                    Some(kind) => self.part = Part::Length(kind),
                    None => return Ok(None),
                },
                Part::Length(kind) => {
                    let Some(length) = input.varint() else {
                        return Ok(None);
                    };
                    self.part = match how(*kind, length)? {
                        How::Whole => Part::Whole(*kind, Gather::new(length as usize)),
                        How::Chunks => Part::Chunks(*kind, length),
                        How::Skipped => Part::Skipped(length),
                    };
                }
                Part::Whole(kind, gather) => {
                    let whole = gather.read(input);
                    let piece = whole.map(|payload| Piece::Whole(*kind, payload));
                    if piece.is_some() {
                        self.part = Part::Type;
                    }
                    return Ok(piece);
                }
                Part::Chunks(kind, 0) => {
                    let last = Piece::Last(*kind);
                    self.part = Part::Type;
                    return Ok(Some(last));
                }
                Part::Chunks(_, left) => {
                    let chunk = input.take(*left);
                    *left -= chunk.as_ref().map_or(0, Bytes::len) as u64;
                    return Ok(chunk.map(Piece::Chunk));
                }
                Part::Skipped(left) => {
                    *left -= input.skip(*left);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.part = Part::Type;
                }
            }
        }
    }

    /// Whether nothing of a frame was read yet.
    pub(crate) const fn is_between(&self) -> bool {
        matches!(self.part, Part::Type)
    }
}

/// Appends type and length of a frame or capsule.
pub(crate) fn put_header(out: &mut Vec<u8>, kind: u64, length: usize) {
    varint::put(out, kind);
    varint::put(out, length as u64);
}
