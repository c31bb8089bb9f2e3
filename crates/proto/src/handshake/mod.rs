//! TLS, keys and packet protection (RFC 9001).
//!
//! This module decides which keys exist, which bytes a packet becomes and whether received bytes
//! are genuine. It does not decide when a level's keys are dropped, what packets carry, or what the
//! peer's transport parameters mean: that is the connection's part.
//!
//! One timer: received packets of the previous key phase, and 0-RTT packets, are accepted until
//! [`deadline`](Handshake::deadline).

mod crypto_stream;
pub(crate) mod flights;
mod keys;
pub mod tls;
pub mod token;
pub(crate) mod undecryptable;

use crate::error::TransportError;
use crate::packet::Frames;
use crate::resumption::Resume;
use crate::time::{Duration, Instant};
use anabranch_wire::{ConnectionId, PathId, Side, TransportErrorCode};
use crypto_stream::{Receiver, Sender};
use keys::{EarlyKeys, LevelKeys, OneRttKeys};
use std::fmt;
use std::ops::Range;
use tls::{HeaderKey, InitialSuite, KeyChange, SavedSession, Session};

/// An encryption level (RFC 9001, section 2.1).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Keys that anyone can derive from the client's first destination connection ID.
    Initial,
    /// Keys of the TLS handshake.
    Handshake,
    /// Keys of application data.
    OneRtt,
    /// Keys of application data that a client sends before the handshake ends, known from an
    /// earlier connection. It has no CRYPTO bytes; its packets are numbered with those of 1-RTT.
    ZeroRtt,
}

impl Level {
    /// Whether packets of this level carry application data, in the spaces of paths.
    pub fn is_data(self) -> bool {
        matches!(self, Self::OneRtt | Self::ZeroRtt)
    }
}

/// What removing header protection reveals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unprotected {
    /// The packet number's lowest `pn_len` bytes.
    pub pn: u64,
    /// Bytes the packet number takes: 1 to 4.
    pub pn_len: usize,
    /// The key phase bit; meaningless in packets with a long header.
    pub key_phase: bool,
    /// Whether the reserved bits are zero, as they must be in a packet that opens.
    pub reserved_bits_zero: bool,
}

/// Why a packet cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenError {
    /// The packet is not genuine, or there are no keys for it (any more, or yet): drop it.
    Undecryptable,
    /// The connection must close.
    Fatal(TransportError),
}

/// Why the keys are not updated now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyUpdateRefused {
    /// The handshake is not confirmed (RFC 9001, section 6.1).
    #[error("the handshake is not confirmed")]
    NotConfirmed,
    /// The peer has not acknowledged a packet of the current key phase (RFC 9001, section 6.1).
    #[error("the peer has not acknowledged the current keys yet")]
    Unacknowledged,
    /// Three PTOs have not passed since it did (RFC 9001, section 6.5).
    #[error("the last key update is too recent")]
    TooSoon,
}

/// Keying material cannot be exported: the handshake is not complete, or too much was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("keying material cannot be exported")]
pub struct ExportError;

/// CRYPTO bytes of one encryption level, both ways.
#[derive(Default)]
struct Crypto {
    send: Sender,
    receive: Receiver,
}

/// The handshake of one connection, and the protection of all its packets.
pub struct Handshake {
    side: Side,
    session: Session,
    initial_suite: InitialSuite,
    /// Keys of Initial and of Handshake packets.
    levels: [Option<Box<LevelKeys>>; 2],
    one_rtt: Option<OneRttKeys>,
    /// Keys of 0-RTT packets: those a client sends, those a server reads.
    early: Option<EarlyKeys>,
    /// `None` once the level is over. Boxed, as are its keys: most of its time a connection has but
    /// the last.
    crypto: [Option<Box<Crypto>>; 3],
    /// The level TLS reads from.
    read_level: Level,
    /// The level TLS writes to.
    write_level: Level,
    confirmed: bool,
    /// Packets that failed to open, of all levels and paths (RFC 9001, section 6.6).
    failed_opens: u64,
    #[cfg(feature = "null-protection")]
    null_protection: bool,
}

impl Handshake {
    /// Bytes that sealing adds to a packet.
    pub const TAG_LEN: usize = tls::TAG_LEN;

    /// A client that knows the server as `server_name` and sent its first packet to `initial_dcid`.
    ///
    /// `params` are its transport parameters as they go on the wire. It resumes if `resume` fits.
    pub fn client(
        tls: &tls::ClientTls,
        server_name: &str,
        params: Vec<u8>,
        initial_dcid: &ConnectionId,
        resume: Option<&Resume>,
    ) -> Result<Self, tls::ConfigError> {
        let session = Session::client(tls, server_name, params, resume)?;
        let mut handshake = Self::new(Side::Client, session, tls.initial_suite(), initial_dcid);
        handshake.pump();
        handshake.early = handshake.session.early_keys().map(EarlyKeys::new);
        Ok(handshake)
    }

    /// A server whose client sent its first packet (the first after a Retry) to `initial_dcid`.
    ///
    /// `params` are its transport parameters as they go on the wire.
    #[allow(clippy::unnecessary_wraps, reason = "as for a client")]
    pub fn server(
        tls: &tls::ServerTls,
        params: Vec<u8>,
        initial_dcid: &ConnectionId,
    ) -> Result<Self, tls::ConfigError> {
        let session = Session::server(tls, params);
        Ok(Self::new(
            Side::Server,
            session,
            tls.initial_suite(),
            initial_dcid,
        ))
    }

    fn new(side: Side, session: Session, suite: InitialSuite, dcid: &ConnectionId) -> Self {
        Self {
            side,
            session,
            initial_suite: suite,
            levels: [Some(Box::new(LevelKeys::new(suite.keys(side, dcid)))), None],
            one_rtt: None,
            early: None,
            crypto: std::array::from_fn(|_| Some(Box::default())),
            read_level: Level::Initial,
            write_level: Level::Initial,
            confirmed: false,
            failed_opens: 0,
            #[cfg(feature = "null-protection")]
            null_protection: false,
        }
    }

    /// Leaves 1-RTT packets without any protection once the handshake yields their keys. To be
    /// called before the first packet is handled, and for both sides.
    #[cfg(feature = "null-protection")]
    pub fn set_null_protection(&mut self, on: bool) {
        self.null_protection = on;
    }

    /// Whether this is the client or the server.
    pub fn side(&self) -> Side {
        self.side
    }

    /// A Retry told the client to start again at `new_dcid`: new Initial keys, and all CRYPTO bytes
    /// are to be sent again (RFC 9001, section 5.2).
    pub fn on_retry(&mut self, new_dcid: &ConnectionId) {
        let keys = self.initial_suite.keys(self.side, new_dcid);
        self.levels[Level::Initial as usize] = Some(Box::new(LevelKeys::new(keys)));
        if let Some(crypto) = self.crypto_mut(Level::Initial) {
            crypto.send.restart();
        }
    }

    fn crypto(&self, level: Level) -> Option<&Crypto> {
        self.crypto.get(level as usize)?.as_deref()
    }

    fn crypto_mut(&mut self, level: Level) -> Option<&mut Crypto> {
        self.crypto.get_mut(level as usize)?.as_deref_mut()
    }

    /// Takes the bytes of a CRYPTO frame; installs the keys that they yield.
    ///
    /// # Errors
    /// A TLS alert (0x100 plus its number), `CRYPTO_BUFFER_EXCEEDED` for data too far ahead, or
    /// `PROTOCOL_VIOLATION` for data of a level that is over (RFC 9001, section 4.1.3).
    pub fn on_crypto(
        &mut self,
        level: Level,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let read_level = self.read_level;
        let Some(crypto) = self.crypto_mut(level) else {
            return Ok(());
        };
        if crypto.receive.is_repetition(offset, data.len()) {
            return Ok(());
        }
        if level < read_level {
            return Err(after_the_end());
        }
        crypto.receive.push(offset, data)?;
        while let Some(bytes) = self.next_crypto() {
            self.session.read(&bytes)?;
            self.pump();
            self.settle_early_keys();
            let now_read = if self.session.is_complete() {
                Level::OneRtt
            } else if self.has_keys(Level::Handshake) {
                Level::Handshake
            } else {
                self.read_level
            };
            if now_read > self.read_level {
                let read = self.crypto(self.read_level);
                if read.is_some_and(|it| it.receive.has_gap()) {
                    return Err(after_the_end());
                }
                self.read_level = now_read;
            }
        }
        Ok(())
    }

    /// The next bytes for TLS.
    fn next_crypto(&mut self) -> Option<Vec<u8>> {
        self.crypto_mut(self.read_level)?.receive.pop()
    }

    /// Takes what TLS wants to send, and its keys.
    fn pump(&mut self) {
        let mut flight = Vec::new();
        loop {
            flight.clear();
            let change = self.session.write(&mut flight);
            if let Some(crypto) = self.crypto_mut(self.write_level) {
                crypto.send.append(&flight);
            }
            match change {
                None if flight.is_empty() => break,
                None => {}
                Some(KeyChange::Handshake(keys)) => {
                    self.levels[Level::Handshake as usize] = Some(Box::new(LevelKeys::new(keys)));
                    self.write_level = Level::Handshake;
                }
                Some(KeyChange::OneRtt(keys, secrets)) => {
                    #[cfg(feature = "null-protection")]
                    let (keys, secrets) = if self.null_protection {
                        keys.without_protection()
                    } else {
                        (keys, secrets)
                    };
                    self.one_rtt = Some(OneRttKeys::new(keys, secrets));
                    self.write_level = Level::OneRtt;
                }
            }
        }
    }

    /// Keys of 0-RTT packets come with a server's answer to the client, for whom they go with it.
    fn settle_early_keys(&mut self) {
        match self.side {
            Side::Server if self.early.is_none() && !self.session.is_complete() => {
                self.early = self.session.early_keys().map(EarlyKeys::new);
            }
            // RFC 9001, section 4.9.3. The first part of an answer may say neither yet, and the
            // rest of it may be late.
            Side::Client if self.one_rtt.is_some() || self.session.has_refused_early_data() => {
                self.early = None;
            }
            Side::Client | Side::Server => {}
        }
    }

    /// Whether the server, which answered, reads what was sent in 0-RTT packets.
    pub fn is_early_data_accepted(&self) -> bool {
        self.session.is_early_data_accepted()
    }

    /// Whether the TLS session is one of an earlier connection.
    pub fn is_resumed(&self) -> bool {
        self.session.has_resumed()
    }

    /// What a later connection can resume; each call yields another session, the newest first.
    pub(crate) fn take_session(&mut self) -> Option<SavedSession> {
        self.session.take_session()
    }

    /// How many sessions a server lets its client resume.
    pub(crate) fn tickets_given(&self) -> usize {
        self.session.tickets_given()
    }

    /// Whether there is one.
    pub(crate) fn has_session(&self) -> bool {
        self.session.has_session()
    }

    /// Sets the time from which 0-RTT packets are discarded: what the client sent before may be
    /// late.
    pub fn discard_early_at(&mut self, at: Instant) {
        if let Some(early) = &mut self.early {
            early.discard_at = Some(at);
        }
    }

    /// Whether CRYPTO bytes wait to be sent at this level.
    pub fn has_crypto(&self, level: Level) -> bool {
        let crypto = self.crypto(level);
        crypto.is_some_and(|crypto| crypto.send.is_pending())
    }

    /// Appends CRYPTO frames while they fit; returns whether it did.
    pub fn write_crypto(&mut self, level: Level, frames: &mut Frames<'_>) -> bool {
        let pending = self.crypto_mut(level).filter(|it| it.send.is_pending());
        pending.is_some_and(|crypto| crypto.send.write(frames))
    }

    /// A CRYPTO frame was acknowledged.
    pub fn on_crypto_acked(&mut self, level: Level, start: u64, length: u32) {
        if let Some(crypto) = self.crypto_mut(level) {
            crypto.send.on_acked(start, length);
        }
    }

    /// A CRYPTO frame was lost: what of it is not acknowledged is sent again.
    pub fn on_crypto_lost(&mut self, level: Level, start: u64, length: u32) {
        if let Some(crypto) = self.crypto_mut(level) {
            crypto.send.on_lost(start, length);
        }
    }

    /// Whether packets of this level can be sent.
    ///
    /// A server may send 1-RTT packets before the handshake is complete (RFC 9001, section 5.7).
    pub fn has_keys(&self, level: Level) -> bool {
        match level {
            Level::OneRtt => self.one_rtt.is_some(),
            Level::ZeroRtt => self.early.is_some(),
            _ => self.level(level).is_some(),
        }
    }

    /// Whether packets of this level can be opened.
    ///
    /// 1-RTT packets cannot before the handshake is complete (RFC 9001, section 5.7); those that
    /// arrive earlier may be kept until it is.
    pub fn can_open(&self, level: Level) -> bool {
        self.has_keys(level)
            && match level {
                Level::OneRtt => self.is_complete(),
                Level::ZeroRtt => self.side.is_server(),
                Level::Initial | Level::Handshake => true,
            }
    }

    /// Whether keys of this level may still come.
    pub fn may_open_later(&self, level: Level) -> bool {
        match level {
            Level::Initial => false,
            Level::Handshake | Level::OneRtt => !self.is_complete(),
            // They come with the whole of the client's first message, or never. Handshake keys are
            // dropped again, so that their absence alone says nothing.
            Level::ZeroRtt => {
                self.side.is_server() && !self.is_complete() && !self.has_keys(Level::Handshake)
            }
        }
    }

    /// Drops keys and CRYPTO bytes of this level, for ever (RFC 9001, section 4.9).
    pub fn discard(&mut self, level: Level) {
        match self.levels.get_mut(level as usize) {
            Some(keys) => *keys = None,
            None => self.one_rtt = None,
        }
        self.crypto[level as usize] = None;
    }

    /// Whether TLS is done (RFC 9001, section 4.1.1).
    pub fn is_complete(&self) -> bool {
        self.read_level == Level::OneRtt
    }

    /// Whether the handshake is confirmed (RFC 9001, section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// The handshake is confirmed: a client got `HANDSHAKE_DONE`, a server is complete.
    pub fn set_confirmed(&mut self) {
        self.confirmed = true;
    }

    /// The peer's transport parameters; authentic once the handshake is complete.
    pub fn peer_params(&self) -> Option<&[u8]> {
        self.session.peer_params()
    }

    /// The application protocol agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.session.alpn()
    }

    /// On a server, the name the client asked for, if it did.
    pub fn server_name(&self) -> Option<&str> {
        self.session.server_name()
    }

    /// The peer's `SubjectPublicKeyInfo` (raw public key) or leaf certificate, in DER.
    pub fn peer_identity(&self) -> Option<Vec<u8>> {
        self.session.peer_identity()
    }

    /// Fills `out` with a secret that both sides can derive (RFC 8446, section 7.5).
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.session
            .export(out, label, context)
            .then_some(())
            .ok_or(ExportError)
    }
}

/// Packet protection.
impl Handshake {
    /// Seals the packet that starts at `start` and ends with `packet`: encrypts in place, appends
    /// the tag, applies header protection.
    ///
    /// `pn_offset` is absolute. Packet number and plaintext must take 4 bytes together at least,
    /// for header protection to have its sample (RFC 9001, section 5.4.2).
    ///
    /// # Errors
    /// `AEAD_LIMIT_REACHED`: the key may seal no more. `INTERNAL_ERROR`: there is no key, the
    /// packet is too short, or its packet number was used before.
    #[allow(
        clippy::too_many_arguments,
        reason = "each names one part of the packet"
    )]
    pub fn seal(
        &mut self,
        level: Level,
        path: PathId,
        pn: u64,
        packet: &mut Vec<u8>,
        start: usize,
        pn_offset: usize,
        pn_len: usize,
    ) -> Result<(), TransportError> {
        if packet.len() < pn_offset + 4 {
            return Err(internal("a packet is too short for header protection"));
        }
        let (header, payload) = packet[start..].split_at_mut(pn_offset - start + pn_len);
        let tag = match level {
            Level::OneRtt => self
                .one_rtt
                .as_mut()
                .map(|keys| keys.seal(path, pn, header, payload)),
            Level::ZeroRtt => self
                .early
                .as_mut()
                .map(|keys| keys.seal(pn, header, payload)),
            _ => self
                .level_mut(level)
                .map(|keys| keys.seal(pn, header, payload)),
        };
        let tag = tag.ok_or_else(|| internal("no keys to seal a packet with"))??;
        packet.extend_from_slice(&tag);
        let protected = self
            .header_key(level, Direction::Local)
            .is_some_and(|key| key.protect(&mut packet[start..], pn_offset - start));
        if protected {
            Ok(())
        } else {
            Err(internal("header protection failed"))
        }
    }

    fn level(&self, level: Level) -> Option<&LevelKeys> {
        self.levels.get(level as usize)?.as_deref()
    }

    fn level_mut(&mut self, level: Level) -> Option<&mut LevelKeys> {
        self.levels.get_mut(level as usize)?.as_deref_mut()
    }

    fn header_key(&self, level: Level, direction: Direction) -> Option<&HeaderKey> {
        Some(match (level, direction) {
            (Level::OneRtt, Direction::Local) => self.one_rtt.as_ref()?.local_header(),
            (Level::OneRtt, Direction::Remote) => self.one_rtt.as_ref()?.remote_header(),
            // A client only sends them, a server only reads them.
            (Level::ZeroRtt, _) => &self.early.as_ref()?.keys.header,
            (_, Direction::Local) => &self.level(level)?.keys.local.header,
            (_, Direction::Remote) => &self.level(level)?.keys.remote.header,
        })
    }

    /// Removes header protection in place. `packet` is one packet, `pn_offset` relative to it.
    ///
    /// `None` leaves the packet as it was: it is too short, or there are no keys to open it with.
    pub fn unprotect(
        &self,
        level: Level,
        packet: &mut [u8],
        pn_offset: usize,
    ) -> Option<Unprotected> {
        if !self.can_open(level) {
            return None;
        }
        let key = self.header_key(level, Direction::Remote)?;
        if !key.unprotect(packet, pn_offset) {
            return None;
        }
        let first = packet[0];
        let pn_len = usize::from(first & 0x03) + 1;
        let bytes = packet.get(pn_offset..pn_offset + pn_len)?;
        let reserved = if first & 0x80 == 0 { 0x18 } else { 0x0c };
        Some(Unprotected {
            pn: bytes.iter().fold(0, |pn, byte| pn << 8 | u64::from(*byte)),
            pn_len,
            key_phase: first & 0x04 != 0,
            reserved_bits_zero: first & reserved == 0,
        })
    }

    /// Opens a packet in place, after [`unprotect`](Self::unprotect); returns where its payload is.
    ///
    /// `pn` is the whole packet number, `header_len` ends after it. Nothing but a counter remembers
    /// a packet that is [`OpenError::Undecryptable`]; its bytes are spoilt.
    #[allow(
        clippy::too_many_arguments,
        reason = "each names one part of the packet"
    )]
    pub fn open(
        &mut self,
        now: Instant,
        level: Level,
        path: PathId,
        pn: u64,
        key_phase: bool,
        packet: &mut [u8],
        header_len: usize,
    ) -> Result<Range<usize>, OpenError> {
        if !self.can_open(level) {
            return Err(OpenError::Undecryptable);
        }
        let (header, payload) = packet
            .split_at_mut_checked(header_len)
            .ok_or(OpenError::Undecryptable)?;
        let (opened, limit) = if level == Level::OneRtt {
            let keys = self.one_rtt.as_mut().ok_or(OpenError::Undecryptable)?;
            let opened = keys.open(now, path, pn, key_phase, header, payload);
            (opened.map_err(OpenError::Fatal)?, keys.integrity_limit())
        } else {
            let key = match level {
                Level::ZeroRtt => self.early.as_ref().map(|early| &early.keys.packet),
                _ => self.level(level).map(|level| &level.keys.remote.packet),
            };
            let key = key.ok_or(OpenError::Undecryptable)?;
            (
                key.open(PathId::ZERO, pn, header, payload),
                key.integrity_limit(),
            )
        };
        match opened {
            Some(length) => Ok(header_len..header_len + length),
            None => Err(self.on_failed_open(limit)),
        }
    }

    /// RFC 9001, section 6.6: forgeries are counted over the whole connection.
    fn on_failed_open(&mut self, limit: u64) -> OpenError {
        self.failed_opens += 1;
        if self.failed_opens <= limit {
            return OpenError::Undecryptable;
        }
        let code = TransportErrorCode::AEAD_LIMIT_REACHED;
        OpenError::Fatal(TransportError::new(code, "too many packets failed to open"))
    }

    /// Packets that failed to open so far.
    pub fn failed_opens(&self) -> u64 {
        self.failed_opens
    }
}

/// Key update (RFC 9001, section 6).
impl Handshake {
    /// The bit for the headers of 1-RTT packets to be sent now.
    pub fn key_phase(&self) -> bool {
        self.one_rtt.as_ref().is_some_and(OneRttKeys::key_phase)
    }

    /// The packet opened last acknowledges 1-RTT packets of `path` up to this one.
    pub fn on_acked(&mut self, path: PathId, largest_acked: u64) {
        if let Some(keys) = &mut self.one_rtt {
            keys.on_acked(path, largest_acked);
        }
    }

    /// Starts a key update, if the rules permit one now. `three_pto` is of the slowest path.
    pub fn update_keys(
        &mut self,
        now: Instant,
        three_pto: Duration,
    ) -> Result<(), KeyUpdateRefused> {
        match &mut self.one_rtt {
            Some(keys) if self.confirmed => keys.update(now, three_pto),
            _ => Err(KeyUpdateRefused::NotConfirmed),
        }
    }

    /// Whether the keys sealed so many packets that it is time for others.
    pub fn needs_key_update(&self) -> bool {
        self.one_rtt.as_ref().is_some_and(OneRttKeys::needs_update)
    }

    /// How long keys of the previous phase are kept: three PTOs of the slowest path.
    pub fn set_key_discard_delay(&mut self, three_pto: Duration) {
        if let Some(keys) = &mut self.one_rtt {
            keys.set_discard_delay(three_pto);
        }
    }

    /// Drops receive keys whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(keys) = &mut self.one_rtt {
            keys.handle_timeout(now);
        }
        let early = self.early.as_ref().and_then(|keys| keys.discard_at);
        if early.is_some_and(|at| at <= now) {
            self.early = None;
        }
    }

    /// When receive keys of the previous phase, or of 0-RTT, are to be dropped.
    pub fn deadline(&self) -> Option<Instant> {
        let previous = self.one_rtt.as_ref().and_then(OneRttKeys::deadline);
        let early = self.early.as_ref().and_then(|keys| keys.discard_at);
        previous.into_iter().chain(early).min()
    }

    /// A path is gone for ever: so is what was noted about its packets.
    pub fn forget_path(&mut self, path: PathId) {
        if let Some(keys) = &mut self.one_rtt {
            keys.forget_path(path);
        }
    }

    /// Key updates so far, whoever started them.
    pub fn keys_updated(&self) -> u64 {
        self.one_rtt.as_ref().map_or(0, OneRttKeys::generation)
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("side", &self.side)
            .field("read_level", &self.read_level)
            .field("write_level", &self.write_level)
            .field("confirmed", &self.confirmed)
            .field("keys_updated", &self.keys_updated())
            .field("failed_opens", &self.failed_opens)
            .finish_non_exhaustive()
    }
}

/// Which of the two directions a key is for.
#[derive(Clone, Copy)]
enum Direction {
    Local,
    Remote,
}

fn internal(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::INTERNAL_ERROR, reason)
}

fn after_the_end() -> TransportError {
    TransportError::violation("CRYPTO data after the end of its encryption level")
        .in_frame(crypto_stream::FRAME_TYPE)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
