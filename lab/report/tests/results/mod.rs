//! Made-up results, so that the figures are known and all kinds of them occur.

use anabranch_lab::backend::Backend;
use anabranch_lab::campaign::Campaign;
use anabranch_lab::plan::{Changes, Plan, Run};
use anabranch_lab::results::{Bin, Outcome, PathOutcome, Status, Store};
use anabranch_lab::scenario::Document;
use std::path::{Path, PathBuf};

/// Two paths, one of which is silent for a while.
pub(crate) const CUT: &str = r#"
format = 1
name = "cut <&> return"
stop = "60s"
[[path]]
name = "dsl"
forward = { rate = "10Mbit/s", delay = "10ms", loss = "1%" }
[[path]]
name = "lte"
forward = { rate = "20Mbit/s", delay = "30ms" }
[[event]]
at = "2s"
path = "lte"
down = "both"
[[event]]
at = "4s"
path = "lte"
up = "both"
[[flow]]
kind = "bulk"
bytes = "20MB"
[contenders]
anabranch = { scheduler = ["min-rtt", "blest", "weighted:weights=1/2"] }
[repeat]
runs = 8
[check]
goodput = [{ of = "sum-of-rates", at-least = "60%" }, { of = "best-single", at-least = 2 }]
"#;

/// Two paths and two swept values.
pub(crate) const SWEPT: &str = r#"
format = 1
name = "swept"
stop = "60s"
[[path]]
name = "a"
forward = { rate = "10Mbit/s", delay = "10ms", loss = "1%" }
[[path]]
name = "b"
forward = { rate = "20Mbit/s", delay = "30ms" }
[[flow]]
kind = "bulk"
bytes = "20MB"
[contenders]
anabranch = { scheduler = ["min-rtt", "blest"] }
[sweep]
"path.a.forward.rate" = ["1Mbit/s", "2Mbit/s", "5Mbit/s", "10Mbit/s"]
"path.b.forward.delay" = ["10ms", "30ms", "90ms"]
[repeat]
runs = 4
"#;

/// A backend that makes up results from the run alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// The backend's name.
    pub(crate) name: &'static str,
    /// The factor between its goodputs and those of others.
    pub(crate) factor: f64,
}

impl Backend for Made {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, run: &Run) -> Outcome {
        if run.repetition == 3 && run.contender.contains("weighted") {
            return Outcome {
                status: Status::Invalid,
                reason: "the emulator was late".to_owned(),
                ..Outcome::default()
            };
        }
        let luck = 1.0 + (run.seed % 97) as f64 / 1000.0;
        let base = match run.contender.as_str() {
            "anabranch min-rtt" => 24e6,
            "anabranch blest" => 25e6,
            "only dsl" | "only a" => 9.5e6,
            "only lte" | "only b" => 19e6,
            _ => 20e6,
        };
        let slow = run.swept.iter().any(|(_, value)| value == "90ms");
        let base = if slow && !run.single {
            base * 0.7
        } else {
            base
        };
        let goodput = base * luck * self.factor;
        let names = run
            .scenario
            .network
            .paths
            .iter()
            .map(|path| path.name.clone());
        let paths: Vec<PathOutcome> = names.map(path).collect();
        let bins =
            (1..=80).flat_map(|nth| (0..=paths.len() as u32).map(move |path| bin(nth, path)));
        Outcome {
            bytes: 20_000_000,
            goodput_bps: Some(goodput),
            completion_s: Some(160e6 / goodput),
            reseq_wait_mean_s: Some(0.02 * luck),
            reseq_wait_p50_s: Some(0.004 * luck),
            reseq_wait_p95_s: Some(0.06 * luck),
            reseq_wait_p99_s: Some(0.1 * luck),
            series: bins.collect(),
            reasons: vec![("lowest_rtt".to_owned(), 700), ("spill".to_owned(), 300)],
            paths,
            ..Outcome::default()
        }
    }
}

fn path(name: String) -> PathOutcome {
    PathOutcome {
        share: Some(if name == "dsl" { 0.35 } else { 0.65 }),
        utilisation: Some(0.9),
        name,
        ..PathOutcome::default()
    }
}

fn bin(nth: u64, path: u32) -> Bin {
    let silent = path == 2 && (20..40).contains(&nth);
    let bytes = if silent { 0 } else { u64::from(path) * 120_000 };
    Bin {
        t_s: nth as f64 / 10.0,
        path,
        delivered_bytes: bytes,
        goodput_bytes: if path == 0 { 230_000 + nth * 1000 } else { 0 },
        cwnd_bytes: 100_000 + nth * 500,
        inflight_bytes: bytes / 2,
        srtt_s: Some(0.03 + f64::from(path) / 50.0),
        owd_s: (!silent).then_some(0.02),
        reseq_bytes: if path == 0 { nth * 3000 % 70_000 } else { 0 },
        ..Bin::default()
    }
}

/// Makes a folder of results below `base`.
pub(crate) fn make(base: &Path, name: &str, scenario: &str, made: Made) -> PathBuf {
    let document = Document::parse(name, scenario).expect("the scenario is right");
    let plan = Plan::make(&document, &Changes::default()).expect("the scenario is right");
    let store =
        Store::open(&base.join(name), &plan.name, &plan.expanded, "sim").expect("can be written");
    let campaign = Campaign {
        store: Some(&store),
        ..Campaign::default()
    };
    let results = campaign.run(&plan, &made, &|_| {}).expect("can be kept");
    store
        .write_tables(&results.parts, false)
        .expect("can be written");
    store.folder().to_owned()
}
