//! Clients that wait for the application's answer before they get a connection.
//!
//! ```text
//! first Initial --token, limits per address--> waiting --accept--> connection
//!                                                 |----refuse---> CONNECTION_REFUSED
//!                                                 |----retry----> Retry; it comes again, proven
//!                                                 |----ignore---> nothing
//!                                                 '----10 s-----> nothing
//! ```
//!
//! What a waiting client sends is kept, so that an answer costs it no probe time-out. All of it is
//! bounded, and once half of the places are taken, new clients must prove their address first
//! (Retry): forged addresses take no places from real ones.

use super::accept::Client;
use super::admission::Admission;
use super::{Endpoint, Handle};
use crate::config::ServerConfig;
use crate::datagram::{Ecn, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::{ConnectionId, TransportErrorCode};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Clients that wait at a time; further ones are not heard, and try again.
const MAX_WAITING: usize = 256;

/// Waiting clients from which on an address has to be proven to wait.
const CROWDED: usize = MAX_WAITING / 2;

/// Bytes kept of what one waiting client sent. A first flight with post-quantum keys and early data
/// has some ten packets.
const MAX_BYTES: usize = 16 * 1024;

/// How long an answer may take. Clients give up after about as long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that asks for a connection (see
/// [`IncomingPolicy::Ask`](crate::config::IncomingPolicy::Ask)), to be answered with
/// [`Endpoint::accept`], [`refuse`](Endpoint::refuse), [`retry`](Endpoint::retry) or
/// [`ignore`](Endpoint::ignore) within ten seconds.
#[derive(Debug)]
#[must_use = "the client waits until it is answered"]
pub struct Incoming {
    /// The connection ID that the client invented, which nobody else knows.
    dcid: ConnectionId,
    tuple: Tuple,
    is_validated: bool,
    may_retry: bool,
}

impl Incoming {
    /// The client's address as it claims.
    pub fn remote(&self) -> SocketAddr {
        self.tuple.remote
    }

    /// The socket and the addresses that its datagram came by.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// Whether the client has shown that it is at [`remote`](Self::remote), by a token of a Retry
    /// or of an earlier connection. Otherwise the address may be forged.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    /// Whether a Retry makes sense: a client follows one only (RFC 9000, section 17.2.5.2).
    pub fn may_retry(&self) -> bool {
        self.may_retry
    }
}

/// Why a client did not get its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The client waited for more than ten seconds.
    #[error("the client waited too long and was forgotten")]
    Forgotten,
    /// The server has as many connections as it may, in all or from the client's address. The
    /// client was refused.
    #[error("the server has as many connections as it may")]
    TooMany,
    /// Nothing that the client sent could be read.
    #[error("what the client sent is not the beginning of a connection")]
    Unreadable,
    /// The endpoint has no [`ServerConfig`] any more.
    #[error("the endpoint accepts no clients")]
    NoServer,
    /// The client has answered a Retry already.
    #[error("the client was sent a Retry before")]
    RetriedBefore,
}

/// A datagram of a waiting client.
#[derive(Debug)]
struct Kept {
    ecn: Option<Ecn>,
    bytes: Vec<u8>,
}

/// A client that waits for an answer.
#[derive(Debug)]
struct Waiting {
    client: Client,
    datagrams: Vec<Kept>,
    since: Instant,
}

impl Waiting {
    fn keep(&mut self, ecn: Option<Ecn>, data: &[u8]) {
        let bytes: usize = self.datagrams.iter().map(|kept| kept.bytes.len()).sum();
        if bytes + data.len() <= MAX_BYTES {
            let bytes = data.to_vec();
            self.datagrams.push(Kept { ecn, bytes });
        }
    }
}

/// The clients that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct WaitingRoom {
    clients: VecDeque<Waiting>,
    /// How many at the end of `clients` have not been told to the application.
    untold: usize,
}

impl WaitingRoom {
    pub(super) fn is_crowded(&self) -> bool {
        self.clients.len() >= CROWDED
    }

    /// Lets a client wait, if there is a place.
    pub(super) fn enter(&mut self, now: Instant, client: Client, ecn: Option<Ecn>, data: &[u8]) {
        if self.clients.len() >= MAX_WAITING {
            return;
        }
        let mut waiting = Waiting {
            client,
            datagrams: Vec::new(),
            since: now,
        };
        waiting.keep(ecn, data);
        self.clients.push_back(waiting);
        self.untold += 1;
    }

    /// Keeps one more datagram of a client that waits; false if this is none of them.
    pub(super) fn keep(
        &mut self,
        tuple: Tuple,
        dcid: ConnectionId,
        ecn: Option<Ecn>,
        data: &[u8],
    ) -> bool {
        let known = |waiting: &&mut Waiting| waiting.client.dcid == dcid;
        let Some(waiting) = self.clients.iter_mut().find(known) else {
            return false;
        };
        if waiting.client.tuple == tuple {
            waiting.keep(ecn, data);
        }
        true
    }

    fn has_untold(&self) -> bool {
        self.untold > 0
    }

    fn poll(&mut self) -> Option<Incoming> {
        let at = self.clients.len() - self.untold;
        let client = &self.clients.get(at)?.client;
        self.untold -= 1;
        Some(Incoming {
            dcid: client.dcid,
            tuple: client.tuple,
            is_validated: client.proof.address_validated,
            may_retry: client.proof.retry_scid.is_none(),
        })
    }

    /// Takes out a client that the application was told of.
    fn take(&mut self, incoming: &Incoming) -> Option<Waiting> {
        let told = self.clients.len() - self.untold;
        let mut clients = self.clients.iter().take(told);
        let at = clients.position(|waiting| waiting.client.dcid == incoming.dcid)?;
        self.clients.remove(at)
    }

    /// When the client that has waited longest is forgotten.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.clients.front()?.since + PATIENCE)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.clients.pop_front();
            self.untold = self.untold.min(self.clients.len());
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "an answer uses the question up"
)]
impl Endpoint {
    /// The next client that waits for an answer. There are none unless the server
    /// [asks](crate::config::IncomingPolicy::Ask).
    pub fn poll_incoming(&mut self) -> Option<Incoming> {
        self.waiting_room.poll()
    }

    /// Whether [`poll_incoming`](Self::poll_incoming) has something to tell.
    pub fn has_incoming(&self) -> bool {
        self.waiting_room.has_untold()
    }

    /// Gives a client its connection, with the server's settings or with `config`.
    ///
    /// # Errors
    ///
    /// See [`AcceptError`]. The client is answered or forgotten in each case.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        config: Option<Arc<ServerConfig>>,
    ) -> Result<Handle, AcceptError> {
        let Waiting {
            client,
            mut datagrams,
            ..
        } = self.called(&incoming)?;
        let server = config.or_else(|| self.server.clone());
        let server = server.ok_or(AcceptError::NoServer)?;
        let admission = self.admission(&server, &client);
        if admission != Admission::Welcome {
            self.turn_away(
                now,
                &server,
                &client,
                TransportErrorCode::CONNECTION_REFUSED,
            );
            return Err(AcceptError::TooMany);
        }
        let datagrams = datagrams.iter_mut();
        let datagrams = datagrams.map(|kept| (kept.ecn, &mut kept.bytes[..]));
        self.begin(now, &server, &client, datagrams)
            .ok_or(AcceptError::Unreadable)
    }

    /// Tells a client that it gets no connection.
    ///
    /// # Errors
    ///
    /// [`AcceptError::Forgotten`] or [`AcceptError::NoServer`]; then it is not told.
    pub fn refuse(&mut self, now: Instant, incoming: Incoming) -> Result<(), AcceptError> {
        let client = self.called(&incoming)?.client;
        let server = self.server.clone().ok_or(AcceptError::NoServer)?;
        self.turn_away(
            now,
            &server,
            &client,
            TransportErrorCode::CONNECTION_REFUSED,
        );
        Ok(())
    }

    /// Has a client prove that it is where it says. It comes again with the proof.
    ///
    /// # Errors
    ///
    /// [`AcceptError::Forgotten`], or [`AcceptError::RetriedBefore`] if it
    /// [may not](Incoming::may_retry) be asked once more; then it waits no longer.
    pub fn retry(&mut self, now: Instant, incoming: Incoming) -> Result<(), AcceptError> {
        let client = self.called(&incoming)?.client;
        if !incoming.may_retry() {
            return Err(AcceptError::RetriedBefore);
        }
        self.send_retry(now, &client);
        Ok(())
    }

    /// Forgets a client without a word.
    pub fn ignore(&mut self, incoming: Incoming) {
        let _ = self.called(&incoming);
    }

    fn called(&mut self, incoming: &Incoming) -> Result<Waiting, AcceptError> {
        self.waiting_room
            .take(incoming)
            .ok_or(AcceptError::Forgotten)
    }
}
