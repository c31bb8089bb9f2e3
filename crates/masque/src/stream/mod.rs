//! The frames of a request stream (RFC 9114, sections 4.1 and 7).
//!
//! ```text
//!          HEADERS          HEADERS of a CONNECT, of a 2xx
//! begin ────┬──────> content        begin ──────────────> tunnel
//!     ^─────┘ 1xx       │ HEADERS
//!                       v
//!                    trailers
//! ```
//! Only DATA may follow where a tunnel is, and unknown frames anywhere. Payload is handed on in
//! the chunks it came in.

use crate::error::{Code, Error, connection, stream};
use crate::field::Field;
use crate::frame::{self, Frames, How, Piece};
use crate::input::Input;
use crate::message::{Following, check_trailers, following};
use crate::{limits, qpack};
use anabranch_wire::{Side, varint};
use bytes::Bytes;

/// What is read from a request stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A header section, to be read as a request or a response.
    Head(Vec<Field>),
    /// Payload of DATA frames: content, or what a tunnel carries.
    Data(Bytes),
    /// The stream ended where a message may end.
    End,
}

/// Where in a message the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Content,
    Tunnel,
    Trailers,
}

/// Reads one direction of a request stream.
#[derive(Debug)]
pub struct Reader {
    /// Who reads: a server gets requests, a client responses to a CONNECT.
    side: Side,
    input: Input,
    frames: Frames,
    phase: Phase,
    /// Nothing more is read: the end, or an error.
    is_over: bool,
}

impl Reader {
    /// For the server's end (requests) or the client's (responses to a CONNECT).
    pub fn new(side: Side) -> Self {
        Self {
            side,
            input: Input::default(),
            frames: Frames::default(),
            phase: Phase::Begin,
            is_over: false,
        }
    }

    /// Takes what was received. Items are to be read until there are none before more is pushed:
    /// the reader keeps what nobody took.
    pub fn push(&mut self, bytes: Bytes) {
        if !self.is_over {
            self.input.push(bytes);
        }
    }

    /// The peer finished the stream. A stream that was reset is simply dropped.
    pub fn finish(&mut self) {
        self.input.finish();
    }

    /// The next item, or `None` until more is received.
    ///
    /// # Errors
    /// The peer broke the rules; nothing more is read.
    pub fn poll(&mut self) -> Result<Option<Item>, Error> {
        let next = self.read();
        if next.is_err() {
            self.is_over = true;
            self.input = Input::default();
        }
        next
    }

    fn read(&mut self) -> Result<Option<Item>, Error> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            let (side, phase) = (self.side, self.phase);
            let how = |kind, length| how(side, phase, kind, length);
            match self.frames.next(&mut self.input, how)? {
                Some(Piece::Whole(_, section)) => {
                    if let Some(head) = self.section(&section)? {
                        return Ok(Some(Item::Head(head)));
                    }
                }
                Some(Piece::Chunk(bytes)) => return Ok(Some(Item::Data(bytes))),
                Some(Piece::Last(_)) => {}
                None => return self.end(),
            }
        }
    }

    /// Reads a field section; a trailer section is checked and dropped.
    fn section(&mut self, section: &[u8]) -> Result<Option<Vec<Field>>, Error> {
        // Fields live as long as their request: they are not to hold all that they came with.
        let section = Bytes::copy_from_slice(section);
        let fields = qpack::decode(&section, limits::FIELD_SECTION_BYTES)?;
        if self.phase == Phase::Content {
            check_trailers(&fields)?;
            self.phase = Phase::Trailers;
            return Ok(None);
        }
        self.phase = match self.side {
            Side::Server if is_connect(&fields) => Phase::Tunnel,
            Side::Server => Phase::Content,
            Side::Client => match following(&fields) {
                Following::Response => Phase::Begin,
                Following::Tunnel => Phase::Tunnel,
                Following::Content => Phase::Content,
            },
        };
        Ok(Some(fields))
    }

    /// What it means that nothing more can be read for now.
    fn end(&mut self) -> Result<Option<Item>, Error> {
        if !self.input.is_finished() {
            return Ok(None);
        }
        if !self.frames.is_between() || !self.input.is_empty() {
            let reason = "a stream ends within a frame";
            return Err(connection(Code::FRAME_ERROR, reason));
        }
        if self.phase == Phase::Begin {
            return Err(match self.side {
                Side::Server => stream(Code::REQUEST_INCOMPLETE, "a stream has no request"),
                Side::Client => stream(Code::MESSAGE_ERROR, "a stream has no final response"),
            });
        }
        self.is_over = true;
        Ok(Some(Item::End))
    }
}

/// Whether a frame of this type may be here, and how it is read.
fn how(side: Side, phase: Phase, kind: u64, length: u64) -> Result<How, Error> {
    let unexpected = |reason| Err(connection(Code::FRAME_UNEXPECTED, reason));
    match kind {
        frame::DATA => match phase {
            Phase::Content | Phase::Tunnel => Ok(How::Chunks),
            Phase::Begin => unexpected("DATA before the header section"),
            Phase::Trailers => unexpected("DATA after the trailer section"),
        },
        frame::HEADERS => match phase {
            Phase::Begin | Phase::Content if length > limits::FIELD_SECTION_BYTES as u64 => {
                let reason = "a field section is larger than announced";
                Err(stream(Code::EXCESSIVE_LOAD, reason))
            }
            Phase::Begin | Phase::Content => Ok(How::Whole),
            Phase::Tunnel => unexpected("HEADERS in a tunnel"),
            Phase::Trailers => unexpected("HEADERS after the trailer section"),
        },
        frame::PUSH_PROMISE if side.is_client() && phase != Phase::Tunnel => {
            let reason = "a server pushes although no push ID was allowed";
            Err(connection(Code::ID_ERROR, reason))
        }
        frame::CANCEL_PUSH
        | frame::SETTINGS
        | frame::PUSH_PROMISE
        | frame::GOAWAY
        | frame::MAX_PUSH_ID => unexpected("a frame that is not for request streams"),
        _ if frame::is_of_http2(kind) => unexpected("a frame of HTTP/2"),
        _ => Ok(How::Skipped),
    }
}

fn is_connect(fields: &[Field]) -> bool {
    let method = fields.iter().find(|field| &field.name[..] == b":method");
    method.is_some_and(|field| &field.value[..] == b"CONNECT")
}

/// A HEADERS frame.
pub fn headers(fields: &[Field]) -> Vec<u8> {
    let section = qpack::encode(fields);
    let mut out = Vec::with_capacity(section.len() + 4);
    frame::put_header(&mut out, frame::HEADERS, section.len());
    out.extend_from_slice(&section);
    out
}

/// Appends what precedes `length` bytes of payload in a DATA frame.
pub fn put_data_header(out: &mut Vec<u8>, length: usize) {
    frame::put_header(out, frame::DATA, length);
}

/// Bytes that [`put_data_header`] appends.
pub const fn data_header_size(length: usize) -> usize {
    varint::size(frame::DATA) + varint::size(length as u64)
}

#[cfg(test)]
mod tests;
