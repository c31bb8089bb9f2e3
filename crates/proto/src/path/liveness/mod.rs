//! Whether a path answers: the one state machine of silence (docs/failover.md).
//!
//! ```text
//! Trusted --PTO (the second, if the first may be chance), silence or a dead socket,
//!           while another path answers---------------------------------------> Doubted
//! Doubted --anything ack-eliciting acknowledged, or a challenge answered-----> Trusted
//! Doubted --silent for path_idle_timeout, or while data is missing-----------> abandoned
//! ```
//!
//! It knows one path. What it must know of the others comes in as [`Surroundings`], what is under
//! way on its own as [`UnderWay`]; what is to be done goes out as [`Verdict`]s, which the
//! connection carries out. It sends nothing and reads no clock.

mod detour;
mod gap;
mod inquiry;
mod probes;
mod rhythm;
mod stalls;
#[cfg(test)]
mod tests;

use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use detour::Detour;
use inquiry::Inquiry;
pub(crate) use probes::MAX_BACKOFF;
pub(crate) use rhythm::Rest;
use smallvec::SmallVec;
use stalls::Stalls;

/// The longest time between probes of a doubted path, so that a repaired path is back in use within
/// a second.
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// What the connection knows about the other paths and the streams.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Surroundings {
    /// Another path may carry data and is trusted.
    pub(crate) others_answer: bool,
    /// Several paths are open and in use on both sides.
    pub(crate) several: bool,
    /// When stream data came last, if several paths are open and what came waits behind a gap.
    pub(crate) last_data: Option<Instant>,
    /// Since when some trusted path, heard from after this one was doubted, has answered
    /// everything; asked for only if this one is doubted and data is missing.
    pub(crate) answering_since: Option<Instant>,
    /// When the first trusted path responded to the inquiry; asked for only if this one is asked.
    pub(crate) first_response: Option<Instant>,
    /// The handshake is confirmed: the peer can read and acknowledge 1-RTT packets.
    pub(crate) confirmed: bool,
    /// How long the path may rest before it is asked.
    pub(crate) keep_alive: Rest,
    /// How long a path may be doubted before it is given up.
    pub(crate) idle_timeout: Duration,
}

/// What is under way on the path itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnderWay {
    /// The probe time-out (RFC 9002, section 6.2.1) without backoff.
    pub(crate) pto: Duration,
    /// The far end is proven.
    pub(crate) validated: bool,
    /// A loss time is set: it comes before any probe.
    pub(crate) loss_pending: bool,
    /// Ack-eliciting packets are in flight.
    pub(crate) awaits: bool,
    /// When the oldest of them was sent.
    pub(crate) oldest: Option<Instant>,
    /// When the third-oldest of them was sent: if it is late, several are.
    pub(crate) third_oldest: Option<Instant>,
    /// When an ack-eliciting packet was sent last, whatever became of it.
    pub(crate) last_sent: Option<Instant>,
}

/// What the connection has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A probe time-out: the path owes probes now.
    Probe,
    /// Probed in vain, and no other path answers: challenge every path.
    Challenge,
    /// The path went silent: its data travels by others.
    Doubt,
    /// The first response to a challenge: doubt every path that is asked and has not responded.
    DoubtSilent,
    /// The path answers again, `after` this time; `was_slow` tells that it was never away.
    Trust { after: Duration, was_slow: bool },
    /// The path was silent for too long.
    Abandon,
}

/// What one input leads to, in order.
pub(crate) type Verdicts = SmallVec<[Verdict; 2]>;

/// What a deadline is for. In the order in which the connection names them if they coincide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    Probe,
    Silence,
    Inquiry,
    KeepAlive,
    Idle,
}

/// What a sent packet means for the silence that may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing: no acknowledgement is waited for. Challenges are such packets too, or a path that
    /// is asked again and again is never probed.
    Unawaited,
    /// The packet only asks: a PING that is no probe.
    Question,
    /// The packet must be acknowledged.
    Awaited,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Trusted,
    /// Potentially failed: probed, but no data is sent.
    Doubted {
        since: Instant,
    },
}

/// Silence and signs of life of one path.
#[derive(Debug)]
pub(crate) struct Liveness {
    health: Health,
    /// Probe time-outs since the last acknowledgement.
    pto_count: u32,
    /// Ack-eliciting packets owed to a probe time-out; they ignore the congestion window.
    probes_owed: u8,
    /// A PING is owed: keep-alive, missing data, or the application asked.
    ping_pending: bool,
    /// When a packet was last sent whose acknowledgement is waited for: the base of the PTO.
    pto_from: Option<Instant>,
    last_pto: Option<Instant>,
    /// When a time-out was put down to chance, since when nothing was acknowledged.
    spared_at: Option<Instant>,
    last_ack: Option<Instant>,
    /// When a packet of the path came last, by whichever route.
    last_heard: Option<Instant>,
    /// When a packet was last sent or received.
    last_activity: Instant,
    /// How long the peer let the path rest before it asked, unless we asked since.
    peers_rest: Option<Duration>,
    /// Since when it answers everything in time.
    answers_since: Option<Instant>,
    /// The path by which its acknowledgements came last.
    acks_came_by: Option<PathId>,
    /// How late it answers although it works.
    stalls: Stalls,
    inquiry: Inquiry,
    detour: Detour,
}

impl Liveness {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            health: Health::Trusted,
            pto_count: 0,
            probes_owed: 0,
            ping_pending: false,
            pto_from: None,
            last_pto: None,
            spared_at: None,
            last_ack: None,
            last_heard: None,
            last_activity: now,
            peers_rest: None,
            answers_since: None,
            acks_came_by: None,
            stalls: Stalls::default(),
            inquiry: Inquiry::None,
            detour: Detour::default(),
        }
    }

    /// Whether nothing speaks against sending data there.
    pub(crate) fn is_trusted(&self) -> bool {
        self.health == Health::Trusted
    }

    pub(crate) fn doubted_since(&self) -> Option<Instant> {
        match self.health {
            Health::Trusted => None,
            Health::Doubted { since } => Some(since),
        }
    }

    /// Probe time-outs since the last acknowledgement.
    pub(crate) fn pto_count(&self) -> u32 {
        self.pto_count
    }

    /// When the path was heard of last, by whichever way.
    pub(crate) fn last_ack(&self) -> Option<Instant> {
        self.last_ack
    }

    /// When a packet was last sent or received on the path.
    pub(crate) fn last_activity(&self) -> Instant {
        self.last_activity
    }

    /// The path by which its acknowledgements came last.
    pub(crate) fn acks_came_by(&self) -> Option<PathId> {
        self.acks_came_by
    }

    /// Since when it answers everything, if it was heard of after `doubt`.
    pub(crate) fn answers_since(&self, doubt: Instant) -> Option<Instant> {
        self.answers_since
            .filter(|_| self.last_ack.is_some_and(|ack| ack > doubt))
    }

    /// A packet was sent or received, or a time-out of the handshake was.
    pub(crate) fn on_activity(&mut self, now: Instant) {
        self.last_activity = now;
    }

    /// Packets of the path were acknowledged, the oldest of those that were awaited sent at
    /// `oldest`, where a probe time-out is `pto`.
    ///
    /// The path works in both directions (RFC 9002, section 6.2.1).
    pub(crate) fn on_acked(&mut self, now: Instant, oldest: Option<Instant>, pto: Duration) {
        if let Some(oldest) = oldest {
            let heard = self.last_ack.map_or(oldest, |heard| heard.max(oldest));
            self.stalls.on_answer(now, now.since(heard), pto);
        }
        self.last_ack = Some(now);
        self.spared_at = None;
        self.answers_since.get_or_insert(now);
        if self.pto_count > 0 {
            // What was asked during the silence has its full time from here on.
            self.pto_from = self.pto_from.map(|_| now);
        }
        self.pto_count = 0;
    }

    /// Ack-eliciting packets were among those acknowledged; `sent` are the times they left at.
    pub(crate) fn on_answered(
        &mut self,
        now: Instant,
        pto: Duration,
        sent: impl Iterator<Item = Instant> + Clone,
    ) -> Option<Verdict> {
        self.probes_owed = 0;
        let since = self.doubted_since()?;
        let was_slow = was_slow(now, since, pto, sent);
        self.trust(now, was_slow)
    }

    /// Notes the way an acknowledgement took; whether the one before took another.
    pub(crate) fn on_ack_by(&mut self, way: PathId) -> bool {
        let before = self.acks_came_by.replace(way);
        before.is_some_and(|before| before != way)
    }

    /// The time of [`deadline`](Self::deadline) may have come.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        own: &UnderWay,
        around: &Surroundings,
    ) -> Verdicts {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let mut verdicts = Verdicts::new();
        if due(self.idle_deadline(own, around)) || due(self.inquiry_deadline(own, around)) {
            verdicts.push(Verdict::Abandon);
            return verdicts;
        }
        if due(self.probe_deadline(own, around)) || due(self.silence_deadline(own, around)) {
            self.on_pto(now, own, around, &mut verdicts);
        }
        if due(self.ping_deadline(own, around)) {
            self.ping_pending = true;
            self.peers_rest = None;
        }
        verdicts
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do, and what.
    pub(crate) fn deadline(
        &self,
        own: &UnderWay,
        around: &Surroundings,
    ) -> Option<(Instant, Alarm)> {
        let mut first = None;
        let mut offer = |at: Option<Instant>, alarm: Alarm| {
            if let Some(at) = at
                && first.is_none_or(|first| (at, alarm) < first)
            {
                first = Some((at, alarm));
            }
        };
        if own.awaits {
            offer(self.probe_deadline(own, around), Alarm::Probe);
            offer(self.silence_deadline(own, around), Alarm::Silence);
        } else {
            offer(self.ping_deadline(own, around), Alarm::KeepAlive);
        }
        offer(self.inquiry_deadline(own, around), Alarm::Inquiry);
        offer(self.idle_deadline(own, around), Alarm::Idle);
        first
    }

    /// The driver was told that nothing passes, while another path answers.
    pub(crate) fn on_refused(&mut self, now: Instant, validated: bool) -> Option<Verdict> {
        self.doubt(now, validated)
    }

    /// Doubts the path, unless it is doubted already. One that is not proven yet is left to its
    /// validation.
    fn doubt(&mut self, now: Instant, validated: bool) -> Option<Verdict> {
        if !self.is_trusted() || !validated {
            return None;
        }
        self.health = Health::Doubted { since: now };
        self.answers_since = None;
        Some(Verdict::Doubt)
    }

    /// Ends the doubt, if there is any.
    fn trust(&mut self, now: Instant, was_slow: bool) -> Option<Verdict> {
        let since = self.doubted_since()?;
        self.health = Health::Trusted;
        if was_slow {
            self.stalls.on_slow(now);
        }
        let after = now.since(since);
        Some(Verdict::Trust { after, was_slow })
    }

    /// When a doubted path is given up, unless the inquiry gives it up first.
    fn idle_deadline(&self, own: &UnderWay, around: &Surroundings) -> Option<Instant> {
        let since = self.doubted_since()?;
        let idle = around.others_answer.then(|| since + around.idle_timeout);
        idle.into_iter()
            .chain(self.mend_deadline(own, around))
            .min()
    }

    /// When the path is asked although nothing is under way on it.
    fn ping_deadline(&self, own: &UnderWay, around: &Surroundings) -> Option<Instant> {
        if own.awaits || !own.validated || self.ping_pending {
            return None;
        }
        let wished = self.rest_deadline(around.keep_alive);
        let needed = self.gap_deadline(own, around);
        let doubted = self.quiet_deadline(own);
        wished.into_iter().chain(needed).chain(doubted).min()
    }
}

/// Whether a path doubted since then was slow and not dead: it answers what was sent before the
/// doubt.
///
/// The answer to a probe may tell of older packets too. If it comes soon, they were on their way or
/// the peer was slow to tell; if it comes later, they may have arrived before a silence in which
/// their acknowledgements were lost.
fn was_slow(
    now: Instant,
    since: Instant,
    pto: Duration,
    sent: impl Iterator<Item = Instant> + Clone,
) -> bool {
    let soon = now.since(since) < stalls::most(pto);
    let is_old = |time: Option<Instant>| time.is_some_and(|time| time < since);
    is_old(sent.clone().max()) || is_old(sent.min()) && soon
}
