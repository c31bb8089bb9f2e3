//! Keys that protect packets (RFC 9001, section 5), free of the TLS library's types.

use anabranch_wire::{ConnectionId, PathId, Side};
use rustls::quic;

#[cfg(feature = "null-protection")]
mod null;

/// Bytes of the tag every cipher suite of QUIC v1 appends (RFC 9001, section 5.3).
pub(crate) const TAG_LEN: usize = 16;
/// Bytes sampled for header protection (RFC 9001, section 5.4.2).
const SAMPLE_LEN: usize = 16;
/// The sample starts as if the packet number took its greatest length.
const MAX_PN_LEN: usize = 4;

/// One direction's header protection key.
pub(crate) enum HeaderKey {
    Cipher(Box<dyn quic::HeaderProtectionKey>),
    #[cfg(feature = "null-protection")]
    Null,
}

impl HeaderKey {
    /// Masks the first byte and the packet number of a sealed packet; false if it is too short.
    pub(crate) fn protect(&self, packet: &mut [u8], pn_offset: usize) -> bool {
        split(packet, pn_offset).is_some_and(|(first, pn, sample)| match self {
            Self::Cipher(key) => key.encrypt_in_place(sample, first, pn).is_ok(),
            #[cfg(feature = "null-protection")]
            Self::Null => true,
        })
    }

    /// Undoes [`protect`](Self::protect); a packet that is too short stays as it was.
    pub(crate) fn unprotect(&self, packet: &mut [u8], pn_offset: usize) -> bool {
        split(packet, pn_offset).is_some_and(|(first, pn, sample)| match self {
            Self::Cipher(key) => key.decrypt_in_place(sample, first, pn).is_ok(),
            #[cfg(feature = "null-protection")]
            Self::Null => true,
        })
    }
}

/// First byte, the four bytes that may hold the packet number, sample.
fn split(packet: &mut [u8], pn_offset: usize) -> Option<(&mut u8, &mut [u8], &[u8])> {
    let (head, tail) = packet.split_at_mut_checked(pn_offset.checked_add(MAX_PN_LEN)?)?;
    let sample = tail.get(..SAMPLE_LEN)?;
    let (first, rest) = head.split_first_mut()?;
    Some((first, rest.get_mut(pn_offset.checked_sub(1)?..)?, sample))
}

/// One direction's AEAD key of one key phase.
pub(crate) enum PacketKey {
    Cipher(Box<dyn quic::PacketKey>),
    #[cfg(feature = "null-protection")]
    Null(null::NullKey),
}

impl PacketKey {
    /// Encrypts `payload` in place and returns the tag, or `None` if the cipher cannot.
    ///
    /// The path is a part of the nonce (RFC 10069). For path 0 the nonce is that of RFC 9001,
    /// section 5.3, which is what Initial and Handshake packets need.
    pub(crate) fn seal(
        &self,
        path: PathId,
        pn: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Option<[u8; TAG_LEN]> {
        let key = match self {
            Self::Cipher(key) => key,
            #[cfg(feature = "null-protection")]
            Self::Null(key) => return Some(key.tag()),
        };
        let tag = if path == PathId::ZERO {
            key.encrypt_in_place(pn, header, payload)
        } else {
            key.encrypt_in_place_for_path(path.0, pn, header, payload)
        };
        tag.ok()?.as_ref().try_into().ok()
    }

    /// Decrypts `payload`, which ends in the tag, in place; returns the plaintext's length.
    ///
    /// The content of `payload` is unspecified after a failure.
    pub(crate) fn open(
        &self,
        path: PathId,
        pn: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Option<usize> {
        let key = match self {
            Self::Cipher(key) => key,
            #[cfg(feature = "null-protection")]
            Self::Null(key) => return key.open(payload),
        };
        let plaintext = if path == PathId::ZERO {
            key.decrypt_in_place(pn, header, payload)
        } else {
            key.decrypt_in_place_for_path(path.0, pn, header, payload)
        };
        plaintext.ok().map(<[u8]>::len)
    }

    /// Packets that may be sealed with this key (RFC 9001, section 6.6).
    pub(crate) fn confidentiality_limit(&self) -> u64 {
        match self {
            Self::Cipher(key) => key.confidentiality_limit(),
            #[cfg(feature = "null-protection")]
            Self::Null(key) => key.confidentiality_limit,
        }
    }

    /// Packets that may fail to open in a connection that uses this cipher.
    pub(crate) fn integrity_limit(&self) -> u64 {
        match self {
            Self::Cipher(key) => key.integrity_limit(),
            #[cfg(feature = "null-protection")]
            Self::Null(key) => key.integrity_limit,
        }
    }
}

impl From<Box<dyn quic::PacketKey>> for PacketKey {
    fn from(key: Box<dyn quic::PacketKey>) -> Self {
        Self::Cipher(key)
    }
}

/// Header and packet keys of one direction.
pub(crate) struct DirectionKeys {
    pub(crate) header: HeaderKey,
    pub(crate) packet: PacketKey,
}

/// Keys of both directions of one encryption level.
pub(crate) struct Keys {
    pub(crate) local: DirectionKeys,
    pub(crate) remote: DirectionKeys,
}

impl From<quic::DirectionalKeys> for DirectionKeys {
    fn from(keys: quic::DirectionalKeys) -> Self {
        Self {
            header: HeaderKey::Cipher(keys.header),
            packet: keys.packet.into(),
        }
    }
}

impl From<quic::Keys> for Keys {
    fn from(keys: quic::Keys) -> Self {
        Self {
            local: keys.local.into(),
            remote: keys.remote.into(),
        }
    }
}

/// Packet keys of both directions for one key phase.
pub(crate) struct PhaseKeys {
    pub(crate) local: PacketKey,
    pub(crate) remote: PacketKey,
}

/// What the packet keys of all later key phases derive from (RFC 9001, section 6.1).
pub(crate) enum Secrets {
    Tls(quic::Secrets),
    #[cfg(feature = "null-protection")]
    Null(PhaseKeys),
}

impl Secrets {
    /// The keys of the following key phase; each call goes one further.
    pub(crate) fn next(&mut self) -> PhaseKeys {
        match self {
            Self::Tls(secrets) => {
                let keys = secrets.next_packet_keys();
                PhaseKeys {
                    local: PacketKey::Cipher(keys.local),
                    remote: PacketKey::Cipher(keys.remote),
                }
            }
            #[cfg(feature = "null-protection")]
            Self::Null(newest) => null::following(newest),
        }
    }
}

/// Derives the keys of Initial packets (RFC 9001, section 5.2).
#[derive(Clone, Copy)]
pub(crate) struct InitialSuite(pub(super) quic::Suite);

impl InitialSuite {
    /// Keys for a client that sent its first Initial packet to `dcid`.
    pub(crate) fn keys(self, side: Side, dcid: &ConnectionId) -> Keys {
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        self.0.keys(dcid.as_slice(), side, quic::Version::V1).into()
    }

    /// Whether the provider's cipher builds nonces with a path ID: a provider need not.
    pub(crate) fn supports_multipath(self) -> bool {
        let keys = self.keys(Side::Client, &ConnectionId::default());
        keys.local
            .packet
            .seal(PathId(1), 0, &[], &mut [0; 4])
            .is_some()
    }
}
