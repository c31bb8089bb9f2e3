//! What is kept under one path ID, and the frames it owes the peer.

use crate::datagram::Tuple;
use crate::path::cids::{LocalCids, RemoteCids};
use crate::path::route::Route;
use crate::path::state::Path;
use crate::time::{Duration, Instant};
use anabranch_wire::frame::PathStatus;
use anabranch_wire::{ConnectionId, PathId, ResetToken};
use std::ops::{Deref, DerefMut};

/// How often a validation looks whether it is still kept from sending.
const STUCK_VALIDATION: Duration = Duration::from_secs(1);

/// Everything kept under one path ID, whether the path is open or not.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) id: PathId,
    /// Connection IDs we issued: the peer sends to them.
    pub(super) local_cids: LocalCids,
    /// Connection IDs the peer issued: we send to them.
    pub(super) remote_cids: RemoteCids,
    /// The peer's preference and its sequence number.
    pub(super) peer_status: Option<(PathStatus, u64)>,
    /// Our preference.
    pub(super) own_status: PathStatus,
    /// The sequence number of the newest frame that tells the peer about it.
    pub(super) status_sequence: Option<u64>,
    /// That frame must still be sent.
    pub(super) status_pending: bool,
    /// Set while a path of this ID is open or closing. Boxed: most IDs have no path, and a path is
    /// nine tenths of a slot.
    pub(super) path: Option<Box<Path>>,
    /// Set from the first `PATH_ABANDON` in either direction on.
    pub(super) closing: Option<Closing>,
    /// `PATH_CIDS_BLOCKED` must be sent.
    pub(super) cids_blocked_pending: bool,
    /// The next connection ID for which `PATH_CIDS_BLOCKED` was queued last: it is repeated if it
    /// was lost, not each time a path is asked for.
    pub(super) cids_blocked_at: Option<u64>,
}

/// A path on its way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closing {
    pub(super) code: u64,
    /// `PATH_ABANDON` must be sent (again).
    pub(super) abandon_pending: bool,
    /// The peer's `PATH_ABANDON` arrived.
    pub(super) peer_abandoned: bool,
    /// The peer acknowledged our `PATH_ABANDON`.
    pub(super) abandon_acked: bool,
    /// When the state is freed at the earliest. The peer need not answer: one that never learned of
    /// the path never does.
    pub(super) discard_at: Instant,
}

impl Closing {
    /// A path that either side gives up; its state is needed until `discard_at` at least.
    pub(super) fn new(code: u64, discard_at: Instant) -> Self {
        Self {
            code,
            abandon_pending: true,
            peer_abandoned: false,
            abandon_acked: false,
            discard_at,
        }
    }

    /// When the state is freed; `None` while the peer may not know yet that the path is given up:
    /// it would be answered with a stateless reset. Nothing grows meanwhile, as its ID is not
    /// replaced.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.abandon_acked || self.peer_abandoned).then_some(self.discard_at)
    }
}

impl Slot {
    pub(super) fn new(id: PathId) -> Self {
        Self {
            id,
            local_cids: LocalCids::new(),
            remote_cids: RemoteCids::new(),
            peer_status: None,
            own_status: PathStatus::Available,
            status_sequence: None,
            status_pending: false,
            path: None,
            closing: None,
            cids_blocked_pending: false,
            cids_blocked_at: None,
        }
    }

    pub(crate) fn id(&self) -> PathId {
        self.id
    }

    /// Connection IDs the peer issued: we send to them.
    pub(crate) fn remote_cids(&self) -> &RemoteCids {
        &self.remote_cids
    }

    /// The connection ID to use towards an address the path is not at: one that no other address
    /// has seen, if the peer issued enough of them (RFC 9000, section 9.5).
    pub(crate) fn cid_for_answer(&mut self, tuple: Tuple) -> Option<ConnectionId> {
        self.remote_cids.show_to(tuple)
    }

    /// The path, open or closing.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether the ID is being given up, whether it has a path or not.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// When what is left of a closing path is freed.
    pub(crate) fn discard_deadline(&self) -> Option<Instant> {
        self.closing.and_then(|closing| closing.deadline())
    }

    /// The path, if it is open and not closing.
    pub(crate) fn open(&self) -> Option<&Path> {
        if self.closing.is_some() {
            None
        } else {
            self.path.as_deref()
        }
    }

    /// Whether a packet with any frame may be sent on the path.
    pub(crate) fn takes_frames(&self) -> bool {
        let is_roomy = |path: &Path| path.route().leaves_room();
        self.remote_cids.has_active() && self.open().is_some_and(is_roomy)
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

    /// When an open path repeats a challenge or gives up. A challenge that is due at `now` but may
    /// not be sent, for lack of amplification budget or of a connection ID, waits for the peer.
    pub(crate) fn validation_deadline(&self, now: Instant) -> Option<Instant> {
        let path = self.open()?;
        let is_settled = |route: &Route| route.validation.is_none();
        if is_settled(path.route()) && path.previous().is_none_or(is_settled) {
            return None;
        }
        let cids = &self.remote_cids;
        let current = (path.route(), cids.has_active());
        let previous = path.previous();
        let previous = previous.map(|route| (route, cids.has_active() && cids.kept().is_some()));
        let routes = [current].into_iter().chain(previous);
        let deadlines = routes.filter_map(|(route, has_cid)| {
            let at = route.validation.as_ref()?.deadline()?;
            let is_mute = !has_cid || !route.leaves_room();
            let is_stuck = at <= now && is_mute;
            Some(if is_stuck { now + STUCK_VALIDATION } else { at })
        });
        deadlines.min()
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
    pub(super) fn state_status(&mut self) {
        let sequence = self.status_sequence.map_or(0, |newest| newest + 1);
        self.status_sequence = Some(sequence);
        self.status_pending = true;
    }

    /// Whether a frame about the slot waits to be sent.
    pub(super) fn owes_frames(&self) -> bool {
        match &self.closing {
            Some(closing) => closing.abandon_pending,
            None => {
                self.status_pending
                    || self.cids_blocked_pending
                    || self.local_cids.next_to_send().is_some()
                    || self.remote_cids.next_retirement().is_some()
            }
        }
    }

    /// The tokens by which a stateless reset is recognised: those of connection IDs in use, which
    /// only an open path has (RFC 9000, section 10.3.1).
    pub(super) fn reset_tokens(&self) -> impl Iterator<Item = ResetToken> {
        let in_use = self.open().map(|_| self.remote_cids.tokens());
        in_use.into_iter().flatten()
    }

    /// Our preference, which is what the peer is told.
    pub(crate) fn own_status(&self) -> PathStatus {
        self.own_status
    }

    /// The status data is scheduled by: the peer's word, or ours while it is silent.
    pub(crate) fn status(&self) -> PathStatus {
        self.peer_status
            .map_or(self.own_status, |(status, _)| status)
    }
}

/// A slot under change. Once that is done, the manager counts anew which slots owe frames, and
/// notes whether data is scheduled by another status, or whether there is a connection ID to send
/// to: nobody can forget to tell it.
#[derive(Debug)]
pub(crate) struct SlotMut<'a> {
    slot: &'a mut Slot,
    owed: bool,
    has_cid: bool,
    status: PathStatus,
    owing: &'a mut usize,
    version: &'a mut u64,
}

impl<'a> SlotMut<'a> {
    pub(super) fn new(slot: &'a mut Slot, owing: &'a mut usize, version: &'a mut u64) -> Self {
        Self {
            owed: slot.owes_frames(),
            has_cid: slot.remote_cids.has_active(),
            status: slot.status(),
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
        let is_same =
            self.status == self.slot.status() && self.has_cid == self.slot.remote_cids.has_active();
        *self.version += u64::from(!is_same);
    }
}
