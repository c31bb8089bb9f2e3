//! Describes links in words for a report, with units and with the defaults that a file omits.

use super::links::{Cellular, Direction};
use anabranch_link::{
    GilbertElliott, Jitter, Loss, LossClock, LossPlace, Probability, Queue, Rate,
};
use std::time::Duration;

/// One direction of a link in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The rate.
    pub rate: String,
    /// How long packets take, and how much that varies.
    pub delay: String,
    /// The queue.
    pub queue: String,
    /// Which packets are lost.
    pub loss: String,
}

impl Direction {
    /// This direction in words.
    pub fn told(&self) -> Told {
        Told {
            rate: self.told_rate(),
            delay: self.told_delay(),
            queue: queue(&self.link.queue, self.rate()),
            loss: self.told_loss(),
        }
    }

    fn told_rate(&self) -> String {
        if let Some(Cellular { slot, rate, .. }) = &self.cellular {
            let (low, high) = (bits(rate.0), bits(rate.1));
            return format!("{low} to {high}, drawn every {}", time(*slot));
        }
        match &self.link.rate {
            Rate::Unlimited => "unlimited".to_owned(),
            Rate::Fixed {
                bits_per_second,
                burst: 0,
            } => bits(bits_per_second.get()),
            Rate::Fixed {
                bits_per_second,
                burst,
            } => format!(
                "{}, {} at once after a pause",
                bits(bits_per_second.get()),
                bytes(u64::from(*burst))
            ),
            Rate::Trace(trace) => format!(
                "a trace of {}, {} on average",
                nanoseconds(trace.period_ns() as f64),
                bits(trace.mean_rate())
            ),
        }
    }

    fn told_delay(&self) -> String {
        let stall = |share: f64, (min, max): (Duration, Duration)| {
            let share = percent(share);
            format!(", {share} take {} to {} longer", time(min), time(max))
        };
        let radio = self.cellular.filter(|radio| radio.stall > 0.0);
        let radio = radio.map(|radio| stall(radio.stall, radio.stall_time));
        let jitter = match self.link.jitter {
            Jitter::None => String::new(),
            Jitter::Uniform(most) => format!(" ± {}", time(most)),
            Jitter::Normal(deviation) => format!(", standard deviation {}", time(deviation)),
            Jitter::Stall {
                probability,
                min,
                max,
            } => stall(probability.as_f64(), (min, max)),
        };
        let overtake = if self.link.reorder {
            ", packets may overtake"
        } else {
            ""
        };
        let radio = radio.unwrap_or_default();
        format!("{}{radio}{jitter}{overtake}", time(self.link.delay))
    }

    fn told_loss(&self) -> String {
        let mut text = match self.link.loss {
            Loss::None => return "none".to_owned(),
            Loss::Independent(share) => percent(share.as_f64()),
            Loss::GilbertElliott(model) => {
                let (share, burst) = (percent(mean(&model)), 1.0 / model.to_good.as_f64());
                if burst.is_finite() {
                    format!("{share} in bursts of {}", rounded(burst))
                } else {
                    format!("{share} in bursts without end")
                }
            }
        };
        if self.link.loss_clock == LossClock::Packet {
            text += ", drawn for each packet";
        }
        if self.link.loss_place == LossPlace::BeforeQueue {
            text += ", before the queue";
        }
        text
    }
}

/// The share of packets that such a model loses in the long run.
fn mean(model: &GilbertElliott) -> f64 {
    let [to_bad, to_good, in_good, in_bad] =
        [model.to_bad, model.to_good, model.loss_good, model.loss_bad].map(Probability::as_f64);
    if to_bad + to_good > 0.0 {
        (to_bad * in_bad + to_good * in_good) / (to_bad + to_good)
    } else {
        in_good
    }
}

fn queue(queue: &Queue, rate: Option<u64>) -> String {
    match queue {
        Queue::TailDropBytes(room) => match rate {
            Some(rate) if rate > 0 => {
                let full = *room as f64 * 8.0 / rate as f64 * 1e9;
                format!("{} ({})", bytes(*room), nanoseconds(full))
            }
            _ => bytes(*room),
        },
        Queue::TailDropPackets(1) => "1 packet".to_owned(),
        Queue::TailDropPackets(room) => format!("{room} packets"),
        Queue::CoDel(codel) => format!(
            "CoDel: {} in {}, at most {}",
            time(codel.target),
            time(codel.interval),
            bytes(codel.limit_bytes)
        ),
        Queue::Red(red) => format!(
            "RED: {} from {} to {}, at most {}",
            percent(red.max_probability.as_f64()),
            bytes(red.min_bytes),
            bytes(red.max_bytes),
            bytes(red.limit_bytes)
        ),
    }
}

fn bits(per_second: u64) -> String {
    let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
    scaled(per_second as f64, &units)
}

/// In powers of 1024 if the file must have used them.
fn bytes(count: u64) -> String {
    if count > 0 && count.is_multiple_of(1024) && !count.is_multiple_of(1000) {
        let units = ["KiB", "MiB", "GiB"];
        let mut whole = count / 1024;
        let mut unit = 0;
        while whole.is_multiple_of(1024) && unit + 1 < units.len() {
            whole /= 1024;
            unit += 1;
        }
        return format!("{whole} {}", units[unit]);
    }
    scaled(count as f64, &["B", "kB", "MB", "GB"])
}

fn time(time: Duration) -> String {
    if time.is_zero() {
        return "0 ms".to_owned();
    }
    nanoseconds(time.as_nanos() as f64)
}

fn nanoseconds(count: f64) -> String {
    scaled(count, &["ns", "µs", "ms", "s"])
}

fn percent(share: f64) -> String {
    format!("{} %", rounded(share * 100.0))
}

/// In the largest unit of which there is at least one; each unit is 1000 times the one before.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", rounded(value), units[unit])
}

/// Undoes conversion errors: a queue of 50 ms or a share of 0.1 % has been in other units since it
/// was read.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Document, Scenario};

    fn told(direction: &str) -> [String; 4] {
        let text = format!(
            "format = 1\nname = \"t\"\nstop = \"1s\"\n[[path]]\nname = \"a\"\n\
             forward = {direction}\n[[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
        );
        let document = Document::parse("t.toml", &text).unwrap();
        let scenario = Scenario::read(&document).unwrap_or_else(|error| panic!("{error}"));
        let told = scenario.network.links[0].forward.told();
        [told.rate, told.delay, told.queue, told.loss]
    }

    #[test]
    fn a_link_is_told_with_its_units_and_what_the_file_leaves_out() {
        assert_eq!(
            told("{ rate = \"18.4Mbit/s\", delay = \"12.5ms\", loss = \"0.1%\" }"),
            ["18.4 Mbit/s", "12.5 ms", "230 kB (100 ms)", "0.1 %"]
        );
        let binary = told("{ rate = \"8Mbit/s\", queue = \"64KiB\" }");
        assert_eq!(binary[2], "64 KiB (65.536 ms)");
        assert_eq!(
            told("{}"),
            ["unlimited", "0 ms", "1000 packets", "none"],
            "a wire"
        );
    }

    #[test]
    fn what_varies_is_told_with_how() {
        let bursts = "{ rate = \"1Mbit/s\", burst = \"15kB\", delay = \"2s\", jitter = \"5ms\", \
                      loss = { mean = \"2%\", burst = 3 }, loss-per = \"packet\", \
                      loss-place = \"before-queue\", queue = \"50packets\" }";
        assert_eq!(
            told(bursts),
            [
                "1 Mbit/s, 15 kB at once after a pause",
                "2 s ± 5 ms",
                "50 packets",
                "2 % in bursts of 3, drawn for each packet, before the queue"
            ]
        );
        let radio = "{ cellular = { slot = \"1s\", rate = [\"1Mbit/s\", \"3Mbit/s\"], \
                     stall = \"1%\", stall-time = [\"20ms\", \"80ms\"] }, delay = \"30ms\", \
                     queue = { codel = { target = \"5ms\", interval = \"100ms\" } } }";
        assert_eq!(
            told(radio)[..3],
            [
                "1 Mbit/s to 3 Mbit/s, drawn every 1 s",
                "30 ms, 1 % take 20 ms to 80 ms longer",
                "CoDel: 5 ms in 100 ms, at most 1 MB"
            ]
        );
    }
}
