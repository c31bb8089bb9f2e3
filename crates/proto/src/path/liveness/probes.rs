//! Probe time-outs, silence, and the packets they make the path owe.

use super::{Liveness, MAX_PROBE_INTERVAL, Sent, Surroundings, UnderWay, Verdict, Verdicts};
use crate::time::{Duration, Instant};

/// Backoff stops doubling here: 2^10 probe time-outs outlast any idle time-out.
pub(crate) const MAX_BACKOFF: u32 = 10;

/// Probe time-outs in which nothing is heard of a path while more and more is sent on it. The
/// time-out itself restarts with each packet, so that a trickle on the only path would put it off
/// until the window is full, and with it whatever else waits to be repeated.
const PATIENCE_WHILE_SENDING: u32 = 2;

impl Liveness {
    /// A packet left.
    pub(crate) fn on_sent(&mut self, now: Instant, sent: Sent) {
        self.last_activity = now;
        // What only asks again on a silent path does not put off the probe that repeats what is
        // missing there: an application that keeps pinging would keep it from leaving for ever.
        let counts = match sent {
            Sent::Unawaited => false,
            Sent::Question => self.pto_count == 0,
            Sent::Awaited => true,
        };
        if counts {
            self.pto_from = Some(now);
        }
    }

    /// Whether a probe is owed.
    pub(crate) fn owes_probe(&self) -> bool {
        self.probes_owed > 0
    }

    /// A probe is written.
    pub(crate) fn take_probe(&mut self) {
        self.probes_owed = self.probes_owed.saturating_sub(1);
    }

    /// Whether a PING is owed.
    pub(crate) fn owes_ping(&self) -> bool {
        self.ping_pending
    }

    /// Somebody wants to know whether the path answers.
    pub(crate) fn request_ping(&mut self) {
        self.ping_pending = true;
    }

    /// The PING is written.
    pub(crate) fn take_ping(&mut self) {
        self.ping_pending = false;
    }

    /// The path is given up: it owes nothing any more.
    pub(crate) fn on_closing(&mut self) {
        self.probes_owed = 0;
        self.take_ping();
    }

    /// A packet number space of the handshake is gone, and with it what was asked there.
    pub(crate) fn reset_backoff(&mut self) {
        self.pto_count = 0;
    }

    /// When to probe (RFC 9002, section 6.2). If others answer, the first probe means doubt, unless
    /// chance may explain it: a path that answers late gets the time it takes.
    pub(super) fn probe_deadline(&self, own: &UnderWay, around: &Surroundings) -> Option<Instant> {
        if own.loss_pending || !own.awaits {
            return None;
        }
        // Until the handshake is confirmed, the peer may be unable to read or acknowledge 1-RTT
        // packets.
        if self.owes_probe() || !around.confirmed {
            return None;
        }
        // A path may have rested since: then what is awaited left later.
        let oldest = own.oldest?;
        let sent = self.pto_from?.max(oldest);
        let wait = self.probe_wait(own.pto, sent, around.others_answer);
        let (usual, patience) = (sent + wait, wait * PATIENCE_WHILE_SENDING);
        // `None` sorts before any time.
        let heard = self.last_ack.max(self.last_pto);
        if heard.is_some_and(|heard| heard + patience >= usual) {
            return Some(usual);
        }
        let silent_since = heard.unwrap_or(oldest).max(oldest);
        Some(usual.min(silent_since + patience))
    }

    /// How long after `sent` the next probe is.
    fn probe_wait(&self, pto: Duration, sent: Instant, others: bool) -> Duration {
        if self.pto_count == 0 {
            return if others && self.is_trusted() {
                self.stalls.patience(sent, pto)
            } else {
                pto
            };
        }
        let wait = pto * (1 << self.pto_count.min(MAX_BACKOFF));
        // The probes of a path that others stand in for are lone PINGs that tell nothing about
        // congestion, and find soon that it works again. But a path that is slower than that must
        // get the time to answer: each probe would find the one before unanswered.
        if self.is_trusted() {
            wait
        } else {
            wait.min(MAX_PROBE_INTERVAL.max(pto))
        }
    }

    /// When the path has been silent for too long although it owes an acknowledgement and others
    /// answer.
    ///
    /// The probe time-out restarts with every packet sent, up to twice its length; this does not,
    /// so a path that swallows a steady stream is noticed after one time-out too. If several
    /// packets are late by then, half of it without a word is enough: the oldest packets of a full
    /// window were sent a round trip before the last acknowledgement. With fewer it may be that
    /// they are lost, and what a small window brings comes once in a round trip. A queue that grows
    /// makes packets late as well, but goes on to deliver. A path that stalled lately gets the
    /// whole time, and one that answered later than that lately the time it took.
    pub(super) fn silence_deadline(
        &self,
        own: &UnderWay,
        around: &Surroundings,
    ) -> Option<Instant> {
        if !around.others_answer || !self.is_trusted() || !own.validated {
            return None;
        }
        let oldest = own.oldest?;
        let heard = self.last_ack.max(self.spared_at);
        let heard = heard.map_or(oldest, |heard| heard.max(oldest));
        let usual = heard + self.stalls.patience(heard, own.pto);
        match own.third_oldest {
            Some(third) if !self.stalls.were_before(heard) => {
                let early = (heard + own.pto / 2).max(third + own.pto);
                Some(early.min(usual))
            }
            _ => Some(usual),
        }
    }

    /// When to ask a doubted path that has nothing in flight, and so no probe time-out: packets
    /// that were refused on the way out were perhaps none that elicit an acknowledgement, or are
    /// given up meanwhile. Unasked it would never be trusted again.
    pub(super) fn quiet_deadline(&self, own: &UnderWay) -> Option<Instant> {
        let since = self.doubted_since()?;
        let asked = own.last_sent.map_or(since, |last| last.max(since));
        Some(asked + MAX_PROBE_INTERVAL.max(own.pto))
    }

    /// Whether a time-out may be a loss by chance: no more than two packets are under way, nothing
    /// was put down to chance since the last acknowledgement, and since then and since they left a
    /// packet of the path came, which thus did more than acknowledge. Who mostly receives sends
    /// little that is acknowledged; to doubt the path for each such loss would send its
    /// acknowledgements around by others, which may be far.
    fn is_chance(&self, own: &UnderWay) -> bool {
        self.is_trusted()
            && self.spared_at.is_none()
            && own.third_oldest.is_none()
            && self.last_heard > own.last_sent.max(self.last_ack)
    }

    #[cold]
    pub(super) fn on_pto(
        &mut self,
        now: Instant,
        own: &UnderWay,
        around: &Surroundings,
        verdicts: &mut Verdicts,
    ) {
        self.pto_count += 1;
        self.last_pto = Some(now);
        self.answers_since = None;
        self.probes_owed = if around.others_answer { 1 } else { 2 };
        verdicts.push(Verdict::Probe);
        if around.others_answer {
            if self.is_chance(own) {
                self.spared_at = Some(now);
            } else {
                verdicts.extend(self.doubt(now, own.validated));
            }
        } else if self.is_inquiry_due(around) {
            verdicts.push(Verdict::Challenge);
        }
    }
}
