//! The receiving end: reassembles packets from fragments and restores their order (RFC 1990,
//! section 4.1).
//!
//! A number is lost once every link has carried a higher one. A link without traffic never does, so
//! a number that was waited for too long also counts as lost.

use super::frame::Fragment;
use anabranch_proto::time::Instant;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most fragments held at a time.
const MAX_HELD: usize = 4096;

/// What a receiving end did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JoinStats {
    /// Numbers given up as lost.
    pub lost: u64,
    /// Fragments that arrived and were dropped, because other fragments of their packet were lost
    /// or because they arrived after they had been given up.
    pub dropped: u64,
    /// The most fragments held at a time.
    pub peak_held: usize,
}

#[derive(Debug)]
struct Held {
    fragment: Fragment,
    arrived: Instant,
}

/// Reassembles the packets whose fragments arrive over several links.
#[derive(Debug)]
pub(super) struct Joiner {
    next: u64,
    held: BTreeMap<u64, Held>,
    /// For each link, one more than the highest number it carried.
    passed: Vec<u64>,
    wait: Duration,
    pub(super) stats: JoinStats,
}

impl Joiner {
    pub(super) fn new(links: usize, wait: Duration) -> Self {
        Self {
            next: 0,
            held: BTreeMap::new(),
            passed: vec![0; links],
            wait,
            stats: JoinStats::default(),
        }
    }

    /// Takes a fragment that arrived over a link; packets that are now complete go to `out`.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        link: usize,
        number: u64,
        fragment: Fragment,
        out: &mut Vec<Bytes>,
    ) {
        self.passed[link] = self.passed[link].max(number + 1);
        if number < self.next || self.held.contains_key(&number) {
            self.stats.dropped += 1;
            return;
        }
        let arrived = now;
        self.held.insert(number, Held { fragment, arrived });
        self.stats.peak_held = self.stats.peak_held.max(self.held.len());
        self.advance(now, out);
    }

    /// When the gap in front of the first held fragment is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let (_, first) = self.held.first_key_value()?;
        Some(first.arrived + self.wait)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, out: &mut Vec<Bytes>) {
        self.advance(now, out);
    }

    /// Passes on complete packets and gives up lost ones.
    fn advance(&mut self, now: Instant, out: &mut Vec<Bytes>) {
        loop {
            let (run, whole) = self.run();
            if whole {
                out.push(self.take(run));
                continue;
            }
            let behind_run = self.next + run;
            if run > 0 && (!self.starts_packet() || self.held.contains_key(&behind_run)) {
                // Its first fragment was lost, or its last one.
                self.drop_run(run);
                continue;
            }
            let missing = behind_run;
            let is_old = self.deadline().is_some_and(|deadline| deadline <= now);
            let Some((&behind, _)) = self.held.range(missing..).next() else {
                if run > 0 && is_old {
                    self.drop_run(run);
                }
                return;
            };
            let passed = self.passed.iter().copied().min().unwrap_or(0);
            if passed <= missing && !is_old && self.held.len() <= MAX_HELD {
                return;
            }
            self.drop_run(run);
            let to = if is_old { behind } else { behind.min(passed) };
            let to = to.max(missing + 1);
            self.stats.lost += to - missing;
            self.next = to;
        }
    }

    fn starts_packet(&self) -> bool {
        let first = self.held.get(&self.next);
        first.is_some_and(|held| held.fragment.first)
    }

    /// How many consecutive fragments there are from `next` on, up to the end of a packet, and
    /// whether they form a complete one.
    fn run(&self) -> (u64, bool) {
        let mut length = 0;
        for (number, held) in self.held.range(self.next..) {
            if *number != self.next + length || (length > 0 && held.fragment.first) {
                break;
            }
            length += 1;
            if held.fragment.last {
                return (length, self.starts_packet());
            }
        }
        (length, false)
    }

    fn take(&mut self, run: u64) -> Bytes {
        let mut whole = Vec::new();
        for number in self.next..self.next + run {
            let held = self.held.remove(&number).expect("the run is there");
            if run == 1 {
                self.next += 1;
                return held.fragment.bytes;
            }
            whole.extend(&held.fragment.bytes);
        }
        self.next += run;
        whole.into()
    }

    fn drop_run(&mut self, run: u64) {
        for number in self.next..self.next + run {
            self.held.remove(&number);
        }
        self.stats.dropped += run;
        self.next += run;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(text: &'static str, first: bool, last: bool) -> Fragment {
        Fragment {
            first,
            last,
            bytes: Bytes::from_static(text.as_bytes()),
        }
    }

    fn joiner() -> Joiner {
        Joiner::new(2, Duration::from_millis(100))
    }

    fn give(
        joiner: &mut Joiner,
        at: u64,
        link: usize,
        number: u64,
        text: &'static str,
    ) -> Vec<Bytes> {
        let (first, last) = (text.starts_with('<'), text.ends_with('>'));
        let mut out = Vec::new();
        let now = Instant::ZERO + Duration::from_millis(at);
        joiner.handle(now, link, number, fragment(text, first, last), &mut out);
        out
    }

    #[test]
    fn fragments_are_joined_in_order_whatever_order_links_bring_them_in() {
        let mut joiner = joiner();
        assert!(give(&mut joiner, 0, 1, 1, "b>").is_empty());
        assert!(give(&mut joiner, 0, 1, 3, "<d>").is_empty());
        assert_eq!(give(&mut joiner, 0, 0, 0, "<a"), ["<ab>"]);
        assert_eq!(give(&mut joiner, 0, 0, 2, "<c>"), ["<c>", "<d>"]);
        assert_eq!(joiner.stats.lost, 0);
    }

    #[test]
    fn what_every_link_has_passed_is_lost_with_its_packet() {
        let mut joiner = joiner();
        assert!(give(&mut joiner, 0, 0, 0, "<a").is_empty());
        assert!(give(&mut joiner, 0, 0, 2, "c>").is_empty());
        assert_eq!(give(&mut joiner, 0, 1, 3, "<d>"), ["<d>"]);
        let stats = joiner.stats;
        assert_eq!((stats.lost, stats.dropped), (1, 2));
    }

    #[test]
    fn what_no_link_passes_is_given_up_after_a_while() {
        let mut joiner = joiner();
        assert!(give(&mut joiner, 0, 0, 1, "<b>").is_empty());
        let deadline = joiner.deadline().unwrap();
        assert_eq!(deadline, Instant::ZERO + Duration::from_millis(100));
        let mut out = Vec::new();
        joiner.handle_timeout(deadline, &mut out);
        assert_eq!(out, ["<b>"]);
        assert_eq!(joiner.deadline(), None);
        assert!(give(&mut joiner, 101, 1, 0, "<a>").is_empty(), "too late");
    }

    proptest! {
        #[test]
        fn packets_come_out_whole_and_in_order_whatever_is_lost(
            sizes in prop::collection::vec(1usize..5, 1..40),
            fates in prop::collection::vec((0usize..3, 0u64..30), 200)
        ) {
            // Each fragment crosses link 0 or 1, in order, or is lost.
            let mut number = 0;
            let mut arrivals = Vec::new();
            let mut clocks = [0; 2];
            let mut whole = Vec::new();
            for (packet, size) in sizes.iter().enumerate() {
                let mut complete = true;
                for part in 0..*size {
                    let (link, gap) = fates[number as usize];
                    if link < 2 {
                        clocks[link] += gap;
                        let bytes = Bytes::from(vec![packet as u8]);
                        let (first, last) = (part == 0, part + 1 == *size);
                        let fragment = Fragment { first, last, bytes };
                        arrivals.push((clocks[link], link, number, fragment));
                    } else {
                        complete = false;
                    }
                    number += 1;
                }
                if complete {
                    whole.push(vec![packet as u8; *size]);
                }
            }
            arrivals.sort_by_key(|(at, link, number, _)| (*at, *link, *number));
            // The wait is long enough here that only packets that were really lost are missing.
            let mut joiner = Joiner::new(2, Duration::from_secs(1000));
            let mut out = Vec::new();
            for (at, link, number, fragment) in arrivals {
                let now = Instant::ZERO + Duration::from_millis(at);
                joiner.handle(now, link, number, fragment, &mut out);
            }
            joiner.handle_timeout(Instant::ZERO + Duration::from_secs(100_000), &mut out);
            let out: Vec<_> = out.iter().map(|packet| packet.to_vec()).collect();
            prop_assert_eq!(out, whole);
        }
    }
}
