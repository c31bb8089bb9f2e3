//! Which sockets have something to read: each has a waker of its own that puts it on a list, so
//! that a round costs time only for sockets that have data, however many there are.

use anabranch_proto::datagram::SocketId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The list, and who reads it.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// Each at most once, in the order in which they became ready.
    sockets: Vec<SocketId>,
    driver: Option<Waker>,
}

/// A socket's place on the list.
#[derive(Debug)]
pub(super) struct Entry {
    socket: SocketId,
    listed: AtomicBool,
    list: Arc<Ready>,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the list to the end of `into`, and has `driver` woken when a socket is put on it from
    /// now on.
    pub(super) fn take(&self, driver: &Waker, into: &mut Vec<SocketId>) {
        let mut list = self.lock();
        into.append(&mut list.sockets);
        match &mut list.driver {
            Some(known) => known.clone_from(driver),
            None => list.driver = Some(driver.clone()),
        }
    }
}

impl Entry {
    /// An entry for a socket, which is on the list: nobody knows yet what it holds.
    pub(super) fn new(socket: SocketId, list: &Arc<Ready>) -> Arc<Self> {
        let entry = Arc::new(Self {
            socket,
            listed: AtomicBool::new(false),
            list: Arc::clone(list),
        });
        entry.relist();
        entry
    }

    /// The socket was taken from the list: its next wake-up puts it there again.
    pub(super) fn taken(&self) {
        self.listed.store(false, Ordering::Release);
    }

    /// Puts the socket on the list for the next round; the driver is not woken.
    pub(super) fn relist(&self) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.list.lock().sockets.push(self.socket);
        }
    }
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut list = self.list.lock();
        list.sockets.push(self.socket);
        let driver = list.driver.clone();
        drop(list);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn taken(list: &Ready, driver: &Waker, entries: &[Arc<Entry>]) -> Vec<u32> {
        let mut sockets = Vec::new();
        list.take(driver, &mut sockets);
        let listed = |entry: &&Arc<Entry>| sockets.contains(&entry.socket);
        entries.iter().filter(listed).for_each(|it| it.taken());
        sockets.into_iter().map(|socket| socket.0).collect()
    }

    #[test]
    fn a_socket_is_read_when_it_is_new_and_when_it_was_woken() {
        let list = Arc::new(Ready::default());
        let count = Arc::new(Count::default());
        let driver = Waker::from(Arc::clone(&count));
        let entries: Vec<_> = (0..3).map(|id| Entry::new(SocketId(id), &list)).collect();
        assert_eq!(taken(&list, &driver, &entries), [0, 1, 2], "all are new");
        assert!(taken(&list, &driver, &entries).is_empty());
        let wakers: Vec<Waker> = entries.iter().cloned().map(Waker::from).collect();
        wakers[2].wake_by_ref();
        wakers[0].wake_by_ref();
        wakers[2].wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "once for each socket");
        assert_eq!(taken(&list, &driver, &entries), [2, 0]);
        wakers[2].wake_by_ref();
        assert_eq!(taken(&list, &driver, &entries), [2], "and once more");
    }

    #[test]
    fn a_socket_that_may_hold_more_is_read_in_the_next_round_without_a_wake_up() {
        let list = Arc::new(Ready::default());
        let count = Arc::new(Count::default());
        let driver = Waker::from(Arc::clone(&count));
        let entries = [Entry::new(SocketId(7), &list)];
        assert_eq!(taken(&list, &driver, &entries), [7]);
        entries[0].relist();
        entries[0].relist();
        assert_eq!(taken(&list, &driver, &entries), [7]);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }
}
