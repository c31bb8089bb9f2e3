//! What later connections are told of paths (RFC 9959), and what this one was told: a server's
//! clients bring it back in tokens, a client keeps it with what it resumes from.

use super::Connection;
use crate::handshake::token::TokenEntry;
use crate::known_paths::{KnownPath, Recollection, worth_keeping};
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::time::Instant;
use crate::wire::PathId;
use std::net::IpAddr;

/// Tokens with a memory that a connection issues at most.
const MAX_MEMORIES: u8 = 10;
/// Another one is issued when a path carries so many times what the last one says.
const GROWTH: u64 = 2;

/// What is remembered of paths, from before and for later.
#[derive(Debug, Default)]
pub(super) struct Memories {
    /// What an earlier connection saw, and no path of this one has begun with.
    earlier: Recollection,
    /// Tokens that may still be issued; none at a client.
    left: u8,
    /// What the last one says, and of paths that share an address what it would.
    told: Vec<(PathId, KnownPath)>,
    /// A client's state has what its paths carried.
    is_taken: bool,
}

impl Memories {
    pub(super) fn of(earlier: Recollection) -> Self {
        Self {
            earlier,
            ..Self::default()
        }
    }

    /// What was told of a path.
    fn told(&self, path: PathId) -> Option<&KnownPath> {
        let told = self.told.iter().find(|(id, _)| *id == path);
        told.map(|(_, told)| told)
    }
}

impl Connection {
    /// A path that was just made, and has sent nothing, begins from what an earlier connection saw
    /// between its ends. A path that moves later starts over: memories are for beginnings.
    pub(super) fn resume_path(&mut self, id: PathId, local_address: Option<IpAddr>) {
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        if let Some(address) = local_address {
            path.set_local_address(address);
        }
        let ends = path.route().ends(self.identity.side());
        if self.config.careful_resume
            && let Some((memory, until)) = self.memories.earlier.take(&ends)
        {
            path.resume(memory, until);
        }
    }

    /// A server begins to tell, if its clients resume at all. Those that get no tickets seldom come
    /// with tokens.
    pub(super) fn begin_memories(&mut self) {
        if self.config.careful_resume && self.handshake.tickets_given() > 0 {
            self.memories.left = MAX_MEMORIES;
        }
    }

    /// Queues a token that says what paths carry, if `target` carries much more than the last one
    /// says.
    pub(super) fn tell_memory(&mut self, now: Instant, target: PathId) {
        // What is owed or under way leaves and arrives as one.
        let is_due = self.memories.left > 0;
        if !is_due || self.owed.new_token.is_some() || self.owed.new_token_sent.is_some() {
            return;
        }
        let path = self.paths.open_path(target);
        let Some(memory) = path.and_then(|path| path.route().memory()) else {
            return;
        };
        let told = self.memories.told(target).map(|told| told.memory.bytes());
        if memory.bytes() < told.unwrap_or(0).saturating_mul(GROWTH) {
            return;
        }
        self.memories.told = self.memorable_paths().collect();
        let known = worth_keeping(self.memories.told.iter().copied());
        // Of one that shares another's address nothing is told.
        if known.iter().any(|(id, _)| *id == target) {
            let addresses = self.token_entries(&known);
            let (keys, rng) = (self.identity.keys(), &mut self.rng);
            let token = keys.seal_new_token(now, &addresses, rng);
            self.owed.new_token = Some(vec![token]);
            self.memories.left -= 1;
        }
    }

    /// The open paths that are worth remembering, in the order of their IDs. Of one that makes up
    /// for a loss, or is about to find out, holds what was told before.
    fn memorable_paths(&self) -> impl Iterator<Item = (PathId, KnownPath)> {
        let side = self.identity.side();
        let routes = self.paths.open().filter_map(Slot::open);
        routes.filter_map(move |path| {
            let (route, id) = (path.route(), path.id());
            let ends = route.ends(side);
            let told = self.memories.told(id).filter(|told| told.ends == ends);
            let memory = route.memory().or(told.map(|told| told.memory))?;
            Some((id, KnownPath { ends, memory }))
        })
    }

    /// What a token says. It names the address of the handshake in any case, as it proves that too;
    /// of all others only those that are proven carried anything.
    fn token_entries(&self, known: &[(PathId, KnownPath)]) -> Vec<TokenEntry> {
        let first = self.paths.open_path(PathId::ZERO).map(Path::route);
        let first = first.filter(|route| route.is_validated());
        let first = first.map(|route| route.ends(self.identity.side()).remote());
        let of = |(_, path): &(PathId, KnownPath)| (path.ends.remote(), Some(path.memory));
        let mut entries: Vec<TokenEntry> = known.iter().map(of).collect();
        if let Some(address) = first
            && entries.iter().all(|(other, _)| *other != address)
        {
            entries.insert(0, (address, None));
        }
        entries
    }

    /// What a client's paths carried, for the first state that is taken once there is something to
    /// know: two connections at a time must not resume from the same.
    pub(super) fn take_known_paths(&mut self) -> Vec<KnownPath> {
        if self.memories.is_taken || !self.config.careful_resume {
            return Vec::new();
        }
        let known = worth_keeping(self.memorable_paths());
        self.memories.is_taken = !known.is_empty();
        known.into_iter().map(|(_, path)| path).collect()
    }
}
