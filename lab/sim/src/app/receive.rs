//! The receiving end of streams: reads data as soon as it arrives, and records when.

use super::pattern::Pattern;
use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::Event;
use anabranch_proto::streams::{ReadError, StreamEvent};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use std::collections::BTreeMap;

/// The most bytes taken by one read.
const READ: usize = 1 << 18;

/// The most streams recorded individually; only the bytes of further ones are counted.
const MAX_RECORDS: usize = 1_000_000;

/// What arrived on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRecord {
    /// Bytes in order.
    pub bytes: u64,
    /// When the first event of the stream was seen.
    pub opened: Instant,
    /// When its first byte could be read.
    pub first_byte: Option<Instant>,
    /// When its end was read.
    pub finished: Option<Instant>,
    /// Whether the sender reset it.
    pub reset: bool,
}

/// What arrived in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Received {
    /// Bytes in order, of all streams.
    pub bytes: u64,
    /// When the first of them could be read.
    pub first_byte: Option<Instant>,
    /// When the latest of them could be read.
    pub last_byte: Option<Instant>,
    /// Streams read to their end.
    pub finished: u64,
    /// Bytes that differ from what was sent; any such byte is a defect of the engine.
    pub corrupt: u64,
}

/// Reads every unidirectional stream the peer opens, on all connections of the host.
#[derive(Debug)]
pub struct Receiver {
    total: Received,
    streams: BTreeMap<(SessionId, StreamId), StreamRecord>,
    pattern: Option<Pattern>,
    expected: u64,
}

impl Receiver {
    /// A receiver that is done once `expected` streams are finished.
    pub fn new(expected: u64) -> Self {
        Self {
            total: Received::default(),
            streams: BTreeMap::new(),
            pattern: None,
            expected,
        }
    }

    /// Compares every byte with what the senders of this crate send.
    pub fn verify(mut self) -> Self {
        self.pattern = Some(Pattern::new());
        self
    }

    /// Whether as many streams as expected are finished.
    pub fn is_complete(&self) -> bool {
        self.total.finished >= self.expected
    }

    /// What arrived in total.
    pub fn total(&self) -> &Received {
        &self.total
    }

    /// What arrived on each stream.
    pub fn streams(&self) -> impl Iterator<Item = (SessionId, StreamId, &StreamRecord)> {
        self.streams
            .iter()
            .map(|((session, stream), record)| (*session, *stream, record))
    }

    /// What arrived on one stream.
    pub fn stream(&self, session: SessionId, stream: StreamId) -> Option<&StreamRecord> {
        self.streams.get(&(session, stream))
    }

    fn read(&mut self, host: &mut Sessions<'_>, session: SessionId, id: StreamId) {
        let now = host.now;
        if !host.is_there(session) {
            return;
        }
        let fresh = StreamRecord {
            bytes: 0,
            opened: now,
            first_byte: None,
            finished: None,
            reset: false,
        };
        let full = self.streams.len() >= MAX_RECORDS;
        let unrecorded = full && !self.streams.contains_key(&(session, id));
        let mut overflow = fresh;
        let record = if unrecorded {
            &mut overflow
        } else {
            self.streams.entry((session, id)).or_insert(fresh)
        };
        loop {
            match host.read(session, id, READ) {
                Ok(Some(bytes)) => {
                    if let Some(pattern) = &self.pattern
                        && !pattern.is_at(record.bytes, &bytes)
                    {
                        self.total.corrupt += bytes.len() as u64;
                    }
                    record.bytes += bytes.len() as u64;
                    record.first_byte.get_or_insert(now);
                    self.total.bytes += bytes.len() as u64;
                    self.total.first_byte.get_or_insert(now);
                    self.total.last_byte = Some(now);
                }
                Ok(None) => {
                    record.finished = Some(now);
                    self.total.finished += 1;
                    return;
                }
                Err(ReadError::Reset(_)) => {
                    record.reset = true;
                    return;
                }
                Err(ReadError::Blocked | ReadError::Closed) => return,
            }
        }
    }
}

/// Calls `read` with each of the peer's unidirectional streams that `event` makes readable.
pub(super) fn for_each_readable(
    host: &mut Sessions<'_>,
    session: SessionId,
    event: &Event,
    mut read: impl FnMut(&mut Sessions<'_>, StreamId),
) {
    match event {
        Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => loop {
            let connection = host.connection(session);
            let Some(id) = connection.and_then(|connection| connection.accept(Dir::Uni)) else {
                return;
            };
            read(host, id);
        },
        Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => read(host, *id),
        _ => {}
    }
}

impl App for Receiver {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        for_each_readable(host, session, event, |host, id| {
            self.read(host, session, id);
        });
    }

    fn is_done(&self) -> bool {
        self.is_complete()
    }
}
