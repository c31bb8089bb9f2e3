//! Connection IDs we issued for a path.

use super::Delivery;
use crate::error::TransportError;
use anabranch_wire::frame::NewConnectionId;
use anabranch_wire::{ConnectionId, PathId, ResetToken};
use smallvec::SmallVec;

/// A connection ID the peer may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalCid {
    /// Its number on this path.
    pub(crate) sequence: u64,
    /// The connection ID.
    pub(crate) cid: ConnectionId,
    /// Its stateless reset token.
    pub(crate) token: ResetToken,
    delivery: Delivery,
}

impl LocalCid {
    /// The frame that tells the peer. We never ask for older ones to be retired: they cost little
    /// and stay valid until the peer moves on.
    pub(crate) fn frame(&self, path: PathId) -> NewConnectionId {
        NewConnectionId {
            path,
            sequence: self.sequence,
            retire_prior_to: 0,
            cid: self.cid,
            reset_token: self.token,
        }
    }
}

/// The connection IDs we issued for one path, in ascending order of sequence numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalCids {
    live: SmallVec<[LocalCid; 2]>,
    next: u64,
    /// The number behind the highest that the peer was told of.
    told: u64,
}

impl LocalCids {
    /// None issued yet.
    pub(crate) fn new() -> Self {
        Self {
            live: SmallVec::new(),
            next: 0,
            told: 0,
        }
    }

    /// Adds a connection ID and queues the frame that announces it. Returns its sequence number.
    pub(crate) fn issue(&mut self, cid: ConnectionId, token: ResetToken) -> u64 {
        self.add(cid, token, Delivery::Due)
    }

    /// Adds a connection ID that the peer learns by other means than a frame: the handshake's, or
    /// the preferred address's. Returns its sequence number.
    pub(crate) fn adopt(&mut self, cid: ConnectionId, token: ResetToken) -> u64 {
        let sequence = self.add(cid, token, Delivery::Done);
        self.told = self.told.max(sequence + 1);
        sequence
    }

    fn add(&mut self, cid: ConnectionId, token: ResetToken, delivery: Delivery) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.live.push(LocalCid {
            sequence,
            cid,
            token,
            delivery,
        });
        sequence
    }

    /// The peer retires a connection ID. Returns it if it was live, so that routing can forget it.
    ///
    /// # Errors
    /// `PROTOCOL_VIOLATION` for a sequence number that was never sent (RFC 9000, section 19.16).
    /// What was issued and still waits to be sent is as unknown to the peer as what was not issued:
    /// or one packet could retire as many as it has room for frames, each of which is replaced.
    pub(crate) fn on_retire(
        &mut self,
        sequence: u64,
    ) -> Result<Option<ConnectionId>, TransportError> {
        if sequence >= self.told {
            return Err(TransportError::violation(
                "retires a connection ID that was never sent",
            ));
        }
        let position = self.position(sequence);
        Ok(position.map(|position| self.live.remove(position).cid))
    }

    /// What the peer may use.
    pub(crate) fn live(&self) -> impl ExactSizeIterator<Item = &LocalCid> {
        self.live.iter()
    }

    /// The number the next connection ID gets.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next
    }

    /// The first connection ID to announce.
    pub(crate) fn next_to_send(&self) -> Option<&LocalCid> {
        self.live
            .iter()
            .find(|entry| entry.delivery == Delivery::Due)
    }

    /// The first connection ID, announced or not, if the peer is not known to have any.
    pub(crate) fn first_unconfirmed(&self) -> Option<&LocalCid> {
        let mut live = self.live.iter();
        let has_none = live.all(|entry| entry.delivery != Delivery::Done);
        self.live.first().filter(|_| has_none)
    }

    /// Its frame was sent.
    pub(crate) fn on_sent(&mut self, sequence: u64) {
        self.told = self.told.max(sequence + 1);
        self.set(sequence, Delivery::Sent);
    }

    /// Its frame was lost: it is announced again, unless the peer has it or gave it back.
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        if self
            .position(sequence)
            .is_some_and(|at| self.live[at].delivery == Delivery::Sent)
        {
            self.set(sequence, Delivery::Due);
        }
    }

    /// The peer has it.
    pub(crate) fn on_acked(&mut self, sequence: u64) {
        self.set(sequence, Delivery::Done);
    }

    fn set(&mut self, sequence: u64, delivery: Delivery) {
        if let Some(position) = self.position(sequence) {
            self.live[position].delivery = delivery;
        }
    }

    fn position(&self, sequence: u64) -> Option<usize> {
        self.live
            .iter()
            .position(|entry| entry.sequence == sequence)
    }
}
