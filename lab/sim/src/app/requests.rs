//! Requests and responses: each pair uses one bidirectional stream and is timed from start to end.

use super::pattern::Pattern;
use super::schedule::Schedule;
use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::Event;
use anabranch_proto::connection::Connection;
use anabranch_proto::streams::{ReadError, StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bytes at the start of a request, which hold the length of the response.
const HEADER: u64 = 8;

/// The most bytes taken by one read.
const READ: usize = 1 << 18;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The earliest time it may start.
    pub at: Instant,
    /// Bytes of the request; at least 8.
    pub up: u64,
    /// Bytes of the response.
    pub down: u64,
}

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// The request.
    pub request: Request,
    /// Its stream.
    pub stream: StreamId,
    /// When the stream was opened.
    pub began: Instant,
    /// When the first byte of the response arrived.
    pub first_byte: Option<Instant>,
    /// When the whole response had arrived.
    pub finished: Option<Instant>,
    /// Bytes of the response received so far.
    pub received: u64,
    /// Response bytes that differ from what was sent; any such byte is a defect of the engine.
    pub corrupt: u64,
}

#[derive(Debug)]
struct Active {
    /// Index into the history.
    record: usize,
    written: u64,
    finished: bool,
}

/// Sends requests and waits for their responses.
#[derive(Debug)]
pub struct Requests {
    session: SessionId,
    waiting: Schedule<Request>,
    parallel: usize,
    active: BTreeMap<StreamId, Active>,
    history: Vec<Exchange>,
    pattern: Pattern,
    finished: usize,
}

impl Requests {
    /// Sends requests on one connection, at most `parallel` at a time.
    pub fn new(session: SessionId, mut requests: Vec<Request>, parallel: usize) -> Self {
        for request in &mut requests {
            request.up = request.up.max(HEADER);
        }
        Self {
            session,
            waiting: Schedule::new(requests, |request| request.at),
            parallel: parallel.max(1),
            active: BTreeMap::new(),
            history: Vec::new(),
            pattern: Pattern::new(),
            finished: 0,
        }
    }

    /// The requests started so far, in order.
    pub fn history(&self) -> &[Exchange] {
        &self.history
    }

    fn pump(&mut self, host: &mut Sessions<'_>) {
        let now = host.now;
        if !host.is_open(self.session) {
            return;
        }
        let Some(connection) = host.connection(self.session) else {
            return;
        };
        while self.active.len() < self.parallel && self.waiting.is_due(now) {
            let Some(stream) = connection.open(Dir::Bi) else {
                return;
            };
            let request = self.waiting.pop().expect("looked at above");
            let active = Active {
                record: self.history.len(),
                written: 0,
                finished: false,
            };
            self.active.insert(stream, active);
            self.history.push(Exchange {
                request,
                stream,
                began: now,
                first_byte: None,
                finished: None,
                received: 0,
                corrupt: 0,
            });
            self.write(connection, stream);
        }
    }

    fn write(&mut self, connection: &mut Connection, stream: StreamId) {
        let Some(active) = self.active.get_mut(&stream) else {
            return;
        };
        let request = self.history[active.record].request;
        while !active.finished {
            let left = request.up - active.written;
            if left == 0 {
                active.finished = true;
                // The response may already have arrived and ended the stream.
                let _ = connection.finish(stream);
                return;
            }
            let mut piece = match active.written {
                at if at < HEADER => {
                    Bytes::copy_from_slice(&request.down.to_be_bytes()[at as usize..])
                }
                at => self.pattern.piece(at, left),
            };
            match connection.write(stream, &mut piece) {
                Ok(taken) => active.written += taken as u64,
                Err(WriteError::Blocked) => return,
                Err(_) => active.finished = true,
            }
        }
    }

    fn read(&mut self, host: &mut Sessions<'_>, stream: StreamId) {
        let now = host.now;
        let (Some(active), Some(connection)) =
            (self.active.get(&stream), host.connection(self.session))
        else {
            return;
        };
        let exchange = &mut self.history[active.record];
        loop {
            match connection.read(stream, READ) {
                Ok(Some(bytes)) => {
                    if !self.pattern.is_at(exchange.received, &bytes) {
                        exchange.corrupt += bytes.len() as u64;
                    }
                    exchange.received += bytes.len() as u64;
                    exchange.first_byte.get_or_insert(now);
                }
                Ok(None) => {
                    exchange.finished = Some(now);
                    self.finished += 1;
                    self.active.remove(&stream);
                    return self.pump(host);
                }
                Err(ReadError::Blocked) => return,
                Err(ReadError::Reset(_) | ReadError::Closed) => {
                    self.active.remove(&stream);
                    return self.pump(host);
                }
            }
        }
    }
}

impl App for Requests {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        if session != self.session {
            return;
        }
        match event {
            Event::Connected | Event::Stream(StreamEvent::Available { dir: Dir::Bi }) => {
                self.pump(host);
            }
            Event::Stream(StreamEvent::Writable { id }) => {
                if let Some(connection) = host.connection(session) {
                    self.write(connection, *id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => self.read(host, *id),
            _ => {}
        }
    }

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        self.pump(host);
        self.waiting.pass(host.now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.waiting.next_timeout()
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }
}

#[derive(Debug, Default)]
struct Answer {
    header: Vec<u8>,
    /// Length of the response, once known.
    length: Option<u64>,
    written: u64,
    request_ended: bool,
    finished: bool,
}

/// Answers [`Requests`] on all connections of the host.
#[derive(Debug)]
pub struct Responder {
    answers: BTreeMap<(SessionId, StreamId), Answer>,
    pattern: Pattern,
}

impl Default for Responder {
    fn default() -> Self {
        Self {
            answers: BTreeMap::new(),
            pattern: Pattern::new(),
        }
    }
}

impl Responder {
    fn read(&mut self, host: &mut Sessions<'_>, session: SessionId, id: StreamId) {
        let Some(connection) = host.connection(session) else {
            return;
        };
        let answer = self.answers.entry((session, id)).or_default();
        while !answer.request_ended {
            match connection.read(id, READ) {
                Ok(Some(bytes)) => {
                    let missing = HEADER as usize - answer.header.len();
                    answer
                        .header
                        .extend_from_slice(&bytes[..missing.min(bytes.len())]);
                }
                Ok(None) => {
                    answer.request_ended = true;
                    let header = answer.header.as_slice().try_into();
                    answer.length = Some(header.map_or(0, u64::from_be_bytes));
                }
                Err(ReadError::Blocked) => return,
                Err(_) => {
                    self.answers.remove(&(session, id));
                    return;
                }
            }
        }
        self.write(host, session, id);
    }

    fn write(&mut self, host: &mut Sessions<'_>, session: SessionId, id: StreamId) {
        let key = (session, id);
        let (Some(answer), Some(connection)) =
            (self.answers.get_mut(&key), host.connection(session))
        else {
            return;
        };
        let Some(length) = answer.length else { return };
        while !answer.finished {
            let left = length - answer.written;
            if left == 0 {
                answer.finished = true;
                // The peer may have stopped the stream in the meantime.
                let _ = connection.finish(id);
                break;
            }
            let mut piece = self.pattern.piece(answer.written, left);
            match connection.write(id, &mut piece) {
                Ok(taken) => answer.written += taken as u64,
                Err(WriteError::Blocked) => return,
                Err(_) => answer.finished = true,
            }
        }
        self.answers.remove(&key);
    }
}

impl App for Responder {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        match event {
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => loop {
                let connection = host.connection(session);
                let Some(id) = connection.and_then(|connection| connection.accept(Dir::Bi)) else {
                    return;
                };
                self.read(host, session, id);
            },
            Event::Stream(StreamEvent::Readable { id })
                if self.answers.contains_key(&(session, *id)) =>
            {
                self.read(host, session, *id);
            }
            Event::Stream(StreamEvent::Writable { id }) => self.write(host, session, *id),
            _ => {}
        }
    }

    fn is_blocked(&self) -> bool {
        let mut answers = self.answers.values();
        answers.any(|answer| answer.length.is_some_and(|length| answer.written < length))
    }
}
