//! A ping that runs all the time, and what became of each packet of it.

use anabranch_testbed::{Node, resumed};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two packets.
const PERIOD: Duration = Duration::from_millis(50);
/// How long an answer may take that is not lost.
const LATE: Duration = Duration::from_secs(2);

/// A packet.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Instant,
    pub is_answered: bool,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// By their numbers.
    pub sent: Vec<Sent>,
    /// Why packets were refused, by this machine or by another one on the way.
    pub refused: Vec<String>,
}

impl Seen {
    /// The time from the first to the last packet without an answer, and how many these are.
    pub fn gap(&self) -> (Option<[Instant; 2]>, usize) {
        let now = Instant::now();
        let old = self.sent.iter().filter(|one| one.at + LATE < now);
        let lost: Vec<Instant> = old
            .filter(|one| !one.is_answered)
            .map(|one| one.at)
            .collect();
        let ends = lost.first().zip(lost.last());
        (ends.map(|(first, last)| [*first, *last]), lost.len())
    }
}

pub struct Pinger {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pinger {
    /// Pings an address of IPv4 from a host.
    pub fn start(from: &Node, to: &str) -> Self {
        let to: IpAddr = to.parse().unwrap();
        let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        let socket = from.enter(open).unwrap();
        socket.set_read_timeout(Some(PERIOD)).unwrap();
        let (seen, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let run = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    send(&socket, to, &seen);
                    let until = Instant::now() + PERIOD;
                    while Instant::now() < until {
                        receive(&socket, &seen);
                    }
                }
            }
        };
        Self {
            seen,
            stop,
            thread: Some(thread::spawn(run)),
        }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Whether a packet was answered that was sent after this.
    pub fn is_answered_since(&self, at: Instant) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.sent.iter().any(|one| one.at > at && one.is_answered)
    }

    /// Goes on until every packet so far was answered or lost.
    pub fn settle(&self) -> Seen {
        thread::sleep(LATE + PERIOD);
        self.seen()
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What names these packets among those of others.
const IDENTIFIER: u16 = 0xab1e;

fn send(socket: &Socket, to: IpAddr, seen: &Mutex<Seen>) {
    let mut seen = seen.lock().unwrap();
    let number = seen.sent.len() as u16;
    // The one's complement of a sum of three numbers (RFC 792).
    let sum = 0x0800 + u32::from(IDENTIFIER) + u32::from(number);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    let words = [0x0800, sum, IDENTIFIER, number];
    let packet: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    seen.sent.push(Sent {
        at: Instant::now(),
        is_answered: false,
    });
    if let Err(error) = socket.send_to(&packet, &SocketAddr::new(to, 0).into()) {
        seen.refused.push(error.to_string());
    }
}

fn receive(mut socket: &Socket, seen: &Mutex<Seen>) {
    const HEADER: usize = 20;
    let mut bytes = [0; 2048];
    let Ok(length) = resumed(|| socket.read(&mut bytes)) else {
        return;
    };
    let Some(icmp) = bytes[..length].get(HEADER..).filter(|icmp| icmp.len() >= 8) else {
        return;
    };
    let word = |at: usize| u16::from_be_bytes([icmp[at], icmp[at + 1]]);
    let mut seen = seen.lock().unwrap();
    match icmp[0] {
        0 if word(4) == IDENTIFIER => {
            if let Some(sent) = seen.sent.get_mut(usize::from(word(6))) {
                sent.is_answered = true;
            }
        }
        // About a packet of this protocol, and not about somebody else's.
        3 | 11 if icmp.get(8 + 9) == Some(&1) => {
            seen.refused.push(format!("ICMP {}, {}", icmp[0], icmp[1]));
        }
        _ => {}
    }
}
