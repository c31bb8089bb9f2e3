//! What a scheduler says that it has a use for, so that nothing else is worked out for it.

/// What a scheduler has a use for. The rest is left out of what it is shown, for it has its price.
///
/// A wrapper passes on what the scheduler inside wants, and changes what is its own:
/// `Wants { copies: true, ..self.inner.wants() }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// [`Decision::Copy`](super::Decision::Copy) is answered when there is nothing else to send.
    /// Only then is there a selection although nothing waits, and only with one of the three kinds
    /// of copies is [`PathView::copyable`](super::PathView::copyable) filled.
    pub copies: bool,
    /// Copies are also made while fresh data waits for a path.
    pub copies_while_busy: bool,
    /// Copies are also made while nothing new may be sent, because the peer's credit or the send
    /// buffer is [used up](super::Backlog::blocked).
    pub copies_while_blocked: bool,
    /// [`SendView::streams`](super::SendView::streams) is looked at.
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

    /// What one of two schedulers wants.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            copies: self.copies || other.copies,
            copies_while_busy: self.copies_while_busy || other.copies_while_busy,
            copies_while_blocked: self.copies_while_blocked || other.copies_while_blocked,
            streams: self.streams || other.streams,
        }
    }

    /// Whether copies are made while nothing else can be sent, which `blocked` says is for lack of
    /// credit or of room in the send buffer.
    pub const fn idle_copies(self, blocked: bool) -> bool {
        if blocked {
            self.copies_while_blocked
        } else {
            self.copies
        }
    }
}
