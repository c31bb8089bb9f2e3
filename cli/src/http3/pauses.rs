//! How long a client may stop reading an answer, for example while its user reads in a pager.
//!
//! A paused request holds resources of the server: a file and two pieces of it. So a pause ends,
//! and clients of one address have only a few of them at a time.

use super::STALL;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// All pauses of one request together.
pub(crate) const PAUSE: Duration = Duration::from_secs(3600);

/// Requests of one address that may pause at a time. Further ones are given up after [`STALL`].
const AT_ONCE: usize = 32;

/// A customer, as far as an address tells: an IPv4 address or a /64 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
            ip @ IpAddr::V4(_) => ip,
        })
    }
}

/// How many requests pause, by where their clients are.
#[derive(Debug, Default)]
pub(crate) struct Paused(Mutex<BTreeMap<Origin, usize>>);

impl Paused {
    fn change(&self, origin: Origin, change: impl FnOnce(usize) -> Option<usize>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.get(&origin).copied().unwrap_or(0);
        match change(count) {
            Some(0) => drop(all.remove(&origin)),
            Some(count) => drop(all.insert(origin, count)),
            None => return false,
        }
        true
    }
}

/// A permit to pause, returned when it is dropped.
struct Place<'a>(&'a Pauses);

impl<'a> Place<'a> {
    fn take(pauses: &'a Pauses) -> Option<Self> {
        let one_more = |count| (count < AT_ONCE).then_some(count + 1);
        let is_free = pauses.paused.change(pauses.origin, one_more);
        is_free.then(|| Self(pauses))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Pauses { paused, origin, .. } = self.0;
        paused.change(*origin, |count| Some(count.saturating_sub(1)));
    }
}

/// The pauses of one request.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// What is left of [`PAUSE`].
    left: Duration,
    origin: Origin,
    paused: Arc<Paused>,
}

impl Pauses {
    /// The pauses of a new request.
    pub(crate) fn new(origin: Origin, paused: Arc<Paused>) -> Self {
        Self {
            left: PAUSE,
            origin,
            paused,
        }
    }

    /// Waits until something has been sent. `None` if the client sends nothing for [`STALL`]
    /// (`heard` counts its packets), has used up its pauses, or is one of too many that pause. A
    /// client whose flow control stops us still acknowledges and keeps its connection alive; a
    /// client that is gone does not. Less than half of [`STALL`] is slow, but no pause.
    pub(crate) async fn patient<T>(
        &mut self,
        heard: impl Fn() -> u64,
        step: impl Future<Output = T>,
    ) -> Option<T> {
        let mut step = std::pin::pin!(step);
        // Not counted as a pause before it takes long, which it almost never does.
        if let Ok(done) = timeout(STALL / 2, &mut step).await {
            return Some(done);
        }
        let mut left = self.left.saturating_sub(STALL / 2);
        let mut before = heard();
        let mut place = None;
        let done = loop {
            if left.is_zero() {
                break None;
            }
            if let Ok(done) = timeout(STALL / 2, &mut step).await {
                break Some(done);
            }
            left = left.saturating_sub(STALL / 2);
            let now = heard();
            if now == before {
                break None;
            }
            before = now;
            place = place.or_else(|| Place::take(self));
            if place.is_none() {
                break None;
            }
        };
        drop(place);
        self.left = left;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::time::{Instant, sleep};

    fn origin(address: &str) -> Origin {
        Origin::from(address.parse::<IpAddr>().unwrap())
    }

    fn pauses() -> Pauses {
        Pauses::new(origin("192.0.2.1"), Arc::default())
    }

    /// A client that is alive.
    fn alive() -> impl Fn() -> u64 {
        let packets = AtomicU64::new(0);
        move || packets.fetch_add(1, Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_there_may_pause_and_one_that_is_gone_is_given_up() {
        let began = Instant::now();
        let paused = sleep(10 * STALL);
        assert!(pauses().patient(alive(), paused).await.is_some());
        assert_eq!(began.elapsed().as_secs(), 10 * STALL.as_secs());
        let began = Instant::now();
        assert!(pauses().patient(|| 7, pending::<()>()).await.is_none());
        assert_eq!(began.elapsed().as_secs(), STALL.as_secs());
        let began = Instant::now();
        let mut left = pauses();
        let held = left.patient(alive(), pending::<()>());
        assert!(held.await.is_none(), "no file is held for ever");
        assert_eq!(began.elapsed().as_secs(), PAUSE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_an_hour_for_all_its_pauses_together() {
        let began = Instant::now();
        let mut pauses = pauses();
        let mut pieces = 0;
        while pieces < 10 {
            if pauses.patient(alive(), sleep(PAUSE / 3)).await.is_none() {
                break;
            }
            pieces += 1;
        }
        assert!(pieces <= 3, "{pieces} pieces, a long pause before each");
        assert!(began.elapsed() < PAUSE + 2 * STALL);
        let mut pauses = self::pauses();
        for _ in 0..1000 {
            let slow = pauses.patient(alive(), sleep(STALL / 4));
            assert!(slow.await.is_some(), "slow");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_requests_of_an_address_pause_at_a_time() {
        let paused = Arc::new(Paused::default());
        let begin = |address: &str| Pauses::new(origin(address), Arc::clone(&paused));
        let mut asked = tokio::task::JoinSet::new();
        // They arrive one after another, from the addresses of one customer.
        for client in 0..2 * AT_ONCE {
            let mut pauses = begin(&format!("2001:db8::{client:x}"));
            asked.spawn(async move {
                sleep(Duration::from_millis(client as u64)).await;
                let done = pauses.patient(alive(), sleep(10 * STALL)).await;
                (done.is_some(), client)
            });
        }
        let mut other = begin("2001:db8:0:1::1");
        let other = other.patient(alive(), sleep(10 * STALL));
        let (other, asked) = tokio::join!(other, asked.join_all());
        assert!(other.is_some(), "another address has pauses of its own");
        let done = asked.into_iter().filter(|(done, _)| *done);
        let mut done: Vec<usize> = done.map(|(_, client)| client).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..AT_ONCE), "not the first ones");
        assert!(paused.0.lock().unwrap().is_empty(), "all are over");
    }
}
