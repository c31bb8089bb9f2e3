//! What a scheduler is told of streams and datagrams.

use super::prospects::fresh_part;
use super::send::{ABOVE, AGAIN, FREE};
use super::{Streams, send_buf::SendBuf};
use crate::sched::{Backlog, ClassSet, MAX_STREAM_VIEWS, StreamView, Unit, UnitKind};
use anabranch_wire::StreamId;

impl Streams {
    /// Whether anything waits that may be sent: whether the [`backlog`](Self::backlog) has a total.
    pub fn has_unsent(&self) -> bool {
        let totals = self.ready.totals();
        let is_fresh = totals.free > 0 || totals.above > 0 && self.outbound.credit() > 0;
        is_fresh || totals.again > 0 || self.has_datagrams()
    }

    /// The classes that have data or datagrams which may be sent.
    pub fn waiting_classes(&self) -> ClassSet {
        if !self.has_classes() {
            let waits = self.has_unsent();
            return if waits {
                ClassSet::of(0)
            } else {
                ClassSet::EMPTY
            };
        }
        let has_credit = self.outbound.credit() > 0;
        let streams = if self.ready.has_classes() {
            self.ready.waiting(has_credit)
        } else {
            let totals = self.ready.totals();
            let is_fresh = totals.free > 0 || totals.above > 0 && has_credit;
            let waits = is_fresh || totals.again > 0;
            if waits {
                ClassSet::of(0)
            } else {
                ClassSet::EMPTY
            }
        };
        streams.or(self.datagrams.waiting_classes())
    }

    /// The classes of what was sent on streams and is not acknowledged.
    pub fn unacked_classes(&self) -> ClassSet {
        if self.ready.has_classes() {
            self.ready.unacked()
        } else if self.has_unacked() {
            ClassSet::of(0)
        } else {
            ClassSet::EMPTY
        }
    }

    /// Whether any class beside the first was ever used.
    pub fn has_classes(&self) -> bool {
        self.ready.has_classes() || self.datagrams.has_classes()
    }

    /// The class of what a stream sends.
    pub fn class_of(&self, id: StreamId) -> Option<u8> {
        let send = self.live.get(&id)?.send.as_ref()?;
        Some(send.class)
    }

    /// Whether anything was sent that is not acknowledged.
    pub fn has_unacked(&self) -> bool {
        self.ready.totals().unacked > 0
    }

    /// What waits to be sent. An end of stream without data counts as one byte.
    pub fn backlog(&self) -> Backlog {
        let totals = self.ready.totals();
        let credit = self.outbound.credit();
        let by_peer = credit.saturating_add(totals.span);
        let space = self.limits.send_buffer.saturating_sub(totals.held);
        let by_buffer = (totals.span + totals.above).saturating_add(space);
        Backlog {
            unsent: totals.above.min(credit) + totals.free,
            retransmit: totals.again,
            datagrams: self.datagrams.waiting(),
            credit,
            unacked: totals.unacked,
            oldest_unacked: self.ready.oldest().map(|(at, _)| at),
            send_window: by_peer.min(by_buffer),
            blocked: self.blockade().is_some(),
        }
    }

    /// What is to be sent next of all classes.
    pub fn next_unit(&self) -> Unit {
        self.next_unit_of(ClassSet::ALL)
    }

    /// What is to be sent next of these classes, and for a retransmission the paths that carried
    /// it: first what was sent before, then datagrams, then fresh stream data. How many bytes a
    /// decision covers is left to the caller.
    pub fn next_unit_of(&self, of: ClassSet) -> Unit {
        let again = self.ready.first(AGAIN, of);
        if let Some(unit) = again.and_then(|id| self.next_again(id)) {
            return unit;
        }
        self.next_new(of).unwrap_or(Unit {
            kind: UnitKind::Idle,
            ..Unit::default()
        })
    }

    fn next_again(&self, id: StreamId) -> Option<Unit> {
        let send = self.live.get(&id)?.send.as_ref()?;
        let (_, carried_by) = send.buf.again_front()?;
        Some(Unit {
            kind: UnitKind::Retransmission,
            carried_by,
            class: send.class,
            ..Unit::default()
        })
    }

    /// The next unit of new data in these classes, if any.
    pub fn next_new(&self, of: ClassSet) -> Option<Unit> {
        let Some(options) = self.datagrams.front(of) else {
            return self.next_fresh(of);
        };
        Some(Unit {
            kind: UnitKind::Datagram,
            class: options.class,
            flow: options.flow,
            deadline: options.deadline,
            max_skew: options.max_skew,
            critical: options.critical,
            ..Unit::default()
        })
    }

    fn next_fresh(&self, of: ClassSet) -> Option<Unit> {
        let (id, _) = self.locate_fresh(of, 0)?;
        let send = self.live.get(&id)?.send.as_ref()?;
        fresh_part(send, 0, self.outbound.credit())?;
        Some(Unit {
            kind: UnitKind::Fresh,
            class: send.class,
            critical: send.buf.is_critical(),
            ..Unit::default()
        })
    }

    pub(super) fn buf_of(&self, id: StreamId) -> Option<&SendBuf> {
        self.live.get(&id)?.send.as_ref().map(|send| &send.buf)
    }

    /// Fills `views` with the streams of these classes that have fresh data which may be sent now,
    /// in the order they would be served, at most [`MAX_STREAM_VIEWS`].
    pub fn fill_views(&self, of: ClassSet, views: &mut Vec<StreamView>) {
        views.clear();
        let credit = self.outbound.credit();
        let above = (credit > 0).then(|| self.ready.iter(ABOVE, of));
        for id in self.ready.iter(FREE, of).chain(above.into_iter().flatten()) {
            if views.len() == MAX_STREAM_VIEWS {
                return;
            }
            let Some(send) = self.live.get(&id).and_then(|stream| stream.send.as_ref()) else {
                continue;
            };
            // A stream with bytes of both kinds is in both queues.
            if views.iter().any(|view| view.id == id) {
                continue;
            }
            let load = send.load_now();
            views.push(StreamView {
                id,
                priority: send.priority,
                class: send.class,
                unsent: load.free + load.above.min(credit),
                finished: send.buf.is_finished(),
            });
        }
    }
}
