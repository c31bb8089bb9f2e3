//! Endpoints: sockets and the connections that use them.

use crate::connection::{Connection, Holder};
use crate::driver::Driver;
use crate::engine::{self, ClientConfig, EndpointConfig, ServerConfig};
use crate::error::ConnectError;
use crate::sockets::{Binding, Socket, SocketConfig};
pub use crate::state::FailedHandshake;
use crate::state::Shared;
use anabranch_proto::datagram::SocketId;
use anabranch_proto::wire::ErrorCode;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Builds an [`Endpoint`].
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    config: EndpointConfig,
    seed: Option<[u8; 32]>,
    reset_secret: Option<[u8; 32]>,
    server: Option<Arc<ServerConfig>>,
    sockets: Vec<SocketConfig>,
    mark: Option<u32>,
}

impl Builder {
    /// Settings of the engine's endpoint.
    pub fn config(mut self, config: EndpointConfig) -> Self {
        self.config = config;
        self
    }

    /// The seed of connection IDs, challenges and tokens; random unless set. Only tests need a
    /// fixed one.
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The secret from which stateless reset tokens are derived; random unless set. With the same
    /// secret, a server that restarts can tell its former clients at once that it has forgotten
    /// them; otherwise they have to wait for a time-out. Keep it secret.
    pub fn reset_secret(mut self, secret: [u8; 32]) -> Self {
        self.reset_secret = Some(secret);
        self
    }

    /// Accepts connections with this configuration.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.server = Some(Arc::new(config));
        self
    }

    /// Listens on this address; may be called repeatedly.
    pub fn listen(self, address: SocketAddr) -> Self {
        self.socket(SocketConfig::listen(address))
    }

    /// Binds this socket; may be called repeatedly.
    pub fn socket(mut self, config: SocketConfig) -> Self {
        self.sockets.push(config);
        self
    }

    /// Marks what leaves any of its sockets, also those that are bound later
    /// ([`SocketConfig::mark`]).
    pub fn mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Binds the sockets and starts the driver on the tokio runtime that it is called in.
    ///
    /// # Errors
    ///
    /// A socket cannot be bound, the system has no randomness, or there is no tokio runtime.
    pub fn bind(self) -> io::Result<Endpoint> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let seed = match self.seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let config = EndpointConfig {
            contain_panics: true,
            ..self.config
        };
        let mut engine = engine::Endpoint::new(config, seed);
        if let Some(secret) = self.reset_secret {
            engine.set_reset_secret(secret);
        }
        engine.set_server(self.server);
        let shared = Arc::new(Shared::new(engine));
        for config in &self.sockets {
            let socket = bind(config, self.mark)?;
            shared.lock().add_socket(socket);
        }
        runtime.spawn(Driver::new(Arc::clone(&shared)));
        Ok(Endpoint {
            inner: Arc::new(Inner {
                shared,
                mark: self.mark,
            }),
        })
    }
}

/// Random bytes from the operating system.
///
/// # Errors
///
/// The operating system cannot provide any.
pub fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut seed)
        .map_err(|_| io::Error::other("no randomness"))?;
    Ok(seed)
}

/// Binds a socket, marked as it says, or else as all sockets of its endpoint.
fn bind(config: &SocketConfig, mark: Option<u32>) -> io::Result<Socket> {
    let config = SocketConfig {
        mark: config.mark.or(mark),
        ..config.clone()
    };
    Socket::bind(&config).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot bind to {}: {error}", config.local),
        )
    })
}

/// An endpoint: any number of sockets, and the connections over them. Cheap to clone. When the last
/// clone is dropped, it accepts no more connections; existing ones continue.
#[derive(Debug, Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// What marks its sockets, if they are marked.
    mark: Option<u32>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.lock().close_endpoint(&self.shared.clock);
    }
}

/// A socket of an endpoint.
#[derive(Debug, Clone)]
pub struct SocketInfo {
    /// Its ID in this endpoint.
    pub id: SocketId,
    /// Its address.
    pub local: SocketAddr,
    /// The interface it was requested for.
    pub device: Option<String>,
    /// How firmly it is bound to that interface.
    pub binding: Binding,
}

impl Endpoint {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Starts to configure a new endpoint.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client endpoint: it has no sockets until it connects.
    ///
    /// # Errors
    ///
    /// The system has no randomness, or there is no tokio runtime.
    pub fn client() -> io::Result<Self> {
        Self::builder().bind()
    }

    /// A server endpoint that listens on these addresses.
    ///
    /// # Errors
    ///
    /// An address cannot be bound, or there is no tokio runtime.
    pub fn server(config: ServerConfig, addresses: &[SocketAddr]) -> io::Result<Self> {
        let builder = Self::builder().server(config);
        addresses
            .iter()
            .fold(builder, |builder, &address| builder.listen(address))
            .bind()
    }

    /// Replaces the server's settings for future connections; `None` refuses them.
    pub fn set_server(&self, config: Option<ServerConfig>) {
        self.inner
            .shared
            .lock()
            .engine
            .set_server(config.map(Arc::new));
    }

    /// Binds another socket.
    ///
    /// # Errors
    ///
    /// See [`Socket::bind`].
    pub fn add_socket(&self, config: &SocketConfig) -> io::Result<SocketId> {
        let socket = bind(config, self.inner.mark)?;
        Ok(self.inner.shared.lock().add_socket(socket))
    }

    /// Closes a socket. Paths over it fall silent; abandon them first.
    pub fn remove_socket(&self, id: SocketId) {
        self.inner.shared.lock().remove_socket(id);
    }

    /// Closes a socket after a delay, in which connections over it can still tell their peers that
    /// they close.
    pub(crate) fn remove_socket_later(&self, id: SocketId, after: Duration) {
        let inner = Arc::downgrade(&self.inner);
        let remove = move || {
            if let Some(inner) = inner.upgrade() {
                inner.shared.lock().remove_socket(id);
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    tokio::time::sleep(after).await;
                    remove();
                });
            }
            Err(_) => remove(),
        }
    }

    /// Tells every connection that nothing gets through a socket any more: paths over it are
    /// doubted at once.
    pub fn report_fault(&self, id: SocketId) {
        let shared = &self.inner.shared;
        shared.lock().report_fault(shared.clock.now(), id);
    }

    /// The sockets of this endpoint.
    pub fn sockets(&self) -> Vec<SocketInfo> {
        let state = self.inner.shared.lock();
        let info = state.sockets.iter().map(|(&id, socket)| SocketInfo {
            id,
            local: socket.local_addr(),
            device: socket.device().map(Into::into),
            binding: socket.binding(),
        });
        info.collect()
    }

    /// The addresses of its sockets.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets()
            .into_iter()
            .map(|socket| socket.local)
            .collect()
    }

    /// Connects over one socket. The future completes with the handshake; dropping it cancels the
    /// attempt.
    ///
    /// # Errors
    ///
    /// The handshake failed, or the configuration does not allow one. The only time limit is the
    /// engine's idle time-out.
    pub async fn connect_over(
        &self,
        socket: SocketId,
        remote: SocketAddr,
        server_name: &str,
        config: ClientConfig,
    ) -> Result<Connection, ConnectError> {
        let connection = self.begin_over(socket, remote, server_name, config)?;
        connection.established().await?;
        Ok(connection)
    }

    /// The next connection from a client that completed its handshake or sent early data. In the
    /// second case it is not [established](Connection::is_established) yet. `None` once the
    /// endpoint is shut down.
    pub async fn accept(&self) -> Option<Connection> {
        let key = poll_fn(|cx| self.inner.shared.lock().poll_accept(cx)).await?;
        Some(Connection::new(Holder::new(
            Arc::clone(&self.inner.shared),
            key,
        )))
    }

    /// The next client whose handshake failed; `None` once the endpoint is shut down. A limited
    /// number are kept until this is called.
    pub async fn failed_handshake(&self) -> Option<FailedHandshake> {
        poll_fn(|cx| self.inner.shared.lock().poll_failure(cx)).await
    }

    /// Closes every connection with this code and reason, and accepts no more.
    pub fn close(&self, code: impl Into<ErrorCode>, reason: &[u8]) {
        let code = code.into();
        let shared = &self.inner.shared;
        let mut state = shared.lock();
        state.engine.set_server(None);
        let now = shared.clock.now();
        state.order_all(now, |connection| connection.close(now, code, reason));
    }

    /// Waits until the task that drives this endpoint has gone round once more: it has read its
    /// sockets, and the engine has done what was due. For watchdogs: it does not come back if that
    /// task is stuck or gone, whatever else still runs.
    pub async fn turned(&self) {
        let before = self.inner.shared.lock().turns();
        poll_fn(|cx| self.inner.shared.lock().poll_turned(cx, before)).await;
    }

    /// Closes all sockets, and waits until that is done: their addresses are free for others then.
    /// Connections that are left have no way to their peers any more. Dropping an endpoint closes
    /// them too, but some time later.
    pub async fn unbind(&self) {
        for socket in self.sockets() {
            self.remove_socket(socket.id);
        }
        self.turned().await;
    }

    /// Waits until every connection has ended and nothing of them can arrive any more. Call this or
    /// [`say_goodbye`](Self::say_goodbye) before the program exits; otherwise the peers wait for
    /// their idle time-out.
    pub async fn wait_idle(&self) {
        poll_fn(|cx| self.inner.shared.lock().poll_idle(cx)).await;
    }
}
