//! Congestion control: how much may be in flight on one path.
//!
//! One controller per route. Events are structs, so that a new field breaks nobody. Coupling is
//! data passed in, never shared state: the connection snapshots its paths, marks those that share
//! a bottleneck, and hands the slice to the controller that got the acknowledgement. Pacing, MTU
//! discovery and the count of bytes in flight are not a controller's business.

mod balia;
mod bbr;
pub(crate) mod bottleneck;
mod cmt;
mod constant;
mod coupled;
mod cubic;
mod hystart;
mod least_rtt;
mod lia;
mod new_reno;
mod olia;
mod random_loss;
mod registry;
pub(crate) mod resume;
#[cfg(test)]
mod tests;
mod westwood;
mod window;
mod wvegas;

pub use bbr::Bbr;
pub(crate) use bottleneck::Bottlenecks;
pub use cubic::Cubic;
pub use new_reno::NewReno;
pub use registry::{Build, ControllerFactory, ControllerInit, Entry, ParamDoc, Registry};
pub use resume::PathMemory;

use crate::recovery::rate::RateSample;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use std::fmt::Debug;

/// A congestion controller (RFC 9002, section 7).
pub trait Controller: Debug + Send {
    /// A packet that counts as in flight was sent.
    fn on_sent(&mut self, _event: &SentEvent) {}

    /// One acknowledgement frame was processed.
    fn on_ack(&mut self, event: &AckEvent, group: &[Member]);

    /// Packets were declared lost, or ECN reported congestion. Called for each event; a controller
    /// reduces once per round (RFC 9002, section 7.3.2).
    fn on_congestion(&mut self, event: &CongestionEvent, group: &[Member]);

    /// Whether the controller looks at the members of its group. If not, it is shown an empty
    /// group, without even itself, which costs nothing to make.
    fn is_coupled(&self) -> bool {
        true
    }

    /// A loss turned out to be none: the packet was acknowledged after all. Called for each packet.
    fn on_spurious_loss(&mut self, _event: &SpuriousLoss) {}

    /// The path carries datagrams of this size from now on.
    fn on_mtu(&mut self, max_datagram_size: u16);

    /// The path answers again after it was doubted: start over with two packets in slow start and
    /// keep the slow-start threshold (CMT-PF2, RFC 7829).
    fn restart(&mut self, now: Instant);

    /// Nothing was in flight for longer than a time-out and something is about to be sent. For
    /// transports that then fall back to the first window (RFC 5681, section 4.1); in QUIC idle
    /// time is the pacer's to bridge (RFC 9002, section 7.8).
    fn on_idle(&mut self, _now: Instant) {}

    /// An earlier connection saw this of the path: when the path proves to be the same, the window
    /// may grow to half of it at once, `until` then (RFC 9959). Called before anything is sent, if
    /// at all. Controllers that are coupled, measure by themselves or stay constant need not care.
    fn resume(&mut self, _memory: PathMemory, _until: Instant) {}

    /// Bytes that the path carried in a round trip, if a later connection may
    /// [resume](Self::resume) from it.
    fn memorable(&self) -> Option<u64> {
        None
    }

    /// Congestion window, in bytes.
    fn window(&self) -> u64;

    /// Slow-start threshold, in bytes; `u64::MAX` in the first slow start.
    fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    /// The rate to pace at, in bytes per second, if the controller sets one; otherwise packets are
    /// spread over the smoothed RTT (RFC 9002, section 7.7).
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Whether packets sent before the latest reduction are still being accounted for.
    fn in_recovery(&self) -> bool {
        false
    }

    /// The phase the controller is in, for people and traces.
    fn phase(&self) -> &'static str {
        usual_phase(self)
    }

    /// Bytes sent between the last two losses, or since the last one if that is more: what OLIA
    /// compares paths by (draft-khalili-mptcp-congestion-control). 0 if not kept.
    fn bytes_between_losses(&self) -> u64 {
        0
    }

    /// Whether the path is left almost empty just now to measure its RTT: then its siblings do not
    /// do the same.
    fn is_probing_rtt(&self) -> bool {
        false
    }
}

/// The phase of a controller that has a window, a threshold and recovery.
fn usual_phase(controller: &(impl Controller + ?Sized)) -> &'static str {
    if controller.in_recovery() {
        "recovery"
    } else if controller.window() < controller.ssthresh() {
        "slow_start"
    } else {
        "congestion_avoidance"
    }
}

/// A packet was sent.
#[derive(Debug, Clone, Copy)]
pub struct SentEvent {
    /// When.
    pub now: Instant,
    /// The packet's size in bytes.
    pub bytes: u64,
    /// Bytes in flight on the path, this packet included.
    pub bytes_in_flight: u64,
    /// Whether the sender had nothing more to send on this path although there was room.
    pub app_limited: bool,
}

/// RTT estimates of the path (RFC 9002, section 5).
#[derive(Debug, Clone, Copy)]
pub struct RttView {
    /// The latest sample, of this acknowledgement or of one before.
    pub latest: Duration,
    /// The smallest sample.
    pub min: Duration,
    /// The moving average.
    pub smoothed: Duration,
}

/// An acknowledgement arrived.
#[derive(Debug, Clone, Copy)]
pub struct AckEvent {
    /// When.
    pub now: Instant,
    /// Bytes newly acknowledged that counted as in flight.
    pub bytes: u64,
    /// When the largest newly acknowledged packet was sent.
    pub largest_sent: Instant,
    /// Bytes in flight after the acknowledgement.
    pub bytes_in_flight: u64,
    /// Bytes in flight before the acknowledgement.
    pub prior_in_flight: u64,
    /// The RTT sample that it brought; none if it acknowledges only what is older than what was
    /// acknowledged before.
    pub rtt_sample: Option<Duration>,
    /// RTT estimates, this acknowledgement included.
    pub rtt: RttView,
    /// A delivery-rate sample, if one could be taken.
    pub rate: Option<RateSample>,
    /// Whether the sender had nothing more to send on this path although there was room, when it
    /// last looked: the window is not what limits it, and must not grow (RFC 9002, section 7.8).
    pub app_limited: bool,
}

/// Packets were lost, or marked.
#[derive(Debug, Clone, Copy)]
pub struct CongestionEvent {
    /// When it was noticed.
    pub now: Instant,
    /// When the last of the affected packets was sent.
    pub last_sent: Instant,
    /// Bytes lost; 0 for ECN.
    pub bytes_lost: u64,
    /// Bytes in flight after the loss was accounted for.
    pub bytes_in_flight: u64,
    /// Whether the path lost everything for longer than RFC 9002, section 7.6 allows.
    pub persistent: bool,
    /// Whether this came from ECN marks.
    pub ecn: bool,
    /// Bytes in flight right after the lost packet was sent (BBR learns its safe level from it).
    pub sent_in_flight: u64,
}

/// A packet was acknowledged that had been declared lost.
#[derive(Debug, Clone, Copy)]
pub struct SpuriousLoss {
    /// When it was acknowledged.
    pub now: Instant,
    /// The packet's size in bytes, which was part of [`CongestionEvent::bytes_lost`].
    pub bytes: u64,
    /// When it was declared lost: [`CongestionEvent::now`] of that loss.
    pub lost_at: Instant,
}

/// What a controller may see of each open path of the connection, its own included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// The path.
    pub path: PathId,
    /// Whether it is the path the event is about.
    pub is_self: bool,
    /// Congestion window in bytes.
    pub window: u64,
    /// Slow-start threshold in bytes.
    pub ssthresh: u64,
    /// Smoothed RTT; zero before the first sample.
    pub smoothed_rtt: Duration,
    /// See [`Controller::bytes_between_losses`].
    pub bytes_between_losses: u64,
    /// Whether the path has data to send; coupled increases leave idle paths out.
    pub active: bool,
    /// Whether it is known or assumed to have its bottleneck in common with the path the event is
    /// about: the group that controllers couple unless told otherwise.
    pub shares_bottleneck: bool,
    /// See [`Controller::is_probing_rtt`]. Never of a path that does not answer or has nothing in
    /// flight.
    pub probing_rtt: bool,
}
