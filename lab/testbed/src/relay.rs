//! A path over the loopback interface that can be cut: a UDP relay between one client and one
//! server.
//!
//! Each end sees the relay as the other end. It forwards until it is cut, in one direction or both,
//! and can change the port from which it reaches the server, as a NAT does after losing its
//! mapping. A thread of its own does that, including actions that are due after a number of bytes,
//! so they are on time even if the test is slow.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The largest UDP payload.
const MAX_DATAGRAM: usize = 65_535;
/// How often a relay without traffic checks whether it is still wanted, in milliseconds.
const LOOK_MS: u8 = 20;
/// How many datagrams are taken from one socket before the other gets its turn.
const BATCH: usize = 64;

/// One direction.
#[derive(Debug, Default)]
struct Way {
    cut: bool,
    bytes: u64,
}

/// The current state of a relay; the two byte limits apply to both directions together.
#[derive(Debug)]
struct State {
    to_server: Way,
    to_client: Way,
    /// The socket towards the server.
    upstream: Arc<UdpSocket>,
    cut_after: Option<u64>,
    rebind_after: Option<u64>,
    moves: u32,
    cut_at: Option<Instant>,
    over: bool,
}

impl State {
    fn total(&self) -> u64 {
        self.to_server.bytes + self.to_client.bytes
    }

    fn rebind(&mut self, upstream: Arc<UdpSocket>) {
        self.upstream = upstream;
        self.moves += 1;
        self.rebind_after = None;
    }

    fn cut(&mut self) {
        (self.to_server.cut, self.to_client.cut) = (true, true);
        self.cut_at.get_or_insert_with(Instant::now);
    }
}

/// A running relay; it stops when this is dropped.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    server: SocketAddr,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Forwards what arrives at `listen` (port 0 picks a free one) to `server`, and the answers to
    /// the most recent client.
    ///
    /// # Errors
    /// A socket or a thread cannot be created.
    pub fn start(listen: SocketAddr, server: SocketAddr) -> io::Result<Self> {
        let downstream = UdpSocket::bind(listen)?;
        downstream.set_nonblocking(true)?;
        let addr = downstream.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            to_server: Way::default(),
            to_client: Way::default(),
            upstream: towards(addr, server)?,
            cut_after: None,
            rebind_after: None,
            moves: 0,
            cut_at: None,
            over: false,
        }));
        let worker = Worker {
            downstream,
            addr,
            server,
            client: None,
            state: Arc::clone(&state),
        };
        let thread = std::thread::Builder::new().name("relay".to_owned());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Self {
            addr,
            server,
            state,
            thread: Some(thread),
        })
    }

    /// The address that clients send to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops forwarding.
    pub fn cut(&self) {
        lock(&self.state).cut();
    }

    /// Stops forwarding to the client; what the client sends still arrives.
    pub fn cut_to_client(&self) {
        lock(&self.state).to_client.cut = true;
    }

    /// Forwards this many more bytes, both directions together, and then nothing.
    pub fn cut_after(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.cut_after = Some(state.total() + bytes);
    }

    /// How long ago it was first cut in both directions, if it was.
    #[must_use]
    pub fn cut_for(&self) -> Option<Duration> {
        lock(&self.state).cut_at.map(|at| at.elapsed())
    }

    /// Resumes forwarding.
    pub fn restore(&self) {
        let mut state = lock(&self.state);
        state.cut_after = None;
        (state.to_server.cut, state.to_client.cut) = (false, false);
    }

    /// Reaches the server from another port from now on; what is sent to the old one is lost.
    ///
    /// # Errors
    /// No socket can be bound.
    pub fn rebind(&self) -> io::Result<()> {
        let upstream = towards(self.addr, self.server)?;
        lock(&self.state).rebind(upstream);
        Ok(())
    }

    /// How often it has changed its port.
    #[must_use]
    pub fn rebinds(&self) -> u32 {
        lock(&self.state).moves
    }

    /// Changes its port once after this many more bytes, both directions together, or earlier if
    /// [`Self::rebind`] is called.
    pub fn rebind_after(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.rebind_after = Some(state.total() + bytes);
    }

    /// Bytes forwarded to the server and to the client.
    #[must_use]
    pub fn forwarded(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.to_server.bytes, state.to_client.bytes)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.state).over = true;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported already.
            let _ = thread.join();
        }
    }
}

/// Locks the state, which has no invariant that a panic elsewhere could break.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket with the relay's own IP address that is connected to the server.
fn towards(relay: SocketAddr, server: SocketAddr) -> io::Result<Arc<UdpSocket>> {
    let socket = UdpSocket::bind(SocketAddr::new(relay.ip(), 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(Arc::new(socket))
}

struct Worker {
    downstream: UdpSocket,
    addr: SocketAddr,
    server: SocketAddr,
    client: Option<SocketAddr>,
    state: Arc<Mutex<State>>,
}

impl Worker {
    fn run(mut self) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let upstream = {
                let state = lock(&self.state);
                if state.over {
                    return;
                }
                Arc::clone(&state.upstream)
            };
            // A datagram that cannot be sent or received counts as lost: ends may be closed at any
            // time.
            for _ in 0..BATCH {
                let Ok((length, from)) = self.downstream.recv_from(&mut buffer) else {
                    break;
                };
                self.client = Some(from);
                if let Some(upstream) = self.pass(true, length) {
                    let _ = upstream.send(&buffer[..length]);
                }
            }
            for _ in 0..BATCH {
                let Ok(length) = upstream.recv(&mut buffer) else {
                    break;
                };
                let Some(client) = self.client else { break };
                if self.pass(false, length).is_some() {
                    let _ = self.downstream.send_to(&buffer[..length], client);
                }
            }
            let mut waiting = [
                PollFd::new(self.downstream.as_fd(), PollFlags::POLLIN),
                PollFd::new(upstream.as_fd(), PollFlags::POLLIN),
            ];
            // Being interrupted by a signal does no harm.
            let _ = poll(&mut waiting, PollTimeout::from(LOOK_MS));
        }
    }

    /// Counts a datagram, if it may pass, and triggers what is due after this many bytes. Returns
    /// the socket towards the server.
    fn pass(&self, to_server: bool, length: usize) -> Option<Arc<UdpSocket>> {
        let mut state = lock(&self.state);
        let way = if to_server {
            &mut state.to_server
        } else {
            &mut state.to_client
        };
        if way.cut {
            return None;
        }
        way.bytes += length as u64;
        let total = state.total();
        if state.cut_after.is_some_and(|limit| total > limit) {
            state.cut();
        }
        if state.rebind_after.is_some_and(|limit| total > limit)
            && let Ok(upstream) = towards(self.addr, self.server)
        {
            state.rebind(upstream);
        }
        Some(Arc::clone(&state.upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resumed;
    use std::net::Ipv4Addr;

    const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    struct Ends {
        client: UdpSocket,
        server: UdpSocket,
        relay: Relay,
    }

    fn ends() -> Ends {
        let server = UdpSocket::bind(LOOPBACK).unwrap();
        let relay = Relay::start(LOOPBACK, server.local_addr().unwrap()).unwrap();
        let client = UdpSocket::bind(LOOPBACK).unwrap();
        client.connect(relay.addr()).unwrap();
        Ends {
            client,
            server,
            relay,
        }
    }

    /// The next datagram, with its sender.
    fn arrival(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        arrival_within(socket, Duration::from_secs(60)).expect("a datagram")
    }

    /// Whether nothing arrives for a short time.
    fn is_silent(socket: &UdpSocket) -> bool {
        arrival_within(socket, Duration::from_millis(200)).is_none()
    }

    fn arrival_within(socket: &UdpSocket, limit: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        let mut buffer = [0; 100];
        socket.set_read_timeout(Some(limit)).unwrap();
        let (length, from) = resumed(|| socket.recv_from(&mut buffer)).ok()?;
        Some((buffer[..length].to_vec(), from))
    }

    #[test]
    fn datagrams_pass_both_ways_until_it_is_cut_and_again_after() {
        let ends = ends();
        ends.client.send(b"there").unwrap();
        let (data, from) = arrival(&ends.server);
        assert_eq!(data, b"there");
        ends.server.send_to(b"back", from).unwrap();
        assert_eq!(arrival(&ends.client).0, b"back");
        assert_eq!(ends.relay.forwarded(), (5, 4));
        ends.relay.cut();
        ends.client.send(b"lost").unwrap();
        assert!(is_silent(&ends.server));
        ends.relay.restore();
        ends.relay.cut_to_client();
        ends.client.send(b"there").unwrap();
        arrival(&ends.server);
        ends.server.send_to(b"back", from).unwrap();
        assert!(is_silent(&ends.client));
    }

    #[test]
    fn it_cuts_itself_after_so_many_bytes() {
        let ends = ends();
        ends.relay.cut_after(5);
        for number in 0..4 {
            ends.client.send(&[number; 3]).unwrap();
        }
        assert_eq!(arrival(&ends.server).0, [0; 3]);
        assert_eq!(arrival(&ends.server).0, [1; 3]);
        assert!(is_silent(&ends.server));
        assert!(ends.relay.cut_for().is_some());
    }

    #[test]
    fn after_rebinding_the_server_sees_another_port() {
        let ends = ends();
        ends.client.send(b"one").unwrap();
        let (_, before) = arrival(&ends.server);
        ends.relay.rebind().unwrap();
        ends.client.send(b"two").unwrap();
        let (_, after) = arrival(&ends.server);
        assert_ne!(before, after);
        ends.server.send_to(b"back", after).unwrap();
        assert_eq!(arrival(&ends.client).0, b"back");
    }

    #[test]
    fn it_rebinds_by_itself_once_so_many_bytes_have_passed() {
        let ends = ends();
        ends.relay.rebind_after(5);
        let ports = [b"one", b"two", b"six"].map(|data| {
            ends.client.send(data).unwrap();
            arrival(&ends.server).1.port()
        });
        assert_ne!(ports[0], ports[1]);
        assert_eq!(ports[1], ports[2]);
        assert_eq!(ends.relay.rebinds(), 1);
    }
}
