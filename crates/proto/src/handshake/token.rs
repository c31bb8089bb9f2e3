//! Tokens a server hands out so that it need not remember clients: Retry tokens, `NEW_TOKEN`
//! tokens and stateless reset tokens (RFC 9000, sections 8.1 and 10.3); and the tag that protects a
//! Retry (RFC 9001, section 5.8).
//!
//! A token is one byte that tells its kind, a random nonce, and AES-256-GCM over the rest:
//!
//! ```text
//! Retry      authenticated: kind, address, port, connection ID  sealed: time, original DCID
//! NEW_TOKEN  authenticated: kind                    sealed: time; addresses, each with a memory
//! ```
//!
//! The memory is what the path to that address carried when the token was issued (RFC 9959), or
//! zeros: so the server need not remember that either.
//!
//! The server keeps no list of tokens it gave out. One from a Retry may be used again within its
//! lifetime, by anyone who has seen the client's packets. A `NEW_TOKEN` token is good once: the
//! endpoint notes its [`TokenId`] when it is used, and a client stores it with what it [resumes
//! from](crate::resumption).

use crate::congestion::PathMemory;
use crate::congestion::resume::MEMORY_LIFETIME;
use crate::known_paths::{Ends, KnownPath, MAX_KNOWN_PATHS, address, address_bytes};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, KeyInit};
use anabranch_wire::cid::MAX_CID_LEN;
use anabranch_wire::cursor::Reader;
use anabranch_wire::{ConnectionId, ResetToken};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// How long a Retry token is good for: one handshake over a slow link.
pub const RETRY_LIFETIME: Duration = Duration::from_secs(30);
/// How long a `NEW_TOKEN` token is good for.
pub const NEW_TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The key of RFC 9001, section 5.8.
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
/// The nonce of RFC 9001, section 5.8.
const RETRY_NONCE: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

const RETRY: u8 = 0x72;
/// Not 0x6e: what is sealed under that kind has another form.
const NEW_TOKEN: u8 = 0x6d;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
/// Bytes of an address in a `NEW_TOKEN` token, with its memory.
const ENTRY_LEN: usize = 16 + PathMemory::LEN;

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token was genuine once.
    #[error("the token has expired")]
    Expired,
    /// The token is forged, damaged, or was given to someone else.
    #[error("the token is not valid here")]
    Invalid,
    /// The token does not claim to come from a Retry: the client may still be served without it
    /// (RFC 9000, section 8.1.3).
    #[error("the token is not from a Retry")]
    NotRetry,
}

/// What tells one `NEW_TOKEN` token from all others, in the order in which they were issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenId {
    /// When it was issued.
    pub issued: Instant,
    /// The token's random part.
    pub nonce: [u8; 12],
}

/// An address that a `NEW_TOKEN` token names, and what the path to it carried.
pub(crate) type TokenEntry = (IpAddr, Option<PathMemory>);

/// What a `NEW_TOKEN` token says to who can open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewToken {
    /// Which one it is.
    pub(crate) id: TokenId,
    /// What paths carried, if it comes soon enough; the one to the address that it came from first.
    pub(crate) paths: Vec<KnownPath>,
}

/// The secrets behind an endpoint's tokens.
///
/// With the same [reset secret](Self::set_reset_secret), an endpoint that restarted can still reset
/// connections it forgot.
#[derive(Clone)]
pub struct EndpointKeys {
    reset: Hmac<Sha256>,
    seal: Aes256Gcm,
}

impl EndpointKeys {
    /// Keys that derive from `seed`.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let derive = |label: &[u8]| -> [u8; 32] {
            let mut mac = keyed(seed);
            mac.update(label);
            mac.finalize().into_bytes().into()
        };
        Self {
            reset: keyed(derive(b"anabranch reset token")),
            seal: Aes256Gcm::new(&derive(b"anabranch address token").into()),
        }
    }

    /// Makes reset tokens depend on `secret` and not on the seed (RFC 9000, section 10.3.2).
    /// Address tokens do not: the clock they are dated by starts anew with the endpoint.
    pub fn set_reset_secret(&mut self, secret: [u8; 32]) {
        self.reset = keyed(secret);
    }

    /// The stateless reset token of a connection ID (RFC 9000, section 10.3.2).
    pub fn reset_token(&self, cid: &ConnectionId) -> ResetToken {
        let mut mac = self.reset.clone();
        mac.update(cid.as_slice());
        let code: [u8; 32] = mac.finalize().into_bytes().into();
        let mut token = [0; 16];
        token.copy_from_slice(&code[..16]);
        ResetToken(token)
    }

    /// A token for a Retry to `remote`, which is to come back with `retry_scid` as destination.
    pub fn seal_retry(
        &self,
        now: Instant,
        remote: SocketAddr,
        original_dcid: &ConnectionId,
        retry_scid: &ConnectionId,
        rng: &mut Rng,
    ) -> Vec<u8> {
        let mut content = now.as_nanos().to_be_bytes().to_vec();
        content.extend_from_slice(original_dcid.as_slice());
        self.seal(RETRY, &retry_context(remote, retry_scid), &content, rng)
    }

    /// Checks a token that came from `remote` in an Initial packet for `dcid`; returns the
    /// destination connection ID of the client's very first packet.
    ///
    /// # Errors
    /// [`TokenError::NotRetry`] is no reason to close; the others are one for `INVALID_TOKEN`.
    pub fn open_retry(
        &self,
        now: Instant,
        token: &[u8],
        remote: SocketAddr,
        dcid: &ConnectionId,
    ) -> Result<ConnectionId, TokenError> {
        if token.first() != Some(&RETRY) {
            return Err(TokenError::NotRetry);
        }
        let context = retry_context(remote, dcid);
        let content = self
            .open(RETRY, &context, token)
            .ok_or(TokenError::Invalid)?;
        let mut reader = Reader::new(&content);
        check_age(now, &mut reader, RETRY_LIFETIME)?;
        ConnectionId::new(reader.rest()).ok_or(TokenError::Invalid)
    }

    /// A token for later connections from any of these addresses, of which the first
    /// [`MAX_KNOWN_PATHS`] count.
    pub(crate) fn seal_new_token(
        &self,
        now: Instant,
        addresses: &[TokenEntry],
        rng: &mut Rng,
    ) -> Vec<u8> {
        let mut content = now.as_nanos().to_be_bytes().to_vec();
        for (address, memory) in addresses.iter().take(MAX_KNOWN_PATHS) {
            content.extend_from_slice(&address_bytes(*address));
            // Zeros are no memory: a token's length tells how many addresses it names, and not
            // whether the path to one carried anything.
            content.extend(memory.map_or([0; PathMemory::LEN], PathMemory::encode));
        }
        self.seal(NEW_TOKEN, &[], &content, rng)
    }

    /// Checks that a `NEW_TOKEN` token names the address it came from. Whether it was used before
    /// is for the caller to know.
    pub(crate) fn open_new_token(
        &self,
        now: Instant,
        token: &[u8],
        remote: IpAddr,
    ) -> Result<NewToken, TokenError> {
        let content = self
            .open(NEW_TOKEN, &[], token)
            .ok_or(TokenError::Invalid)?;
        let mut reader = Reader::new(&content);
        let issued = check_age(now, &mut reader, NEW_TOKEN_LIFETIME)?;
        let nonce = token[1..].first_chunk().ok_or(TokenError::Invalid)?;
        let (entries, []) = reader.rest().as_chunks::<ENTRY_LEN>() else {
            return Err(TokenError::Invalid);
        };
        let entries = entries.iter().map(read_entry);
        let remote = remote.to_canonical();
        if !entries.clone().any(|(address, _)| address == remote) {
            return Err(TokenError::Invalid);
        }
        let is_fresh = now.since(issued) <= MEMORY_LIFETIME;
        let known = |(address, memory): TokenEntry| {
            let ends = Ends::new(address, None);
            memory.map(|memory| KnownPath { ends, memory })
        };
        let mut paths: Vec<_> = entries.filter_map(known).filter(|_| is_fresh).collect();
        paths.sort_by_key(|path| path.ends.remote() != remote);
        Ok(NewToken {
            id: TokenId {
                issued,
                nonce: *nonce,
            },
            paths,
        })
    }

    fn seal(&self, kind: u8, context: &[u8], content: &[u8], rng: &mut Rng) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = rng.array();
        let mut token = Vec::with_capacity(1 + NONCE_LEN + content.len() + TAG_LEN);
        token.push(kind);
        token.extend_from_slice(&nonce);
        token.extend_from_slice(content);
        let buffer = InOutBuf::from(&mut token[1 + NONCE_LEN..]);
        let tag = self
            .seal
            .encrypt_inout_detached(&nonce.into(), &authenticated(kind, context), buffer)
            .expect("a token is far below the cipher's limit");
        token.extend_from_slice(&tag);
        token
    }

    fn open(&self, kind: u8, context: &[u8], token: &[u8]) -> Option<Vec<u8>> {
        let mut reader = Reader::new(token);
        if reader.u8().ok()? != kind {
            return None;
        }
        let nonce: [u8; NONCE_LEN] = reader.array().ok()?;
        let (content, tag) = reader.rest().split_last_chunk::<TAG_LEN>()?;
        let longest = MAX_CID_LEN.max(ENTRY_LEN * MAX_KNOWN_PATHS);
        if content.len() > 8 + longest {
            return None;
        }
        let mut content = content.to_vec();
        let buffer = InOutBuf::from(content.as_mut_slice());
        let context = authenticated(kind, context);
        let tag = (*tag).into();
        self.seal
            .decrypt_inout_detached(&nonce.into(), &context, buffer, &tag)
            .ok()?;
        Some(content)
    }
}

impl fmt::Debug for EndpointKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointKeys").finish_non_exhaustive()
    }
}

fn keyed(key: [u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(&key).expect("HMAC takes keys of any length")
}

fn authenticated(kind: u8, context: &[u8]) -> Vec<u8> {
    [&[kind], context].concat()
}

/// An address and its memory, as [`EndpointKeys::seal_new_token`] writes them.
fn read_entry(entry: &[u8; ENTRY_LEN]) -> TokenEntry {
    let (at, memory) = entry.split_at(ENTRY_LEN - PathMemory::LEN);
    let at = at.try_into().expect("16 bytes are left");
    let memory = memory.try_into().expect("it was split there");
    (address(at), PathMemory::decode(memory))
}

fn retry_context(remote: SocketAddr, retry_scid: &ConnectionId) -> Vec<u8> {
    [
        &address_bytes(remote.ip())[..],
        &remote.port().to_be_bytes(),
        retry_scid.as_slice(),
    ]
    .concat()
}

/// When a token was issued. Fails for one from before its lifetime, and for one from the future:
/// time started anew.
fn check_age(
    now: Instant,
    reader: &mut Reader<'_>,
    lifetime: Duration,
) -> Result<Instant, TokenError> {
    let issued = reader
        .array()
        .map(u64::from_be_bytes)
        .map_err(|_| TokenError::Invalid)?;
    let issued = Instant::from_nanos(issued);
    if issued > now || now.since(issued) > lifetime {
        Err(TokenError::Expired)
    } else {
        Ok(issued)
    }
}

/// The last 16 bytes of a Retry packet, over the rest of it and the connection ID it answers
/// (RFC 9001, section 5.8).
///
/// Anyone can compute it: it tells that the Retry's sender saw the client's packet.
pub fn retry_integrity_tag(original_dcid: &ConnectionId, retry_without_tag: &[u8]) -> [u8; 16] {
    let length = [original_dcid.len() as u8];
    let pseudo = [&length, original_dcid.as_slice(), retry_without_tag].concat();
    Aes128Gcm::new(&RETRY_KEY.into())
        .encrypt_inout_detached(&RETRY_NONCE.into(), &pseudo, InOutBuf::from(&mut [][..]))
        .expect("a datagram is far below the cipher's limit")
        .into()
}

#[cfg(test)]
mod tests;
