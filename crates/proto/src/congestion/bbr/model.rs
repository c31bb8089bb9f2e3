//! The model: bandwidth, RTT, aggregation and short-term bounds (draft, section 5.5).

use super::{Bbr, EXTRA_ACKED_ROUNDS, MIN_RTT_FILTER, Sample, ShortTerm};
use super::{FULL_PIPE_GROWTH, FULL_PIPE_ROUNDS, cycle};
use crate::time::Duration;

/// What losses leave of a bound, at least.
pub(super) const BETA: f64 = 0.7;

/// On a link that was named as one that loses at random, a sample that is longer than the lowest
/// RTT by this part of it at most confirms it: a probe would find nothing else.
const CONFIRMING: u32 = 10;

impl Bbr {
    pub(super) fn max_bw(&self) -> u64 {
        self.max_bw_cycles[0].max(self.max_bw_cycles[1])
    }

    /// A new cycle: what was highest two cycles ago is forgotten.
    pub(super) fn advance_max_bw(&mut self) {
        self.max_bw_cycles = [self.max_bw_cycles[1], 0];
    }

    /// Bandwidth times RTT, times `gain`; the initial window while nothing is known.
    pub(super) fn bdp(&self, gain: f64) -> u64 {
        match self.min_rtt {
            Some(rtt) if self.bw > 0 => (self.bw as f64 * rtt.as_secs_f64() * gain) as u64,
            _ => self.initial_window(),
        }
    }

    pub(super) fn start_round(&mut self) {
        self.rounds.ends_at_delivered = self.delivered;
    }

    pub(super) fn update_round(&mut self, sample: &Sample) {
        self.rounds.start =
            sample.rate > 0 && sample.prior_delivered >= self.rounds.ends_at_delivered;
        if self.rounds.start {
            self.start_round();
            self.rounds.count += 1;
            self.rounds_since_probe += 1;
            self.limited.last_round = std::mem::take(&mut self.limited.this_round);
        }
    }

    pub(super) fn update_latest_signals(&mut self, sample: &Sample) {
        self.latest.round_start = false;
        self.latest.bw = self.latest.bw.max(sample.rate);
        self.latest.inflight = self.latest.inflight.max(sample.delivered);
        if sample.rate > 0 && sample.prior_delivered >= self.latest.round_ends_at_delivered {
            self.latest.round_ends_at_delivered = self.delivered;
            self.latest.round_start = true;
        }
    }

    pub(super) fn advance_latest_signals(&mut self, sample: &Sample) {
        if self.latest.round_start {
            self.latest.bw = sample.rate;
            self.latest.inflight = sample.delivered;
        }
    }

    pub(super) fn update_congestion_signals(&mut self, sample: &Sample) {
        if sample.rate > 0 && (sample.rate >= self.max_bw() || !sample.app_limited) {
            self.max_bw_cycles[1] = self.max_bw_cycles[1].max(sample.rate);
        }
        if !self.latest.round_start {
            return;
        }
        if self.is_round_congested() && !self.is_probing_bw() {
            self.lower_bounds();
        }
        self.losses.in_round = None;
    }

    /// Once per round with losses, outside of probes: no faster than what was delivered, but no
    /// slower than [`BETA`] of before either.
    fn lower_bounds(&mut self) {
        let ShortTerm { bw, inflight } = &mut self.short_term;
        if *bw == u64::MAX {
            *bw = self.max_bw_cycles[0].max(self.max_bw_cycles[1]);
        }
        if *inflight == u64::MAX {
            *inflight = self.window;
        }
        *bw = self.latest.bw.max((*bw as f64 * BETA) as u64);
        *inflight = self.latest.inflight.max((*inflight as f64 * BETA) as u64);
    }

    pub(super) fn update_aggregation(&mut self, sample: &Sample) {
        let extra = &mut self.extra;
        let interval = sample.now.since(extra.started);
        let mut expected = (self.bw as f64 * interval.as_secs_f64()) as u64;
        if extra.delivered <= expected {
            extra.delivered = 0;
            extra.started = sample.now;
            expected = 0;
        }
        extra.delivered = extra.delivered.saturating_add(sample.newly_acked);
        let more = extra.delivered.saturating_sub(expected).min(self.window);
        let rounds = if self.full.reached {
            EXTRA_ACKED_ROUNDS
        } else {
            1
        };
        extra.highest.update(self.rounds.count, more, rounds);
    }

    pub(super) fn check_full_pipe(&mut self, sample: &Sample) {
        if self.full.now || !self.rounds.start || sample.app_limited {
            return;
        }
        if sample.rate as f64 >= self.full.bw as f64 * FULL_PIPE_GROWTH {
            self.full.reset(sample.rate);
            return;
        }
        self.full.count += 1;
        self.full.now = self.full.count >= FULL_PIPE_ROUNDS;
        self.full.reached |= self.full.now;
    }

    /// Two minima: one over the interval of RTT probes, one over twice that, so that a probe that
    /// comes a little late loses nothing.
    pub(super) fn update_min_rtt(&mut self, sample: &Sample) {
        let probe = &mut self.probe_rtt;
        // The least RTT of the route only rises when its acknowledgements take another way back. A
        // window for the RTT of the way before would be too small while that is remembered.
        if self.min_rtt.is_some_and(|known| known < sample.least_rtt) {
            (self.min_rtt, self.min_rtt_at) = (None, sample.now);
            (probe.min, probe.min_at) = (None, sample.now);
        }
        let expired = sample.now > probe.min_at + cycle::PROBE_RTT_INTERVAL;
        // After idle time the RTT has just been seen without a queue.
        probe.due |= expired && !self.idle_restart;
        if sample.rtt > Duration::ZERO && (expired || probe.min.is_none_or(|min| sample.rtt < min))
        {
            probe.min = Some(sample.rtt);
            probe.min_at = sample.now;
        }
        let is_near = |min: Duration| sample.rtt <= min + min / CONFIRMING;
        if self.tolerance.is_set() && self.min_rtt.is_some_and(is_near) {
            probe.min_at = sample.now;
        }
        let expired = sample.now > self.min_rtt_at + MIN_RTT_FILTER;
        let Some(min) = probe.min else { return };
        if expired || self.min_rtt.is_none_or(|known| min < known) {
            self.min_rtt = Some(min);
            self.min_rtt_at = probe.min_at;
        }
    }
}
