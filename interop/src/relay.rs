//! A path that can be cut: a UDP relay between one client and one server.
//!
//! Both ends see the relay as the other end's address. It forwards until told to stop, in one
//! direction or both, and can come to the server from another port, as a NAT does after it forgot.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The largest UDP payload.
const MAX_DATAGRAM: usize = 65_535;

/// One direction.
#[derive(Debug, Default)]
struct Way {
    cut: AtomicBool,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    to_server: Way,
    to_client: Way,
    /// Bytes, both directions together, after which the relay cuts itself.
    allowance: AtomicU64,
    cut_at: OnceLock<Instant>,
}

impl Shared {
    /// Whether a datagram may pass; it counts if it does.
    fn passes(&self, way: &Way, len: usize) -> bool {
        if way.cut.load(Ordering::Relaxed) {
            return false;
        }
        way.bytes.fetch_add(len as u64, Ordering::Relaxed);
        if self.total() > self.allowance.load(Ordering::Relaxed) {
            self.cut();
        }
        true
    }

    fn total(&self) -> u64 {
        let [up, down] = [&self.to_server, &self.to_client];
        up.bytes.load(Ordering::Relaxed) + down.bytes.load(Ordering::Relaxed)
    }

    fn cut(&self) {
        self.to_server.cut.store(true, Ordering::Relaxed);
        self.to_client.cut.store(true, Ordering::Relaxed);
        self.cut_at.get_or_init(Instant::now);
    }
}

/// A running relay; it stops when this is dropped.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    server: SocketAddr,
    shared: Arc<Shared>,
    upstream: watch::Sender<Arc<UdpSocket>>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Forwards what comes to `listen` (port 0 picks a free one) to `server`, and the answers back
    /// to whoever sent last.
    ///
    /// # Errors
    /// A socket cannot be bound.
    pub async fn start(listen: SocketAddr, server: SocketAddr) -> io::Result<Self> {
        let downstream = UdpSocket::bind(listen).await?;
        let addr = downstream.local_addr()?;
        let (upstream, upstreams) = watch::channel(towards(addr, server).await?);
        let shared = Arc::new(Shared {
            to_server: Way::default(),
            to_client: Way::default(),
            allowance: AtomicU64::new(u64::MAX),
            cut_at: OnceLock::new(),
        });
        let task = tokio::spawn(forward(downstream, upstreams, Arc::clone(&shared)));
        Ok(Self {
            addr,
            server,
            shared,
            upstream,
            task,
        })
    }

    /// Where clients send to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Forwards nothing more.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Forwards nothing more to the client; what it sends still arrives.
    pub fn cut_to_client(&self) {
        self.shared.to_client.cut.store(true, Ordering::Relaxed);
    }

    /// Forwards so many bytes from now on, both directions together, and nothing after.
    pub fn cut_after(&self, bytes: u64) {
        let allowance = self.shared.total() + bytes;
        self.shared.allowance.store(allowance, Ordering::Relaxed);
    }

    /// How long ago it was cut in both directions for the first time, if it was.
    #[must_use]
    pub fn cut_for(&self) -> Option<Duration> {
        self.shared.cut_at.get().map(Instant::elapsed)
    }

    /// Forwards again.
    pub fn restore(&self) {
        self.shared.allowance.store(u64::MAX, Ordering::Relaxed);
        self.shared.to_server.cut.store(false, Ordering::Relaxed);
        self.shared.to_client.cut.store(false, Ordering::Relaxed);
    }

    /// Comes to the server from another port from now on; what is sent to the old one is lost.
    ///
    /// # Errors
    /// No socket can be bound.
    pub async fn rebind(&self) -> io::Result<()> {
        let upstream = towards(self.addr, self.server).await?;
        self.upstream.send_replace(upstream);
        Ok(())
    }

    /// Bytes forwarded to the server and to the client.
    #[must_use]
    pub fn forwarded(&self) -> (u64, u64) {
        let bytes = |way: &Way| way.bytes.load(Ordering::Relaxed);
        (bytes(&self.shared.to_server), bytes(&self.shared.to_client))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A socket with the relay's own address that talks to the server only.
async fn towards(relay: SocketAddr, server: SocketAddr) -> io::Result<Arc<UdpSocket>> {
    let socket = UdpSocket::bind(SocketAddr::new(relay.ip(), 0)).await?;
    socket.connect(server).await?;
    Ok(Arc::new(socket))
}

async fn forward(
    downstream: UdpSocket,
    mut upstreams: watch::Receiver<Arc<UdpSocket>>,
    shared: Arc<Shared>,
) {
    let mut client = None;
    let (mut to_server, mut to_client) = (vec![0; MAX_DATAGRAM], vec![0; MAX_DATAGRAM]);
    loop {
        let upstream = Arc::clone(&upstreams.borrow_and_update());
        // A datagram that cannot be sent or received is a lost one: ends are closed at any time.
        tokio::select! {
            // In this order, or what is sent after a move may still take the old way.
            biased;
            changed = upstreams.changed() => if changed.is_err() {
                return;
            },
            received = downstream.recv_from(&mut to_server) => if let Ok((len, from)) = received {
                client = Some(from);
                if shared.passes(&shared.to_server, len) {
                    let _ = upstream.send(&to_server[..len]).await;
                }
            },
            received = upstream.recv(&mut to_client) => if let Ok(len) = received
                && let Some(to) = client
                && shared.passes(&shared.to_client, len)
            {
                let _ = downstream.send_to(&to_client[..len], to).await;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    struct Ends {
        client: UdpSocket,
        server: UdpSocket,
        relay: Relay,
    }

    async fn ends() -> Ends {
        let server = UdpSocket::bind(LOOPBACK).await.unwrap();
        let relay = Relay::start(LOOPBACK, server.local_addr().unwrap());
        let relay = relay.await.unwrap();
        let client = UdpSocket::bind(LOOPBACK).await.unwrap();
        client.connect(relay.addr()).await.unwrap();
        Ends {
            client,
            server,
            relay,
        }
    }

    /// What arrives next, and from where.
    async fn arrival(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        let arrived = arrival_within(socket, Duration::from_secs(60)).await;
        arrived.expect("a datagram")
    }

    /// Whether nothing arrives for a moment.
    async fn is_silent(socket: &UdpSocket) -> bool {
        let moment = Duration::from_millis(200);
        arrival_within(socket, moment).await.is_none()
    }

    async fn arrival_within(socket: &UdpSocket, limit: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        let mut buffer = [0; 100];
        let receiving = socket.recv_from(&mut buffer);
        let received = tokio::time::timeout(limit, receiving).await;
        let (len, from) = received.ok()?.unwrap();
        Some((buffer[..len].to_vec(), from))
    }

    #[tokio::test]
    async fn datagrams_pass_both_ways_until_it_is_cut_and_again_after() {
        let ends = ends().await;
        ends.client.send(b"there").await.unwrap();
        let (data, from) = arrival(&ends.server).await;
        assert_eq!(data, b"there");
        ends.server.send_to(b"back", from).await.unwrap();
        assert_eq!(arrival(&ends.client).await.0, b"back");
        assert_eq!(ends.relay.forwarded(), (5, 4));
        ends.relay.cut();
        ends.client.send(b"lost").await.unwrap();
        assert!(is_silent(&ends.server).await);
        ends.relay.restore();
        ends.relay.cut_to_client();
        ends.client.send(b"there").await.unwrap();
        arrival(&ends.server).await;
        ends.server.send_to(b"back", from).await.unwrap();
        assert!(is_silent(&ends.client).await);
    }

    #[tokio::test]
    async fn it_cuts_itself_after_so_many_bytes() {
        let ends = ends().await;
        ends.relay.cut_after(5);
        for number in 0..4 {
            ends.client.send(&[number; 3]).await.unwrap();
        }
        assert_eq!(arrival(&ends.server).await.0, [0; 3]);
        assert_eq!(arrival(&ends.server).await.0, [1; 3]);
        assert!(is_silent(&ends.server).await);
        assert!(ends.relay.cut_for().is_some());
    }

    #[tokio::test]
    async fn after_rebinding_the_server_sees_another_port() {
        let ends = ends().await;
        ends.client.send(b"one").await.unwrap();
        let (_, before) = arrival(&ends.server).await;
        ends.relay.rebind().await.unwrap();
        ends.client.send(b"two").await.unwrap();
        let (_, after) = arrival(&ends.server).await;
        assert_ne!(before, after);
        ends.server.send_to(b"back", after).await.unwrap();
        assert_eq!(arrival(&ends.client).await.0, b"back");
    }
}
