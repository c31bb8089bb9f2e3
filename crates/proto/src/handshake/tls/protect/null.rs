//! No protection at all, for simulations: packets keep the size that protection gives them, and
//! every byte of them is readable and can be forged.
//!
//! Nothing but the feature `null-protection` compiles this, and nothing but
//! `Endpoint::leave_unprotected` turns it on. Key phases and the limits of the cipher that was
//! replaced work as ever, so that the same packets leave at the same times.

use super::{HeaderKey, Keys, PacketKey, PhaseKeys, Secrets, TAG_LEN};

/// How a tag begins: a packet that some cipher protected is no packet without protection.
const MARK: [u8; 8] = *b"no crypt";

/// What stands in for one direction's AEAD key of one key phase.
pub(crate) struct NullKey {
    /// Key updates so far; a part of the tag, so that packets of another key phase do not open.
    generation: u64,
    pub(super) confidentiality_limit: u64,
    pub(super) integrity_limit: u64,
}

impl NullKey {
    /// Stands in for `key`.
    fn replacing(key: &PacketKey, generation: u64) -> Self {
        Self {
            generation,
            confidentiality_limit: key.confidentiality_limit(),
            integrity_limit: key.integrity_limit(),
        }
    }

    pub(super) fn tag(&self) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag[..MARK.len()].copy_from_slice(&MARK);
        tag[MARK.len()..].copy_from_slice(&self.generation.to_be_bytes());
        tag
    }

    /// The length of the payload before the tag, if the tag is right.
    pub(super) fn open(&self, payload: &[u8]) -> Option<usize> {
        payload.strip_suffix(&self.tag()).map(<[u8]>::len)
    }
}

impl Keys {
    /// Replaces keys by none, and the secrets from which those of later phases derive.
    pub(crate) fn without_protection(mut self) -> (Self, Secrets) {
        for keys in [&mut self.local, &mut self.remote] {
            keys.header = HeaderKey::Null;
            keys.packet = PacketKey::Null(NullKey::replacing(&keys.packet, 0));
        }
        let newest = PhaseKeys {
            local: PacketKey::Null(NullKey::replacing(&self.local.packet, 0)),
            remote: PacketKey::Null(NullKey::replacing(&self.remote.packet, 0)),
        };
        (self, Secrets::Null(newest))
    }
}

/// The keys of the phase after `newest`, which becomes that phase.
pub(super) fn following(newest: &mut PhaseKeys) -> PhaseKeys {
    let next = |key: &PacketKey| {
        let generation = match key {
            PacketKey::Null(key) => key.generation + 1,
            PacketKey::Cipher(_) => unreachable!("only keys that protect nothing come here"),
        };
        PacketKey::Null(NullKey::replacing(key, generation))
    };
    let keys = || PhaseKeys {
        local: next(&newest.local),
        remote: next(&newest.remote),
    };
    let (result, kept) = (keys(), keys());
    *newest = kept;
    result
}
