//! Connection IDs the peer issued for a path.

use super::Delivery;
use crate::datagram::Tuple;
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

/// What packets by the route before a move are addressed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// What they were addressed to all the time.
    Own(u64),
    /// What the present route uses too: there was no other one (RFC 9000, section 9.5, allows that
    /// where the peer shows up elsewhere without asking for another).
    Shared,
}

/// The connection IDs one path may put on its packets.
///
/// Each belongs to one address, so that nobody who sees both can link them (RFC 9000, section 9.5):
/// the path's, the one it was at before while it is not settled where it is, and the one that asked
/// last without being either.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemoteCids {
    /// Ascending by sequence number.
    live: SmallVec<[RemoteCid; 2]>,
    /// Sequence number of the one in use.
    active: Option<u64>,
    /// Set while the route before a move is kept.
    kept: Option<Kept>,
    /// The one that answered an address the path is not at.
    shown: Option<Box<(u64, Tuple)>>,
    /// The largest `Retire Prior To`.
    retire_prior_to: u64,
    /// Sequence numbers seen, ascending and apart from each other.
    seen: SmallVec<[Range<u64>; 1]>,
    /// Frames that give connection IDs back, until they are acknowledged.
    retiring: SmallVec<[(u64, Delivery); 1]>,
}

impl RemoteCids {
    /// None known yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The path of the handshake, whose first connection ID comes from the packets themselves.
    pub(crate) fn with_initial(cid: ConnectionId) -> Self {
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
    pub(crate) fn replace_initial(&mut self, cid: ConnectionId) {
        if let Some(entry) = self.live.iter_mut().find(|entry| entry.sequence == 0) {
            entry.cid = cid;
        }
    }

    /// The server's `stateless_reset_token` parameter: the token of connection ID 0.
    pub(crate) fn set_initial_token(&mut self, token: ResetToken) {
        if let Some(entry) = self.live.iter_mut().find(|entry| entry.sequence == 0) {
            entry.token = Some(token);
        }
    }

    /// The peer issued a connection ID; `limit` is the `active_connection_id_limit` we announced.
    /// Returns the sequence numbers that are retired by it. The active one may be among them: the
    /// lowest one left takes its place, rather one that no other address has seen.
    ///
    /// Only this path is looked at. Whether the connection ID belongs to another path already, the
    /// caller has to check with [`contains`](Self::contains).
    ///
    /// # Errors
    /// Of RFC 9000, sections 5.1.1, 5.1.2 and 19.15: `FRAME_ENCODING_ERROR` for impossible fields,
    /// `PROTOCOL_VIOLATION` for a number or a connection ID that was used differently before or for
    /// a peer without connection IDs, `CONNECTION_ID_LIMIT_ERROR` for too many.
    pub(crate) fn on_new(
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
        if self
            .shown()
            .is_some_and(|(shown, _)| self.position(Some(shown)).is_none())
        {
            self.shown = None;
        }
        let active_is_live = self.position(self.active).is_some();
        if !active_is_live {
            self.active = None;
            self.active = self.unused().or_else(|| self.share());
        }
    }

    /// One that another address has seen: to be linked is better than to be mute.
    fn share(&mut self) -> Option<u64> {
        if let Some(shown) = self.shown.take() {
            return Some(shown.0);
        }
        match self.kept {
            Some(Kept::Own(sequence)) if self.position(Some(sequence)).is_some() => {
                self.kept = Some(Kept::Shared);
                Some(sequence)
            }
            _ => None,
        }
    }

    /// The connection ID to put on packets: number, bytes, and token if it has one. `None` if the
    /// peer has given none, or took the last one back.
    pub(crate) fn active(&self) -> Option<(u64, ConnectionId, Option<ResetToken>)> {
        let entry = &self.live[self.position(self.active)?];
        Some((entry.sequence, entry.cid, entry.token))
    }

    /// Whether there is an [active](Self::active) one.
    pub(crate) fn has_active(&self) -> bool {
        debug_assert_eq!(self.active.is_some(), self.active().is_some());
        self.active.is_some()
    }

    /// Whether there is one that no address has seen.
    pub(crate) fn has_spare(&self) -> bool {
        self.unused().is_some()
    }

    /// The one that was shown to an address the path is not at, and that address.
    fn shown(&self) -> Option<(u64, Tuple)> {
        self.shown.as_deref().copied()
    }

    /// The first one that no address has seen.
    fn unused(&self) -> Option<u64> {
        let shown = self.shown().map(|(sequence, _)| sequence);
        let is_unused = |sequence: &u64| {
            let sequence = *sequence;
            Some(sequence) != self.active
                && Some(sequence) != shown
                && self.kept != Some(Kept::Own(sequence))
        };
        let mut live = self.live.iter().map(|entry| entry.sequence);
        live.find(is_unused)
    }

    /// The connection ID to answer an address by that the path is not at: one that no other address
    /// has seen, or if there is none, the one in use.
    pub(crate) fn show_to(&mut self, address: Tuple) -> Option<ConnectionId> {
        if self.shown().is_none_or(|(_, to)| to != address)
            && let Some(next) = self.unused()
            && let Some(before) = self.shown.replace(Box::new((next, address)))
        {
            self.retire(before.0);
        }
        let shown = self.shown().filter(|(_, to)| *to == address);
        let sequence = shown.map(|(sequence, _)| sequence).or(self.active);
        Some(self.live[self.position(sequence)?].cid)
    }

    /// The path moves to `address`: under the connection ID that was shown there, or under one that
    /// no address has seen. The present one is given back, unless the path `may_return`: then it
    /// stays with the route that is left, for [`kept`](Self::kept).
    pub(crate) fn move_to(&mut self, address: Tuple, may_return: bool) {
        let shown = self.shown.take().map(|shown| *shown);
        let known = shown.filter(|(_, to)| *to == address);
        if known.is_none()
            && let Some((sequence, _)) = shown
        {
            self.retire(sequence);
        }
        let next = known
            .map(|(sequence, _)| sequence)
            .or_else(|| self.unused());
        let left = match next {
            Some(_) => std::mem::replace(&mut self.active, next),
            None => None,
        };
        if may_return {
            self.forget_kept();
            self.kept = Some(left.map_or(Kept::Shared, Kept::Own));
        } else if let Some(left) = left {
            self.retire(left);
        }
    }

    /// The path returns to the route it left, and to its connection ID.
    pub(crate) fn move_back(&mut self) {
        let own = match self.kept.take() {
            Some(Kept::Own(sequence)) => self.position(Some(sequence)).map(|_| sequence),
            Some(Kept::Shared) | None => None,
        };
        if let Some(next) = own.or_else(|| self.unused())
            && let Some(left) = self.active.replace(next)
        {
            self.retire(left);
        }
    }

    /// The route that was left is not needed any more.
    pub(crate) fn forget_kept(&mut self) {
        if let Some(Kept::Own(sequence)) = self.kept.take() {
            self.retire(sequence);
        }
    }

    /// The connection ID to put on packets by the route that was left. `None` if the peer took it
    /// back.
    pub(crate) fn kept(&self) -> Option<ConnectionId> {
        let sequence = match self.kept? {
            Kept::Own(sequence) => Some(sequence),
            Kept::Shared => self.active,
        };
        Some(self.live[self.position(sequence)?].cid)
    }

    fn retire(&mut self, sequence: u64) {
        if let Some(at) = self.position(Some(sequence)) {
            self.live.remove(at);
            self.retiring.push((sequence, Delivery::Due));
        }
    }

    /// Whether the peer gave this connection ID to this path, and it is live.
    pub(crate) fn contains(&self, cid: &ConnectionId) -> bool {
        self.live.iter().any(|entry| entry.cid == *cid)
    }

    /// The tokens by which a stateless reset of this path is recognised: only that of the
    /// connection ID in use, for those that are not used must not match (RFC 9000, section 10.3.1).
    /// Where the path is not open, that is none.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = ResetToken> {
        self.active().and_then(|(_, _, token)| token).into_iter()
    }

    /// The number we expect the peer to give its next connection ID, for `PATH_CIDS_BLOCKED`.
    pub(crate) fn next_expected(&self) -> u64 {
        self.seen.last().map_or(0, |range| range.end)
    }

    /// The number the next frame has to give back.
    pub(crate) fn next_retirement(&self) -> Option<u64> {
        let due = |entry: &&(u64, Delivery)| entry.1 == Delivery::Due;
        self.retiring.iter().find(due).map(|entry| entry.0)
    }

    /// That frame was sent.
    pub(crate) fn on_retirement_sent(&mut self, sequence: u64) {
        self.set_retirement(sequence, Delivery::Sent);
    }

    /// That frame was lost and is sent again.
    pub(crate) fn on_retirement_lost(&mut self, sequence: u64) {
        self.set_retirement(sequence, Delivery::Due);
    }

    /// The peer has it back.
    pub(crate) fn on_retirement_acked(&mut self, sequence: u64) {
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
