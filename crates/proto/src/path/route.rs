//! A route: a path's current 4-tuple and everything measured on it.

use crate::config::TransportConfig;
use crate::congestion::{Controller, ControllerInit, PathMemory};
use crate::datagram::{Ecn, Tuple};
use crate::known_paths::Ends;
use crate::packet::Frames;
use crate::path::amplification::Amplification;
use crate::path::ecn::EcnState;
use crate::path::mtu::MtuDiscovery;
use crate::path::validation::{Responses, Validation};
use crate::recovery::pacer::rate_for_window;
use crate::recovery::sent_packets::BesideWindow;
use crate::recovery::{DeliveryRate, Pacer, RttEstimator, SentPacket};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use anabranch_wire::frame::Frame;
use anabranch_wire::{MIN_DATAGRAM_SIZE, PathId, Side};
use std::net::IpAddr;

/// Less than this is left to acknowledgements of the handshake.
const MIN_EARLY_DATA_BUDGET: u64 = 256;

/// Packets with challenges or answers to them that may be in flight.
const MAX_PROOFS: u32 = 32;

/// Packets of control frames that may be in flight, where the window holds fewer.
const LEAST_CONTROL: u64 = 256;

/// Bytes of a challenge or its answer.
const PROOF_LEN: usize = 9;

/// The two ends of a path as they are now, with RTT, window, pacer, MTU and ECN.
///
/// Migration replaces the route; the path, its packet numbers and connection IDs stay.
#[derive(Debug)]
pub(crate) struct Route {
    pub(super) tuple: Tuple,
    /// The address that packets leave from, if the driver knows more than the tuple says: names of
    /// sockets mean nothing to a later connection.
    local_address: Option<IpAddr>,
    /// The path had such an address on another route, and nobody told that of this one.
    lost_local_address: bool,
    /// Counts the routes of a path: a sent packet names the one it left by.
    pub(super) generation: u32,
    pub(super) rtt: RttEstimator,
    pub(super) controller: Box<dyn Controller>,
    pub(super) pacer: Pacer,
    /// Whether the pacer gets a rate.
    paced: bool,
    pub(super) rate: DeliveryRate,
    pub(super) mtu: MtuDiscovery,
    pub(super) ecn: EcnState,
    pub(super) amplification: Amplification,
    /// The validation under way, if any.
    /// Boxed: a route is asked for a few round trips, and lasts for long.
    pub(super) validation: Option<Box<Validation>>,
    /// Whether the far end is proven, or needs no proof.
    pub(super) validated: bool,
    /// Set on the route of a server's handshake: data may leave before the far end is proven
    /// (0.5-RTT), within the amplification limit.
    carries_early_data: bool,
    /// Challenges of the peer that arrived by this route.
    pub(super) responses: Responses,
    /// Bytes sent by this route and neither acknowledged nor lost, over all packet number spaces.
    pub(super) in_flight: u64,
    /// Packets among these that did not ask the window.
    proofs: u32,
    control: u32,
    /// Whether room was left unused when there was nothing to send (RFC 9002, section 7.8).
    pub(super) app_limited: bool,
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
            local_address: tuple.local,
            lost_local_address: false,
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
            proofs: 0,
            control: 0,
            app_limited: false,
        }
    }

    pub(crate) fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// Where it runs, as far as a later connection can tell. A server does not look at its own
    /// address: that says nothing about the network of its client.
    pub(crate) fn ends(&self, side: Side) -> Ends {
        let local = self.local_address.filter(|_| side.is_client());
        Ends::new(self.tuple.remote.ip(), local)
    }

    /// Packets leave from this address.
    pub(super) fn set_local_address(&mut self, address: IpAddr) {
        self.local_address = Some(address);
        self.lost_local_address = false;
    }

    /// Comes after another route of its path: from the same socket packets leave from the same
    /// address, as far as it is one of the far end's family.
    pub(crate) fn follow(&mut self, before: &Self) {
        let stays = self.tuple.socket == before.tuple.socket;
        let is_ipv4 = |address: IpAddr| address.to_canonical().is_ipv4();
        let remote = self.tuple.remote.ip();
        let fits = |local: &IpAddr| stays && is_ipv4(*local) == is_ipv4(remote);
        let kept = before.local_address.filter(fits);
        self.local_address = self.local_address.or(kept);
        let had_one = before.local_address.is_some() || before.lost_local_address;
        self.lost_local_address = self.local_address.is_none() && had_one;
    }

    /// Whether a later connection can tell that it is there again. A client that knows its own
    /// addresses asks for none without one.
    pub(crate) fn is_recognizable(&self, side: Side) -> bool {
        side.is_server() || !self.lost_local_address
    }

    /// Tells the routes of a path apart.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The window that the controller allows, whatever mechanisms leave of it.
    pub(crate) fn congestion_window(&self) -> u64 {
        self.controller.window()
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.controller.ssthresh()
    }

    /// Whether the controller still makes up for a loss.
    pub(crate) fn is_in_recovery(&self) -> bool {
        self.controller.in_recovery()
    }

    /// Bytes sent by this route and neither acknowledged nor lost, over all packet number spaces.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether room was left unused when there was nothing to send.
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited
    }

    /// The measured delivery rate in bytes per second.
    pub(crate) fn delivery_rate(&self) -> u64 {
        self.rate.bandwidth()
    }

    /// The pacer's rate in bytes per second, if it has one.
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        self.pacer.rate()
    }

    /// UDP payload of the largest packet to send, in bytes.
    pub(crate) fn max_datagram_size(&self) -> u16 {
        self.mtu.current()
    }

    /// Whether that is what the route carries, and not only what it carries for sure.
    pub(crate) fn is_mtu_known(&self) -> bool {
        self.mtu.is_known()
    }

    /// UDP payload that every path carries, in bytes.
    pub(crate) fn safe_datagram_size(&self) -> u16 {
        self.mtu.safe_size()
    }

    /// The size of the MTU probe that may be sent now, if one is due.
    pub(crate) fn due_mtu_probe(&self) -> Option<u16> {
        self.mtu.probe_due()
    }

    /// The mark that packets leave with.
    pub(crate) fn ecn_marking(&self) -> Option<Ecn> {
        self.ecn.marking()
    }

    pub(crate) fn is_ecn_capable(&self) -> bool {
        self.ecn.is_capable()
    }

    /// Whether the far end is proven, or needs no proof.
    pub(crate) fn is_validated(&self) -> bool {
        self.validated
    }

    /// Bytes that may be sent before the far end is proven; `u64::MAX` if there is no limit.
    pub(crate) fn amplification_budget(&self) -> u64 {
        self.amplification.budget()
    }

    /// Whether the amplification limit leaves room for a packet that says anything.
    pub(crate) fn leaves_room(&self) -> bool {
        self.amplification.leaves_room()
    }

    /// As [`max_datagram_size`](Self::max_datagram_size), as far as the amplification limit goes.
    pub(crate) fn sendable_datagram_size(&self) -> u64 {
        u64::from(self.mtu.current()).min(self.amplification.budget())
    }

    /// Whether a challenge or an answer waits, and may be sent.
    pub(crate) fn owes_proof(&self, now: Instant) -> bool {
        let validation = self.validation.as_ref();
        // RFC 9000, section 8.2.2: answers wait for nothing but congestion control. A peer that
        // acknowledges none of so many gets no more, or it could make us keep any number.
        let answers = !self.responses.is_empty() && self.proofs < MAX_PROOFS;
        (validation.is_some_and(|it| it.wants_challenge(now)) || answers)
            && self.amplification.leaves_room()
    }

    /// Whether one more packet of control frames may leave: they do not ask the window, and a peer
    /// that acknowledges nothing could make us keep any number otherwise.
    pub(crate) fn takes_control(&self) -> bool {
        let held = self.controller.window() / MIN_DATAGRAM_SIZE as u64;
        u64::from(self.control) < held.max(LEAST_CONTROL)
    }

    /// Counts a packet that left without asking the window.
    pub(super) fn count_beside_window(&mut self, what: Option<BesideWindow>) {
        match what {
            Some(BesideWindow::Proof) => self.proofs += 1,
            Some(BesideWindow::Control) => self.control += 1,
            None => {}
        }
    }

    /// None of these packets is in flight any more.
    pub(super) fn forget_beside_window(&mut self) {
        (self.proofs, self.control) = (0, 0);
    }

    /// A packet that left by this route is in flight no more.
    pub(super) fn take_off(&mut self, packet: &SentPacket) {
        if packet.in_flight {
            self.in_flight = self.in_flight.saturating_sub(u64::from(packet.size));
            match packet.beside_window {
                Some(BesideWindow::Proof) => self.proofs = self.proofs.saturating_sub(1),
                Some(BesideWindow::Control) => self.control = self.control.saturating_sub(1),
                None => {}
            }
        }
    }

    /// An earlier connection saw this of the route, which counts `until` then. Only before anything
    /// is sent there. What is not paced resumes nothing (RFC 9959, section 3.3).
    pub(super) fn resume(&mut self, memory: PathMemory, until: Instant) {
        if self.paced {
            self.controller.resume(memory, until);
        }
    }

    /// What a later connection may resume from, if the far end is proven and carried something.
    pub(crate) fn memory(&self) -> Option<PathMemory> {
        let bytes = self.controller.memorable().filter(|_| self.validated)?;
        PathMemory::new(bytes, self.rtt.min())
    }

    /// The peer takes no larger datagrams.
    pub(crate) fn set_peer_limit(&mut self, bytes: u64) {
        self.mtu.set_peer_limit(bytes);
    }

    /// Data may leave before the far end is proven: this is the route of a server's handshake.
    pub(crate) fn allow_early_data(&mut self) {
        self.carries_early_data = true;
    }

    /// Nobody is amplified at, although nothing is proven: the far end is our own choice.
    pub(crate) fn lift_amplification_limit(&mut self) {
        self.amplification.set_validated();
    }

    /// A datagram of this size came from the far end.
    pub(crate) fn on_datagram(&mut self, bytes: u64) {
        self.amplification.on_received(bytes);
    }

    /// Exchanges the ends of two routes, and what was proven of them. RTT, window, pacer, MTU
    /// and ECN stay, with the packets in flight that will change them.
    pub(crate) fn swap_far_end(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.tuple, &mut other.tuple);
        std::mem::swap(&mut self.local_address, &mut other.local_address);
        let lost = &mut self.lost_local_address;
        std::mem::swap(lost, &mut other.lost_local_address);
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
        self.validation = Some(Box::new(Validation::start(now, rng, pto)));
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
