//! All paths of a connection: which IDs exist, may exist, and are spent.
//!
//! ```text
//! (unusable) --limits rise--> Idle --open, first packet--> Open --abandon--> Closing --> spent
//!                              \------------ PATH_ABANDON --------------/     3 PTO
//! ```

use super::cids::{LocalCids, RemoteCids};
use super::state::Path;
use crate::ranges::RangeSet;
use crate::time::Instant;
use anabranch_wire::frame::PathStatus;
use anabranch_wire::{PathId, ResetToken};
use std::ops::{Deref, DerefMut};

/// Separate runs of spent path IDs kept before the connection is closed: IDs are handed out in
/// order, so an honest peer leaves few holes (docs/security.md, row 3).
const MAX_SPENT_RUNS: usize = 64;

/// Everything kept under one path ID, whether the path is open or not.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: PathId,
    /// Connection IDs we issued: the peer sends to them.
    pub(crate) local_cids: LocalCids,
    /// Connection IDs the peer issued: we send to them.
    pub(crate) remote_cids: RemoteCids,
    /// The peer's preference and its sequence number.
    pub(crate) peer_status: Option<(PathStatus, u64)>,
    /// Our preference as last told to the peer, and the sequence number it had.
    pub(crate) own_status: Option<(PathStatus, u64)>,
    /// `own_status` must still be sent.
    pub(crate) status_pending: bool,
    /// Set while a path of this ID is open or closing. Boxed: most IDs have no path, and a path is
    /// nine tenths of a slot.
    pub(crate) path: Option<Box<Path>>,
    /// Set from the first `PATH_ABANDON` in either direction on.
    pub(crate) closing: Option<Closing>,
    /// `PATH_CIDS_BLOCKED` must be sent.
    pub(crate) cids_blocked_pending: bool,
    /// The next connection ID for which `PATH_CIDS_BLOCKED` was queued last: it is repeated if it
    /// was lost, not each time a path is asked for.
    cids_blocked_at: Option<u64>,
}

/// A path on its way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closing {
    pub(crate) code: u64,
    /// `PATH_ABANDON` must be sent (again).
    pub(crate) abandon_pending: bool,
    /// The peer's `PATH_ABANDON` arrived.
    pub(crate) peer_abandoned: bool,
    /// The peer acknowledged our `PATH_ABANDON`.
    pub(crate) abandon_acked: bool,
    /// When the state is freed at the earliest. The peer need not answer: one that never learned of
    /// the path never does.
    pub(crate) discard_at: Instant,
}

impl Closing {
    /// When the state is freed; `None` while the peer may not know yet that the path is given up:
    /// it would be answered with a stateless reset. Nothing grows meanwhile, as its ID is not
    /// replaced.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.abandon_acked || self.peer_abandoned).then_some(self.discard_at)
    }
}

impl Slot {
    fn new(id: PathId) -> Self {
        Self {
            id,
            local_cids: LocalCids::new(),
            remote_cids: RemoteCids::new(),
            peer_status: None,
            own_status: None,
            status_pending: false,
            path: None,
            closing: None,
            cids_blocked_pending: false,
            cids_blocked_at: None,
        }
    }

    /// The path, if it is open and not closing.
    pub(crate) fn open(&self) -> Option<&Path> {
        if self.closing.is_some() {
            None
        } else {
            self.path.as_deref()
        }
    }

    /// The path, if data may be sent on it at all: it is open, enough is proven of its far end, and
    /// the peer left a connection ID to send to.
    pub(crate) fn carrier(&self) -> Option<&Path> {
        let path = self.open().filter(|_| self.remote_cids.has_active());
        path.filter(|path| path.route().is_open_to_data())
    }

    /// The path, if data may be sent on it now: it answers, too, and has room.
    pub(crate) fn ready(&self, now: Instant) -> Option<&Path> {
        self.carrier().filter(|path| path.can_send(now))
    }

    /// The path, if it is open and not closing.
    pub(crate) fn open_mut(&mut self) -> Option<&mut Path> {
        if self.closing.is_some() {
            None
        } else {
            self.path.as_deref_mut()
        }
    }

    /// Tells the peer, again if need be, what to send on the path.
    pub(crate) fn state_status(&mut self, status: PathStatus) {
        let sequence = self.own_status.map_or(0, |(_, sequence)| sequence + 1);
        self.own_status = Some((status, sequence));
        self.status_pending = true;
    }

    /// Whether our newest preference has this sequence number.
    pub(crate) fn is_own_status(&self, sequence: u64) -> bool {
        self.own_status
            .is_some_and(|(_, newest)| newest == sequence)
    }

    /// Whether a frame about the slot waits to be sent.
    fn owes_frames(&self) -> bool {
        match &self.closing {
            Some(closing) => closing.abandon_pending,
            None => {
                self.status_pending && self.own_status.is_some()
                    || self.cids_blocked_pending
                    || self.local_cids.next_to_send().is_some()
                    || self.remote_cids.next_retirement().is_some()
            }
        }
    }

    /// What both sides prefer, with sequence numbers.
    fn statuses(&self) -> [Option<(PathStatus, u64)>; 2] {
        [self.own_status, self.peer_status]
    }

    /// The tokens by which a stateless reset is recognised: those of connection IDs in use, which
    /// only an open path has (RFC 9000, section 10.3.1).
    pub(crate) fn reset_tokens(&self) -> impl Iterator<Item = ResetToken> {
        let in_use = self.open().map(|_| self.remote_cids.tokens());
        in_use.into_iter().flatten()
    }

    /// The status data is scheduled by: the peer's word, or ours while it is silent.
    pub(crate) fn status(&self) -> PathStatus {
        self.peer_status
            .or(self.own_status)
            .map_or(PathStatus::Available, |(status, _)| status)
    }
}

/// A slot under change. Once that is done, the manager counts anew which slots owe frames, and
/// notes whether their preferences changed, or whether there is a connection ID to send to: nobody
/// can forget to tell it.
#[derive(Debug)]
pub(crate) struct SlotMut<'a> {
    slot: &'a mut Slot,
    owed: bool,
    has_cid: bool,
    statuses: [Option<(PathStatus, u64)>; 2],
    owing: &'a mut usize,
    version: &'a mut u64,
}

impl<'a> SlotMut<'a> {
    fn new(slot: &'a mut Slot, owing: &'a mut usize, version: &'a mut u64) -> Self {
        Self {
            owed: slot.owes_frames(),
            has_cid: slot.remote_cids.has_active(),
            statuses: slot.statuses(),
            slot,
            owing,
            version,
        }
    }
}

impl Deref for SlotMut<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.slot
    }
}

impl DerefMut for SlotMut<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        self.slot
    }
}

impl Drop for SlotMut<'_> {
    fn drop(&mut self) {
        *self.owing -= usize::from(self.owed);
        *self.owing += usize::from(self.slot.owes_frames());
        let is_same = self.statuses == self.slot.statuses()
            && self.has_cid == self.slot.remote_cids.has_active();
        *self.version += u64::from(!is_same);
    }
}

/// The paths of a connection.
#[derive(Debug)]
pub(crate) struct Manager {
    /// Ascending by ID; few, so a sorted vector beats a tree.
    slots: Vec<Slot>,
    /// The ID of the first slot.
    first: u32,
    /// From this index on no slot has a path, nor is it closing: most IDs that may be used are not.
    in_use: usize,
    /// Slots that owe the peer frames.
    owing: usize,
    /// Grows whenever paths or preferences come, change or go.
    version: u64,
    /// IDs whose state is gone.
    spent: RangeSet,
    /// The largest ID we told the peer it may use; `None` without the extension.
    local_limit: Option<PathId>,
    /// The largest ID the peer told us we may use; `None` without the extension.
    remote_limit: Option<PathId>,
    /// What the peer announced in its transport parameters; `MAX_PATH_ID` may not go below.
    remote_initial: Option<PathId>,
    /// `MAX_PATH_ID` must be sent.
    limit_pending: bool,
    /// `PATHS_BLOCKED` with this limit must be sent.
    blocked_pending: Option<PathId>,
    /// The limit for which `PATHS_BLOCKED` was sent last: it is not repeated.
    blocked_at: Option<PathId>,
}

impl Manager {
    /// Path 0 alone, before anything is negotiated.
    pub(crate) fn new(first: Path) -> Self {
        let mut slot = Slot::new(PathId::ZERO);
        slot.path = Some(Box::new(first));
        Self {
            slots: vec![slot],
            first: 0,
            in_use: 1,
            owing: 0,
            version: 0,
            spent: RangeSet::default(),
            local_limit: None,
            remote_limit: None,
            remote_initial: None,
            limit_pending: false,
            blocked_pending: None,
            blocked_at: None,
        }
    }

    /// Turns the extension on with both sides' announced limits.
    pub(crate) fn negotiate(&mut self, local: PathId, remote: PathId) {
        self.local_limit = Some(local);
        self.remote_limit = Some(remote);
        self.remote_initial = Some(remote);
        self.fill_slots();
    }

    /// Whether the extension is in use.
    pub(crate) fn is_multipath(&self) -> bool {
        self.local_limit.is_some() && self.remote_limit.is_some()
    }

    /// The largest ID both sides allow.
    pub(crate) fn usable_limit(&self) -> PathId {
        match (self.local_limit, self.remote_limit) {
            (Some(local), Some(remote)) => local.min(remote),
            _ => PathId::ZERO,
        }
    }

    /// Creates slots for every ID this side allows, so that connection IDs can be issued and kept.
    ///
    /// The peer issues some for an ID as soon as both sides allow it. That it does may be heard
    /// before its own limit is, whose packet was lost or overtaken; it will not say so again.
    #[cold]
    fn fill_slots(&mut self) {
        let limit = match self.local_limit {
            Some(local) if self.is_multipath() => local,
            _ => PathId::ZERO,
        };
        let next = self.slots.last().map_or(0, |slot| slot.id.0 + 1);
        let next = next.max(self.spent.last().map_or(0, |run| run.end as u32));
        for id in next..=limit.0 {
            self.slots.push(Slot::new(PathId(id)));
        }
        self.first = self.slots.first().map_or(0, |slot| slot.id.0);
    }

    /// The peer raised its limit.
    pub(crate) fn raise_remote_limit(&mut self, limit: PathId) -> bool {
        let raised = self.remote_limit.is_some_and(|current| limit > current);
        if raised {
            self.remote_limit = Some(limit);
            self.fill_slots();
        }
        raised
    }

    /// The slot of an ID that is allowed and not spent. A packet asks some thirty times: it is not
    /// looked up by its index once more.
    pub(crate) fn slot(&self, id: PathId) -> Option<&Slot> {
        match self.slots.get(self.guess(id)) {
            Some(slot) if slot.id == id => Some(slot),
            _ => self.search(id).map(|at| &self.slots[at]),
        }
    }

    /// The slot of an ID that is allowed and not spent.
    pub(crate) fn slot_mut(&mut self, id: PathId) -> Option<SlotMut<'_>> {
        let at = self.index(id)?;
        Some(self.change(at))
    }

    fn change(&mut self, at: usize) -> SlotMut<'_> {
        SlotMut::new(&mut self.slots[at], &mut self.owing, &mut self.version)
    }

    /// Changes all slots, ascending, until one says that it is enough; returns whether none did.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(&mut Slot) -> bool) -> bool {
        (0..self.slots.len()).all(|at| change(&mut self.change(at)))
    }

    /// Whether a frame about paths or connection IDs waits to be sent.
    pub(crate) fn owes_frames(&self) -> bool {
        self.owing > 0 || self.limit_pending || self.blocked_pending.is_some()
    }

    /// Tells apart what paths were like at different times, but for what acknowledgements and
    /// losses change.
    pub(crate) fn version(&self) -> u64 {
        let paths = self.in_use().filter_map(|slot| slot.path.as_ref());
        paths.fold(self.version, |sum, path| sum + path.version())
    }

    /// What the peer announced in its transport parameters.
    pub(crate) fn remote_initial(&self) -> Option<PathId> {
        self.remote_initial
    }

    /// The limit that `MAX_PATH_ID` is to tell.
    pub(crate) fn limit_to_send(&self) -> Option<PathId> {
        self.local_limit.filter(|_| self.limit_pending)
    }

    /// `MAX_PATH_ID` was sent.
    pub(crate) fn on_limit_sent(&mut self) {
        self.limit_pending = false;
    }

    /// The peer knows of this limit.
    pub(crate) fn on_limit_acked(&mut self, limit: PathId) {
        self.limit_pending &= self.local_limit != Some(limit);
    }

    /// The packet that told this limit was lost.
    pub(crate) fn on_limit_lost(&mut self, limit: PathId) {
        self.limit_pending |= self.local_limit == Some(limit);
    }

    /// The limit that `PATHS_BLOCKED` is to tell.
    pub(crate) fn blocked_to_send(&self) -> Option<PathId> {
        self.blocked_pending
    }

    /// `PATHS_BLOCKED` was sent.
    pub(crate) fn on_blocked_sent(&mut self) {
        self.blocked_pending = None;
    }

    fn index(&self, id: PathId) -> Option<usize> {
        let guess = self.guess(id);
        match self.slots.get(guess) {
            Some(slot) if slot.id == id => Some(guess),
            _ => self.search(id),
        }
    }

    /// Where the slot of an ID lies if no ID between it and the first one is spent.
    fn guess(&self, id: PathId) -> usize {
        id.0.wrapping_sub(self.first) as usize
    }

    #[inline(never)]
    fn search(&self, id: PathId) -> Option<usize> {
        self.slots.binary_search_by_key(&id, |slot| slot.id).ok()
    }

    /// Puts a path under its ID, if that is allowed and not spent.
    pub(crate) fn put(&mut self, path: Path) {
        if let Some(at) = self.index(path.id) {
            self.slots[at].path = Some(Box::new(path));
            self.in_use = self.in_use.max(at + 1);
            self.version += 1;
        }
    }

    /// Begins to give an ID up, whether it has a path or not; returns its slot, or `None` if there
    /// is none or it is closing already.
    pub(crate) fn begin_closing(&mut self, id: PathId, closing: Closing) -> Option<&Slot> {
        let at = self.index(id)?;
        if self.slots[at].closing.is_some() {
            return None;
        }
        self.change(at).closing = Some(closing);
        self.in_use = self.in_use.max(at + 1);
        self.version += 1;
        Some(&self.slots[at])
    }

    /// A path that is open or closing.
    pub(crate) fn path(&self, id: PathId) -> Option<&Path> {
        self.slot(id)?.path.as_deref()
    }

    /// A path that is open or closing.
    pub(crate) fn path_mut(&mut self, id: PathId) -> Option<&mut Path> {
        let at = self.index(id)?;
        self.slots[at].path.as_deref_mut()
    }

    /// A path that is open or closing, and whether it is open.
    pub(crate) fn known_mut(&mut self, id: PathId) -> Option<(&mut Path, bool)> {
        let at = self.index(id)?;
        let is_open = self.slots[at].closing.is_none();
        Some((self.slots[at].path.as_deref_mut()?, is_open))
    }

    /// A path that is open and not closing: only such a one may send, move or change its health.
    pub(crate) fn open_path(&self, id: PathId) -> Option<&Path> {
        self.slot(id)?.open()
    }

    /// A path that [may carry data](Slot::carrier).
    pub(crate) fn carrier(&self, id: PathId) -> Option<&Path> {
        self.slot(id)?.carrier()
    }

    /// A path that [can carry data now](Slot::ready).
    pub(crate) fn ready(&self, id: PathId, now: Instant) -> Option<&Path> {
        self.slot(id)?.ready(now)
    }

    /// A path that is open and not closing.
    pub(crate) fn open_path_mut(&mut self, id: PathId) -> Option<&mut Path> {
        let at = self.index(id)?;
        self.slots[at].open_mut()
    }

    /// All slots, ascending.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// The paths that are open or closing, ascending.
    pub(crate) fn known(&mut self) -> impl Iterator<Item = &mut Path> {
        let in_use = self.slots[..self.in_use].iter_mut();
        in_use.filter_map(|slot| slot.path.as_deref_mut())
    }

    /// The slots that have a path or are closing, ascending, and perhaps some that do not.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Slot> {
        self.slots[..self.in_use].iter()
    }

    /// Open paths that are not closing, ascending.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Slot> {
        self.in_use().filter(|slot| slot.open().is_some())
    }

    /// Open paths that are not closing, ascending.
    pub(crate) fn open_mut(&mut self) -> impl Iterator<Item = (PathId, &mut Path)> {
        self.slots[..self.in_use].iter_mut().filter_map(|slot| {
            let id = slot.id;
            slot.open_mut().map(|path| (id, path))
        })
    }

    /// Number of open paths that are not closing.
    pub(crate) fn open_count(&self) -> usize {
        self.open().count()
    }

    /// Whether the ID lies above what we allowed the peer.
    pub(crate) fn exceeds_local_limit(&self, id: PathId) -> bool {
        self.local_limit.is_none_or(|limit| id > limit)
    }

    /// The smallest ID that can be opened now, or what is missing.
    pub(crate) fn next_unused(&mut self) -> Result<PathId, Missing> {
        let usable = self.usable_limit();
        let is_unused =
            |slot: &Slot| slot.path.is_none() && slot.closing.is_none() && slot.id <= usable;
        let Some(at) = self.slots.iter().position(is_unused) else {
            let remote = self.remote_limit.unwrap_or_default();
            if remote == usable && self.blocked_at != Some(remote) {
                self.blocked_at = Some(remote);
                self.blocked_pending = Some(remote);
            }
            return Err(Missing::Id);
        };
        let mut slot = self.change(at);
        if !slot.remote_cids.has_active() {
            let next = Some(slot.remote_cids.next_expected());
            slot.cids_blocked_pending |= slot.cids_blocked_at != next;
            slot.cids_blocked_at = next;
            return Err(Missing::Cid);
        }
        if slot.local_cids.live().len() == 0 {
            return Err(Missing::Cid);
        }
        Ok(slot.id)
    }

    /// Frees a closing path for good. Its ID is spent; the peer may use one more instead.
    ///
    /// Returns the slot, or `None` if there was none; `Err` if the peer scatters its IDs.
    pub(crate) fn discard(&mut self, id: PathId) -> Result<Option<Slot>, TooScattered> {
        let Some(at) = self.index(id) else {
            return Ok(None);
        };
        let slot = self.slots.remove(at);
        self.owing -= usize::from(slot.owes_frames());
        self.version += 1 + slot.path.as_ref().map_or(0, |path| path.version());
        self.in_use -= usize::from(at < self.in_use);
        self.spent.insert(u64::from(id.0)..u64::from(id.0) + 1);
        if self.spent.len() > MAX_SPENT_RUNS {
            return Err(TooScattered);
        }
        if let Some(limit) = &mut self.local_limit
            && let Some(next) = limit.0.checked_add(1)
        {
            *limit = PathId(next);
            self.limit_pending = true;
        }
        self.fill_slots();
        Ok(Some(slot))
    }
}

/// What keeps a path from being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Every allowed ID is in use or spent.
    Id,
    /// The next ID has no connection ID yet.
    Cid,
}

/// The peer left too many holes between the path IDs it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooScattered;

#[cfg(test)]
mod tests;
