//! `anabranch lab status`: the progress of the runs in a folder.

use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_lab::results::{Part, Status};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What `lab run` writes before it begins.
#[derive(Debug, Deserialize)]
struct Planned {
    name: String,
    runs: Vec<PlannedRun>,
}

#[derive(Debug, Deserialize)]
struct PlannedRun {
    run_id: String,
    contender: String,
}

/// The runs of one contender.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    planned: u64,
    ok: u64,
    bad: u64,
    unsupported: u64,
}

/// Runs the command.
pub(super) fn run(folder: &Path, json: bool) -> Outcome {
    let file = folder.join("plan.json");
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let failure = Failure::usage(format!("{}: {error}", file.display()));
        failure.hint("expected a folder that `anabranch lab run` writes to")
    })?;
    let plan: Planned = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut seconds = Vec::new();
    for run in &plan.runs {
        let count = counts.entry(&run.contender).or_default();
        count.planned += 1;
        let part = std::fs::read(folder.join("parts").join(format!("{}.json", run.run_id)));
        let part = part
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Part>(&bytes).ok());
        let Some(part) = part else { continue };
        seconds.push(part.outcome.wall_s);
        match part.outcome.status {
            Status::Ok => count.ok += 1,
            Status::Unsupported => count.unsupported += 1,
            Status::Failed | Status::Invalid | Status::Timeout => count.bad += 1,
        }
    }
    let done = seconds.len();
    let left = plan.runs.len() - done;
    let mean = seconds.iter().sum::<f64>() / done.max(1) as f64;
    if json {
        return output::json(&serde_json::json!({
            "name": plan.name,
            "runs": plan.runs.len(),
            "done": done,
            "failed": counts.values().map(|count| count.bad).sum::<u64>(),
            "seconds_left": (done > 0).then_some(mean * left as f64),
        }));
    }
    let mut table = Table::new(&["contender", ">done", ">of", ">failed", ">unsupported"]);
    for (contender, count) in &counts {
        table.row([
            (*contender).to_owned(),
            (count.ok + count.bad + count.unsupported).to_string(),
            count.planned.to_string(),
            count.bad.to_string(),
            count.unsupported.to_string(),
        ]);
    }
    output::data(table)?;
    let minutes = (mean * left as f64 / 60.0).ceil();
    let time = match (left, done) {
        (0, _) => String::new(),
        (_, 0) => ", none done yet".to_owned(),
        _ => format!(", about {minutes:.0} min to go"),
    };
    output::say(format!(
        "{}: {done} of {}{time}",
        plan.name,
        units::counted(plan.runs.len(), "run")
    ));
    Ok(())
}
