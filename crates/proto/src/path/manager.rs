//! All paths of a connection: which IDs exist, may exist, and are spent.
//!
//! ```text
//! (unusable) --limits rise--> Idle --open, first packet--> Open --abandon--> Closing --> spent
//!                              \------------ PATH_ABANDON --------------/     3 PTO
//! ```

mod census;
mod cids;
mod frames;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use census::Common;
pub(crate) use cids::CidSource;
pub(crate) use slot::{Slot, SlotMut};

use super::state::Path;
use crate::ranges::RangeSet;
use crate::time::Instant;
use anabranch_wire::frame::PathStatus;
use anabranch_wire::{ConnectionId, PathId, ResetToken};
use slot::Closing;
use std::collections::VecDeque;

/// Separate runs of spent path IDs kept before the connection is closed: IDs are handed out in
/// order, so an honest peer leaves few holes (docs/security.md, row 3).
const MAX_SPENT_RUNS: usize = 64;

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
    /// The application was told that it can open a path, and has not been turned away since.
    capacity_told: bool,
    /// What the endpoint is to route here, or no more.
    routing: VecDeque<Routing>,
}

/// A change of what the endpoint must route to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Routing {
    /// Datagrams to this connection ID belong to this path.
    AddCid(ConnectionId, PathId),
    /// Datagrams to this connection ID belong to no path any more.
    RemoveCid(ConnectionId),
    /// A datagram that ends in this token, from nowhere known, resets the connection.
    AddToken(ResetToken),
    /// This token resets nothing any more.
    RemoveToken(ResetToken),
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
            capacity_told: false,
            routing: VecDeque::new(),
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

    /// The application is to be told that it can open a path; returns whether that is news.
    pub(crate) fn tell_of_capacity(&mut self) -> bool {
        !std::mem::replace(&mut self.capacity_told, true)
    }

    /// The application asked for a path that it cannot open.
    pub(crate) fn on_turned_away(&mut self) {
        self.capacity_told = false;
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
    pub(crate) fn put(&mut self, path: Path, status: PathStatus) {
        if let Some(at) = self.index(path.id) {
            self.slots[at].path = Some(Box::new(path));
            self.slots[at].own_status = status;
            self.in_use = self.in_use.max(at + 1);
            self.version += 1;
            let tokens = self.slots[at].reset_tokens();
            self.routing.extend(tokens.map(Routing::AddToken));
        }
    }

    /// Begins to give an ID up, whether it has a path or not; what is left of it is freed at
    /// `discard_at` or later. Returns whether that is news.
    pub(crate) fn begin_closing(&mut self, id: PathId, code: u64, discard_at: Instant) -> bool {
        let Some(at) = self.index(id) else {
            return false;
        };
        if self.slots[at].closing.is_some() {
            return false;
        }
        self.change(at).closing = Some(Closing::new(code, discard_at));
        self.in_use = self.in_use.max(at + 1);
        self.version += 1;
        let tokens = self.slots[at].remote_cids.tokens();
        self.routing.extend(tokens.map(Routing::RemoveToken));
        true
    }

    /// The peer gives a path up, too: what it sent before may still be under way until then.
    pub(crate) fn on_peer_abandoned(&mut self, id: PathId, discard_at: Instant) {
        if let Some(mut slot) = self.slot_mut(id)
            && let Some(closing) = &mut slot.closing
            && !closing.peer_abandoned
        {
            closing.peer_abandoned = true;
            closing.discard_at = closing.discard_at.max(discard_at);
        }
    }

    /// Has the peer told what to send on an open path; returns what data is scheduled by from now
    /// on if that is something else than before.
    pub(crate) fn set_status(&mut self, id: PathId, status: PathStatus) -> Option<PathStatus> {
        let mut slot = self.slot_mut(id).filter(|slot| slot.open().is_some())?;
        let before = slot.status();
        slot.own_status = status;
        slot.state_status();
        Some(slot.status()).filter(|after| *after != before)
    }

    /// Says what to send on a path, though nothing changed.
    pub(crate) fn repeat_status(&mut self, id: PathId) {
        if let Some(mut slot) = self.slot_mut(id) {
            slot.state_status();
        }
    }

    /// The paths by which the peer may hear of the end: all that are validated, as it may hear us
    /// on one of them only.
    #[cold]
    pub(crate) fn last_ways(&self) -> Vec<PathId> {
        let is_validated =
            |slot: &&Slot| slot.open().is_some_and(|path| path.route().is_validated());
        let ids = |slots: &mut dyn Iterator<Item = &Slot>| slots.map(|slot| slot.id).collect();
        let validated: Vec<_> = ids(&mut self.open().filter(is_validated));
        if !validated.is_empty() {
            return validated;
        }
        if let Some(open) = self.open().next() {
            return vec![open.id];
        }
        // Paths that were given up still lead to the peer, for want of others. Which of them do is
        // not known: each side may have given up what the other counts on.
        ids(&mut self.in_use().filter(|slot| slot.path().is_some()))
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

    /// The best path but `except` for frames that any path may carry: the healthiest, then the
    /// fastest.
    pub(crate) fn control_path(&self, except: Option<PathId>) -> Option<&Path> {
        let able = self.open().filter(|slot| slot.takes_frames());
        let able = able.filter(|slot| Some(slot.id) != except);
        able.filter_map(Slot::open).min_by_key(|path| {
            (
                !path.route().is_validated(),
                !path.is_healthy(),
                path.liveness().pto_count(),
                path.route().rtt().smoothed(),
            )
        })
    }

    /// Whether a path works, as far as is known.
    pub(crate) fn works(&self, id: PathId) -> bool {
        let path = self.open_path(id);
        path.is_some_and(|path| path.is_healthy() && path.liveness().pto_count() == 0)
    }

    /// Number of open paths that are not closing.
    pub(crate) fn open_count(&self) -> usize {
        self.open().count()
    }

    /// The largest ID that the peer may name; `None` without the extension.
    pub(crate) fn largest_of_peer(&self) -> Option<PathId> {
        self.local_limit.filter(|_| self.is_multipath())
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

    /// Frees the first of the paths that were given up long enough ago. Its ID is spent; the peer
    /// may use one more instead. `None` if there is none; `Err` if the peer scatters its IDs.
    pub(crate) fn discard_due(&mut self, now: Instant) -> Result<Option<Discarded>, TooScattered> {
        let is_due = |slot: &Slot| slot.discard_deadline().is_some_and(|at| at <= now);
        let mut in_use = self.slots[..self.in_use].iter();
        let due = in_use.position(is_due);
        due.map(|at| self.discard(at)).transpose()
    }

    fn discard(&mut self, at: usize) -> Result<Discarded, TooScattered> {
        let slot = self.slots.remove(at);
        let cids = slot.local_cids.live();
        let cids = cids.map(|local| Routing::RemoveCid(local.cid));
        self.routing.extend(cids);
        self.owing -= usize::from(slot.owes_frames());
        self.version += 1 + slot.path.as_ref().map_or(0, |path| path.version());
        self.in_use -= usize::from(at < self.in_use);
        let id = u64::from(slot.id.0);
        self.spent.insert(id..id + 1);
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
        Ok(Discarded {
            id: slot.id,
            had_path: slot.path.is_some(),
        })
    }
}

/// A path ID that is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Discarded {
    pub(crate) id: PathId,
    /// Not all that are given up were ever opened.
    pub(crate) had_path: bool,
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
