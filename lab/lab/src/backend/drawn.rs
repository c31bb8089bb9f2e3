//! What a run's seed decides before the run begins. Every backend asks here, so that a repetition
//! has the same network and the same start times in all of them.

use crate::scenario::{Cellular, Direction, FULL_PACKET, Scenario};
use anabranch_link::{Jitter, LinkConfig, Probability, Rate, Trace};
use anabranch_sim::traffic::{Web, WebConfig};
use anabranch_sim::{Dice, Seed};
use std::sync::Arc;
use std::time::Duration;

/// The largest page is this many times the smallest: from 6 KB to 10 MB, for example.
const WEB_SPREAD: u64 = 1_667;

/// The mean page as a multiple of the smallest: 1 + ln([`WEB_SPREAD`]).
const WEB_MEAN: f64 = 8.42;

/// When a flow begins.
pub(crate) fn flow_start(scenario: &Scenario, flow: usize, seed: u64) -> Duration {
    scenario.flows[flow].start.at(first("start", flow, seed))
}

/// When a piece of background traffic begins.
pub(crate) fn background_start(scenario: &Scenario, index: usize, seed: u64) -> Duration {
    let start = scenario.background[index].start;
    start.at(first("background", index, seed))
}

/// The requests of a person reading web pages; `size` is the mean page in bytes.
pub(crate) fn reader(index: usize, size: u64, pause: Duration, seed: u64) -> Web {
    let smallest = ((size as f64 / WEB_MEAN) as u64).max(1);
    let config = WebConfig {
        smallest,
        largest: smallest.saturating_mul(WEB_SPREAD),
        pause,
        ..WebConfig::default()
    };
    Web::new(config, Seed(seed).derive("reader", index as u64))
}

/// The first draw for this purpose, from 0 to 1.
fn first(purpose: &str, index: usize, seed: u64) -> f64 {
    let mut dice = Dice::new(Seed(seed).derive(purpose, index as u64));
    dice.next() as f64 / u64::MAX as f64
}

/// Both directions of a link, with the rate trace and stalls of cellular links drawn from the seed.
pub(crate) fn links(scenario: &Scenario, link: usize, seed: u64) -> [LinkConfig; 2] {
    let seed = Seed(seed).derive("cellular", link as u64);
    let link = &scenario.network.links[link];
    let config = |direction: &Direction, line: u64| {
        let mut config = direction.link.clone();
        if let Some(cellular) = &direction.cellular {
            config.rate = draw(cellular, seed.derive("rate", line), scenario.stop);
            if let Some(probability) =
                Probability::new(cellular.stall).filter(|_| cellular.stall > 0.0)
            {
                let (min, max) = cellular.stall_time;
                config.jitter = Jitter::Stall {
                    probability,
                    min,
                    max,
                };
            }
        }
        config
    };
    [config(&link.forward, 0), config(&link.backward, 1)]
}

/// The longest part of a cellular link's trace that is drawn; after that the trace repeats.
const DRAWN: Duration = Duration::from_secs(600);

/// The trace of a link whose rate is drawn for each slot.
fn draw(cellular: &Cellular, seed: Seed, stop: Duration) -> Rate {
    let mut dice = Dice::new(seed);
    let mut even =
        |low: f64, high: f64| low + (high - low) * (dice.next() as f64 / u64::MAX as f64);
    let end = stop.min(DRAWN).as_secs_f64().max(1.0);
    let (mut time, mut credit, mut latest) = (0.0, 0.0, 0);
    let mut text = String::new();
    while time < end {
        let rate = even(cellular.rate.0 as f64, cellular.rate.1 as f64);
        credit += rate * cellular.slot.as_secs_f64() / (8.0 * FULL_PACKET as f64);
        let count = (credit as u64).max(1);
        for packet in 0..count.min(credit as u64) {
            credit -= 1.0;
            let share = packet as f64 / count as f64;
            let at = time + cellular.slot.as_secs_f64() * share;
            latest = (at * 1000.0).round() as u64;
            text.push_str(&latest.to_string());
            text.push('\n');
        }
        time += cellular.slot.as_secs_f64();
    }
    // The trace must end at a time after 0, even if no packet was drawn.
    text.push_str(&latest.max((end * 1000.0).ceil() as u64).to_string());
    let trace = Trace::parse(&text).expect("times that ascend");
    Rate::Trace(Arc::new(trace))
}
