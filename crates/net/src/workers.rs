//! Several workers behind the same addresses: each has connections of its own, the lock of those
//! connections, a socket for each address, and a task that drives it. Nothing else is shared.
//!
//! ```text
//! kernel --by source and destination--> a socket of some worker
//!        that worker --Initial: begins the connection itself
//!                    --a connection ID of its own: its engine
//!                    --a connection ID of another one: that worker's inbox, and its engine
//! ```
//! The kernel leads all that a client sends from one address to one worker, so that only further
//! paths, and clients whose address changed, take the way by an inbox. Which worker issued a
//! connection ID is told by [`Share`].

use crate::engine::{CidFormat, ServerConfig, Share};
use anabranch_proto::datagram::{Ecn, SocketId, Tuple};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// Bytes that may wait in an inbox, as many as in the receive buffer of a socket. What comes beyond
/// that is dropped, as there.
const MAX_BYTES: usize = crate::sockets::BUFFER_BYTES;

/// The smallest parts of a server's limits that a worker can do with: of its connections, and of
/// those from one address. The kernel spreads clients by chance, so with less a worker would
/// often be full while others have room.
const LEAST: (usize, usize) = (64, 16);

/// How many workers a server has that is to have `wanted`.
pub(crate) fn count(wanted: usize, server: Option<&ServerConfig>) -> usize {
    let most = server.map_or(0, |server| {
        let by_address = server.max_connections_per_address / LEAST.1;
        by_address.min(server.max_connections / LEAST.0)
    });
    wanted.min(most).max(1)
}

/// What each of `count` workers may use of a server's limits.
pub(crate) fn part_of(server: ServerConfig, count: usize) -> ServerConfig {
    ServerConfig {
        max_connections: server.max_connections.div_ceil(count),
        max_connections_per_address: server.max_connections_per_address.div_ceil(count),
        busy_handshakes: server.busy_handshakes.div_ceil(count),
        send_budget: server.send_budget.div_ceil(count as u64),
        ..server
    }
}

/// A datagram that another worker received.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) tuple: Tuple,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) data: Vec<u8>,
}

/// What waits for a worker.
#[derive(Debug, Default)]
struct Inbox {
    datagrams: Vec<Passed>,
    bytes: usize,
    /// The worker's task, while it sleeps.
    waker: Option<Waker>,
}

/// The inboxes of all workers.
#[derive(Debug)]
struct Inboxes(Box<[Mutex<Inbox>]>);

impl Inboxes {
    fn lock(&self, worker: usize) -> MutexGuard<'_, Inbox> {
        self.0[worker]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker knows of the others.
#[derive(Debug)]
pub(crate) struct Colleagues {
    inboxes: Arc<Inboxes>,
    /// Which of them this one is.
    index: usize,
    share: Arc<Share>,
    /// Sockets that all have under the same IDs: those below this one.
    common: SocketId,
    /// What was received for each of the others and not passed on yet.
    outgoing: Vec<Vec<Passed>>,
}

impl Colleagues {
    /// One for each of the workers that issue connection IDs by these `shares`, with this many
    /// `sockets` on the same addresses.
    pub(crate) fn of_all(shares: &[Arc<Share>], sockets: u32) -> Vec<Self> {
        let boxes = shares.iter().map(|_| Mutex::default());
        let inboxes = Arc::new(Inboxes(boxes.collect()));
        let of = |(index, share): (usize, &Arc<Share>)| Self {
            inboxes: Arc::clone(&inboxes),
            index,
            share: Arc::clone(share),
            common: SocketId(sockets),
            outgoing: shares.iter().map(|_| Vec::new()).collect(),
        };
        shares.iter().enumerate().map(of).collect()
    }

    /// Takes a datagram that is for another worker, and returns whether it is.
    pub(crate) fn take(&mut self, tuple: Tuple, ecn: Option<Ecn>, data: &[u8]) -> bool {
        if tuple.socket >= self.common {
            return false;
        }
        let Some(owner) = self.share.owner(data).filter(|&owner| owner != self.index) else {
            return false;
        };
        let data = data.to_vec();
        self.outgoing[owner].push(Passed { tuple, ecn, data });
        true
    }

    /// Passes on what was taken.
    pub(crate) fn pass_on(&mut self) {
        for (owner, outgoing) in self.outgoing.iter_mut().enumerate() {
            if outgoing.is_empty() {
                continue;
            }
            let mut inbox = self.inboxes.lock(owner);
            for passed in outgoing.drain(..) {
                if inbox.bytes + passed.data.len() <= MAX_BYTES {
                    inbox.bytes += passed.data.len();
                    inbox.datagrams.push(passed);
                }
            }
            let waker = inbox.waker.take();
            drop(inbox);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// What the others passed on since the last time. If it is nothing, the task is woken when
    /// something comes.
    pub(crate) fn receive(&self, cx: &Context<'_>) -> Vec<Passed> {
        let mut inbox = self.inboxes.lock(self.index);
        if inbox.datagrams.is_empty() {
            inbox.waker = Some(cx.waker().clone());
        }
        inbox.bytes = 0;
        std::mem::take(&mut inbox.datagrams)
    }
}

/// The connection IDs of each worker: as `format` says, and for others to know whose they are.
pub(crate) fn shares(format: &CidFormat, count: usize, key: [u8; 16]) -> Vec<Arc<Share>> {
    let shares = Share::split(format, count, key);
    shares.into_iter().map(Arc::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::wire::ConnectionId;
    use anabranch_proto::wire::header;
    use std::task::Waker;

    const COUNT: usize = 3;

    fn all() -> Vec<Colleagues> {
        let format = CidFormat::default();
        Colleagues::of_all(&shares(&format, COUNT, [5; 16]), 2)
    }

    /// A datagram for the connection ID of this number.
    fn datagram(number: u64) -> Vec<u8> {
        let cid = ConnectionId::new(&number.to_be_bytes()).unwrap();
        [&[header::FIXED_BIT], cid.as_slice(), &[0; 1191]].concat()
    }

    fn tuple(socket: u32) -> Tuple {
        Tuple {
            socket: SocketId(socket),
            local: None,
            remote: ([192, 0, 2, 1], 4433).into(),
        }
    }

    #[test]
    fn each_datagram_comes_to_the_worker_that_issued_its_connection_id() {
        let mut all = all();
        let cx = Context::from_waker(Waker::noop());
        let mut kept = 0;
        for number in 0..300 {
            kept += usize::from(!all[0].take(tuple(1), None, &datagram(number)));
        }
        all[0].pass_on();
        assert!(all[0].receive(&cx).is_empty());
        for one in &all[1..] {
            let passed = one.receive(&cx);
            let is_own = |passed: &Passed| one.share.owner(&passed.data) == Some(one.index);
            assert!(passed.iter().all(is_own));
            kept += passed.len();
        }
        assert_eq!(kept, 300);
    }

    #[test]
    fn what_a_socket_of_one_worker_receives_is_not_passed_on() {
        let mut all = all();
        for number in 0..100 {
            assert!(!all[0].take(tuple(2), None, &datagram(number)));
        }
    }

    #[test]
    fn an_inbox_that_nobody_reads_takes_only_so_much() {
        let mut all = all();
        for number in 0..3 * (MAX_BYTES / 1200) as u64 {
            all[0].take(tuple(0), None, &datagram(number));
            all[0].pass_on();
        }
        let cx = Context::from_waker(Waker::noop());
        let passed = all[1].receive(&cx);
        let bytes: usize = passed.iter().map(|passed| passed.data.len()).sum();
        assert!(bytes > MAX_BYTES - 1200 && bytes <= MAX_BYTES, "{bytes}");
    }

    #[test]
    fn limits_are_shared_and_small_ones_by_few() {
        let identity = crate::Identity::generate().unwrap();
        let tls = identity.server(&["localhost"]).unwrap().alpn(&[b"t"]);
        let tls = tls.build().unwrap();
        let mut config = ServerConfig::new(tls);
        assert_eq!(count(8, Some(&config)), 8);
        assert_eq!(count(8, None), 1);
        (config.max_connections, config.send_budget) = (130, 1 << 20);
        assert_eq!(count(8, Some(&config)), 2);
        let part = part_of(config.clone(), 2);
        assert_eq!((part.max_connections, part.send_budget), (65, 1 << 19));
        config.max_connections_per_address = 31;
        assert_eq!(count(8, Some(&config)), 1);
    }
}
