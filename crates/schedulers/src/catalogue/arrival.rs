//! Which data belongs on a path if all of it is to arrive in order.
//!
//! A packet that leaves now on a slow path arrives later than what faster paths send meanwhile. So
//! the slow path leaves that data alone and takes what follows it: it sends out of order and the
//! data arrives in order. [`Forecast`] tells when a path can send its next packets: now if window
//! and pacer allow, else when what is in flight is acknowledged. [`skip`] adds up what arrives
//! before. Nothing is promised to a path: the skip is worked out anew for each packet, so what was
//! left for a path that fails is the head of the queue again at once.

use crate::toolkit::units::{FOREVER, nanos, paced, packet, time_for};
use crate::toolkit::{Delays, bandwidth, skip_limit};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{PathEvent, PathView, SendView};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;

/// Times of sending kept per path. When there are more, neighbours are merged.
const RECORDS: usize = 32;

/// The unsent bytes that other candidates deliver before a packet on `path` would arrive. At equal
/// times the path with the lower delay goes first. A path whose delay is not surely lower, as the
/// estimates scatter by more than half the difference, takes no part: a wrong guess leaves a hole.
pub(super) fn skip(
    view: &SendView<'_>,
    delays: &Delays,
    forecast: &Forecast,
    path: &PathView,
) -> u64 {
    let Some(own) = delays.forward(path) else {
        return 0;
    };
    let mut before: u64 = 0;
    for other in view.candidates().filter(|other| other.id != path.id) {
        let Some(delay) = delays.forward(other).filter(|delay| *delay < own) else {
            continue;
        };
        let scatter = delays.deviation(path).max(delays.deviation(other));
        // A mean deviation is about 0.8 of a standard deviation.
        if scatter.saturating_mul(5) / 2 > own - delay {
            continue;
        }
        let packets = forecast.packets_within(view.now, other, own - delay);
        before = before.saturating_add(packets.saturating_mul(packet(other)));
    }
    before.min(skip_limit(view, path))
}

/// When paths can send: remembers when what is in flight was sent.
#[derive(Debug)]
pub(super) struct Forecast {
    now: u64,
    logs: Vec<Log>,
}

impl Default for Forecast {
    fn default() -> Self {
        Self {
            now: 0,
            // Room for all at once: nothing allocates later.
            logs: Vec::with_capacity(MAX_OPEN_PATHS),
        }
    }
}

impl Forecast {
    /// Notes the time, which events do not tell. Call it first in every selection.
    pub(super) fn note_time(&mut self, now: Instant) {
        self.now = now.as_nanos();
    }

    /// Keeps the account of what is in flight. Call it with every event.
    pub(super) fn on_event(&mut self, event: &PathEvent) {
        match *event {
            PathEvent::Sent { path, bytes } => self.on_sent(path, bytes),
            PathEvent::Acked { path, bytes, .. } | PathEvent::Lost { path, bytes } => {
                if let Some(log) = self.logs.iter_mut().find(|log| log.path == path) {
                    log.settle(bytes);
                }
            }
            PathEvent::Doubted { path } | PathEvent::Abandoned { path } => {
                self.logs.retain(|log| log.path != path);
            }
            _ => {}
        }
    }

    fn on_sent(&mut self, path: PathId, bytes: u64) {
        let now = self.now;
        let at = self.logs.iter().position(|log| log.path == path);
        let at = match at {
            Some(at) => at,
            // One that has nothing in flight, or else the oldest, makes way.
            None if self.logs.len() == MAX_OPEN_PATHS => {
                let oldest = self.logs.iter().position(|log| log.len == 0).unwrap_or(0);
                self.logs[oldest] = Log::new(path);
                oldest
            }
            None => {
                self.logs.push(Log::new(path));
                self.logs.len() - 1
            }
        };
        self.logs[at].push(now, bytes);
    }

    fn log(&self, path: PathId) -> Option<&Log> {
        self.logs.iter().find(|log| log.path == path)
    }

    /// How many packets `path` can send from `now` until `within` nanoseconds later, both included.
    pub(super) fn packets_within(&self, now: Instant, path: &PathView, within: u64) -> u64 {
        let slots = Slots::new(self, now, path);
        let paced = slots.paced_until(within);
        if paced == 0 {
            return 0;
        }
        // After one RTT all that is in flight now is acknowledged: from then on each window repeats
        // the one before it.
        let (rounds, rest) = match slots.rtt {
            0 => (0, within),
            rtt => (within / rtt, within % rtt),
        };
        let opened = (slots.packets_open_after(rest)).min(slots.paced_until(rest));
        let windows = rounds.saturating_mul(slots.window / slots.packet);
        windows.saturating_add(opened).min(paced)
    }
}

/// The times at which a path can send its next packets, in nanoseconds from now, for one window.
#[derive(Debug, Clone)]
pub(super) struct Slots<'a> {
    log: Option<&'a Log>,
    now: u64,
    rtt: u64,
    packet: u64,
    window: u64,
    in_flight: u64,
    /// When the pacer opens, and the time between two packets after that.
    first: u64,
    interval: u64,
    /// When the pacer lets the next packet go, the bytes up to its end, and what is acknowledged
    /// when it goes.
    paced: u64,
    end: u64,
    acked: u64,
    record: usize,
    at: u64,
}

impl<'a> Slots<'a> {
    pub(super) fn new(forecast: &'a Forecast, now: Instant, path: &PathView) -> Self {
        let packet = packet(path);
        let first = paced(path, now);
        let mut slots = Self {
            log: forecast.log(path.id),
            now: now.as_nanos(),
            rtt: nanos(path.smoothed_rtt),
            packet,
            window: path.congestion_window.saturating_sub(path.queued),
            in_flight: path.bytes_in_flight,
            first,
            interval: match bandwidth(path) {
                0 => 0,
                rate => time_for(packet, rate),
            },
            paced: first,
            end: packet,
            acked: 0,
            record: 0,
            at: 0,
        };
        // What the log counts beyond what is in flight has left without notice, the oldest first.
        let logged = slots.log.map_or(0, |log| log.total);
        let mut surplus = logged.saturating_sub(slots.in_flight);
        while let Some((_, bytes)) = slots.log.and_then(|log| log.get(slots.record))
            && bytes <= surplus
        {
            surplus -= bytes;
            slots.record += 1;
        }
        slots
    }

    /// Packets that the pacer lets go until then.
    fn paced_until(&self, within: u64) -> u64 {
        match (within.checked_sub(self.first), self.interval) {
            (None, _) => 0,
            (Some(_), 0) => u64::MAX,
            (Some(time), interval) => time / interval + 1,
        }
    }

    /// Bytes in flight that no record tells of, as when the scheduler is new to the connection:
    /// taken as sent half an RTT ago.
    fn unlogged(&self) -> u64 {
        self.in_flight
            .saturating_sub(self.log.map_or(0, |log| log.total))
    }

    /// When the acknowledgement of a record comes.
    fn ack_of(&self, sent: u64) -> u64 {
        sent.saturating_add(self.rtt).saturating_sub(self.now)
    }

    /// Packets that the window allows then, which is less than an RTT from now.
    fn packets_open_after(&self, within: u64) -> u64 {
        let mut acked = if within >= self.rtt / 2 {
            self.unlogged()
        } else {
            0
        };
        let mut record = self.record;
        while let Some((sent, bytes)) = self.log.and_then(|log| log.get(record))
            && self.ack_of(sent) <= within
        {
            acked = acked.saturating_add(bytes);
            record += 1;
        }
        self.window
            .saturating_add(acked)
            .saturating_sub(self.in_flight)
            / self.packet
    }
}

impl Iterator for Slots<'_> {
    type Item = u64;

    /// When the next packet can go. After one window the pattern repeats, an RTT later.
    fn next(&mut self) -> Option<u64> {
        let short = self
            .end
            .saturating_add(self.in_flight)
            .saturating_sub(self.window);
        let half = self.rtt / 2;
        let mut unlogged = if self.acked < short && self.at < half {
            self.unlogged()
        } else {
            0
        };
        while self.acked < short {
            let record = self.log.and_then(|log| log.get(self.record));
            let ack = record.map(|(sent, bytes)| (self.ack_of(sent), bytes));
            let (at, bytes) = match ack {
                Some((at, bytes)) if unlogged == 0 || at < half => {
                    self.record += 1;
                    (at, bytes)
                }
                _ if unlogged > 0 => (half, std::mem::take(&mut unlogged)),
                _ => (self.rtt, u64::MAX),
            };
            self.at = self.at.max(at);
            self.acked = self.acked.saturating_add(bytes);
        }
        let time = self.at.max(self.paced).min(FOREVER);
        self.paced = self.paced.saturating_add(self.interval);
        self.end = self.end.saturating_add(self.packet);
        Some(time)
    }
}

/// What is in flight on one path, oldest first, by time of sending.
#[derive(Debug, Clone)]
struct Log {
    path: PathId,
    records: [(u64, u64); RECORDS],
    head: usize,
    len: usize,
    total: u64,
    /// Records closer than this are one.
    grain: u64,
}

impl Log {
    const fn new(path: PathId) -> Self {
        Self {
            path,
            records: [(0, 0); RECORDS],
            head: 0,
            len: 0,
            total: 0,
            grain: 0,
        }
    }

    fn get(&self, index: usize) -> Option<(u64, u64)> {
        (index < self.len).then(|| self.records[(self.head + index) % RECORDS])
    }

    fn push(&mut self, at: u64, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        if self.len == RECORDS {
            self.compact();
        }
        if let Some(last) = self.len.checked_sub(1) {
            let last = &mut self.records[(self.head + last) % RECORDS];
            if at.saturating_sub(last.0) <= self.grain {
                last.1 = last.1.saturating_add(bytes);
                return;
            }
        }
        self.records[(self.head + self.len) % RECORDS] = (at, bytes);
        self.len += 1;
    }

    /// Makes room: merges what is closer than a 16th of the whole.
    fn compact(&mut self) {
        let (Some(first), Some(last)) = (self.get(0), self.get(self.len - 1)) else {
            return;
        };
        self.grain = last.0.saturating_sub(first.0) / (RECORDS as u64 / 2);
        let mut merged = [first; RECORDS];
        let mut at = 0;
        for index in 1..self.len {
            let record = self.records[(self.head + index) % RECORDS];
            if record.0.saturating_sub(merged[at].0) <= self.grain {
                merged[at].1 = merged[at].1.saturating_add(record.1);
            } else {
                at += 1;
                merged[at] = record;
            }
        }
        (self.records, self.head, self.len) = (merged, 0, at + 1);
    }

    fn settle(&mut self, mut bytes: u64) {
        self.total = self.total.saturating_sub(bytes);
        while self.len > 0 {
            let oldest = &mut self.records[self.head];
            if oldest.1 > bytes {
                oldest.1 -= bytes;
                return;
            }
            bytes -= oldest.1;
            self.head = (self.head + 1) % RECORDS;
            self.len -= 1;
        }
        (self.total, self.grain) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
