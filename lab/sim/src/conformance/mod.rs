//! The conformance kit: does a scheduler keep the promises that users take for granted?
//!
//! ```no_run
//! use anabranch_sim::conformance::Kit;
//! use anabranch_schedulers::Names;
//!
//! let report = Kit::new().check(&Names::default(), "tail+min-rtt").expect("a scheduler");
//! println!("{report}");
//! assert!(report.is_conformant());
//! ```
//!
//! Everything runs on the real engine in virtual time, so a result never depends on the speed of
//! the machine. To check a scheduler of your own, register it in [`Names`].

mod networks;
#[cfg(test)]
mod tests;
mod trial;

pub use networks::{Network, networks};

use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::spec::{Spec, SpecError};
use anabranch_schedulers::Names;
use std::fmt;
use std::time::Duration;
use trial::{Result as Trial, Trouble};

/// How much slower a transfer may be than on the best single path, as a share of that speed.
pub const TOLERANCE: f64 = 0.05;

/// The longest time without progress on a network that loses nothing: several round trips of the
/// slower path, queues included.
pub const MAX_PAUSE: Duration = Duration::from_millis(600);

/// The least that each of several equal streams must have received of its fair half, in percent,
/// when half of all bytes have arrived.
pub const FAIR_PERCENT: u64 = 50;

/// The most doubts of both paths together on networks whose only fault is being late now and then.
pub const MOST_DOUBTS: u64 = 6;

/// The most stream bytes sent per byte needed, where nothing is lost. Copies the scheduler asks for
/// do not count.
pub const MOST_SENT: f64 = 1.05;

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A transfer is never more than [`TOLERANCE`] slower than on the best single path.
    BestPath,
    /// Streams of equal priority advance together: halfway through, each has at least
    /// [`FAIR_PERCENT`] of its fair share, and all finish in the time that is fair for all of them.
    NoStarvation,
    /// Progress never pauses for longer than [`MAX_PAUSE`] on a sound network.
    BoundedHold,
    /// A transfer survives a path that fails and returns again and again, and takes at most twice
    /// as long as on the other path alone.
    Flapping,
    /// A path in doubt carries no new data while another path answers.
    Doubt,
    /// A path whose peer acknowledges late, that jitters or that stalls briefly is doubted at most
    /// [`MOST_DOUBTS`] times, and at most [`MOST_SENT`] times the bytes are sent.
    Calm,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::BestPath,
        Self::NoStarvation,
        Self::BoundedHold,
        Self::Flapping,
        Self::Doubt,
        Self::Calm,
    ];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestPath => "best path",
            Self::NoStarvation => "no starvation",
            Self::BoundedHold => "bounded hold",
            Self::Flapping => "flapping",
            Self::Doubt => "doubt",
            Self::Calm => "calm",
        }
    }
}

/// A scheduler that by its nature cannot keep a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Excuse {
    /// The scheduler's name, without wrappers.
    pub scheduler: &'static str,
    /// A parameter the scheduler must have to be excused, such as `("mode", "hold")`.
    pub only_with: Option<(&'static str, &'static str)>,
    /// The rule.
    pub rule: Rule,
    /// The networks, each with the longest excused time as a multiple of the time on the best path
    /// alone. A transfer that does not finish is never excused.
    pub networks: &'static [(&'static str, f64)],
    /// Why.
    pub reason: &'static str,
}

const STRICT: &str = "turns are kept even if the path whose turn it is has no room: the slowest \
                      path sets the pace";

const fn strict(scheduler: &'static str) -> Excuse {
    Excuse {
        scheduler,
        only_with: Some(("mode", "hold")),
        rule: Rule::BestPath,
        networks: STRICT_BEST,
        reason: STRICT,
    }
}

/// Half of all bytes at the rate of the slower path, plus the time its losses cost.
const STRICT_BEST: &[(&str, f64)] = &[
    ("jitter 20 ms", 1.1),
    ("a quarter of the rate", 2.0),
    ("a tenth of the rate", 5.0),
    ("2 % loss", 1.75),
    ("a bloated queue", 2.0),
    ("fibre and radio", 3.95),
];

/// Which schedulers are excused from which rules.
pub const EXCUSES: &[Excuse] = &[
    strict("round-robin"),
    strict("weighted"),
    Excuse {
        scheduler: "bas-like",
        only_with: None,
        rule: Rule::BestPath,
        networks: &[("100 ms apart", 1.25), ("jitter 20 ms", 1.25)],
        reason: "it counts bandwidth alone: paths of equal rate are equal to it, however late one \
                 of them delivers",
    },
    Excuse {
        scheduler: "edpf-like",
        only_with: None,
        rule: Rule::BestPath,
        networks: &[
            ("100 ms apart", 1.25),
            ("half the rate", 1.15),
            ("a tenth of the rate", 1.35),
            ("0.5 % loss", 1.5),
            ("2 % loss", 3.05),
        ],
        reason: "it waits for the path of the earliest prediction even if others have room; where \
                 loss or late queues falsify the rate it predicts with, the wait is in vain",
    },
];

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The network.
    pub network: &'static str,
    /// Whether the rule was kept.
    pub kept: bool,
    /// Why the rule need not be kept.
    pub excuse: Option<&'static str>,
    /// The measured figure, in words.
    pub figure: String,
}

/// A finding, with what decides whether an excuse applies.
#[derive(Debug, Clone)]
struct Measured {
    finding: Finding,
    /// The time taken as a multiple of the time on the best path alone; `None` if the transfer did
    /// not finish or if the rule is not about time.
    factor: Option<f64>,
}

/// The results of one scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its name and parameters.
    pub scheduler: String,
    /// All measurements.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether every rule was kept or is excused.
    pub fn is_conformant(&self) -> bool {
        self.breaches().next().is_none()
    }

    /// Findings that were neither kept nor excused.
    pub fn breaches(&self) -> impl Iterator<Item = &Finding> {
        let broken = |finding: &&Finding| !finding.kept && finding.excuse.is_none();
        self.findings.iter().filter(broken)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.scheduler)?;
        for finding in &self.findings {
            let verdict = match (finding.kept, finding.excuse) {
                (true, _) => "ok",
                (false, Some(_)) => "excused",
                (false, None) => "BROKEN",
            };
            writeln!(
                f,
                "  {verdict:<8} {:<14} {:<22} {}",
                finding.rule.name(),
                finding.network,
                finding.figure
            )?;
            if let (false, Some(reason)) = (finding.kept, finding.excuse) {
                writeln!(f, "           because {reason}")?;
            }
        }
        Ok(())
    }
}

/// The networks, and how long a single path takes on each.
#[derive(Debug)]
pub struct Kit {
    networks: Vec<(Network, Duration)>,
}

impl Default for Kit {
    fn default() -> Self {
        Self::new()
    }
}

impl Kit {
    /// A kit with all networks; measures the single paths.
    pub fn new() -> Self {
        Self::on(networks())
    }

    /// A kit with these networks; measures their single paths.
    ///
    /// # Panics
    /// If nothing gets through a network on either path.
    pub fn on(networks: Vec<Network>) -> Self {
        let alone = |network: Network| {
            let scheduler = anabranch_schedulers::recommended();
            let times = network.links.iter().filter_map(|link| {
                let link = std::slice::from_ref(link);
                trial::bulk(&scheduler, link, network.bytes(), Trouble::None).took
            });
            let best = times.min().expect("a transfer over a single path ends");
            (network, best)
        };
        Self {
            networks: networks.into_iter().map(alone).collect(),
        }
    }

    /// Measures one scheduler.
    ///
    /// # Errors
    /// If there is no scheduler of this name, or its parameters make no sense.
    pub fn check(&self, names: &Names, spec: &str) -> Result<Report, SpecError> {
        let parsed: Spec = spec.parse()?;
        let scheduler = SchedulerFactory::new(&names.schedulers, &parsed)?;
        let mut findings = Vec::new();
        for (index, (network, best)) in self.networks.iter().enumerate() {
            let bytes = network.bytes();
            let trial = trial::bulk(&scheduler, &network.links, bytes, Trouble::None);
            findings.push(against_best(network, &trial, *best));
            let sound = network
                .links
                .iter()
                .all(|link| link.loss == anabranch_link::Loss::None);
            if sound {
                findings.push(pause(network, &trial));
            }
            // What does not depend on the network's properties is measured once.
            if index == 0 {
                let streams = trial::streams(&scheduler, &network.links, bytes);
                findings.push(starvation(network, &streams, *best));
                let flaps = trial::bulk(&scheduler, &network.links, bytes, Trouble::Flaps);
                findings.push(flapping(network, &flaps, *best));
                findings.push(doubt(network, &flaps));
            }
        }
        findings.extend(calm(&scheduler));
        let excused = |measured: Measured| Finding {
            excuse: excuse(&parsed, spec, &measured),
            ..measured.finding
        };
        Ok(Report {
            scheduler: spec.to_owned(),
            findings: findings.into_iter().map(excused).collect(),
        })
    }
}

/// The time allowed at the tolerated speed, as a multiple of the best path's.
const FULL: f64 = 1.0 / (1.0 - TOLERANCE);

fn excuse(parsed: &Spec, spec: &str, measured: &Measured) -> Option<&'static str> {
    let (finding, factor) = (&measured.finding, measured.factor?);
    // A wrapper leaves decisions to the scheduler inside it until it takes a path out.
    let name = parsed.name.rsplit('+').next().unwrap_or_default();
    let applies = |excuse: &&Excuse| {
        let with = excuse.only_with.is_none_or(|(key, value)| {
            let wanted = format!("{key}={value}");
            spec.split([':', ',']).any(|part| part.trim() == wanted)
        });
        let mut networks = excuse.networks.iter();
        let here = networks.any(|(name, worst)| *name == finding.network && factor <= *worst);
        excuse.scheduler == name && excuse.rule == finding.rule && with && here
    };
    EXCUSES.iter().find(applies).map(|excuse| excuse.reason)
}

fn finding(rule: Rule, network: &Network, kept: bool, figure: String) -> Measured {
    let finding = Finding {
        rule,
        network: network.name,
        kept,
        excuse: None,
        figure,
    };
    Measured {
        finding,
        factor: None,
    }
}

/// Judges a transfer that may take `longest` times as long as on the best path.
fn timed(rule: Rule, network: &Network, trial: &Trial, best: Duration, longest: f64) -> Measured {
    let best = best.as_secs_f64().max(1e-9);
    let factor = trial.took.map(|took| took.as_secs_f64() / best);
    let figure = factor.map_or("not finished".into(), |factor| {
        let took = factor * best;
        format!("{took:.3} s against {best:.3} s, {factor:.2} times")
    });
    let kept = factor.is_some_and(|factor| factor <= longest);
    Measured {
        factor,
        ..finding(rule, network, kept, figure)
    }
}

fn against_best(network: &Network, trial: &Trial, best: Duration) -> Measured {
    timed(Rule::BestPath, network, trial, best, FULL)
}

fn starvation(network: &Network, trial: &Trial, best: Duration) -> Measured {
    let mut measured = timed(Rule::NoStarvation, network, trial, best, FULL);
    let (finding, percent) = (&mut measured.finding, trial.least_percent);
    finding.kept &= percent >= FAIR_PERCENT;
    let part = format!("half way the last stream has {percent} % of its part");
    finding.figure = format!("{}; {part}", finding.figure);
    measured
}

fn pause(network: &Network, trial: &Trial) -> Measured {
    let figure = format!("{} ms at most", trial.pause.as_millis());
    finding(Rule::BoundedHold, network, trial.pause <= MAX_PAUSE, figure)
}

fn flapping(network: &Network, trial: &Trial, best: Duration) -> Measured {
    timed(Rule::Flapping, network, trial, best, 2.0)
}

fn doubt(network: &Network, trial: &Trial) -> Measured {
    let figure = format!("{} packets", trial.on_doubted);
    finding(Rule::Doubt, network, trial.on_doubted == 0, figure)
}

/// Networks that lose nothing but are late now and then.
fn calm(scheduler: &SchedulerFactory) -> [Measured; 3] {
    let cases = [
        ("a late peer", networks::patient(), Trouble::LATE_PEER),
        ("jitter", networks::jittery(), Trouble::None),
        ("brief stalls", networks::patient(), Trouble::STALLS),
    ];
    cases.map(|(name, second, trouble)| {
        let links = [networks::patient(), second];
        lateness(scheduler, &Network { name, links }, trouble)
    })
}

fn lateness(scheduler: &SchedulerFactory, network: &Network, trouble: Trouble) -> Measured {
    let bytes = network.bytes();
    let trial = trial::bulk(scheduler, &network.links, bytes, trouble);
    let share = trial.sent as f64 / bytes as f64;
    let figure = format!("{} doubts, {share:.3} of the bytes", trial.doubts);
    let kept = trial.took.is_some() && trial.doubts <= MOST_DOUBTS && share <= MOST_SENT;
    finding(Rule::Calm, network, kept, figure)
}
