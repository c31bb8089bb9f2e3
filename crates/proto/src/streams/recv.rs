//! The receiving half of a stream (RFC 9000, section 3.2).
//!
//! ```text
//! Receiving --FIN and all bytes--> read to the end ------------+
//!     |  \---RESET_STREAM--------> Reset -- read by the app ---+--> forgotten
//!     \------stop by the app-----> Stopped -- final size known +
//! ```
//! "Size known" and "data received" of the RFC are not states of their own here: they are
//! `final_size` and what the reassembly holds.

use super::flow::{Grant, Inbound, Tuning};
use super::reassembly::{Inserted, Reassembly};
use super::{Limits, ReadError};
use crate::error::TransportError;
use anabranch_wire::TransportErrorCode;
use bytes::Bytes;

/// An application that leaves up to this part of the window unread keeps up with what arrives: more
/// comes between the event that tells of data and its read.
const KEEPS_UP_PART: u64 = 8;

#[derive(Debug)]
pub(super) struct Recv {
    buf: Reassembly,
    /// Offset behind the highest byte received.
    highest: u64,
    final_size: Option<u64>,
    pub(super) grant: Grant,
    state: State,
    /// The application found nothing to read and waits to be told.
    pub(super) wants_read: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Receiving,
    /// The application wants no more; bytes are counted and dropped.
    Stopped {
        code: u64,
    },
    /// The peer gave up; the application has not seen it yet.
    Reset {
        code: u64,
    },
}

/// What a frame did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Arrival {
    pub(super) inserted: Inserted,
    /// Bytes that nobody will read: their credit goes back.
    pub(super) discarded: u64,
}

/// What a read did.
#[derive(Debug)]
pub(super) enum Read {
    Data {
        bytes: Bytes,
        announce: bool,
    },
    /// The end: the half is done.
    End,
    /// The peer's reset, seen now: the half is done.
    Reset {
        code: u64,
    },
    Blocked,
}

impl Recv {
    pub(super) fn new(limits: &Limits, tuning: Tuning) -> Self {
        let window = limits.stream_receive_window;
        Self {
            buf: Reassembly::default(),
            highest: 0,
            final_size: None,
            grant: Grant::new(
                window,
                limits.max_stream_receive_window,
                limits.credit_update,
                tuning.now,
            ),
            state: State::Receiving,
            wants_read: true,
        }
    }

    /// A `STREAM` frame.
    pub(super) fn on_data(
        &mut self,
        offset: u64,
        data: &[u8],
        fin: bool,
        connection: &mut Inbound,
    ) -> Result<Arrival, TransportError> {
        let end = offset + data.len() as u64;
        self.check_size(end, fin)?;
        let beyond = self.count(end, connection)?;
        if fin {
            self.final_size = Some(end);
        }
        match self.state {
            State::Receiving => {
                let inserted = self.buf.insert(offset, data);
                Ok(Arrival {
                    inserted,
                    discarded: 0,
                })
            }
            State::Stopped { .. } => {
                self.grant.on_discarded(beyond);
                Ok(Arrival {
                    discarded: beyond,
                    ..Arrival::default()
                })
            }
            // All credit was returned when the reset arrived, and nothing lies beyond the final
            // size.
            State::Reset { .. } => Ok(Arrival::default()),
        }
    }

    /// A `RESET_STREAM` frame; returns the bytes nobody will read.
    pub(super) fn on_reset(
        &mut self,
        code: u64,
        final_size: u64,
        connection: &mut Inbound,
    ) -> Result<u64, TransportError> {
        self.check_size(final_size, true)?;
        self.count(final_size, connection)?;
        // With all bytes here the reset came too late to matter (RFC 9000, section 3.2).
        let complete = self.final_size.is_some() && self.buf.ready() == final_size;
        self.final_size = Some(final_size);
        match self.state {
            State::Receiving if complete => Ok(0),
            State::Reset { .. } => Ok(0),
            State::Receiving => {
                self.state = State::Reset { code };
                Ok(self.discard())
            }
            State::Stopped { .. } => Ok(self.discard()),
        }
    }

    /// Checks an offset behind received bytes against the final size (RFC 9000, section 4.5).
    fn check_size(&self, end: u64, is_final: bool) -> Result<(), TransportError> {
        let reason = match self.final_size {
            Some(size) if end > size => "data beyond the final size of its stream",
            Some(size) if is_final && end != size => "the final size of a stream changed",
            None if is_final && end < self.highest => "a final size below data received before",
            _ => return Ok(()),
        };
        Err(TransportError::new(
            TransportErrorCode::FINAL_SIZE_ERROR,
            reason,
        ))
    }

    /// Counts bytes up to `end` against both limits; returns how many are new.
    fn count(&mut self, end: u64, connection: &mut Inbound) -> Result<u64, TransportError> {
        if end > self.grant.advertised() {
            return Err(TransportError::new(
                TransportErrorCode::FLOW_CONTROL_ERROR,
                "more data than the stream's limit",
            ));
        }
        let beyond = end.saturating_sub(self.highest);
        connection.receive(beyond)?;
        self.highest += beyond;
        Ok(beyond)
    }

    /// Drops what is buffered; returns the bytes whose credit was not returned before.
    fn discard(&mut self) -> u64 {
        self.buf.clear();
        let rest = self.highest - self.grant.consumed();
        self.grant.on_discarded(rest);
        rest
    }

    /// The next bytes for the application.
    ///
    /// The stream's window grows to `most` at most.
    pub(super) fn read(
        &mut self,
        max: usize,
        most: u64,
        tuning: Tuning,
    ) -> Result<Read, ReadError> {
        match self.state {
            State::Receiving => {}
            State::Stopped { .. } => return Err(ReadError::Closed),
            State::Reset { code } => return Ok(Read::Reset { code }),
        }
        if let Some(bytes) = self.buf.read(max) {
            self.grant.on_read(bytes.len() as u64, most, tuning);
            let announce = self.grant.is_due() && self.wants_credit();
            return Ok(Read::Data { bytes, announce });
        }
        if self.final_size == Some(self.buf.start()) {
            return Ok(Read::End);
        }
        if max > 0 {
            self.wants_read = true;
        }
        Ok(Read::Blocked)
    }

    /// Whether a read would yield anything.
    pub(super) fn is_readable(&self) -> bool {
        match self.state {
            State::Receiving => self.buf.is_readable() || self.final_size == Some(self.buf.start()),
            State::Stopped { .. } => false,
            State::Reset { .. } => true,
        }
    }

    /// The application wants no more; returns the bytes nobody will read.
    pub(super) fn stop(&mut self, code: u64) -> Result<u64, super::ClosedStream> {
        match self.state {
            State::Stopped { .. } => Err(super::ClosedStream),
            State::Receiving | State::Reset { .. } => {
                self.state = State::Stopped { code };
                Ok(self.discard())
            }
        }
    }

    /// Whether nothing is left to learn: the application stopped, and the final size is known.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Stopped { .. }) && self.final_size.is_some()
    }

    /// Whether the peer still needs stream credit to send all there is.
    pub(super) fn wants_credit(&self) -> bool {
        self.state == State::Receiving && self.final_size.is_none()
    }

    /// The code to stop the peer with, while it matters.
    pub(super) fn stop_code(&self) -> Option<u64> {
        match self.state {
            State::Stopped { code } if self.final_size.is_none() => Some(code),
            _ => None,
        }
    }

    /// Whether a gap keeps the application from reading. An application that is slow still has
    /// data to read before the gap. A window that cannot grow was meant to be as it is.
    pub(super) fn is_held_up(&self) -> bool {
        self.out_of_order() > 0
            && self.state == State::Receiving
            && self.grant.can_grow()
            && self.buf.ready() - self.buf.start() <= self.grant.window() / KEEPS_UP_PART
    }

    /// Bytes that wait behind a gap.
    pub(super) fn out_of_order(&self) -> u64 {
        self.buf.out_of_order()
    }
}
