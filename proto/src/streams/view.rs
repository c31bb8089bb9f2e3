//! What a scheduler is told of streams and datagrams.

use super::send::{ABOVE, AGAIN, FREE};
use super::{Streams, send_buf::SendBuf};
use crate::path::PathSet;
use crate::sched::{Backlog, MAX_STREAM_VIEWS, StreamView, Unit, UnitKind};
use anabranch_wire::StreamId;

impl Streams {
    /// Whether anything waits that may be sent: whether the [`backlog`](Self::backlog) has a total.
    pub fn has_unsent(&self) -> bool {
        let totals = self.ready.totals();
        let is_fresh = totals.free > 0 || totals.above > 0 && self.outbound.credit() > 0;
        is_fresh || totals.again > 0 || self.has_datagrams()
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
        }
    }

    /// What is to be sent next, and for a retransmission the paths that carried it: first what was
    /// sent before, then datagrams, then fresh stream data. How many bytes a decision covers is
    /// left to the caller.
    pub fn next_unit(&self) -> Unit {
        if let Some(carried_by) = self.ready.first(AGAIN).and_then(|id| self.carried_by(id)) {
            return Unit {
                kind: UnitKind::Retransmission,
                carried_by,
                ..Unit::default()
            };
        }
        if let Some(options) = self.datagrams.front() {
            return Unit {
                kind: UnitKind::Datagram,
                flow: options.flow,
                deadline: options.deadline,
                critical: options.critical,
                ..Unit::default()
            };
        }
        self.next_fresh().unwrap_or(Unit {
            kind: UnitKind::Idle,
            ..Unit::default()
        })
    }

    /// The unit of fresh stream data that is sent next, if there is any.
    pub fn next_fresh(&self) -> Option<Unit> {
        let totals = self.ready.totals();
        let next = if totals.free > 0 {
            self.ready.first(FREE)
        } else if totals.above > 0 && self.outbound.credit() > 0 {
            self.ready.first(ABOVE)
        } else {
            None
        };
        let id = next?;
        Some(Unit {
            kind: UnitKind::Fresh,
            critical: self.buf_of(id).is_some_and(SendBuf::is_critical),
            ..Unit::default()
        })
    }

    fn carried_by(&self, id: StreamId) -> Option<PathSet> {
        self.buf_of(id)?.again_front().map(|(_, carried)| carried)
    }

    pub(super) fn buf_of(&self, id: StreamId) -> Option<&SendBuf> {
        self.live.get(&id)?.send.as_ref().map(|send| &send.buf)
    }

    /// Fills `views` with the streams that have fresh data which may be sent now, in the order they
    /// would be served, at most [`MAX_STREAM_VIEWS`].
    pub fn fill_views(&self, views: &mut Vec<StreamView>) {
        views.clear();
        let credit = self.outbound.credit();
        let above = (credit > 0).then(|| self.ready.iter(ABOVE));
        for id in self.ready.iter(FREE).chain(above.into_iter().flatten()) {
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
            let load = send.buf.load();
            views.push(StreamView {
                id,
                priority: send.priority,
                unsent: load.free + load.above.min(credit),
                finished: send.buf.is_finished(),
            });
        }
    }

    /// Whether fresh data of this stream may be sent now.
    pub fn has_fresh(&self, id: StreamId) -> bool {
        self.buf_of(id).is_some_and(|buf| {
            let load = buf.load();
            load.free > 0 || load.above > 0 && self.outbound.credit() > 0
        })
    }
}
