//! When a link does more harm than good.
//!
//! ```text
//! trusted ────────> in quarantine: it fell silent three times in a minute, or lost a fifth of the
//!                   packets of a direction for ten seconds
//!         <──────── after half a minute; twice as long after each further time, 16 minutes at most
//! ```
//! A link that fails again and again costs each time what it takes to notice, and one that loses
//! much holds up whatever is put in order behind it: both can be slower than no link. A link in
//! quarantine stands by, so it is used if no other works. It is put aside only if another works:
//! nothing would be gained otherwise. What it does meanwhile counts for nothing, as hardly anything
//! is sent over it. Ten minutes without another quarantine, and it is trusted as on the first day.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::time::Duration;

/// The time for which conduct is added up.
const SPAN: Duration = Duration::from_secs(5);

/// Spans in which failures count.
const SPANS: usize = 12;

/// How often a link may fall silent in these spans; one time more is too often.
const SILENCES: u64 = 2;

/// Spans in which losses count: more than one, so that a burst is none.
const LOSSY_SPANS: usize = 2;

/// Packets in these spans below which a share of them says little.
const ENOUGH: u64 = 200;

/// The share of packets that is too much to lose, in percent. Congestion control keeps to far less.
const LOSS: u64 = 20;

/// How long the first quarantine lasts, and the longest one.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(960);

/// How long a link has to be out of quarantine for the next one to be short again.
const REFORMED: Duration = Duration::from_secs(600);

/// What a link did in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conduct {
    /// How often it fell silent.
    pub silences: u64,
    /// What was sent from here.
    pub sent: Packets,
    /// What was sent here.
    pub received: Packets,
}

/// Packets in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packets {
    /// All that were sent.
    pub sent: u64,
    /// How many of these were lost.
    pub lost: u64,
}

impl Conduct {
    /// What of this came after `before`, if both count from the same time.
    pub fn since(self, before: Self) -> Self {
        let packets = |now: Packets, before: Packets| Packets {
            sent: now.sent.saturating_sub(before.sent),
            lost: now.lost.saturating_sub(before.lost),
        };
        Self {
            silences: self.silences.saturating_sub(before.silences),
            sent: packets(self.sent, before.sent),
            received: packets(self.received, before.received),
        }
    }
}

impl AddAssign for Packets {
    fn add_assign(&mut self, more: Self) {
        self.sent += more.sent;
        self.lost += more.lost;
    }
}

impl AddAssign for Conduct {
    fn add_assign(&mut self, more: Self) {
        self.silences += more.silences;
        self.sent += more.sent;
        self.received += more.received;
    }
}

/// What a link is in quarantine for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// The link fell silent this many times in a minute.
    Silent(u64),
    /// The link lost this percentage of packets in one direction for ten seconds.
    Lossy(u64),
}

/// Whether a link is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quarantine {
    /// The latest spans, the running one last.
    spans: VecDeque<Conduct>,
    /// How long the running span has lasted.
    lasted: Duration,
    /// For what it is in quarantine, and for how much longer.
    now: Option<(Harm, Duration)>,
    /// Quarantines since it was last trusted without reserve.
    before: u32,
    /// How long it has been out of the last one.
    free_for: Duration,
}

impl Quarantine {
    /// Adds what the link did in `time`; `has_other` if another link, not in quarantine, works.
    /// Returns whether a quarantine has begun or ended.
    pub fn look(&mut self, conduct: Conduct, time: Duration, has_other: bool) -> bool {
        if let Some((_, left)) = &mut self.now {
            *left = left.saturating_sub(time);
            if !left.is_zero() {
                return false;
            }
            *self = Self {
                before: self.before,
                ..Self::default()
            };
            return true;
        }
        self.note(conduct, time);
        if !has_other {
            return false;
        }
        self.now = self.harm().map(|harm| (harm, self.term()));
        let begins = self.now.is_some();
        self.before += u32::from(begins);
        begins
    }

    /// What the link is in quarantine for, and for how much longer.
    pub fn now(&self) -> Option<(Harm, Duration)> {
        self.now
    }

    /// Whether the link has no record of misbehaviour, so that nothing has to be remembered of it.
    pub fn is_clean(&self) -> bool {
        self.now.is_none() && self.before == 0 && self.spans.iter().all(|span| span.silences == 0)
    }

    fn note(&mut self, conduct: Conduct, time: Duration) {
        self.free_for += time;
        if self.free_for >= REFORMED {
            self.before = 0;
        }
        self.lasted += time;
        if self.lasted >= SPAN || self.spans.is_empty() {
            self.lasted = Duration::ZERO;
            self.spans.push_back(Conduct::default());
            if self.spans.len() > SPANS {
                self.spans.pop_front();
            }
        }
        if let Some(span) = self.spans.back_mut() {
            *span += conduct;
        }
    }

    fn harm(&self) -> Option<Harm> {
        let silences = self.spans.iter().map(|span| span.silences).sum();
        if silences > SILENCES {
            return Some(Harm::Silent(silences));
        }
        let lossy = |of: fn(&Conduct) -> Packets| self.loss(of).map(Harm::Lossy);
        lossy(|span| span.sent).or_else(|| lossy(|span| span.received))
    }

    /// The percentage of packets of a direction that was lost, if it was too much for long.
    fn loss(&self, of: fn(&Conduct) -> Packets) -> Option<u64> {
        // The running span is left out: what was lost in it may be a burst.
        let spans = self.spans.iter().rev().skip(1).take(LOSSY_SPANS).map(of);
        let mut all = Packets::default();
        let mut count = 0;
        for span in spans {
            if span.lost * 100 < span.sent * LOSS {
                return None;
            }
            all += span;
            count += 1;
        }
        (count == LOSSY_SPANS && all.sent >= ENOUGH).then(|| all.lost * 100 / all.sent)
    }

    /// How long the next quarantine lasts.
    fn term(&self) -> Duration {
        let doubled = 2u32.checked_pow(self.before).unwrap_or(u32::MAX);
        FIRST.saturating_mul(doubled).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);

    /// A link that behaves like this for so many seconds; how long until its state changed.
    fn after(link: &mut Quarantine, conduct: Conduct, seconds: u32) -> Option<Duration> {
        let ticks = seconds * 4;
        (1..=ticks)
            .find(|_| link.look(conduct, TICK, true))
            .map(|tick| TICK * tick)
    }

    fn sent(sent: u64, lost: u64) -> Conduct {
        Conduct {
            sent: Packets { sent, lost },
            ..Conduct::default()
        }
    }

    fn silent() -> Conduct {
        Conduct {
            silences: 1,
            ..Conduct::default()
        }
    }

    #[test]
    fn a_link_that_falls_silent_a_third_time_within_a_minute_is_put_aside() {
        let mut link = Quarantine::default();
        for _ in 0..2 {
            assert!(!link.look(silent(), TICK, true));
            assert_eq!(after(&mut link, sent(10, 0), 20), None);
        }
        assert!(link.look(silent(), TICK, true));
        let (harm, left) = link.now().unwrap();
        assert_eq!((harm, left), (Harm::Silent(3), FIRST));
    }

    #[test]
    fn a_link_that_falls_silent_seldom_is_trusted() {
        let mut link = Quarantine::default();
        for _ in 0..20 {
            assert!(!link.look(silent(), TICK, true));
            assert_eq!(after(&mut link, sent(10, 0), 31), None);
        }
    }

    #[test]
    fn losses_count_if_they_last_and_are_of_many_packets() {
        let mut link = Quarantine::default();
        assert_eq!(after(&mut link, sent(2, 2), 60), None, "few packets");
        assert_eq!(after(&mut link, sent(100, 19), 60), None, "19 %");
        assert_eq!(after(&mut link, sent(100, 50), 4), None, "a burst");
        assert_eq!(after(&mut link, sent(100, 0), 10), None);
        let long = after(&mut link, sent(100, 25), 60).expect("a quarter for long");
        assert!(long <= SPAN * 3 + TICK, "{long:?}");
        assert_eq!(link.now().unwrap().0, Harm::Lossy(25));
    }

    #[test]
    fn what_is_lost_on_the_way_here_counts_beside_much_that_is_sent() {
        let mut link = Quarantine::default();
        let conduct = Conduct {
            received: Packets { sent: 40, lost: 10 },
            ..sent(1000, 0)
        };
        after(&mut link, conduct, 20).expect("a quarter of one direction");
        assert_eq!(link.now().unwrap().0, Harm::Lossy(25));
    }

    #[test]
    fn a_link_that_did_nothing_wrong_for_long_need_not_be_remembered() {
        let mut link = Quarantine::default();
        assert!(link.is_clean());
        link.look(silent(), TICK, true);
        assert!(!link.is_clean());
        after(&mut link, sent(100, 1), 61);
        assert!(link.is_clean());
        after(&mut link, sent(100, 100), 60).expect("it begins");
        after(&mut link, Conduct::default(), 31).expect("it ends");
        assert!(!link.is_clean());
        after(&mut link, Conduct::default(), 601);
        assert!(link.is_clean());
    }

    #[test]
    fn each_quarantine_is_twice_as_long_until_the_link_has_been_good_for_long() {
        let mut link = Quarantine::default();
        for seconds in [30, 60, 120, 240, 480, 960, 960] {
            after(&mut link, sent(100, 100), 60).expect("it begins");
            let long = after(&mut link, Conduct::default(), 1000).expect("it ends");
            assert_eq!(long, Duration::from_secs(seconds));
            assert_eq!(link.now(), None);
        }
        assert_eq!(after(&mut link, sent(100, 1), 601), None);
        after(&mut link, sent(100, 100), 60).expect("it begins");
        assert_eq!(link.now().unwrap().1, FIRST);
    }

    #[test]
    fn the_last_link_that_works_is_not_put_aside() {
        let mut link = Quarantine::default();
        for _ in 0..200 {
            assert!(!link.look(sent(100, 100), TICK, false));
        }
        assert!(link.look(sent(100, 100), TICK, true), "another one is back");
    }
}
