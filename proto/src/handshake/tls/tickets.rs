//! The sessions a server can resume.
//!
//! A ticket is a random name for what is kept here, so it is good once: whoever repeats a client's
//! first packets finds the session taken, and their early data is not read (RFC 8446, section 8.1).
//! What one process keeps no other one knows.

use crate::resumption::Remembered;
use rustls::server::StoresServerSessions;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Sessions kept; beyond, the oldest is forgotten, and its client pays for a full handshake.
const MAX_SESSIONS: usize = 8192;
/// The largest session kept, in bytes: the chain of the client's certificates is a part of it.
const MAX_SESSION: usize = 8 * 1024;

/// Sessions of all connections of a server, by the tickets given out for them.
#[derive(Default)]
pub(super) struct Tickets(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    sessions: BTreeMap<Vec<u8>, (Vec<u8>, Remembered)>,
    /// Tickets in the order given out. Some may be used up.
    order: VecDeque<Vec<u8>>,
}

impl Kept {
    fn insert(&mut self, ticket: Vec<u8>, session: Vec<u8>, announced: Remembered) {
        self.order.push_back(ticket.clone());
        self.sessions.insert(ticket, (session, announced));
        while self.order.len() > MAX_SESSIONS {
            if let Some(oldest) = self.order.pop_front() {
                self.sessions.remove(&oldest);
            }
        }
    }
}

/// The sessions as a connection sees them that announces certain limits: those that were promised
/// more cannot be resumed, since their clients would rely on it (RFC 9000, section 7.4.1).
pub(super) struct View {
    pub(super) tickets: Arc<Tickets>,
    pub(super) announced: Remembered,
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
        kept.insert(ticket, session, self.announced.clone());
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
        let (session, promised) = kept.sessions.remove(ticket)?;
        (!self.announced.reduces(&promised)).then_some(session)
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
        assert_eq!(
            view.tickets.0.lock().expect("not poisoned").order.len(),
            MAX_SESSIONS
        );
    }
}
