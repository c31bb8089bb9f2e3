//! Numbered datagrams of one request: each once, and in order where that costs little time.

use super::Payload;
use super::remotes::Counted;
use anabranch_masque::capsule::NumberBits;
use anabranch_proto::time::Instant as EngineInstant;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::{Delivered, Grace, NumberSize, PathDelay, Taken};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What our own numbers have: flows have far fewer datagrams under way than half of their range.
pub(super) const BITS: NumberBits = NumberBits::Sixteen;
/// Numbers of a whole tunnel, which may have more datagrams under way.
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
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            spaces: anabranch_tunnel::Order::default(),
            passed_on: Vec::new(),
        }
    }

    fn now(&self) -> EngineInstant {
        EngineInstant::ZERO + self.since.elapsed()
    }

    /// Takes a payload with the lowest bits of its number; appends what is passed on. Drops a
    /// payload that has come already. `grace` says how long to wait for missing ones.
    pub(super) fn take(
        &mut self,
        grace: Grace,
        from: (u64, Option<PathId>),
        (truncated, bits): (u64, NumberBits),
        payload: Payload,
        counted: &Counted,
        into: &mut Vec<Payload>,
    ) {
        let (now, number) = (self.now(), (truncated, size(bits)));
        let (remote, out) = (payload.remote, &mut self.passed_on);
        let how = self.spaces.take(now, grace, from, number, payload, out);
        if how == Taken::Repeated {
            counted.repeated(remote);
        }
        self.pass_on(counted, into);
    }

    fn pass_on(&mut self, counted: &Counted, into: &mut Vec<Payload>) {
        for Delivered { item, held, .. } in self.passed_on.drain(..) {
            if held > Duration::ZERO {
                counted.held(held, item.remote);
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

    /// Sets the delays of the paths in use; appends items that are in order by that.
    pub(super) fn set_delays(
        &mut self,
        delays: Arc<[PathDelay]>,
        counted: &Counted,
        into: &mut Vec<Payload>,
    ) {
        let now = self.now();
        self.spaces.set_delays(now, delays, &mut self.passed_on);
        self.pass_on(counted, into);
    }

    /// When [`give_up`](Self::give_up) is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadline = self.spaces.deadline()?;
        Some(self.since + deadline.since(EngineInstant::ZERO))
    }

    /// Appends what has waited long enough for what came before it.
    pub(super) fn give_up(&mut self, counted: &Counted, into: &mut Vec<Payload>) {
        let now = self.now();
        self.spaces.give_up(now, &mut self.passed_on);
        self.pass_on(counted, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payloads::Nobody;
    use crate::records::{Record, Tally};
    use bytes::Bytes;
    use std::sync::atomic::Ordering;

    const A: Option<PathId> = Some(PathId(0));
    const B: Option<PathId> = Some(PathId(1));

    fn payload(text: &'static str) -> Payload {
        Payload {
            remote: None,
            bytes: Bytes::from_static(text.as_bytes()),
        }
    }

    fn counted() -> Counted {
        Counted {
            tally: Tally {
                all: Arc::default(),
                record: Record::unlisted(),
            },
            remotes: Arc::new(Nobody),
        }
    }

    const WAIT: Grace = Grace {
        longest: Duration::from_millis(20),
        repaired: false,
    };

    fn texts(payloads: Vec<Payload>) -> Vec<Bytes> {
        payloads.into_iter().map(|payload| payload.bytes).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn datagrams_come_out_in_order_and_once() {
        let (mut order, mut out) = (Order::new(), Vec::new());
        let come = [(B, 1, "b"), (B, 1, "b"), (A, 0, "a"), (B, 0, "a")];
        let counted = counted();
        let dropped = come.map(|(path, number, text)| {
            order.take(
                WAIT,
                (2, path),
                (number, BITS),
                payload(text),
                &counted,
                &mut out,
            );
            counted.tally.all.dropped.load(Ordering::Relaxed)
        });
        assert_eq!(texts(out), ["a", "b"]);
        assert_eq!(dropped, [0, 1, 1, 2]);
        assert_eq!(order.deadline(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_is_given_up_after_20_ms_and_passed_on_late() {
        let (mut order, mut out) = (Order::new(), Vec::new());
        let counted = counted();
        order.take(WAIT, (2, A), (1, BITS), payload("b"), &counted, &mut out);
        let deadline = order.deadline().unwrap();
        assert_eq!(deadline - order.since, Duration::from_millis(20));
        tokio::time::advance(Duration::from_millis(20)).await;
        order.give_up(&counted, &mut out);
        order.take(WAIT, (2, A), (0, BITS), payload("a"), &counted, &mut out);
        assert_eq!(texts(out), ["b", "a"]);
        assert_eq!(counted.tally.all.held.load(Ordering::Relaxed), 1);
        assert_eq!(counted.tally.all.held_us.load(Ordering::Relaxed), 20_000);
    }
}
