//! What applications say over a connection: requests and responses, one after the other.
//!
//! A request starts with two numbers of 8 bytes each: its own length and that of the response. The
//! rest of both directions is a pattern, so that every byte is checked.

use crate::app::Pattern;
use anabranch_proto::time::Instant;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt::Debug;

/// Bytes of the two numbers; no request is shorter.
pub(super) const HEADER: u64 = 16;

/// A length that no simulation reaches the end of.
pub const ENDLESS: u64 = 1 << 60;

/// Exchanges one connection keeps account of; later ones are only counted.
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

/// What a client wants, step by step.
pub trait Demand: Debug {
    /// The next exchange and when to start it; asked for when the connection is open and whenever
    /// an exchange is complete. `None` ends the connection.
    fn next(&mut self, now: Instant) -> Option<(Instant, Exchange)>;
}

/// One exchange, at once.
#[derive(Debug)]
pub struct Once(Option<Exchange>);

impl Once {
    /// This one.
    pub fn new(exchange: Exchange) -> Self {
        Self(Some(exchange))
    }
}

impl Demand for Once {
    fn next(&mut self, now: Instant) -> Option<(Instant, Exchange)> {
        Some((now, self.0.take()?))
    }
}

/// An exchange that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// What it was.
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
    /// When it starts, and what it is.
    waiting: Option<(Instant, Exchange)>,
    running: Option<(Instant, Exchange)>,
    /// Where its request ends.
    request_end: u64,
    /// Where its response ends.
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

    /// When it has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.map(|(at, _)| at)
    }

    /// Whether it waits for a response.
    pub(super) fn expects_response(&self) -> bool {
        self.received < self.response_end
    }

    /// Goes on as far as possible; returns bytes to send. `acknowledged` are those of the requests.
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

    /// Content of the requests.
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

    /// Takes in a piece of the responses; returns whether it is what was sent.
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
    /// Bytes of the current request that are to come.
    left: u64,
    response: u64,
}

impl Server {
    /// Takes in a piece of the requests; returns whether it is what was sent, and bytes to answer.
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
