//! What later connections are told of the path that the handshake took (RFC 9959): a server's
//! clients bring it back in tokens, a client keeps it with what it resumes from.

use super::Connection;
use crate::path::state::Path;
use crate::resumption::KnownPath;
use crate::time::Instant;
use crate::wire::PathId;

/// Tokens with a memory that a connection issues at most.
const MAX_MEMORIES: u8 = 10;
/// Another one is issued when the path carries so many times what the last one says.
const GROWTH: u64 = 2;

/// What was told of the path so far.
#[derive(Debug, Default)]
pub(super) struct Memories {
    /// Tokens that may still be issued; none at a client.
    left: u8,
    /// Bytes that the last one says.
    told: u64,
    /// A client's state has it.
    is_taken: bool,
}

impl Connection {
    /// A server begins to tell, if its clients resume at all. Those that get no tickets seldom come
    /// with tokens.
    pub(super) fn begin_memories(&mut self) {
        if self.config.careful_resume && self.handshake.tickets_given() > 0 {
            self.memories.left = MAX_MEMORIES;
        }
    }

    /// Queues a token that says what the path carries, if it is much more than the last one says.
    pub(super) fn tell_memory(&mut self, now: Instant, target: PathId) {
        // What is owed or under way leaves and arrives as one.
        let is_due = self.memories.left > 0 && target == PathId::ZERO;
        if !is_due || self.owed.new_token.is_some() || self.owed.new_token_sent.is_some() {
            return;
        }
        let Some(route) = self.paths.path(target).map(Path::route) else {
            return;
        };
        let grown = self.memories.told.saturating_mul(GROWTH);
        let Some(memory) = route.memory().filter(|memory| memory.bytes() >= grown) else {
            return;
        };
        let address = [route.tuple().remote.ip()];
        let (keys, rng) = (self.identity.keys(), &mut self.rng);
        let token = keys.seal_new_token(now, &address, Some(memory), rng);
        self.owed.new_token = Some(vec![token]);
        self.memories.told = memory.bytes();
        self.memories.left -= 1;
    }

    /// What a client's path carried, for the first state that is taken once there is something to
    /// know: two connections at a time must not resume from the same.
    pub(super) fn take_known_path(&mut self) -> Option<KnownPath> {
        if self.memories.is_taken || !self.config.careful_resume {
            return None;
        }
        let route = self.paths.path(PathId::ZERO)?.route();
        let known = KnownPath::new(route.memory()?, &route.tuple());
        self.memories.is_taken = true;
        Some(known)
    }
}
