//! From a datagram's first bytes to its connection and path.

use super::Handle;
use crate::path::manager::Routing;
use crate::wire::header::{FIXED_BIT, LONG_HEADER_BIT};
use crate::wire::{ConnectionId, PathId, ResetToken};
use std::collections::BTreeMap;

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Connection(Handle, PathId),
    Unknown,
}

/// Connection IDs kept at hand: those of a connection with two paths.
const RECENT: usize = 2;

/// Connection IDs in use, and tokens that would end a connection.
#[derive(Debug, Default)]
pub(super) struct Routes {
    cids: BTreeMap<ConnectionId, (Handle, PathId)>,
    /// Those of the datagrams that came last, where the next ones mostly go too.
    recent: [Option<(ConnectionId, (Handle, PathId))>; RECENT],
    /// Which of them gives way next.
    oldest: usize,
    /// Tokens by their bytes. A lookup takes time that depends on the bytes, but they are the
    /// peer's choice and random: nothing can be learned from it.
    tokens: BTreeMap<[u8; 16], Handle>,
}

impl Routes {
    /// The connection and path of a datagram: by its destination connection ID, or by the stateless
    /// reset token at its end.
    pub(super) fn find(&mut self, data: &[u8], cid_length: usize) -> Destination {
        let known = destination_cid(data, cid_length).and_then(|cid| self.find_cid(cid));
        if let Some((handle, path)) = known {
            return Destination::Connection(handle, path);
        }
        self.find_reset(data)
            .map_or(Destination::Unknown, |handle| {
                Destination::Connection(handle, PathId::ZERO)
            })
    }

    fn find_cid(&mut self, cid: ConnectionId) -> Option<(Handle, PathId)> {
        let mut recent = self.recent.iter().flatten();
        if let Some((_, to)) = recent.find(|(known, _)| *known == cid) {
            return Some(*to);
        }
        let to = *self.cids.get(&cid)?;
        self.recent[self.oldest] = Some((cid, to));
        self.oldest = (self.oldest + 1) % RECENT;
        Some(to)
    }

    /// The connection that a stateless reset ends (RFC 9000, section 10.3.1).
    fn find_reset(&self, data: &[u8]) -> Option<Handle> {
        let looks_like = data.len() >= 21 && data[0] & (LONG_HEADER_BIT | FIXED_BIT) == FIXED_BIT;
        let tail = data.last_chunk::<16>().filter(|_| looks_like)?;
        self.tokens.get(tail).copied()
    }

    pub(super) fn apply(&mut self, handle: Handle, change: Routing) {
        self.recent = [None; RECENT];
        match change {
            Routing::AddCid(cid, path) => {
                self.cids.insert(cid, (handle, path));
            }
            Routing::RemoveCid(cid) => {
                if self
                    .cids
                    .get(&cid)
                    .is_some_and(|(owner, _)| *owner == handle)
                {
                    self.cids.remove(&cid);
                }
            }
            Routing::AddToken(ResetToken(token)) => {
                self.tokens.insert(token, handle);
            }
            Routing::RemoveToken(ResetToken(token)) => {
                if self.tokens.get(&token) == Some(&handle) {
                    self.tokens.remove(&token);
                }
            }
        }
    }

    /// Takes back everything routed to a connection that cannot be asked what that is.
    pub(super) fn remove_all(&mut self, handle: Handle) {
        self.recent = [None; RECENT];
        self.cids.retain(|_, (owner, _)| *owner != handle);
        self.tokens.retain(|_, owner| *owner != handle);
    }

    /// Connection IDs and tokens of all connections.
    #[cfg(feature = "internals")]
    pub(super) fn count(&self) -> usize {
        self.cids.len() + self.tokens.len()
    }

    /// Whether nothing is routed to a connection any more. Looks at every route: for assertions.
    pub(super) fn is_free(&self, handle: Handle) -> bool {
        let by_cid = self.cids.values().any(|(owner, _)| *owner == handle);
        !by_cid && !self.tokens.values().any(|owner| *owner == handle)
    }
}

/// The destination connection ID of a packet of any version (RFC 8999).
fn destination_cid(data: &[u8], cid_length: usize) -> Option<ConnectionId> {
    let bytes = if data.first()? & LONG_HEADER_BIT == 0 {
        data.get(1..=cid_length)?
    } else {
        let length = usize::from(*data.get(5)?);
        data.get(6..6 + length)?
    };
    ConnectionId::new(bytes)
}
