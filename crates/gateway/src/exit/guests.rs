//! Who is here: the clients that are connected, what they hold and what they moved.

use super::names::Names;
use crate::identity::{ClientId, Store};
use crate::payloads::Counts;
use crate::relay::Moved;
use crate::session::close;
use anabranch_masque::Code;
use anabranch_net::Connection;
use anabranch_net::connection::WeakConnection;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one client at a time: one that connects again and again leaves its oldest.
const MAX_CONNECTIONS: usize = 16;

/// A client that is here.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) id: ClientId,
    flows: AtomicUsize,
    /// Names that are looked up for it.
    pub(crate) names: Names,
    /// What was not written down yet.
    pub(crate) moved: Moved,
    /// Of its UDP flows, since it came.
    pub(crate) datagrams: Arc<Counts>,
    connections: Mutex<Vec<WeakConnection>>,
}

impl Guest {
    pub(super) fn new(id: ClientId) -> Self {
        Self {
            id,
            flows: AtomicUsize::default(),
            names: Names::default(),
            moved: Moved::default(),
            datagrams: Arc::default(),
            connections: Mutex::default(),
        }
    }

    /// Its flows that are open.
    pub(crate) fn open(&self) -> usize {
        // What a flow moved is counted before it is open no more: see `Flow::drop`.
        self.flows.load(Ordering::Acquire)
    }

    /// Its connections that stand.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let standing = connections.iter().filter_map(WeakConnection::upgrade);
        standing
            .filter(|one| one.close_reason().is_none())
            .collect()
    }

    fn add(&self, connection: &Connection) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.retain(|one| {
            let one = one.upgrade();
            one.is_some_and(|one| one.close_reason().is_none())
        });
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.remove(0).upgrade()
        {
            close(
                &oldest,
                Code::EXCESSIVE_LOAD,
                "too many connections of this client",
            );
        }
        connections.push(connection.downgrade());
    }
}

/// A flow of a guest, counted while it lasts.
#[derive(Debug)]
pub(crate) struct Flow(Arc<Guest>);

impl Flow {
    /// One more, if there may be one.
    pub(crate) fn begin(guest: &Arc<Guest>, most: usize) -> Option<Self> {
        let flow = Self(Arc::clone(guest));
        // Two that come at once may both be refused, which is on the safe side.
        (guest.flows.fetch_add(1, Ordering::Relaxed) < most).then_some(flow)
    }

    pub(crate) fn moved(&self) -> &Moved {
        &self.0.moved
    }

    pub(crate) fn datagrams(&self) -> Arc<Counts> {
        Arc::clone(&self.0.datagrams)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.0.flows.fetch_sub(1, Ordering::Release);
    }
}

/// All clients that are here.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    here: Mutex<BTreeMap<ClientId, Arc<Guest>>>,
}

impl Guests {
    /// A client that has proved who it is, on this connection; nothing if it was revoked meanwhile.
    pub(crate) fn enter(
        &self,
        id: &ClientId,
        connection: &Connection,
        store: &Store,
    ) -> Option<Arc<Guest>> {
        let mut here = self.lock();
        // Who is revoked is struck off first and expelled then, for which this lock is needed: so
        // either this sees that it was struck off, or it is expelled from where it enters now.
        if !store.has(id) {
            return None;
        }
        let enter = || Arc::new(Guest::new(id.clone()));
        let guest = here.entry(id.clone()).or_insert_with(enter);
        guest.add(connection);
        Some(Arc::clone(guest))
    }

    /// A client, if it is here.
    pub(crate) fn find(&self, id: &ClientId) -> Option<Arc<Guest>> {
        self.lock().get(id).cloned()
    }

    /// The first client that is here and fits.
    pub(crate) fn find_by(&self, fits: impl Fn(&Arc<Guest>) -> bool) -> Option<Arc<Guest>> {
        self.lock().values().find(|guest| fits(guest)).cloned()
    }

    /// Flows of all clients that are open.
    pub(crate) fn open(&self) -> usize {
        self.lock().values().map(|guest| guest.open()).sum()
    }

    /// Everything of a client ends at once.
    pub(crate) fn expel(&self, id: &ClientId) {
        let guest = self.lock().remove(id);
        for connection in guest.iter().flat_map(|guest| guest.connections()) {
            close(
                &connection,
                Code::REQUEST_REJECTED,
                "this client was revoked",
            );
        }
    }

    /// Adds what was moved since the last time to what is remembered of each client, and forgets
    /// those that have left. Returns whether anything was moved.
    pub(crate) fn settle(&self, store: &Store) -> bool {
        let mut has_moved = false;
        self.lock().retain(|id, guest| {
            // Looked at first: what ends behind this was not taken yet.
            let has_left = guest.open() == 0 && guest.connections().is_empty();
            let (up, down) = guest.moved.take();
            if (up, down) != (0, 0) {
                store.count(id, up, down);
                has_moved = true;
            }
            !has_left
        });
        has_moved
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClientId, Arc<Guest>>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
