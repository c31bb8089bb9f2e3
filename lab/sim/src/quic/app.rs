//! The interface of an application on a QUIC host.

use super::SessionId;
use super::session::Session;
use anabranch_proto::connection::Connection;
use anabranch_proto::streams::ReadError;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::StreamId;
use anabranch_proto::{Endpoint, Event};
use bytes::Bytes;
use std::any::Any;
use std::fmt::Debug;

/// An application on a host. Several may share a host: each hears of every event and handles its
/// own.
pub trait App: Debug + Any {
    /// Something happened on a connection.
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event);

    /// The time announced by `next_timeout` has come.
    fn on_timeout(&mut self, _host: &mut Sessions<'_>) {}

    /// When to be called if nothing else happens.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Whether it has data to send that its connection did not accept.
    fn is_blocked(&self) -> bool {
        false
    }

    /// Whether it has nothing left to do.
    fn is_done(&self) -> bool {
        true
    }
}

/// The connections of a host, as its applications see them.
#[derive(Debug)]
pub struct Sessions<'a> {
    /// The current time.
    pub now: Instant,
    pub(super) endpoint: &'a mut Endpoint,
    pub(super) all: &'a mut Vec<Session>,
}

impl Sessions<'_> {
    /// A connection, as long as it exists.
    pub fn connection(&mut self, id: SessionId) -> Option<&mut Connection> {
        let handle = self.all.get(id.0)?.handle()?;
        self.endpoint.connection_mut(handle)
    }

    /// Whether a connection was started and has not been forgotten yet.
    pub fn is_there(&self, id: SessionId) -> bool {
        self.all.get(id.0).and_then(Session::handle).is_some()
    }

    /// Reads from a stream of a connection.
    pub fn read(
        &mut self,
        session: SessionId,
        id: StreamId,
        max: usize,
    ) -> Result<Option<Bytes>, ReadError> {
        let handle = self.all.get(session.0).and_then(Session::handle);
        let result = handle.and_then(|handle| self.endpoint.read(handle, id, max));
        result.unwrap_or(Err(ReadError::Closed))
    }

    /// The number of connections there are or have been.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether the handshake of a connection is complete and the connection is not closed.
    pub fn is_open(&self, id: SessionId) -> bool {
        let session = self.all.get(id.0);
        session.is_some_and(|session| session.established.is_some() && session.closed.is_none())
    }
}
