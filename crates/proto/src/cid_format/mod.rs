//! The form of the connection IDs that an endpoint issues: random, or readable by a load balancer
//! (draft-ietf-quic-load-balancers-21). Either form can also tell which of several endpoints issued
//! the ID ([`Share`]).
//!
//! ```text
//! first octet          | server ID            | nonce
//! 3 bits configuration | 1 to 15 octets       | at least 4, random
//! 5 bits length - 1    |<--- encrypted, if there is a key --->|
//! ```
//!
//! Decides what is in a connection ID, not when one is issued. The nonce is random in both forms,
//! so that nothing has to be remembered from one start of a server to the next.

mod share;

pub use share::Share;

use crate::rng::Rng;
use aes_gcm::KeyInit;
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use anabranch_wire::ConnectionId;
use anabranch_wire::cid::MAX_CID_LEN;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// The shortest random connection ID: what several connections need to be told apart.
const MIN_RANDOM: usize = 4;
/// The shortest nonce that the draft allows (section 5.2).
const MIN_NONCE: usize = 4;
/// What a server ID and its nonce may have together: a connection ID without its first octet.
const MAX_PLAIN: usize = MAX_CID_LEN - 1;
/// What AES encrypts at once.
const BLOCK: usize = 16;
/// The value of the configuration bits that says that no balancer can read a connection ID.
const UNROUTABLE: u8 = 7;

/// What an endpoint's connection IDs are made of.
#[derive(Debug, Clone)]
pub enum CidFormat {
    /// Random bytes, this many (4 to 20; other lengths are brought into that range).
    Random(usize),
    /// The number of this server, for a balancer, and a random rest.
    Routable(Arc<Routable>),
    /// For one of several endpoints behind the same addresses: each recognises its own.
    Shared(Arc<Share>),
}

impl Default for CidFormat {
    /// Eight random bytes.
    fn default() -> Self {
        Self::Random(8)
    }
}

impl CidFormat {
    /// Length of all connection IDs, in bytes: short headers do not say it.
    pub fn length(&self) -> usize {
        match self {
            Self::Random(length) => (*length).clamp(MIN_RANDOM, MAX_CID_LEN),
            Self::Routable(routable) => routable.length(),
            Self::Shared(share) => share.length(),
        }
    }

    /// One for a Retry packet, which its client repeats as the key of its Initial packets: never
    /// shorter than a client's own (RFC 9000, section 7.2).
    pub(crate) fn draw_for_retry(&self, rng: &mut Rng) -> ConnectionId {
        match self {
            Self::Random(_) => random_cid(rng, self.length().max(8)),
            Self::Routable(_) => self.draw(rng),
            Self::Shared(share) => share.draw_for_retry(rng),
        }
    }

    /// A new one.
    pub(crate) fn draw(&self, rng: &mut Rng) -> ConnectionId {
        match self {
            Self::Random(_) => random_cid(rng, self.length()),
            Self::Routable(routable) => {
                let nonce: [u8; MAX_PLAIN] = rng.array();
                routable.encode(&nonce[..routable.nonce_length])
            }
            Self::Shared(share) => share.draw(rng),
        }
    }
}

/// A connection ID without meaning, such as a client invents for its server.
pub(crate) fn random_cid(rng: &mut Rng, length: usize) -> ConnectionId {
    let bytes: [u8; MAX_CID_LEN] = rng.array();
    cid(&bytes[..length.min(MAX_CID_LEN)])
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).expect("at most 20 bytes")
}

/// Why a format of routable connection IDs was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RoutableError {
    /// The rotation is out of range: the draft has three bits for it, and keeps one value.
    #[error("the rotation is {0}, expected 0 to 6 (7 is kept for what no balancer can read)")]
    Rotation(u8),
    /// The server ID is empty.
    #[error("the server ID is empty")]
    NoServerId,
    /// The nonce is so short that connection IDs would repeat.
    #[error("the nonce has {0} octets, expected at least {MIN_NONCE}")]
    ShortNonce(usize),
    /// QUIC has connection IDs of 20 octets at most.
    #[error("the server ID and its nonce have {0} octets, expected at most {MAX_PLAIN}")]
    TooLong(usize),
}

/// Connection IDs that a load balancer reads: one server's part of a configuration of
/// draft-ietf-quic-load-balancers.
#[derive(Clone)]
pub struct Routable {
    rotation: u8,
    server_id: Vec<u8>,
    nonce_length: usize,
    key: Option<Aes128>,
}

impl Routable {
    /// Connection IDs with `server_id` and a nonce of `nonce_length` octets, under the
    /// configuration of number `rotation` (0 to 6). With a key, only who has it can read the server
    /// ID.
    pub fn new(
        rotation: u8,
        server_id: &[u8],
        nonce_length: usize,
        key: Option<[u8; 16]>,
    ) -> Result<Self, RoutableError> {
        let plain = server_id.len().saturating_add(nonce_length);
        if rotation >= UNROUTABLE {
            return Err(RoutableError::Rotation(rotation));
        }
        if server_id.is_empty() {
            return Err(RoutableError::NoServerId);
        }
        if nonce_length < MIN_NONCE {
            return Err(RoutableError::ShortNonce(nonce_length));
        }
        if plain > MAX_PLAIN {
            return Err(RoutableError::TooLong(plain));
        }
        Ok(Self {
            rotation,
            server_id: server_id.to_owned(),
            nonce_length,
            key: key.map(|key| Aes128::new(&key.into())),
        })
    }

    fn length(&self) -> usize {
        1 + self.server_id.len() + self.nonce_length
    }

    /// The connection ID with this nonce.
    fn encode(&self, nonce: &[u8]) -> ConnectionId {
        let mut bytes = Vec::with_capacity(MAX_CID_LEN);
        bytes.push(self.rotation << 5 | (self.length() - 1) as u8);
        bytes.extend_from_slice(&self.server_id);
        bytes.extend_from_slice(nonce);
        if let Some(key) = &self.key {
            encrypt(key, &mut bytes[1..]);
        }
        cid(&bytes)
    }
}

/// Who reads a log learns no key.
impl fmt::Debug for Routable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routable")
            .field("rotation", &self.rotation)
            .field("server_id", &self.server_id)
            .field("nonce_length", &self.nonce_length)
            .field("is_encrypted", &self.key.is_some())
            .finish()
    }
}

/// Encrypts a server ID and its nonce in place: as one block if they are one (section 5.4.1), else
/// in four rounds of a Feistel network (section 5.4.2).
fn encrypt(key: &Aes128, plain: &mut [u8]) {
    if let Ok(block) = <&mut [u8; BLOCK]>::try_from(&mut *plain) {
        *block = encrypt_block(key, *block);
        return;
    }
    let length = plain.len();
    let [mut left, mut right] = Half::pair(plain);
    for pass in [1, 3] {
        right.mix(key, length, pass, &left);
        left.mix(key, length, pass + 1, &right);
    }
    let half = left.octets.len();
    plain[..half].copy_from_slice(&left.octets);
    // If the length is odd, the octet in the middle has a nibble of each.
    let middle = plain[length - half] & !right.mask[0];
    plain[length - half..].copy_from_slice(&right.octets);
    if length % 2 == 1 {
        plain[length - half] |= middle;
    }
}

/// One half of what is encrypted, and which of its bits belong to it.
struct Half {
    octets: Vec<u8>,
    mask: Vec<u8>,
}

impl Half {
    /// The left and the right half of `plain`.
    fn pair(plain: &[u8]) -> [Self; 2] {
        let half = plain.len().div_ceil(2);
        let is_odd = plain.len() % 2 == 1;
        let of = |octets: &[u8], shared: usize, nibble: u8| {
            let mut mask = vec![0xff; half];
            if is_odd {
                mask[shared] = nibble;
            }
            let octets = octets.iter().zip(&mask);
            Self {
                octets: octets.map(|(octet, mask)| octet & mask).collect(),
                mask,
            }
        };
        [
            of(&plain[..half], half - 1, 0xf0),
            of(&plain[plain.len() - half..], 0, 0x0f),
        ]
    }

    /// One pass: the other half, encrypted, is added to this one. `length` is that of both.
    fn mix(&mut self, key: &Aes128, length: usize, pass: u8, other: &Self) {
        let mut block = [0; BLOCK];
        block[..other.octets.len()].copy_from_slice(&other.octets);
        block[BLOCK - 2] = length as u8;
        block[BLOCK - 1] = pass;
        let block = encrypt_block(key, block);
        for ((octet, mask), added) in self.octets.iter_mut().zip(&self.mask).zip(block) {
            *octet ^= added & mask;
        }
    }
}

fn encrypt_block(key: &Aes128, plain: [u8; BLOCK]) -> [u8; BLOCK] {
    let mut block = plain.into();
    key.encrypt_block(&mut block);
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        let octet = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(octet).collect()
    }

    fn key(text: &str) -> [u8; 16] {
        unhex(text).try_into().unwrap()
    }

    fn encoded(rotation: u8, server_id: &str, nonce: &str, key: Option<[u8; 16]>) -> Vec<u8> {
        let (server_id, nonce) = (unhex(server_id), unhex(nonce));
        let routable = Routable::new(rotation, &server_id, nonce.len(), key).unwrap();
        routable.encode(&nonce).as_slice().to_owned()
    }

    /// Appendix B of the draft. Its last vector has the first octet of configuration 0.
    #[test]
    fn connection_ids_are_those_of_the_drafts_test_vectors() {
        let aes = Some(key("8f95f09245765f80256934e50c66207f"));
        let id = "ed793a51d49b8f5fab65";
        for (rotation, server_id, nonce, key, expected) in [
            (0, "c4605e", "4504cc4f", None, "07c4605e4504cc4f"),
            (0, &id[..6], "ee080dbf", aes, "0720b1d07b359d3c"),
            (1, id, "ee080dbf48", aes, "2fcc381bc74cb4fbad2823a3d1f8fed2"),
            (
                2,
                &id[..16],
                "ee080dbf48c0d1e5",
                aes,
                "504dd2d05a7b0de9b2b9907afb5ecf8cc3",
            ),
            (
                0,
                &id[..18],
                "ee080dbf48c0d1e55d",
                aes,
                "125779c9cc86beb3a3a4a3ca96fce4bfe0cdbc",
            ),
        ] {
            assert_eq!(encoded(rotation, server_id, nonce, key), unhex(expected));
        }
    }

    /// The example of section 5.4.2.4.
    #[test]
    fn the_middle_octet_of_an_odd_length_is_shared() {
        let aes = Some(key("fdf726a9893ec05c0632d3956680baf0"));
        let cid = encoded(0, "31441a", "9c69c275", aes);
        assert_eq!(cid, unhex("0767947d29be054a"));
    }

    #[test]
    fn what_the_draft_does_not_allow_is_refused() {
        let refused = |rotation, id: &[u8], nonce| Routable::new(rotation, id, nonce, None).err();
        assert_eq!(refused(7, &[1], 8), Some(RoutableError::Rotation(7)));
        assert_eq!(refused(0, &[], 8), Some(RoutableError::NoServerId));
        assert_eq!(refused(0, &[1], 3), Some(RoutableError::ShortNonce(3)));
        assert_eq!(refused(0, &[1; 12], 8), Some(RoutableError::TooLong(20)));
        assert_eq!(refused(6, &[1; 15], 4), None);
    }

    #[test]
    fn every_new_connection_id_has_the_server_id_and_another_nonce() {
        let routable = Routable::new(3, &[0xa5, 0x5a], 8, None).unwrap();
        let format = CidFormat::Routable(Arc::new(routable));
        let mut rng = Rng::from_seed([1; 32]);
        let [one, other] = [(); 2].map(|()| format.draw(&mut rng));
        for cid in [one, other] {
            assert_eq!(cid.len(), format.length());
            assert_eq!(cid.as_slice()[..3], [0x6a, 0xa5, 0x5a]);
        }
        assert_ne!(one, other);
    }

    #[test]
    fn a_key_is_not_shown() {
        let routable = Routable::new(0, &[1], 8, Some([0xee; 16])).unwrap();
        assert!(!format!("{routable:?}").contains("238"));
    }
}
