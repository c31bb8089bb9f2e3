//! Frames as qlog shows them.
//!
//! Names and fields are those of draft-ietf-quic-qlog-quic-events; it has none for RFC 10069,
//! whose frames are named as n0-qlog does, the one reader that knows them. Payload bytes, reset
//! tokens and address tokens are left out: a trace can be shown to others.

use super::json::Object;
use anabranch_proto::time::Duration;
use anabranch_proto::wire::frame::{
    Ack, ConnectionClose, Frame, FrameType, NewConnectionId, PathStatus,
};
use anabranch_proto::wire::{Dir, PathId, TransportErrorCode};
use smallvec::SmallVec;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Writes the members of one frame. `exponent` scales the delays of its sender's acknowledgements
/// and its timestamps.
pub(super) fn write(o: &mut Object<'_>, kind: FrameType, frame: &Frame<'_>, exponent: u64) {
    o.text("frame_type", kind.name());
    match frame {
        Frame::Padding { length } => payload(o, *length),
        Frame::Ping | Frame::HandshakeDone | Frame::ImmediateAck => {}
        Frame::AckFrequency(wish) => {
            o.number("sequence_number", wish.sequence);
            o.number("ack_eliciting_threshold", wish.ack_eliciting_threshold);
            o.number("requested_max_ack_delay", wish.max_ack_delay_us);
            o.number("reordering_threshold", wish.reordering_threshold);
        }
        Frame::Ack(ack) => write_ack(o, kind, ack, exponent),
        Frame::ResetStream { .. }
        | Frame::StopSending { .. }
        | Frame::Stream(_)
        | Frame::Crypto { .. }
        | Frame::Datagram { .. } => write_data(o, frame),
        Frame::MaxData { .. }
        | Frame::MaxStreamData { .. }
        | Frame::MaxStreams { .. }
        | Frame::DataBlocked { .. }
        | Frame::StreamDataBlocked { .. }
        | Frame::StreamsBlocked { .. } => write_limit(o, frame),
        Frame::NewToken { token } => o.object("token", |o| {
            o.object("raw", |o| o.number("length", token.len() as u64));
        }),
        Frame::NewConnectionId(new) => write_new_cid(o, kind, new),
        Frame::PathChallenge { data } | Frame::PathResponse { data } => o.hex("data", data),
        Frame::ConnectionClose(close) => write_close(o, close),
        Frame::Timestamp { time } => {
            o.number("timestamp", time.saturating_mul(1 << exponent.min(20)));
        }
        Frame::RetireConnectionId { .. }
        | Frame::PathAbandon { .. }
        | Frame::PathStatus { .. }
        | Frame::MaxPathId { .. }
        | Frame::PathsBlocked { .. }
        | Frame::PathCidsBlocked { .. } => write_path_frame(o, kind, frame),
    }
}

fn payload(o: &mut Object<'_>, length: usize) {
    o.object("raw", |o| o.number("payload_length", length as u64));
}

fn path_id(o: &mut Object<'_>, path: PathId) {
    o.number("path_id", path.0);
}

fn write_ack(o: &mut Object<'_>, kind: FrameType, ack: &Ack<'_>, exponent: u64) {
    if kind.is_multipath() {
        path_id(o, ack.path);
    }
    let micros = ack.delay.saturating_mul(1 << exponent.min(20));
    o.millis("ack_delay", Duration::from_micros(micros));
    let ranges: SmallVec<[RangeInclusive<u64>; 16]> = ack.ranges().collect();
    o.list("acked_ranges", ranges.iter().rev(), |out, range| {
        let (first, last) = (range.start(), range.end());
        // Writing to a string cannot fail.
        let _ = if first == last {
            write!(out, "[{first}]")
        } else {
            write!(out, "[{first},{last}]")
        };
    });
    if let Some(ecn) = ack.ecn {
        o.number("ect1", ecn.ect1);
        o.number("ect0", ecn.ect0);
        o.number("ce", ecn.ce);
    }
}

fn write_data(o: &mut Object<'_>, frame: &Frame<'_>) {
    match frame {
        Frame::Stream(stream) => {
            o.number("stream_id", stream.id.0);
            o.number("offset", stream.offset);
            if stream.fin {
                o.flag("fin", true);
            }
            payload(o, stream.data.len());
        }
        Frame::Crypto { offset, data } => {
            o.number("offset", *offset);
            payload(o, data.len());
        }
        Frame::Datagram { data } => payload(o, data.len()),
        Frame::ResetStream { id, code, .. } | Frame::StopSending { id, code } => {
            o.number("stream_id", id.0);
            o.text("error", "unknown");
            o.number("error_code", *code);
            if let Frame::ResetStream { final_size, .. } = frame {
                o.number("final_size", *final_size);
            }
        }
        _ => {}
    }
}

fn write_limit(o: &mut Object<'_>, frame: &Frame<'_>) {
    let stream_type = |o: &mut Object<'_>, dir: Dir| {
        let name = match dir {
            Dir::Bi => "bidirectional",
            Dir::Uni => "unidirectional",
        };
        o.text("stream_type", name);
    };
    match *frame {
        Frame::MaxData { limit } => o.number("maximum", limit),
        Frame::MaxStreamData { id, limit } => {
            o.number("stream_id", id.0);
            o.number("maximum", limit);
        }
        Frame::MaxStreams { dir, limit } => {
            stream_type(o, dir);
            o.number("maximum", limit);
        }
        Frame::DataBlocked { limit } => o.number("limit", limit),
        Frame::StreamDataBlocked { id, limit } => {
            o.number("stream_id", id.0);
            o.number("limit", limit);
        }
        Frame::StreamsBlocked { dir, limit } => {
            stream_type(o, dir);
            o.number("limit", limit);
        }
        _ => {}
    }
}

fn write_new_cid(o: &mut Object<'_>, kind: FrameType, new: &NewConnectionId) {
    if kind.is_multipath() {
        path_id(o, new.path);
    }
    o.number("sequence_number", new.sequence);
    o.number("retire_prior_to", new.retire_prior_to);
    o.number("connection_id_length", new.cid.len() as u64);
    o.hex("connection_id", new.cid.as_slice());
}

fn write_path_frame(o: &mut Object<'_>, kind: FrameType, frame: &Frame<'_>) {
    match *frame {
        Frame::RetireConnectionId { path, sequence } => {
            if kind.is_multipath() {
                path_id(o, path);
            }
            o.number("sequence_number", sequence);
        }
        Frame::PathAbandon { path, code } => {
            path_id(o, path);
            o.number("error_code", code);
        }
        Frame::PathStatus {
            path,
            sequence,
            status: PathStatus::Available | PathStatus::Backup,
        } => {
            path_id(o, path);
            o.number("path_status_sequence_number", sequence);
        }
        Frame::MaxPathId { limit } | Frame::PathsBlocked { limit } => {
            o.number("maximum_path_id", limit.0);
        }
        Frame::PathCidsBlocked {
            path,
            next_sequence,
        } => {
            path_id(o, path);
            o.number("next_sequence_number", next_sequence);
        }
        _ => {}
    }
}

fn write_close(o: &mut Object<'_>, close: &ConnectionClose<'_>) {
    if close.application {
        o.text("error_space", "application");
        o.text("error", "unknown");
        o.number("error_code", close.code);
    } else {
        o.text("error_space", "transport");
        write_error(o, "error", TransportErrorCode(close.code));
    }
    if !close.reason.is_empty() {
        o.text("reason", &String::from_utf8_lossy(close.reason));
    }
    if close.frame_type != 0 {
        o.number("trigger_frame_type", close.frame_type);
    }
}

/// A transport error by its name, or `unknown` and its number.
pub(super) fn write_error(o: &mut Object<'_>, key: &str, code: TransportErrorCode) {
    match (code.name(), code.0) {
        (Some(name), _) => o.text(key, &name.to_ascii_lowercase()),
        (None, alert @ 0x100..=0x1ff) => o.display(key, &format_args!("crypto_error_{alert:#05x}")),
        (None, code) => {
            o.text(key, "unknown");
            o.number("error_code", code);
        }
    }
}

#[cfg(test)]
mod tests;
