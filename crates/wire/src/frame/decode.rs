//! Decoding of frames.

use super::stream::check_end;
use super::{
    Ack, AckFrequency, ConnectionClose, Frame, FrameError, FrameErrorKind, FrameType,
    NewConnectionId, PathStatus, Stream,
};
use crate::cid::{ConnectionId, ResetToken};
use crate::cursor::Reader;
use crate::id::{Dir, PathId, StreamId};
use crate::varint;

/// The largest stream count: more would require stream IDs above 2^62 − 1 (RFC 9000, section 4.6).
pub const MAX_STREAM_COUNT: u64 = 1 << 60;

/// Reads one frame, or one run of padding, from a packet's payload.
///
/// Checks everything that can be checked without the connection. After an error the reader's
/// position is meaningless: the connection has to be closed.
pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<(FrameType, Frame<'a>), FrameError> {
    let before = reader.remaining();
    let Ok(frame_type) = reader.varint() else {
        return Err(FrameError {
            frame_type: 0,
            kind: FrameErrorKind::UnexpectedEnd,
        });
    };
    let failed = |kind| FrameError { frame_type, kind };
    if before - reader.remaining() != varint::size(frame_type) {
        return Err(failed(FrameErrorKind::LongType));
    }
    let frame = match frame_type {
        0x00..=0x1e => decode_basic(reader, frame_type),
        0x30 => Ok(Frame::Datagram {
            data: reader.rest(),
        }),
        0x31 => datagram(reader),
        0x3e | 0x3f | 0x3e75..=0x3e7c => decode_multipath(reader, frame_type),
        0x1f => Ok(Frame::ImmediateAck),
        0xaf => ack_frequency(reader),
        0x02f5 => timestamp(reader),
        _ => Err(FrameErrorKind::Unknown),
    };
    frame
        .map(|frame| (FrameType(frame_type), frame))
        .map_err(failed)
}

/// Frames of RFC 9000.
fn decode_basic<'a>(reader: &mut Reader<'a>, frame_type: u64) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(match frame_type {
        0x00 => Frame::Padding {
            length: 1 + reader.skip_zeros(),
        },
        0x01 => Frame::Ping,
        0x02 | 0x03 => Frame::Ack(Ack::decode(reader, PathId::ZERO, frame_type == 0x03)?),
        0x04 => Frame::ResetStream {
            id: StreamId(reader.varint()?),
            code: reader.varint()?,
            final_size: reader.varint()?,
        },
        0x05 => Frame::StopSending {
            id: StreamId(reader.varint()?),
            code: reader.varint()?,
        },
        0x06 => {
            let offset = reader.varint()?;
            let data = reader.length_prefixed()?;
            check_end(offset, data)?;
            Frame::Crypto { offset, data }
        }
        0x07 => match reader.length_prefixed()? {
            [] => return Err(FrameErrorKind::Invalid("an empty token")),
            token => Frame::NewToken { token },
        },
        0x08..=0x0f => Frame::Stream(Stream::decode(reader, frame_type)?),
        0x10 => Frame::MaxData {
            limit: reader.varint()?,
        },
        0x11 => Frame::MaxStreamData {
            id: StreamId(reader.varint()?),
            limit: reader.varint()?,
        },
        0x12 | 0x13 => Frame::MaxStreams {
            dir: dir(frame_type),
            limit: stream_count(reader)?,
        },
        0x14 => Frame::DataBlocked {
            limit: reader.varint()?,
        },
        0x15 => Frame::StreamDataBlocked {
            id: StreamId(reader.varint()?),
            limit: reader.varint()?,
        },
        0x16 | 0x17 => Frame::StreamsBlocked {
            dir: dir(frame_type),
            limit: stream_count(reader)?,
        },
        0x18 => Frame::NewConnectionId(new_connection_id(reader, PathId::ZERO)?),
        0x19 => Frame::RetireConnectionId {
            path: PathId::ZERO,
            sequence: reader.varint()?,
        },
        0x1a => Frame::PathChallenge {
            data: reader.array()?,
        },
        0x1b => Frame::PathResponse {
            data: reader.array()?,
        },
        0x1c | 0x1d => Frame::ConnectionClose(connection_close(reader, frame_type == 0x1d)?),
        0x1e => Frame::HandshakeDone,
        _ => return Err(FrameErrorKind::Unknown),
    })
}

/// Frames of RFC 10069.
fn decode_multipath<'a>(
    reader: &mut Reader<'a>,
    frame_type: u64,
) -> Result<Frame<'a>, FrameErrorKind> {
    let path = path_id(reader)?;
    Ok(match frame_type {
        0x3e | 0x3f => Frame::Ack(Ack::decode(reader, path, frame_type == 0x3f)?),
        0x3e75 => Frame::PathAbandon {
            path,
            code: reader.varint()?,
        },
        0x3e76 => path_status(reader, path, PathStatus::Backup)?,
        0x3e77 => path_status(reader, path, PathStatus::Available)?,
        0x3e78 => Frame::NewConnectionId(new_connection_id(reader, path)?),
        0x3e79 => Frame::RetireConnectionId {
            path,
            sequence: reader.varint()?,
        },
        0x3e7a => Frame::MaxPathId { limit: path },
        0x3e7b => Frame::PathsBlocked { limit: path },
        0x3e7c => Frame::PathCidsBlocked {
            path,
            next_sequence: reader.varint()?,
        },
        _ => return Err(FrameErrorKind::Unknown),
    })
}

fn timestamp<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(Frame::Timestamp {
        time: reader.varint()?,
    })
}

fn ack_frequency<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(Frame::AckFrequency(AckFrequency {
        sequence: reader.varint()?,
        ack_eliciting_threshold: reader.varint()?,
        max_ack_delay_us: reader.varint()?,
        reordering_threshold: reader.varint()?,
    }))
}

fn datagram<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(Frame::Datagram {
        data: reader.length_prefixed()?,
    })
}

fn path_id(reader: &mut Reader<'_>) -> Result<PathId, FrameErrorKind> {
    u32::try_from(reader.varint()?)
        .map(PathId)
        .map_err(|_| FrameErrorKind::PathIdTooLarge)
}

fn path_status<'a>(
    reader: &mut Reader<'a>,
    path: PathId,
    status: PathStatus,
) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(Frame::PathStatus {
        path,
        sequence: reader.varint()?,
        status,
    })
}

fn dir(frame_type: u64) -> Dir {
    if frame_type & 1 == 0 {
        Dir::Bi
    } else {
        Dir::Uni
    }
}

fn stream_count(reader: &mut Reader<'_>) -> Result<u64, FrameErrorKind> {
    match reader.varint()? {
        count @ 0..=MAX_STREAM_COUNT => Ok(count),
        _ => Err(FrameErrorKind::Invalid("more than 2^60 streams")),
    }
}

fn new_connection_id(
    reader: &mut Reader<'_>,
    path: PathId,
) -> Result<NewConnectionId, FrameErrorKind> {
    let sequence = reader.varint()?;
    let retire_prior_to = reader.varint()?;
    if retire_prior_to > sequence {
        return Err(FrameErrorKind::Invalid(
            "Retire Prior To above the sequence number",
        ));
    }
    let length = reader.u8()?;
    let cid = match ConnectionId::new(reader.bytes(usize::from(length))?) {
        Some(cid) if !cid.is_empty() => cid,
        _ => {
            return Err(FrameErrorKind::Invalid(
                "a connection ID not of 1 to 20 bytes",
            ));
        }
    };
    let reset_token = ResetToken(reader.array()?);
    Ok(NewConnectionId {
        path,
        sequence,
        retire_prior_to,
        cid,
        reset_token,
    })
}

fn connection_close<'a>(
    reader: &mut Reader<'a>,
    application: bool,
) -> Result<ConnectionClose<'a>, FrameErrorKind> {
    let code = reader.varint()?;
    let frame_type = if application { 0 } else { reader.varint()? };
    let reason = reader.length_prefixed()?;
    Ok(ConnectionClose {
        application,
        code,
        frame_type,
        reason,
    })
}
