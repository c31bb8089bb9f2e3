//! One long stream.

use super::pattern::Pattern;
use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::Event;
use anabranch_proto::streams::{StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use std::time::Duration;

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// This many bytes.
    Bytes(u64),
    /// As much as possible for this long, counted from the first byte.
    Duration(Duration),
}

/// Sends as much as the connection accepts, on one stream of one connection.
#[derive(Debug)]
pub struct Bulk {
    session: SessionId,
    amount: Amount,
    start: Instant,
    pattern: Pattern,
    stream: Option<StreamId>,
    written: u64,
    began: Option<Instant>,
    finished: bool,
    acknowledged: Option<Instant>,
    blocked: Option<Instant>,
    blocked_total: Duration,
}

impl Bulk {
    /// Sends on this connection as soon as it is established, but not before `start`.
    pub fn new(session: SessionId, amount: Amount, start: Instant) -> Self {
        Self {
            session,
            amount,
            start,
            pattern: Pattern::new(),
            stream: None,
            written: 0,
            began: None,
            finished: false,
            acknowledged: None,
            blocked: None,
            blocked_total: Duration::ZERO,
        }
    }

    /// Bytes the connection accepted so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// When the first byte was written.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// When everything was acknowledged by the peer.
    pub fn acknowledged(&self) -> Option<Instant> {
        self.acknowledged
    }

    /// How long it has been blocked by a full send buffer, up to `now`.
    pub fn blocked_until(&self, now: Instant) -> Duration {
        let current = self
            .blocked
            .map_or(Duration::ZERO, |since| now.since(since));
        self.blocked_total + current
    }

    fn end(&self) -> Option<Instant> {
        match (self.amount, self.began) {
            (Amount::Duration(duration), Some(began)) => Some(began + duration),
            _ => None,
        }
    }

    fn left(&self, now: Instant) -> u64 {
        match self.amount {
            Amount::Bytes(bytes) => bytes - self.written,
            Amount::Duration(_) if self.end().is_some_and(|end| now >= end) => 0,
            Amount::Duration(_) => u64::MAX,
        }
    }

    fn pump(&mut self, host: &mut Sessions<'_>) {
        let now = host.now;
        if now < self.start || self.finished || !host.is_open(self.session) {
            return;
        }
        let Some(connection) = host.connection(self.session) else {
            return;
        };
        if self.stream.is_none() {
            self.stream = connection.open(Dir::Uni);
            self.began = self.stream.map(|_| now);
        }
        let Some(stream) = self.stream else { return };
        if let Some(since) = self.blocked.take() {
            self.blocked_total += now.since(since);
        }
        loop {
            let left = self.left(now);
            if left == 0 {
                self.finished = connection.finish(stream).is_ok();
                return;
            }
            let mut piece = self.pattern.piece(self.written, left);
            match connection.write(stream, &mut piece) {
                Ok(taken) => self.written += taken as u64,
                Err(WriteError::Blocked) => {
                    self.blocked = Some(now);
                    return;
                }
                Err(_) => {
                    self.finished = true;
                    return;
                }
            }
        }
    }
}

impl App for Bulk {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        if session != self.session {
            return;
        }
        match event {
            Event::Connected | Event::Stream(StreamEvent::Available { dir: Dir::Uni }) => {
                self.pump(host);
            }
            Event::Stream(StreamEvent::Writable { id }) if Some(*id) == self.stream => {
                self.pump(host);
            }
            Event::Stream(StreamEvent::Finished { id }) if Some(*id) == self.stream => {
                self.acknowledged = Some(host.now);
            }
            _ => {}
        }
    }

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        self.pump(host);
        if self.end().is_some_and(|end| host.now >= end) {
            // Even if the connection is gone.
            self.finished = true;
        }
        if host.now >= self.start {
            // From here on events of the connection drive it.
            self.start = Instant::ZERO;
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        match self.end() {
            Some(end) => Some(end),
            None => (self.start > Instant::ZERO).then_some(self.start),
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked.is_some() && !self.finished
    }

    fn is_done(&self) -> bool {
        self.acknowledged.is_some()
    }
}
