//! Error codes that travel in `CONNECTION_CLOSE` and `PATH_ABANDON`.

use crate::varint;
use std::fmt;

/// An error code that can be chosen freely: an application protocol's (RFC 9000, section 20.2), or
/// one of the transport. It always fits a frame: at most 2^62 − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(u64);

impl ErrorCode {
    /// The largest code: 2^62 − 1.
    pub const MAX: Self = Self(varint::MAX);

    /// A code, or `None` if no frame can carry it.
    pub const fn new(code: u64) -> Option<Self> {
        if code <= varint::MAX {
            Some(Self(code))
        } else {
            None
        }
    }

    /// The code as a number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl From<u32> for ErrorCode {
    fn from(code: u32) -> Self {
        Self(code.into())
    }
}

/// Every registered code fits; an invented one that does not becomes [`ErrorCode::MAX`].
impl From<TransportErrorCode> for ErrorCode {
    fn from(code: TransportErrorCode) -> Self {
        Self::new(code.0).unwrap_or(Self::MAX)
    }
}

/// A transport error code (RFC 9000, section 20.1, and RFC 10069).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportErrorCode(pub u64);

macro_rules! codes {
    ($(#[doc = $doc:literal] $name:ident = $value:literal;)*) => {
        impl TransportErrorCode {
            $(#[doc = $doc] pub const $name: Self = Self($value);)*

            /// The name in the registry, if the code has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Nothing went wrong.
    NO_ERROR = 0x00;
    /// The implementation failed.
    INTERNAL_ERROR = 0x01;
    /// The server refuses this connection.
    CONNECTION_REFUSED = 0x02;
    /// More data than the receiver allowed.
    FLOW_CONTROL_ERROR = 0x03;
    /// More streams than the receiver allowed.
    STREAM_LIMIT_ERROR = 0x04;
    /// A frame for a stream in a state that does not permit it.
    STREAM_STATE_ERROR = 0x05;
    /// A stream's final size changed, or data exceeds it.
    FINAL_SIZE_ERROR = 0x06;
    /// A frame that cannot be parsed.
    FRAME_ENCODING_ERROR = 0x07;
    /// Transport parameters that are malformed, missing or illegal.
    TRANSPORT_PARAMETER_ERROR = 0x08;
    /// More connection IDs than the receiver allowed.
    CONNECTION_ID_LIMIT_ERROR = 0x09;
    /// Any other violation of the protocol.
    PROTOCOL_VIOLATION = 0x0a;
    /// The token in a client's Initial packet is not valid.
    INVALID_TOKEN = 0x0b;
    /// The application closed before the handshake ended.
    APPLICATION_ERROR = 0x0c;
    /// More CRYPTO data than the receiver can hold.
    CRYPTO_BUFFER_EXCEEDED = 0x0d;
    /// A key update that violates its rules.
    KEY_UPDATE_ERROR = 0x0e;
    /// Keys were used as often as their cipher permits.
    AEAD_LIMIT_REACHED = 0x0f;
    /// No path is left.
    NO_VIABLE_PATH = 0x10;
    /// The application abandoned the path.
    APPLICATION_ABANDON_PATH = 0x3e;
    /// The path lacks resources.
    PATH_RESOURCE_LIMIT_REACHED = 0x3e75;
    /// The path flaps, loses packets or fell silent.
    PATH_UNSTABLE_OR_POOR = 0x3e76;
    /// The peer opened a path for which there is no connection ID.
    NO_CID_AVAILABLE_FOR_PATH = 0x3e77;
}

impl TransportErrorCode {
    /// The code that carries a TLS alert (RFC 9001, section 4.8).
    pub const fn crypto(alert: u8) -> Self {
        Self(0x100 | alert as u64)
    }

    /// The TLS alert that the code carries, if it carries one.
    pub const fn tls_alert(self) -> Option<u8> {
        match self.0 {
            0x100..=0x1ff => Some(self.0 as u8),
            _ => None,
        }
    }
}

impl fmt::Debug for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.tls_alert()) {
            (Some(name), _) => f.write_str(name),
            (None, Some(alert)) => write!(f, "CRYPTO_ERROR (TLS alert {alert})"),
            (None, None) => write!(f, "error {:#x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_fits_no_frame_cannot_be_made() {
        assert_eq!(ErrorCode::new(varint::MAX), Some(ErrorCode::MAX));
        assert_eq!(ErrorCode::new(varint::MAX + 1), None);
        assert_eq!(ErrorCode::new(u64::MAX), None);
        let made_up = TransportErrorCode(u64::MAX);
        assert_eq!(ErrorCode::from(made_up), ErrorCode::MAX);
    }
}
