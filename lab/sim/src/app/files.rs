//! Many streams, each with a size and a starting time of its own.

use super::pattern::Pattern;
use super::receive::Receiver;
use super::schedule::Schedule;
use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::Event;
use anabranch_proto::connection::Connection;
use anabranch_proto::streams::{StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use std::time::Duration;

/// A file to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// The earliest time it may start.
    pub at: Instant,
    /// Its length in bytes.
    pub bytes: u64,
    /// Files of higher priority go first.
    pub priority: i32,
}

impl File {
    /// A file of default priority.
    pub fn new(at: Instant, bytes: u64) -> Self {
        let priority = 0;
        Self {
            at,
            bytes,
            priority,
        }
    }
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The file.
    pub file: File,
    /// Its stream.
    pub stream: StreamId,
    /// When the stream was opened.
    pub began: Instant,
    /// When the peer had acknowledged all of it.
    pub acknowledged: Option<Instant>,
    /// Whether it was given up on purpose.
    pub cut: bool,
}

#[derive(Debug)]
struct Active {
    /// Index into the history.
    record: usize,
    written: u64,
    finished: bool,
}

/// Sends files, each on a stream of its own.
#[derive(Debug)]
pub struct Files {
    session: SessionId,
    waiting: Schedule<File>,
    /// The most files in progress at a time.
    parallel: usize,
    active: Vec<Active>,
    sent: Vec<Sent>,
    acknowledged: usize,
    pattern: Pattern,
}

impl Files {
    /// Sends these files on one connection, at most `parallel` of them at a time.
    pub fn new(session: SessionId, files: Vec<File>, parallel: usize) -> Self {
        Self {
            session,
            waiting: Schedule::new(files, |file| file.at),
            parallel: parallel.max(1),
            active: Vec::new(),
            sent: Vec::new(),
            acknowledged: 0,
            pattern: Pattern::new(),
        }
    }

    /// Adds a file; its time must be in the future.
    pub fn add(&mut self, file: File) {
        self.waiting.add(file.at, file);
    }

    /// Stops waiting for a stream that was reset or stopped on purpose.
    pub fn forget(&mut self, stream: StreamId) {
        if let Some(at) = self.find(stream) {
            let record = self.active.remove(at).record;
            self.sent[record].cut = true;
            self.acknowledged += 1;
        }
    }

    /// Whether no file is waiting to start.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The streams in progress.
    pub fn active(&self) -> impl Iterator<Item = StreamId> + '_ {
        let records = self.active.iter().map(|active| active.record);
        records.map(|record| self.sent[record].stream)
    }

    /// The files started so far, in order.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// How long each file that was started took until the receiver had all of it; `None` if it has
    /// not arrived.
    pub fn completions<'a>(
        &'a self,
        receiver: &'a Receiver,
        session: SessionId,
    ) -> impl Iterator<Item = (File, Option<Duration>)> + 'a {
        self.sent.iter().map(move |sent| {
            let record = receiver.stream(session, sent.stream);
            let finished = record.and_then(|record| record.finished);
            (sent.file, finished.map(|at| at.since(sent.began)))
        })
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
            let Some(stream) = connection.open(Dir::Uni) else {
                return;
            };
            let file = self.waiting.pop().expect("looked at above");
            connection
                .set_priority(stream, file.priority)
                .expect("the stream is new");
            self.active.push(Active {
                record: self.sent.len(),
                written: 0,
                finished: false,
            });
            self.sent.push(Sent {
                file,
                stream,
                began: now,
                acknowledged: None,
                cut: false,
            });
            let at = self.active.len() - 1;
            self.write(connection, at);
        }
    }

    fn write(&mut self, connection: &mut Connection, at: usize) {
        let active = &mut self.active[at];
        let sent = &self.sent[active.record];
        while !active.finished {
            let left = sent.file.bytes - active.written;
            if left == 0 {
                active.finished = connection.finish(sent.stream).is_ok();
                return;
            }
            let mut piece = self.pattern.piece(active.written, left);
            match connection.write(sent.stream, &mut piece) {
                Ok(taken) => active.written += taken as u64,
                Err(WriteError::Blocked) => return,
                Err(_) => active.finished = true,
            }
        }
    }

    fn find(&self, id: StreamId) -> Option<usize> {
        let mut active = self.active.iter();
        active.position(|active| self.sent[active.record].stream == id)
    }
}

impl App for Files {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        if session != self.session {
            return;
        }
        match event {
            Event::Connected | Event::Stream(StreamEvent::Available { dir: Dir::Uni }) => {
                self.pump(host);
            }
            Event::Stream(StreamEvent::Writable { id }) => {
                if let (Some(at), Some(connection)) = (self.find(*id), host.connection(session)) {
                    self.write(connection, at);
                }
            }
            Event::Stream(StreamEvent::Finished { id }) => {
                if let Some(at) = self.find(*id) {
                    let record = self.active.remove(at).record;
                    self.sent[record].acknowledged = Some(host.now);
                    self.acknowledged += 1;
                    self.pump(host);
                }
            }
            _ => {}
        }
    }

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        // A file that cannot start yet will start on an event of the connection.
        self.pump(host);
        self.waiting.pass(host.now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.waiting.next_timeout()
    }

    fn is_blocked(&self) -> bool {
        self.active.iter().any(|active| !active.finished)
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.acknowledged == self.sent.len()
    }
}
