//! Striping above the transport: a file in chunks over several connections.
//!
//! Each chunk travels whole on one connection, behind a header with its number and length; the
//! receiver restores their order. Turns are strict: the next chunk waits for the connection whose
//! turn it is, even if others have room.

use super::pattern::Pattern;
use super::receive::for_each_readable;
use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::Event;
use anabranch_proto::streams::{ReadError, StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes before each chunk: its number and its length.
const HEADER: usize = 16;

/// The most bytes taken by one read.
const READ: usize = 1 << 18;

/// How long the sender's processor takes to prepare chunks: the n-th chunk is ready after
/// `linear * n + quadratic * n * n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Processing {
    /// Seconds per chunk.
    pub linear_s: f64,
    /// Seconds per square of the number of chunks.
    pub quadratic_s: f64,
}

impl Processing {
    /// Fitted to the first paper's measurements of a splitter whose cost per chunk grows with their
    /// number.
    pub const BTH: Self = Self {
        linear_s: 4.62e-4,
        quadratic_s: 5.69e-8,
    };

    /// When the chunk of this number, counted from 0, is ready.
    pub fn ready(self, number: u64) -> Duration {
        let n = (number + 1) as f64;
        Duration::from_secs_f64(self.linear_s * n + self.quadratic_s * n * n)
    }
}

#[derive(Debug)]
struct Lane {
    session: SessionId,
    stream: Option<StreamId>,
    /// What is still to be written of its current chunk.
    header: Bytes,
    offset: u64,
    left: u64,
    finished: bool,
    acknowledged: bool,
}

/// Sends a file in chunks.
#[derive(Debug)]
pub struct Chunks {
    lanes: Vec<Lane>,
    /// The lanes of one round, in the order of their turns.
    turns: Vec<usize>,
    chunk: u64,
    bytes: u64,
    processing: Option<Processing>,
    pattern: Pattern,
    /// The number of the next chunk.
    number: u64,
    began: Option<Instant>,
    /// Whether a connection is missing.
    stalled: bool,
}

impl Chunks {
    /// Sends `bytes` in chunks of `chunk` bytes over these connections. In each round a connection
    /// gets as many consecutive turns as its weight.
    ///
    /// # Panics
    /// If there is no connection, no weight above 0, or the chunk is empty.
    pub fn new(lanes: &[(SessionId, u32)], bytes: u64, chunk: u64) -> Self {
        let turn = |(at, (_, weight)): (usize, &(_, u32))| vec![at; *weight as usize];
        let turns: Vec<usize> = lanes.iter().enumerate().flat_map(turn).collect();
        assert!(!turns.is_empty() && chunk > 0, "somebody has to send");
        let lanes = lanes.iter().map(|(session, _)| Lane {
            session: *session,
            stream: None,
            header: Bytes::new(),
            offset: 0,
            left: 0,
            finished: false,
            acknowledged: false,
        });
        Self {
            lanes: lanes.collect(),
            turns,
            chunk,
            bytes,
            processing: None,
            pattern: Pattern::new(),
            number: 0,
            began: None,
            stalled: false,
        }
    }

    /// Limits chunks to the pace at which a processor prepares them.
    pub fn processing(mut self, processing: Option<Processing>) -> Self {
        self.processing = processing;
        self
    }

    /// When all connections were open and work on the first chunk began.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    fn count(&self) -> u64 {
        self.bytes.div_ceil(self.chunk)
    }

    fn ready_at(&self) -> Option<Instant> {
        let (began, processing) = (self.began?, self.processing?);
        (self.number < self.count()).then(|| began + processing.ready(self.number))
    }

    fn pump(&mut self, host: &mut Sessions<'_>) {
        let now = host.now;
        self.stalled = !self.lanes.iter().all(|lane| host.is_open(lane.session));
        if self.stalled {
            return;
        }
        self.began.get_or_insert(now);
        loop {
            let last = self.number == self.count();
            let at = self.turns[(self.number % self.turns.len() as u64) as usize];
            for lane in 0..self.lanes.len() {
                self.write(host, lane, last);
            }
            let lane = &mut self.lanes[at];
            let busy = lane.left > 0 || !lane.header.is_empty() || lane.stream.is_none();
            if last || busy || self.ready_at().is_some_and(|ready| ready > now) {
                return;
            }
            let lane = &mut self.lanes[at];
            lane.offset = self.number * self.chunk;
            lane.left = self.chunk.min(self.bytes - lane.offset);
            let mut header = BytesMut::with_capacity(HEADER);
            header.extend_from_slice(&self.number.to_be_bytes());
            header.extend_from_slice(&lane.left.to_be_bytes());
            lane.header = header.freeze();
            self.number += 1;
        }
    }

    fn write(&mut self, host: &mut Sessions<'_>, at: usize, last: bool) {
        let lane = &mut self.lanes[at];
        let Some(connection) = host.connection(lane.session) else {
            return;
        };
        if lane.stream.is_none() {
            lane.stream = connection.open(Dir::Uni);
        }
        let Some(stream) = lane.stream else { return };
        while !lane.header.is_empty() || lane.left > 0 {
            let taken = if lane.header.is_empty() {
                let mut piece = self.pattern.piece(lane.offset, lane.left);
                connection.write(stream, &mut piece)
            } else {
                let before = lane.header.len();
                connection.write(stream, &mut lane.header).map(|taken| {
                    debug_assert_eq!(before - taken, lane.header.len(), "taken off the front");
                    0
                })
            };
            match taken {
                Ok(taken) => {
                    lane.offset += taken as u64;
                    lane.left -= taken as u64;
                }
                Err(WriteError::Blocked) => return,
                Err(_) => {
                    lane.left = 0;
                    lane.header.clear();
                    lane.finished = true;
                }
            }
        }
        if last && !lane.finished {
            lane.finished = connection.finish(stream).is_ok();
        }
    }
}

impl App for Chunks {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        match event {
            Event::Connected
            | Event::Stream(StreamEvent::Available { .. } | StreamEvent::Writable { .. }) => {
                self.pump(host);
            }
            Event::Stream(StreamEvent::Finished { id }) => {
                for lane in &mut self.lanes {
                    lane.acknowledged |= lane.session == session && lane.stream == Some(*id);
                }
            }
            _ => {}
        }
    }

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        self.pump(host);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let at = self.turns[(self.number % self.turns.len() as u64) as usize];
        let lane = &self.lanes[at];
        // A busy lane needs no timer: events of its connection resume it.
        let busy = lane.left > 0 || !lane.header.is_empty() || lane.stream.is_none();
        self.ready_at().filter(|_| !busy && !self.stalled)
    }

    fn is_blocked(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.left > 0)
    }

    fn is_done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.acknowledged)
    }
}

/// What a [`ChunkSink`] received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkStats {
    /// Bytes that arrived, headers not counted.
    pub arrived: u64,
    /// Bytes of chunks delivered in order, as they would be written to a file.
    pub delivered: u64,
    /// When the last of these was delivered.
    pub last: Option<Instant>,
    /// The most bytes that waited for earlier chunks.
    pub reseq_peak: u64,
    /// Bytes that differ from what was sent, if they are compared; any such byte is a defect of the
    /// engine.
    pub corrupt: u64,
}

#[derive(Debug, Default)]
struct Arriving {
    header: BytesMut,
    /// The chunk that is arriving, and what is still missing of it.
    chunk: Option<(u64, u64, u64)>,
}

/// Restores the order of the chunks from all connections of the host.
#[derive(Debug, Default)]
pub struct ChunkSink {
    lanes: BTreeMap<(SessionId, StreamId), Arriving>,
    /// Complete chunks that wait for earlier ones, with their lengths.
    waiting: BTreeMap<u64, u64>,
    waiting_bytes: u64,
    next: u64,
    expected: u64,
    stats: ChunkStats,
    /// What bytes are compared with, and the length of every chunk but the last.
    pattern: Option<(Pattern, u64)>,
}

impl ChunkSink {
    /// A sink that is done once `expected` bytes have arrived in order.
    pub fn new(expected: u64) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }

    /// Compares every byte with what [`Chunks`] of this length would carry.
    pub fn verify(mut self, chunk: u64) -> Self {
        self.pattern = Some((Pattern::new(), chunk));
        self
    }

    /// What has arrived so far.
    pub fn stats(&self) -> &ChunkStats {
        &self.stats
    }

    fn read(&mut self, host: &mut Sessions<'_>, session: SessionId, id: StreamId) {
        let now = host.now;
        let Some(connection) = host.connection(session) else {
            return;
        };
        loop {
            match connection.read(id, READ) {
                Ok(Some(bytes)) => self.take(now, (session, id), bytes),
                Ok(None) | Err(ReadError::Blocked | ReadError::Reset(_) | ReadError::Closed) => {
                    return;
                }
            }
        }
    }

    fn take(&mut self, now: Instant, lane: (SessionId, StreamId), mut bytes: Bytes) {
        let lane = self.lanes.entry(lane).or_default();
        while !bytes.is_empty() {
            let Some((number, length, missing)) = &mut lane.chunk else {
                let wanted = (HEADER - lane.header.len()).min(bytes.len());
                lane.header.extend_from_slice(&bytes[..wanted]);
                bytes.advance(wanted);
                if lane.header.len() == HEADER {
                    let (number, length) = (lane.header.get_u64(), lane.header.get_u64());
                    lane.header.clear();
                    lane.chunk = Some((number, length, length));
                }
                continue;
            };
            let taken = (*missing).min(bytes.len() as u64);
            if let Some((pattern, chunk)) = &self.pattern {
                let offset = number.saturating_mul(*chunk) + (*length - *missing);
                if !pattern.is_at(offset, &bytes[..taken as usize]) {
                    self.stats.corrupt += taken;
                }
            }
            bytes.advance(taken as usize);
            *missing -= taken;
            self.stats.arrived += taken;
            if *missing == 0 {
                self.waiting.insert(*number, *length);
                self.waiting_bytes += *length;
                lane.chunk = None;
            }
        }
        self.deliver(now);
    }

    fn deliver(&mut self, now: Instant) {
        while let Some(length) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.waiting_bytes -= length;
            self.stats.delivered += length;
            self.stats.last = Some(now);
        }
        self.stats.reseq_peak = self.stats.reseq_peak.max(self.waiting_bytes);
    }
}

impl App for ChunkSink {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        for_each_readable(host, session, event, |host, id| {
            self.read(host, session, id);
        });
    }

    fn is_done(&self) -> bool {
        self.stats.delivered >= self.expected
    }
}
