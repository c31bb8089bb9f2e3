//! The state machine (draft, section 5.3).

use super::{Bbr, Member, Sample, ShortTerm};
use crate::time::{Duration, Instant};

/// How long the lowest RTT may go unconfirmed.
pub(super) const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// Bandwidth is probed after so long at most, plus up to a second at random.
const PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_SPREAD_NANOS: u64 = 1_000_000_000;
/// And after so many rounds at most, so that Reno and CUBIC at small windows are met halfway.
const PROBE_WAIT_ROUNDS: u64 = 63;
const DRAIN_ROUNDS: u64 = 3;
/// Share of the safe bytes in flight that is left to others while cruising.
const HEADROOM: f64 = 0.15;

/// Where the state machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Doubling the rate each round until the pipe is full.
    Startup,
    /// Emptying the queue that Startup built.
    Drain,
    /// Emptying the queue that Up built.
    Down,
    /// At the measured bandwidth, with headroom.
    Cruise,
    /// One round at the full bandwidth, to fill the pipe before Up.
    Refill,
    /// Faster than the bandwidth, to see whether there is more.
    Up,
    /// Half as much in flight as the path holds, to see the RTT without a queue.
    ProbeRtt,
}

impl State {
    /// The name in traces.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down => "probe_bw_down",
            Self::Cruise => "probe_bw_cruise",
            Self::Refill => "probe_bw_refill",
            Self::Up => "probe_bw_up",
            Self::ProbeRtt => "probe_rtt",
        }
    }
}

/// Which acknowledgements a bandwidth probe is getting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// When and how the RTT is probed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeRtt {
    /// The lowest RTT since the last probe.
    pub(super) min: Option<Duration>,
    pub(super) min_at: Instant,
    /// Whether a probe waits for its turn.
    pub(super) due: bool,
    done_at: Option<Instant>,
    round_done: bool,
    /// Packets sent while `delivered` was in between these were held back by the probe.
    from_delivered: u64,
    to_delivered: u64,
}

impl ProbeRtt {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            min: None,
            min_at: now,
            due: false,
            done_at: None,
            round_done: false,
            from_delivered: u64::MAX,
            to_delivered: 0,
        }
    }

    /// Whether a packet that was sent at this count of delivered bytes says nothing about
    /// bandwidth.
    pub(super) fn limits(&self, prior_delivered: u64) -> bool {
        (self.from_delivered..=self.to_delivered).contains(&prior_delivered)
    }
}

/// Whether a path may start to probe its RTT: no other one does.
fn is_turn(group: &[Member]) -> bool {
    !group
        .iter()
        .any(|member| !member.is_self && member.probing_rtt)
}

impl Bbr {
    pub(super) fn is_probing_bw(&self) -> bool {
        matches!(self.state, State::Startup | State::Refill | State::Up)
    }

    pub(super) fn in_probe_bw(&self) -> bool {
        matches!(
            self.state,
            State::Down | State::Cruise | State::Refill | State::Up
        )
    }

    pub(super) fn check_startup_done(&mut self) {
        if self.rounds.start {
            self.check_startup_loss();
        }
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.drain_started_round = self.rounds.count;
        }
    }

    pub(super) fn check_drain_done(&mut self, now: Instant) {
        let late = self.rounds.count > self.drain_started_round + DRAIN_ROUNDS;
        if self.state == State::Drain && (late || self.bytes_in_flight <= self.inflight(1.0)) {
            self.start_down(now);
        }
    }

    pub(super) fn start_down(&mut self, now: Instant) {
        self.losses.in_round = None;
        (self.latest.bw, self.latest.inflight) = (0, 0);
        self.probe_up_acked_per_step = u64::MAX;
        self.rounds_since_probe = self.rng.below(2);
        self.probe_wait =
            PROBE_WAIT + Duration::from_nanos(self.rng.below(PROBE_WAIT_SPREAD_NANOS));
        self.cycle_started = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self) {
        self.short_term = ShortTerm::UNBOUNDED;
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::Refill;
    }

    fn start_up(&mut self, sample: &Sample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.full.reset(sample.rate);
        self.state = State::Up;
        self.raise_longterm_slope();
    }

    pub(super) fn update_cycle(&mut self, sample: &Sample) {
        if !self.full.reached || self.adapt_longterm(sample) {
            return;
        }
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(sample.now) => {
                self.start_refill();
            }
            State::Down if self.is_time_to_cruise() => self.state = State::Cruise,
            State::Refill if self.rounds.start => {
                self.is_probe_sample = true;
                self.start_up(sample);
            }
            State::Up => self.check_up_done(sample),
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let packets = self.bdp(1.0).min(self.window) / self.mds.max(1);
        now > self.cycle_started + self.probe_wait
            || self.rounds_since_probe >= packets.min(PROBE_WAIT_ROUNDS)
    }

    fn is_time_to_cruise(&self) -> bool {
        let drained = self.inflight(self.sent_for_one());
        self.bytes_in_flight <= self.inflight_with_headroom().min(drained)
    }

    fn check_up_done(&mut self, sample: &Sample) {
        if self.is_time_to_go_down(sample) {
            self.prev_probe_too_high = false;
            self.start_down(sample.now);
        }
    }

    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        if self.prev_probe_too_high && self.bytes_in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.limited.is() && self.window >= self.inflight_longterm {
            // The bound is the limit, so a plateau would say nothing about the path.
            self.full.reset(sample.rate);
            return false;
        }
        self.full.now
    }

    /// Safe bytes in flight, less what is left to others.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == u64::MAX {
            return u64::MAX;
        }
        let headroom = ((self.inflight_longterm as f64 * HEADROOM) as u64).max(self.mds);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(self.min_pipe())
    }

    fn raise_longterm_slope(&mut self) {
        let growth = 1_u64 << self.probe_up_rounds;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_step = (self.window / growth).max(self.mds).max(1);
    }

    fn probe_longterm_upward(&mut self, sample: &Sample) {
        if !self.limited.is() || self.window < self.inflight_longterm {
            return;
        }
        self.probe_up_acked = self.probe_up_acked.saturating_add(sample.newly_acked);
        let steps = self.probe_up_acked / self.probe_up_acked_per_step;
        self.probe_up_acked %= self.probe_up_acked_per_step;
        self.inflight_longterm = self.inflight_longterm.saturating_add(steps * self.mds);
        if self.rounds.start {
            self.raise_longterm_slope();
        }
    }

    /// Follows the feedback of a bandwidth probe; true if that decided on a transition.
    fn adapt_longterm(&mut self, sample: &Sample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.rounds.start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.rounds.start {
            self.is_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.in_probe_bw() && !sample.app_limited {
                self.advance_max_bw();
            }
            // The cautious probe did no harm: probe again at once, and further.
            if self.in_probe_bw() && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_refill();
                return true;
            }
        }
        if self.is_inflight_too_high(sample) {
            if self.is_probe_sample {
                let (limit, limited) = (sample.in_flight_at_send, sample.app_limited);
                self.on_inflight_too_high(sample.now, limit, limited);
            }
        } else if self.inflight_longterm != u64::MAX {
            self.inflight_longterm = self.inflight_longterm.max(sample.in_flight_at_send);
            if self.state == State::Up {
                self.probe_longterm_upward(sample);
            }
        }
        false
    }

    pub(super) fn check_probe_rtt(&mut self, sample: &Sample, group: &[Member]) {
        if self.state != State::ProbeRtt
            && self.probe_rtt.due
            && !self.idle_restart
            && is_turn(group)
        {
            self.save_window();
            self.state = State::ProbeRtt;
            self.probe_rtt.due = false;
            self.probe_rtt.done_at = None;
            self.probe_rtt.from_delivered = self.delivered;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.hold_probe_rtt(sample);
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn hold_probe_rtt(&mut self, sample: &Sample) {
        self.probe_rtt.to_delivered = self.delivered.saturating_add(self.bytes_in_flight);
        if self.probe_rtt.done_at.is_none() {
            if self.bytes_in_flight <= self.probe_rtt_window() {
                self.probe_rtt.done_at = Some(sample.now + PROBE_RTT_DURATION);
                self.probe_rtt.round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt.round_done |= self.rounds.start;
        if self.probe_rtt.round_done {
            self.check_probe_rtt_done(sample.now);
        }
    }

    fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt.done_at.is_none_or(|at| now <= at) {
            return;
        }
        self.probe_rtt.min_at = now;
        self.restore_window();
        self.short_term = ShortTerm::UNBOUNDED;
        if self.full.reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// Something is sent and nothing was in flight (draft, section 5.4).
    pub(super) fn restart_from_idle(&mut self, now: Instant) {
        self.idle_restart = true;
        self.extra.started = now;
        if self.in_probe_bw() {
            self.pace_with(1.0);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}
