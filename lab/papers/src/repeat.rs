//! Whether the repository's scenarios do the same twice.

use crate::{Check, experiments};
use anabranch_lab::backend::sim::Sim;
use anabranch_lab::campaign::Campaign;
use anabranch_lab::plan::{Changes, Plan, Run};
use anabranch_lab::repeat::differences;
use anabranch_lab::results::Part;
use anabranch_lab::scenario::{Document, Kind};
use std::fs;
use std::path::{Path, PathBuf};

/// Where this repository has scenarios: as files, and as blocks in pages. Other folders may
/// hold results of campaigns.
const PLACES: [&str; 5] = [
    "lab/papers",
    "lab/scenarios",
    "docs",
    "examples",
    "README.md",
];

/// Every scenario there: its file and its text.
fn scenarios() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = PLACES.iter().map(|place| root.join(place)).collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            waiting.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        let extension = path.extension().unwrap_or_default();
        if extension == "toml" || extension == "md" {
            let text = fs::read_to_string(&path).unwrap();
            let blocks = text.split("```toml\n").skip(1);
            let texts: Vec<&str> = if extension == "toml" {
                vec![&text]
            } else {
                blocks
                    .map(|rest| rest.split("```").next().unwrap())
                    .collect()
            };
            // Contender files have a `format` too, but no flows.
            let is_scenario =
                |text: &&str| text.contains("[[flow]]") && text.contains("format = 1");
            let scenarios = texts.into_iter().filter(is_scenario);
            found.extend(scenarios.map(|text| (path.clone(), text.to_owned())));
        }
    }
    found.sort();
    found
}

/// CI runs those with `sim papers --twice`.
fn is_of_a_paper(text: &str) -> bool {
    experiments()
        .iter()
        .any(|one| matches!(one.check, Check::Measured { scenario, .. } if scenario == text))
}

#[test]
fn scenarios_that_are_no_experiments_of_papers_do_the_same_twice() {
    let mut names = Vec::new();
    for (file, text) in scenarios() {
        if is_of_a_paper(&text) {
            continue;
        }
        let name = file.display().to_string();
        let document = Document::parse(&name, &text).unwrap();
        let plan = Plan::make(&document, &Changes::default())
            .unwrap()
            .beginning();
        let run = || Campaign::default().run(&plan, &Sim::default(), &|_| {});
        let (first, second) = (run().unwrap().parts, run().unwrap().parts);
        assert_eq!(first.len(), plan.runs.len(), "{name}");
        let has_trace = |part: &Part| part.outcome.trace_hash.is_some();
        // Programs of others and the kernel's multipath TCP run in kernels alone.
        let foreign = [Kind::Command, Kind::KernelMptcp, Kind::MptcpProxy];
        let is_foreign = |kind: Kind| foreign.contains(&kind);
        let is_simulated = |run: &Run| !is_foreign(run.scenario.transport.kind);
        let expected = plan.runs.iter().any(is_simulated);
        assert_eq!(
            first.iter().any(has_trace),
            expected,
            "{name}: whether anything ran"
        );
        assert_eq!(differences(&first, &second), [], "{name}");
        names.push(plan.name);
    }
    // The search must have found these.
    for (file, _) in anabranch_lab::calibration::SCENARIOS {
        let name = file.trim_end_matches(".toml");
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
    for name in ["rivals-pairs", "rivals-cut", "dsl-and-lte", "bulk"] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
}
