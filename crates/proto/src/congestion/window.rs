//! What the loss-based controllers share: slow start, recovery periods, taking a reduction back,
//! and resuming what an earlier connection knew.

use super::resume::{CarefulResume, PathMemory, Step, after_retreat, is_memorable};
use super::{
    AckEvent, CongestionEvent, Controller, ControllerInit, Member, SentEvent, SpuriousLoss,
    usual_phase,
};
use crate::spec::{ParamDoc, Params, SpecError};
use crate::time::{Duration, Instant};
use std::fmt::Debug;

/// The window a path starts with: that of RFC 9002, section 7.2, or so many packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct InitialWindow {
    packets: Option<u64>,
}

impl InitialWindow {
    /// Every controller takes it.
    pub(super) const DOC: ParamDoc = ParamDoc {
        key: "initial-window",
        default: "10",
        summary: "packets in the first window; unless given at most 14720 bytes (RFC 9002)",
    };

    pub(super) fn take(params: &mut Params) -> Result<Self, SpecError> {
        let packets = params.take_in(Self::DOC.key, 0, 1..=100_000)?;
        Ok(Self {
            packets: (packets > 0).then_some(packets),
        })
    }

    pub(super) fn bytes(self, max_datagram_size: u64) -> u64 {
        match self.packets {
            Some(packets) => packets * max_datagram_size,
            None => (10 * max_datagram_size).min((2 * max_datagram_size).max(14_720)),
        }
    }
}

/// The smallest window (RFC 9002, section 7.2).
pub(super) fn minimum_window(max_datagram_size: u64) -> u64 {
    2 * max_datagram_size
}

/// A controller with a [`Window`]: it decides by how much that grows and shrinks. Each is a
/// [`Controller`].
pub(super) trait LossBased: Debug + Send {
    fn base(&self) -> &Window;
    fn base_mut(&mut self) -> &mut Window;

    /// See [`Controller::on_ack`].
    fn grow(&mut self, event: &AckEvent, group: &[Member]);

    /// See [`Controller::on_congestion`].
    fn shrink(&mut self, event: &CongestionEvent, group: &[Member]);

    /// See [`Controller::is_coupled`].
    fn is_coupled(&self) -> bool {
        true
    }

    /// So many bytes that were declared lost arrived after all.
    fn on_late_arrival(&mut self, _bytes: u64) {}

    /// The latest reduction was taken back.
    fn undo(&mut self) {}

    /// What the controller keeps beside the window is about another window now: the path starts
    /// over, or its datagrams have another size.
    fn start_over(&mut self) {}
}

impl<T: LossBased> Controller for T {
    fn on_sent(&mut self, event: &SentEvent) {
        self.base_mut().on_sent(event);
    }

    /// Coupled windows resume nothing: what one of them may hold depends on the others.
    fn resume(&mut self, memory: PathMemory, until: Instant) {
        if !LossBased::is_coupled(self) {
            let window = self.base_mut();
            window.resume.begin(memory, until, window.size);
        }
    }

    fn memorable(&self) -> Option<u64> {
        let is_coupled = LossBased::is_coupled(self);
        self.base().memorable().filter(|_| !is_coupled)
    }

    fn on_ack(&mut self, event: &AckEvent, group: &[Member]) {
        self.grow(event, group);
    }

    fn on_congestion(&mut self, event: &CongestionEvent, group: &[Member]) {
        self.shrink(event, group);
    }

    fn is_coupled(&self) -> bool {
        LossBased::is_coupled(self)
    }

    fn on_spurious_loss(&mut self, event: &SpuriousLoss) {
        self.on_late_arrival(event.bytes);
        if self.base_mut().on_spurious_loss(event) {
            self.undo();
        }
    }

    fn on_mtu(&mut self, max_datagram_size: u16) {
        self.base_mut().on_mtu(max_datagram_size);
        self.start_over();
    }

    fn restart(&mut self, now: Instant) {
        self.base_mut().restart(now);
        self.start_over();
    }

    fn on_idle(&mut self, _now: Instant) {
        self.base_mut().on_idle();
        self.start_over();
    }

    fn window(&self) -> u64 {
        self.base().size
    }

    fn ssthresh(&self) -> u64 {
        self.base().ssthresh
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.base().resume.pacing_rate()
    }

    fn in_recovery(&self) -> bool {
        self.base().in_recovery()
    }

    fn phase(&self) -> &'static str {
        let resuming = self.base().resume.name();
        resuming.unwrap_or_else(|| usual_phase(self))
    }

    fn bytes_between_losses(&self) -> u64 {
        self.base().bytes_between_losses()
    }
}

/// A congestion window with its slow-start threshold and recovery period.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Bytes of the largest datagram.
    pub(super) mds: u64,
    /// Congestion window in bytes.
    pub(super) size: u64,
    /// Slow-start threshold in bytes.
    pub(super) ssthresh: u64,
    initial: InitialWindow,
    /// When the latest reduction was made. Packets sent until then neither reduce nor grow the
    /// window.
    reduced_at: Option<Instant>,
    recovering: bool,
    /// Numerator of growth that is not a whole byte yet.
    credit: u64,
    since_loss: u64,
    between_losses: u64,
    undo: Option<Undo>,
    resume: CarefulResume,
}

/// What to return to if all losses of a recovery period turn out to be none.
#[derive(Debug, Clone, Copy)]
struct Undo {
    size: u64,
    ssthresh: u64,
    reduced_at: Option<Instant>,
    /// When the reduction was made: losses found before it belong to another one.
    made_at: Instant,
    bytes_lost: u64,
}

impl Window {
    pub(super) fn new(max_datagram_size: u16) -> Self {
        Self::with_initial(max_datagram_size, InitialWindow::default())
    }

    /// The window of a new route, of the size that was asked for.
    pub(super) fn build(params: &mut Params, init: &ControllerInit) -> Result<Self, SpecError> {
        let initial = InitialWindow::take(params)?;
        Ok(Self::with_initial(init.max_datagram_size, initial))
    }

    fn with_initial(max_datagram_size: u16, initial: InitialWindow) -> Self {
        let mds = u64::from(max_datagram_size);
        Self {
            mds,
            size: initial.bytes(mds),
            ssthresh: u64::MAX,
            initial,
            reduced_at: None,
            recovering: false,
            credit: 0,
            since_loss: 0,
            between_losses: 0,
            undo: None,
            resume: CarefulResume::default(),
        }
    }

    fn on_sent(&mut self, sent: &SentEvent) {
        if let Some(size) = self.resume.on_sent(sent, self.mds) {
            self.size = size;
        }
    }

    /// Accounts for an acknowledgement and returns the bytes that count: none during recovery, none
    /// if the window was not the limit, and none that a resumed window holds back.
    pub(super) fn on_ack(&mut self, ack: &AckEvent) -> u64 {
        self.since_loss = self.since_loss.saturating_add(ack.bytes);
        match self.resume.on_ack(ack, self.size) {
            Step::Grow => {}
            Step::Hold => return 0,
            Step::Set(size) => {
                self.size = size;
                return 0;
            }
            Step::LimitSlowStart(limit) => self.ssthresh = limit.max(minimum_window(self.mds)),
        }
        if self.reduced_at.is_some_and(|at| ack.largest_sent <= at) {
            return 0;
        }
        self.recovering = false;
        if ack.app_limited { 0 } else { ack.bytes }
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.size < self.ssthresh
    }

    /// Grows by `bytes`, up to the threshold, and returns what is left for congestion avoidance.
    pub(super) fn slow_start(&mut self, bytes: u64) -> u64 {
        let step = bytes.min(self.ssthresh.saturating_sub(self.size));
        self.size = self.size.saturating_add(step);
        bytes - step
    }

    /// Grows by one datagram per window of bytes acknowledged (RFC 9002, section 7.3.3); what is
    /// not a whole byte yet is kept for the next call.
    pub(super) fn avoid_congestion(&mut self, acked: u64) {
        let window = self.size.max(1);
        self.credit = self.credit.saturating_add(self.mds.saturating_mul(acked));
        self.size = self.size.saturating_add(self.credit / window);
        self.credit %= window;
    }

    /// Reduces to `factor` of the window, once per round. Returns the window before the reduction,
    /// or `None` if the affected packets were sent before the previous one.
    pub(super) fn reduce(&mut self, event: &CongestionEvent, factor: f64) -> Option<u64> {
        self.reduce_to(event, self.size as f64 * factor)
    }

    /// Reduces to `target` bytes or the smallest window, otherwise as [`reduce`](Self::reduce). The
    /// window before is what the path has carried, if it was resumed and that is less.
    pub(super) fn reduce_to(&mut self, event: &CongestionEvent, target: f64) -> Option<u64> {
        let retreat = self.resume.on_congestion(event);
        let before = retreat.map_or(self.size, |pipe| pipe.min(self.size));
        let target = target as u64;
        let target = retreat.map_or(target, |pipe| target.min(after_retreat(pipe)));
        let fresh = self.reduced_at.is_none_or(|at| event.last_sent > at);
        if fresh {
            let (size, ssthresh) = (self.size, self.ssthresh);
            self.undo = Some(Undo {
                size,
                ssthresh,
                reduced_at: self.reduced_at,
                made_at: event.now,
                bytes_lost: event.bytes_lost,
            });
            self.between_losses = std::mem::take(&mut self.since_loss);
            self.ssthresh = target.max(minimum_window(self.mds));
            self.size = self.ssthresh;
            self.reduced_at = Some(event.now);
            self.recovering = true;
            self.credit = 0;
        } else if let Some(undo) = &mut self.undo {
            undo.bytes_lost = undo.bytes_lost.saturating_add(event.bytes_lost);
        }
        if event.ecn || retreat.is_some() {
            self.undo = None;
        }
        if event.persistent {
            self.size = minimum_window(self.mds);
            self.reduced_at = None;
            self.recovering = false;
            self.undo = None;
        }
        fresh.then_some(before)
    }

    /// Whether the latest reduction stands and was made for losses alone, as far as is known.
    pub(super) fn is_reduced_for_losses(&self) -> bool {
        self.undo.is_some()
    }

    /// The latest reduction should have left no more than `target` bytes, or the smallest window.
    pub(super) fn shrink_to(&mut self, target: f64) {
        let target = (target as u64).max(minimum_window(self.mds));
        self.size = self.size.min(target);
        self.ssthresh = self.ssthresh.min(target);
    }

    /// Leaves the window as it is: the loss was no sign of congestion. False if it must count all
    /// the same, since the window was resumed and the path has not carried it yet (RFC 9959).
    pub(super) fn ignore_loss(&mut self, event: &CongestionEvent) -> bool {
        if !self.resume.is_settled() {
            return false;
        }
        // Nor does the window jump after a loss.
        self.resume.end();
        // What arrives after all must not pass for a packet that the reduction rests on.
        if let Some(undo) = &mut self.undo {
            undo.bytes_lost = undo.bytes_lost.saturating_add(event.bytes_lost);
        }
        true
    }

    /// One lost packet arrived after all. Once all that the latest reduction rests on did, takes it
    /// back and returns true.
    pub(super) fn on_spurious_loss(&mut self, event: &SpuriousLoss) -> bool {
        let undo = self.undo.as_mut();
        let Some(undo) = undo.filter(|undo| event.lost_at >= undo.made_at) else {
            return false;
        };
        undo.bytes_lost = undo.bytes_lost.saturating_sub(event.bytes);
        if undo.bytes_lost > 0 {
            return false;
        }
        self.size = self.size.max(undo.size);
        self.ssthresh = self.ssthresh.max(undo.ssthresh);
        // What was sent before it may grow the window, and reduce it, as if it had not been.
        self.reduced_at = undo.reduced_at;
        self.recovering = false;
        self.undo = None;
        true
    }

    pub(super) fn on_mtu(&mut self, max_datagram_size: u16) {
        let untouched = self.ssthresh == u64::MAX && self.size == self.initial.bytes(self.mds);
        self.mds = u64::from(max_datagram_size);
        let floor = if untouched {
            self.initial.bytes(self.mds)
        } else {
            minimum_window(self.mds)
        };
        self.size = if untouched {
            floor
        } else {
            self.size.max(floor)
        };
    }

    /// Two packets, in slow start. What was sent before says nothing about the path as it is now.
    pub(super) fn restart(&mut self, now: Instant) {
        self.resume.end();
        self.size = minimum_window(self.mds);
        self.ssthresh = self.ssthresh.max(self.size);
        // What leaves at this very instant is sent after it.
        self.reduced_at = Some(now - Duration::from_nanos(1));
        self.recovering = false;
        self.credit = 0;
        self.undo = None;
    }

    /// The first window, if the window is larger (RFC 5681, section 4.1). The threshold stays.
    fn on_idle(&mut self) {
        self.resume.end();
        self.size = self.size.min(self.initial.bytes(self.mds));
        self.credit = 0;
        self.undo = None;
    }

    /// Bytes that the path carried in a round trip, if that is worth remembering: of a window in
    /// slow start half is yet to arrive (RFC 9959, section 4.1).
    fn memorable(&self) -> Option<u64> {
        let carried = if self.in_slow_start() {
            self.size / 2
        } else {
            self.size
        };
        let is_known = self.resume.is_settled() && !self.recovering;
        let initial = self.initial.bytes(self.mds);
        (is_known && is_memorable(carried, initial)).then_some(carried)
    }

    pub(super) fn in_recovery(&self) -> bool {
        self.recovering
    }

    pub(super) fn bytes_between_losses(&self) -> u64 {
        self.between_losses.max(self.since_loss)
    }
}
