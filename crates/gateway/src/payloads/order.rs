//! Numbered datagrams of one request: each once, and in order where that costs little time.

use super::Payload;
use crate::records::Tally;
use crate::session::datagrams::PathDelay;
use anabranch_masque::capsule::NumberBits;
use anabranch_proto::time::Instant as EngineInstant;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::{Delivered, NumberSize, Resequencer, ResequencerConfig, Wait};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a datagram waits for one that was sent before it, unless its class says how long at
/// most. Less where the delays of the paths differ by less.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(20);

/// Number spaces of one request that are kept in order. Others are passed on as they come.
const MAX_SPACES: usize = 16;

fn config(longest: Duration) -> ResequencerConfig {
    ResequencerConfig {
        wait: Wait::Adaptive {
            shortest: SHORTEST.min(longest),
            longest,
        },
        capacity: 1024,
        ordered_paths: true,
        deliver_late: true,
        longest_jump: 1 << 14,
        duplicate_window: 4096,
    }
}

/// What our own numbers have: flows have far fewer datagrams under way than half of their range.
pub(super) const BITS: NumberBits = NumberBits::Sixteen;
/// Those of a whole tunnel, which may have more.
pub(super) const IP_BITS: NumberBits = NumberBits::ThirtyTwo;

pub(super) const fn size(bits: NumberBits) -> NumberSize {
    match bits {
        NumberBits::Eight => NumberSize::One,
        NumberBits::Sixteen => NumberSize::Two,
        NumberBits::ThirtyTwo => NumberSize::Four,
        NumberBits::SixtyFour => NumberSize::Eight,
    }
}

/// The number spaces of a request, by their contexts.
#[derive(Debug)]
pub(super) struct Order {
    since: Instant,
    longest: Duration,
    spaces: Vec<(u64, Resequencer<Payload>)>,
    passed_on: Vec<Delivered<Payload>>,
    delays: Arc<[PathDelay]>,
}

impl Order {
    /// Waits as long as the class of the flow allows.
    pub(super) fn new(wait: Option<Duration>) -> Self {
        Self {
            since: Instant::now(),
            longest: wait.unwrap_or(LONGEST),
            spaces: Vec::new(),
            passed_on: Vec::new(),
            delays: Arc::new([]),
        }
    }

    fn now(&self) -> EngineInstant {
        EngineInstant::ZERO + self.since.elapsed()
    }

    /// Takes a payload with the lowest bits of its number; appends what is passed on. One that had
    /// come already is dropped.
    pub(super) fn take(
        &mut self,
        (context, path): (u64, PathId),
        (truncated, bits): (u64, NumberBits),
        payload: Payload,
        tally: &Tally,
        into: &mut Vec<Payload>,
    ) {
        let now = self.now();
        let known = self.spaces.iter().position(|(own, _)| *own == context);
        let at = match known {
            Some(at) => at,
            None if self.spaces.len() < MAX_SPACES => {
                let mut space = Resequencer::new(config(self.longest));
                for delay in &*self.delays {
                    space.set_path_delay(delay.path, delay.delay_us, delay.jitter_us);
                }
                self.spaces.push((context, space));
                self.spaces.len() - 1
            }
            None => {
                return into.push(payload);
            }
        };
        let space = &mut self.spaces[at].1;
        let number = size(bits).expand(truncated, space.next());
        let before = space.stats().duplicates;
        space.on_item(now, path, number, payload, &mut self.passed_on);
        tally.repeated(space.stats().duplicates - before);
        self.pass_on(tally, into);
    }

    fn pass_on(&mut self, tally: &Tally, into: &mut Vec<Payload>) {
        for Delivered { item, held, .. } in self.passed_on.drain(..) {
            if held > Duration::ZERO {
                tally.held(held);
            }
            into.push(item);
        }
    }

    /// Whether something has to be known of the paths' delays.
    pub(super) fn is_used(&self) -> bool {
        !self.spaces.is_empty()
    }

    /// What the delays of the paths in use are now; appends what nothing can precede any more.
    pub(super) fn set_delays(
        &mut self,
        delays: Arc<[PathDelay]>,
        tally: &Tally,
        into: &mut Vec<Payload>,
    ) {
        if Arc::ptr_eq(&self.delays, &delays) {
            return;
        }
        let now = self.now();
        let is_gone = |path: PathId| delays.iter().all(|delay| delay.path != path);
        for (_, space) in &mut self.spaces {
            for before in self.delays.iter().filter(|before| is_gone(before.path)) {
                space.forget_path(now, before.path, &mut self.passed_on);
            }
            for delay in &*delays {
                space.set_path_delay(delay.path, delay.delay_us, delay.jitter_us);
            }
        }
        self.delays = delays;
        self.pass_on(tally, into);
    }

    /// When [`give_up`](Self::give_up) is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadlines = self.spaces.iter().filter_map(|(_, space)| space.deadline());
        let deadline = deadlines.min()?;
        Some(self.since + deadline.since(EngineInstant::ZERO))
    }

    /// Appends what has waited long enough for what came before it.
    pub(super) fn give_up(&mut self, tally: &Tally, into: &mut Vec<Payload>) {
        let now = self.now();
        for (_, space) in &mut self.spaces {
            space.handle_timeout(now, &mut self.passed_on);
        }
        self.pass_on(tally, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Record;
    use bytes::Bytes;
    use std::sync::atomic::Ordering;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn payload(text: &'static str) -> Payload {
        Payload {
            remote: None,
            bytes: Bytes::from_static(text.as_bytes()),
        }
    }

    fn tally() -> Tally {
        Tally {
            all: Arc::default(),
            record: Record::unlisted(),
        }
    }

    fn texts(payloads: Vec<Payload>) -> Vec<Bytes> {
        payloads.into_iter().map(|payload| payload.bytes).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_come_out_in_order_and_once() {
        let (mut order, mut out) = (Order::new(None), Vec::new());
        let come = [(B, 1, "b"), (B, 1, "b"), (A, 0, "a"), (B, 0, "a")];
        let tally = tally();
        let dropped = come.map(|(path, number, text)| {
            order.take((2, path), (number, BITS), payload(text), &tally, &mut out);
            tally.all.dropped.load(Ordering::Relaxed)
        });
        assert_eq!(texts(out), ["a", "b"]);
        assert_eq!(dropped, [0, 1, 1, 2]);
        assert_eq!(order.deadline(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_given_up_after_20_ms_and_passed_on_late() {
        let (mut order, mut out) = (Order::new(None), Vec::new());
        let tally = tally();
        order.take((2, A), (1, BITS), payload("b"), &tally, &mut out);
        let deadline = order.deadline().unwrap();
        assert_eq!(deadline - order.since, Duration::from_millis(20));
        tokio::time::advance(Duration::from_millis(20)).await;
        order.give_up(&tally, &mut out);
        order.take((2, A), (0, BITS), payload("a"), &tally, &mut out);
        assert_eq!(texts(out), ["b", "a"]);
        assert_eq!(tally.all.held.load(Ordering::Relaxed), 1);
        assert_eq!(tally.all.held_us.load(Ordering::Relaxed), 20_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_class_may_wait_longer_or_not_at_all() {
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            let (mut order, mut out) = (Order::new(Some(wait)), Vec::new());
            let tally = tally();
            order.take((2, A), (1, BITS), payload("b"), &tally, &mut out);
            let deadline = order.deadline().unwrap();
            assert_eq!(deadline - order.since, wait);
            tokio::time::advance(wait).await;
            order.give_up(&tally, &mut out);
            assert_eq!(texts(out), ["b"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn paths_that_hardly_differ_are_hardly_waited_for() {
        let (mut order, mut out) = (Order::new(None), Vec::new());
        order.take((2, A), (0, BITS), payload("a"), &tally(), &mut out);
        let delay = |path, delay_us| PathDelay {
            path,
            delay_us,
            jitter_us: 500,
        };
        order.set_delays(
            [delay(A, 10_000), delay(B, 13_000)].into(),
            &tally(),
            &mut out,
        );
        order.take((2, A), (2, BITS), payload("c"), &tally(), &mut out);
        let deadline = order.deadline().unwrap();
        assert_eq!(deadline - order.since, Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn number_spaces_are_apart_and_bounded() {
        let (mut order, mut out) = (Order::new(None), Vec::new());
        for context in 0..=MAX_SPACES as u64 {
            order.take((context, A), (0, BITS), payload("a"), &tally(), &mut out);
        }
        assert_eq!(out.len(), MAX_SPACES + 1);
        assert_eq!(order.spaces.len(), MAX_SPACES);
    }
}
