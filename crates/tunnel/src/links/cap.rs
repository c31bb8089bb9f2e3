//! What a link may carry in a month, and what it has.

use std::fmt;

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    /// The year, as 2026.
    pub year: i32,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The last day of a month on which a new count may begin: one that every month has.
pub const LAST_DAY: u8 = 28;

/// The share of a cap, in percent, from which it is worth a word.
const NEAR: u64 = 80;

/// What becomes of a link whose cap is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Then {
    /// The link carries nothing until the next count begins.
    #[default]
    Never,
    /// The link carries data only while no other link works.
    Backup,
}

/// What a link may carry from one day of the month to the same day of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// Bytes in both directions.
    pub bytes: u64,
    /// The day of the month on which the count begins anew, 1 to [`LAST_DAY`].
    pub day: u8,
    /// What becomes of the link afterwards.
    pub then: Then,
}

/// What a link has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// The count, as months since the year 0: the month in which it began.
    pub month: i32,
    /// Bytes in both directions since the count began.
    pub bytes: u64,
}

/// How much of a cap is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Less than four fifths.
    Low,
    /// Four fifths or more.
    Near,
    /// All of it.
    UsedUp,
}

impl Cap {
    /// The count that a day belongs to.
    fn month_of(self, today: Day) -> i32 {
        let begun = i32::from(today.day >= self.day);
        today.year * 12 + i32::from(today.month) - 2 + begun
    }

    /// The day on which the count after this one begins.
    pub fn renewal(self, used: Used) -> Day {
        let next = used.month + 1;
        Day {
            year: next.div_euclid(12),
            month: next.rem_euclid(12) as u8 + 1,
            day: self.day,
        }
    }

    /// How much of it is used up.
    pub fn level(self, used: Used) -> Level {
        let share = u128::from(used.bytes) * 100;
        if used.bytes >= self.bytes {
            Level::UsedUp
        } else if share >= u128::from(self.bytes) * u128::from(NEAR) {
            Level::Near
        } else {
            Level::Low
        }
    }
}

impl Used {
    /// Counts bytes that were carried today. A new count begins with its month. A clock that goes
    /// back begins none: what was used stays used.
    pub fn count(&mut self, cap: Cap, today: Day, bytes: u64) {
        let month = cap.month_of(today);
        if month > self.month {
            *self = Self { month, bytes: 0 };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(day: u8) -> Cap {
        Cap {
            bytes: 1000,
            day,
            then: Then::Never,
        }
    }

    fn on(year: i32, month: u8, day: u8) -> Day {
        Day { year, month, day }
    }

    #[test]
    fn a_count_lasts_from_its_day_to_that_day_of_the_next_month() {
        let cap = cap(15);
        let mut used = Used::default();
        used.count(cap, on(2026, 11, 15), 300);
        used.count(cap, on(2026, 12, 14), 500);
        assert_eq!((used.bytes, cap.level(used)), (800, Level::Near));
        assert_eq!(cap.renewal(used), on(2026, 12, 15));
        used.count(cap, on(2026, 12, 15), 7);
        assert_eq!((used.bytes, cap.level(used)), (7, Level::Low));
        assert_eq!(cap.renewal(used), on(2027, 1, 15));
        used.count(cap, on(2027, 1, 14), 993);
        assert_eq!(cap.level(used), Level::UsedUp);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing_back() {
        let cap = cap(1);
        let mut used = Used::default();
        used.count(cap, on(2026, 11, 27), 600);
        // A router without a clock of its own starts in 1970.
        used.count(cap, on(1970, 1, 1), 500);
        assert_eq!(cap.level(used), Level::UsedUp);
        used.count(cap, on(2026, 11, 27), 0);
        assert_eq!(used.bytes, 1100);
        used.count(cap, on(2026, 12, 1), 0);
        assert_eq!(used.bytes, 0);
    }

    #[test]
    fn another_day_of_the_month_keeps_what_was_used_until_it_comes() {
        let mut used = Used::default();
        used.count(cap(1), on(2026, 11, 20), 900);
        used.count(cap(25), on(2026, 11, 21), 0);
        assert_eq!(used.bytes, 900);
        used.count(cap(25), on(2026, 12, 25), 0);
        assert_eq!(used.bytes, 0);
    }
}
