//! What a scheduler says that it has a use for, so that nothing else is worked out for it.

/// What a scheduler uses. Whatever it does not use is left out of its view, since working it out
/// costs time.
///
/// A wrapper passes on the wants of the scheduler inside, and sets its own:
/// `Wants { copies: true, ..self.inner.wants() }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// Asks for [copies](super::Decision::Copy) while nothing waits. Without one of the three copy
    /// flags, [`PathView::copyable`](super::PathView::copyable) is never filled.
    pub copies: bool,
    /// Asks for copies while fresh data waits for a path.
    pub copies_while_busy: bool,
    /// Asks for copies while nothing new may be sent, because the peer's credit or the send buffer
    /// is [used up](super::Backlog::blocked).
    pub copies_while_blocked: bool,
    /// Asks for [`SendView::streams`](super::SendView::streams) to be filled.
    pub streams: bool,
}

impl Wants {
    /// Copies at all times, and nothing else.
    pub const COPIES: Self = Self {
        copies: true,
        copies_while_busy: true,
        copies_while_blocked: true,
        streams: false,
    };

    /// What either of two schedulers wants.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            copies: self.copies || other.copies,
            copies_while_busy: self.copies_while_busy || other.copies_while_busy,
            copies_while_blocked: self.copies_while_blocked || other.copies_while_blocked,
            streams: self.streams || other.streams,
        }
    }

    /// Whether the scheduler wants copies while nothing else can be sent. `blocked`: for lack of
    /// credit or of room in the send buffer.
    pub const fn idle_copies(self, blocked: bool) -> bool {
        if blocked {
            self.copies_while_blocked
        } else {
            self.copies
        }
    }
}
