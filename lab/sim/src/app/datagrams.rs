//! Datagrams at a constant rate with deadlines, as calls and games send them.

use crate::quic::{App, SessionId, Sessions};
use anabranch_proto::streams::{DatagramOptions, StreamEvent};
use anabranch_proto::time::Instant;
use anabranch_proto::{Connection, Event};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes at the start of each datagram: its flow and number in one word, then the time it was made.
const HEADER: usize = 16;

/// Where the flow number starts in that word; the datagram's number is below it.
const FLOW_SHIFT: u32 = 48;

/// Datagrams one sink keeps records of.
const MAX_NUMBERS: usize = 10_000_000;

/// Sends datagrams at equal intervals.
#[derive(Debug)]
pub struct DatagramSource {
    session: SessionId,
    /// Bytes of each datagram; at least 16.
    size: usize,
    interval: Duration,
    next: Instant,
    end: Instant,
    sent: u64,
    refused: u64,
    flow: u16,
    /// What the scheduler is told: how many flows there seem to be, when a datagram becomes
    /// worthless, and whether losing one costs more than its bytes.
    flows: u64,
    deadline: Option<Duration>,
    critical: bool,
}

impl DatagramSource {
    /// Sends `size` bytes every `interval`, from `start` until `end`. Datagrams that are due while
    /// the connection is not open count as refused.
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
            flow: 0,
            flows: 0,
            deadline: None,
            critical: false,
        }
    }

    /// Its number among the sources of the connection, by which the sink tells them apart; 0 unless
    /// set.
    pub fn numbered(mut self, flow: u16) -> Self {
        self.flow = flow;
        self
    }

    /// Tells the connection that datagrams are worthless after this time: it drops those not sent
    /// by then.
    pub fn deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Tells the connection that datagrams belong to this many flows in turn; 0 means none.
    pub fn flows(mut self, flows: u64) -> Self {
        self.flows = flows;
        self
    }

    /// Tells the connection whether losing a datagram costs more than its bytes.
    pub fn critical(mut self, critical: bool) -> Self {
        self.critical = critical;
        self
    }

    /// Its number among the sources of the connection.
    pub fn number(&self) -> u16 {
        self.flow
    }

    /// Datagrams made, including refused ones.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Datagrams the connection did not accept, or that were due while it was not open.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn options(&self, now: Instant, number: u64) -> DatagramOptions {
        let first = u64::from(self.flow) << FLOW_SHIFT;
        DatagramOptions {
            // 0 means none.
            flow: number
                .checked_rem(self.flows)
                .map_or(0, |turn| first + turn + 1),
            deadline: self.deadline.map(|deadline| now + deadline),
            max_skew: None,
            repair: false,
            critical: self.critical,
            class: 0,
            tag: 0,
        }
    }
}

impl App for DatagramSource {
    fn on_event(&mut self, _: &mut Sessions<'_>, _: SessionId, _: &Event) {}

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        let now = host.now;
        let open = host.is_open(self.session);
        while self.next <= now && self.next < self.end {
            self.next += self.interval;
            let number = self.sent;
            self.sent += 1;
            if !open {
                self.refused += 1;
                continue;
            }
            let word = u64::from(self.flow) << FLOW_SHIFT | number;
            let mut bytes = vec![0; self.size];
            bytes[..8].copy_from_slice(&word.to_be_bytes());
            bytes[8..HEADER].copy_from_slice(&now.as_nanos().to_be_bytes());
            let options = self.options(now, number);
            let connection = host.connection(self.session);
            let taken = connection.map(|c| c.send_datagram_with(Bytes::from(bytes), options));
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

/// What arrived, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatagramStats {
    /// Datagrams received, excluding copies.
    pub received: u64,
    /// Datagrams that arrived in time.
    pub in_time: u64,
    /// Datagrams that arrived after one of a higher number.
    pub reordered: u64,
    /// Copies.
    pub duplicates: u64,
    /// Bytes received, excluding copies.
    pub bytes: u64,
    /// Time from creation to reading, one entry per datagram, in order of arrival.
    pub delays: Vec<Duration>,
    /// The mean difference between the delays of successive datagrams (RFC 3550, section 6.4.1,
    /// without the smoothing).
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

/// Reads the datagrams of the [`DatagramSource`]s of a connection.
#[derive(Debug)]
pub struct DatagramSink {
    session: SessionId,
    flows: BTreeMap<u16, Arrivals>,
}

/// What arrived from one source.
#[derive(Debug)]
pub(crate) struct Arrivals {
    deadline: Duration,
    seen: Vec<u64>,
    highest: Option<u64>,
    differences_ns: u128,
    stats: DatagramStats,
}

impl Arrivals {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            seen: Vec::new(),
            highest: None,
            differences_ns: 0,
            stats: DatagramStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> &DatagramStats {
        &self.stats
    }

    pub(crate) fn take(&mut self, number: u64, delay: Duration, bytes: u64) {
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
        if let Some(before) = self.stats.delays.last() {
            self.differences_ns += before.abs_diff(delay).as_nanos();
        }
        let stats = &mut self.stats;
        stats.received += 1;
        stats.bytes += bytes;
        stats.in_time += u64::from(delay <= self.deadline);
        stats.reordered += u64::from(self.highest > Some(number));
        stats.delays.push(delay);
        let pairs = u128::from(stats.received - 1).max(1);
        stats.jitter = Duration::from_nanos((self.differences_ns / pairs) as u64);
        self.highest = self.highest.max(Some(number));
    }
}

impl DatagramSink {
    /// Reads the datagrams of one connection; they are in time if they take no longer than
    /// `deadline`.
    pub fn new(session: SessionId, deadline: Duration) -> Self {
        let flows = BTreeMap::from([(0, Arrivals::new(deadline))]);
        Self { session, flows }
    }

    /// Also reads the datagrams of one more source, given by its number.
    pub fn and(mut self, flow: u16, deadline: Duration) -> Self {
        self.flows.insert(flow, Arrivals::new(deadline));
        self
    }

    /// What has arrived so far from source 0.
    pub fn stats(&self) -> &DatagramStats {
        &self.flows[&0].stats
    }

    /// What has arrived so far from each source, by its number.
    pub fn all(&self) -> impl Iterator<Item = (u16, &DatagramStats)> {
        self.flows.iter().map(|(flow, one)| (*flow, &one.stats))
    }

    /// The source of a datagram, and its number within that source.
    pub fn flow_and_number(bytes: &[u8]) -> Option<(u16, u64)> {
        let word = u64::from_be_bytes(*bytes.first_chunk::<8>()?);
        Some(((word >> FLOW_SHIFT) as u16, word & ((1 << FLOW_SHIFT) - 1)))
    }

    /// Counts a datagram that someone else has read, and perhaps held back until now.
    pub fn take(&mut self, now: Instant, bytes: &[u8]) {
        let (Some((flow, number)), Some((header, _))) = (
            Self::flow_and_number(bytes),
            bytes.split_first_chunk::<HEADER>(),
        ) else {
            return;
        };
        let made = u64::from_be_bytes(*header.last_chunk::<8>().expect("eight of sixteen bytes"));
        if let Some(flow) = self.flows.get_mut(&flow) {
            let delay = now.since(Instant::from_nanos(made));
            flow.take(number, delay, bytes.len() as u64);
        }
    }
}

impl App for DatagramSink {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        if session != self.session || *event != Event::Stream(StreamEvent::DatagramReceived) {
            return;
        }
        let now = host.now;
        while let Some(datagram) = host.connection(session).and_then(Connection::recv_datagram) {
            self.take(now, &datagram.data);
        }
    }
}
