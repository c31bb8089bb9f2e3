//! Flow control (RFC 9000, section 4): credit granted to the peer and credit it granted.

use super::receive_budget::{Promise, ReceiveBudget};
use super::{CreditUpdate, Limits};
use crate::error::TransportError;
use crate::time::{Duration, Instant};
use anabranch_wire::{TransportErrorCode, varint};

/// A new limit is announced once it gives the peer this part of the window. Less often, and the
/// last part of the window goes unused while the announcement travels; more often, and packets
/// carry little but limits.
const ANNOUNCED_PART: u64 = 8;

/// A window of up to this many bytes that cannot grow is announced in steps of two packets, as
/// often as acknowledgements are sent: an eighth of it would be an eighth of its rate.
const SMALL_WINDOW: u64 = 128 << 10;
const SMALL_STEP: u64 = 2 * 1200;

/// A window used within this many RTTs is too small: one RTT passes before the peer learns of new
/// credit, and data of several paths waits for the slowest one (RFC 8684, section 3.3.1, sizes the
/// receive buffer at twice the product of the sum of bandwidths and the largest RTT).
const TIGHT_RTTS: u64 = 2;

/// Where memory is short, what is read of a window is measured over this time at least before the
/// window shrinks, and over [`SHRINK_RTTS`]. A pause of that length is not counted: what comes in
/// bursts is not slow.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
const SHRINK_RTTS: u32 = 8;

/// A window is widened to this many times the bytes that wait in it behind gaps. Reading stands
/// still meanwhile and does not show how fast data comes. A sender in slow start sends twice as
/// much in the next RTT, and twice again in the RTT until it learns of new credit. What is missing
/// is not counted: it may never come.
const HELD_TIMES: u64 = 4;

/// Beyond its first size, gaps widen a window to this many times what was read in all. A slow path
/// that holds up a fast one delivers little meanwhile.
const EARNED_TIMES: u64 = 32;

/// What window sizes are tuned by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tuning {
    /// Largest smoothed RTT of the paths; zero while unknown.
    pub(super) rtt: Duration,
    pub(super) now: Instant,
    /// Others need the memory of windows that are not used.
    pub(super) is_tight: bool,
}

/// The part of what the connection can still take to which the window of one stream may grow, so
/// that streams which one after another are read no more take less and less.
const STREAM_PART: (u64, u64) = (2, 3);

/// Credit this side grants: on a stream or on the connection.
#[derive(Debug)]
pub(super) struct Grant {
    window: u64,
    /// What the window began with: it never gets smaller.
    min_window: u64,
    max_window: u64,
    update: CreditUpdate,
    /// Bytes the application read or will never read.
    consumed: u64,
    /// Bytes the application read.
    read: u64,
    /// The limit the peer was told.
    advertised: u64,
    /// When the part of the window that is being measured began to be consumed.
    measured_since: Instant,
    measured_from: u64,
    /// When the application last read.
    last_read: Instant,
    /// The window that the last part needed, if that was no slow one: when it was consumed, nobody
    /// knew that a pause would follow.
    needed_last: u64,
}

impl Grant {
    pub(super) fn new(window: u64, max_window: u64, update: CreditUpdate, now: Instant) -> Self {
        Self {
            window,
            update,
            min_window: window,
            max_window: max_window.max(window),
            consumed: 0,
            read: 0,
            advertised: window,
            measured_since: now,
            measured_from: 0,
            last_read: now,
            needed_last: 0,
        }
    }

    /// The limit the peer was told.
    pub(super) fn advertised(&self) -> u64 {
        self.advertised
    }

    /// Bytes the application read or will never read.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Makes the window at least `window`, as far as the configuration lets it grow.
    pub(super) fn widen(&mut self, window: u64) {
        self.window = self.window.max(window.min(self.max_window));
    }

    /// `held` bytes wait behind gaps: makes the window [`HELD_TIMES`] as large, or `least` if that
    /// is more, but not beyond `most`, nor beyond what was earned by what was read
    /// ([`EARNED_TIMES`]). So a peer of whom nothing is read gains nothing by leaving gaps.
    pub(super) fn on_held(&mut self, held: u64, least: u64, most: u64) {
        let earned = self.read.saturating_mul(EARNED_TIMES);
        let most = most.min(self.min_window.saturating_add(earned));
        self.widen(held.saturating_mul(HELD_TIMES).max(least).min(most));
    }

    /// Whether `held` bytes behind gaps are so many that the window should grow.
    pub(super) fn is_filled_by(&self, held: u64) -> bool {
        held > self.window / HELD_TIMES && self.can_grow()
    }

    pub(super) fn can_grow(&self) -> bool {
        self.window < self.max_window
    }

    /// The application read `bytes`. Where that was fast enough, a window in full use doubles, up
    /// to `most`.
    pub(super) fn on_read(&mut self, bytes: u64, most: u64, tuning: Tuning) {
        self.consumed += bytes;
        self.read += bytes;
        self.tune(most, tuning);
    }

    /// `bytes` will never be read.
    pub(super) fn on_discarded(&mut self, bytes: u64) {
        self.consumed += bytes;
        self.measured_from += bytes;
    }

    /// Whether a limit is far enough beyond what the peer was told, if it may move by `room` bytes.
    fn is_worth_announcing(&self, limit: u64, room: u64) -> bool {
        let part = room / ANNOUNCED_PART;
        let step = match self.update {
            CreditUpdate::Eighth if self.stays_small() => part.min(SMALL_STEP),
            CreditUpdate::Eighth => part,
            CreditUpdate::EveryRead => 1,
        };
        limit.saturating_sub(self.advertised) >= step.max(1)
    }

    fn stays_small(&self) -> bool {
        self.window >= self.max_window && self.window <= SMALL_WINDOW
    }

    /// Whether the limit moved enough to be announced.
    pub(super) fn is_due(&self) -> bool {
        self.is_worth_announcing(self.limit(), self.window)
    }

    fn limit(&self) -> u64 {
        (self.consumed + self.window).min(varint::MAX)
    }

    /// The limit to announce now.
    pub(super) fn announce(&mut self) -> u64 {
        self.announce_up_to(self.limit())
    }

    fn announce_up_to(&mut self, limit: u64) -> u64 {
        self.advertised = self.advertised.max(limit);
        self.advertised
    }

    /// Doubles a window of which half was consumed at a rate that uses it up within [`TIGHT_RTTS`].
    /// Where memory is short, one that is consumed at a lower rate shrinks to twice what that rate
    /// needs.
    fn tune(&mut self, most: u64, tuning: Tuning) {
        let Tuning { rtt, now, is_tight } = tuning;
        let measured = self.consumed - self.measured_from;
        let elapsed = now.since(self.measured_since);
        let last_read = std::mem::replace(&mut self.last_read, now);
        let period = SHRINK_AFTER.max(rtt * SHRINK_RTTS);
        let is_slow = is_tight && elapsed >= period;
        if measured < self.window / 2 && !is_slow {
            return;
        }
        let tight = rtt.as_nanos() * u128::from(TIGHT_RTTS);
        let needed = |nanos: u128| {
            let needed = 2 * u128::from(measured) * tight / nanos.max(1);
            u64::try_from(needed).unwrap_or(u64::MAX)
        };
        if is_slow {
            let needed = if now.since(last_read) >= period {
                // A short burst needs no more than twice its size.
                let burst = last_read.since(self.measured_since);
                needed(burst.as_nanos().max(tight))
            } else {
                needed(elapsed.as_nanos())
            };
            let needed = needed.max(self.needed_last).max(self.min_window);
            self.window = self.window.min(needed);
            self.needed_last = 0;
        } else {
            let elapsed = elapsed.as_nanos();
            if elapsed * u128::from(self.window) < tight * u128::from(measured) {
                let most = most.min(self.max_window);
                self.window = self.window.max(self.window.saturating_mul(2).min(most));
            }
            self.needed_last = needed(elapsed);
        }
        self.measured_since = now;
        self.measured_from = self.consumed;
    }
}

/// Credit this side grants on the connection, for all bytes of its streams.
///
/// ```text
///  |<-- consumed -->|<----------- window ----------->|
///  |<-------- received, some of it unread -------->|<- half a window ->|
///                   |<----------------------- most ----------------------->|
/// ```
/// The limit is behind the window, or half a window behind what was received if that is further:
/// streams that nobody reads do not stop the others, until they hold `most`. That begins with the
/// window and grows as much as is read: who is read nothing of gets nothing beyond. Without a
/// reserve the limit is behind the window.
///
/// All that goes beyond the first window is on the account of a budget, if there is one, and the
/// limit moves no further than that has room. So the peer has always the first window, behind what
/// was read.
#[derive(Debug)]
pub(super) struct Inbound {
    grant: Grant,
    /// Sum of the highest offsets received.
    received: u64,
    /// Unread bytes this side ever takes. `None` if there is no reserve.
    ceiling: Option<u64>,
    promise: Promise,
    /// Nothing more will arrive.
    has_ended: bool,
}

impl Inbound {
    pub(super) fn new(limits: &Limits) -> Self {
        let window = limits.receive_window;
        let update = limits.credit_update;
        let grant = Grant::new(window, limits.max_receive_window, update, Instant::ZERO);
        let reserve = Some(limits.receive_reserve).filter(|reserve| *reserve > 0);
        Self {
            ceiling: reserve.map(|reserve| grant.max_window.saturating_add(reserve)),
            grant,
            received: 0,
            promise: Promise::default(),
            has_ended: false,
        }
    }

    /// What it promises counts on this budget.
    pub(super) fn charge_to(&mut self, budget: ReceiveBudget) {
        self.promise = Promise::new(budget);
    }

    /// Whether others need the memory of windows that are not used.
    pub(super) fn is_tight(&self) -> bool {
        self.promise.is_tight()
    }

    /// Whether the peer is about to stop for lack of room in the budget: nothing else keeps it from
    /// more credit.
    pub(super) fn is_short_of_room(&self) -> bool {
        let is_starved = |window: u64| self.unused() < window / ANNOUNCED_PART;
        // First what is seen without the budget: asked after each thing that a connection does.
        is_starved(self.grant.window())
            && is_starved(self.window())
            && !self.is_due()
            && !self.has_ended
            && self.is_due_within(u64::MAX)
    }

    pub(super) fn window(&self) -> u64 {
        self.grant.window().min(self.allowed())
    }

    /// Bytes that were read or will never be.
    #[cfg(test)]
    pub(super) fn consumed(&self) -> u64 {
        self.grant.consumed()
    }

    /// Bytes promised beyond the first window, and what of the budget is kept for them.
    #[cfg(test)]
    pub(super) fn promised(&self) -> (u64, u64) {
        let promised = self.beyond(self.grant.advertised());
        (promised, self.promise.held())
    }

    /// Counts `bytes` beyond the highest offset of a stream.
    pub(super) fn receive(&mut self, bytes: u64) -> Result<(), TransportError> {
        if bytes > self.unused() {
            return Err(TransportError::new(
                TransportErrorCode::FLOW_CONTROL_ERROR,
                "more data than the connection's limit",
            ));
        }
        self.received += bytes;
        Ok(())
    }

    /// The largest window a stream may grow to, by what others have left unread.
    pub(super) fn most_of_stream(&self) -> u64 {
        let (part, of) = STREAM_PART;
        self.ceiling.map_or(u64::MAX, |ceiling| {
            let most = ceiling.min(self.allowed());
            most.saturating_sub(self.unread()) / of * part
        })
    }

    /// Bytes received that were not read and may be.
    pub(super) fn unread(&self) -> u64 {
        self.received.saturating_sub(self.grant.consumed())
    }

    /// Bytes the peer may still send.
    fn unused(&self) -> u64 {
        self.grant.advertised().saturating_sub(self.received)
    }

    /// Unread bytes this side takes now.
    fn most(&self) -> Option<u64> {
        let earned = self.grant.window().saturating_add(self.grant.consumed());
        self.ceiling.map(|ceiling| ceiling.min(earned))
    }

    /// Bytes beyond those read that the budget allows to promise.
    fn allowed(&self) -> u64 {
        self.grant.min_window.saturating_add(self.promise.most())
    }

    /// How much of a limit goes beyond the first window.
    fn beyond(&self, limit: u64) -> u64 {
        let first = self.grant.consumed().saturating_add(self.grant.min_window);
        limit.saturating_sub(first)
    }

    /// Whether `held` bytes behind gaps are so many that the window should grow.
    pub(super) fn is_filled_by(&self, held: u64) -> bool {
        self.grant.is_filled_by(held)
    }

    /// `held` bytes of all streams wait behind gaps, those of a stream with this window among them.
    pub(super) fn on_held(&mut self, held: u64, window: u64) {
        self.grant.on_held(held, with_room_for(window), u64::MAX);
    }

    /// The application read `bytes` of a stream with this window.
    pub(super) fn on_read(&mut self, bytes: u64, window: u64, tuning: Tuning) {
        self.grant.widen(with_room_for(window));
        self.grant.on_read(bytes, u64::MAX, tuning);
        self.settle();
    }

    /// `bytes` will never be read.
    pub(super) fn on_discarded(&mut self, bytes: u64) {
        self.grant.on_discarded(bytes);
        self.settle();
    }

    /// The connection is over: what the peer may still send, it will not.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.grant.advertised = self.received;
        self.settle();
    }

    /// Gives back what was read.
    fn settle(&mut self) {
        self.promise.set(self.beyond(self.grant.advertised()));
    }

    /// Whether the limit moved enough to be announced.
    pub(super) fn is_due(&self) -> bool {
        !self.has_ended && self.is_due_within(self.allowed())
    }

    fn is_due_within(&self, allowed: u64) -> bool {
        let window = self.grant.window().min(allowed);
        let room = self.most().map_or(window, |most| {
            most.min(allowed).saturating_sub(self.unread()).min(window)
        });
        let limit = self.limit_within(allowed);
        self.grant.is_worth_announcing(limit, room)
    }

    /// The limit to announce now.
    pub(super) fn announce(&mut self) -> u64 {
        let limit = self.limit_within(self.allowed());
        let wanted = self.beyond(limit.max(self.grant.advertised()));
        // Others may have been faster.
        let missing = wanted - self.promise.set(wanted);
        self.grant.announce_up_to(limit.saturating_sub(missing))
    }

    fn limit_within(&self, allowed: u64) -> u64 {
        let consumed = self.grant.consumed();
        let limit = match self.most() {
            None => self.grant.limit(),
            Some(most) => {
                let ahead = self.received.saturating_add(self.grant.window() / 2);
                let most = consumed.saturating_add(most);
                self.grant.limit().max(ahead.min(most)).min(varint::MAX)
            }
        };
        limit.min(consumed.saturating_add(allowed))
    }
}

/// The window of a connection in which a stream alone can use its own window.
fn with_room_for(window: u64) -> u64 {
    window.saturating_add(window / 2)
}

/// Credit the peer grants on the connection.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    limit: u64,
    /// Sum of the highest offsets sent.
    used: u64,
    /// The limit at which sending was last found blocked.
    blocked_at: Option<u64>,
}

impl Outbound {
    /// Bytes that may be sent beyond the highest offsets.
    pub(super) fn credit(&self) -> u64 {
        self.limit - self.used
    }

    /// Sum of the highest offsets sent.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn use_up(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.credit(), "the caller stays within the credit");
        self.used += bytes;
    }

    /// The peer's limit; a lower one than before arrived late and means nothing.
    pub(super) fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Notes that data waits for credit; returns whether that is news to the peer.
    pub(super) fn note_blocked(&mut self) -> bool {
        self.blocked_at.replace(self.limit) != Some(self.limit)
    }

    /// The limit to name in `DATA_BLOCKED`; `None` if sending is not blocked any more.
    pub(super) fn blocked_limit(&self) -> Option<u64> {
        (self.credit() == 0).then_some(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, rtt_ms: u64) -> Tuning {
        Tuning {
            rtt: Duration::from_millis(rtt_ms),
            now: Instant::from_nanos(ms * 1_000_000),
            is_tight: false,
        }
    }

    #[test]
    fn a_limit_is_announced_once_an_eighth_of_the_window_is_free() {
        let mut grant = Grant::new(800, 800, CreditUpdate::Eighth, Instant::ZERO);
        grant.on_read(99, u64::MAX, at(0, 0));
        assert!(!grant.is_due());
        grant.on_read(1, u64::MAX, at(0, 0));
        assert!(grant.is_due());
        assert_eq!(grant.announce(), 900);
        grant.on_read(1, u64::MAX, at(0, 0));
        assert!(!grant.is_due());
    }

    #[test]
    fn a_small_window_that_cannot_grow_is_announced_in_steps_of_two_packets() {
        const WINDOW: u64 = 32 << 10;
        let grant = |most| Grant::new(WINDOW, most, CreditUpdate::Eighth, Instant::ZERO);
        let (mut fixed, mut growing) = (grant(WINDOW), grant(2 * WINDOW));
        for (grant, step) in [(&mut fixed, SMALL_STEP), (&mut growing, WINDOW / 8)] {
            grant.on_read(step - 1, u64::MAX, at(0, 0));
            assert!(!grant.is_due());
            grant.on_read(1, u64::MAX, at(0, 0));
            assert!(grant.is_due());
        }
    }

    #[test]
    fn a_window_used_up_within_two_round_trips_doubles_to_its_maximum() {
        let mut grant = Grant::new(1000, 3000, CreditUpdate::Eighth, Instant::ZERO);
        grant.on_read(500, u64::MAX, at(5, 10));
        assert_eq!(grant.window(), 2000);
        grant.on_read(1000, u64::MAX, at(10, 10));
        assert_eq!(grant.window(), 3000);
    }

    #[test]
    fn a_window_grows_no_further_than_what_is_left_allows() {
        let mut grant = Grant::new(1000, 8000, CreditUpdate::Eighth, Instant::ZERO);
        grant.on_read(500, 1500, at(5, 10));
        assert_eq!(grant.window(), 1500);
        grant.on_read(1000, 700, at(10, 10));
        assert_eq!(grant.window(), 1500, "it never shrinks");
    }

    #[test]
    fn a_window_read_slowly_keeps_its_size() {
        let mut grant = Grant::new(1000, 4000, CreditUpdate::Eighth, Instant::ZERO);
        for ms in [11, 22, 33] {
            grant.on_read(500, u64::MAX, at(ms, 10));
        }
        assert_eq!(grant.window(), 1000);
    }

    #[test]
    fn a_window_read_slowly_shrinks_to_twice_what_its_rate_needs_where_memory_is_short() {
        let mut grant = Grant::new(1000, 80_000, CreditUpdate::Eighth, Instant::ZERO);
        let slow = |ms| Tuning {
            is_tight: true,
            ..at(ms, 10)
        };
        grant.widen(80_000);
        grant.announce();
        grant.on_read(30_000, u64::MAX, slow(999));
        assert_eq!(grant.window(), 80_000, "not measured for long enough");
        grant.on_read(20_000, u64::MAX, slow(1000));
        // 50 bytes a millisecond, twice over two round trips of 10 ms.
        assert_eq!(grant.window(), 2000);
        assert!(!grant.is_due(), "what was announced is beyond it");
        grant.on_read(1, u64::MAX, slow(5000));
        assert_eq!(grant.window(), 1000, "no less than it began with");
    }

    #[test]
    fn a_pause_does_not_make_a_burst_slow_where_memory_is_short() {
        let slow = |ms| Tuning {
            is_tight: true,
            ..at(ms, 10)
        };
        // In steps of 1 ms, every 3 s, of the size that the window has or much smaller.
        for (burst, least) in [(40_000, 80_000), (4000, 8000)] {
            let mut grant = Grant::new(1000, 80_000, CreditUpdate::Eighth, Instant::ZERO);
            grant.widen(80_000);
            for start in (0..60_000).step_by(3000) {
                for ms in 1..=20 {
                    grant.on_read(burst / 20, u64::MAX, slow(start + ms));
                    assert!(grant.window() >= least, "{} at {start}", grant.window());
                }
            }
            assert!(grant.window() <= 2 * least, "{}", grant.window());
        }
    }

    #[test]
    fn a_window_of_a_byte_now_and_then_shrinks_where_memory_is_short() {
        let mut grant = Grant::new(1000, 80_000, CreditUpdate::Eighth, Instant::ZERO);
        grant.widen(80_000);
        let mut read = |bytes, ms| {
            let tuning = Tuning {
                is_tight: true,
                ..at(ms, 10)
            };
            grant.on_read(bytes, u64::MAX, tuning);
            grant.window()
        };
        // It was in full use.
        assert_eq!([read(40_000, 10), read(40_000, 20)], [80_000; 2]);
        assert_eq!(read(1, 5000), 80_000, "a burst may have begun");
        assert_eq!(read(1, 10_000), 1000);
    }

    #[test]
    fn bytes_that_nobody_reads_do_not_widen_the_window() {
        let mut grant = Grant::new(1000, 4000, CreditUpdate::Eighth, Instant::ZERO);
        grant.on_discarded(900);
        assert!(grant.is_due());
        grant.on_read(100, u64::MAX, at(1, 10));
        assert_eq!(grant.window(), 1000);
    }

    #[test]
    fn a_blocked_limit_is_news_once() {
        let mut outbound = Outbound::default();
        outbound.raise(10);
        outbound.use_up(10);
        assert!(outbound.note_blocked());
        assert!(!outbound.note_blocked());
        outbound.raise(20);
        assert_eq!(outbound.blocked_limit(), None);
        outbound.use_up(10);
        assert!(outbound.note_blocked());
    }
}
