//! The engine in an event loop of its own, without this crate: blocking sockets of the standard
//! library, one thread for a server that answers in capitals, one for its client.
//!
//! ```text
//! cargo run -p anabranch-net --example event-loop
//! ```

#![allow(clippy::print_stdout, reason = "it shows what came")]

use anabranch_proto::config::{ClientConfig, EndpointConfig, ServerConfig};
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::streams::StreamEvent;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use anabranch_proto::{Connection, Endpoint, Event, Handle, tls};
use bytes::Bytes;
use rustls::crypto::ring::default_provider;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The longest wait for a datagram; the engine mostly wants to be called before.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

struct Host {
    endpoint: Endpoint,
    socket: UdpSocket,
    started: std::time::Instant,
}

impl Host {
    fn new() -> io::Result<Self> {
        let mut seed = [0; 32];
        let random = default_provider().secure_random;
        random.fill(&mut seed).map_err(|_| ErrorKind::Unsupported)?;
        Ok(Self {
            endpoint: Endpoint::new(EndpointConfig::default(), seed),
            socket: UdpSocket::bind("127.0.0.1:0")?,
            started: std::time::Instant::now(),
        })
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.started.elapsed()
    }

    /// One turn: send everything, wait for a datagram or the timer, tell the engine.
    fn turn(&mut self) -> io::Result<()> {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now(), 1, &mut buffer) {
            self.socket.send_to(&buffer, transmit.tuple.remote)?;
            buffer.clear();
        }
        let wait = self.endpoint.next_timeout().map(|at| at.since(self.now()));
        let wait = wait.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        // The system takes no wait of zero.
        let wait = wait.max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(wait))?;
        let mut datagram = [0; 1500];
        match self.socket.recv_from(&mut datagram) {
            Ok((length, remote)) => {
                let tuple = tuple_to(remote);
                let (now, data) = (self.now(), &mut datagram[..length]);
                self.endpoint.handle_datagram(now, tuple, None, data);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        self.endpoint.handle_timeout(self.now());
        Ok(())
    }

    fn connection(&mut self, handle: Handle) -> Option<&mut Connection> {
        self.endpoint.connection_mut(handle)
    }
}

/// There is one socket, bound to one address.
fn tuple_to(remote: std::net::SocketAddr) -> Tuple {
    Tuple {
        socket: SocketId(0),
        local: None,
        remote,
    }
}

/// All that arrived on a stream so far; whether that was the end.
fn read(connection: &mut Connection, id: StreamId) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match connection.read(id, usize::MAX) {
            Ok(Some(bytes)) => all.extend_from_slice(&bytes),
            Ok(None) => return (all, true),
            Err(_) => return (all, false),
        }
    }
}

fn serve(mut host: Host) -> io::Result<()> {
    loop {
        host.turn()?;
        while let Some((handle, event)) = host.endpoint.poll_event() {
            let Some(connection) = host.connection(handle) else {
                return Ok(()); // Drained: this server has served its client.
            };
            let readable = match event {
                Event::Stream(StreamEvent::Opened { dir }) => connection.accept(dir),
                Event::Stream(StreamEvent::Readable { id }) => Some(id),
                _ => None,
            };
            if let Some(id) = readable {
                let (mut bytes, is_end) = read(connection, id);
                bytes.make_ascii_uppercase();
                // What the peer gives no credit for would be written on `Writable`.
                let _ = connection.write(id, &mut Bytes::from(bytes));
                if is_end {
                    let _ = connection.finish(id);
                }
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let provider = Arc::new(default_provider());
    let mut server = Host::new()?;
    let key = tls::KeyPair::generate(&provider, [7; 32])?;
    let tls = tls::ServerTls::with_raw_key(Arc::clone(&provider), &key);
    let config = ServerConfig::new(tls.alpn(&[b"upper"]).build()?);
    server.endpoint.set_server(Some(Arc::new(config)));
    let address = server.socket.local_addr()?;
    let serving = thread::spawn(move || serve(server));

    let mut client = Host::new()?;
    let tls = tls::ClientTls::pinned(provider, key.fingerprint());
    let config = ClientConfig::new(tls.alpn(&[b"upper"]).build()?);
    let now = client.now();
    let (endpoint, to) = (&mut client.endpoint, tuple_to(address));
    let handle = endpoint.connect(now, config, to, "localhost")?;
    loop {
        client.turn()?;
        while let Some((_, event)) = client.endpoint.poll_event() {
            let now = client.now();
            let Some(connection) = client.connection(handle) else {
                return Ok(serving.join().expect("no panic")?);
            };
            match event {
                Event::Connected => {
                    let id = connection.open(Dir::Bi).expect("credit for one stream");
                    connection.write(id, &mut Bytes::from_static(b"hello"))?;
                    connection.finish(id)?;
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    let (answer, is_end) = read(connection, id);
                    println!("{}", String::from_utf8_lossy(&answer));
                    if is_end {
                        connection.close(now, 0, b"");
                    }
                }
                Event::Closed(error) => println!("{error}"),
                _ => {}
            }
        }
    }
}
