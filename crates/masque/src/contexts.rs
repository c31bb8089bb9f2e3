//! Contexts: what the datagrams of one request mean (RFC 9298, section 4).
//!
//! Context 0 is a UDP payload or an IP packet. Others are registered by capsules: numbered ones
//! (draft-ihlar-masque-datagram-numbers) and those for other remote ends of a bound UDP socket
//! (draft-ietf-masque-connect-udp-listen). Each side has IDs of its own, the client even ones; once
//! registered, both may use them.

use crate::capsule::{Capsule, NumberBits};
use crate::error::{Code, Error, malformed, stream};
use crate::extensions::Extensions;
use crate::ip;
use crate::limits;
use crate::protocol::Protocol;
use anabranch_wire::cursor::Reader;
use anabranch_wire::{Side, varint};
use bytes::{Buf as _, Bytes};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What datagrams of a context carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A UDP payload to or from the request's target, or an IP packet.
    Payload,
    /// A number, and then what another context carries.
    Numbered {
        /// The other context.
        payload: u64,
        /// The size of the number.
        bits: NumberBits,
    },
    /// A remote end, and a UDP payload to or from it.
    AnyRemote,
    /// A UDP payload to or from this remote end.
    Remote(SocketAddr),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    context: Context,
    is_acknowledged: bool,
}

/// A datagram, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The context of the datagram.
    pub context: u64,
    /// The lowest bits of its number, if it is numbered.
    pub number: Option<(u64, NumberBits)>,
    /// The remote end that it names or its context stands for.
    pub remote: Option<SocketAddr>,
    /// The UDP payload or IP packet.
    pub payload: Bytes,
}

/// The contexts of one request, as one side sees them.
#[derive(Debug)]
pub struct Contexts {
    side: Side,
    protocol: Protocol,
    extensions: Extensions,
    has_target: bool,
    /// All but context 0.
    open: BTreeMap<u64, Entry>,
    /// Those of them that stand for one remote end.
    by_remote: BTreeMap<SocketAddr, u64>,
    /// The one of them that names remote ends.
    any_remote: Option<u64>,
    /// The ID of the next context that we register.
    next: u64,
    /// The size of numbers in the peer's last registration.
    peer_bits: Option<NumberBits>,
}

impl Contexts {
    /// Whether both sides have agreed that datagrams with numbers are repaired.
    pub fn are_repaired(&self) -> bool {
        self.extensions.numbers && self.extensions.repair
    }

    /// The contexts of a request on our side, with what both sides agreed on. `has_target` is false
    /// for UDP that asked for no target in particular: then context 0 means nothing. Only UDP can
    /// have agreed on bind.
    pub fn new(side: Side, protocol: Protocol, extensions: Extensions, has_target: bool) -> Self {
        Self {
            side,
            protocol,
            extensions: Extensions {
                bind: extensions.bind && protocol == Protocol::Udp,
                ..extensions
            },
            has_target,
            open: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            any_remote: None,
            next: if side.is_client() { 2 } else { 1 },
            peer_bits: None,
        }
    }

    /// What a context carries; `None` if there is no such context, or no longer.
    pub fn find(&self, id: u64) -> Option<Context> {
        if id == 0 {
            return self.has_target.then_some(Context::Payload);
        }
        self.open.get(&id).map(|entry| entry.context)
    }

    /// The context by which to send to a remote end: one that stands for it, or else the one that
    /// names remote ends; only if the peer knows it.
    pub fn toward(&self, remote: SocketAddr) -> Option<u64> {
        let is_known = |id: &u64| {
            let entry = self.open.get(id);
            entry.is_some_and(|entry| entry.is_acknowledged)
        };
        let one = self.by_remote.get(&remote).copied().filter(is_known);
        one.or(self.any_remote.filter(is_known))
    }

    /// Registers numbers in front of what another context carries. `None` if they were not agreed
    /// on, there is no such context, it begins with numbers itself or there are too many contexts.
    pub fn number(&mut self, payload: u64, bits: NumberBits) -> Option<(u64, Capsule)> {
        if !self.extensions.numbers || !self.can_be_numbered(payload) {
            return None;
        }
        let context = Context::Numbered { payload, bits };
        // Nobody acknowledges it; datagrams that overtake it are lost.
        let id = self.register(context, true)?;
        let capsule = Capsule::RegisterSequence {
            context: id,
            payload_context: payload,
            bits: Some(bits),
        };
        Some((id, capsule))
    }

    /// The context, of either side, that numbers what another one carries.
    pub fn numbers_of(&self, payload: u64) -> Option<(u64, NumberBits)> {
        self.open
            .iter()
            .find_map(|(id, entry)| match entry.context {
                Context::Numbered {
                    payload: inner,
                    bits,
                } if inner == payload => Some((*id, bits)),
                _ => None,
            })
    }

    /// The context that stands for a remote end, whether the peer knows it yet or not.
    pub fn of_remote(&self, remote: SocketAddr) -> Option<u64> {
        self.by_remote.get(&remote).copied()
    }

    fn can_be_numbered(&self, payload: u64) -> bool {
        let context = self.find(payload);
        context.is_some_and(|context| !matches!(context, Context::Numbered { .. }))
    }

    /// Registers a context whose datagrams name their remote end. `None` if bind was not agreed on,
    /// we are not the client, there is one already or there are too many contexts.
    pub fn open_any(&mut self) -> Option<(u64, Capsule)> {
        let is_client = self.side.is_client();
        if !self.extensions.bind || !is_client || self.any_remote.is_some() {
            return None;
        }
        self.assign(Context::AnyRemote, None)
    }

    /// Registers a context for one remote end. `None` if bind was not agreed on, there is one
    /// already, the client does not want to hear of others, or there are too many contexts.
    pub fn open(&mut self, remote: SocketAddr) -> Option<(u64, Capsule)> {
        let is_welcome = self.side.is_client() || self.any_remote.is_some();
        if !self.extensions.bind || !is_welcome || self.by_remote.contains_key(&remote) {
            return None;
        }
        self.assign(Context::Remote(remote), Some(remote))
    }

    fn assign(&mut self, context: Context, remote: Option<SocketAddr>) -> Option<(u64, Capsule)> {
        let id = self.register(context, false)?;
        let context = id;
        Some((id, Capsule::CompressionAssign { context, remote }))
    }

    fn register(&mut self, context: Context, is_acknowledged: bool) -> Option<u64> {
        if self.open.len() >= limits::CONTEXTS || self.next > varint::MAX {
            return None;
        }
        let id = self.next;
        self.next += 2;
        let entry = Entry {
            context,
            is_acknowledged,
        };
        self.insert(id, entry);
        Some(id)
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        match entry.context {
            Context::Remote(remote) => {
                self.by_remote.insert(remote, id);
            }
            Context::AnyRemote => self.any_remote = Some(id),
            Context::Payload | Context::Numbered { .. } => {}
        }
        self.open.insert(id, entry);
    }

    /// Closes a context, whoever registered it, and those that number it. `None` if there is none,
    /// or bind was not agreed on: then the peer would go on with the context, which stays.
    pub fn close(&mut self, id: u64) -> Option<Capsule> {
        let is_closed = self.extensions.bind && self.remove(id);
        is_closed.then_some(Capsule::CompressionClose { context: id })
    }

    fn remove(&mut self, id: u64) -> bool {
        let Some(entry) = self.open.remove(&id) else {
            return false;
        };
        match entry.context {
            Context::Remote(remote) => {
                self.by_remote.remove(&remote);
            }
            Context::AnyRemote => self.any_remote = None,
            Context::Payload | Context::Numbered { .. } => {}
        }
        self.open.retain(
            |_, entry| !matches!(entry.context, Context::Numbered { payload, .. } if payload == id),
        );
        true
    }

    /// Takes a capsule that is about contexts; `allows` says which remote ends may be registered.
    /// Returns what is to be answered. Other capsules, and those of extensions that were not agreed
    /// on, change nothing.
    ///
    /// # Errors
    /// Of the stream: the capsule breaks the rules.
    pub fn on_capsule(
        &mut self,
        capsule: &Capsule,
        allows: impl FnOnce(SocketAddr) -> bool,
    ) -> Result<Vec<Capsule>, Error> {
        match *capsule {
            Capsule::RegisterSequence {
                context,
                payload_context,
                bits,
            } if self.extensions.numbers => {
                self.on_register(context, payload_context, bits)?;
                Ok(Vec::new())
            }
            Capsule::CompressionAssign { context, remote } if self.extensions.bind => {
                self.on_assign(context, remote, allows)
            }
            Capsule::CompressionAck { context } if self.extensions.bind => {
                self.on_acknowledged(context)?;
                Ok(Vec::new())
            }
            Capsule::CompressionClose { context } if self.extensions.bind => {
                if context == 0 {
                    return Err(malformed("context 0 was closed"));
                }
                // Ours or the peer's, or one that we closed at the same time.
                self.remove(context);
                Ok(Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn on_register(
        &mut self,
        id: u64,
        payload: u64,
        bits: Option<NumberBits>,
    ) -> Result<(), Error> {
        self.check_new(id)?;
        let bits = bits.or(self.peer_bits);
        let bits = bits.ok_or(malformed("numbers were registered without their size"))?;
        self.peer_bits = Some(bits);
        if self.extensions.bind && payload != 0 && self.find(payload).is_none() {
            // It was refused or closed while this was under way; its datagrams are dropped.
            return Ok(());
        }
        if !self.can_be_numbered(payload) {
            return Err(malformed(
                "numbers were registered for what cannot have them",
            ));
        }
        if self.open.len() >= limits::CONTEXTS {
            return Err(stream(
                Code::EXCESSIVE_LOAD,
                "a request has too many contexts",
            ));
        }
        self.insert_of_peer(id, Context::Numbered { payload, bits });
        Ok(())
    }

    fn on_assign(
        &mut self,
        id: u64,
        remote: Option<SocketAddr>,
        allows: impl FnOnce(SocketAddr) -> bool,
    ) -> Result<Vec<Capsule>, Error> {
        self.check_new(id)?;
        let (context, before) = match remote {
            None if self.side.is_client() => {
                return Err(malformed("a proxy registered a context for any remote end"));
            }
            None => (Context::AnyRemote, self.any_remote),
            Some(remote) => (
                Context::Remote(remote),
                self.by_remote.get(&remote).copied(),
            ),
        };
        let close = Capsule::CompressionClose { context: id };
        let mut answers = Vec::new();
        if let Some(before) = before {
            if !self.is_ours(before) {
                return Err(malformed("two contexts were registered for the same"));
            }
            // Both sides registered one at the same time: that of the proxy goes.
            if self.side.is_client() {
                return Ok(vec![close]);
            }
            answers.extend(self.close(before));
        }
        let is_allowed = remote.is_none_or(allows);
        if !is_allowed || self.open.len() >= limits::CONTEXTS {
            answers.push(close);
            return Ok(answers);
        }
        self.insert_of_peer(id, context);
        answers.push(Capsule::CompressionAck { context: id });
        Ok(answers)
    }

    fn on_acknowledged(&mut self, id: u64) -> Result<(), Error> {
        // One that we have closed meanwhile was registered, too.
        if !self.is_ours(id) || id >= self.next {
            return Err(malformed(
                "a context was acknowledged that was never registered",
            ));
        }
        if let Some(entry) = self.open.get_mut(&id) {
            entry.is_acknowledged = true;
        }
        Ok(())
    }

    /// Whether an ID is one of those that we give: even ones if we are the client.
    const fn is_ours(&self, id: u64) -> bool {
        id != 0 && id % 2 == self.next % 2
    }

    /// Whether the peer may register a context with this ID.
    fn check_new(&self, id: u64) -> Result<(), Error> {
        if id == 0 || self.is_ours(id) {
            return Err(malformed(
                "a context was registered with an ID of the other side",
            ));
        }
        if self.open.contains_key(&id) {
            return Err(malformed("a context was registered twice"));
        }
        Ok(())
    }

    fn insert_of_peer(&mut self, id: u64, context: Context) {
        let entry = Entry {
            context,
            is_acknowledged: true,
        };
        self.insert(id, entry);
    }

    /// Takes a datagram apart; its payload is not copied. `None` if its context is not known: it is
    /// to be dropped.
    ///
    /// # Errors
    /// Of the stream: the datagram is not what its context says.
    pub fn read(&self, datagram: Bytes) -> Result<Option<Received>, Error> {
        let too_short = stream(
            Code::DATAGRAM_ERROR,
            "a datagram is too short for its context",
        );
        let mut reader = Reader::new(&datagram);
        let id = reader.varint().map_err(|_| too_short)?;
        if id == 0 && !self.has_target {
            let reason = "a datagram for the target of a request that has none";
            return Err(stream(Code::DATAGRAM_ERROR, reason));
        }
        let Some(mut context) = self.find(id) else {
            return Ok(None);
        };
        let mut number = None;
        if let Context::Numbered { payload, bits } = context {
            let bytes = reader.bytes(bits.bytes()).map_err(|_| too_short)?;
            let value = bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
            number = Some((value, bits));
            match self.find(payload) {
                Some(inner) => context = inner,
                None => return Ok(None),
            }
        }
        let remote = match context {
            Context::Remote(remote) => Some(remote),
            Context::AnyRemote => Some(ip::socket(&mut reader).ok_or(too_short)?),
            Context::Payload | Context::Numbered { .. } => None,
        };
        let read = datagram.len() - reader.remaining();
        let mut payload = datagram;
        payload.advance(read);
        if self.protocol == Protocol::Udp && payload.len() > limits::UDP_PAYLOAD_BYTES {
            let reason = "a datagram is longer than UDP can carry";
            return Err(stream(Code::DATAGRAM_ERROR, reason));
        }
        Ok(Some(Received {
            context: id,
            number,
            remote,
            payload,
        }))
    }
}

#[cfg(test)]
#[path = "contexts_tests.rs"]
mod tests;
