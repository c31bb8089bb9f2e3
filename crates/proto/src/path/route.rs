//! A route: a path's current 4-tuple and everything measured on it.

use crate::config::TransportConfig;
use crate::congestion::{Controller, ControllerInit};
use crate::datagram::Tuple;
use crate::packet::Frames;
use crate::path::amplification::Amplification;
use crate::path::ecn::EcnState;
use crate::path::mtu::MtuDiscovery;
use crate::path::validation::{Responses, Validation};
use crate::recovery::pacer::rate_for_window;
use crate::recovery::{DeliveryRate, Pacer, RttEstimator};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use anabranch_wire::frame::Frame;

/// Less than this is left to acknowledgements of the handshake.
const MIN_EARLY_DATA_BUDGET: u64 = 256;

/// Bytes of a challenge or its answer.
const PROOF_LEN: usize = 9;

/// The two ends of a path as they are now, with RTT, window, pacer, MTU and ECN.
///
/// Migration replaces the route; the path, its packet numbers and connection IDs stay.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) tuple: Tuple,
    /// Counts the routes of a path: a sent packet names the one it left by.
    pub(crate) generation: u32,
    pub(crate) rtt: RttEstimator,
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) pacer: Pacer,
    /// Whether the pacer gets a rate.
    paced: bool,
    pub(crate) rate: DeliveryRate,
    pub(crate) mtu: MtuDiscovery,
    pub(crate) ecn: EcnState,
    pub(crate) amplification: Amplification,
    /// The validation under way, if any.
    pub(crate) validation: Option<Validation>,
    /// Whether the far end is proven, or needs no proof.
    pub(crate) validated: bool,
    /// Set on the route of a server's handshake: data may leave before the far end is proven
    /// (0.5-RTT), within the amplification limit.
    pub(crate) carries_early_data: bool,
    /// Challenges of the peer that arrived by this route.
    pub(crate) responses: Responses,
    /// Bytes sent by this route and neither acknowledged nor lost, over all packet number spaces.
    pub(crate) in_flight: u64,
    /// Whether room was left unused when there was nothing to send (RFC 9002, section 7.8).
    pub(crate) app_limited: bool,
}

impl Route {
    /// A route nothing is known about. `validated` is true where the peer's address needs no proof.
    pub(crate) fn new(
        config: &TransportConfig,
        rng: &mut Rng,
        now: Instant,
        path: PathId,
        tuple: Tuple,
        generation: u32,
    ) -> Self {
        let mtu = MtuDiscovery::new(config.initial_mtu, config.mtu.towards(tuple.remote.ip()));
        let init = ControllerInit {
            now,
            path,
            max_datagram_size: mtu.current(),
            seed: rng.below(u64::MAX),
        };
        Self {
            tuple,
            generation,
            rtt: RttEstimator::new(config.initial_rtt),
            controller: config.congestion.build(&init),
            pacer: Pacer::new(now),
            paced: !config.mechanisms.unpaced,
            rate: DeliveryRate::new(),
            mtu,
            ecn: EcnState::new(config.ecn),
            amplification: Amplification::default(),
            validation: None,
            validated: false,
            carries_early_data: false,
            responses: Responses::default(),
            in_flight: 0,
            app_limited: false,
        }
    }

    /// Exchanges the far ends of two routes, and what was proven of them. RTT, window, pacer, MTU
    /// and ECN stay, with the packets in flight that will change them.
    pub(crate) fn swap_far_end(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.tuple, &mut other.tuple);
        std::mem::swap(&mut self.amplification, &mut other.amplification);
        std::mem::swap(&mut self.validation, &mut other.validation);
        std::mem::swap(&mut self.validated, &mut other.validated);
        std::mem::swap(&mut self.carries_early_data, &mut other.carries_early_data);
        std::mem::swap(&mut self.responses, &mut other.responses);
    }

    /// This far end with what `other`, which is given up, knows of the network: if it is the same
    /// network and knows it for longer.
    pub(crate) fn with_measured(mut self, mut other: Self) -> Self {
        if self.tuple.differs_by_port(&other.tuple) && other.generation < self.generation {
            other.swap_far_end(&mut self);
            other
        } else {
            self
        }
    }

    /// Starts to prove that the peer answers at the far end.
    #[cold]
    pub(crate) fn validate(&mut self, now: Instant, rng: &mut Rng) {
        self.validate_after(now, rng, Duration::MAX);
    }

    /// As [`validate`](Self::validate), but challenges are repeated at this PTO if it is shorter:
    /// that of the previous route is the best guess.
    pub(crate) fn validate_after(&mut self, now: Instant, rng: &mut Rng, pto: Duration) {
        let pto = self.rtt.pto_base().min(pto);
        self.validation = Some(Validation::start(now, rng, pto));
    }

    /// Appends answers to the peer's challenges, and a challenge that is due; `full` tells whether
    /// the datagram can be full size. Returns whether there were any.
    pub(crate) fn write_proof(
        &mut self,
        now: Instant,
        frames: &mut Frames<'_>,
        full: bool,
    ) -> bool {
        let before = frames.mark();
        while frames.room() >= PROOF_LEN
            && let Some(data) = self.responses.pop()
        {
            frames.push(&Frame::PathResponse { data });
        }
        if frames.room() >= PROOF_LEN
            && let Some(validation) = &mut self.validation
            && let Some(data) = validation.poll_challenge(now)
        {
            frames.push(&Frame::PathChallenge { data });
            if !full {
                validation.sent_small();
            }
        }
        !frames.is_at(before)
    }

    /// The far end needs no proof any more.
    pub(crate) fn set_validated(&mut self) {
        self.amplification.set_validated();
        self.validated = true;
    }

    /// Whether data may be sent to the far end.
    pub(crate) fn is_open_to_data(&self) -> bool {
        self.validated
            || self.carries_early_data && self.amplification.budget() >= MIN_EARLY_DATA_BUDGET
    }

    /// What is left of the window that the congestion controller allows.
    pub(crate) fn free_window(&self) -> u64 {
        self.controller.window().saturating_sub(self.in_flight)
    }

    /// Adjusts the pacer to window and RTT.
    pub(crate) fn update_pacing(&mut self, now: Instant) {
        if !self.paced {
            return;
        }
        let window = self.controller.window();
        let slow_start = window < self.controller.ssthresh();
        let smoothed = self.rtt.smoothed();
        let rate = self.controller.pacing_rate();
        let rate = rate.unwrap_or_else(|| rate_for_window(window, smoothed, slow_start));
        self.pacer.set_rate(now, rate, self.mtu.current());
    }
}
