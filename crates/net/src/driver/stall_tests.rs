//! What the driver concludes after its process did not run for a while.

use crate::clock::Clock;
use crate::engine::{self, ClientConfig, EndpointConfig, ServerConfig, tls};
use crate::identity::{Identity, provider};
use crate::sockets::{RecvBatch, Socket, SocketConfig};
use crate::{Connection, Endpoint, PathsConfig, Target};
use anabranch_proto::datagram::{SocketId, Tuple};
use bytes::Bytes;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

/// The least number of datagrams in flight when the process stalls.
const FLIGHT: usize = 60;

/// A server on the thread of the test: it sends its answers only when told to.
struct Peer {
    engine: engine::Endpoint,
    socket: UdpSocket,
    clock: Clock,
    waiting: Vec<(SocketAddr, Vec<u8>)>,
}

impl Peer {
    fn new(config: ServerConfig) -> Self {
        let mut engine = engine::Endpoint::new(EndpointConfig::default(), [7; 32]);
        engine.set_server(Some(Arc::new(config)));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            engine,
            socket,
            clock: Clock::new(),
            waiting: Vec::new(),
        }
    }

    /// Collects what has arrived, without answering. Returns how many datagrams that were.
    fn collect(&mut self) -> usize {
        let (before, mut bytes) = (self.waiting.len(), [0; 2048]);
        while let Ok((length, from)) = self.socket.recv_from(&mut bytes) {
            self.waiting.push((from, bytes[..length].to_vec()));
        }
        self.waiting.len() - before
    }

    /// Answers what was collected. Returns how many datagrams were sent.
    fn answer(&mut self) -> usize {
        let mut sent = self.send();
        for (remote, mut data) in std::mem::take(&mut self.waiting) {
            let tuple = Tuple {
                socket: SocketId(0),
                local: None,
                remote,
            };
            let now = self.clock.now();
            self.engine.handle_datagram(now, tuple, None, &mut data);
            sent += self.send();
        }
        sent
    }

    fn send(&mut self) -> usize {
        let (now, mut sent, mut bytes) = (self.clock.now(), 0, Vec::new());
        if self.engine.next_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        while let Some(transmit) = self.engine.poll_transmit(now, 1, &mut bytes) {
            self.socket.send_to(&bytes, transmit.tuple.remote).unwrap();
            bytes.clear();
            sent += 1;
        }
        while self.engine.poll_event().is_some() {}
        sent
    }
}

async fn connect(client: &Endpoint) -> (Connection, Peer) {
    let identity = Identity::generate().unwrap();
    let server = identity.server(&["localhost"]).unwrap().alpn(&[b"test"]);
    let mut peer = Peer::new(ServerConfig::new(server.build().unwrap()));
    let trust = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let config = ClientConfig::new(trust.alpn(&[b"test"]).build().unwrap());
    let target = Target {
        name: "localhost".into(),
        remotes: vec![peer.socket.local_addr().unwrap()],
    };
    let paths = PathsConfig {
        timeout: Duration::from_secs(180),
        ..PathsConfig::default()
    };
    let mut connecting = std::pin::pin!(client.connect(&target, config, &paths));
    loop {
        tokio::select! {
            connected = &mut connecting => return (connected.unwrap().0, peer),
            () = sleep(Duration::from_millis(1)) => {
                peer.collect();
                peer.answer();
            }
        }
    }
}

/// Lets the client send until its window is full and holds at least [`FLIGHT`] datagrams, which are
/// left unanswered.
async fn fill_the_window(peer: &mut Peer) {
    loop {
        loop {
            sleep(Duration::from_millis(1)).await;
            if peer.collect() == 0 {
                break;
            }
        }
        if peer.waiting.len() >= FLIGHT {
            return;
        }
        peer.answer();
    }
}

#[tokio::test]
async fn after_a_stall_what_waits_is_read_before_a_silence_is_believed() {
    let client = Endpoint::client().unwrap();
    let (connection, mut peer) = connect(&client).await;
    let mut stream = connection.open_uni().await.unwrap();
    let sender = tokio::spawn(async move {
        // More than is ever accepted; the test ends first.
        let _ = stream.write_bytes(Bytes::from(vec![7; 64 << 20])).await;
    });
    fill_the_window(&mut peer).await;
    let before = connection.paths()[0].1.counters;
    // Nothing on this thread runs now, including the client's driver. Afterwards all answers are
    // there, but behind more than one batch of datagrams that say nothing about the path.
    std::thread::sleep(Duration::from_secs(1));
    let remote = peer.waiting[0].0;
    for _ in 0..30 {
        peer.socket.send_to(b"noise", remote).unwrap();
    }
    assert!(peer.answer() > 0);
    sleep(Duration::from_millis(1)).await;
    let after = connection.paths()[0].1.counters;
    assert!(after.acked_bytes > before.acked_bytes, "{after:?}");
    assert_eq!((after.ptos, after.doubts), (before.ptos, before.doubts));
    sender.abort();
}

#[tokio::test]
async fn a_datagram_is_read_before_the_runtime_has_noticed_it() {
    let socket = Socket::bind(&SocketConfig::path(Ipv4Addr::LOCALHOST.into(), None)).unwrap();
    let mut batch = RecvBatch::new();
    assert!(socket.recv_unannounced(&mut batch).is_pending());
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    sender.send_to(b"hello", socket.local_addr()).unwrap();
    let unnoticed = poll_fn(|cx| Poll::Ready(socket.poll_recv(cx, &mut batch).is_pending())).await;
    assert!(unnoticed, "no turn of the runtime lies in between");
    assert!(matches!(
        socket.recv_unannounced(&mut batch),
        Poll::Ready(Ok(()))
    ));
    let received: Vec<Vec<u8>> = batch.datagrams().map(|one| one.data.to_vec()).collect();
    assert_eq!(
        (received, batch.is_full()),
        (vec![b"hello".to_vec()], false)
    );
}
