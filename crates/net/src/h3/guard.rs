//! Limits the length of frames handed to h3. It collects every frame except DATA in memory until
//! the frame is complete, no matter how long the sender says it is.

use anabranch_proto::wire::Dir;

/// The most bytes of a frame other than DATA (RFC 9114, section 7.2): field sections, settings, and
/// frames to be skipped. Far more than the fields that either side accepts.
pub(super) const MAX_FRAME_BYTES: u64 = 128 << 10;

/// The code for a peer that causes excessive work (RFC 9114, section 8.1).
pub(super) const EXCESSIVE_LOAD: u64 = 0x107;

const DATA: u64 = 0x00;
/// The frame type that starts a WebTransport stream: what follows has no length and is not
/// collected.
const WEBTRANSPORT: u64 = 0x41;
/// The type of the unidirectional stream that carries frames.
const CONTROL: u64 = 0x00;

/// A frame that is longer than [`MAX_FRAME_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Follows the frames of one stream.
#[derive(Debug)]
pub(super) struct Guard {
    expected: Expected,
    number: Number,
}

#[derive(Debug)]
enum Expected {
    StreamType,
    FrameType,
    Length {
        is_data: bool,
    },
    Payload(u64),
    /// The stream carries no frames, or no further ones.
    Anything,
}

impl Guard {
    pub(super) fn new(dir: Dir) -> Self {
        let expected = match dir {
            Dir::Bi => Expected::FrameType,
            Dir::Uni => Expected::StreamType,
        };
        let number = Number::default();
        Self { expected, number }
    }

    /// Inspects the next bytes of the stream.
    pub(super) fn watch(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while !bytes.is_empty() {
            match &mut self.expected {
                Expected::Anything => return Ok(()),
                Expected::Payload(left) => {
                    let passed = bytes
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= passed as u64;
                    bytes = &bytes[passed..];
                    if *left == 0 {
                        self.expected = Expected::FrameType;
                    }
                }
                _ => {
                    if let Some(number) = self.number.push(bytes[0]) {
                        self.on_number(number)?;
                    }
                    bytes = &bytes[1..];
                }
            }
        }
        Ok(())
    }

    fn on_number(&mut self, number: u64) -> Result<(), TooLarge> {
        self.expected = match (&self.expected, number) {
            (Expected::StreamType, CONTROL) => Expected::FrameType,
            (Expected::StreamType, _) | (Expected::FrameType, WEBTRANSPORT) => Expected::Anything,
            (Expected::FrameType, kind) => Expected::Length {
                is_data: kind == DATA,
            },
            (Expected::Length { is_data: false }, length) if length > MAX_FRAME_BYTES => {
                return Err(TooLarge);
            }
            (Expected::Length { .. }, 0) => Expected::FrameType,
            (_, length) => Expected::Payload(length),
        };
        Ok(())
    }
}

/// Decodes a variable-length integer (RFC 9000, section 16), byte by byte.
#[derive(Debug, Default)]
struct Number {
    value: u64,
    left: u32,
}

impl Number {
    fn push(&mut self, byte: u8) -> Option<u64> {
        if self.left == 0 {
            self.left = 1 << (byte >> 6);
            self.value = u64::from(byte & 0x3f);
        } else {
            self.value = self.value << 8 | u64::from(byte);
        }
        self.left -= 1;
        (self.left == 0).then_some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: u8 = 0x01;

    /// The header of a frame, with the length encoded in 8 bytes.
    fn head(kind: u8, length: u64) -> Vec<u8> {
        let length = (length | 0xc0 << 56).to_be_bytes();
        [&[kind], &length[..]].concat()
    }

    fn watch(guard: &mut Guard, bytes: &[u8]) -> Result<(), TooLarge> {
        bytes.chunks(3).try_for_each(|piece| guard.watch(piece))
    }

    #[test]
    fn data_may_be_of_any_length_and_the_rest_may_not() {
        let mut guard = Guard::new(Dir::Bi);
        let small = [&head(HEADERS, 100)[..], &[7; 100]].concat();
        assert_eq!(watch(&mut guard, &small), Ok(()));
        assert_eq!(watch(&mut guard, &head(0, 3 << 20)), Ok(()));
        assert_eq!(watch(&mut guard, &vec![1; 3 << 20]), Ok(()));
        assert_eq!(watch(&mut guard, &head(HEADERS, 0)), Ok(()));
        assert_eq!(watch(&mut guard, &head(HEADERS, MAX_FRAME_BYTES)), Ok(()));
        let longest = vec![1; MAX_FRAME_BYTES as usize];
        assert_eq!(watch(&mut guard, &longest), Ok(()));
        let larger = head(HEADERS, MAX_FRAME_BYTES + 1);
        assert_eq!(watch(&mut guard, &larger), Err(TooLarge));
        for kind in [0x21, 0x04, 0x0d] {
            let mut guard = Guard::new(Dir::Bi);
            assert_eq!(watch(&mut guard, &head(kind, 1 << 40)), Err(TooLarge));
        }
    }

    #[test]
    fn the_control_stream_is_watched_and_streams_without_frames_are_not() {
        let frame = head(0x04, 1 << 40);
        let mut control = Guard::new(Dir::Uni);
        let stream = [&[0x00], &frame[..]].concat();
        assert_eq!(watch(&mut control, &stream), Err(TooLarge));
        for kind in [0x02, 0x03, 0x21] {
            let mut other = Guard::new(Dir::Uni);
            let stream = [&[kind], &frame[..]].concat();
            assert_eq!(watch(&mut other, &stream), Ok(()));
        }
    }
}
