//! The networks on which a scheduler has to do well.

use anabranch_link::{Jitter, LinkConfig, Loss, LossClock, Probability, Queue, Rate};
use std::num::NonZeroU64;
use std::time::Duration;

/// Two links. Each has the same properties in both directions, except that only data meets its
/// loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// What is special about it.
    pub name: &'static str,
    /// The links.
    pub links: [LinkConfig; 2],
}

impl Network {
    /// Bytes to transfer when speed is measured: some 2.4 seconds on the faster link, so that
    /// neither the start nor the last packets on the slower link dominate.
    pub fn bytes(&self) -> u64 {
        let rate = |link: &LinkConfig| match &link.rate {
            Rate::Fixed {
                bits_per_second, ..
            } => bits_per_second.get(),
            Rate::Trace(trace) => trace.mean_rate(),
            Rate::Unlimited => RATE,
        };
        let fastest = self.links.iter().map(rate).max().unwrap_or(RATE);
        (fastest / 10 * 3).max(1_000_000)
    }
}

/// Rate of a normal link in bits per second. Lower than in the report this list follows, so that a
/// transfer of as many round trips needs fewer packets.
const RATE: u64 = 20_000_000;

/// One-way delay of a normal link.
const DELAY: Duration = Duration::from_millis(10);

fn link(rate: u64, delay: Duration, queue_ms: u64) -> LinkConfig {
    let bytes = (rate / 8 * queue_ms / 1000).max(15_000);
    LinkConfig {
        queue: Queue::TailDropBytes(bytes),
        ..LinkConfig::new(Rate::bits_per_second(rate).expect("a rate above 0"), delay)
    }
}

fn usual() -> LinkConfig {
    link(RATE, DELAY, 60)
}

/// A link whose queue accepts everything: nothing is lost, so nothing has to be sent again.
pub(super) fn patient() -> LinkConfig {
    link(RATE, DELAY, 2000)
}

/// A patient link with jitter of 20 ms that does not reorder.
pub(super) fn jittery() -> LinkConfig {
    LinkConfig {
        jitter: Jitter::Uniform(Duration::from_millis(20)),
        ..patient()
    }
}

/// Loss as a function of time, so that all compared schedulers meet the same losses.
fn lossy(config: LinkConfig, rate: u64, share: f64) -> LinkConfig {
    let slot = NonZeroU64::new(1500 * 8 * 1_000_000_000 / rate).expect("a slot takes time");
    LinkConfig {
        loss: Loss::Independent(Probability::new(share).expect("a share")),
        loss_clock: LossClock::Slot(slot),
        ..config
    }
}

/// Sixteen networks as in mqvpn's report of June 2026: equal links, spreads of delay, jitter,
/// unequal rates, loss, a bloated queue, and fibre beside a radio link.
pub fn networks() -> Vec<Network> {
    let spread = |name, ms| Network {
        name,
        links: [usual(), link(RATE, DELAY + Duration::from_millis(ms), 60)],
    };
    let jitter = |name, ms| Network {
        name,
        links: [
            usual(),
            LinkConfig {
                jitter: Jitter::Normal(Duration::from_millis(ms)),
                ..link(RATE, DELAY + Duration::from_millis(4 * ms), 60)
            },
        ],
    };
    let slower = |name, times| Network {
        name,
        links: [usual(), link(RATE / times, DELAY, 60)],
    };
    let loss = |name, share| Network {
        name,
        links: [usual(), lossy(usual(), RATE, share)],
    };
    vec![
        spread("equal", 0),
        spread("5 ms apart", 5),
        spread("10 ms apart", 10),
        spread("20 ms apart", 20),
        spread("50 ms apart", 50),
        spread("100 ms apart", 100),
        jitter("jitter 2 ms", 2),
        jitter("jitter 5 ms", 5),
        jitter("jitter 20 ms", 20),
        slower("half the rate", 2),
        slower("a quarter of the rate", 4),
        slower("a tenth of the rate", 10),
        loss("0.5 % loss", 0.005),
        loss("2 % loss", 0.02),
        Network {
            name: "a bloated queue",
            links: [usual(), link(RATE / 4, DELAY, 1000)],
        },
        Network {
            name: "fibre and radio",
            links: [
                link(60_000_000, Duration::from_millis(4), 40),
                LinkConfig {
                    jitter: Jitter::Normal(Duration::from_millis(5)),
                    ..lossy(
                        link(12_000_000, Duration::from_millis(35), 150),
                        12_000_000,
                        0.001,
                    )
                },
            ],
        },
    ]
}
