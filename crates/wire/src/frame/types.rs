//! Frame types: their names, and how they affect a packet (RFC 9000, table 3).

use std::fmt;

/// The type of a frame, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(pub u64);

macro_rules! types {
    ($($name:ident = $value:literal;)*) => {
        #[allow(missing_docs, reason = "the names are those of the RFCs and of the drafts")]
        impl FrameType {
            $(pub const $name: Self = Self($value);)*
        }
    };
}

types! {
    PADDING = 0x00;
    PING = 0x01;
    ACK = 0x02;
    ACK_ECN = 0x03;
    RESET_STREAM = 0x04;
    STOP_SENDING = 0x05;
    CRYPTO = 0x06;
    NEW_TOKEN = 0x07;
    STREAM = 0x08;
    MAX_DATA = 0x10;
    MAX_STREAM_DATA = 0x11;
    MAX_STREAMS_BIDI = 0x12;
    MAX_STREAMS_UNI = 0x13;
    DATA_BLOCKED = 0x14;
    STREAM_DATA_BLOCKED = 0x15;
    STREAMS_BLOCKED_BIDI = 0x16;
    STREAMS_BLOCKED_UNI = 0x17;
    NEW_CONNECTION_ID = 0x18;
    RETIRE_CONNECTION_ID = 0x19;
    PATH_CHALLENGE = 0x1a;
    PATH_RESPONSE = 0x1b;
    CONNECTION_CLOSE = 0x1c;
    APPLICATION_CLOSE = 0x1d;
    HANDSHAKE_DONE = 0x1e;
    IMMEDIATE_ACK = 0x1f;
    DATAGRAM = 0x30;
    DATAGRAM_WITH_LENGTH = 0x31;
    PATH_ACK = 0x3e;
    PATH_ACK_ECN = 0x3f;
    ACK_FREQUENCY = 0xaf;
    TIMESTAMP = 0x02f5;
    PATH_ABANDON = 0x3e75;
    PATH_STATUS_BACKUP = 0x3e76;
    PATH_STATUS_AVAILABLE = 0x3e77;
    PATH_NEW_CONNECTION_ID = 0x3e78;
    PATH_RETIRE_CONNECTION_ID = 0x3e79;
    MAX_PATH_ID = 0x3e7a;
    PATHS_BLOCKED = 0x3e7b;
    PATH_CIDS_BLOCKED = 0x3e7c;
}

impl FrameType {
    /// The name in qlog; all types of one frame share it.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x00 => "padding",
            0x01 => "ping",
            0x02 | 0x03 => "ack",
            0x04 => "reset_stream",
            0x05 => "stop_sending",
            0x06 => "crypto",
            0x07 => "new_token",
            0x08..=0x0f => "stream",
            0x10 => "max_data",
            0x11 => "max_stream_data",
            0x12 | 0x13 => "max_streams",
            0x14 => "data_blocked",
            0x15 => "stream_data_blocked",
            0x16 | 0x17 => "streams_blocked",
            0x18 => "new_connection_id",
            0x19 => "retire_connection_id",
            0x1a => "path_challenge",
            0x1b => "path_response",
            0x1c | 0x1d => "connection_close",
            0x1e => "handshake_done",
            0x1f => "immediate_ack",
            0x30 | 0x31 => "datagram",
            0x3e | 0x3f => "path_ack",
            0xaf => "ack_frequency",
            0x02f5 => "timestamp",
            0x3e75 => "path_abandon",
            0x3e76 => "path_status_backup",
            0x3e77 => "path_status_available",
            0x3e78 => "path_new_connection_id",
            0x3e79 => "path_retire_connection_id",
            0x3e7a => "max_path_id",
            0x3e7b => "paths_blocked",
            0x3e7c => "path_cids_blocked",
            _ => "unknown",
        }
    }

    /// Whether the frame belongs to RFC 10069 and so may only be sent in 1-RTT packets of
    /// connections that negotiated it.
    pub const fn is_multipath(self) -> bool {
        matches!(self.0, 0x3e | 0x3f | 0x3e75..=0x3e7c)
    }

    /// Whether the frame belongs to draft-ietf-quic-ack-frequency and so may only be sent to an
    /// endpoint that announced `min_ack_delay`.
    pub const fn is_about_ack_frequency(self) -> bool {
        matches!(self.0, 0x1f | 0xaf)
    }

    /// Whether the frame is a probing frame: a packet with only these does not migrate a path (RFC
    /// 9000, section 9.1).
    ///
    /// None of the frames of RFC 10069 is one.
    pub const fn is_probing(self) -> bool {
        matches!(self.0, 0x00 | 0x18 | 0x1a | 0x1b)
    }

    /// Whether a packet with this frame has to be acknowledged (RFC 9002, section 2).
    pub const fn is_ack_eliciting(self) -> bool {
        !matches!(
            self.0,
            0x00 | 0x02 | 0x03 | 0x1c | 0x1d | 0x3e | 0x3f | 0x02f5
        )
    }

    /// Whether the frame is allowed in Initial and Handshake packets (RFC 9000, section 12.4).
    pub const fn allowed_in_initial_or_handshake(self) -> bool {
        matches!(self.0, 0x00..=0x03 | 0x06 | 0x1c)
    }

    /// Whether the frame is allowed in 0-RTT packets (RFC 9000, section 12.5 and table 3; RFC 9221,
    /// section 4). Frames of extensions that do not allow it and unknown types are not.
    pub const fn allowed_in_zero_rtt(self) -> bool {
        matches!(
            self.0,
            0x00 | 0x01 | 0x04 | 0x05 | 0x08..=0x18 | 0x1a | 0x1c | 0x1d | 0x30 | 0x31
        )
    }
}

impl fmt::Debug for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.name(), self.0)
    }
}
