//! What applications say over a connection: requests and responses, one exchange after the other.
//!
//! A request starts with two numbers of 8 bytes each: its own length and that of the response.
//! Everything else, in both directions, is a pattern, so that every byte can be checked.

use crate::app::Pattern;
use anabranch_proto::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt::Debug;

/// Bytes of these two numbers; no request is shorter.
pub(super) const HEADER: u64 = 16;

/// A length that no simulation finishes.
pub const ENDLESS: u64 = 1 << 60;

/// The most exchanges recorded per connection; later ones are only counted.
const MAX_REPORTED: usize = 1_000_000;

/// One request and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes from the client; at least 16.
    pub request: u64,
    /// Bytes from the server.
    pub response: u64,
}

impl Exchange {
    /// The client sends this many bytes.
    pub fn upload(bytes: u64) -> Self {
        Self {
            request: bytes,
            response: 0,
        }
    }

    /// The server sends this many bytes.
    pub fn download(bytes: u64) -> Self {
        Self {
            request: HEADER,
            response: bytes,
        }
    }
}

/// What a client asks for, step by step.
pub trait Demand: Debug {
    /// The next exchange and when to start it. Called when the connection opens and whenever an
    /// exchange completes. `None` closes the connection.
    fn next(&mut self, now: Instant) -> Option<(Instant, Exchange)>;
}

/// A single exchange that starts at once.
#[derive(Debug)]
pub struct Once(Option<Exchange>);

impl Once {
    /// Asks for this exchange.
    pub fn new(exchange: Exchange) -> Self {
        Self(Some(exchange))
    }
}

impl Demand for Once {
    fn next(&mut self, now: Instant) -> Option<(Instant, Exchange)> {
        Some((now, self.0.take()?))
    }
}

/// A completed exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which exchange it was.
    pub exchange: Exchange,
    /// When its first byte could be sent.
    pub started: Instant,
    /// When its last byte was received, or acknowledged if there is no response.
    pub ended: Instant,
}

/// The client's side.
#[derive(Debug)]
pub(super) struct Client {
    demand: Box<dyn Demand>,
    /// The next exchange, and when it starts.
    waiting: Option<(Instant, Exchange)>,
    running: Option<(Instant, Exchange)>,
    /// The stream offset at which its request ends.
    request_end: u64,
    /// The stream offset at which its response ends.
    response_end: u64,
    received: u64,
    headers: VecDeque<(u64, [u8; HEADER as usize])>,
    pub(super) completions: Vec<Completion>,
    pub(super) completed: u64,
    pub(super) finished: bool,
}

impl Client {
    pub(super) fn new(demand: Box<dyn Demand>) -> Self {
        Self {
            demand,
            waiting: None,
            running: None,
            request_end: 0,
            response_end: 0,
            received: 0,
            headers: VecDeque::new(),
            completions: Vec::new(),
            completed: 0,
            finished: false,
        }
    }

    /// When it next has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.map(|(at, _)| at)
    }

    /// Whether it is waiting for a response.
    pub(super) fn expects_response(&self) -> bool {
        self.received < self.response_end
    }

    /// Makes as much progress as possible; returns the number of new bytes to send. `acknowledged`
    /// counts the acknowledged bytes of requests.
    pub(super) fn advance(&mut self, now: Instant, acknowledged: u64) -> u64 {
        let mut bytes = 0;
        while !self.finished {
            if let Some((started, exchange)) = self.running {
                if acknowledged < self.request_end || self.expects_response() {
                    break;
                }
                self.complete(Completion {
                    exchange,
                    started,
                    ended: now,
                });
            }
            if self.waiting.is_none() {
                self.waiting = self.demand.next(now);
                self.finished = self.waiting.is_none();
            }
            let Some((at, exchange)) = self.waiting.take_if(|(at, _)| *at <= now) else {
                break;
            };
            let request = exchange.request.clamp(HEADER, ENDLESS);
            let response = exchange.response.min(ENDLESS);
            let mut header = [0; HEADER as usize];
            header[..8].copy_from_slice(&request.to_be_bytes());
            header[8..].copy_from_slice(&response.to_be_bytes());
            while self
                .headers
                .front()
                .is_some_and(|(at, _)| at + HEADER <= acknowledged)
            {
                self.headers.pop_front();
            }
            self.headers.push_back((self.request_end, header));
            self.request_end += request;
            self.response_end += response;
            self.running = Some((at.max(now), exchange));
            bytes += request;
        }
        bytes
    }

    fn complete(&mut self, completion: Completion) {
        self.running = None;
        self.completed += 1;
        if self.completions.len() < MAX_REPORTED {
            self.completions.push(completion);
        }
    }

    /// The content of the requests from `start` on.
    pub(super) fn content(&self, pattern: &Pattern, start: u64, length: u64) -> Bytes {
        let end = start + length;
        let bytes = pattern.piece(start, length);
        let overlaps = |at: &u64| *at < end && at + HEADER > start;
        if !self.headers.iter().any(|(at, _)| overlaps(at)) {
            return bytes;
        }
        let mut bytes = bytes.to_vec();
        for (at, header) in self.headers.iter().filter(|(at, _)| overlaps(at)) {
            for (index, byte) in header.iter().enumerate() {
                let offset = at + index as u64;
                if (start..end).contains(&offset) {
                    bytes[(offset - start) as usize] = *byte;
                }
            }
        }
        bytes.into()
    }

    /// Takes a piece of the responses; returns whether it matches what was sent.
    pub(super) fn receive(&mut self, pattern: &Pattern, bytes: &[u8]) -> bool {
        let right = pattern.is_at(self.received, bytes);
        self.received += bytes.len() as u64;
        right
    }
}

/// The server's side.
#[derive(Debug, Default)]
pub(super) struct Server {
    received: u64,
    header: Vec<u8>,
    /// Bytes of the current request still to come.
    left: u64,
    response: u64,
}

impl Server {
    /// Takes a piece of the requests; returns whether it matches what was sent, and how many bytes
    /// to answer with.
    pub(super) fn receive(&mut self, pattern: &Pattern, mut bytes: &[u8]) -> (bool, u64) {
        let mut right = true;
        let mut answer = 0_u64;
        while !bytes.is_empty() {
            if self.left == 0 {
                let wanted = (HEADER as usize - self.header.len()).min(bytes.len());
                self.header.extend(&bytes[..wanted]);
                self.received += wanted as u64;
                bytes = &bytes[wanted..];
                if self.header.len() == HEADER as usize {
                    let number = |at: usize| {
                        let part = self.header[at..at + 8].try_into();
                        u64::from_be_bytes(part.expect("eight bytes"))
                    };
                    let length = number(0);
                    right &= length >= HEADER;
                    (self.left, self.response) = (length.saturating_sub(HEADER), number(8));
                    self.header.clear();
                    if self.left == 0 {
                        answer = answer.saturating_add(self.response.min(ENDLESS));
                    }
                }
                continue;
            }
            let taken = self.left.min(bytes.len() as u64);
            let (body, rest) = bytes.split_at(taken as usize);
            right &= pattern.is_at(self.received, body);
            self.received += taken;
            self.left -= taken;
            bytes = rest;
            if self.left == 0 {
                answer = answer.saturating_add(self.response.min(ENDLESS));
            }
        }
        (right, answer)
    }
}
