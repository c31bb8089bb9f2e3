//! The unidirectional streams of a connection (RFC 9114, section 6.2).
//!
//! We open one, with our settings, and need no streams for QPACK as its table has no room. [`Peer`]
//! knows what the other side has opened and said; a [`Unidirectional`] reads one of its streams.
//! Nothing of a stream is kept but a frame of the control stream that came in parts.

mod qpack_streams;

use crate::error::{Code, Error, connection};
use crate::frame::{self, Frames, How, Piece};
use crate::input::Input;
use crate::limits;
use crate::settings::Settings;
use anabranch_wire::cursor::Reader;
use anabranch_wire::{Side, varint};
use bytes::Bytes;

const CONTROL_STREAM: u64 = 0x00;
const PUSH_STREAM: u64 = 0x01;
const QPACK_ENCODER_STREAM: u64 = 0x02;
const QPACK_DECODER_STREAM: u64 = 0x03;

/// The longest of the frames that are read as a whole beside SETTINGS: one integer.
const INTEGER_BYTES: u64 = 8;

/// The beginning of our control stream, which must not be finished while the connection lasts.
pub fn preface(settings: &Settings) -> Vec<u8> {
    let mut payload = Vec::new();
    settings.encode(&mut payload);
    let mut out = vec![CONTROL_STREAM as u8];
    frame::put_header(&mut out, frame::SETTINGS, payload.len());
    out.extend_from_slice(&payload);
    out
}

/// A GOAWAY frame for our control stream. A server names the lowest stream that it will not serve;
/// a client, which takes no pushes, says 0.
pub fn goaway(id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_header(&mut out, frame::GOAWAY, varint::size(id));
    varint::put(&mut out, id);
    out
}

/// What the peer says on its control stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The peer's settings: the first frame, and sent once.
    Settings(Settings),
    /// The peer ends the connection: if it is a server, requests on this stream and later ones are
    /// not served. A later GOAWAY only lowers the number.
    GoAway(u64),
    /// A stream of a type that means nothing to us. Reading it may be given up with
    /// [`Code::STREAM_CREATION_ERROR`]; whatever is read is dropped.
    Unknown,
}

/// What the peer has opened and said.
#[derive(Debug)]
pub struct Peer {
    /// Who the peer is.
    side: Side,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    settings: Option<Settings>,
    goaway: Option<u64>,
    max_push_id: Option<u64>,
}

impl Peer {
    /// A peer that plays the role of `side`.
    pub const fn new(side: Side) -> Self {
        Self {
            side,
            has_control: false,
            has_encoder: false,
            has_decoder: false,
            settings: None,
            goaway: None,
            max_push_id: None,
        }
    }

    /// The peer's settings, once they came.
    pub const fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    /// The last GOAWAY.
    pub const fn goaway(&self) -> Option<u64> {
        self.goaway
    }

    /// Whether QUIC DATAGRAM frames may be sent, `ours` having been (RFC 9297, section 2.1.1).
    pub fn takes_datagrams(&self, ours: &Settings) -> bool {
        ours.h3_datagram && self.settings.is_some_and(|settings| settings.h3_datagram)
    }

    /// Whether this server takes extended CONNECT requests.
    pub fn takes_extended_connect(&self) -> bool {
        self.settings
            .is_some_and(|settings| settings.connect_protocol)
    }

    /// What a stream of this type is read as.
    fn open(&mut self, kind: u64) -> Result<Part, Error> {
        match kind {
            CONTROL_STREAM => once(&mut self.has_control, Part::Control),
            QPACK_ENCODER_STREAM => once(&mut self.has_encoder, Part::Encoder),
            QPACK_DECODER_STREAM => once(&mut self.has_decoder, Part::Decoder(0)),
            PUSH_STREAM if self.side.is_client() => Err(connection(
                Code::STREAM_CREATION_ERROR,
                "a client opened a push stream",
            )),
            PUSH_STREAM => Err(connection(
                Code::ID_ERROR,
                "a server pushes although no push ID was allowed",
            )),
            _ => Ok(Part::Ignored),
        }
    }

    /// How a frame of the control stream is read.
    fn how(&self, kind: u64, length: u64) -> Result<How, Error> {
        let unexpected = |reason| Err(connection(Code::FRAME_UNEXPECTED, reason));
        if self.settings.is_none() && kind != frame::SETTINGS {
            let reason = "a control stream does not begin with SETTINGS";
            return Err(connection(Code::MISSING_SETTINGS, reason));
        }
        let most = match kind {
            frame::SETTINGS if self.settings.is_some() => {
                return unexpected("SETTINGS came twice");
            }
            frame::SETTINGS => limits::SETTINGS_BYTES as u64,
            frame::GOAWAY | frame::CANCEL_PUSH => INTEGER_BYTES,
            frame::MAX_PUSH_ID if self.side.is_client() => INTEGER_BYTES,
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE | frame::MAX_PUSH_ID => {
                return unexpected("a frame that is not for this control stream");
            }
            _ if frame::is_of_http2(kind) => return unexpected("a frame of HTTP/2"),
            _ => return Ok(How::Skipped),
        };
        if length > most {
            return Err(match kind {
                frame::SETTINGS => connection(Code::EXCESSIVE_LOAD, "SETTINGS are too long"),
                _ => connection(Code::FRAME_ERROR, "a frame has more than its one integer"),
            });
        }
        Ok(How::Whole)
    }

    /// Reads a frame of the control stream.
    fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<Option<Event>, Error> {
        if kind == frame::SETTINGS {
            let settings = Settings::decode(payload)?;
            self.settings = Some(settings);
            return Ok(Some(Event::Settings(settings)));
        }
        let mut reader = Reader::new(payload);
        let id = reader.varint().ok().filter(|_| reader.is_empty());
        let reason = "a frame has more or less than its one integer";
        let id = id.ok_or(connection(Code::FRAME_ERROR, reason))?;
        let refuse = |reason| Err(connection(Code::ID_ERROR, reason));
        match kind {
            frame::GOAWAY if self.side.is_server() && id % 4 != 0 => {
                refuse("GOAWAY names a stream that no request has")
            }
            frame::GOAWAY if self.goaway.is_some_and(|before| id > before) => {
                refuse("GOAWAY names a later stream than before")
            }
            frame::GOAWAY => {
                self.goaway = Some(id);
                Ok(Some(Event::GoAway(id)))
            }
            frame::MAX_PUSH_ID if self.max_push_id.is_some_and(|before| id < before) => {
                refuse("MAX_PUSH_ID was lowered")
            }
            frame::MAX_PUSH_ID => {
                self.max_push_id = Some(id);
                Ok(None)
            }
            // Nothing was ever promised.
            _ => refuse("CANCEL_PUSH names a push that does not exist"),
        }
    }
}

/// What a stream that exists once is read as, if it is the first.
fn once(exists: &mut bool, part: Part) -> Result<Part, Error> {
    if std::mem::replace(exists, true) {
        let reason = "a stream that exists once was opened twice";
        return Err(connection(Code::STREAM_CREATION_ERROR, reason));
    }
    Ok(part)
}

/// Where in a stream its reader is.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Type,
    Control,
    Encoder,
    /// With how many bytes of an instruction may still follow.
    Decoder(u8),
    Ignored,
}

/// Reads one unidirectional stream that the peer opened.
#[derive(Debug, Default)]
pub struct Unidirectional {
    input: Input,
    frames: Frames,
    part: Part,
}

impl Unidirectional {
    /// A stream of which nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was received. Events are to be read until there are none before more is pushed.
    pub fn push(&mut self, bytes: Bytes) {
        if !matches!(self.part, Part::Ignored) {
            self.input.push(bytes);
        }
    }

    /// The next event, or `None` until more is received.
    ///
    /// # Errors
    /// Of the connection: the peer broke the rules. Nothing more is read of this stream.
    pub fn poll(&mut self, peer: &mut Peer) -> Result<Option<Event>, Error> {
        let next = self.read(peer);
        if next.is_err() {
            self.part = Part::Ignored;
            self.input = Input::default();
        }
        next
    }

    fn read(&mut self, peer: &mut Peer) -> Result<Option<Event>, Error> {
        loop {
            match &mut self.part {
                Part::Type => {
                    let Some(kind) = self.input.varint() else {
                        return Ok(None);
                    };
                    self.part = peer.open(kind)?;
                    if matches!(self.part, Part::Ignored) {
                        return Ok(Some(Event::Unknown));
                    }
                }
                Part::Control => {
                    let how = |kind, length| peer.how(kind, length);
                    let Some(piece) = self.frames.next(&mut self.input, how)? else {
                        return Ok(None);
                    };
                    if let Piece::Whole(kind, payload) = piece
                        && let Some(event) = peer.frame(kind, &payload)?
                    {
                        return Ok(Some(event));
                    }
                }
                Part::Encoder => match self.input.take(u64::MAX) {
                    Some(bytes) => qpack_streams::read_encoder(&bytes)?,
                    None => return Ok(None),
                },
                Part::Decoder(more) => match self.input.take(u64::MAX) {
                    Some(bytes) => *more = qpack_streams::read_decoder(*more, &bytes)?,
                    None => return Ok(None),
                },
                Part::Ignored => {
                    self.input.skip(u64::MAX);
                    return Ok(None);
                }
            }
        }
    }

    /// The peer finished or reset the stream, and all events were read.
    ///
    /// # Errors
    /// Of the connection: the stream has to last as long as the connection.
    pub fn finish(&self) -> Result<(), Error> {
        match self.part {
            // A stream may end before it said what it is (RFC 9114, section 6.2).
            Part::Type | Part::Ignored => Ok(()),
            _ => Err(connection(
                Code::CLOSED_CRITICAL_STREAM,
                "a stream ended that lasts as long as its connection",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
