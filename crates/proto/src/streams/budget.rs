//! What a server keeps in memory of what its applications wrote and its clients did not
//! acknowledge: one amount for all connections.
//!
//! While more than a quarter of it is free, each connection takes what it needs. From the last
//! quarter it gets no more than what brings it up to an equal share, so that connections that begin
//! late find something. What happens when nothing is left, and nothing comes back, is decided by
//! the endpoint (`endpoint::memory`).
//!
//! The amounts are atomic because connections move to other threads with their endpoint. Nobody
//! else uses them, so that the same inputs lead to the same amounts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Room for less is not worth waking a writer for.
const WORTHWHILE: u64 = 64 * 1024;

/// The part of the whole that is kept for connections below their share.
const RESERVE: u64 = 4;

/// What all connections of an endpoint may hold together.
#[derive(Debug, Clone)]
pub(crate) struct SendBudget(Arc<Amounts>);

#[derive(Debug)]
struct Amounts {
    limit: AtomicU64,
    held: AtomicU64,
    /// Connections that hold something.
    holders: AtomicU64,
    /// Bytes given back so far.
    freed: AtomicU64,
}

impl SendBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self(Arc::new(Amounts {
            limit: AtomicU64::new(limit),
            held: AtomicU64::new(0),
            holders: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }))
    }

    /// Changes the whole. What is held beyond it comes back as it is acknowledged.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Relaxed);
    }

    pub(crate) fn free(&self) -> u64 {
        let limit = self.0.limit.load(Relaxed);
        limit.saturating_sub(self.0.held.load(Relaxed))
    }

    /// Bytes given back so far.
    pub(crate) fn freed(&self) -> u64 {
        self.0.freed.load(Relaxed)
    }

    /// An equal part of the whole, if one more connection came.
    pub(crate) fn share(&self) -> u64 {
        self.share_beside(0)
    }

    /// An equal part of the whole, if one more connection and this many `newcomers` came.
    fn share_beside(&self, newcomers: u64) -> u64 {
        let holders = self.0.holders.load(Relaxed) + newcomers;
        self.0.limit.load(Relaxed) / (holders + 1)
    }

    /// What makes waking a writer worth while.
    pub(crate) fn worthwhile(&self) -> u64 {
        (self.share() / 4).clamp(1, WORTHWHILE)
    }
}

/// What one connection holds.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// None for connections that are not on anybody's account.
    budget: Option<SendBudget>,
    held: u64,
    freed: u64,
}

impl Account {
    pub(super) fn new(budget: SendBudget) -> Self {
        Self {
            budget: Some(budget),
            ..Self::default()
        }
    }

    /// The connection holds `held` bytes now.
    pub(super) fn set(&mut self, held: u64) {
        let before = std::mem::replace(&mut self.held, held);
        let Some(SendBudget(amounts)) = &self.budget else {
            return;
        };
        if held > before {
            amounts.held.fetch_add(held - before, Relaxed);
            amounts.holders.fetch_add(u64::from(before == 0), Relaxed);
        } else if held < before {
            self.freed += before - held;
            amounts.held.fetch_sub(before - held, Relaxed);
            amounts.freed.fetch_add(before - held, Relaxed);
            amounts.holders.fetch_sub(u64::from(held == 0), Relaxed);
        }
    }

    /// Bytes it may take now.
    pub(crate) fn room(&self) -> u64 {
        let Some(budget) = &self.budget else {
            return u64::MAX;
        };
        let free = budget.free();
        let share = budget.share_beside(u64::from(self.held == 0));
        let lacks = share.saturating_sub(self.held).min(free);
        let reserve = budget.0.limit.load(Relaxed) / RESERVE;
        lacks.max(free.saturating_sub(reserve))
    }

    /// Bytes it holds.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Bytes it has given back so far.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// Whether room is worth a writer's while; always where there is no budget.
    pub(crate) fn has_room(&self) -> bool {
        let budget = self.budget.as_ref();
        budget.is_none_or(|budget| self.room() >= budget.worthwhile())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all it gets; returns how much that was.
    fn fill(account: &mut Account, most: u64) -> u64 {
        let taken = account.room().min(most);
        account.set(account.held() + taken);
        taken
    }

    #[test]
    fn one_connection_alone_leaves_a_quarter_to_the_next() {
        let budget = SendBudget::new(1000);
        let mut first = Account::new(budget.clone());
        while fill(&mut first, 100) > 0 {}
        assert_eq!(first.held(), 750);
        let mut second = Account::new(budget.clone());
        while fill(&mut second, 100) > 0 {}
        assert_eq!((second.held(), budget.free()), (250, 0));
        assert!(!first.has_room() && !second.has_room());
        drop(first);
        assert_eq!((budget.free(), budget.freed()), (750, 750));
        assert!(second.has_room());
    }

    #[test]
    fn what_comes_back_goes_to_those_below_their_share() {
        let budget = SendBudget::new(1000);
        let mut accounts: Vec<_> = (0..3).map(|_| Account::new(budget.clone())).collect();
        accounts[0].set(700);
        accounts[1].set(200);
        accounts[2].set(100);
        accounts[0].set(600);
        // An equal share is 250.
        let rooms = accounts.iter().map(Account::room);
        assert_eq!(rooms.collect::<Vec<_>>(), [0, 50, 100]);
    }

    #[test]
    fn connections_on_nobodys_account_have_room() {
        let mut account = Account::default();
        account.set(1 << 40);
        assert!(account.has_room());
        assert_eq!(account.freed(), 0);
    }
}
