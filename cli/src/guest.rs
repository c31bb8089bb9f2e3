//! One client's connection as the server sees it: what the client may choose and has uploaded.

use crate::files::digests::Turns;
use crate::files::service::Service;
use crate::files::uploads::Account;
use crate::http3::pauses::{Origin, Paused, Pauses};
use crate::tuning::{Granted, Tuning};
use anabranch_net::connection::Connection;
use anabranch_schedulers::Names;
use http::HeaderMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// A client that is being served.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Its connection.
    pub(crate) connection: Connection,
    /// What it is served.
    pub(crate) service: Arc<Service>,
    /// What it has uploaded.
    pub(crate) account: Arc<Account>,
    /// Its turns at having files hashed.
    pub(crate) turns: Arc<Turns>,
    /// Its address at the start; unspecified if the connection ended at once.
    origin: Origin,
    /// Who pauses at this server.
    paused: Arc<Paused>,
    /// Which sending parameters it may choose.
    granted: Granted,
    /// The schedulers and congestion controls there are.
    names: Arc<Names>,
    /// What it has chosen.
    chosen: Mutex<Tuning>,
}

impl Guest {
    /// A client that has asked for nothing yet. All clients of a server share `paused`, and may ask
    /// for what `names` has as far as it is `granted`.
    pub(crate) fn new(
        connection: Connection,
        service: Arc<Service>,
        paused: Arc<Paused>,
        (granted, names): (Granted, Arc<Names>),
    ) -> Self {
        let first = connection.paths().first().map(|(_, stats)| stats.tuple);
        let address = first.map_or(Ipv6Addr::UNSPECIFIED.into(), |tuple| tuple.remote.ip());
        Self {
            connection,
            origin: address.into(),
            paused,
            service,
            account: Arc::default(),
            turns: Arc::default(),
            granted,
            names,
            chosen: Mutex::default(),
        }
    }

    /// The pauses of a new request.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses::new(self.origin, Arc::clone(&self.paused))
    }

    /// Counts the packets received from the client on the open paths. A change means that the
    /// client is alive.
    pub(crate) fn heard(&self) -> u64 {
        let paths = self.connection.paths();
        let packets = paths.iter().map(|(_, path)| path.counters.received_packets);
        packets.sum()
    }

    /// Sends from now on as the headers of a request ask.
    ///
    /// # Errors
    ///
    /// What is wrong or not allowed, in words for the person who sent it.
    pub(crate) fn tune(&self, headers: &HeaderMap) -> Result<(), String> {
        let wanted = Tuning::from_headers(headers)?;
        if wanted == Tuning::default() {
            return Ok(());
        }
        wanted.check(self.granted)?;
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let news = chosen.news(wanted)?;
        news.resolve_headers(&self.names)?.apply(&self.connection);
        chosen.adopt(news);
        Ok(())
    }
}
