//! Which streams exist (RFC 9000, section 4.6), told by counters.

use anabranch_wire::frame::MAX_STREAM_COUNT;

/// A new limit is announced once this part of the streams allowed was closed.
const ANNOUNCED_PART: u64 = 8;

/// Streams of one direction that this side opens.
#[derive(Debug, Default)]
pub(super) struct LocalIds {
    next: u64,
    limit: u64,
    wants_open: bool,
    blocked_at: Option<u64>,
}

impl LocalIds {
    /// The index of a new stream, if the peer allows one.
    pub(super) fn open(&mut self) -> Option<u64> {
        let index = self.next;
        self.wants_open = index >= self.limit;
        if self.wants_open {
            return None;
        }
        self.next += 1;
        Some(index)
    }

    /// Whether the stream of this index was opened.
    pub(super) fn has_opened(&self, index: u64) -> bool {
        index < self.next
    }

    /// Takes the peer's limit for the one before; false if more streams were opened.
    pub(super) fn restart(&mut self, limit: u64) -> bool {
        self.limit = limit;
        self.blocked_at = None;
        self.next <= limit
    }

    /// Takes the peer's limit; returns whether the application waits for it.
    pub(super) fn raise(&mut self, limit: u64) -> bool {
        self.limit = self.limit.max(limit);
        self.next < self.limit && std::mem::take(&mut self.wants_open)
    }

    /// Notes that no stream could be opened; returns whether that is news to the peer.
    pub(super) fn note_blocked(&mut self) -> bool {
        self.blocked_at.replace(self.limit) != Some(self.limit)
    }

    /// The limit to name in `STREAMS_BLOCKED`; `None` if opening is not blocked any more.
    pub(super) fn blocked_limit(&self) -> Option<u64> {
        (self.next >= self.limit).then_some(self.limit)
    }
}

/// Streams of one direction that the peer opens.
#[derive(Debug)]
pub(super) struct RemoteIds {
    /// Streams opened.
    next: u64,
    /// Streams handed to the application.
    accepted: u64,
    /// Streams forgotten.
    closed: u64,
    /// Streams allowed at a time.
    window: u64,
    /// The limit the peer was told.
    advertised: u64,
    /// Whether an event about new streams waits for the application.
    pub(super) announced: bool,
}

impl RemoteIds {
    pub(super) fn new(window: u64) -> Self {
        let window = window.min(MAX_STREAM_COUNT);
        Self {
            next: 0,
            accepted: 0,
            closed: 0,
            window,
            advertised: window,
            announced: false,
        }
    }

    /// Whether the stream of this index was opened.
    pub(super) fn has_opened(&self, index: u64) -> bool {
        index < self.next
    }

    /// Opens the stream of this index and all below; returns the indices of the new ones, or `None`
    /// if the limit does not allow it.
    pub(super) fn open_to(&mut self, index: u64) -> Option<std::ops::Range<u64>> {
        if index >= self.advertised {
            return None;
        }
        let new = self.next..index + 1;
        self.next = self.next.max(index + 1);
        Some(new)
    }

    /// The index of the next stream for the application.
    pub(super) fn accept(&mut self) -> Option<u64> {
        let index = self.accepted;
        (index < self.next).then(|| {
            self.accepted += 1;
            index
        })
    }

    /// A stream was forgotten; returns whether the limit moved enough to be announced.
    pub(super) fn on_closed(&mut self) -> bool {
        self.closed += 1;
        self.limit() - self.advertised >= (self.window / ANNOUNCED_PART).max(1)
    }

    fn limit(&self) -> u64 {
        (self.closed + self.window)
            .min(MAX_STREAM_COUNT)
            .max(self.advertised)
    }

    /// The limit to announce now.
    pub(super) fn announce(&mut self) -> u64 {
        self.advertised = self.limit();
        self.advertised
    }
}
