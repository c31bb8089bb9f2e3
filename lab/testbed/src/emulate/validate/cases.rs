//! The links to measure, their load, and the tolerances.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anabranch_link::{GilbertElliott, Jitter, LinkConfig, Loss, Probability, Queue, Rate, Trace};

use super::probe::{Arrivals, Load};
use super::{Row, Verdict};

/// Tolerance of the median delay.
const DELAY_ERROR_MS: f64 = 0.3;
/// Tolerance of a rate.
const RATE_ERROR: f64 = 0.01;
/// Tolerance of the highest or lowest rates of a trace, with 50 delivery opportunities each.
const TRACE_ERROR: f64 = 0.05;
/// Tolerance of the standard deviation of 500 packets' delays: some four of its own standard
/// deviations.
const SPREAD_ERROR: f64 = 0.12;
/// The standard deviations within which a binomial count lies for 999 of 1000 links.
const DEVIATIONS: f64 = 3.29;
/// The load on a link whose rate is measured, as a multiple of it.
const OVERLOAD: f64 = 1.3;
/// The least load that makes such a measurement valid.
const OFFERED: f64 = 1.1;
/// The duration of the load.
const OVERLOAD_TIME: Duration = Duration::from_millis(1500);
const FULL_PACKET: u32 = 1500;
/// The windows in which the rates of a trace are measured: half of each half of the trace.
const MOMENT: Duration = Duration::from_millis(50);

/// The property that is computed from the arrivals.
#[derive(Debug, Clone, Copy)]
enum Measure {
    MedianDelay,
    SpreadOfDelay { configured_ms: f64 },
    Rate { bits_per_second: f64 },
    Loss { share: f64, deviation: f64 },
    Trace { rates: [f64; 3] },
}

/// One link to measure.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) link: String,
    pub(super) config: LinkConfig,
    pub(super) load: Load,
    measure: Measure,
}

pub(super) fn all() -> Vec<Case> {
    let mut cases: Vec<_> = [1, 5, 20, 50, 100, 250].map(delay).into();
    cases.extend([1, 10, 100, 500].map(rate));
    cases.extend([0.01, 0.1].map(loss));
    cases.push(bursts_of_loss());
    cases.push(jitter(
        "delay 30 ms ± 10 ms, even",
        Jitter::Uniform(Duration::from_millis(10)),
        10.0 / 3f64.sqrt(),
    ));
    cases.push(jitter(
        "delay 30 ms, sd 4 ms, normal",
        Jitter::Normal(Duration::from_millis(4)),
        4.0,
    ));
    cases.push(trace());
    cases
}

pub(super) fn delay(ms: u64) -> Case {
    Case {
        link: format!("delay {ms} ms"),
        config: LinkConfig::new(Rate::Unlimited, Duration::from_millis(ms)),
        load: Load {
            packet_bytes: 200,
            packets: 100,
            interval: Duration::from_millis(10),
        },
        measure: Measure::MedianDelay,
    }
}

pub(super) fn rate(mbit: u32) -> Case {
    let bits_per_second = f64::from(mbit) * 1e6;
    let queue = (bits_per_second / 8.0 * 0.05) as u64;
    let fixed = Rate::Fixed {
        bits_per_second: NonZeroU64::new(u64::from(mbit) * 1_000_000).expect("a rate above 0"),
        burst: 0,
    };
    Case {
        link: format!("rate {mbit} Mbit/s"),
        config: LinkConfig {
            // 50 ms, or room for the bursts of a slow link's load.
            queue: Queue::TailDropBytes(queue.max(30 * u64::from(FULL_PACKET))),
            ..LinkConfig::new(fixed, Duration::ZERO)
        },
        load: overload(bits_per_second),
        measure: Measure::Rate { bits_per_second },
    }
}

fn overload(bits_per_second: f64) -> Load {
    let packets_per_second = bits_per_second * OVERLOAD / 8.0 / f64::from(FULL_PACKET);
    Load {
        packet_bytes: FULL_PACKET,
        packets: (packets_per_second * OVERLOAD_TIME.as_secs_f64()) as u32,
        interval: Duration::from_secs_f64(1.0 / packets_per_second),
    }
}

const LOSS_LOAD: Load = Load {
    packet_bytes: 100,
    packets: 20_000,
    interval: Duration::from_micros(50),
};

pub(super) fn loss(share: f64) -> Case {
    let probability = Probability::new(share).expect("a share is a probability");
    let variance = share * (1.0 - share) / f64::from(LOSS_LOAD.packets);
    Case {
        link: format!("loss {:.0} %", share * 100.0),
        config: LinkConfig {
            loss: Loss::Independent(probability),
            ..LinkConfig::default()
        },
        load: LOSS_LOAD,
        measure: Measure::Loss {
            share,
            deviation: variance.sqrt(),
        },
    }
}

fn bursts_of_loss() -> Case {
    let (share, mean_burst) = (0.02, 4.0);
    let model = GilbertElliott::from_mean(share, mean_burst).expect("there is such a model");
    // The correlation of the losses of successive packets in a two-state chain.
    let memory = 1.0 - model.to_bad.as_f64() - model.to_good.as_f64();
    let variance = share * (1.0 - share) / f64::from(LOSS_LOAD.packets);
    Case {
        link: "loss 2 %, bursts of 4".to_owned(),
        config: LinkConfig {
            loss: Loss::GilbertElliott(model),
            ..LinkConfig::default()
        },
        load: LOSS_LOAD,
        measure: Measure::Loss {
            share,
            deviation: (variance * (1.0 + memory) / (1.0 - memory)).sqrt(),
        },
    }
}

fn jitter(link: &str, jitter: Jitter, configured_ms: f64) -> Case {
    Case {
        link: link.to_owned(),
        config: LinkConfig {
            jitter,
            reorder: true,
            ..LinkConfig::new(Rate::Unlimited, Duration::from_millis(30))
        },
        load: Load {
            packet_bytes: 200,
            packets: 500,
            interval: Duration::from_millis(4),
        },
        measure: Measure::SpreadOfDelay { configured_ms },
    }
}

/// A tenth of a second with a packet each millisecond, and another with four.
fn trace() -> Case {
    let slow = (1..=100).map(|ms| format!("{ms}\n"));
    let fast = (101..=200).map(|ms| format!("{ms}\n").repeat(4));
    let text: String = slow.chain(fast).collect();
    let trace = Trace::parse(&text).expect("the trace is well-formed");
    Case {
        link: "trace, 12 and 48 Mbit/s in turns".to_owned(),
        config: LinkConfig {
            queue: Queue::TailDropPackets(500),
            ..LinkConfig::new(Rate::Trace(Arc::new(trace)), Duration::ZERO)
        },
        load: overload(48e6),
        measure: Measure::Trace {
            rates: [30e6, 12e6, 48e6],
        },
    }
}

impl Case {
    /// A row before its measurement.
    fn blank(&self, property: &'static str, unit: &'static str, configured: f64, off: f64) -> Row {
        Row {
            link: self.link.clone(),
            property,
            unit,
            configured,
            measured: None,
            accepted: [configured - off, configured + off],
            late_p99: Duration::ZERO,
            verdict: Verdict::Skipped(String::new()),
        }
    }

    fn blanks(&self) -> Vec<Row> {
        let mbit = |property, rate: f64, error| {
            let rate = rate / 1e6;
            self.blank(property, "Mbit/s", rate, rate * error)
        };
        match self.measure {
            Measure::MedianDelay => {
                let configured = self.config.delay.as_secs_f64() * 1e3;
                vec![self.blank("median delay", "ms", configured, DELAY_ERROR_MS)]
            }
            Measure::SpreadOfDelay { configured_ms } => {
                let off = configured_ms * SPREAD_ERROR;
                vec![self.blank("standard deviation", "ms", configured_ms, off)]
            }
            Measure::Rate { bits_per_second } => {
                vec![mbit("rate", bits_per_second, RATE_ERROR)]
            }
            Measure::Loss { share, deviation } => {
                let off = deviation * DEVIATIONS * 100.0;
                vec![self.blank("lost", "%", share * 100.0, off)]
            }
            Measure::Trace { rates } => vec![
                mbit("mean rate", rates[0], RATE_ERROR),
                mbit("slowest 50 ms", rates[1], TRACE_ERROR),
                mbit("fastest 50 ms", rates[2], TRACE_ERROR),
            ],
        }
    }

    pub(super) fn skipped(&self, what: &str) -> Vec<Row> {
        let mut rows = self.blanks();
        for row in &mut rows {
            row.verdict = Verdict::Skipped(what.to_owned());
        }
        rows
    }

    /// Whether the load was high enough to measure a rate; other measurements need no minimum.
    fn was_offered(&self, arrivals: &Arrivals) -> bool {
        let needs_load = matches!(self.measure, Measure::Rate { .. } | Measure::Trace { .. });
        let planned = self.load.interval * self.load.packets;
        !needs_load || arrivals.sending < planned.mul_f64(OVERLOAD / OFFERED)
    }

    /// What the arrivals show about the link.
    pub(super) fn rows(&self, arrivals: &Arrivals) -> Vec<Row> {
        let figures = match self.measure {
            Measure::MedianDelay => vec![median(delays_ms(arrivals))],
            Measure::SpreadOfDelay { .. } => vec![deviation(&delays_ms(arrivals))],
            Measure::Rate { .. } => vec![mean_rate(arrivals, None)],
            Measure::Loss { .. } => {
                let lost = f64::from(arrivals.sent) - arrivals.packets.len() as f64;
                vec![Some(lost * 100.0 / f64::from(arrivals.sent))]
            }
            Measure::Trace { .. } => {
                let extremes = rates_of_moments(arrivals);
                vec![
                    mean_rate(arrivals, Some(Duration::from_millis(200))),
                    extremes.map(|rates| rates[0]),
                    extremes.map(|rates| rates[1]),
                ]
            }
        };
        let mut rows = self.blanks();
        for (row, measured) in rows.iter_mut().zip(figures) {
            row.measured = measured;
            let [least, most] = row.accepted;
            row.verdict = match measured {
                None => Verdict::Failed("too few packets arrived to tell".to_owned()),
                Some(value) if (least..=most).contains(&value) => Verdict::Passed,
                Some(_) if !self.was_offered(arrivals) => {
                    let why = "the machine was too busy to send as much as the link carries";
                    Verdict::Failed(why.to_owned())
                }
                Some(value) => {
                    let off = value - row.configured;
                    Verdict::Failed(format!("it is off by {off:+.3} {}", row.unit))
                }
            };
        }
        rows
    }
}

fn delays_ms(arrivals: &Arrivals) -> Vec<f64> {
    let delays = arrivals.packets.iter();
    delays
        .map(|(sent, arrived)| (*arrived as f64 - *sent as f64) / 1e6)
        .collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

/// Mbit/s from the first arrival to the last, or over the largest number of whole periods.
fn mean_rate(arrivals: &Arrivals, period: Option<Duration>) -> Option<f64> {
    let packets = &arrivals.packets;
    let (first, last) = (packets.first()?.1, packets.last()?.1);
    let bits = f64::from(arrivals.packet_bytes) * 8.0;
    let Some(period) = period else {
        // The transmission time of the first packet is not within this interval.
        let nanos = last.checked_sub(first).filter(|nanos| *nanos > 0)?;
        return Some((packets.len() - 1) as f64 * bits / nanos as f64 * 1e3);
    };
    let period = period.as_nanos() as u64;
    // The first arrivals were queued when the trace started, and the end is not under load.
    let start = first + period / 2;
    let periods = last.saturating_sub(start) / period;
    let nanos = NonZeroU64::new(periods * period)?.get();
    let within = |arrived: u64| (start..start + nanos).contains(&arrived);
    let count = packets.iter().filter(|packet| within(packet.1)).count();
    Some(count as f64 * bits / nanos as f64 * 1e3)
}

/// The lowest and highest Mbit/s in a [`MOMENT`], leaving out the first and the last. The windows
/// start a millisecond apart; these are their 5th and 95th percentiles. A quarter of the windows
/// lies within one rate of the trace; the extremes are due to pauses of the machine.
fn rates_of_moments(arrivals: &Arrivals) -> Option<[f64; 2]> {
    let arrived: Vec<u64> = arrivals.packets.iter().map(|packet| packet.1).collect();
    let moment = MOMENT.as_nanos() as u64;
    let (first, last) = (arrived.first()? + moment, arrived.last()? - moment);
    let starts = (first..last.saturating_sub(moment)).step_by(1_000_000);
    let counts = starts.map(|start| {
        let place = |time| arrived.partition_point(|arrived| *arrived < time);
        place(start + moment) - place(start)
    });
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    let aside = counts.len() / 20;
    let least = *counts.get(aside)?;
    let most = *counts.get(counts.len() - 1 - aside)?;
    let mbit =
        |count: usize| count as f64 * f64::from(arrivals.packet_bytes) * 8.0 / moment as f64 * 1e3;
    (most > 0).then(|| [mbit(least), mbit(most)])
}
