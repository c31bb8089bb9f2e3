//! What connections have promised to take beyond the window that each begins with: one amount for
//! all that share it.
//!
//! A promise is a limit that a peer was told. It cannot be taken back (RFC 9000, section 4.1): it
//! counts until its bytes were read, whether or not they ever come. So what all connections can be
//! made to hold is their first windows and this amount, whatever their applications do.
//!
//! A connection may hold as much as is left to others. One alone gets half of the whole, one of
//! nine that want all they can get a tenth, and whoever comes next finds something. Who holds more,
//! because others came, promises nothing more until that much was read.
//!
//! The amounts are atomic because endpoints on several threads may share them. Within one endpoint,
//! the same inputs lead to the same amounts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The largest budget, in bytes: amounts can still be added.
const MAX_LIMIT: u64 = 1 << 60;

/// Accounts are kept in steps of this part of the whole, but of no more bytes than this: threads
/// that share a budget meet there once for each step.
const STEPS: u64 = 1024;
const MAX_STEP: u64 = 64 << 10;

/// Bytes that connections together may have promised to take beyond their first windows. Clones
/// are one budget.
#[derive(Debug, Clone)]
pub struct ReceiveBudget(Arc<Amounts>);

#[derive(Debug)]
struct Amounts {
    limit: u64,
    promised: AtomicU64,
}

impl ReceiveBudget {
    /// A budget of its own of so many bytes; with 0, windows stay as they begin.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Amounts {
            limit: limit.min(MAX_LIMIT),
            promised: AtomicU64::new(0),
        }))
    }

    /// The whole, in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Bytes of it that are promised now, those of each connection rounded up: by 64 KiB or less.
    pub fn promised(&self) -> u64 {
        self.0.promised.load(Relaxed)
    }

    fn free(&self) -> u64 {
        self.limit().saturating_sub(self.promised())
    }

    fn step(&self) -> u64 {
        (self.limit() / STEPS).clamp(1, MAX_STEP)
    }

    /// Takes so much, if it is there.
    fn take(&self, bytes: u64) -> bool {
        let taken = |promised: u64| {
            let sum = promised + bytes;
            (sum <= self.limit()).then_some(sum)
        };
        let promised = &self.0.promised;
        promised.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.promised.fetch_sub(bytes, Relaxed);
    }
}

/// What one connection has promised.
#[derive(Debug, Default)]
pub(super) struct Promise {
    /// None for connections that are not on anybody's account.
    budget: Option<ReceiveBudget>,
    /// What it has of the budget: whole steps, as much as it promised or more.
    held: u64,
}

impl Promise {
    pub(super) fn new(budget: ReceiveBudget) -> Self {
        Self {
            budget: Some(budget),
            held: 0,
        }
    }

    /// The most that it may have promised now. What was promised before stays so.
    pub(super) fn most(&self) -> u64 {
        let Some(budget) = &self.budget else {
            return u64::MAX;
        };
        // With this it holds as much as it leaves.
        let fair = budget.free().saturating_add(self.held) / 2;
        self.held.max(fair - fair % budget.step())
    }

    /// Promises so many bytes from now on; returns how many of them are on the account. That is
    /// less only if others took the rest since [`Self::most`] was asked.
    pub(super) fn set(&mut self, bytes: u64) -> u64 {
        let Some(budget) = &self.budget else {
            return bytes;
        };
        let needed = bytes.next_multiple_of(budget.step());
        if needed > self.held && budget.take(needed - self.held) {
            self.held = needed;
        } else if needed < self.held {
            budget.give_back(self.held - needed);
            self.held = needed;
        }
        bytes.min(self.held)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Whether more than half of the whole is promised, so that windows that are not used should
    /// become smaller.
    pub(super) fn is_tight(&self) -> bool {
        let budget = self.budget.as_ref();
        budget.is_some_and(|budget| budget.free() < budget.limit() / 2)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises all that it may.
    fn fill(promise: &mut Promise) -> u64 {
        promise.set(promise.most())
    }

    #[test]
    fn one_alone_leaves_half_and_whoever_comes_later_finds_something() {
        let budget = ReceiveBudget::new(1000);
        let mut all: Vec<_> = (0..4).map(|_| Promise::new(budget.clone())).collect();
        let held: Vec<_> = all.iter_mut().map(fill).collect();
        assert_eq!(held, [500, 250, 125, 62]);
        assert_eq!(budget.promised(), 937);
        assert_eq!(all[0].most(), 500, "a promise stays");
        drop(all);
        assert_eq!(budget.promised(), 0);
    }

    #[test]
    fn those_that_go_on_end_with_equal_parts() {
        let budget = ReceiveBudget::new(1000);
        let mut all: Vec<_> = (0..4).map(|_| Promise::new(budget.clone())).collect();
        for _ in 0..100 {
            for promise in &mut all {
                // A tenth is read, and promised again if that may be.
                let held = promise.held;
                promise.set(held - held / 10);
                fill(promise);
            }
        }
        for promise in &all {
            assert!((195..=205).contains(&promise.held), "{all:?}");
        }
    }

    #[test]
    fn no_more_than_the_whole_is_promised_by_those_that_asked_at_the_same_time() {
        let budget = ReceiveBudget::new(1000);
        let mut all: Vec<_> = (0..4).map(|_| Promise::new(budget.clone())).collect();
        let asked: Vec<_> = all.iter().map(Promise::most).collect();
        let got = all.iter_mut().zip(asked).map(|(one, most)| one.set(most));
        assert_eq!(got.collect::<Vec<_>>(), [500, 500, 0, 0]);
        assert_eq!(all[2].most(), 0);
    }

    #[test]
    fn a_large_budget_is_counted_in_steps() {
        let budget = ReceiveBudget::new(1 << 30);
        let mut promise = Promise::new(budget.clone());
        assert_eq!(promise.set(1), 1);
        assert_eq!(budget.promised(), 64 << 10);
        assert_eq!(promise.set(64 << 10), 64 << 10);
        assert_eq!(budget.promised(), 64 << 10);
        assert_eq!(promise.most() % (64 << 10), 0);
    }

    #[test]
    fn limits_of_any_size_are_budgets() {
        let mut none = Promise::new(ReceiveBudget::new(0));
        assert_eq!((none.most(), none.set(1), none.is_tight()), (0, 0, false));
        let endless = Promise::new(ReceiveBudget::new(u64::MAX));
        assert!(endless.most() >= 1 << 50);
        assert_eq!(Promise::default().most(), u64::MAX);
    }
}
