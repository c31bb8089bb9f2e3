//! Errors that end a connection.

use anabranch_wire::TransportErrorCode;
use anabranch_wire::frame::ConnectionClose;
use std::borrow::Cow;
use std::fmt;

/// A breach of the protocol, by the peer or found by us: what goes into `CONNECTION_CLOSE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError {
    /// The code on the wire.
    pub code: TransportErrorCode,
    /// The type of the frame that caused it; 0 if none did.
    pub frame_type: u64,
    /// What happened, for a person.
    pub reason: Cow<'static, str>,
}

impl TransportError {
    /// An error with `code`, explained by `reason`.
    pub fn new(code: TransportErrorCode, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            frame_type: 0,
            reason: reason.into(),
        }
    }

    /// `PROTOCOL_VIOLATION`, the most common code.
    pub fn violation(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(TransportErrorCode::PROTOCOL_VIOLATION, reason)
    }

    /// The same error, caused by a frame of this type.
    pub fn in_frame(mut self, frame_type: u64) -> Self {
        self.frame_type = frame_type;
        self
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        f.write_str(&reason_suffix(&self.reason))?;
        if self.frame_type != 0 {
            write!(f, " (frame type {:#x})", self.frame_type)?;
        }
        Ok(())
    }
}

impl std::error::Error for TransportError {}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// This side closed it.
    #[error("closed by this side")]
    LocallyClosed,
    /// The peer's application closed it.
    #[error(
        "closed by the peer's application: code {code:#x}{}",
        reason_suffix(reason)
    )]
    ApplicationClosed {
        /// The application's code.
        code: u64,
        /// The application's words.
        reason: String,
    },
    /// The peer's transport closed it.
    #[error("closed by the peer: {0}")]
    PeerClosed(TransportError),
    /// This side found a breach of the protocol.
    #[error("{0}")]
    Transport(TransportError),
    /// Nothing arrived on any path for the idle time-out.
    #[error("no path carried anything within the idle time-out")]
    TimedOut,
    /// The peer lost its state.
    #[error("the peer restarted and no longer knows this connection (stateless reset)")]
    Reset,
    /// The peer speaks none of our versions.
    #[error("the peer does not speak QUIC version 1")]
    VersionMismatch,
}

impl ConnectionError {
    /// What the peer says when it closes.
    pub(crate) fn of_peer(frame: &ConnectionClose<'_>) -> Self {
        let reason = String::from_utf8_lossy(frame.reason).into_owned();
        if frame.application {
            return Self::ApplicationClosed {
                code: frame.code,
                reason,
            };
        }
        let error = TransportError::new(TransportErrorCode(frame.code), reason);
        Self::PeerClosed(error.in_frame(frame.frame_type))
    }
}

fn reason_suffix(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {}", printable(reason))
    }
}

/// Somebody else's words, fit for a terminal and a line of a log: control characters and those that
/// turn the direction of writing or end a line become `?`. Escape sequences lose what makes them
/// one, and nobody writes a second line by being quoted.
pub fn printable(words: &str) -> String {
    let is_unfit = |c: char| {
        c.is_control()
            || matches!(
                c,
                '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                    | '\u{2066}'..='\u{2069}'
            )
    };
    let fit = |c: char| if is_unfit(c) { '?' } else { c };
    words.chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_words_cannot_move_the_cursor_or_forge_a_line() {
        let words = "gone\r\n2026-11-23 all is well\u{1b}[2J\u{9b}31m\u{202e}txt\u{2028}é";
        let clean = "gone??2026-11-23 all is well?[2J?31m?txt?é";
        let closed = ConnectionError::ApplicationClosed {
            code: 1,
            reason: words.into(),
        };
        assert!(
            closed.to_string().ends_with(&format!(": {clean}")),
            "{closed}"
        );
        let code = TransportErrorCode(0);
        let closed = ConnectionError::PeerClosed(TransportError::new(code, words.to_owned()));
        assert!(
            closed.to_string().ends_with(&format!(": {clean}")),
            "{closed}"
        );
    }
}
