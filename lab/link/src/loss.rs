//! Which packets are lost.

#[cfg(test)]
mod tests;

use crate::config::{GilbertElliott, Loss, LossClock, Probability};
use crate::random::{Purpose, Random, hash};

/// A loss process by slots starts from a fresh state after this many slots, so that the state of
/// any slot can be computed in bounded time.
const BLOCK_SLOTS: u64 = 4096;

/// What a slot is hashed with, depending on what to decide; its packets follow.
const START: u64 = 0;
const STEP: u64 = 1;
const FIRST_PACKET: u64 = 2;

/// A slot, and what is known about it.
#[derive(Debug, Clone, Copy)]
struct Slot {
    number: u64,
    bad: bool,
    packets: u64,
}

/// The loss process of one link.
#[derive(Debug, Clone)]
pub(crate) struct LossProcess {
    loss: Loss,
    clock: LossClock,
    random: Random,
    seed: u64,
    bad: bool,
    slot: Option<Slot>,
}

impl LossProcess {
    pub(crate) fn new(loss: Loss, clock: LossClock, seed: u64) -> Self {
        let mut random = Random::new(seed, Purpose::Loss);
        let seed = random.bits();
        Self {
            loss,
            clock,
            random,
            seed,
            bad: false,
            slot: None,
        }
    }

    /// Continues with another process but the same randomness.
    pub(crate) fn change(&mut self, loss: Loss, clock: LossClock) {
        if self.loss != loss || self.clock != clock {
            (self.loss, self.clock, self.slot) = (loss, clock, None);
        }
    }

    /// Whether a packet that passes at `now` is lost.
    #[inline]
    pub(crate) fn takes(&mut self, now: u64) -> bool {
        self.loss != Loss::None && self.draws(now)
    }

    fn draws(&mut self, now: u64) -> bool {
        match (self.loss, self.clock) {
            (Loss::None, _) => false,
            (Loss::Independent(probability), LossClock::Packet) => {
                probability.happens(self.random.bits())
            }
            (Loss::GilbertElliott(model), LossClock::Packet) => {
                self.bad = step(&model, self.bad, self.random.bits());
                probability(&model, self.bad).happens(self.random.bits())
            }
            (loss, LossClock::Slot(length)) => self.takes_in_slot(loss, now / length),
        }
    }

    fn takes_in_slot(&mut self, loss: Loss, number: u64) -> bool {
        let slot = match (loss, self.slot) {
            (_, Some(slot)) if slot.number == number => slot,
            (Loss::GilbertElliott(model), known) => self.state_of(&model, number, known),
            _ => Slot {
                number,
                bad: false,
                packets: 0,
            },
        };
        self.slot = Some(Slot {
            packets: slot.packets + 1,
            ..slot
        });
        let bits = hash(self.seed, number, FIRST_PACKET + slot.packets);
        match loss {
            Loss::None => false,
            Loss::Independent(probability) => probability.happens(bits),
            Loss::GilbertElliott(model) => probability(&model, slot.bad).happens(bits),
        }
    }

    /// The state of a slot, which is a function of the seed alone. Each block of slots starts in a
    /// state drawn from the model's long-run distribution and continues step by step.
    fn state_of(&self, model: &GilbertElliott, number: u64, known: Option<Slot>) -> Slot {
        let block = number - number % BLOCK_SLOTS;
        let (mut at, mut bad) = match known {
            Some(slot) if (block..=number).contains(&slot.number) => (slot.number, slot.bad),
            _ => {
                let share = Probability::new(model.bad_share()).expect("a share is below 1");
                (block, share.happens(hash(self.seed, block, START)))
            }
        };
        while at < number {
            at += 1;
            bad = step(model, bad, hash(self.seed, at, STEP));
        }
        Slot {
            number,
            bad,
            packets: 0,
        }
    }
}

fn step(model: &GilbertElliott, bad: bool, bits: u64) -> bool {
    if bad {
        !model.to_good.happens(bits)
    } else {
        model.to_bad.happens(bits)
    }
}

fn probability(model: &GilbertElliott, bad: bool) -> Probability {
    if bad { model.loss_bad } else { model.loss_good }
}
