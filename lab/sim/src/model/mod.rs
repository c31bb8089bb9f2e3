//! A transport of packet counters, for worked examples.
//!
//! Papers explain themselves with tables: so many packets in a window, one acknowledgement per
//! packet, a buffer of eleven. This model has exactly that, without bytes, handshake or timers, and
//! asks the same [`Scheduler`] objects as the engine which path a packet takes. Like SCTP, it
//! numbers packets in one space over all paths; a path's window grows with what is acknowledged on
//! it.

mod critical;
mod delivery;
mod examples;
mod trace;

pub use examples::{Verdict, verdicts};
pub use trace::{Acknowledged, Arrived, Delays, Sent, Trace};

use anabranch_proto::sched::{
    Backlog, Decision, PathEvent, PathView, Scheduler, SendView, Unit, UnitKind,
};
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one packet counts as where a scheduler works with bytes.
const PACKET: u64 = 1000;

/// One path: two directions, and a window in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelPath {
    /// Time to transmit a packet.
    pub serialisation: Duration,
    /// Time from the end of transmission to arrival.
    pub forward: Duration,
    /// Time the acknowledgement takes on the way back.
    pub backward: Duration,
    /// Packets that may be in flight at the start.
    pub window: u64,
}

/// How windows change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Windows stay as they are.
    Constant,
    /// Windows grow by one for each packet acknowledged.
    SlowStart,
}

/// A worked example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The paths, numbered from 0.
    pub paths: Vec<ModelPath>,
    /// How windows change.
    pub growth: Growth,
    /// Packets the receiver can hold for all paths together; `None` means no limit.
    pub receive_buffer: Option<u64>,
    /// Packets to send, numbered from 1.
    pub packets: u64,
    /// Packets that never arrive.
    pub lost: Vec<u64>,
    /// Packets that leave later than they could, and by how much.
    pub late: Vec<(u64, Duration)>,
    /// Whether a packet's path is chosen when the packet can leave rather than when the window
    /// opens.
    pub paced: bool,
    /// When to end the run.
    pub until: Instant,
}

impl Model {
    /// Runs the example with this scheduler.
    pub fn run(&self, scheduler: &mut dyn Scheduler) -> Trace {
        let mut run = Run::new(self);
        run.fill(scheduler);
        while let Some(now) = run.next_time().filter(|at| *at <= self.until) {
            run.now = now;
            // Handle all events of one instant before deciding anything.
            while run.next_time() == Some(now) {
                run.step(scheduler);
            }
            run.fill(scheduler);
        }
        run.trace
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrives { packet: u64 },
    Acknowledged { packet: u64, advertised: u64 },
    Wake,
}

/// The state of a run: the sender, the receiver and what is in flight.
struct Run<'a> {
    model: &'a Model,
    now: Instant,
    /// By time, then path, then order of cause.
    events: BTreeMap<(Instant, usize, u64), Event>,
    caused: u64,
    windows: Vec<u64>,
    outstanding: Vec<u64>,
    /// When each path will have transmitted everything it was given.
    free_at: Vec<Instant>,
    advertised: u64,
    /// Numbers that skips left out, and the lowest one not yet considered.
    skipped: BTreeSet<u64>,
    next: u64,
    /// The receiver's state: the number up to which everything has arrived, and what it holds above
    /// that.
    cumulative: u64,
    held: BTreeSet<u64>,
    trace: Trace,
}

impl<'a> Run<'a> {
    fn new(model: &'a Model) -> Self {
        let paths = model.paths.len();
        Self {
            model,
            now: Instant::ZERO,
            events: BTreeMap::new(),
            caused: 0,
            windows: model.paths.iter().map(|path| path.window).collect(),
            outstanding: vec![0; paths],
            free_at: vec![Instant::ZERO; paths],
            advertised: model.receive_buffer.unwrap_or(u64::MAX),
            skipped: BTreeSet::new(),
            next: 1,
            cumulative: 0,
            held: BTreeSet::new(),
            trace: Trace::default(),
        }
    }

    fn next_time(&self) -> Option<Instant> {
        self.events.first_key_value().map(|((at, ..), _)| *at)
    }

    fn push(&mut self, at: Instant, path: usize, event: Event) {
        self.caused += 1;
        self.events.insert((at, path, self.caused), event);
    }

    fn step(&mut self, scheduler: &mut dyn Scheduler) {
        let Some(((_, path, _), event)) = self.events.pop_first() else {
            return;
        };
        match event {
            Event::Arrives { packet } => self.on_arrival(path, packet),
            Event::Acknowledged { packet, advertised } => {
                self.on_ack(path, packet, advertised, scheduler);
            }
            Event::Wake => {}
        }
    }

    /// The receiver stores or delivers the packet, and answers at once on the same path.
    fn on_arrival(&mut self, path: usize, packet: u64) {
        self.held.insert(packet);
        while self.held.remove(&(self.cumulative + 1)) {
            self.cumulative += 1;
        }
        let held = self.held.len() as u64;
        let buffer = self.model.receive_buffer.unwrap_or(u64::MAX);
        let advertised = buffer.saturating_sub(held);
        self.trace.arrived.push(Arrived {
            at: self.now,
            path,
            packet,
            cumulative: self.cumulative,
            held: self.held.iter().copied().collect(),
            advertised,
        });
        let at = self.now + self.model.paths[path].backward;
        self.push(at, path, Event::Acknowledged { packet, advertised });
    }

    fn on_ack(&mut self, path: usize, packet: u64, advertised: u64, scheduler: &mut dyn Scheduler) {
        self.outstanding[path] -= 1;
        if self.model.growth == Growth::SlowStart {
            self.windows[path] += 1;
        }
        self.advertised = advertised;
        scheduler.on_event(&PathEvent::Acked {
            path: PathId(path as u32),
            bytes: PACKET,
            rtt: Some(rtt(&self.model.paths[path])),
        });
        let peer_window = self.peer_window();
        self.trace.acknowledged.push(Acknowledged {
            at: self.now,
            path,
            packet,
            windows: self.windows.clone(),
            outstanding_before: self.outstanding.clone(),
            outstanding: self.outstanding.clone(),
            advertised,
            peer_window_before: peer_window,
            peer_window,
            sent: Vec::new(),
        });
    }

    /// What the receiver can still accept: the third paper's `PeerRwnd`.
    fn peer_window(&self) -> u64 {
        self.advertised
            .saturating_sub(self.outstanding.iter().sum())
    }

    /// Sends as long as the windows, the receiver and the scheduler allow.
    fn fill(&mut self, scheduler: &mut dyn Scheduler) {
        while self.left() > 0 && self.peer_window() > 0 {
            let views = self.views();
            let view = SendView {
                now: self.now,
                paths: &views,
                backlog: Backlog {
                    unsent: self.left() * PACKET,
                    credit: self.peer_window().saturating_mul(PACKET),
                    send_window: u64::MAX,
                    ..Backlog::default()
                },
                unit: Unit {
                    kind: UnitKind::Fresh,
                    bytes: PACKET,
                    ..Unit::default()
                },
                ..SendView::default()
            };
            match scheduler.select(&view).decision {
                Decision::Send(path) => self.send(path, 0, scheduler),
                Decision::SendAt { path, skip } => self.send(path, skip / PACKET, scheduler),
                Decision::Hold { until } => {
                    if let Some(at) = until.filter(|at| *at > self.now) {
                        self.push(at, self.model.paths.len(), Event::Wake);
                    }
                    return;
                }
                other => panic!("the model knows no {other:?}"),
            }
        }
    }

    /// Packets not sent yet.
    fn left(&self) -> u64 {
        self.model.packets + 1 - self.next + self.skipped.len() as u64
    }

    /// Takes the number `skip` places after the lowest unsent one.
    fn take_number(&mut self, skip: u64) -> u64 {
        let skip = skip.min(self.left() - 1);
        if let Some(number) = self.skipped.iter().nth(skip as usize).copied() {
            self.skipped.remove(&number);
            return number;
        }
        let number = self.next + skip - self.skipped.len() as u64;
        self.skipped.extend(self.next..number);
        self.next = number + 1;
        number
    }

    fn send(&mut self, id: PathId, skip: u64, scheduler: &mut dyn Scheduler) {
        let at = id.0 as usize;
        let path = self.model.paths[at];
        assert!(
            self.outstanding[at] < self.windows[at],
            "the scheduler chose a full path"
        );
        let packet = self.take_number(skip);
        let mut late = self.model.late.iter();
        let late = late.find(|(number, _)| *number == packet);
        let slip = late.map_or(Duration::ZERO, |(_, by)| *by);
        let departs = self.now.max(self.free_at[at]) + slip;
        self.free_at[at] = departs + path.serialisation;
        self.outstanding[at] += 1;
        let arrives = self.free_at[at] + path.forward;
        if !self.model.lost.contains(&packet) {
            self.push(arrives, at, Event::Arrives { packet });
        }
        self.trace.sent.push(Sent {
            at: self.now,
            path: at,
            packet,
            departs,
            arrives,
        });
        let after = (self.outstanding.clone(), self.peer_window());
        if let Some(row) = self.trace.acknowledged.last_mut() {
            row.sent.push(packet);
            (row.outstanding, row.peer_window) = after;
        }
        scheduler.on_event(&PathEvent::Sent {
            path: id,
            bytes: PACKET,
        });
    }

    /// What the scheduler sees: paths whose delays are known exactly.
    fn views(&self) -> Vec<PathView> {
        let paths = self.model.paths.iter().enumerate();
        let view = |(at, path): (usize, &ModelPath)| {
            let rate = (u128::from(PACKET) * 1_000_000_000)
                .checked_div(path.serialisation.as_nanos())
                .unwrap_or(0) as u64;
            let forward = path.serialisation + path.forward;
            PathView {
                smoothed_rtt: rtt(path),
                latest_rtt: rtt(path),
                min_rtt: rtt(path),
                forward_delay_us: Some(forward.as_micros() as i64),
                congestion_window: self.windows[at] * PACKET,
                bytes_in_flight: self.outstanding[at] * PACKET,
                delivery_rate: rate,
                pacing_rate: if self.model.paced { rate } else { 0 },
                pacer_ready: if self.model.paced {
                    self.free_at[at]
                } else {
                    Instant::ZERO
                },
                max_datagram_size: PACKET as u16,
                ..PathView::new(at as u32)
            }
        };
        paths.map(view).collect()
    }
}

fn rtt(path: &ModelPath) -> Duration {
    path.serialisation + path.forward + path.backward
}
