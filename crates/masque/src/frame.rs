//! Types and headers of HTTP/3 frames (RFC 9114, section 7). Headers of capsules have their form.

use crate::input::Input;
use anabranch_wire::varint;

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

/// Reads type and length of a frame, however they are cut.
#[derive(Debug, Default)]
pub(crate) struct HeaderReader {
    kind: Option<u64>,
}

impl HeaderReader {
    /// Type and length of the next frame, once both are there.
    pub(crate) fn read(&mut self, input: &mut Input) -> Option<(u64, u64)> {
        let kind = match self.kind {
            Some(kind) => kind,
            None => *self.kind.insert(input.varint()?),
        };
        let length = input.varint()?;
        self.kind = None;
        Some((kind, length))
    }

    /// Whether the type was read and the length was not.
    pub(crate) fn is_halfway(&self) -> bool {
        self.kind.is_some()
    }
}

/// Appends type and length of a frame or capsule.
pub(crate) fn put_header(out: &mut Vec<u8>, kind: u64, length: usize) {
    varint::put(out, kind);
    varint::put(out, length as u64);
}
