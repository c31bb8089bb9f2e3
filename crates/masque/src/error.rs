//! What a peer did wrong, and which part of the connection ends for it.

use std::fmt;

/// An error code of HTTP/3, with those of its extensions.
///
/// It travels in `RESET_STREAM`, `STOP_SENDING` and `CONNECTION_CLOSE`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u64);

macro_rules! codes {
    ($(#[doc = $doc:literal] $name:ident = $value:literal $text:literal;)*) => {
        impl Code {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The name in the registry, if the code has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// A datagram that breaks the rules of RFC 9297.
    DATAGRAM_ERROR = 0x33 "H3_DATAGRAM_ERROR";
    /// Nothing went wrong.
    NO_ERROR = 0x100 "H3_NO_ERROR";
    /// A violation that no other code names.
    GENERAL_PROTOCOL_ERROR = 0x101 "H3_GENERAL_PROTOCOL_ERROR";
    /// The implementation failed.
    INTERNAL_ERROR = 0x102 "H3_INTERNAL_ERROR";
    /// A stream that the peer may not open.
    STREAM_CREATION_ERROR = 0x103 "H3_STREAM_CREATION_ERROR";
    /// A stream ended that has to last as long as the connection.
    CLOSED_CRITICAL_STREAM = 0x104 "H3_CLOSED_CRITICAL_STREAM";
    /// A frame where it may not be.
    FRAME_UNEXPECTED = 0x105 "H3_FRAME_UNEXPECTED";
    /// A frame of the wrong length.
    FRAME_ERROR = 0x106 "H3_FRAME_ERROR";
    /// More work or memory than the receiver is willing to spend.
    EXCESSIVE_LOAD = 0x107 "H3_EXCESSIVE_LOAD";
    /// A stream or push ID that may not be named.
    ID_ERROR = 0x108 "H3_ID_ERROR";
    /// A setting with a value it cannot have.
    SETTINGS_ERROR = 0x109 "H3_SETTINGS_ERROR";
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a "H3_MISSING_SETTINGS";
    /// The request was not processed at all.
    REQUEST_REJECTED = 0x10b "H3_REQUEST_REJECTED";
    /// The request, or its answer, is no longer wanted.
    REQUEST_CANCELLED = 0x10c "H3_REQUEST_CANCELLED";
    /// The stream ended before the request did.
    REQUEST_INCOMPLETE = 0x10d "H3_REQUEST_INCOMPLETE";
    /// A malformed request or response.
    MESSAGE_ERROR = 0x10e "H3_MESSAGE_ERROR";
    /// The TCP connection behind a CONNECT broke.
    CONNECT_ERROR = 0x10f "H3_CONNECT_ERROR";
    /// The request cannot be served over HTTP/3.
    VERSION_FALLBACK = 0x110 "H3_VERSION_FALLBACK";
    /// A field section that cannot be decoded.
    QPACK_DECOMPRESSION_FAILED = 0x200 "QPACK_DECOMPRESSION_FAILED";
    /// An instruction on the encoder stream that cannot be followed.
    QPACK_ENCODER_STREAM_ERROR = 0x201 "QPACK_ENCODER_STREAM_ERROR";
    /// An instruction on the decoder stream that cannot be followed.
    QPACK_DECODER_STREAM_ERROR = 0x202 "QPACK_DECODER_STREAM_ERROR";
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// A peer that did not keep to the protocol.
///
/// A reader that returned one returns nothing more: the stream or connection is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The connection is to be closed with this code.
    #[error("{reason} (connection error {code})")]
    Connection {
        /// What the peer is told.
        code: Code,
        /// What it did.
        reason: &'static str,
    },
    /// Both directions of the stream are to be ended with this code.
    #[error("{reason} (stream error {code})")]
    Stream {
        /// What the peer is told.
        code: Code,
        /// What it did.
        reason: &'static str,
    },
}

impl Error {
    /// The code the peer is told.
    pub const fn code(&self) -> Code {
        match self {
            Self::Connection { code, .. } | Self::Stream { code, .. } => *code,
        }
    }

    /// What the peer did.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Connection { reason, .. } | Self::Stream { reason, .. } => reason,
        }
    }

    /// Whether the whole connection ends.
    pub const fn is_connection(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }
}

pub(crate) const fn connection(code: Code, reason: &'static str) -> Error {
    Error::Connection { code, reason }
}

pub(crate) const fn stream(code: Code, reason: &'static str) -> Error {
    Error::Stream { code, reason }
}

/// A request or response that is malformed (RFC 9114, section 4.1.2).
pub(crate) const fn malformed(reason: &'static str) -> Error {
    stream(Code::MESSAGE_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_happened_and_by_which_name_the_peer_knows_it() {
        let error = malformed("the request has no :method");
        let text = "the request has no :method (stream error H3_MESSAGE_ERROR)";
        assert_eq!(error.to_string(), text);
        assert_eq!(Code(0x21).to_string(), "error 0x21");
        assert!(connection(Code::ID_ERROR, "x").is_connection());
    }
}
