//! A shaped path: two UDP sockets on a loopback address, and a modelled link in each direction.
//!
//! ```text
//! client -> [front] -> link -> [rear] -> server
//! client <- [front] <- link <- [rear] <- server
//! ```
//!
//! Each path has a thread of its own, which sleeps until the exact time that its links ask for, as
//! closely as the kernel allows: the runtime's timers are too coarse. Packets may be delivered
//! late, but the links keep exact time, so their rates hold.

use anabranch_link::{Link, LinkConfig, Loss, Probability, Queue, Rate};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// IPv4 and UDP headers, which count on a link.
const HEADER_BYTES: u32 = 28;

/// The longest sleep, and so the time a relay may need to notice that it is to stop or cut.
const NAP: Duration = Duration::from_millis(5);

/// Datagrams read from one socket before turning to the other.
const BATCH: usize = 64;

/// Buffers kept for reuse.
const SPARE: usize = 1024;

/// One direction of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    /// Megabits per second.
    pub(crate) mbit: u32,
    /// One-way delay in milliseconds.
    pub(crate) delay_ms: u32,
    /// Share of packets lost.
    pub(crate) loss: f64,
}

impl Shape {
    /// Bits per second.
    pub(crate) fn rate(self) -> f64 {
        f64::from(self.mbit) * 1e6
    }

    /// The round trip without queueing, if the other direction has the same delay.
    pub(crate) fn rtt(self) -> Duration {
        Duration::from_millis(2 * u64::from(self.delay_ms))
    }

    fn link(self) -> LinkConfig {
        let rate = Rate::bits_per_second(u64::from(self.mbit) * 1_000_000);
        let delay = Duration::from_millis(u64::from(self.delay_ms));
        let mut config = LinkConfig::new(rate.unwrap_or(Rate::Unlimited), delay);
        // Two round trips' worth of packets, as in a home router.
        let round_trip = self.rate() / 8.0 * self.rtt().as_secs_f64();
        config.queue = Queue::TailDropBytes((2.0 * round_trip) as u64 + 60_000);
        if let Some(loss) = Probability::new(self.loss).filter(|_| self.loss > 0.0) {
            config.loss = Loss::Independent(loss);
        }
        config
    }
}

/// A running path. Stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    /// The address that the client sends to.
    pub(crate) front: SocketAddr,
    switches: Arc<Switches>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Switches {
    stop: AtomicBool,
    cut: AtomicBool,
}

impl Relay {
    /// Starts a path from `ip` to `server` with a shape for each direction. The seed decides which
    /// packets get lost.
    ///
    /// # Errors
    ///
    /// A socket or the thread cannot be made.
    pub(crate) fn start(
        ip: IpAddr,
        server: SocketAddr,
        [there, back]: [Shape; 2],
        seed: u64,
    ) -> io::Result<Self> {
        let front = socket(ip)?;
        let rear = socket(ip)?;
        rear.connect(server)?;
        let switches = Arc::new(Switches::default());
        let address = front.local_addr()?;
        let mut relay = Worker {
            started: Instant::now(),
            there: Side {
                socket: rear,
                link: Link::new(there.link(), seed),
            },
            here: Side {
                socket: front,
                link: Link::new(back.link(), !seed),
            },
            client: None,
            spare: Vec::new(),
            switches: Arc::clone(&switches),
        };
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || relay.run())?;
        Ok(Self {
            front: address,
            switches,
            thread: Some(thread),
        })
    }

    /// From now on drops everything silently, in both directions.
    pub(crate) fn cut(&self) {
        self.switches.cut.store(true, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.switches.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has already been reported.
            let _ = thread.join();
        }
    }
}

fn socket(ip: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((ip, 0))?;
    socket.set_nonblocking(true)?;
    // Best effort: with small buffers, bursts may be lost that the link would have carried.
    let _ = setsockopt(&socket, sockopt::RcvBuf, &(4 << 20));
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20));
    Ok(socket)
}

/// A socket and the link whose packets leave through it.
struct Side {
    socket: UdpSocket,
    link: Link<Vec<u8>>,
}

struct Worker {
    started: Instant,
    /// Towards the server.
    there: Side,
    /// Towards the client.
    here: Side,
    client: Option<SocketAddr>,
    spare: Vec<Vec<u8>>,
    switches: Arc<Switches>,
}

impl Worker {
    fn run(&mut self) {
        while !self.switches.stop.load(Ordering::Relaxed) {
            self.obey();
            let more = self.receive();
            self.deliver();
            if !more {
                self.sleep();
            }
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn obey(&mut self) {
        if self.switches.cut.load(Ordering::Relaxed) && self.there.link.config().up {
            let now = self.now();
            for link in [&mut self.there.link, &mut self.here.link] {
                let config = LinkConfig {
                    up: false,
                    ..link.config().clone()
                };
                link.reconfigure(now, config);
            }
        }
    }

    /// Takes what has arrived; returns whether there may be more.
    fn receive(&mut self) -> bool {
        let mut more = false;
        for from_client in [true, false] {
            let mut count = 0;
            while count < BATCH && self.receive_one(from_client) {
                count += 1;
            }
            more |= count == BATCH;
        }
        more
    }

    fn receive_one(&mut self, from_client: bool) -> bool {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(2048, 0);
        let (source, sink) = if from_client {
            (&self.here.socket, &mut self.there.link)
        } else {
            (&self.there.socket, &mut self.here.link)
        };
        let Ok((length, remote)) = source.recv_from(&mut buffer) else {
            self.spare.push(buffer);
            return false;
        };
        buffer.truncate(length);
        let now = self.started.elapsed().as_nanos() as u64;
        sink.enqueue(now, length as u32 + HEADER_BYTES, buffer);
        if from_client {
            self.client = Some(remote);
        }
        true
    }

    /// Sends the packets that are due.
    fn deliver(&mut self) {
        let now = self.now();
        while let Some(packet) = self.there.link.poll(now) {
            // A full socket buffer loses the packet, as any network does.
            let _ = self.there.socket.send(&packet);
            self.keep(packet);
        }
        while let Some(packet) = self.here.link.poll(now) {
            if let Some(client) = self.client {
                let _ = self.here.socket.send_to(&packet, client);
            }
            self.keep(packet);
        }
    }

    fn keep(&mut self, packet: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(packet);
        }
    }

    fn sleep(&self) {
        let due = [&self.there.link, &self.here.link]
            .into_iter()
            .filter_map(Link::deadline)
            .min();
        let until = due.map_or(NAP, |due| {
            Duration::from_nanos(due.saturating_sub(self.now()))
        });
        let mut waiting = [
            PollFd::new(self.here.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.there.socket.as_fd(), PollFlags::POLLIN),
        ];
        // A signal ends the sleep early, which does no harm.
        let _ = ppoll(
            &mut waiting,
            Some(TimeSpec::from_duration(until.min(NAP))),
            None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    const SHAPE: Shape = Shape {
        mbit: 8,
        delay_ms: 20,
        loss: 0.0,
    };

    fn pair() -> (UdpSocket, UdpSocket, Relay) {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let server = UdpSocket::bind((ip, 0)).unwrap();
        let relay = Relay::start(ip, server.local_addr().unwrap(), [SHAPE; 2], 1).unwrap();
        let client = UdpSocket::bind((ip, 0)).unwrap();
        client.connect(relay.front).unwrap();
        for socket in [&server, &client] {
            // A minute for what takes a moment: the machine may be busy.
            let patience = Duration::from_secs(60);
            socket.set_read_timeout(Some(patience)).unwrap();
        }
        (client, server, relay)
    }

    /// The next datagram. A signal to the process, such as the end of another test's child, breaks
    /// off a wait with a limit: it is taken up again.
    fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match socket.recv_from(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }

    #[test]
    fn datagrams_pass_both_ways_with_the_links_delay() {
        let (client, server, _relay) = pair();
        let started = Instant::now();
        client.send(b"ping").unwrap();
        let mut buffer = [0; 16];
        let (length, back) = receive(&server, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"ping");
        assert!(started.elapsed() >= Duration::from_millis(20));
        server.send_to(b"pong", back).unwrap();
        let (length, _) = receive(&client, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"pong");
        assert!(started.elapsed() >= Duration::from_millis(40));
    }

    #[test]
    fn a_burst_takes_the_time_its_bytes_need() {
        let (client, server, _relay) = pair();
        let started = Instant::now();
        for _ in 0..50 {
            client.send(&[0; 972]).unwrap();
        }
        let mut buffer = [0; 2048];
        for _ in 0..50 {
            receive(&server, &mut buffer).unwrap();
        }
        // 50 packets of 1000 bytes with headers at 1 ms each, and the delay.
        assert!(started.elapsed() >= Duration::from_millis(70));
    }

    #[test]
    fn a_cut_path_is_silent() {
        let (client, server, relay) = pair();
        relay.cut();
        let moment = Duration::from_millis(200);
        server.set_read_timeout(Some(moment)).unwrap();
        // On a busy machine the relay may notice the cut late; until then datagrams pass.
        let passes = || {
            client.send(b"ping").unwrap();
            receive(&server, &mut [0; 16]).is_ok()
        };
        let started = Instant::now();
        while passes() {
            assert!(started.elapsed() < Duration::from_secs(60), "it is not cut");
        }
        assert!(!passes(), "it is cut for good");
    }
}
