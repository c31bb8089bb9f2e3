//! Losses: what they say about the path, and what to do if they were none (draft, section 5.5.10).

use super::cycle::State;
use super::model::BETA;
use super::{Bbr, Sample, ShortTerm};
use crate::congestion::{CongestionEvent, SpuriousLoss};
use crate::spec::{ParamDoc, Params, SpecError};
use crate::time::{Duration, Instant};

/// The share of loss that a probe may cause.
const LOSS_THRESHOLD: f64 = 0.02;
/// Packets that may be lost whatever share of all that is.
const SPARED_PACKETS: u64 = 2;
/// Batches of losses in a round that end Startup; fewer may be noise.
const STARTUP_LOSS_EVENTS: u32 = 6;
/// From this many times the lowest RTT on, a queue explains losses. It is what a probe for
/// bandwidth may cause by itself.
const QUEUE_SEEN: f64 = 1.25;
/// What each round leaves of the memory of a link's own losses.
const OWN_LOSS_MEMORY: f64 = 0.9;
/// Packets before which nothing is known of them.
const OWN_LOSS_PACKETS: u64 = 50;
/// Standard deviations by which a link's own losses may differ from their mean.
const OWN_LOSS_DEVIATIONS: f64 = 2.0;

/// Loss that a link causes whatever is sent, as radio does: no sign of congestion. Losses are taken
/// for such while the RTT shows no queue; while it does, as many as the link lost lately while it
/// was sent less than it carries, and the rate makes up for these. So who competes for a link keeps
/// its share, unless the buffer holds less than a third of the lowest RTT. And the RTT is not
/// probed as long as packets come back in the lowest one and a tenth of it: hardly anything queues
/// then.
pub(super) const RANDOM_LOSS: ParamDoc = ParamDoc {
    key: "random-loss",
    default: "0",
    summary: "percent of packets that may be lost without being taken for congestion while no \
              queue is seen: set twice what the link loses, or more",
};

/// How much loss is not taken for congestion, beside what a probe may cause.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tolerance {
    /// A share of what was sent; zero is what the draft asks for.
    share: f64,
}

impl Tolerance {
    pub(super) fn take(params: &mut Params) -> Result<Self, SpecError> {
        let percent = params.take_in(RANDOM_LOSS.key, 0.0, 0.0..=50.0)?;
        Ok(Self::of(percent))
    }

    /// Whether the link was named as one that loses at random.
    pub(super) fn is_set(self) -> bool {
        self.share > 0.0
    }

    pub(super) fn of(percent: f64) -> Self {
        Self {
            share: percent / 100.0,
        }
    }
}

/// What a link loses by itself: of what was sent below the bandwidth (`Down`) and while nothing
/// queued, so that no overflow of ours is among it, over the last such rounds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnLoss {
    lost: f64,
    arrived: f64,
    /// When the last packet of `Down` was sent; the first was when the cycle began.
    until: Option<Instant>,
    /// Whether this round said anything.
    has_news: bool,
}

impl OwnLoss {
    fn share(self, packet: u64) -> f64 {
        let sent = self.lost + self.arrived;
        let is_known = sent >= (OWN_LOSS_PACKETS * packet) as f64;
        if is_known { self.lost / sent } else { 0.0 }
    }

    fn note(&mut self, lost: u64, arrived: u64) {
        self.lost += lost as f64;
        self.arrived += arrived as f64;
        self.has_news = true;
    }

    /// Bytes that were taken for lost arrived after all.
    fn take_back(&mut self, bytes: u64) {
        let bytes = self.lost.min(bytes as f64);
        self.lost -= bytes;
        self.arrived += bytes;
    }

    fn start_round(&mut self) {
        if std::mem::take(&mut self.has_news) {
            self.lost *= OWN_LOSS_MEMORY;
            self.arrived *= OWN_LOSS_MEMORY;
        }
    }
}

/// Losses of the round and of the recovery period in progress.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    /// The loss round, if any loss was noticed: a round trip that starts with the first one.
    pub(super) in_round: Option<LossRound>,
    /// Bytes lost and batches of losses since the round started.
    bytes: u64,
    events: u32,
    /// Whether the round before had losses as well.
    round_before: bool,
    /// When the recovery period in progress started.
    recovery: Option<Instant>,
    last_loss_delivered: u64,
    between: u64,
    own: OwnLoss,
    undo: Option<Undo>,
}

/// What was noticed since the first loss of a loss round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossRound {
    bytes_lost: u64,
    /// Those lost while packets queued.
    queued: u64,
    /// Whether routers marked packets: that is congestion, however little was lost.
    marked: bool,
}

/// The state before the losses, to return to if there were none.
#[derive(Debug, Clone, Copy)]
struct Undo {
    state: Option<State>,
    short_term: ShortTerm,
    inflight_longterm: u64,
    /// When the round of losses began: those found before it belong to another one.
    made_at: Instant,
    bytes_lost: u64,
}

impl Losses {
    pub(super) fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    pub(super) fn bytes_between(&self, delivered: u64) -> u64 {
        self.between
            .max(delivered.saturating_sub(self.last_loss_delivered))
    }

    pub(super) fn start_round(&mut self) {
        self.round_before = self.events > 0;
        (self.bytes, self.events) = (0, 0);
        self.own.start_round();
    }
}

impl Bbr {
    fn is_too_high(&self, lost: u64, in_flight: u64) -> bool {
        self.is_beyond(lost, in_flight, self.loss_threshold())
    }

    fn is_beyond(&self, lost: u64, sent: u64, share: f64) -> bool {
        lost > SPARED_PACKETS * self.mds && self.exceeds(lost, sent, share)
    }

    /// Whether more than this share was lost, and more than chance makes of the link's own losses.
    fn exceeds(&self, lost: u64, sent: u64, share: f64) -> bool {
        let deviation = (self.own_loss() * sent as f64 * self.mds as f64).sqrt();
        lost as f64 > sent as f64 * share + OWN_LOSS_DEVIATIONS * deviation
    }

    /// The share of loss from which on a probe went too far.
    fn loss_threshold(&self) -> f64 {
        LOSS_THRESHOLD
            + if self.is_queue_seen() {
                self.own_loss()
            } else {
                self.tolerance.share
            }
    }

    /// The share that the link loses by itself, as far as that is tolerated.
    pub(super) fn own_loss(&self) -> f64 {
        self.losses.own.share(self.mds).min(self.tolerance.share)
    }

    /// How much must be sent for a byte to arrive, while nothing queues.
    pub(super) fn sent_for_one(&self) -> f64 {
        if self.is_queue_seen() {
            1.0
        } else {
            1.0 / (1.0 - self.own_loss())
        }
    }

    /// A packet leaves, which may show what the link loses by itself.
    pub(super) fn on_leaving(&mut self, now: Instant) {
        if self.state == State::Down {
            self.losses.own.until = Some(now);
        }
    }

    /// Whether what was sent then tells what the link loses by itself.
    fn shows_own_loss(&self, sent: Instant) -> bool {
        let until = self.losses.own.until;
        let is_below = self.cycle_started <= sent && until.is_some_and(|until| sent <= until);
        is_below && !self.is_queue_seen()
    }

    pub(super) fn on_arrived(&mut self, sent: Instant, bytes: u64) {
        if self.shows_own_loss(sent) {
            self.losses.own.note(0, bytes);
        }
    }

    /// Whether packets wait somewhere: then losses are of those that found no room.
    fn is_queue_seen(&self) -> bool {
        let least = self.min_rtt.unwrap_or(Duration::MAX).as_secs_f64();
        self.rtt.as_secs_f64() > least * QUEUE_SEEN
    }

    /// Whether more was lost in this round than the link loses by itself.
    pub(super) fn is_round_congested(&self) -> bool {
        self.losses.in_round.is_some_and(|round| {
            let sent = self.latest.inflight.saturating_add(round.bytes_lost);
            round.marked
                || self.exceeds(round.bytes_lost, sent, self.tolerance.share)
                || self.is_beyond(round.queued, sent, LOSS_THRESHOLD + self.own_loss())
        })
    }

    pub(super) fn on_loss(&mut self, event: &CongestionEvent) {
        self.enter_recovery(event);
        if self.losses.in_round.is_none() {
            self.latest.round_ends_at_delivered = self.delivered;
            self.losses.undo = Some(Undo {
                state: None,
                short_term: self.short_term,
                inflight_longterm: self.inflight_longterm,
                made_at: event.now,
                bytes_lost: 0,
            });
        }
        if self.shows_own_loss(event.last_sent) && !event.persistent {
            self.losses.own.note(event.bytes_lost, 0);
        }
        let queued = if self.is_queue_seen() {
            event.bytes_lost
        } else {
            0
        };
        let round = self.losses.in_round.get_or_insert_default();
        round.bytes_lost = round.bytes_lost.saturating_add(event.bytes_lost);
        round.queued = round.queued.saturating_add(queued);
        round.marked |= event.ecn;
        self.losses.bytes = self.losses.bytes.saturating_add(event.bytes_lost);
        self.losses.events = self.losses.events.saturating_add(1);
        if let Some(undo) = &mut self.losses.undo {
            undo.bytes_lost = undo.bytes_lost.saturating_add(event.bytes_lost);
        }
        if event.ecn {
            self.losses.undo = None;
        }
        let sent_in_flight = event.sent_in_flight.max(event.bytes_lost);
        let too_high = event.ecn || self.is_too_high(self.losses.bytes, sent_in_flight);
        if self.is_probe_sample && too_high {
            let limit = self.in_flight_at_threshold(sent_in_flight, event.bytes_lost);
            self.on_inflight_too_high(event.now, limit, false);
        }
        if event.persistent {
            self.losses.undo = None;
            self.save_window();
            self.window = (event.bytes_in_flight + self.mds).max(super::minimum_window(self.mds));
        }
    }

    fn enter_recovery(&mut self, event: &CongestionEvent) {
        if self
            .losses
            .recovery
            .is_some_and(|started| event.last_sent <= started)
        {
            return;
        }
        self.save_window();
        self.losses.between = self
            .delivered
            .saturating_sub(self.losses.last_loss_delivered);
        self.losses.last_loss_delivered = self.delivered;
        self.losses.recovery = Some(event.now);
    }

    /// Recovery ends when something sent after its start arrives; the model bounds the window
    /// again.
    pub(super) fn end_recovery(&mut self, largest_sent: Instant) {
        if self
            .losses
            .recovery
            .is_some_and(|started| largest_sent > started)
        {
            self.losses.recovery = None;
            self.restore_window();
        }
    }

    /// At which bytes in flight the share of loss passed the threshold: somewhere within the batch.
    fn in_flight_at_threshold(&self, sent_in_flight: u64, batch: u64) -> u64 {
        let before = sent_in_flight.saturating_sub(batch) as f64;
        let lost_before = self.losses.bytes.saturating_sub(batch) as f64;
        let threshold = self.loss_threshold();
        let prefix = (threshold * before - lost_before) / (1.0 - threshold);
        (before + prefix.max(0.0)) as u64
    }

    pub(super) fn is_inflight_too_high(&self, sample: &Sample) -> bool {
        self.is_too_high(sample.lost, sample.in_flight_at_send)
    }

    /// The probe went too far: remember where, and stop it.
    pub(super) fn on_inflight_too_high(&mut self, now: Instant, limit: u64, app_limited: bool) {
        self.prev_probe_too_high = true;
        self.is_probe_sample = false;
        if !app_limited {
            let target = self.bdp(1.0).min(self.window);
            self.inflight_longterm = limit.max((target as f64 * BETA) as u64);
        }
        if self.state == State::Up {
            if let Some(undo) = &mut self.losses.undo {
                undo.state = Some(State::Up);
            }
            self.start_down(now);
        }
    }

    /// At the end of a round: Startup is over if the round lost too much, in more than a burst, and
    /// was not the first one to lose.
    pub(super) fn check_startup_loss(&mut self) {
        let Losses {
            bytes,
            events,
            round_before,
            ..
        } = self.losses;
        let in_flight = self.latest.inflight.saturating_add(bytes);
        if self.state != State::Startup
            || !round_before
            || events < STARTUP_LOSS_EVENTS
            || !self.is_too_high(bytes, in_flight)
        {
            return;
        }
        if let Some(undo) = &mut self.losses.undo {
            undo.state = Some(State::Startup);
        }
        self.full.reached = true;
        self.inflight_longterm = self.bdp(1.0).max(self.latest.inflight);
    }

    /// One lost packet arrived after all; once all did, the losses never happened.
    pub(super) fn undo_loss(&mut self, event: &SpuriousLoss) {
        self.losses.own.take_back(event.bytes);
        let undo = self.losses.undo.as_mut();
        let Some(undo) = undo.filter(|undo| event.lost_at >= undo.made_at) else {
            return;
        };
        undo.bytes_lost = undo.bytes_lost.saturating_sub(event.bytes);
        if undo.bytes_lost > 0 {
            return;
        }
        let undo = *undo;
        self.losses.undo = None;
        self.losses.in_round = None;
        self.losses.recovery = None;
        self.restore_window();
        self.full.reset(0);
        self.short_term.bw = self.short_term.bw.max(undo.short_term.bw);
        self.short_term.inflight = self.short_term.inflight.max(undo.short_term.inflight);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match (undo.state, self.state) {
            (_, State::ProbeRtt) | (None, _) => {}
            (Some(State::Startup), state) if state != State::Startup => {
                self.full.reached = false;
                self.state = State::Startup;
            }
            (Some(State::Up), state) if state != State::Up => self.start_refill(),
            _ => {}
        }
    }
}
