//! Key phases of 1-RTT packets (RFC 9001, section 6) for all paths together (RFC 10069).
//!
//! ```text
//! generation:   previous ----------> current ----------> next (derived ahead of need)
//! opens:        late packets         the normal case     the peer's update
//! ends:         three PTOs after the first packet of the current generation arrived
//! ```
//!
//! The key phase is one for the connection, but packet numbers only order packets of one path.
//! Whether a packet of the other phase is late or announces an update is therefore told by the
//! lowest packet number of the current generation seen *on its path*.

use super::KeyUpdateRefused;
use super::tls::{DirectionKeys, HeaderKey, Keys, PacketKey, PhaseKeys, Secrets, TAG_LEN};
use crate::error::TransportError;
use crate::time::{Duration, Instant};
use anabranch_wire::{PathId, TransportErrorCode};

/// Keys of Initial or Handshake packets.
pub(super) struct LevelKeys {
    pub(super) keys: Keys,
    /// Packets sealed with them.
    sent: u64,
}

impl LevelKeys {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, sent: 0 }
    }

    pub(super) fn seal(
        &mut self,
        pn: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<[u8; TAG_LEN], TransportError> {
        seal(
            &self.keys.local.packet,
            &mut self.sent,
            PathId::ZERO,
            pn,
            header,
            payload,
        )
    }
}

/// Keys of 0-RTT packets, which go one way only.
pub(super) struct EarlyKeys {
    pub(super) keys: DirectionKeys,
    /// Packets sealed with them.
    sent: u64,
    /// When packets of this kind cannot be late any more.
    pub(super) discard_at: Option<Instant>,
}

impl EarlyKeys {
    pub(super) fn new(keys: DirectionKeys) -> Self {
        Self {
            keys,
            sent: 0,
            discard_at: None,
        }
    }

    pub(super) fn seal(
        &mut self,
        pn: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<[u8; TAG_LEN], TransportError> {
        let Self { keys, sent, .. } = self;
        seal(&keys.packet, sent, PathId::ZERO, pn, header, payload)
    }
}

fn seal(
    key: &PacketKey,
    sent: &mut u64,
    path: PathId,
    pn: u64,
    header: &[u8],
    payload: &mut [u8],
) -> Result<[u8; TAG_LEN], TransportError> {
    if *sent >= key.confidentiality_limit() {
        let code = TransportErrorCode::AEAD_LIMIT_REACHED;
        return Err(TransportError::new(
            code,
            "a key sealed as many packets as it may",
        ));
    }
    *sent += 1;
    key.seal(path, pn, header, payload)
        .ok_or_else(|| internal("a packet cannot be sealed"))
}

fn internal(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::INTERNAL_ERROR, reason)
}

fn key_update_error(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::KEY_UPDATE_ERROR, reason)
}

/// Receive key of the generation before the current one.
struct Previous {
    key: PacketKey,
    /// Unknown until the first packet of the current generation arrives.
    discard_at: Option<Instant>,
}

/// What one path has seen of the current generation, and of earlier ones.
#[derive(Debug, Clone, Copy, Default)]
struct PathPhase {
    /// The highest packet number sealed, in any generation.
    last_sent: Option<u64>,
    /// The first packet number sealed in the current generation.
    first_sent: Option<u64>,
    /// The lowest packet number opened in the current generation: the boundary.
    lowest: Option<u64>,
    /// The highest packet number opened in the current generation.
    highest: Option<u64>,
    /// The highest packet number opened in an earlier generation.
    highest_before: Option<u64>,
}

/// The phases of all paths that are not given up: few, so a search costs less than a tree.
#[derive(Default)]
struct Phases(Vec<(PathId, PathPhase)>);

impl Phases {
    fn get(&self, path: PathId) -> Option<&PathPhase> {
        let found = self.0.iter().find(|(id, _)| *id == path);
        found.map(|(_, phase)| phase)
    }

    fn get_mut(&mut self, path: PathId) -> &mut PathPhase {
        let known = self.0.iter().position(|(id, _)| *id == path);
        let at = known.unwrap_or_else(|| {
            self.0.push((path, PathPhase::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    #[cfg(test)]
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as a map does")]
    fn contains_key(&self, path: &PathId) -> bool {
        self.get(*path).is_some()
    }
}

/// Keys of 1-RTT packets.
pub(super) struct OneRttKeys {
    local_header: HeaderKey,
    remote_header: HeaderKey,
    local: PacketKey,
    remote: PacketKey,
    previous: Option<Previous>,
    next: PhaseKeys,
    secrets: Secrets,
    /// Key updates so far.
    generation: u64,
    /// Packets sealed in this generation, on all paths.
    sent: u64,
    /// When the peer was first known to have the current generation.
    confirmed_at: Option<Instant>,
    last_opened: Instant,
    /// Three times the largest PTO of all paths.
    discard_delay: Duration,
    paths: Phases,
    /// Holds a packet's copy while the previous key is tried, since a failure spoils the bytes.
    scratch: Vec<u8>,
}

impl OneRttKeys {
    pub(super) fn new(keys: Keys, mut secrets: Secrets) -> Self {
        Self {
            local_header: keys.local.header,
            remote_header: keys.remote.header,
            local: keys.local.packet,
            remote: keys.remote.packet,
            previous: None,
            next: secrets.next(),
            secrets,
            generation: 0,
            sent: 0,
            confirmed_at: None,
            last_opened: Instant::ZERO,
            discard_delay: Duration::ZERO,
            paths: Phases::default(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn local_header(&self) -> &HeaderKey {
        &self.local_header
    }

    pub(super) fn remote_header(&self) -> &HeaderKey {
        &self.remote_header
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn key_phase(&self) -> bool {
        self.generation % 2 == 1
    }

    pub(super) fn integrity_limit(&self) -> u64 {
        self.remote.integrity_limit()
    }

    /// Half-way to the limit: the peer may take long to permit the next update.
    pub(super) fn needs_update(&self) -> bool {
        self.sent >= self.local.confidentiality_limit() / 2
    }

    pub(super) fn seal(
        &mut self,
        path: PathId,
        pn: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<[u8; TAG_LEN], TransportError> {
        let phase = self.paths.get_mut(path);
        if phase.last_sent.is_some_and(|last| pn <= last) {
            // Sealing two packets with one nonce would reveal both.
            return Err(internal("a packet number was to be used twice"));
        }
        phase.last_sent = Some(pn);
        phase.first_sent.get_or_insert(pn);
        seal(&self.local, &mut self.sent, path, pn, header, payload)
    }

    /// Opens in place; `Ok(None)` leaves everything but `payload` as it was.
    pub(super) fn open(
        &mut self,
        now: Instant,
        path: PathId,
        pn: u64,
        key_phase: bool,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Option<usize>, TransportError> {
        if key_phase == self.key_phase() {
            let Some(length) = self.remote.open(path, pn, header, payload) else {
                return Ok(None);
            };
            self.on_opened_current(now, path, pn)?;
            return Ok(Some(length));
        }
        let seen = self.paths.get(path).copied().unwrap_or_default();
        if let Some(length) = self.open_previous(path, pn, header, payload) {
            if seen.lowest.is_some_and(|lowest| pn > lowest) {
                let reason = "old keys on a packet after one with newer keys";
                return Err(key_update_error(reason));
            }
            let phase = self.paths.get_mut(path);
            phase.highest_before = phase.highest_before.max(Some(pn));
            self.last_opened = now;
            return Ok(Some(length));
        }
        if seen.lowest.is_some_and(|lowest| pn < lowest) {
            // Older than the current generation on this path: the next keys cannot be meant.
            return Ok(None);
        }
        let Some(length) = self.next.remote.open(path, pn, header, payload) else {
            return Ok(None);
        };
        if self.generation > 0 && self.sent == 0 {
            let reason = "a key update before the one before it was acknowledged";
            return Err(key_update_error(reason));
        }
        self.rotate();
        self.on_opened_current(now, path, pn)?;
        Ok(Some(length))
    }

    /// Tries the previous generation's key on a copy.
    #[cold]
    fn open_previous(
        &mut self,
        path: PathId,
        pn: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Option<usize> {
        let previous = self.previous.as_ref()?;
        self.scratch.clear();
        self.scratch.extend_from_slice(payload);
        let length = previous.key.open(path, pn, header, &mut self.scratch)?;
        payload[..length].copy_from_slice(&self.scratch[..length]);
        Some(length)
    }

    fn on_opened_current(
        &mut self,
        now: Instant,
        path: PathId,
        pn: u64,
    ) -> Result<(), TransportError> {
        let phase = self.paths.get_mut(path);
        if phase.highest_before.is_some_and(|highest| pn < highest) {
            return Err(key_update_error(
                "new keys on a packet before one with older keys",
            ));
        }
        phase.lowest = Some(phase.lowest.map_or(pn, |lowest| lowest.min(pn)));
        phase.highest = phase.highest.max(Some(pn));
        self.last_opened = now;
        if let Some(previous) = &mut self.previous {
            previous.discard_at.get_or_insert(now + self.discard_delay);
        }
        Ok(())
    }

    /// Makes the next generation the current one.
    #[cold]
    fn rotate(&mut self) {
        let following = self.secrets.next();
        let current = std::mem::replace(&mut self.next, following);
        self.local = current.local;
        let key = std::mem::replace(&mut self.remote, current.remote);
        self.previous = Some(Previous {
            key,
            discard_at: None,
        });
        self.generation += 1;
        self.sent = 0;
        self.confirmed_at = None;
        for (_, phase) in &mut self.paths.0 {
            phase.highest_before = phase.highest_before.max(phase.highest);
            phase.first_sent = None;
            phase.lowest = None;
            phase.highest = None;
        }
    }

    /// An acknowledgement reached up to `largest` on `path`; its packet was the last one opened.
    pub(super) fn on_acked(&mut self, path: PathId, largest: u64) {
        if self.confirmed_at.is_none() {
            let first = self.paths.get(path).and_then(|phase| phase.first_sent);
            if first.is_some_and(|first| largest >= first) {
                self.confirmed_at = Some(self.last_opened);
            }
        }
    }

    pub(super) fn update(
        &mut self,
        now: Instant,
        three_pto: Duration,
    ) -> Result<(), KeyUpdateRefused> {
        let confirmed_at = self.confirmed_at.ok_or(KeyUpdateRefused::Unacknowledged)?;
        if now < confirmed_at + three_pto {
            return Err(KeyUpdateRefused::TooSoon);
        }
        self.discard_delay = three_pto;
        self.rotate();
        Ok(())
    }

    /// An update regardless of the rules.
    #[cfg(test)]
    pub(super) fn force_update(&mut self) {
        self.rotate();
    }

    pub(super) fn set_discard_delay(&mut self, three_pto: Duration) {
        self.discard_delay = three_pto;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.previous.as_ref()?.discard_at
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.previous = None;
        }
    }

    pub(super) fn forget_path(&mut self, path: PathId) {
        self.paths.0.retain(|(id, _)| *id != path);
    }
}

#[cfg(test)]
mod tests;
