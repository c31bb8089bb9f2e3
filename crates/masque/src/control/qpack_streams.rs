//! What may be said about a dynamic table that has no room (RFC 9204, sections 4.3 and 4.4).

use crate::error::{Code, Error, connection};

/// An integer that goes on for more bytes has more than 62 bits (RFC 9204, section 4.1.1).
const MAX_CONTINUATION: u8 = 9;

/// Instructions of the peer's encoder: it may set the capacity to 0, which it is, again and again.
pub(super) fn read_encoder(bytes: &[u8]) -> Result<(), Error> {
    const SET_CAPACITY_0: u8 = 0x20;
    if bytes.iter().all(|byte| *byte == SET_CAPACITY_0) {
        return Ok(());
    }
    Err(connection(
        Code::QPACK_ENCODER_STREAM_ERROR,
        "an instruction for a dynamic table that has no room",
    ))
}

/// Instructions of the peer's decoder: it may only cancel streams, whose numbers are not needed.
/// `more` bytes of such a number may still follow, 0 between instructions; returns the same for
/// what comes after `bytes`.
pub(super) fn read_decoder(mut more: u8, bytes: &[u8]) -> Result<u8, Error> {
    let refuse = |reason| Err(connection(Code::QPACK_DECODER_STREAM_ERROR, reason));
    for byte in bytes {
        if more > 0 {
            let goes_on = byte & 0x80 != 0;
            more = if goes_on { more - 1 } else { 0 };
            if goes_on && more == 0 {
                return refuse("a stream's number is too large");
            }
        } else if byte & 0xc0 != 0x40 {
            return refuse("the decoder acknowledges what it was never sent");
        } else if byte & 0x3f == 0x3f {
            more = MAX_CONTINUATION;
        }
    }
    Ok(more)
}
