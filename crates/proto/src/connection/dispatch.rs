//! Each frame to its owner: one call for each match arm.

use super::receive::Arrival;
use super::{Connection, LastData};
use crate::error::TransportError;
use crate::packet::{Extensions, check_place};
use crate::time::Instant;
use crate::wire::frame::{Frame, FrameType};
use crate::wire::{PathId, TransportErrorCode};

impl Connection {
    /// Hands a frame to the part it is for. An error closes the connection.
    pub(super) fn dispatch(
        &mut self,
        arrival: &Arrival,
        frame_type: FrameType,
        frame: Frame<'_>,
    ) -> Result<(), TransportError> {
        let Arrival { now, level, .. } = *arrival;
        let extensions = Extensions {
            ack_frequency: self.config.ack_frequency.accept,
            multipath: self.paths.largest_of_peer(),
        };
        check_place(level, frame_type, &frame, extensions)?;
        match frame {
            // The answer to IMMEDIATE_ACK is due when the whole packet has been read.
            Frame::Padding { .. } | Frame::Ping | Frame::ImmediateAck => Ok(()),
            Frame::Ack(ack) => self.on_ack(arrival, &ack),
            Frame::Crypto { offset, data } => self.on_crypto(now, level, offset, data),
            Frame::Stream(stream) => {
                if self.streams.on_stream(&stream)? {
                    self.last_data = LastData {
                        at: now,
                        by: Some(arrival.path),
                    };
                }
                Ok(())
            }
            Frame::ResetStream {
                id,
                code,
                final_size,
            } => self.streams.on_reset_stream(id, code, final_size),
            Frame::StopSending { id, code } => self.streams.on_stop_sending(id, code),
            Frame::MaxData { limit } => {
                self.placement.on_credit();
                self.streams.on_max_data(limit);
                Ok(())
            }
            Frame::MaxStreamData { id, limit } => {
                self.placement.on_credit();
                self.streams.on_max_stream_data(id, limit)
            }
            Frame::MaxStreams { dir, limit } => {
                self.streams.on_max_streams(dir, limit);
                Ok(())
            }
            Frame::DataBlocked { limit } => {
                self.streams.on_data_blocked(limit);
                Ok(())
            }
            Frame::StreamDataBlocked { id, limit } => {
                self.streams.on_stream_data_blocked(id, limit)
            }
            Frame::StreamsBlocked { dir, limit } => {
                self.streams.on_streams_blocked(dir, limit);
                Ok(())
            }
            Frame::Datagram { data } => self.streams.on_datagram(arrival.path, data),
            Frame::NewToken { token } => self.on_new_token(token),
            Frame::HandshakeDone => self.on_handshake_done(now),
            Frame::Timestamp { time } => self.on_timestamp(time),
            Frame::AckFrequency(wish) => self.on_ack_frequency(now, &wish),
            Frame::ConnectionClose(close) => {
                self.on_connection_close(now, &close);
                Ok(())
            }
            path_frame => self.dispatch_path(arrival, &path_frame),
        }
    }

    /// Frames about paths and their connection IDs.
    fn dispatch_path(
        &mut self,
        arrival: &Arrival,
        frame: &Frame<'_>,
    ) -> Result<(), TransportError> {
        let Arrival { now, path, .. } = *arrival;
        match *frame {
            Frame::PathChallenge { data } => {
                self.on_path_challenge(arrival, data);
                Ok(())
            }
            Frame::PathResponse { data } => {
                self.on_path_response(now, path, data);
                Ok(())
            }
            Frame::NewConnectionId(ref new) => self.on_new_connection_id(new),
            Frame::RetireConnectionId { path, sequence } => {
                self.on_retire_connection_id(path, sequence)
            }
            Frame::PathAbandon { path, code } => self.on_path_abandon(now, path, code),
            Frame::PathStatus {
                path,
                sequence,
                status,
            } => {
                self.on_path_status(path, sequence, status);
                Ok(())
            }
            Frame::MaxPathId { limit } => self.on_max_path_id(now, limit),
            Frame::PathsBlocked { limit } => self.paths.on_paths_blocked(limit),
            Frame::PathCidsBlocked {
                path,
                next_sequence,
            } => self.on_path_cids_blocked(path, next_sequence),
            _ => Ok(()),
        }
    }

    /// Whether frames of the multipath extension may be sent: it is negotiated, and the handshake
    /// is complete at least for the peer when it reads them.
    pub(super) fn multipath_active(&self) -> bool {
        self.paths.is_multipath() && self.may_send_one_rtt()
    }

    fn on_new_token(&mut self, token: &[u8]) -> Result<(), TransportError> {
        if self.identity.side().is_server() {
            return Err(TransportError::violation("NEW_TOKEN from a client"));
        }
        if token.is_empty() {
            return Err(TransportError::new(
                TransportErrorCode::FRAME_ENCODING_ERROR,
                "an empty token",
            ));
        }
        self.identity.keep_token(token);
        Ok(())
    }

    fn on_max_path_id(&mut self, now: Instant, limit: PathId) -> Result<(), TransportError> {
        if self.paths.on_max_path_id(limit)? {
            self.issue_cids();
            self.note_capacity(now);
        }
        Ok(())
    }
}
