//! How much a plan demands of a machine, and for how long.

use crate::plan::Plan;
use crate::scenario::{FlowKind, Scenario, Way};
use std::time::Duration;

/// Above this rate through all links together, in bits per second and core, no current machine
/// keeps up in real time.
const REFUSED: u64 = 2_500_000_000;

/// Above this rate a machine may not keep up.
const DOUBTFUL: u64 = 500_000_000;

/// What a run takes beyond its flows: building and removing the network, starting agents.
const OVERHEAD: Duration = Duration::from_millis(800);

/// Whether a machine can carry what a plan asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burden {
    /// Easily.
    Light,
    /// Perhaps: runs in which links were late report it. Bits per second through all links.
    Heavy(u64),
    /// No. Bits per second through all links.
    TooMuch(u64),
}

/// The burden of a plan's heaviest run on a machine with this many cores.
pub fn burden(plan: &Plan, cores: usize) -> Burden {
    let most = plan.runs.iter().map(|run| load(&run.scenario)).max();
    let (most, cores) = (most.unwrap_or(0), cores.max(1) as u64);
    if most > REFUSED.saturating_mul(cores) {
        Burden::TooMuch(most)
    } else if most > DOUBTFUL.saturating_mul(cores) {
        Burden::Heavy(most)
    } else {
        Burden::Light
    }
}

/// Bits per second through all limited links when they are full in the direction of the flows.
fn load(scenario: &Scenario) -> u64 {
    let forward = scenario.flows.iter().any(|flow| flow.way == Way::Forward);
    let backward = scenario.flows.iter().any(|flow| flow.way == Way::Backward);
    let links = scenario.network.links.iter();
    let one = |link: &crate::scenario::NetLink| {
        let ways = [(&link.forward, forward), (&link.backward, backward)];
        let used = ways.into_iter().filter(|(_, used)| *used);
        used.filter_map(|(way, _)| way.rate()).sum::<u64>()
    };
    links.map(one).sum()
}

/// Roughly how long a run will take, at most until it is cut off.
pub fn expected_time(scenario: &Scenario) -> Duration {
    let rate = scenario.sum_of_rates().filter(|rate| *rate > 0);
    let flows = scenario.flows.iter().map(|flow| {
        // Protocols fill about three quarters of a link.
        let transfer = |bytes: u64| {
            let seconds = |rate: u64| bytes as f64 * 8.0 / (0.75 * rate as f64);
            rate.map_or(Duration::from_secs(1), |rate| {
                Duration::from_secs_f64(seconds(rate))
            })
        };
        let takes = match flow.kind {
            FlowKind::BulkTime(time) => time,
            FlowKind::Datagrams { duration, .. } => duration,
            FlowKind::BulkBytes(bytes) => transfer(bytes),
            FlowKind::Files { count, size, gap } => {
                (transfer(size) + Duration::from_millis(50)).max(gap) * count.min(1 << 30) as u32
            }
            FlowKind::Requests { count, every, .. } => every * count.min(1 << 30) as u32,
        };
        flow.start.to + takes
    });
    flows.max().unwrap_or_default().min(scenario.stop) + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Changes;
    use crate::scenario::Document;

    fn plan(rate: &str, flow: &str) -> Plan {
        let text = format!(
            "format = 1\nname = \"x\"\nstop = \"60s\"\n[[path]]\n\
             forward = {{ rate = \"{rate}\" }}\n\
             [[path]]\nforward = {{ rate = \"{rate}\" }}\n[[flow]]\nkind = \"bulk\"\n{flow}\n"
        );
        let document = Document::parse("x.toml", &text).unwrap();
        Plan::make(&document, &Changes::default()).unwrap()
    }

    #[test]
    fn rates_beyond_a_machine_are_told() {
        let bulk = "bytes = \"1MB\"";
        assert_eq!(burden(&plan("100Mbit/s", bulk), 2), Burden::Light);
        assert_eq!(
            burden(&plan("1Gbit/s", bulk), 2),
            Burden::Heavy(2_000_000_000)
        );
        assert_eq!(
            burden(&plan("40Gbit/s", bulk), 2),
            Burden::TooMuch(80_000_000_000)
        );
    }

    #[test]
    fn times_follow_from_flows_and_end_with_the_limit() {
        let seconds = |flow: &str| {
            let plan = plan("5Mbit/s", flow);
            expected_time(&plan.runs[0].scenario).as_secs_f64()
        };
        assert!((seconds("duration = \"10s\"") - 10.8).abs() < 0.01);
        // 3 MB over 10 Mbit/s, three quarters full.
        assert!((seconds("bytes = \"3MB\"") - 4.0).abs() < 0.01);
        assert!((seconds("bytes = \"3GB\"") - 60.8).abs() < 0.01);
    }
}
