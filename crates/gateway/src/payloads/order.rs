//! Numbered datagrams of one request: each once, and in order where that costs little time.

use super::Payload;
use crate::records::Tally;
use anabranch_masque::capsule::NumberBits;
use anabranch_proto::time::Instant as EngineInstant;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::{Delivered, NumberSize, PathDelay};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

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

/// The number spaces of a request by this machine's clock, with what is counted of them.
#[derive(Debug)]
pub(super) struct Order {
    since: Instant,
    spaces: anabranch_tunnel::Order<Payload>,
    passed_on: Vec<Delivered<Payload>>,
}

impl Order {
    /// Waits as long as the class of the flow allows.
    pub(super) fn new(wait: Option<Duration>) -> Self {
        Self {
            since: Instant::now(),
            spaces: anabranch_tunnel::Order::new(wait),
            passed_on: Vec::new(),
        }
    }

    fn now(&self) -> EngineInstant {
        EngineInstant::ZERO + self.since.elapsed()
    }

    /// Takes a payload with the lowest bits of its number; appends what is passed on. One that had
    /// come already is dropped.
    pub(super) fn take(
        &mut self,
        from: (u64, PathId),
        (truncated, bits): (u64, NumberBits),
        payload: Payload,
        tally: &Tally,
        into: &mut Vec<Payload>,
    ) {
        let (now, number) = (self.now(), (truncated, size(bits)));
        let out = &mut self.passed_on;
        let is_new = self.spaces.take(now, from, number, payload, out);
        tally.repeated(u64::from(!is_new));
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

    /// Number spaces end, and what they hold is dropped.
    pub(super) fn forget(&mut self, is_over: impl Fn(u64) -> bool) {
        self.spaces.forget(is_over);
    }

    #[cfg(test)]
    pub(super) fn spaces(&self) -> usize {
        self.spaces.spaces().count()
    }

    /// Whether something has to be known of the paths' delays.
    pub(super) fn is_used(&self) -> bool {
        self.spaces.is_used()
    }

    /// What the delays of the paths in use are now; appends what nothing can precede any more.
    pub(super) fn set_delays(
        &mut self,
        delays: Arc<[PathDelay]>,
        tally: &Tally,
        into: &mut Vec<Payload>,
    ) {
        let now = self.now();
        self.spaces.set_delays(now, delays, &mut self.passed_on);
        self.pass_on(tally, into);
    }

    /// When [`give_up`](Self::give_up) is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadline = self.spaces.deadline()?;
        Some(self.since + deadline.since(EngineInstant::ZERO))
    }

    /// Appends what has waited long enough for what came before it.
    pub(super) fn give_up(&mut self, tally: &Tally, into: &mut Vec<Payload>) {
        let now = self.now();
        self.spaces.give_up(now, &mut self.passed_on);
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
}
