//! What later connections are told of paths (RFC 9959), and what this one was told: a server's
//! clients bring it back in tokens, a client keeps it with what it resumes from.

use super::Connection;
use crate::handshake::token::TokenEntry;
use crate::known_paths::{Ends, KnownPath, MAX_KNOWN_PATHS, Recollection, worth_keeping};
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
    /// Of each path what the last one says that names it; of one that none could name, what it
    /// would have said.
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

    /// What was told of a path that runs there.
    fn told(&self, id: PathId, ends: &Ends) -> Option<&KnownPath> {
        let mut told = self.told.iter();
        let told = told.find(|(other, told)| *other == id && told.ends == *ends);
        told.map(|(_, told)| told)
    }

    /// Whether a path carries much more than was told of it.
    fn is_news(&self, id: PathId, path: &KnownPath) -> bool {
        let told = self.told(id, &path.ends);
        let told = told.map_or(0, |told| told.memory.bytes());
        path.memory.bytes() >= told.saturating_mul(GROWTH)
    }

    /// What a token says of these paths, if it has a place for `target`. It names the address of
    /// the handshake in any case, if that is proven, as it proves that too; of all others only
    /// those that are proven carried anything.
    fn tell(
        &mut self,
        target: PathId,
        paths: &[(PathId, KnownPath)],
        handshake: Option<IpAddr>,
    ) -> Option<Vec<TokenEntry>> {
        let mut known = worth_keeping(paths.iter().copied());
        let is_named = |address| known.iter().any(|(_, path)| path.ends.remote() == address);
        let unnamed = handshake.filter(|address| !is_named(*address));
        known.truncate(MAX_KNOWN_PATHS - usize::from(unnamed.is_some()));
        let is_told = known.iter().any(|(id, _)| *id == target);
        let is_noted = |id| {
            let is_named = known.iter().any(|(other, _)| *other == id);
            if is_told { is_named } else { id == target }
        };
        // What the others carry more is still to be told.
        let now_or_before = |&(id, path): &(PathId, KnownPath)| {
            let told = if is_noted(id) {
                path
            } else {
                *self.told(id, &path.ends)?
            };
            Some((id, told))
        };
        self.told = paths.iter().filter_map(now_or_before).collect();
        let of = |(_, path): (PathId, KnownPath)| (path.ends.remote(), Some(path.memory));
        let unnamed = unnamed.map(|address| (address, None));
        let entries = unnamed.into_iter().chain(known.into_iter().map(of));
        is_told.then(|| entries.collect())
    }
}

impl Connection {
    /// A path that was just made, and has sent nothing, begins from what an earlier connection saw
    /// between its ends. A path that moves later starts over: memories are for beginnings.
    pub(super) fn resume_path(&mut self, now: Instant, id: PathId, local_address: Option<IpAddr>) {
        let Some(path) = self.paths.path_mut(id) else {
            return;
        };
        if let Some(address) = local_address {
            path.set_local_address(address);
        }
        let ends = path.route().ends(self.identity.side());
        if self.config.careful_resume
            && let Some((memory, until)) = self.memories.earlier.take(now, &ends)
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
        if self.memories.left == 0 || self.owed.has_new_tokens() {
            return;
        }
        let side = self.identity.side();
        let route = self.paths.open_path(target).map(Path::route);
        let known = route.and_then(|route| {
            let (ends, memory) = (route.ends(side), route.memory()?);
            Some(KnownPath { ends, memory })
        });
        if !known.is_some_and(|known| self.memories.is_news(target, &known)) {
            return;
        }
        let paths: Vec<_> = self.memorable_paths().collect();
        let first = self.paths.open_path(PathId::ZERO).map(Path::route);
        let first = first.filter(|route| route.is_validated());
        let first = first.map(|route| route.ends(side).remote());
        if let Some(addresses) = self.memories.tell(target, &paths, first) {
            let (keys, rng) = (self.identity.keys(), &mut self.rng);
            let token = keys.seal_new_token(now, &addresses, rng);
            self.owed.give_new_tokens(vec![token]);
            self.memories.left -= 1;
        }
    }

    /// The open paths that are worth remembering, in the order of their IDs. Of one that makes up
    /// for a loss, or is about to find out, holds what was told before.
    fn memorable_paths(&self) -> impl Iterator<Item = (PathId, KnownPath)> {
        let side = self.identity.side();
        let paths = self.paths.open().filter_map(Slot::open);
        let paths = paths.filter(move |path| path.route().is_recognizable(side));
        paths.filter_map(move |path| {
            let (route, id) = (path.route(), path.id());
            let ends = route.ends(side);
            let told = self.memories.told(id, &ends);
            let memory = route.memory().or(told.map(|told| told.memory))?;
            Some((id, KnownPath { ends, memory }))
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::PathMemory;
    use crate::time::Duration;

    const KIB: u64 = 1024;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, n, 1])
    }

    /// A path to the n-th address that carries so much.
    fn path(id: u32, n: u8, kib: u64) -> (PathId, KnownPath) {
        let memory = PathMemory::new(kib * KIB, Duration::from_millis(200));
        let (ends, memory) = (Ends::new(address(n), None), memory.unwrap());
        (PathId(id), KnownPath { ends, memory })
    }

    fn is_news(memories: &Memories, (id, path): (PathId, KnownPath)) -> bool {
        memories.is_news(id, &path)
    }

    /// What a token says, in KiB.
    fn says(entries: Option<Vec<TokenEntry>>) -> Option<Vec<(IpAddr, u64)>> {
        let bytes = |memory: Option<PathMemory>| memory.map_or(0, PathMemory::bytes);
        let of = |(address, memory)| (address, bytes(memory) / KIB);
        entries.map(|entries| entries.into_iter().map(of).collect())
    }

    #[test]
    fn a_path_that_shares_an_address_tells_nothing_of_the_others() {
        let (mut memories, first) = (Memories::default(), Some(address(0)));
        let told = memories.tell(PathId(0), &[path(0, 0, 100)], first);
        assert_eq!(says(told), Some(vec![(address(0), 100)]));
        let shared = path(1, 0, 30);
        assert!(is_news(&memories, shared));
        let told = memories.tell(PathId(1), &[path(0, 0, 190), shared], first);
        assert_eq!(says(told), None);
        assert!(!is_news(&memories, shared), "it is not asked each time");
        assert!(!is_news(&memories, path(0, 0, 199)));
        assert!(is_news(&memories, path(0, 0, 200)), "100 is what was sent");
    }

    #[test]
    fn nor_does_one_for_which_a_token_has_no_place() {
        let mut memories = Memories::default();
        let mut paths: Vec<_> = (0..5).map(|n| path(n, n as u8, 100)).collect();
        assert!(memories.tell(PathId(0), &paths, None).is_some());
        paths = (0..5).map(|n| path(n, n as u8, 190)).collect();
        paths.push(path(5, 5, 30));
        assert!(is_news(&memories, path(5, 5, 30)));
        assert_eq!(memories.tell(PathId(5), &paths, None), None);
        assert!(!is_news(&memories, path(5, 5, 30)));
        assert!((0..5).all(|n| is_news(&memories, path(n, n as u8, 200))));
    }

    #[test]
    fn what_the_address_of_the_handshake_pushes_out_is_not_told() {
        let (mut memories, first) = (Memories::default(), Some(address(0)));
        // The first one carries nothing worth remembering.
        let paths: Vec<_> = (1..=5)
            .map(|n| path(n, n as u8, 600 - u64::from(n)))
            .collect();
        let told = memories.tell(PathId(1), &paths, first);
        let named = [(0, 0), (1, 599), (2, 598), (3, 597), (4, 596)];
        let named = named.map(|(n, kib)| (address(n), kib));
        assert_eq!(says(told), Some(named.to_vec()));
        assert!(is_news(&memories, paths[4]), "the token does not say it");
        assert!(paths[..4].iter().all(|path| !is_news(&memories, *path)));
        assert_eq!(memories.tell(PathId(5), &paths, first), None);
        assert!(!is_news(&memories, paths[4]));
    }

    #[test]
    fn what_was_told_of_another_address_is_not_told_of_this_one() {
        let mut memories = Memories::default();
        memories.tell(PathId(0), &[path(0, 0, 100)], None);
        assert!(is_news(&memories, path(0, 1, 50)));
        memories.tell(PathId(0), &[path(0, 1, 50)], None);
        assert_eq!(memories.told, [path(0, 1, 50)]);
    }
}
