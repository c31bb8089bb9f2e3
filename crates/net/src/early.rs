//! Connections that resume an earlier one, and what may be sent on them before the handshake is
//! complete.

use crate::connection::{Connection, Holder};
use crate::endpoint::Endpoint;
use crate::engine::{self, ClientConfig, ConnectError, ResumptionState};
use crate::state::Wait;
use anabranch_proto::datagram::{SocketId, Tuple};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How often a program that is about to exit repeats to its peers that a connection is closed.
const GOODBYES: usize = 3;
/// The time between two repetitions.
const GOODBYE_GAP: Duration = Duration::from_millis(5);

impl Connection {
    /// Whether the application may already write although the handshake is not complete (clients
    /// only). An attacker can replay what is written now, so that the server reads it twice: write
    /// only what is harmless then. What the server rejects is sent again automatically.
    pub fn may_send_early_data(&self) -> bool {
        self.look_at(engine::Connection::may_send_early_data)
    }

    /// Whether the handshake is complete. What a server received from the client before that may be
    /// an attacker's replay.
    pub fn is_established(&self) -> bool {
        self.look_at(engine::Connection::is_established)
    }

    /// Whether the TLS session resumes that of an earlier connection.
    pub fn is_resumed(&self) -> bool {
        self.look_at(engine::Connection::is_resumed)
    }

    fn look_at(&self, look: impl FnOnce(&engine::Connection) -> bool) -> bool {
        self.holder().look(look).unwrap_or(false)
    }

    /// Whether the server accepted early data: `None` if there was none, or if this is not known
    /// yet.
    pub fn early_data_accepted(&self) -> Option<bool> {
        self.holder()
            .look(engine::Connection::early_data_accepted)?
    }

    /// State with which a later connection to the same server can resume, different on each call;
    /// `None` if the server has sent no (further) ticket yet, or if the connection is over and
    /// forgotten.
    pub fn take_resumption(&self) -> Option<ResumptionState> {
        self.holder()
            .look_mut(engine::Connection::take_resumption)?
    }

    /// Waits until there is something to [take](Self::take_resumption), or the connection has
    /// ended.
    pub async fn resumable(&self) {
        poll_fn(|cx| {
            self.holder().tracked(|tracked| {
                if tracked.resumable || tracked.ended.is_some() {
                    return Poll::Ready(());
                }
                tracked.wait(Wait::Resumable, cx);
                Poll::Pending
            })
        })
        .await;
    }

    /// Whether both are handles of the same connection.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.holder(), other.holder())
    }
}

impl Endpoint {
    /// Begins a connection over one socket. It can be used once it is established, or immediately
    /// if it [may send early data](Connection::may_send_early_data).
    ///
    /// # Errors
    ///
    /// The configuration does not allow a connection.
    pub fn begin_over(
        &self,
        socket: SocketId,
        remote: SocketAddr,
        server_name: &str,
        mut config: ClientConfig,
    ) -> Result<Connection, crate::error::ConnectError> {
        let shared = self.first_worker();
        let local_address = shared.address_towards(socket, remote);
        config.local_address = config.local_address.or(local_address);
        let mut state = shared.lock();
        if !state.is_open() {
            return Err(crate::error::ConnectError::EndpointClosed);
        }
        let tuple = Tuple {
            socket,
            local: None,
            remote,
        };
        let begun = state
            .engine
            .connect(shared.clock.now(), config, tuple, server_name);
        let handle =
            begun.map_err(|error: ConnectError| crate::error::ConnectError::from(error))?;
        let key = state.track(handle, true);
        state.wake_driver();
        Ok(Connection::new(Holder::new(Arc::clone(shared), key)))
    }

    /// For a program that is about to exit: tells the peers of closed connections that they are
    /// closed. It does so a few times, because nobody confirms it, and returns without waiting
    /// until nothing of these connections can arrive any more. A server that keeps running waits
    /// with [`wait_idle`](Self::wait_idle).
    pub async fn say_goodbye(&self) {
        for _ in 0..GOODBYES {
            self.repeat_closes();
            if tokio::time::timeout(GOODBYE_GAP, self.wait_idle())
                .await
                .is_ok()
            {
                return;
            }
        }
    }

    fn repeat_closes(&self) {
        for worker in self.workers() {
            let now = worker.clock.now();
            let mut state = worker.lock();
            state.order_all(now, engine::Connection::repeat_close);
        }
    }
}
