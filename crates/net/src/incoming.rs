//! Clients that a server's application decides about.

use crate::connection::{Connection, Holder};
use crate::endpoint::Endpoint;
use crate::engine::{self, AcceptError, ServerConfig};
use crate::state::{Shared, State};
use std::net::SocketAddr;
use std::sync::Arc;

/// A client that waits for an answer. One that is dropped is refused.
///
/// ```
/// # use anabranch_net::engine::{IncomingPolicy, ServerConfig, tls};
/// # use anabranch_net::{Endpoint, Identity};
/// # async fn serve(tls: tls::ServerTls) -> std::io::Result<()> {
/// let mut config = ServerConfig::new(tls);
/// config.incoming = IncomingPolicy::Ask;
/// let server = Endpoint::server(config, &["[::]:4433".parse().expect("an address")])?;
/// while let Some(client) = server.incoming().await {
///     if client.remote_addr().ip().is_multicast() {
///         client.ignore();
///     } else if !client.is_validated() && client.may_retry() {
///         client.retry().expect("it may be told to");
///     } else if let Ok(connection) = client.accept() {
///         tokio::spawn(async move {
///             connection.established().await?;
///             // Streams and datagrams from here on.
///             Ok::<_, anabranch_net::engine::ConnectionError>(())
///         });
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a client that is dropped is refused"]
pub struct Incoming {
    shared: Arc<Shared>,
    /// None once it is answered.
    client: Option<engine::Incoming>,
}

impl Incoming {
    /// The client's address as it claims.
    pub fn remote_addr(&self) -> SocketAddr {
        self.waiting().remote()
    }

    /// Whether the client has proved its address; otherwise the address may be forged.
    pub fn is_validated(&self) -> bool {
        self.waiting().is_validated()
    }

    /// Whether the client can be sent a Retry, which asks it to prove its address; once at most.
    pub fn may_retry(&self) -> bool {
        self.waiting().may_retry()
    }

    /// Gives the client a connection, which can be used once it is
    /// [established](Connection::established).
    ///
    /// # Errors
    ///
    /// See [`AcceptError`].
    pub fn accept(self) -> Result<Connection, AcceptError> {
        self.accept_as(None)
    }

    /// Like [`accept`](Self::accept), but with settings of its own instead of the server's.
    ///
    /// # Errors
    ///
    /// See [`AcceptError`].
    pub fn accept_with(self, config: ServerConfig) -> Result<Connection, AcceptError> {
        self.accept_as(Some(config))
    }

    fn accept_as(mut self, config: Option<ServerConfig>) -> Result<Connection, AcceptError> {
        let client = self.client.take().ok_or(AcceptError::Forgotten)?;
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        let accepted = state.engine.accept(now, client, config.map(Arc::new));
        // What it was told instead has to leave too.
        state.wake_driver();
        let key = state.track(accepted?, true);
        drop(state);
        let holder = Holder::new(Arc::clone(&self.shared), key);
        Ok(Connection::new(holder))
    }

    /// Tells it that it gets no connection.
    pub fn refuse(self) {}

    /// Tells it to prove that it is where it says. It comes again with the proof.
    ///
    /// # Errors
    ///
    /// See [`AcceptError`].
    pub fn retry(mut self) -> Result<(), AcceptError> {
        let client = self.client.take().ok_or(AcceptError::Forgotten)?;
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        state.wake_driver();
        state.engine.retry(now, client)
    }

    /// Forgets it without a word.
    pub fn ignore(mut self) {
        if let Some(client) = self.client.take() {
            self.shared.lock().engine.ignore(client);
        }
    }

    fn waiting(&self) -> &engine::Incoming {
        self.client.as_ref().expect("it is answered by value")
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let now = self.shared.clock.now();
            let mut state = self.shared.lock();
            // It may have waited too long, or the server is gone.
            let _ = state.engine.refuse(now, client);
            state.wake_driver();
        }
    }
}

impl Endpoint {
    /// The next client that waits for an answer; none once the endpoint is shut down. There are
    /// none unless the server [asks](engine::IncomingPolicy::Ask); such a server gets nobody by
    /// [`accept`](Self::accept).
    pub async fn incoming(&self) -> Option<Incoming> {
        let (shared, client) = self.next_of_workers(State::poll_incoming).await?;
        Some(Incoming {
            shared,
            client: Some(client),
        })
    }
}
