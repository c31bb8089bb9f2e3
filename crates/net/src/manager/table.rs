//! The wanted paths and the state of each: decisions without I/O.

use crate::engine::{PathNotice, PathStats};
use crate::interfaces::spec::{Candidate, SpecOptions};
use anabranch_proto::datagram::SocketId;
use anabranch_proto::path::PathState;
use anabranch_proto::wire::PathId;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How long a path is left alone after its first failure; the time doubles with each further
/// failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// The longest time a path is left alone.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// How long a path that used to work is left alone after it could not be reopened. Each attempt
/// asks about once a second for three seconds, so that the repair of a link is noticed within a
/// second. It costs 3.6 kB on the dead link and a few hundred bytes on those that work.
const REPAIR_PAUSE: Duration = Duration::from_millis(100);

/// After so many attempts in vain, about a minute of them, the pause is a second and doubles with
/// each further attempt, as long as another path works.
const PROMPT_REPAIRS: u32 = 20;

/// The longest pause between attempts to reopen a path that used to work: 5 MB a day on the dead
/// link, where an attempt every three seconds costs 100 MB.
const LONGEST_REPAIR_PAUSE: Duration = Duration::from_secs(60);

/// A path that used to work tries another address of the peer once in this many attempts, since it
/// may be the peer's link that broke.
const ELSEWHERE_EVERY: u32 = 4;

/// If a path was open for this long, a failure counts as a new one: backing off starts over.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// The state of a wanted path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// The path will be opened later.
    Waiting {
        /// Consecutive failures.
        failures: u32,
    },
    /// The path is being validated.
    Opening(PathId),
    /// The path is open.
    Open(PathId),
    /// The path was open and fell silent; it is being probed.
    Silent(PathId),
    /// The path's interface or address is gone; it is abandoned as soon as another path is open.
    Lost(PathId),
}

impl EntryState {
    /// The ID of the path, if there is one.
    pub fn path(&self) -> Option<PathId> {
        match *self {
            Self::Waiting { .. } => None,
            Self::Opening(id) | Self::Open(id) | Self::Silent(id) | Self::Lost(id) => Some(id),
        }
    }
}

/// A wanted path, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    /// Where the path starts and where it leads.
    pub candidate: Candidate,
    /// The path's state.
    pub state: EntryState,
}

/// The state of a path as reported by the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Not validated yet.
    Opening,
    /// Validated and answering.
    Active,
    /// Silent, and being probed.
    Doubtful,
    /// Abandoned, but not forgotten yet.
    Closing,
}

impl From<&PathStats> for Seen {
    fn from(stats: &PathStats) -> Self {
        match stats.state {
            _ if stats.closing => Self::Closing,
            _ if !stats.validated => Self::Opening,
            PathState::Active => Self::Active,
            PathState::Doubtful => Self::Doubtful,
        }
    }
}

/// What the table wants to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Bind a socket and open a path for the entry with this index.
    Open { entry: usize },
    /// Tell the connection that nothing gets through this socket any more.
    Doubt { socket: SocketId },
    /// Use a path differently.
    Use { path: PathId, options: SpecOptions },
    /// Abandon a path.
    Abandon { path: PathId },
    /// Close a socket.
    RemoveSocket { socket: SocketId },
}

#[derive(Debug)]
struct Entry {
    candidate: Candidate,
    state: EntryState,
    socket: Option<SocketId>,
    /// When to open it, if it is waiting.
    due: Instant,
    /// When to open it if no other path works.
    due_alone: Instant,
    opened_at: Option<Instant>,
    /// Consecutive failures.
    failures: u32,
    /// The remote address with which it was last open, if it ever was.
    proven: Option<SocketAddr>,
    /// Failed attempts to open it since then.
    attempts: u32,
    /// Whether its interface and address exist.
    present: bool,
    /// Whether its abandonment has been requested.
    abandoning: bool,
}

#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// Sockets of abandoned paths, to be closed once the path has been forgotten.
    retiring: Vec<(PathId, SocketId)>,
    requests: VecDeque<Request>,
    /// The peer's addresses.
    remotes: Vec<SocketAddr>,
    /// Whether the connection has room for one more path, as far as is known.
    has_capacity: bool,
    /// Whether further paths can be opened at all.
    opens: bool,
}

impl Table {
    /// A table whose first entry is already open, as path 0.
    pub(super) fn new(
        first: Candidate,
        socket: SocketId,
        remotes: Vec<SocketAddr>,
        now: Instant,
    ) -> Self {
        let entry = Entry {
            state: EntryState::Open(PathId::ZERO),
            socket: Some(socket),
            opened_at: Some(now),
            proven: Some(first.remote),
            ..Entry::waiting(first, now)
        };
        Self {
            entries: vec![entry],
            retiring: Vec::new(),
            requests: VecDeque::new(),
            remotes,
            has_capacity: true,
            opens: true,
        }
    }

    pub(super) fn entries(&self) -> Vec<PathEntry> {
        let entries = self.entries.iter();
        entries
            .map(|entry| PathEntry {
                candidate: entry.candidate.clone(),
                state: entry.state,
            })
            .collect()
    }

    pub(super) fn candidate(&self, entry: usize) -> &Candidate {
        &self.entries[entry].candidate
    }

    /// All sockets in use.
    pub(super) fn sockets(&self) -> Vec<SocketId> {
        let retiring = self.retiring.iter().map(|(_, socket)| *socket);
        self.entries
            .iter()
            .filter_map(|entry| entry.socket)
            .chain(retiring)
            .collect()
    }

    /// When the next waiting entry is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let (_, due) = self.next_waiting()?;
        (self.opens && self.has_capacity).then_some(due)
    }

    /// The waiting entry that is due first, and when.
    fn next_waiting(&self) -> Option<(usize, Instant)> {
        let alone = !self.has_open();
        let all = self.entries.iter().enumerate();
        let waiting = all.filter(|(_, entry)| entry.is_waiting());
        let due = waiting.map(|(at, entry)| (at, entry.due(alone)));
        due.min_by_key(|(_, due)| *due)
    }

    /// Whether a path answers.
    fn has_open(&self) -> bool {
        let mut states = self.entries.iter().map(|entry| entry.state);
        states.any(|state| matches!(state, EntryState::Open(_)))
    }

    /// The next request.
    pub(super) fn next_request(&mut self, now: Instant) -> Option<Request> {
        if let Some(request) = self.requests.pop_front() {
            return Some(request);
        }
        if self.next_due()? > now {
            return None;
        }
        let (entry, _) = self.next_waiting()?;
        Some(Request::Open { entry })
    }

    /// The interfaces changed, and so did the wanted paths.
    pub(super) fn on_wanted(&mut self, wanted: &[Candidate], now: Instant) {
        for entry in &mut self.entries {
            // A path routed by the kernel has no interface that could disappear.
            let unbound = entry.candidate.index == 0;
            let there = wanted
                .iter()
                .find(|candidate| candidate.same_start(&entry.candidate));
            if let Some(options) = there.map(|candidate| candidate.options) {
                let before = std::mem::replace(&mut entry.candidate.options, options);
                // How many paths an interface has is no property of one of them.
                let is_used_alike = SpecOptions {
                    paths: None,
                    ..before
                } == SpecOptions {
                    paths: None,
                    ..options
                };
                if let Some(path) = entry.state.path().filter(|_| !is_used_alike) {
                    self.requests.push_back(Request::Use { path, options });
                }
            }
            let present = unbound || there.is_some();
            if entry.present && !present {
                entry.on_lost(&mut self.requests);
            } else if !entry.present && present {
                entry.on_back(now);
            }
        }
        for candidate in wanted {
            if !self
                .entries
                .iter()
                .any(|entry| entry.candidate.same_start(candidate))
            {
                self.entries.push(Entry::waiting(candidate.clone(), now));
            }
        }
        self.entries
            .retain(|entry| entry.present || entry.state.path().is_some());
        self.abandon_lost();
    }

    /// The system says that something about an interface is different: what failed there may work
    /// now.
    pub(super) fn on_changed(&mut self, index: u32, now: Instant) {
        let there = |entry: &&mut Entry| entry.candidate.index == index;
        for entry in self.entries.iter_mut().filter(there) {
            entry.on_changed(now);
        }
    }

    /// Requests the abandonment of lost paths, once another path can carry the `PATH_ABANDON`.
    fn abandon_lost(&mut self) {
        if !self.has_open() {
            return;
        }
        for entry in &mut self.entries {
            if let EntryState::Lost(path) = entry.state
                && !entry.abandoning
            {
                entry.abandoning = true;
                self.requests.push_back(Request::Abandon { path });
            }
        }
    }

    /// An abandonment was carried out, or refused because the path is the last one.
    pub(super) fn on_abandoning(&mut self, path: PathId, refused: bool) {
        if let Some(entry) = self.find(path) {
            entry.abandoning = !refused;
        }
    }

    /// A path was opened for an entry.
    pub(super) fn on_opening(&mut self, entry: usize, path: PathId, socket: SocketId) {
        let entry = &mut self.entries[entry];
        entry.state = EntryState::Opening(path);
        entry.socket = Some(socket);
        entry.opened_at = None;
        entry.abandoning = false;
    }

    /// An entry could not be opened, for a reason specific to it.
    pub(super) fn on_failed(&mut self, entry: usize, now: Instant) {
        self.entries[entry].back_off(now);
    }

    /// The connection has no room for further paths until it says so.
    pub(super) fn on_no_capacity(&mut self) {
        self.has_capacity = false;
    }

    /// The connection will never allow further paths.
    pub(super) fn give_up_opening(&mut self) {
        self.opens = false;
    }

    pub(super) fn on_notice(&mut self, notice: PathNotice, now: Instant) {
        match notice {
            PathNotice::Capacity => self.has_capacity = true,
            PathNotice::Opened { id, .. } => self.on_opened(id, now),
            PathNotice::Doubted { id } => self.set_state(id, EntryState::Silent(id)),
            PathNotice::Recovered { id, .. } => self.set_state(id, EntryState::Open(id)),
            PathNotice::Abandoned { id, by_peer, .. } => self.on_abandoned(id, by_peer, now),
            PathNotice::Discarded { id } => self.on_discarded(id),
            PathNotice::Moved { .. } => {}
        }
        self.abandon_lost();
    }

    /// Notices were missed: `seen` tells what the connection says of a path that it knows.
    pub(super) fn on_missed(&mut self, seen: impl Fn(PathId) -> Option<Seen>, now: Instant) {
        let known: Vec<PathId> = self
            .entries
            .iter()
            .filter_map(|entry| entry.state.path())
            .collect();
        for path in known {
            match seen(path) {
                None | Some(Seen::Closing) => self.on_abandoned(path, false, now),
                Some(Seen::Opening) => {}
                Some(Seen::Active) => {
                    self.on_opened(path, now);
                    self.set_state(path, EntryState::Open(path));
                }
                Some(Seen::Doubtful) => {
                    self.on_opened(path, now);
                    self.set_state(path, EntryState::Silent(path));
                }
            }
        }
        let retiring = std::mem::take(&mut self.retiring);
        for (path, socket) in retiring {
            // The peer may still have to be told that the path is abandoned.
            if seen(path).is_some() {
                self.retiring.push((path, socket));
            } else {
                self.requests.push_back(Request::RemoveSocket { socket });
            }
        }
        self.has_capacity = true;
        self.abandon_lost();
    }

    fn find(&mut self, path: PathId) -> Option<&mut Entry> {
        self.entries
            .iter_mut()
            .find(|entry| entry.state.path() == Some(path))
    }

    fn set_state(&mut self, path: PathId, state: EntryState) {
        if let Some(entry) = self.find(path)
            && !matches!(entry.state, EntryState::Lost(_))
        {
            entry.state = state;
        }
    }

    fn on_opened(&mut self, path: PathId, now: Instant) {
        if let Some(entry) = self.find(path)
            && matches!(entry.state, EntryState::Opening(_))
        {
            entry.state = EntryState::Open(path);
            entry.opened_at = Some(now);
            entry.proven = Some(entry.candidate.remote);
            entry.attempts = 0;
        }
    }

    fn on_abandoned(&mut self, path: PathId, by_peer: bool, now: Instant) {
        let Some(entry) = self
            .entries
            .iter_mut()
            .find(|entry| entry.state.path() == Some(path))
        else {
            return;
        };
        let socket = entry.socket.take();
        if !matches!(entry.state, EntryState::Opening(_)) {
            let lasted = entry.opened_at.map(|at| now.duration_since(at));
            if lasted.is_some_and(|lasted| lasted >= STABLE_AFTER) {
                entry.failures = 0;
            }
            entry.back_off(now);
        } else if let Some(proven) = entry.proven.filter(|_| !by_peer) {
            entry.await_repair(proven, &self.remotes, now);
        } else {
            // Perhaps only some of the peer's addresses can be reached from here.
            entry.candidate.remote = next_remote(&self.remotes, entry.candidate.remote);
            entry.back_off(now);
        }
        self.retiring.extend(socket.map(|socket| (path, socket)));
        self.entries
            .retain(|entry| entry.present || entry.state.path().is_some());
    }

    fn on_discarded(&mut self, path: PathId) {
        if let Some(at) = self.retiring.iter().position(|(id, _)| *id == path) {
            let (_, socket) = self.retiring.swap_remove(at);
            self.requests.push_back(Request::RemoveSocket { socket });
        }
    }
}

/// The address after `last` within its family, or the first one after the last.
fn next_remote(remotes: &[SocketAddr], last: SocketAddr) -> SocketAddr {
    let mut family = remotes
        .iter()
        .filter(|remote| remote.is_ipv4() == last.is_ipv4());
    let behind = family.clone().skip_while(|remote| **remote != last).nth(1);
    behind.or_else(|| family.next()).copied().unwrap_or(last)
}

impl Entry {
    fn waiting(candidate: Candidate, due: Instant) -> Self {
        Self {
            candidate,
            state: EntryState::Waiting { failures: 0 },
            socket: None,
            due,
            due_alone: due,
            opened_at: None,
            failures: 0,
            proven: None,
            attempts: 0,
            present: true,
            abandoning: false,
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, EntryState::Waiting { .. })
    }

    /// When to open it, if it is waiting; `alone` if no other path works.
    fn due(&self, alone: bool) -> Instant {
        if alone { self.due_alone } else { self.due }
    }

    fn open_after(&mut self, now: Instant, pause: Duration, pause_alone: Duration) {
        self.due = now + pause;
        self.due_alone = now + pause_alone;
    }

    fn back_off(&mut self, now: Instant) {
        let doublings = self.failures.min(5);
        let pause = (FIRST_BACKOFF * (1 << doublings)).min(LONGEST_BACKOFF);
        self.open_after(now, pause, pause);
        self.failures += 1;
        self.state = EntryState::Waiting {
            failures: self.failures,
        };
        self.opened_at = None;
    }

    /// Schedules another attempt for a path that used to work.
    fn await_repair(&mut self, proven: SocketAddr, remotes: &[SocketAddr], now: Instant) {
        self.attempts += 1;
        // The peer's other addresses take turns, so that an unreachable one does not block the
        // others.
        let (round, turn) = (
            self.attempts / ELSEWHERE_EVERY,
            self.attempts % ELSEWHERE_EVERY,
        );
        self.candidate.remote = proven;
        if turn == 0 {
            for _ in 0..round {
                self.candidate.remote = next_remote(remotes, self.candidate.remote);
            }
        }
        let vain = self.attempts.checked_sub(PROMPT_REPAIRS);
        let pause = vain.map_or(REPAIR_PAUSE, |vain| {
            let doubled = FIRST_BACKOFF * (1 << vain.min(6));
            doubled.min(LONGEST_REPAIR_PAUSE)
        });
        self.open_after(now, pause, REPAIR_PAUSE);
        self.state = EntryState::Waiting {
            failures: self.failures,
        };
    }

    /// Its interface has changed.
    fn on_changed(&mut self, now: Instant) {
        // Also of one that is being opened: if that fails, the next attempt comes soon.
        self.attempts = 0;
        if self.is_waiting() {
            self.open_after(now, Duration::ZERO, Duration::ZERO);
        }
    }

    fn on_lost(&mut self, requests: &mut VecDeque<Request>) {
        self.present = false;
        if let Some(path) = self.state.path() {
            self.state = EntryState::Lost(path);
            self.abandoning = false;
            requests.extend(self.socket.map(|socket| Request::Doubt { socket }));
        }
    }

    fn on_back(&mut self, now: Instant) {
        self.present = true;
        self.failures = 0;
        self.attempts = 0;
        self.open_after(now, Duration::ZERO, Duration::ZERO);
        // If abandonment has been requested, its notice will come and the entry is opened again.
        if let EntryState::Lost(path) = self.state
            && !self.abandoning
        {
            self.state = EntryState::Silent(path);
        }
    }
}
