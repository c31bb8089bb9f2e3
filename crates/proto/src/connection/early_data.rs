//! Data before the end of the handshake (RFC 9001, section 4.6): sent by a client that resumes,
//! read by a server that remembers it.
//!
//! 0-RTT packets belong to path 0 and share its packet number space, so acknowledgement and loss
//! need nothing of their own. What is special is the beginning, with limits of an earlier
//! connection, and a refusal: then nothing arrived, and everything goes again as 1-RTT. Nothing of
//! the multipath extension travels in 0-RTT packets.

use super::Connection;
use crate::error::TransportError;
use crate::event::Event;
use crate::handshake::Level;
use crate::recovery::SentPacket;
use crate::recovery::sent::SentFrame;
use crate::resumption::{Remembered, ResumptionState};
use crate::time::Instant;
use crate::wire::PathId;
use crate::wire::params::TransportParameters;

/// What became of early data.
#[derive(Debug, Default)]
pub(super) enum EarlyData {
    /// No early data was sent or received so far.
    #[default]
    None,
    /// A client may send it, within the limits of an earlier connection.
    Offered(Box<Remembered>),
    /// The server reads it.
    Accepted,
    /// The server did not read it.
    Rejected,
}

impl Connection {
    /// The level at which data can be sent now.
    pub(super) fn data_level(&self) -> Option<Level> {
        if self.may_send_one_rtt() {
            Some(Level::OneRtt)
        } else if self.may_send_early_data() {
            Some(Level::ZeroRtt)
        } else {
            None
        }
    }

    /// Whether a client may write although the handshake is not complete. What is sent now an
    /// attacker can have the server read twice.
    pub fn may_send_early_data(&self) -> bool {
        self.identity.side().is_client()
            && !self.handshake.is_complete()
            && self.handshake.has_keys(Level::ZeroRtt)
    }

    /// Whether the server read early data: `None` if there is none, or while that is not known.
    pub fn early_data_accepted(&self) -> Option<bool> {
        match self.early_data {
            EarlyData::None | EarlyData::Offered(_) => None,
            EarlyData::Accepted => Some(true),
            EarlyData::Rejected => Some(false),
        }
    }

    /// Whether the TLS session is one of an earlier connection.
    pub fn is_resumed(&self) -> bool {
        self.handshake.is_resumed()
    }

    /// What a later connection can be resumed from, after [`Event::Resumable`]. Each call yields
    /// another state, as long as there are some; each is good once. What paths carried is in the
    /// first one that is taken after they did.
    pub fn take_resumption(&mut self) -> Option<ResumptionState> {
        let session = self.handshake.take_session()?;
        let paths = self.take_known_paths();
        let state = ResumptionState {
            server_name: self.identity.server_name().to_owned(),
            session,
            remembered: Remembered::of(self.identity.peer()),
            token: self.identity.take_token().unwrap_or_default(),
            paths,
        };
        state.if_storable()
    }

    /// Lets the application write at once, if the resumed session permits it.
    pub(crate) fn offer_early_data(&mut self, remembered: Remembered) {
        let params = remembered.params();
        self.streams.on_peer_params(params);
        if let Some(path) = self.paths.path_mut(PathId::ZERO) {
            path.set_peer_limit(params.max_udp_payload_size);
        }
        self.early_data = EarlyData::Offered(Box::new(remembered));
    }

    /// A server's keys for early data came with the client's first message.
    pub(super) fn note_early_keys(&mut self, now: Instant) {
        let is_new = matches!(self.early_data, EarlyData::None);
        if self.identity.side().is_server() && is_new && self.handshake.has_keys(Level::ZeroRtt) {
            self.early_data = EarlyData::Accepted;
            self.outbox.tell(Event::EarlyDataAccepted);
            self.replay_undecryptable(now);
        }
    }

    /// The server's answer tells a client whether early data was read.
    pub(super) fn settle_early_data(
        &mut self,
        params: &TransportParameters,
    ) -> Result<(), TransportError> {
        let EarlyData::Offered(remembered) = &self.early_data else {
            return Ok(());
        };
        if !self.handshake.is_early_data_accepted() {
            self.early_data = EarlyData::Rejected;
            return self.send_early_data_again(params);
        }
        if Remembered::of(params).reduces(remembered) {
            // RFC 9000, section 7.4.1.
            return Err(TransportError::violation(
                "limits below those that early data was accepted under",
            ));
        }
        self.early_data = EarlyData::Accepted;
        Ok(())
    }

    /// Nothing of it arrived: streams begin anew, within the limits that the server has now.
    fn send_early_data_again(
        &mut self,
        params: &TransportParameters,
    ) -> Result<(), TransportError> {
        for packet in self.forget_early_packets() {
            let frames = packet.frames.iter();
            for frame in frames.filter(|frame| !matches!(frame, SentFrame::Stream { .. })) {
                self.on_frame_lost(Level::OneRtt, PathId::ZERO, frame);
            }
        }
        self.streams.restart(params)?;
        self.placement.on_credit();
        Ok(())
    }

    /// A Retry means that the server kept nothing of what was sent.
    pub(super) fn repeat_early_data(&mut self) {
        for packet in self.forget_early_packets() {
            for frame in &packet.frames {
                self.on_frame_lost(Level::OneRtt, PathId::ZERO, frame);
            }
        }
        self.placement.on_credit();
    }

    /// Takes 0-RTT packets off the route's account. That they are lost says nothing about
    /// congestion; their numbers are spent (RFC 9000, section 17.2.5.3).
    fn forget_early_packets(&mut self) -> Vec<SentPacket> {
        let Some(path) = self.paths.path_mut(PathId::ZERO) else {
            return Vec::new();
        };
        let sent = path.forget_data();
        sent.into_iter().map(|(_, packet)| packet).collect()
    }

    /// Tells a client's application what became of early data, now that the server is known to be
    /// the one that answered; has a server read late 0-RTT packets for a while.
    pub(super) fn conclude_early_data(&mut self, now: Instant) {
        if self.identity.side().is_server() {
            let until = now + self.three_pto();
            self.handshake.discard_early_at(until);
            return;
        }
        match self.early_data {
            EarlyData::Accepted => self.outbox.tell(Event::EarlyDataAccepted),
            EarlyData::Rejected => self.outbox.tell(Event::EarlyDataRejected),
            EarlyData::None | EarlyData::Offered(_) => {}
        }
    }

    /// Tells the application of a session to keep.
    pub(super) fn note_session(&mut self, had_one: bool) {
        if !had_one && self.handshake.has_session() {
            self.outbox.tell(Event::Resumable);
        }
    }
}
