//! Whom it is told that the memory for receive windows has room again ([`ReceiveBudget`] says how
//! much each connection may promise).
//!
//! A connection looks by itself whenever something arrives for it, or is read. That is enough while
//! its peer can send. One whose peer has used up what it was promised, with streams among it that
//! nobody reads, would not hear of room that others have made since: it is looked at in intervals.
//!
//! One timer: when those that lack room are looked at next.
//!
//! [`ReceiveBudget`]: crate::streams::ReceiveBudget

use super::{Endpoint, Handle, touch};
use crate::connection::Connection;
use crate::time::{Duration, Instant};
use std::collections::BTreeSet;

/// Long enough to cost nothing with many that wait, and short beside the time that they waited.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The connections of one endpoint that lack room.
#[derive(Debug, Default)]
pub(super) struct Windows {
    waiting: BTreeSet<Handle>,
    deadline: Option<Instant>,
}

impl Windows {
    /// When to look who finds room.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Notes whether a connection lacks room, after it did something; returns whether that is new.
    pub(super) fn note(&mut self, now: Instant, handle: Handle, connection: &Connection) -> bool {
        let is_new = connection.is_short_of_room() && self.waiting.insert(handle);
        if is_new {
            self.deadline.get_or_insert(now + LOOK_INTERVAL);
        }
        is_new
    }
}

impl Endpoint {
    /// Has those that lack room look again, once it is time.
    pub(super) fn widen_windows(&mut self, now: Instant) {
        let windows = &mut self.windows;
        if windows.deadline.is_none_or(|at| at > now) {
            return;
        }
        for handle in std::mem::take(&mut windows.waiting) {
            let Some(member) = self.connections.get_mut(&handle) else {
                continue;
            };
            if member.connection.look_for_room() {
                touch(member, handle, &mut self.dirty, &mut self.ready);
            } else if member.connection.is_short_of_room() {
                windows.waiting.insert(handle);
            }
        }
        let is_waited_for = !windows.waiting.is_empty();
        windows.deadline = is_waited_for.then(|| now + LOOK_INTERVAL);
    }
}
