//! Which classes the scheduler lets wait, until when, and how long it may.
//!
//! Each class has its own wait: one whose path is full must not keep the others from theirs, and
//! what they send buys it no patience.

use super::patience::Patience;
use crate::sched::ClassSet;
use crate::time::Instant;
use smallvec::SmallVec;

/// One class that waits, or none of whose data does.
#[derive(Debug, Default)]
struct Wait {
    /// The scheduler asked for patience until then.
    until: Option<Instant>,
    /// How long it is borne with.
    patience: Patience,
    /// Patience ran out: lowest RTT decides once, so that nothing is held for ever.
    overdue: bool,
}

/// By class, as far as they ever waited; only connections that use classes have more than one.
#[derive(Debug, Default)]
pub(super) struct Waits(SmallVec<[Wait; 1]>);

impl Waits {
    /// The scheduler holds a class, with `in_flight` bytes in flight: it is asked again when it
    /// `wanted`, or at the latest when patience is over, which is `longest` if time begins here.
    pub(super) fn hold(
        &mut self,
        class: u8,
        wanted: Option<Instant>,
        longest: Instant,
        in_flight: u64,
    ) {
        let class = usize::from(class);
        if class >= self.0.len() {
            self.0.resize_with(class + 1, Wait::default);
        }
        let wait = &mut self.0[class];
        let cap = wait.patience.on_hold(longest, in_flight);
        wait.until = Some(wanted.map_or(cap, |until| until.min(cap)));
    }

    /// The classes that wait, although their time may be over.
    pub(super) fn held(&self) -> ClassSet {
        self.holding(|_| true)
    }

    /// The classes that wait for longer than `now`.
    pub(super) fn held_at(&self, now: Instant) -> ClassSet {
        self.holding(|until| now < until)
    }

    fn holding(&self, counts: impl Fn(Instant) -> bool) -> ClassSet {
        let waits = (0..).zip(&self.0);
        let held = waits.filter(|(_, wait)| wait.until.is_some_and(&counts));
        held.map(|(class, _)| class).collect()
    }

    /// When the first class is asked about again at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|wait| wait.until).min()
    }

    /// Ends every wait. Patience goes on.
    pub(super) fn end(&mut self) {
        for wait in &mut self.0 {
            wait.until = None;
        }
    }

    /// Ends the waits whose time has come.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        for wait in &mut self.0 {
            if wait.until.is_some_and(|until| until <= now) {
                wait.until = None;
                // What ends when the scheduler said is its own affair: it is asked again.
                if wait.patience.is_over(now) {
                    wait.patience = Patience::default();
                    wait.overdue = true;
                }
            }
        }
    }

    pub(super) fn on_acked(&mut self, bytes: u64) {
        for wait in &mut self.0 {
            wait.patience.on_acked(bytes);
        }
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        for wait in &mut self.0 {
            wait.patience.on_lost(bytes);
        }
    }

    /// Something of the class was sent: patience begins anew.
    pub(super) fn on_sent(&mut self, class: u8) {
        if let Some(wait) = self.0.get_mut(usize::from(class)) {
            wait.patience = Patience::default();
        }
    }

    /// Patience begins anew for all.
    pub(super) fn forgive(&mut self) {
        for wait in &mut self.0 {
            wait.patience = Patience::default();
        }
    }

    /// Whether patience with a class ran out; told once.
    pub(super) fn take_overdue(&mut self, class: u8) -> bool {
        let wait = self.0.get_mut(usize::from(class));
        wait.is_some_and(|wait| std::mem::take(&mut wait.overdue))
    }

    /// Nothing of the other classes waits: nothing is left of what the scheduler waited with.
    pub(super) fn keep(&mut self, waiting: ClassSet) {
        for (class, wait) in (0..).zip(&mut self.0) {
            if !waiting.contains(class) {
                *wait = Wait::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn each_class_waits_by_itself_and_what_others_send_buys_it_no_patience() {
        let mut waits = Waits::default();
        assert_eq!((waits.held(), waits.deadline()), (ClassSet::EMPTY, None));
        waits.hold(1, None, at(50), 0);
        waits.hold(0, Some(at(20)), at(60), 0);
        assert_eq!(waits.held_at(at(19)), [0, 1].into_iter().collect());
        assert_eq!(waits.held_at(at(20)), ClassSet::of(1));
        assert_eq!(waits.deadline(), Some(at(20)));
        waits.on_timeout(at(20));
        assert_eq!(waits.held(), ClassSet::of(1));
        assert!(!waits.take_overdue(0), "it ended when the scheduler said");
        waits.on_sent(0);
        waits.end();
        waits.hold(1, None, at(70), 0);
        assert_eq!(waits.deadline(), Some(at(50)), "class 1 waits since then");
        waits.on_timeout(at(50));
        assert!(waits.take_overdue(1) && !waits.take_overdue(1));
    }

    #[test]
    fn a_class_with_nothing_left_waits_for_nothing() {
        let mut waits = Waits::default();
        for class in [0, 3] {
            waits.hold(class, None, at(50), 0);
        }
        waits.on_timeout(at(50));
        waits.hold(3, None, at(90), 0);
        waits.keep(ClassSet::of(0));
        assert_eq!(waits.held(), ClassSet::EMPTY);
        assert!(waits.take_overdue(0) && !waits.take_overdue(3));
    }
}
