//! A stream of datagrams with deadlines, as of calls and games.

use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::streams::StreamEvent;
use anabranch_proto::time::Instant;
use anabranch_proto::{Connection, Event};
use bytes::Bytes;
use std::time::Duration;

/// Bytes at the start of each: its number and when it was made.
const HEADER: usize = 16;

/// Datagrams one sink keeps account of.
const MAX_NUMBERS: usize = 10_000_000;

/// Sends datagrams at equal intervals.
#[derive(Debug)]
pub struct DatagramSource {
    session: SessionId,
    /// Bytes of each; at least 16.
    size: usize,
    interval: Duration,
    next: Instant,
    end: Instant,
    sent: u64,
    refused: u64,
}

impl DatagramSource {
    /// Sends `size` bytes every `interval`, from `start` until `end`, as far as the connection is
    /// there.
    pub fn new(
        session: SessionId,
        size: usize,
        interval: Duration,
        start: Instant,
        end: Instant,
    ) -> Self {
        Self {
            session,
            size: size.max(HEADER),
            interval: interval.max(Duration::from_nanos(1)),
            next: start,
            end,
            sent: 0,
            refused: 0,
        }
    }

    /// Datagrams made, the refused ones included.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Datagrams the connection did not take.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl App for DatagramSource {
    fn on_event(&mut self, _: &mut Sessions<'_>, _: SessionId, _: &Event) {}

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        let now = host.now;
        let open = host.is_open(self.session);
        while self.next <= now && self.next < self.end {
            self.next += self.interval;
            if !open {
                continue;
            }
            let mut bytes = vec![0; self.size];
            bytes[..8].copy_from_slice(&self.sent.to_be_bytes());
            bytes[8..HEADER].copy_from_slice(&now.as_nanos().to_be_bytes());
            self.sent += 1;
            let connection = host.connection(self.session);
            let taken = connection.map(|c| c.send_datagram(Bytes::from(bytes)));
            if !matches!(taken, Some(Ok(()))) {
                self.refused += 1;
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        (self.next < self.end).then_some(self.next)
    }

    fn is_done(&self) -> bool {
        self.next >= self.end
    }
}

/// What came of the datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatagramStats {
    /// Datagrams, copies not counted.
    pub received: u64,
    /// Those that came in time.
    pub in_time: u64,
    /// Those that came after one of a higher number.
    pub reordered: u64,
    /// Copies.
    pub duplicates: u64,
    /// Their bytes, copies not counted.
    pub bytes: u64,
    /// Time from being made to being read, one per datagram, in order of arrival.
    pub delays: Vec<Duration>,
    /// The mean difference between the delays of datagrams that came one after the other (RFC 3550,
    /// section 6.4.1, without the smoothing).
    pub jitter: Duration,
}

impl DatagramStats {
    /// The delay that this share of datagrams did not exceed.
    pub fn delay_quantile(&self, share: f64) -> Option<Duration> {
        let mut sorted = self.delays.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        sorted.get((share * last as f64).round() as usize).copied()
    }
}

/// Reads the datagrams of a [`DatagramSource`].
#[derive(Debug)]
pub struct DatagramSink {
    session: SessionId,
    deadline: Duration,
    seen: Vec<u64>,
    highest: Option<u64>,
    differences_ns: u128,
    stats: DatagramStats,
}

impl DatagramSink {
    /// Reads the datagrams of one connection, which are in time if they take no longer than
    /// `deadline`.
    pub fn new(session: SessionId, deadline: Duration) -> Self {
        Self {
            session,
            deadline,
            seen: Vec::new(),
            highest: None,
            differences_ns: 0,
            stats: DatagramStats::default(),
        }
    }

    /// What came so far.
    pub fn stats(&self) -> &DatagramStats {
        &self.stats
    }

    fn take(&mut self, now: Instant, bytes: &[u8]) {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else {
            return;
        };
        let (number, made) = header.split_at(8);
        let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
        let made = u64::from_be_bytes(made.try_into().expect("eight bytes"));
        if number as usize >= MAX_NUMBERS {
            return;
        }
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.stats.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        let delay = now.since(Instant::from_nanos(made));
        if let Some(before) = self.stats.delays.last() {
            self.differences_ns += before.abs_diff(delay).as_nanos();
        }
        let stats = &mut self.stats;
        stats.received += 1;
        stats.bytes += bytes.len() as u64;
        stats.in_time += u64::from(delay <= self.deadline);
        stats.reordered += u64::from(self.highest > Some(number));
        stats.delays.push(delay);
        let pairs = u128::from(stats.received - 1).max(1);
        stats.jitter = Duration::from_nanos((self.differences_ns / pairs) as u64);
        self.highest = self.highest.max(Some(number));
    }
}

impl App for DatagramSink {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        if session != self.session || *event != Event::Stream(StreamEvent::DatagramReceived) {
            return;
        }
        let now = host.now;
        while let Some(bytes) = host.connection(session).and_then(Connection::recv_datagram) {
            self.take(now, &bytes);
        }
    }
}
