//! What becomes of a connection whose work panics: it ends, the others go on.
//!
//! A scheduler, a congestion controller, an observer or a certificate verifier may be anybody's
//! code, and ours may be wrong too. After a panic nothing that the connection holds is relied upon
//! but what it takes to say `INTERNAL_ERROR` to the peer; if that panics as well, it is forgotten
//! without a word.

use super::{Endpoint, Handle, touch};
use crate::error::{ConnectionError, TransportError};
use crate::event::Event;
use crate::time::Instant;
use crate::wire::TransportErrorCode;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Lets something panic, if it may; none if it did.
pub(super) fn contained<R>(may_panic: bool, work: impl FnOnce() -> R) -> Option<R> {
    if may_panic {
        // Whoever gets none gives up what the work had its hands on.
        catch_unwind(AssertUnwindSafe(work)).ok()
    } else {
        Some(work())
    }
}

/// What the application and the peer are told.
pub(crate) fn internal_error() -> TransportError {
    TransportError::new(TransportErrorCode::INTERNAL_ERROR, "internal error")
}

impl Endpoint {
    /// The work of a connection panicked: it is closed with `INTERNAL_ERROR`. The endpoint calls
    /// this itself for all that it does if it is told to
    /// [contain panics](crate::config::EndpointConfig::contain_panics); a driver calls it when a
    /// command panicked that it gave to [`connection_mut`](Self::connection_mut).
    #[cold]
    pub fn fail(&mut self, now: Instant, handle: Handle) {
        let Some(member) = self.connections.get_mut(&handle) else {
            return;
        };
        let is_first = !std::mem::replace(&mut member.has_failed, true);
        let connection = &mut member.connection;
        let can_close = is_first && contained(true, || connection.on_panic(now)).is_some();
        if can_close {
            touch(member, handle, &mut self.dirty, &mut self.ready);
        } else {
            self.bury(handle);
        }
    }

    /// Forgets a connection without asking it anything.
    fn bury(&mut self, handle: Handle) {
        let Some(member) = self.connections.remove(&handle) else {
            return;
        };
        self.handshaking.remove(&handle);
        self.deadlines.change(handle, member.armed, None);
        self.routes.remove_all(handle);
        if let Some(counted) = &member.counted {
            self.crowds.leave(counted);
        }
        if !member.has_ended {
            let error = ConnectionError::Transport(internal_error());
            self.events.push_back((handle, Event::Closed(error)));
        }
        self.events.push_back((handle, Event::Drained));
        let connection = member.connection;
        // What it owns may be anybody's code as well.
        let _ = contained(true, || drop(connection));
    }
}
