//! Records what arrived at this host, flow by flow, and whether that is everything.

use crate::machine::clock_ns;
use anabranch_lab::hosts::{HostReport, Job, JobFlow, Role, UnitTime};
use anabranch_lab::scenario::{FlowKind, Way};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long to wait for datagrams without a deadline.
const GRACE: Duration = Duration::from_secs(1);

/// The longest wait for datagrams with a deadline.
const MAX_GRACE: Duration = Duration::from_secs(10);

/// Longer than any run, but not too long for a clock.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Default)]
struct FlowState {
    received: u64,
    /// Units that arrived here.
    units: u64,
    /// Units this host sent.
    sent: u64,
    /// Numbers of the datagrams that arrived, to recognise copies.
    seen: Vec<u64>,
}

#[derive(Debug, Default)]
struct State {
    flows: Vec<FlowState>,
    received: u64,
    counted: u64,
    first: Option<Duration>,
    last: Option<Duration>,
    units: Vec<UnitTime>,
    late: u64,
}

/// One host's account of a run that has started.
#[derive(Debug)]
pub(crate) struct Ledger {
    start: Instant,
    started_ns: u64,
    role: Role,
    flows: Vec<JobFlow>,
    /// When bytes begin to count.
    warm: Duration,
    /// When bytes cease to count, if a flow has a given duration.
    over: Option<Duration>,
    state: Mutex<State>,
    changed: Notify,
}

impl Ledger {
    /// Begins the run.
    pub(crate) fn begin(job: &Job) -> Self {
        let warm = job.flows.iter().map(|flow| flow.start + flow.warm_up).max();
        let timed = job.flows.iter().filter_map(|flow| match flow.kind {
            FlowKind::BulkTime(time) => Some(flow.start + time),
            _ => None,
        });
        let flows = job.flows.iter().map(|_| FlowState::default()).collect();
        Self {
            start: Instant::now(),
            started_ns: clock_ns(),
            role: job.role,
            flows: job.flows.clone(),
            warm: warm.unwrap_or_default(),
            over: timed.max(),
            state: Mutex::new(State {
                flows,
                ..State::default()
            }),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time from the start to `at`; zero if that was earlier.
    pub(crate) fn since_start(&self, at: std::time::Instant) -> Duration {
        at.saturating_duration_since(self.start.into_std())
    }

    /// The time `time` after the start, on this host's clock.
    pub(crate) fn stamp_ns(&self, time: Duration) -> u64 {
        self.started_ns.wrapping_add(time.as_nanos() as u64)
    }

    /// Waits until `time` after the start.
    pub(crate) async fn wait_until(&self, time: Duration) {
        sleep_until(self.start + time.min(MAX_WAIT)).await;
    }

    /// When the first flow begins.
    pub(crate) fn first_start(&self) -> Duration {
        let starts = self.flows.iter().map(|flow| flow.start);
        starts.min().unwrap_or_default()
    }

    /// The flows with their numbers.
    pub(crate) fn flows(&self) -> impl Iterator<Item = (u32, &JobFlow)> {
        (0..).zip(&self.flows)
    }

    pub(crate) fn flow(&self, flow: u32) -> Option<&JobFlow> {
        self.flows.get(flow as usize)
    }

    /// Whether this host sends a flow's data.
    pub(crate) fn is_source(&self, flow: &JobFlow) -> bool {
        is_source(self.role, flow.way)
    }

    /// Records bytes of a flow that arrived.
    pub(crate) fn arrived(&self, flow: u32, bytes: u64) {
        let now = self.elapsed();
        let mut state = self.lock();
        let Some(one) = state.flows.get_mut(flow as usize) else {
            return;
        };
        one.received += bytes;
        state.received += bytes;
        state.first.get_or_insert(now);
        state.last = Some(now);
        if now >= self.warm && self.over.is_none_or(|over| now <= over) {
            state.counted += bytes;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that a unit that began at `stamp_ns` is complete.
    pub(crate) fn completed(&self, flow: u32, unit: u64, stamp_ns: u64) {
        let took_s = clock_ns().wrapping_sub(stamp_ns) as i64 as f64 / 1e9;
        let mut state = self.lock();
        let Some(one) = state.flows.get_mut(flow as usize) else {
            return;
        };
        one.units += 1;
        if let Some(FlowKind::Datagrams {
            deadline: Some(deadline),
            ..
        }) = self.flow(flow).map(|flow| flow.kind)
        {
            state.late += u64::from(took_s > deadline.as_secs_f64());
        }
        if !matches!(
            self.flow(flow).map(|flow| flow.kind),
            Some(FlowKind::BulkBytes(_) | FlowKind::BulkTime(_))
        ) {
            state.units.push(UnitTime { flow, unit, took_s });
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records a datagram that arrived. Copies do not count.
    pub(crate) fn datagram(&self, flow: u32, number: u64, stamp_ns: u64, bytes: u64) {
        let Some(count) = self.flow(flow).and_then(|flow| flow.kind.datagrams()) else {
            return;
        };
        if number >= count {
            return;
        }
        let mut state = self.lock();
        let seen = &mut state.flows[flow as usize].seen;
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= seen.len() {
            seen.resize(word + 1, 0);
        }
        let copy = seen[word] & bit != 0;
        seen[word] |= bit;
        drop(state);
        if !copy {
            self.arrived(flow, bytes);
            self.completed(flow, number, stamp_ns);
        }
    }

    /// Records that this host has sent or answered a unit.
    pub(crate) fn sent(&self, flow: u32) {
        if let Some(one) = self.lock().flows.get_mut(flow as usize) {
            one.sent += 1;
        }
        self.changed.notify_waiters();
    }

    /// Application bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// Whether everything that is due here has arrived, and every request was answered.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.lock();
        self.flows()
            .all(|(index, flow)| self.is_flow_settled(flow, &state.flows[index as usize]))
    }

    fn is_flow_settled(&self, flow: &JobFlow, state: &FlowState) -> bool {
        let source = self.is_source(flow);
        match flow.kind {
            FlowKind::Requests { count, .. } if source => state.sent >= count,
            _ if source => true,
            FlowKind::BulkBytes(bytes) => state.units > 0 && state.received >= bytes,
            FlowKind::Files { count, .. } | FlowKind::Requests { count, .. } => {
                state.units >= count
            }
            FlowKind::BulkTime(_) => self.elapsed() >= patience(flow),
            FlowKind::Datagrams { .. } => {
                let count = flow.kind.datagrams().unwrap_or(0);
                state.units >= count || self.elapsed() >= patience(flow)
            }
        }
    }

    /// Waits until [`is_settled`](Self::is_settled).
    pub(crate) async fn settled(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_settled() {
                return;
            }
            let now = self.elapsed();
            let sinks = self.flows.iter().filter(|flow| !self.is_source(flow));
            let ends = sinks.map(patience).filter(|end| *end > now).min();
            match ends {
                Some(end) => tokio::select! {
                    () = changed => {}
                    () = self.wait_until(end) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Adds what arrived to the report; returns the time since the start.
    pub(crate) fn report(&self, report: &mut HostReport) -> Duration {
        let mut state = self.lock();
        report.started_ns = self.started_ns;
        let elapsed = self.elapsed();
        report.ended_s = Some(elapsed.as_secs_f64());
        let begin = self.first_start();
        let after = |time: Duration| time.saturating_sub(begin).as_secs_f64();
        report.received_bytes = state.received;
        report.counted_bytes = state.counted;
        let end = self.over.or(state.last);
        let window = end.map(|end| [self.warm.as_secs_f64(), end.as_secs_f64()]);
        report.counted_s = window.filter(|_| state.received > 0);
        report.first_byte_s = state.first.map(after);
        report.last_byte_s = state.last.map(after);
        report.units = std::mem::take(&mut state.units);
        report.late_units = state.late;
        let sent = (0..).zip(&state.flows);
        let sent = sent.filter(|(_, flow)| flow.sent > 0);
        report.sent_units = sent.map(|(index, flow)| (index, flow.sent)).collect();
        elapsed
    }
}

/// Whether a host of this role sends the data that goes this way.
pub(crate) fn is_source(role: Role, way: Way) -> bool {
    match way {
        Way::Forward => role == Role::Client,
        Way::Backward => role == Role::Server,
    }
}

/// When the receiver of a flow stops waiting.
fn patience(flow: &JobFlow) -> Duration {
    match flow.kind {
        FlowKind::BulkTime(time) => flow.start + time,
        FlowKind::Datagrams {
            duration, deadline, ..
        } => flow.start + duration + deadline.unwrap_or(GRACE).min(MAX_GRACE),
        _ => Duration::MAX,
    }
}

/// The earliest time at which a unit of a flow begins.
pub(crate) fn due(flow: &JobFlow, gap: Duration, unit: u64) -> Duration {
    let gaps = gap.saturating_mul(unit.min(u64::from(u32::MAX)) as u32);
    flow.start.saturating_add(gaps)
}
