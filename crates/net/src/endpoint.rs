//! Endpoints: sockets and the connections that use them.

use crate::connection::{Connection, Holder};
use crate::driver::Driver;
use crate::engine::{self, CidFormat, ClientConfig, EndpointConfig, ServerConfig};
use crate::error::ConnectError;
use crate::sockets::{Binding, Socket, SocketConfig};
pub use crate::state::FailedHandshake;
use crate::state::{Shared, State};
use crate::workers::{self, Colleagues};
use anabranch_proto::datagram::SocketId;
use anabranch_proto::wire::ErrorCode;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Builds an [`Endpoint`].
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    config: EndpointConfig,
    seed: Option<[u8; 32]>,
    reset_secret: Option<[u8; 32]>,
    server: Option<ServerConfig>,
    sockets: Vec<SocketConfig>,
    mark: Option<u32>,
    workers: Option<NonZeroUsize>,
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
        self.server = Some(config);
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

    /// Has a server's connections be driven by so many tasks, one unless set, each with a lock of
    /// its own: in a runtime of several threads, that many processor cores are used. Each has an
    /// equal part of the server's limits, and refuses clients when it has used up its own; an
    /// address token ([`ClientConfig::token`]) is good once at each. The memory for [receive
    /// windows](EndpointConfig::receive_budget) is one for all. There are fewer workers if a part
    /// would be below 64 [connections](ServerConfig::max_connections), or below 16 [of one
    /// address](ServerConfig::max_connections_per_address).
    pub fn workers(mut self, count: NonZeroUsize) -> Self {
        self.workers = Some(count);
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
        let wanted = self.workers.map_or(1, NonZeroUsize::get);
        let count = workers::count(wanted, self.server.as_ref());
        let shares = workers::shares(&self.config.cids, count, random_key()?);
        let mut workers: Vec<Arc<Shared>> = Vec::with_capacity(count);
        for (index, share) in shares.iter().enumerate() {
            let mut config = EndpointConfig {
                contain_panics: true,
                max_stateless_per_second: self
                    .config
                    .max_stateless_per_second
                    .div_ceil(count as u32),
                ..self.config.clone()
            };
            if count > 1 {
                config.cids = CidFormat::Shared(Arc::clone(share));
            }
            let mut engine = engine::Endpoint::new(config, seed_of(seed, index));
            if let Some(secret) = self.reset_secret {
                engine.set_reset_secret(secret);
            }
            if let Some(first) = workers.first() {
                engine.adopt_keys(&first.lock().engine);
            }
            workers.push(Arc::new(Shared::new(engine)));
        }
        for config in &self.sockets {
            for (worker, socket) in workers.iter().zip(bind(config, self.mark, count)?) {
                worker.lock().add_socket(socket);
            }
        }
        let common = self.sockets.len() as u32;
        let endpoint = Endpoint {
            inner: Arc::new(Inner {
                workers: workers.into(),
                common: SocketId(common),
                first: AtomicUsize::new(0),
                mark: self.mark,
            }),
        };
        endpoint.set_server(self.server);
        let mut colleagues = Colleagues::of_all(&shares, common).into_iter();
        for worker in endpoint.workers() {
            let colleagues = colleagues.next().filter(|_| count > 1);
            runtime.spawn(Driver::new(Arc::clone(worker), colleagues));
        }
        Ok(endpoint)
    }
}

/// The seed of one of several workers. The generator takes it as a key of `ChaCha`, so that seeds
/// that differ in one bit have nothing else in common.
fn seed_of(mut seed: [u8; 32], index: usize) -> [u8; 32] {
    for (byte, added) in seed.iter_mut().zip(index.to_le_bytes()) {
        *byte ^= added;
    }
    seed
}

fn random_key() -> io::Result<[u8; 16]> {
    let [key, _] = *random_seed()?.as_chunks().0 else {
        unreachable!("a seed has twice as many bytes")
    };
    Ok(key)
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

/// Binds `count` sockets to one address. Their mark is the configuration's, else `mark`, that of
/// all sockets of the endpoint.
fn bind(config: &SocketConfig, mark: Option<u32>, count: usize) -> io::Result<Vec<Socket>> {
    let config = SocketConfig {
        mark: config.mark.or(mark),
        ..config.clone()
    };
    Socket::bind_group(&config, count).map_err(|error| {
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
    /// One at least. Connections of the endpoint as a client are with the first.
    workers: Box<[Arc<Shared>]>,
    /// Sockets with lower IDs are bound to the same addresses at all workers; the others are the
    /// first one's alone.
    common: SocketId,
    /// Which worker is asked first the next time.
    first: AtomicUsize,
    /// What marks its sockets, if they are marked.
    mark: Option<u32>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.lock().close_endpoint(&worker.clock);
        }
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
    pub(crate) fn first_worker(&self) -> &Arc<Shared> {
        &self.inner.workers[0]
    }

    pub(crate) fn workers(&self) -> &[Arc<Shared>] {
        &self.inner.workers
    }

    /// The workers that have this socket.
    fn users_of(&self, id: SocketId) -> &[Arc<Shared>] {
        let count = if id < self.inner.common {
            self.inner.workers.len()
        } else {
            1
        };
        &self.inner.workers[..count]
    }

    /// What a worker gives, and which worker; `None` when none will ever give anything.
    pub(crate) async fn next_of_workers<T>(
        &self,
        mut ask: impl FnMut(&mut State, &Context<'_>) -> Poll<Option<T>>,
    ) -> Option<(Arc<Shared>, T)> {
        let workers = self.workers();
        let first = self.inner.first.fetch_add(1, Ordering::Relaxed) % workers.len();
        let (before, from_first) = workers.split_at(first);
        poll_fn(|cx| {
            let mut ended = true;
            for worker in from_first.iter().chain(before) {
                match ask(&mut worker.lock(), cx) {
                    Poll::Ready(Some(it)) => return Poll::Ready(Some((Arc::clone(worker), it))),
                    Poll::Ready(None) => {}
                    Poll::Pending => ended = false,
                }
            }
            if ended {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await
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
        let workers = self.workers();
        let part = config.map(|config| Arc::new(workers::part_of(config, workers.len())));
        for worker in workers {
            worker.lock().engine.set_server(part.clone());
        }
    }

    /// Binds another socket, for connections of this endpoint as a client.
    ///
    /// # Errors
    ///
    /// See [`Socket::bind`].
    pub fn add_socket(&self, config: &SocketConfig) -> io::Result<SocketId> {
        let mut socket = bind(config, self.inner.mark, 1)?;
        Ok(self.first_worker().lock().add_socket(socket.remove(0)))
    }

    /// Closes a socket. Paths over it fall silent; abandon them first.
    pub fn remove_socket(&self, id: SocketId) {
        for worker in self.users_of(id) {
            worker.lock().remove_socket(id);
        }
    }

    /// Closes a socket after a delay, in which connections over it can still tell their peers that
    /// they close.
    pub(crate) fn remove_socket_later(&self, id: SocketId, after: Duration) {
        let inner = Arc::downgrade(&self.inner);
        let remove = move || {
            if let Some(inner) = inner.upgrade() {
                Self { inner }.remove_socket(id);
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
        for worker in self.users_of(id) {
            worker.lock().report_fault(worker.clock.now(), id);
        }
    }

    /// The sockets of this endpoint.
    pub fn sockets(&self) -> Vec<SocketInfo> {
        let state = self.first_worker().lock();
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
        let (worker, key) = self.next_of_workers(State::poll_accept).await?;
        Some(Connection::new(Holder::new(worker, key)))
    }

    /// The next client whose handshake failed; `None` once the endpoint is shut down. A limited
    /// number are kept until this is called.
    pub async fn failed_handshake(&self) -> Option<FailedHandshake> {
        let failed = self.next_of_workers(State::poll_failure).await;
        failed.map(|(_, failed)| failed)
    }

    /// Closes every connection with this code and reason, and accepts no more.
    pub fn close(&self, code: impl Into<ErrorCode>, reason: &[u8]) {
        let code = code.into();
        for worker in self.workers() {
            let mut state = worker.lock();
            state.engine.set_server(None);
            let now = worker.clock.now();
            state.order_all(now, |connection| connection.close(now, code, reason));
        }
    }

    /// Waits until all tasks that drive this endpoint have gone round once more: they have read
    /// their sockets, and the engine has done what was due. For watchdogs: it does not come back if
    /// one of them is stuck or gone, whatever else still runs.
    pub async fn turned(&self) {
        for worker in self.workers() {
            let before = worker.lock().turns();
            poll_fn(|cx| worker.lock().poll_turned(cx, before)).await;
        }
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
        for worker in self.workers() {
            poll_fn(|cx| worker.lock().poll_idle(cx)).await;
        }
    }
}
