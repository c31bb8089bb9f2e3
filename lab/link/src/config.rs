//! The properties of a link. Every value of these types describes a possible link.

use crate::trace::Trace;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// The properties of one direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// How fast packets leave the queue.
    pub rate: Rate,
    /// Time from leaving the queue to arrival.
    pub delay: Duration,
    /// How that time varies from packet to packet.
    pub jitter: Jitter,
    /// Whether packets may overtake each other because of jitter or a shrinking delay. If not, a
    /// packet waits for the one before it.
    pub reorder: bool,
    /// Which packets are lost.
    pub loss: Loss,
    /// What counts as one step of the loss process.
    pub loss_clock: LossClock,
    /// Whether lost packets take up room in the queue and part of the rate.
    pub loss_place: LossPlace,
    /// Where packets wait to be transmitted.
    pub queue: Queue,
    /// Whether the link carries anything. While it is down, it silently loses packets that enter it
    /// or leave the queue; packets that left the queue earlier still arrive.
    pub up: bool,
}

impl Default for LinkConfig {
    /// A wire: no rate limit, no delay, no loss, a queue of 1000 packets.
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Jitter::None,
            reorder: false,
            loss: Loss::None,
            loss_clock: LossClock::Packet,
            loss_place: LossPlace::AfterQueue,
            queue: Queue::TailDropPackets(1000),
            up: true,
        }
    }
}

impl LinkConfig {
    /// A link with this rate and delay, otherwise like the default.
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate,
            delay,
            ..Self::default()
        }
    }
}

/// How fast packets leave the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rate {
    /// At once.
    Unlimited,
    /// One after the other at a constant rate.
    Fixed {
        /// Bits per second.
        bits_per_second: NonZeroU64,
        /// Bytes that may leave at once after a pause: the depth of a token bucket; 0 for a plain
        /// serialiser. Limited to 1 GiB.
        burst: u32,
    },
    /// Whenever a recorded link had an opportunity to deliver; the recording repeats.
    Trace(Arc<Trace>),
}

impl Rate {
    /// A plain serialiser, or `None` if the rate is 0: a link that carries nothing is
    /// [down](LinkConfig::up).
    pub fn bits_per_second(rate: u64) -> Option<Self> {
        NonZeroU64::new(rate).map(|bits_per_second| Self::Fixed {
            bits_per_second,
            burst: 0,
        })
    }
}

/// How the delay varies from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// By up to this much in either direction, uniformly distributed. No packet arrives before it
    /// left.
    Uniform(Duration),
    /// Normally distributed with this standard deviation, cut off at six of them.
    Normal(Duration),
    /// Some packets take longer by a time between `min` and `max`, uniformly distributed, as if the
    /// link layer sent them again. Without [`reorder`](LinkConfig::reorder) the packets behind them
    /// wait.
    Stall {
        /// How often this happens.
        probability: Probability,
        /// The shortest extra time.
        min: Duration,
        /// The longest extra time; if it is below `min`, the extra time is `min`.
        max: Duration,
    },
}

/// A probability, stored as a threshold for 64 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// A probability from 0.0 to 1.0; `None` for anything else.
    pub fn new(probability: f64) -> Option<Self> {
        // The conversion saturates, so that 1.0 becomes `ALWAYS`.
        (0.0..=1.0)
            .contains(&probability)
            .then(|| Self((probability * 2f64.powi(64)) as u64))
    }

    /// The probability as a number from 0.0 to 1.0.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 2f64.powi(64)
    }

    /// Whether an event with this probability happens for these random bits.
    pub(crate) fn happens(self, bits: u64) -> bool {
        bits < self.0 || self == Self::ALWAYS
    }
}

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None.
    None,
    /// Each one with this probability, independently of the others.
    Independent(Probability),
    /// In bursts.
    GilbertElliott(GilbertElliott),
}

/// Loss that depends on a hidden state with random transitions (Gilbert 1960, Elliott 1963).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GilbertElliott {
    /// Probability of going from good to bad, at each step.
    pub to_bad: Probability,
    /// Probability of going from bad to good, at each step.
    pub to_good: Probability,
    /// Probability of loss in the good state.
    pub loss_good: Probability,
    /// Probability of loss in the bad state.
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// Gilbert's simple model: the bad state loses every packet, the good state none. `loss` is the
    /// long-run share of lost packets (below 1), `mean_burst` the mean number lost in a row (at
    /// least 1). `None` if no such model exists.
    pub fn from_mean(loss: f64, mean_burst: f64) -> Option<Self> {
        if !(0.0..1.0).contains(&loss) || !(1.0..f64::INFINITY).contains(&mean_burst) {
            return None;
        }
        let to_good = 1.0 / mean_burst;
        Some(Self {
            to_bad: Probability::new(to_good * loss / (1.0 - loss))?,
            to_good: Probability::new(to_good)?,
            loss_good: Probability::NEVER,
            loss_bad: Probability::ALWAYS,
        })
    }

    /// The long-run share of steps in the bad state.
    pub fn bad_share(&self) -> f64 {
        let (to_bad, to_good) = (self.to_bad.as_f64(), self.to_good.as_f64());
        if to_bad == 0.0 {
            0.0
        } else {
            to_bad / (to_bad + to_good)
        }
    }
}

/// What counts as one step of the loss process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossClock {
    /// Each packet, as in papers and netem.
    Packet,
    /// A slot of this many nanoseconds, such as the transmission time of a full packet. Loss is
    /// then a function of time and seed alone: two senders on equal links meet the same losses at
    /// the same times, so their runs can be compared in pairs.
    Slot(NonZeroU64),
}

/// Where packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossPlace {
    /// Before they take up room in the queue and part of the rate.
    BeforeQueue,
    /// After they have taken up both, as on a radio link.
    AfterQueue,
}

/// Where packets wait, and which of them are dropped. The packet being transmitted does not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queue {
    /// Drops a packet that does not fit into this many bytes.
    TailDropBytes(u64),
    /// Drops a packet if this many are already waiting.
    TailDropPackets(u64),
    /// Controlled delay.
    CoDel(CoDel),
    /// Random early detection.
    Red(Red),
}

/// Controlled delay (RFC 8289): drops at the head when packets have waited too long for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoDel {
    /// The waiting time to aim for.
    pub target: Duration,
    /// How long the target may be exceeded; about the largest expected RTT.
    pub interval: Duration,
    /// The size of the queue in bytes; packets that do not fit are dropped at the tail.
    pub limit_bytes: u64,
}

impl Default for CoDel {
    /// The RFC's 5 ms and 100 ms, and a queue of a million bytes.
    fn default() -> Self {
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        Self {
            target,
            interval,
            limit_bytes: 1_000_000,
        }
    }
}

/// Random early detection (Floyd and Jacobson 1993) in bytes, with the gentle slope above the
/// maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    /// Average queue length in bytes above which packets are dropped.
    pub min_bytes: u64,
    /// Average queue length in bytes at which packets are dropped with `max_probability`; above
    /// that, the probability rises to 1 at twice this length.
    pub max_bytes: u64,
    /// Probability of dropping at `max_bytes`.
    pub max_probability: Probability,
    /// The weight of each new packet in the average (0.002 in the paper).
    pub weight: Probability,
    /// The size of the queue in bytes; packets that do not fit are dropped whatever the average.
    pub limit_bytes: u64,
}
