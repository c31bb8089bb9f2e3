//! Controlled delay (RFC 8289, section 5). It drops packets rather than marking them, since a link
//! does not know what a packet is.

use crate::config::CoDel;
use crate::queue::{Buffer, Waiting, nanos};

/// For this many intervals after a period of dropping, the next period starts at the rate at which
/// that one ended (RFC 8289, section 5.4).
const MEMORY_INTERVALS: u64 = 16;

/// The state of the algorithm; the names are those of the RFC's pseudocode.
#[derive(Debug, Clone, Default)]
pub(crate) struct CoDelState {
    first_above_time: Option<u64>,
    dropping: bool,
    drop_next: u64,
    count: u64,
    last_count: u64,
    max_packet: u32,
}

impl CoDelState {
    /// Notes that a packet of this size was put into the queue.
    pub(crate) fn on_enqueued(&mut self, size: u32) {
        self.max_packet = self.max_packet.max(size);
    }

    /// Takes the next packet to send at `now`; adds the number of packets it drops first to
    /// `dropped`.
    pub(crate) fn pop<T>(
        &mut self,
        config: &CoDel,
        now: u64,
        buffer: &mut Buffer<T>,
        dropped: &mut u64,
    ) -> Option<Waiting<T>> {
        let (mut head, mut ok_to_drop) = self.take_head(config, now, buffer);
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                *dropped += 1;
                self.count += 1;
                (head, ok_to_drop) = self.take_head(config, now, buffer);
                self.dropping = ok_to_drop;
                if ok_to_drop {
                    self.drop_next = self.control_law(config, self.drop_next);
                }
            }
        } else if ok_to_drop {
            *dropped += 1;
            (head, _) = self.take_head(config, now, buffer);
            self.dropping = true;
            let delta = self.count - self.last_count;
            let memory = nanos(config.interval).saturating_mul(MEMORY_INTERVALS);
            let recent = now.saturating_sub(self.drop_next) < memory;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.control_law(config, now);
        }
        head
    }

    /// Takes the head, and returns whether the queue has been above the target for an interval.
    fn take_head<T>(
        &mut self,
        config: &CoDel,
        now: u64,
        buffer: &mut Buffer<T>,
    ) -> (Option<Waiting<T>>, bool) {
        let Some(head) = buffer.pop() else {
            self.first_above_time = None;
            return (None, false);
        };
        let below_target = now - head.enqueued < nanos(config.target);
        if below_target || buffer.bytes() <= u64::from(self.max_packet) {
            self.first_above_time = None;
            return (Some(head), false);
        }
        let patience = now.saturating_add(nanos(config.interval));
        let above_since = *self.first_above_time.get_or_insert(patience);
        (Some(head), now >= above_since)
    }

    /// When to drop next: the pause shrinks with the square root of the count.
    fn control_law(&self, config: &CoDel, from: u64) -> u64 {
        let pause = nanos(config.interval) as f64 / (self.count as f64).sqrt();
        from.saturating_add((pause as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Takes one packet per millisecond from a queue in which each packet waits for `sojourn`, and
    /// returns the times of the drops in milliseconds.
    fn drops(state: &mut CoDelState, sojourn: u64, from: u64, to: u64) -> Vec<u64> {
        let mut times = Vec::new();
        for now in from..to {
            let mut buffer = Buffer::new();
            for _ in 0..20 {
                buffer.push(Waiting {
                    size: 1000,
                    enqueued: (now - sojourn) * MS,
                    token: (),
                });
                state.on_enqueued(1000);
            }
            let mut dropped = 0;
            assert!(
                state
                    .pop(&CoDel::default(), now * MS, &mut buffer, &mut dropped)
                    .is_some()
            );
            times.extend((0..dropped).map(|_| now));
        }
        times
    }

    #[test]
    fn nothing_is_dropped_below_the_target() {
        assert_eq!(drops(&mut CoDelState::default(), 4, 10, 2000), []);
    }

    #[test]
    fn a_standing_queue_is_dropped_from_after_an_interval_and_then_ever_more_often() {
        let times = drops(&mut CoDelState::default(), 20, 100, 500);
        // 200, then 100 ms over the square roots of 1, 2, 3..
        assert_eq!(times, [200, 300, 371, 429, 479]);
    }

    #[test]
    fn a_queue_that_drained_gets_its_interval_again() {
        let mut state = CoDelState::default();
        assert_eq!(drops(&mut state, 20, 100, 250), [200]);
        assert_eq!(drops(&mut state, 1, 250, 260), []);
        assert_eq!(drops(&mut state, 20, 260, 361), [360]);
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let mut state = CoDelState::default();
        for now in 0..1000 {
            let mut buffer = Buffer::new();
            buffer.push(Waiting {
                size: 1000,
                enqueued: 0,
                token: (),
            });
            state.on_enqueued(1000);
            let mut dropped = 0;
            let head = state.pop(&CoDel::default(), now * MS, &mut buffer, &mut dropped);
            assert!(head.is_some() && dropped == 0);
        }
    }
}
