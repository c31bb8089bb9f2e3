//! BBR version 3 (draft-ietf-ccwg-bbr): a model of the path instead of a reaction to its losses.
//!
//! The model is the highest bandwidth and the lowest RTT seen lately, bounded by what losses say.
//! The state machine takes turns at measuring both:
//!
//! ```text
//! Startup -> Drain -> Down -> Cruise -> Refill -> Up -> Down ...     and from all of them
//!                                       ProbeRtt -> Cruise, or Startup if the pipe was never full
//! ```
//!
//! `model` keeps bandwidth, RTT, aggregation and the short-term bounds, `loss` reacts to losses,
//! `cycle` runs the state machine, `control` turns the model into window and pacing rate. Names
//! follow the draft where it has one.
//!
//! Three things differ from the draft. Losses come in batches instead of packet by packet, so the
//! share of loss is taken over the round in progress. One or two lost packets never count as too
//! much: in a small window they exceed any share. And a probe for the RTT waits while another path
//! of the connection probes its own, so that never two slow down at once.
//!
//! A link that loses at random, whatever is sent, can be named: see `random-loss` in [`loss`].

mod control;
mod cycle;
mod loss;
mod model;
#[cfg(test)]
mod tests;

use super::registry::Entry;
use super::window::{InitialWindow, minimum_window};
use super::{
    AckEvent, CongestionEvent, Controller, ControllerInit, Member, SentEvent, SpuriousLoss,
};
use crate::recovery::max_filter::MaxFilter;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use cycle::{AckPhase, ProbeRtt, State};
use loss::{Losses, Tolerance};

pub(super) const ENTRY: Entry = Entry {
    name: "bbr",
    summary: "paces at the measured bandwidth and keeps queues short (BBR version 3)",
    params: &[InitialWindow::DOC, loss::RANDOM_LOSS],
    build: |params, init| {
        let initial = InitialWindow::take(params)?;
        let mut bbr = Bbr::with_initial(init, initial);
        bbr.tolerance = Tolerance::take(params)?;
        Ok(Box::new(bbr))
    },
};

/// Rounds without growth by a quarter that make a full pipe.
const FULL_PIPE_ROUNDS: u32 = 3;
const FULL_PIPE_GROWTH: f64 = 1.25;
/// Rounds over which the largest aggregate is remembered.
const EXTRA_ACKED_ROUNDS: u64 = 10;
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);

/// The controller of draft-ietf-ccwg-bbr.
#[derive(Debug)]
pub struct Bbr {
    mds: u64,
    initial: InitialWindow,
    rng: Rng,
    /// Windows and rates that leave the controller.
    window: u64,
    pacing_rate: u64,
    /// Whether the first pacing rate was taken from a measured RTT.
    paced_by_rtt: bool,
    /// The window before recovery or `ProbeRtt` reduced it.
    prior_window: u64,
    state: State,
    rounds: Rounds,
    /// Bytes delivered on the path so far.
    delivered: u64,
    bytes_in_flight: u64,
    full: FullPipe,
    /// Highest bandwidth of the cycle before and of this one.
    max_bw_cycles: [u64; 2],
    /// The bandwidth in use: the highest one, bounded by the short-term model.
    bw: u64,
    /// The latest one.
    rtt: Duration,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    extra: ExtraAcked,
    short_term: ShortTerm,
    latest: Latest,
    /// Bytes in flight known to be safe; `u64::MAX` if never exceeded.
    inflight_longterm: u64,
    ack_phase: AckPhase,
    /// Whether samples may come from packets sent while probing for bandwidth.
    is_probe_sample: bool,
    cycle_started: Instant,
    probe_wait: Duration,
    rounds_since_probe: u64,
    probe_up_rounds: u32,
    probe_up_acked: u64,
    probe_up_acked_per_step: u64,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    drain_started_round: u64,
    probe_rtt: ProbeRtt,
    idle_restart: bool,
    losses: Losses,
    tolerance: Tolerance,
    limited: WindowLimited,
}

/// Round trips counted by packets: a round ends when a packet sent after its start is acknowledged.
#[derive(Debug, Clone, Copy, Default)]
struct Rounds {
    count: u64,
    ends_at_delivered: u64,
    /// Whether the latest acknowledgement started a round.
    start: bool,
}

/// Looks for the bandwidth's plateau.
#[derive(Debug, Clone, Copy, Default)]
struct FullPipe {
    bw: u64,
    count: u32,
    now: bool,
    reached: bool,
}

impl FullPipe {
    fn reset(&mut self, bw: u64) {
        *self = Self {
            bw,
            reached: self.reached,
            ..Self::default()
        };
    }
}

/// How much more than expected is acknowledged at once.
#[derive(Debug, Clone, Copy)]
struct ExtraAcked {
    started: Instant,
    delivered: u64,
    highest: MaxFilter,
}

/// Bounds learnt from losses while not probing; forgotten with the next probe.
#[derive(Debug, Clone, Copy)]
struct ShortTerm {
    bw: u64,
    inflight: u64,
}

impl ShortTerm {
    const UNBOUNDED: Self = Self {
        bw: u64::MAX,
        inflight: u64::MAX,
    };
}

/// The best delivery of the loss round in progress.
#[derive(Debug, Clone, Copy, Default)]
struct Latest {
    bw: u64,
    inflight: u64,
    round_ends_at_delivered: u64,
    round_start: bool,
}

/// Whether the window was the limit lately: in this round or in the one before.
#[derive(Debug, Clone, Copy, Default)]
struct WindowLimited {
    this_round: bool,
    last_round: bool,
}

impl WindowLimited {
    fn is(self) -> bool {
        self.this_round || self.last_round
    }
}

/// The draft's rate sample: what one acknowledgement tells.
#[derive(Debug, Clone, Copy)]
struct Sample {
    now: Instant,
    newly_acked: u64,
    rtt: Duration,
    /// The least sample of the route.
    least_rtt: Duration,
    /// Bytes per second; 0 if no rate could be taken.
    rate: u64,
    /// Bytes delivered over the interval of the rate.
    delivered: u64,
    prior_delivered: u64,
    in_flight_at_send: u64,
    lost: u64,
    /// Whether the rate says nothing about the path.
    app_limited: bool,
    /// Whether the window has been the limit, so that it may grow.
    window_limited: bool,
}

impl Bbr {
    /// A controller in Startup.
    pub fn new(init: &ControllerInit) -> Self {
        Self::with_initial(init, InitialWindow::default())
    }

    fn with_initial(init: &ControllerInit, initial: InitialWindow) -> Self {
        let mds = u64::from(init.max_datagram_size);
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&init.seed.to_le_bytes());
        seed[8..12].copy_from_slice(&init.path.0.to_le_bytes());
        let mut bbr = Self::fresh(mds, initial, Rng::from_seed(seed), init.now);
        bbr.pacing_rate = control::nominal_rate(bbr.window, Duration::from_millis(1));
        bbr
    }

    fn fresh(mds: u64, initial: InitialWindow, rng: Rng, now: Instant) -> Self {
        Self {
            mds,
            initial,
            rng,
            window: initial.bytes(mds),
            pacing_rate: 0,
            paced_by_rtt: false,
            prior_window: 0,
            state: State::Startup,
            rounds: Rounds::default(),
            delivered: 0,
            bytes_in_flight: 0,
            full: FullPipe::default(),
            max_bw_cycles: [0; 2],
            bw: 0,
            rtt: Duration::ZERO,
            min_rtt: None,
            min_rtt_at: now,
            extra: ExtraAcked {
                started: now,
                delivered: 0,
                highest: MaxFilter::default(),
            },
            short_term: ShortTerm::UNBOUNDED,
            latest: Latest::default(),
            inflight_longterm: u64::MAX,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            cycle_started: now,
            probe_wait: Duration::ZERO,
            rounds_since_probe: 0,
            probe_up_rounds: 0,
            probe_up_acked: 0,
            probe_up_acked_per_step: u64::MAX,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            drain_started_round: 0,
            probe_rtt: ProbeRtt::new(now),
            idle_restart: false,
            losses: Losses::default(),
            tolerance: Tolerance::default(),
            limited: WindowLimited::default(),
        }
    }

    fn initial_window(&self) -> u64 {
        self.initial.bytes(self.mds)
    }

    /// The sample an acknowledgement brought, and what it says about delivery so far.
    fn sample(&mut self, event: &AckEvent) -> Sample {
        let mut sample = Sample {
            now: event.now,
            newly_acked: event.bytes,
            rtt: event.rtt.latest,
            least_rtt: event.rtt.min,
            rate: 0,
            delivered: 0,
            prior_delivered: 0,
            in_flight_at_send: 0,
            lost: 0,
            app_limited: event.app_limited,
            window_limited: !event.app_limited,
        };
        let Some(rate) = event.rate else {
            self.delivered = self.delivered.saturating_add(event.bytes);
            return sample;
        };
        self.delivered = self.delivered.max(rate.delivered);
        sample.rate = rate.rate;
        sample.delivered = rate.delivered.saturating_sub(rate.prior_delivered);
        sample.prior_delivered = rate.prior_delivered;
        sample.in_flight_at_send = rate.in_flight_at_send;
        sample.lost = rate.lost;
        sample.app_limited = rate.app_limited || self.probe_rtt.limits(rate.prior_delivered);
        sample
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, event: &SentEvent) {
        if event.bytes_in_flight <= event.bytes && self.delivered > 0 {
            self.restart_from_idle(event.now);
        }
        self.bytes_in_flight = event.bytes_in_flight;
        self.on_leaving(event.now);
        if event.bytes_in_flight.saturating_add(self.mds) > self.window {
            self.limited.this_round = true;
        }
    }

    fn on_ack(&mut self, event: &AckEvent, group: &[Member]) {
        self.bytes_in_flight = event.bytes_in_flight;
        self.rtt = event.rtt.latest;
        self.on_arrived(event.largest_sent, event.bytes);
        let sample = self.sample(event);
        self.update_latest_signals(&sample);
        self.update_round(&sample);
        self.update_congestion_signals(&sample);
        self.end_recovery(event.largest_sent);
        self.update_aggregation(&sample);
        self.check_full_pipe(&sample);
        self.check_startup_done();
        self.check_drain_done(event.now);
        self.update_cycle(&sample);
        self.update_min_rtt(&sample);
        self.check_probe_rtt(&sample, group);
        self.advance_latest_signals(&sample);
        self.bw = self.max_bw().min(self.short_term.bw);
        if self.rounds.start {
            self.losses.start_round();
        }
        self.set_pacing_rate(&sample);
        self.set_window(&sample);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, _group: &[Member]) {
        self.bytes_in_flight = event.bytes_in_flight;
        self.on_loss(event);
    }

    fn on_spurious_loss(&mut self, event: &SpuriousLoss) {
        self.undo_loss(event);
    }

    fn on_mtu(&mut self, max_datagram_size: u16) {
        let untouched = self.delivered == 0 && self.window == self.initial_window();
        self.mds = u64::from(max_datagram_size);
        if untouched {
            self.window = self.initial_window();
        }
        self.window = self
            .window
            .max(minimum_window(self.mds).min(self.initial_window()));
    }

    fn restart(&mut self, now: Instant) {
        let rtt = self.min_rtt.unwrap_or(Duration::from_millis(1));
        let rng = self.rng.clone();
        let (delivered, tolerance) = (self.delivered, self.tolerance);
        *self = Self::fresh(self.mds, self.initial, rng, now);
        self.tolerance = tolerance;
        self.delivered = delivered;
        self.rounds.ends_at_delivered = delivered;
        self.window = minimum_window(self.mds);
        self.pacing_rate = control::nominal_rate(self.window, rtt);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate.max(1))
    }

    fn in_recovery(&self) -> bool {
        self.losses.in_recovery()
    }

    fn phase(&self) -> &'static str {
        self.state.name()
    }

    fn is_probing_rtt(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn bytes_between_losses(&self) -> u64 {
        self.losses.bytes_between(self.delivered)
    }
}
