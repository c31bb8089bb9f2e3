//! How late what is missing comes, and whether it comes at all: measured by the numbers themselves.
//!
//! ```text
//! 4 5 . . 8        8 shows that 6 and 7 are missing: from now on they are late
//! 4 5 . . 8 9 6    6 came, so late: as long is worth waiting for the next gap
//!     . 7          7 did not come within the longest wait: waiting for it would have been in vain
//! ```
//! What comes is measured whether somebody waited for it or not, so a wait that was too short, or
//! off, finds its length again. What to expect where nothing was measured is not decided here.

use anabranch_proto::time::{Duration, Instant};
use std::collections::VecDeque;

/// For how long the longest lateness counts, measured in two halves: as long as the queues of links
/// take to fill and to drain again.
const WINDOW: Duration = Duration::from_secs(4);

/// The resolution of times kept, as a fraction of the longest wait.
const PARTS: u32 = 64;

/// Waiting pays if one in this many missing numbers comes.
const WORTH: u32 = 8;

/// This many waits in vain show that waiting does not pay.
const ENOUGH: u32 = 8;

/// With this many outcomes, older ones count half.
const REMEMBERED: u32 = 128;

/// What is added to the longest lateness: the next one may be a little longer.
const MARGIN: Duration = Duration::from_millis(1);

/// A moment at which the highest number rose.
#[derive(Debug, Clone, Copy)]
struct Rise {
    at: Instant,
    /// As far as it rose, until a little later.
    highest: u64,
    /// Of the numbers that it left out, those that have not come.
    missing: u64,
}

/// What became of missing numbers.
#[derive(Debug)]
pub(super) struct Lateness {
    longest: Duration,
    highest: Option<u64>,
    /// The rises of the latest time, as long as the longest wait.
    rises: VecDeque<Rise>,
    /// The highest number before these rises.
    expired: Option<u64>,
    /// Since when `newer` is measured; `older` is of the half before.
    began: Instant,
    older: Option<Duration>,
    newer: Option<Duration>,
    /// Missing numbers that came in time to be waited for, and those that did not.
    came: u32,
    in_vain: u32,
}

impl Lateness {
    /// For waits up to this.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            highest: None,
            rises: VecDeque::new(),
            expired: None,
            began: Instant::ZERO,
            older: None,
            newer: None,
            came: 0,
            in_vain: 0,
        }
    }

    /// Waits are up to this from now on.
    pub(super) fn set_longest(&mut self, longest: Duration) {
        self.longest = longest;
    }

    /// A number came for the first time; returns whether it is behind a higher one.
    pub(super) fn note(&mut self, now: Instant, number: u64) -> bool {
        self.expire(now);
        let next = self.highest.map_or(0, |highest| highest + 1);
        if number < next {
            self.fill(now, number);
            return true;
        }
        self.highest = Some(number);
        self.rise(now, number, number - next);
        false
    }

    fn rise(&mut self, now: Instant, highest: u64, missing: u64) {
        let finest = self.longest / PARTS;
        if let Some(last) = self.rises.back_mut()
            && now.since(last.at) <= finest
        {
            last.highest = highest;
            last.missing = last.missing.saturating_add(missing);
            return;
        }
        self.rises.push_back(Rise {
            at: now,
            highest,
            missing,
        });
    }

    fn fill(&mut self, now: Instant, number: u64) {
        // What was passed longer ago has counted as in vain already.
        if Some(number) < self.expired {
            return;
        }
        let at = self.rises.partition_point(|rise| rise.highest < number);
        let Some(rise) = self.rises.get_mut(at).filter(|rise| rise.missing > 0) else {
            return;
        };
        rise.missing -= 1;
        self.came += 1;
        self.newer = self.newer.max(Some(now.since(rise.at)));
        self.fade();
    }

    /// What has not come within the longest wait was waited for in vain.
    fn expire(&mut self, now: Instant) {
        while let Some(rise) = self.rises.front()
            && now.since(rise.at) > self.longest
        {
            let missing = u32::try_from(rise.missing).unwrap_or(u32::MAX);
            self.in_vain += missing.min(REMEMBERED);
            self.expired = Some(rise.highest);
            self.rises.pop_front();
            self.fade();
        }
        let passed = now.since(self.began);
        if passed >= WINDOW / 2 {
            let is_recent = passed < WINDOW;
            self.older = self.newer.take().filter(|_| is_recent);
            self.began = now;
        }
    }

    fn fade(&mut self) {
        if self.came + self.in_vain > REMEMBERED {
            self.came /= 2;
            self.in_vain /= 2;
        }
    }

    /// How long to wait for a missing number, `expected` being all that else is known: a quarter
    /// more than the longest recent lateness, and twice as long where hardly anything was measured.
    /// At least `least`, unless waiting does not pay.
    pub(super) fn wait(&self, expected: Duration, least: Duration) -> Duration {
        let pays = self.came * (WORTH - 1) >= self.in_vain;
        if self.in_vain >= ENOUGH && !pays {
            return Duration::ZERO;
        }
        let latest = self.older.max(self.newer);
        let measured = latest.map_or(Duration::ZERO, |latest| latest + MARGIN);
        // The longest of a few says little about the longest of many.
        if self.older.is_none() {
            return (2 * measured.max(expected)).max(least).min(self.longest);
        }
        // What is expected may be wrong by far where both directions are unlike.
        let likely = measured.max(expected.min(2 * measured));
        (likely + likely / 4).max(least).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_millis(50);
    /// What is expected where nothing was measured.
    const EXPECTED: Duration = Duration::from_millis(7);

    fn ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Every second number lags this many milliseconds behind the others, from `first` on; one is
    /// sent every 2 ms.
    fn lag(lateness: &mut Lateness, first: u64, count: u64, lag: u64) -> u64 {
        let start = first * 2;
        let mut arrivals: Vec<(u64, u64)> = (first..first + count)
            .map(|number| (start + (number - first) * 2 + number % 2 * lag, number))
            .collect();
        arrivals.sort_unstable();
        let behind = arrivals
            .iter()
            .filter(|(at, number)| lateness.note(ms(*at), *number));
        behind.count() as u64
    }

    #[test]
    fn a_number_behind_a_higher_one_is_told_apart() {
        let mut lateness = Lateness::new(LONGEST);
        let numbers = [1, 0, 2, 7, 4, 3, 8];
        let behind = numbers.map(|number| lateness.note(ms(0), number));
        assert_eq!(behind, [false, true, false, false, true, true, false]);
    }

    #[test]
    fn the_wait_is_a_little_more_than_the_longest_lateness_of_late() {
        let mut lateness = Lateness::new(LONGEST);
        lag(&mut lateness, 0, 1200, 15);
        let wait = lateness.wait(Duration::ZERO, Duration::ZERO);
        assert!((15..=20).contains(&wait.as_millis()), "{wait:?}");
        // The other link's queue fills.
        lag(&mut lateness, 1200, 400, 31);
        let longer = lateness.wait(Duration::ZERO, Duration::ZERO);
        assert!((31..=41).contains(&longer.as_millis()), "{longer:?}");
        // It is empty again, and that is noticed in time.
        lag(&mut lateness, 1600, 4000, 5);
        let again = lateness.wait(Duration::ZERO, Duration::ZERO);
        assert!((4..=8).contains(&again.as_millis()), "{again:?}");
    }

    #[test]
    fn a_flow_that_was_hardly_measured_waits_twice_as_long() {
        let mut lateness = Lateness::new(LONGEST);
        assert_eq!(
            lateness.wait(EXPECTED, Duration::ZERO),
            2 * EXPECTED,
            "nothing is known"
        );
        lag(&mut lateness, 0, 400, 15);
        let wait = lateness.wait(EXPECTED, Duration::ZERO);
        assert!((28..=34).contains(&wait.as_millis()), "{wait:?}");
        lag(&mut lateness, 400, 800, 15);
        let later = lateness.wait(EXPECTED, Duration::ZERO);
        assert!((15..=20).contains(&later.as_millis()), "{later:?}");
    }

    #[test]
    fn a_wait_that_pays_lasts_until_a_repair_may_come() {
        let least = Duration::from_millis(30);
        let mut lateness = Lateness::new(LONGEST);
        assert_eq!(lateness.wait(Duration::ZERO, least), least);
        lag(&mut lateness, 0, 1200, 5);
        assert_eq!(lateness.wait(EXPECTED, least), least);
        for number in 5000..9000 {
            if number % 10 > 0 {
                lateness.note(ms(number * 2), number);
            }
        }
        assert_eq!(lateness.wait(EXPECTED, least), Duration::ZERO, "none comes");
    }

    #[test]
    fn what_is_expected_counts_less_where_it_is_far_from_what_was_measured() {
        let mut lateness = Lateness::new(LONGEST);
        lag(&mut lateness, 0, 12, 5);
        assert_eq!(
            lateness.wait(LONGEST, Duration::ZERO),
            LONGEST,
            "hardly anything is known"
        );
        lag(&mut lateness, 12, 1200, 5);
        let wait = lateness.wait(LONGEST, Duration::ZERO);
        assert!((5..=16).contains(&wait.as_millis()), "{wait:?}");
    }

    #[test]
    fn what_is_lost_is_not_waited_for_unless_enough_of_what_is_missing_comes() {
        let lossy = |late: u64| {
            let mut lateness = Lateness::new(LONGEST);
            for number in 0..4000 {
                // One in a hundred is lost, and some of the others are late.
                let is_late = late > 0 && number % late == 7;
                if number % 100 != 50 && !is_late {
                    lateness.note(ms(number * 2), number);
                }
                if late > 0 && number >= 3 && (number - 3) % late == 7 {
                    lateness.note(ms(number * 2), number - 3);
                }
            }
            lateness.wait(EXPECTED, Duration::ZERO)
        };
        assert_eq!(lossy(0), Duration::ZERO, "nothing that is missing comes");
        assert_eq!(lossy(1990), Duration::ZERO, "hardly anything");
        assert!(lossy(110) >= EXPECTED, "every second one comes");
    }

    #[test]
    fn paths_further_apart_than_the_longest_wait_are_not_waited_for_until_they_are_closer() {
        let mut lateness = Lateness::new(LONGEST);
        let behind = lag(&mut lateness, 0, 1000, 61);
        assert!(behind > 400, "{behind}");
        assert_eq!(lateness.wait(EXPECTED, Duration::ZERO), Duration::ZERO);
        lag(&mut lateness, 1000, 1200, 31);
        let wait = lateness.wait(EXPECTED, Duration::ZERO);
        assert!((31..=41).contains(&wait.as_millis()), "{wait:?}");
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_the_numbers() {
        let mut lateness = Lateness::new(LONGEST);
        for number in 0..100_000u64 {
            let at = Instant::ZERO + Duration::from_micros(number * 10);
            lateness.note(at, number * 3);
            assert!(lateness.rises.len() <= PARTS as usize + 1);
        }
        lateness.note(ms(1100), u64::MAX - 1);
        lateness.note(ms(2000), u64::MAX - 2);
        assert!(lateness.came + lateness.in_vain <= REMEMBERED);
        let mut never = Lateness::new(Duration::ZERO);
        assert!(
            (0..1000)
                .rev()
                .all(|number| never.note(ms(0), number) == (number < 999))
        );
        assert!((1000..2000).all(|number| !never.note(ms(0), number)));
        assert!(never.rises.len() <= 1 && never.wait(EXPECTED, Duration::ZERO).is_zero());
    }
}
