//! Connection IDs the peer issued for a path.

use super::Delivery;
use crate::error::TransportError;
use anabranch_wire::frame::NewConnectionId;
use anabranch_wire::{ConnectionId, ResetToken, TransportErrorCode};
use smallvec::SmallVec;
use std::ops::Range;

/// Retirements that may wait for the peer's acknowledgement, whatever our limit on connection IDs;
/// a peer that makes us queue more is not playing by the rules (RFC 9000, section 5.1.2).
const MIN_PENDING_RETIREMENTS: usize = 16;

/// Gaps tolerated between the sequence numbers seen. Honest peers count by one, so gaps are frames
/// that were lost or overtaken and fill up again.
const MAX_GAPS: usize = 32;

#[derive(Debug, Clone, Copy)]
struct RemoteCid {
    sequence: u64,
    cid: ConnectionId,
    token: Option<ResetToken>,
}

/// The connection IDs one path may put on its packets.
#[derive(Debug, Clone, Default)]
pub struct RemoteCids {
    /// Ascending by sequence number.
    live: SmallVec<[RemoteCid; 4]>,
    /// Sequence number of the one in use.
    active: Option<u64>,
    /// The largest `Retire Prior To`.
    retire_prior_to: u64,
    /// Sequence numbers seen, ascending and apart from each other.
    seen: SmallVec<[Range<u64>; 2]>,
    /// Frames that give connection IDs back, until they are acknowledged.
    retiring: SmallVec<[(u64, Delivery); 4]>,
}

impl RemoteCids {
    /// None known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The path of the handshake, whose first connection ID comes from the packets themselves.
    pub fn with_initial(cid: ConnectionId) -> Self {
        let mut cids = Self::new();
        cids.seen.push(0..1);
        cids.live.push(RemoteCid {
            sequence: 0,
            cid,
            token: None,
        });
        cids.active = Some(0);
        cids
    }

    /// The server chose its own connection ID, by its first packet or by Retry (RFC 9000, section
    /// 7.2).
    pub fn replace_initial(&mut self, cid: ConnectionId) {
        if let Some(entry) = self.live.iter_mut().find(|entry| entry.sequence == 0) {
            entry.cid = cid;
        }
    }

    /// The server's `stateless_reset_token` parameter: the token of connection ID 0.
    pub fn set_initial_token(&mut self, token: ResetToken) {
        if let Some(entry) = self.live.iter_mut().find(|entry| entry.sequence == 0) {
            entry.token = Some(token);
        }
    }

    /// The peer issued a connection ID; `limit` is the `active_connection_id_limit` we announced.
    /// Returns the sequence numbers that are retired by it. The active one may be among them: the
    /// lowest one left takes its place.
    ///
    /// Only this path is looked at. Whether the connection ID belongs to another path already, the
    /// caller has to check with [`contains`](Self::contains).
    ///
    /// # Errors
    /// Of RFC 9000, sections 5.1.1, 5.1.2 and 19.15: `FRAME_ENCODING_ERROR` for impossible fields,
    /// `PROTOCOL_VIOLATION` for a number or a connection ID that was used differently before or for
    /// a peer without connection IDs, `CONNECTION_ID_LIMIT_ERROR` for too many.
    pub fn on_new(
        &mut self,
        frame: &NewConnectionId,
        limit: u64,
    ) -> Result<SmallVec<[u64; 4]>, TransportError> {
        let mut retired = SmallVec::new();
        let known = self.check(frame)?;
        if known && frame.retire_prior_to <= self.retire_prior_to {
            return Ok(retired);
        }
        self.retire_prior_to = self.retire_prior_to.max(frame.retire_prior_to);
        let boundary = self.retire_prior_to;
        if !known {
            self.note_seen(frame.sequence)?;
            if frame.sequence < boundary {
                // Overtaken by the frame that retires it: given back unused.
                retired.push(frame.sequence);
            } else {
                self.insert(frame);
            }
        }
        self.retire_below(boundary, &mut retired);
        if self.live.len() as u64 > limit {
            return Err(limit_error("more connection IDs on a path than announced"));
        }
        let most = usize::try_from(limit.saturating_mul(2)).unwrap_or(usize::MAX);
        if self.retiring.len() + retired.len() > most.clamp(MIN_PENDING_RETIREMENTS, 256) {
            return Err(limit_error(
                "more connection IDs to retire than acknowledged",
            ));
        }
        self.retiring
            .extend(retired.iter().map(|sequence| (*sequence, Delivery::Due)));
        Ok(retired)
    }

    /// Whether the number was seen before; an error if the frame is not acceptable.
    fn check(&self, frame: &NewConnectionId) -> Result<bool, TransportError> {
        if frame.retire_prior_to > frame.sequence || frame.cid.is_empty() {
            return Err(TransportError::new(
                TransportErrorCode::FRAME_ENCODING_ERROR,
                "impossible fields in a frame that issues a connection ID",
            ));
        }
        if self.live.iter().any(|entry| entry.cid.is_empty()) {
            return Err(TransportError::violation(
                "issues connection IDs but does without",
            ));
        }
        for entry in &self.live {
            let same_sequence = entry.sequence == frame.sequence;
            let same_cid = entry.cid == frame.cid;
            if same_sequence != same_cid {
                return Err(TransportError::violation(
                    "reuses a connection ID or its number",
                ));
            }
            if same_sequence && entry.token.is_some_and(|token| token != frame.reset_token) {
                return Err(TransportError::violation("changes a stateless reset token"));
            }
        }
        Ok(self
            .seen
            .iter()
            .any(|range| range.contains(&frame.sequence)))
    }

    fn insert(&mut self, frame: &NewConnectionId) {
        let (sequence, cid) = (frame.sequence, frame.cid);
        let position = self.live.partition_point(|other| other.sequence < sequence);
        let entry = RemoteCid {
            sequence,
            cid,
            token: Some(frame.reset_token),
        };
        self.live.insert(position, entry);
    }

    /// Notes a sequence number that was not seen before.
    fn note_seen(&mut self, sequence: u64) -> Result<(), TransportError> {
        let at = self.seen.partition_point(|range| range.end < sequence);
        match self.seen.get_mut(at) {
            Some(range) if range.end == sequence => range.end += 1,
            Some(range) if range.start == sequence + 1 => range.start = sequence,
            _ => self.seen.insert(at, sequence..sequence + 1),
        }
        if at + 1 < self.seen.len() && self.seen[at].end == self.seen[at + 1].start {
            self.seen[at].end = self.seen[at + 1].end;
            self.seen.remove(at + 1);
        }
        if self.seen.len() > MAX_GAPS {
            return Err(limit_error("gaps between the numbers of connection IDs"));
        }
        Ok(())
    }

    fn retire_below(&mut self, boundary: u64, retired: &mut SmallVec<[u64; 4]>) {
        let count = self.live.partition_point(|entry| entry.sequence < boundary);
        retired.extend(self.live.drain(..count).map(|entry| entry.sequence));
        let active_is_live = self.position(self.active).is_some();
        if !active_is_live {
            self.active = self.live.first().map(|entry| entry.sequence);
        }
    }

    /// The connection ID to put on packets: number, bytes, and token if it has one. `None` if the
    /// peer has given none, or took the last one back.
    pub fn active(&self) -> Option<(u64, ConnectionId, Option<ResetToken>)> {
        let entry = &self.live[self.position(self.active)?];
        Some((entry.sequence, entry.cid, entry.token))
    }

    /// Whether there is an [active](Self::active) one.
    pub fn has_active(&self) -> bool {
        debug_assert_eq!(self.active.is_some(), self.active().is_some());
        self.active.is_some()
    }

    /// Whether there is one to rotate to.
    pub fn has_spare(&self) -> bool {
        self.live.len() > 1
    }

    /// The connection ID that [`rotate`](Self::rotate) would switch to.
    pub fn spare(&self) -> Option<ConnectionId> {
        Some(self.live[self.spare_position()?].cid)
    }

    /// Retires that one, if there is another spare. Returns whether it did.
    pub fn retire_spare(&mut self) -> bool {
        let Some(spare) = self.spare_position().filter(|_| self.live.len() > 2) else {
            return false;
        };
        let retired = self.live.remove(spare).sequence;
        self.retiring.push((retired, Delivery::Due));
        true
    }

    fn spare_position(&self) -> Option<usize> {
        let active = self.position(self.active).filter(|_| self.has_spare())?;
        Some((active + 1) % self.live.len())
    }

    /// Switches to a connection ID not used before and retires the old one, so that observers of
    /// two routes cannot link them. Returns the retired number, or `None` if there is no spare.
    pub fn rotate(&mut self) -> Option<u64> {
        let next = self.live[self.spare_position()?].sequence;
        let old = self.position(self.active)?;
        let retired = self.live.remove(old).sequence;
        self.active = Some(next);
        self.retiring.push((retired, Delivery::Due));
        Some(retired)
    }

    /// Whether the peer gave this connection ID to this path, and it is live.
    pub fn contains(&self, cid: &ConnectionId) -> bool {
        self.live.iter().any(|entry| entry.cid == *cid)
    }

    /// The tokens by which a stateless reset of this path is recognised: only that of the
    /// connection ID in use, for others must not match (RFC 9000, section 10.3.1). To be asked of
    /// open paths.
    pub fn tokens(&self) -> impl Iterator<Item = ResetToken> {
        self.active().and_then(|(_, _, token)| token).into_iter()
    }

    /// The number we expect the peer to give its next connection ID, for `PATH_CIDS_BLOCKED`.
    pub fn next_expected(&self) -> u64 {
        self.seen.last().map_or(0, |range| range.end)
    }

    /// The number the next frame has to give back.
    pub fn next_retirement(&self) -> Option<u64> {
        let due = |entry: &&(u64, Delivery)| entry.1 == Delivery::Due;
        self.retiring.iter().find(due).map(|entry| entry.0)
    }

    /// That frame was sent.
    pub fn on_retirement_sent(&mut self, sequence: u64) {
        self.set_retirement(sequence, Delivery::Sent);
    }

    /// That frame was lost and is sent again.
    pub fn on_retirement_lost(&mut self, sequence: u64) {
        self.set_retirement(sequence, Delivery::Due);
    }

    /// The peer has it back.
    pub fn on_retirement_acked(&mut self, sequence: u64) {
        self.retiring.retain(|entry| entry.0 != sequence);
    }

    fn set_retirement(&mut self, sequence: u64, delivery: Delivery) {
        if let Some(entry) = self.retiring.iter_mut().find(|entry| entry.0 == sequence) {
            entry.1 = delivery;
        }
    }

    fn position(&self, sequence: Option<u64>) -> Option<usize> {
        let sequence = sequence?;
        self.live
            .iter()
            .position(|entry| entry.sequence == sequence)
    }
}

fn limit_error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::CONNECTION_ID_LIMIT_ERROR, reason)
}

#[cfg(test)]
impl RemoteCids {
    pub(super) fn retiring_len(&self) -> usize {
        self.retiring.len()
    }

    pub(super) fn live_len(&self) -> usize {
        self.live.len()
    }
}
