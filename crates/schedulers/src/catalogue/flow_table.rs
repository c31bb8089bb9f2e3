//! Which flow goes by which path: a table of fixed size.
//!
//! Open addressing with a bounded search, as flows are named by applications and, through a proxy,
//! by strangers: a crowd of flows costs their affinity and nothing else. Entries that were silent
//! for a minute make room; new ones are limited per second, so that the table cannot be churned.

use anabranch_proto::sched::PathEvent;
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::{PathId, StreamId};

/// Slots; a power of two.
const SLOTS: usize = 4096;
/// Slots that a key may be in.
const PROBES: usize = 16;
/// A flow that was silent for this long is forgotten.
const IDLE: Duration = Duration::from_secs(60);
/// How often forgotten flows are cleared away.
const SWEEP: Duration = Duration::from_secs(1);
/// New pins per second.
const NEW_MAX: u32 = 1024;

/// What identifies a flow: the application's name for it, or a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u64, bool);

impl Key {
    /// A flow of datagrams; `None` if the datagram belongs to none.
    pub(super) fn flow(flow: u64) -> Option<Self> {
        (flow != 0).then_some(Self(flow, false))
    }

    pub(super) fn stream(id: StreamId) -> Self {
        Self(id.0, true)
    }

    /// Where the search begins: the finaliser of `SplitMix64`, which spreads near keys.
    fn slot(self) -> usize {
        let mut x = self.0 ^ (u64::from(self.1) << 63);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as usize % SLOTS
    }
}

/// A flow that has its path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pin {
    key: Key,
    pub(super) path: PathId,
    /// When it sent last.
    pub(super) used: Instant,
}

#[derive(Debug)]
pub(super) struct FlowTable {
    slots: Box<[Option<Pin>]>,
    /// For each slot, how many places at most the keys whose search begins there need: what is not
    /// in the table is not looked for in all of them.
    reach: Box<[u8]>,
    swept: Instant,
    /// New pins since the last sweep.
    new: u32,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self {
            slots: vec![None; SLOTS].into_boxed_slice(),
            reach: vec![0; SLOTS].into_boxed_slice(),
            swept: Instant::ZERO,
            new: 0,
        }
    }
}

impl FlowTable {
    /// Once per second, forgets the flows that are silent and those that `evict` names.
    pub(super) fn sweep(&mut self, now: Instant, evict: impl Fn(&Pin) -> bool) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        (self.swept, self.new) = (now, 0);
        for slot in &mut self.slots {
            *slot = slot.filter(|pin| now.since(pin.used) < IDLE && !evict(pin));
        }
        self.reach.fill(0);
        for at in 0..SLOTS {
            if let Some(pin) = self.slots[at] {
                self.extend(pin.key, at);
            }
        }
    }

    /// Where the pin of `key` is, until pins are added or forgotten.
    pub(super) fn find(&self, key: Key) -> Option<(usize, Pin)> {
        let first = key.slot();
        let of_key = |at: usize| {
            let pin = self.slots[at].filter(|pin| pin.key == key)?;
            Some((at, pin))
        };
        places(first)
            .take(self.reach[first].into())
            .find_map(of_key)
    }

    /// The pin of `key`.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Pin> {
        let (at, _) = self.find(key)?;
        self.slots[at].as_mut()
    }

    /// The pin that was [found](Self::find) there is now to `path`.
    pub(super) fn renew(&mut self, at: usize, path: PathId, now: Instant) {
        if let Some(pin) = &mut self.slots[at] {
            (pin.path, pin.used) = (path, now);
        }
    }

    /// Lets the search for `key` go as far as the slot `at`.
    fn extend(&mut self, key: Key, at: usize) {
        let first = key.slot();
        let needed = (at + SLOTS - first) % SLOTS + 1;
        self.reach[first] = self.reach[first].max(needed as u8);
    }

    /// Pins `key` to `path`, unless all its slots are taken or too many pins are new.
    pub(super) fn pin(&mut self, key: Key, path: PathId, now: Instant) {
        let pin = Pin {
            key,
            path,
            used: now,
        };
        if let Some(known) = self.get_mut(key) {
            *known = pin;
            return;
        }
        let free = places(key.slot()).find(|at| self.slots[*at].is_none());
        if let Some(at) = free
            && self.new < NEW_MAX
        {
            self.slots[at] = Some(pin);
            self.extend(key, at);
            self.new += 1;
        }
    }

    pub(super) fn unpin(&mut self, key: Key) {
        if let Some((at, _)) = self.find(key) {
            self.slots[at] = None;
        }
    }

    /// Forgets all flows.
    pub(super) fn clear(&mut self) {
        self.slots.fill(None);
        self.reach.fill(0);
    }

    /// Forgets the flows of a path that is gone. Call it with every event.
    pub(super) fn on_event(&mut self, event: &PathEvent) {
        if let PathEvent::Abandoned { path } = event {
            for slot in &mut self.slots {
                *slot = slot.filter(|pin| pin.path != *path);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

fn places(first: usize) -> impl Iterator<Item = usize> {
    (0..PROBES).map(move |step| (first + step) % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn flow(flow: u64) -> Key {
        Key::flow(flow).expect("a flow")
    }

    #[test]
    fn a_flow_and_a_stream_of_the_same_number_are_two() {
        let mut table = FlowTable::default();
        table.pin(flow(8), PathId(1), at(0));
        table.pin(Key::stream(StreamId(8)), PathId(2), at(0));
        assert_eq!(table.get_mut(flow(8)).map(|pin| pin.path), Some(PathId(1)));
        assert_eq!(table.len(), 2);
        assert_eq!(Key::flow(0), None);
    }

    #[test]
    fn silent_flows_are_forgotten_after_a_minute() {
        let mut table = FlowTable::default();
        table.pin(flow(1), PathId(0), at(0));
        table.pin(flow(2), PathId(0), at(30_000));
        table.sweep(at(59_999), |_| false);
        assert_eq!(table.len(), 2);
        table.sweep(at(60_500), |_| false);
        assert_eq!(table.len(), 2, "swept less than a second ago");
        table.sweep(at(61_000), |_| false);
        assert_eq!(table.len(), 1);
        table.sweep(at(62_000), |pin| pin.path == PathId(0));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_crowd_of_flows_cannot_churn_the_table() {
        let mut table = FlowTable::default();
        for number in 1..10_000 {
            table.pin(flow(number), PathId(0), at(500));
        }
        assert_eq!(table.len(), NEW_MAX as usize);
        for second in 1..60 {
            table.sweep(at(second * 1000), |_| false);
            for number in 1..10_000 {
                table.pin(flow(number), PathId(0), at(second * 1000));
            }
        }
        assert!(table.len() <= SLOTS);
    }

    proptest! {
        #[test]
        fn pins_are_those_of_a_map(
            steps in prop::collection::vec((1_u64..200, 0_u32..4, any::<bool>()), 1..300),
        ) {
            let mut table = FlowTable::default();
            let mut naive = BTreeMap::new();
            for (number, path, pins) in steps {
                if pins {
                    table.pin(flow(number), PathId(path), at(1));
                    naive.insert(number, PathId(path));
                } else {
                    table.unpin(flow(number));
                    naive.remove(&number);
                }
            }
            for number in 1..200 {
                let found = table.get_mut(flow(number)).map(|pin| pin.path);
                prop_assert_eq!(found, naive.get(&number).copied());
            }
        }
    }
}
