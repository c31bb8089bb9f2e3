//! The sessions a server can resume.
//!
//! A ticket is a random name for what is kept here, so it is good once: whoever repeats a client's
//! first packets finds the session taken, and their early data is not read (RFC 8446, section 8.1).
//! What one process keeps no other one knows.

use crate::resumption::Remembered;
use rustls::server::StoresServerSessions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Sessions kept. Beyond, the address that has most of them loses its oldest one, and that client
/// pays for a full handshake: who asks for tickets without end pushes out its own.
const MAX_SESSIONS: usize = 8192;
/// The largest session kept, in bytes: the chain of the client's certificates is a part of it.
const MAX_SESSION: usize = 8 * 1024;

/// Who a ticket was given to, as far as an address tells.
pub(crate) type Origin = [u8; 16];

/// Sessions of all connections of a server, by the tickets given out for them.
#[derive(Default)]
pub(super) struct Tickets(Mutex<Kept>);

struct Entry {
    session: Vec<u8>,
    promised: Remembered,
    origin: Origin,
    number: u64,
}

#[derive(Default)]
struct Kept {
    sessions: BTreeMap<Vec<u8>, Entry>,
    /// The tickets of each address, in the order given out.
    of: BTreeMap<Origin, BTreeMap<u64, Vec<u8>>>,
    /// Addresses by how many tickets they have.
    by_count: BTreeSet<(usize, Origin)>,
    given_out: u64,
}

impl Kept {
    fn insert(&mut self, ticket: Vec<u8>, session: Vec<u8>, promised: Remembered, origin: Origin) {
        self.take(&ticket);
        let number = self.given_out;
        self.given_out += 1;
        self.change(origin, |tickets| {
            tickets.insert(number, ticket.clone());
        });
        let entry = Entry {
            session,
            promised,
            origin,
            number,
        };
        self.sessions.insert(ticket, entry);
        while self.sessions.len() > MAX_SESSIONS
            && let Some((_, richest)) = self.by_count.last()
            && let Some((_, oldest)) = self.of.get(richest).and_then(BTreeMap::first_key_value)
        {
            let oldest = oldest.clone();
            self.take(&oldest);
        }
    }

    fn take(&mut self, ticket: &[u8]) -> Option<Entry> {
        let entry = self.sessions.remove(ticket)?;
        self.change(entry.origin, |tickets| {
            tickets.remove(&entry.number);
        });
        Some(entry)
    }

    fn change(&mut self, origin: Origin, change: impl FnOnce(&mut BTreeMap<u64, Vec<u8>>)) {
        let tickets = self.of.entry(origin).or_default();
        self.by_count.remove(&(tickets.len(), origin));
        change(tickets);
        if tickets.is_empty() {
            self.of.remove(&origin);
        } else {
            self.by_count.insert((tickets.len(), origin));
        }
    }
}

/// The sessions as a connection sees them that announces certain limits: those that were promised
/// more cannot be resumed, since their clients would rely on it (RFC 9000, section 7.4.1).
pub(super) struct View {
    pub(super) tickets: Arc<Tickets>,
    pub(super) announced: Remembered,
    pub(super) origin: Origin,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl StoresServerSessions for View {
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool {
        if session.len() > MAX_SESSION {
            return false;
        }
        let mut kept = self
            .tickets
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.insert(ticket, session, self.announced.clone(), self.origin);
        true
    }

    fn get(&self, _ticket: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let mut kept = self
            .tickets
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let entry = kept.take(ticket)?;
        (!self.announced.reduces(&entry.promised)).then_some(entry.session)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(tickets: &Arc<Tickets>, max_data: u64) -> View {
        let params = anabranch_wire::params::TransportParameters {
            initial_max_data: max_data,
            ..Default::default()
        };
        View {
            tickets: Arc::clone(tickets),
            announced: Remembered::of(&params),
            origin: [1; 16],
        }
    }

    #[test]
    fn a_ticket_is_good_once() {
        let view = view(&Arc::default(), 10);
        assert!(view.put(vec![1], vec![7]));
        assert_eq!(view.take(&[1]), Some(vec![7]));
        assert_eq!(view.take(&[1]), None);
    }

    #[test]
    fn a_session_that_was_promised_more_is_not_resumed() {
        let tickets = Arc::default();
        for (promised, now, resumes) in [(10, 9, false), (10, 10, true), (10, 11, true)] {
            view(&tickets, promised).put(vec![1], vec![7]);
            assert_eq!(view(&tickets, now).take(&[1]).is_some(), resumes);
        }
    }

    #[test]
    fn the_oldest_sessions_make_room_and_large_ones_are_not_kept() {
        let view = view(&Arc::default(), 0);
        assert!(!view.put(vec![1], vec![0; MAX_SESSION + 1]));
        for index in 0..=MAX_SESSIONS as u32 {
            assert!(view.put(index.to_be_bytes().to_vec(), vec![7]));
        }
        assert_eq!(view.take(&0u32.to_be_bytes()), None);
        assert!(view.take(&1u32.to_be_bytes()).is_some());
        let kept = view.tickets.0.lock().expect("not poisoned");
        assert_eq!(kept.sessions.len(), MAX_SESSIONS - 1);
        assert_eq!(kept.of[&view.origin].len(), MAX_SESSIONS - 1);
    }

    #[test]
    fn an_address_that_asks_for_tickets_without_end_pushes_out_its_own() {
        let tickets = Arc::default();
        let quiet = view(&tickets, 0);
        assert!(quiet.put(b"quiet".to_vec(), vec![7]));
        let greedy = View {
            origin: [2; 16],
            ..view(&tickets, 0)
        };
        for index in 0..2 * MAX_SESSIONS as u32 {
            assert!(greedy.put(index.to_be_bytes().to_vec(), vec![8]));
        }
        assert_eq!(quiet.take(b"quiet"), Some(vec![7]));
        assert_eq!(greedy.take(&0u32.to_be_bytes()), None);
    }

    #[test]
    fn nothing_is_kept_of_an_address_whose_tickets_are_used() {
        let view = view(&Arc::default(), 0);
        for _ in 0..2 {
            view.put(vec![1], vec![7]);
        }
        assert!(view.take(&[1]).is_some());
        let kept = view.tickets.0.lock().expect("not poisoned");
        assert!(kept.of.is_empty() && kept.by_count.is_empty());
    }
}
