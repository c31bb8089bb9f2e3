//! What a link is like. Every value of these types describes a possible link.

use crate::trace::Trace;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// The properties of one direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// How fast packets leave the queue.
    pub rate: Rate,
    /// Time from leaving the queue to arriving.
    pub delay: Duration,
    /// How that time varies from packet to packet.
    pub jitter: Jitter,
    /// Whether jitter, or a delay that shrinks, lets packets overtake each other. If not, a packet
    /// waits for the one before it.
    pub reorder: bool,
    /// Which packets vanish.
    pub loss: Loss,
    /// What the loss process counts.
    pub loss_clock: LossClock,
    /// Whether vanishing packets take up queue and rate.
    pub loss_place: LossPlace,
    /// Where packets wait for the serialiser.
    pub queue: Queue,
    /// Whether the link carries anything. While it is down it silently loses what enters it or
    /// leaves the queue; what left the queue before still arrives.
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
    /// A link of this rate and delay, otherwise like the default.
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
        /// serialiser. At most 1 GiB counts.
        burst: u32,
    },
    /// When a recorded link had an opportunity to deliver, over and over.
    Trace(Arc<Trace>),
}

impl Rate {
    /// A plain serialiser, or `None` for a rate of 0: a link that carries nothing is
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
    /// By up to this much in both directions, evenly. No packet arrives before it left.
    Uniform(Duration),
    /// By a bell curve with this standard deviation, cut off at six of them.
    Normal(Duration),
    /// Some packets take longer by a time between these two, evenly, as if the link layer sent them
    /// again. Without [`reorder`](LinkConfig::reorder) what follows waits for them.
    Stall {
        /// How often.
        probability: Probability,
        /// The shortest extra time.
        min: Duration,
        /// The longest; if it is below `min`, the extra time is `min`.
        max: Duration,
    },
}

/// A probability, held as a threshold for 64 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u64);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(u64::MAX);

    /// A probability from 0.0 to 1.0; `None` for anything else.
    pub fn new(probability: f64) -> Option<Self> {
        // A conversion that is too large saturates, so that 1.0 becomes `ALWAYS`.
        (0.0..=1.0)
            .contains(&probability)
            .then(|| Self((probability * 2f64.powi(64)) as u64))
    }

    /// As a number from 0.0 to 1.0.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 2f64.powi(64)
    }

    /// Whether the event happens for these random bits.
    pub(crate) fn happens(self, bits: u64) -> bool {
        bits < self.0 || self == Self::ALWAYS
    }
}

/// Which packets vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// None.
    None,
    /// Each one with this probability, whatever happened to the others.
    Independent(Probability),
    /// In bursts.
    GilbertElliott(GilbertElliott),
}

/// Loss that depends on a state which changes by itself (Gilbert 1960, Elliott 1963).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GilbertElliott {
    /// From good to bad, at each step.
    pub to_bad: Probability,
    /// From bad to good, at each step.
    pub to_good: Probability,
    /// Loss in the good state.
    pub loss_good: Probability,
    /// Loss in the bad state.
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// Gilbert's simple model: the bad state loses everything, the good one nothing. `loss` is the
    /// share of packets lost over time (below 1), `mean_burst` the mean number lost in a row (at
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

    /// The share of steps spent in the bad state.
    pub fn bad_share(&self) -> f64 {
        let (to_bad, to_good) = (self.to_bad.as_f64(), self.to_good.as_f64());
        if to_bad == 0.0 {
            0.0
        } else {
            to_bad / (to_bad + to_good)
        }
    }
}

/// What the loss process counts as one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossClock {
    /// Each packet, as papers and netem do.
    Packet,
    /// A slot of this many nanoseconds, such as the time a full packet takes. Loss is then a
    /// function of time and seed alone: two senders on equal links meet the same losses at the same
    /// times, which makes their runs comparable in pairs.
    Slot(NonZeroU64),
}

/// Where packets vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossPlace {
    /// Before they take up queue and rate.
    BeforeQueue,
    /// After they took up both, as on a radio.
    AfterQueue,
}

/// Where packets wait, and which are dropped there. The packet on its way out does not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Queue {
    /// Drops what does not fit into this many bytes.
    TailDropBytes(u64),
    /// Drops what comes on top of this many packets.
    TailDropPackets(u64),
    /// Controlled delay.
    CoDel(CoDel),
    /// Random early detection.
    Red(Red),
}

/// Controlled delay (RFC 8289): drops at the head what waited too long for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoDel {
    /// Waiting time to aim at.
    pub target: Duration,
    /// Time for which the target may be missed; about the largest RTT to expect.
    pub interval: Duration,
    /// Room in bytes; what does not fit is dropped at the tail.
    pub limit_bytes: u64,
}

impl Default for CoDel {
    /// The RFC's 5 ms and 100 ms, and room for a million bytes.
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
    /// Average queue in bytes from which packets are dropped.
    pub min_bytes: u64,
    /// Average queue in bytes at which they are dropped with `max_probability`; from there on the
    /// probability rises to 1 at twice this average.
    pub max_bytes: u64,
    /// Probability of dropping at `max_bytes`.
    pub max_probability: Probability,
    /// How much each packet moves the average, as a share (0.002 in the paper).
    pub weight: Probability,
    /// Room in bytes; what does not fit is dropped whatever the average.
    pub limit_bytes: u64,
}
