//! Whether a request's payloads that fit no datagram are meant to be that large.
//!
//! A congestion control that looks for the longest packet sends such ones, and must lose them: what
//! it takes for the path's size it sends ever after, and in capsules all would wait for each other.
//! It gives a size up after three probes (RFC 8899, section 5.1.2, `MAX_PROBES`) and begins again
//! minutes later. A VPN with its default MTU, or a program whose pieces have a fixed size, takes no
//! other answer: it stands still.

use std::time::Duration;
use tokio::time::Instant;

/// In this time one length that is repeated more often than a probe, or so many of any lengths, are
/// meant.
const WHILE: Duration = Duration::from_secs(30);
const PROBES: u32 = 3;
const MANY: u32 = 20;

/// Counts of payloads that were too large. Once they are meant, they are for as long as the request
/// lasts.
#[derive(Debug, Default)]
pub(super) struct Large {
    since: Option<Instant>,
    /// The length of the last one, and how many had it in a row.
    length: usize,
    alike: u32,
    all: u32,
    is_meant: bool,
}

impl Large {
    pub(super) fn note(&mut self, length: usize, now: Instant) {
        if self.since.is_none_or(|since| now - since > WHILE) {
            (self.since, self.length, self.all) = (Some(now), 0, 0);
        }
        if self.length != length {
            (self.length, self.alike) = (length, 0);
        }
        self.alike += 1;
        self.all += 1;
        self.is_meant |= self.alike > PROBES || self.all > MANY;
    }

    pub(super) fn is_meant(&self) -> bool {
        self.is_meant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_repeated_more_often_than_a_probe_is_meant_and_stays_so() {
        let (mut large, mut now) = (Large::default(), Instant::now());
        for length in [1452, 1400, 1426] {
            for _ in 0..PROBES {
                large.note(length, now);
                assert!(!large.is_meant(), "{length}");
                now += Duration::from_millis(40);
            }
        }
        now += WHILE;
        large.note(1426, now);
        assert!(!large.is_meant(), "a search that begins again");
        for _ in 0..PROBES {
            large.note(1426, now + WHILE / 2);
        }
        assert!(large.is_meant());
        large.note(1400, now + WHILE * 9);
        assert!(large.is_meant());
    }

    #[test]
    fn many_of_any_length_are_meant() {
        let (mut large, now) = (Large::default(), Instant::now());
        for length in (1300..).take(MANY as usize) {
            large.note(length, now);
            assert!(!large.is_meant());
        }
        large.note(1299, now);
        assert!(large.is_meant());
    }
}
