//! From the model to window and pacing rate (draft, section 5.6).

use super::cycle::State;
use super::{Bbr, Sample};
use crate::time::Duration;

const STARTUP_PACING_GAIN: f64 = 2.77;
const WINDOW_GAIN: f64 = 2.0;
const PROBE_UP_WINDOW_GAIN: f64 = 2.25;
const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;
/// Pacing a little below the bandwidth lets queues drain on average.
const PACING_MARGIN: f64 = 0.01;
/// Packets in flight that keep acknowledgements coming.
const MIN_PIPE_PACKETS: u64 = 4;
/// The largest burst of one send call.
const SEND_QUANTUM_MAX: u64 = 64 * 1024;

/// Startup's rate before any bandwidth was measured.
pub(super) fn nominal_rate(window: u64, rtt: Duration) -> u64 {
    (STARTUP_PACING_GAIN * window as f64 / rtt.as_secs_f64().max(1e-6)) as u64
}

impl Bbr {
    fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => 0.5,
            State::Down => 0.9,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
            State::Up => 1.25,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.state {
            State::Up => PROBE_UP_WINDOW_GAIN,
            State::ProbeRtt => PROBE_RTT_WINDOW_GAIN,
            _ => WINDOW_GAIN,
        }
    }

    pub(super) fn min_pipe(&self) -> u64 {
        MIN_PIPE_PACKETS * self.mds
    }

    pub(super) fn set_pacing_rate(&mut self, sample: &Sample) {
        if !self.paced_by_rtt && sample.rtt > Duration::ZERO {
            self.paced_by_rtt = true;
            self.pacing_rate = nominal_rate(self.window, sample.rtt);
        }
        self.pace_with(self.pacing_gain());
    }

    /// Until the pipe was full the rate only rises.
    pub(super) fn pace_with(&mut self, gain: f64) {
        let gain = gain * self.sent_for_one();
        let rate = (gain * self.bw as f64 * (1.0 - PACING_MARGIN)) as u64;
        if self.bw > 0 && (self.full.reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    fn send_quantum(&self) -> u64 {
        (self.pacing_rate / 1000)
            .min(SEND_QUANTUM_MAX)
            .max(2 * self.mds)
    }

    fn quantized(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(self.send_quantum()).max(self.min_pipe());
        if self.state == State::Up {
            bytes.saturating_add(2 * self.mds)
        } else {
            bytes
        }
    }

    /// Bytes in flight that `gain` times the bandwidth-delay product asks for.
    pub(super) fn inflight(&self, gain: f64) -> u64 {
        self.quantized(self.bdp(gain))
    }

    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp(PROBE_RTT_WINDOW_GAIN).max(self.min_pipe())
    }

    pub(super) fn set_window(&mut self, sample: &Sample) {
        let target = self
            .bdp(self.window_gain())
            .saturating_add(self.extra.highest.value());
        let target = self.quantized(target);
        // What the scheduler left unused must not grow windows (RFC 9002, section 7.8).
        let growth = if sample.window_limited {
            sample.newly_acked
        } else {
            0
        };
        let grown = self.window.saturating_add(growth);
        if self.full.reached {
            self.window = grown.min(target);
        } else if self.window < target || self.delivered < self.initial_window() {
            self.window = grown;
        }
        self.window = self.window.max(self.min_pipe());
        if self.state == State::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        self.bound_window();
    }

    fn bound_window(&mut self) {
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::Cruise | State::ProbeRtt => self.inflight_with_headroom(),
            State::Startup | State::Drain => u64::MAX,
        };
        let cap = cap.min(self.short_term.inflight).max(self.min_pipe());
        self.window = self.window.min(cap);
    }

    /// Remembers the window before something other than the model reduces it.
    pub(super) fn save_window(&mut self) {
        let modulated = self.losses.in_recovery() || self.state == State::ProbeRtt;
        self.prior_window = if modulated {
            self.prior_window.max(self.window)
        } else {
            self.window
        };
    }

    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }
}
