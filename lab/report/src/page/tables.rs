//! The table of results, and how they were obtained.

use super::quoted;
use super::runs::{group_anchor, seconds};
use super::setup::Setup;
use crate::load::Folder;
use crate::study::Study;
use crate::sweep::point;
use crate::verdict::rate;
use anabranch_lab::report::Row;
use anabranch_lab::results::{SCHEMA_VERSION, Status};
use anabranch_lab::stats::{Estimate, Interval};
use anabranch_lab::words::counted;
use std::collections::BTreeSet;

/// A row of results; the last cell links to its runs.
pub(crate) struct Cells {
    pub(crate) texts: Vec<String>,
    pub(crate) link: String,
    pub(crate) runs: String,
    pub(crate) single: bool,
}

/// How a folder's results were obtained.
pub(crate) struct Method {
    pub(crate) title: String,
    pub(crate) facts: Vec<(String, String)>,
    /// The setup, unless an earlier folder had the same.
    pub(crate) setup: Option<Setup>,
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) machine_json: String,
    pub(crate) invalid: Vec<String>,
    pub(crate) more_invalid: usize,
    pub(crate) commands: Vec<(String, String)>,
}

/// The most failed runs that are listed individually.
const SHOWN: usize = 20;

/// Each contender at each point on each backend.
pub(crate) fn results(study: &Study) -> (Vec<&'static str>, Vec<Cells>) {
    let all = || study.folders.iter().flat_map(|folder| &folder.report.rows);
    let worlds = study.folders.len() > 1;
    let swept = all().any(|row| !row.swept.is_empty());
    let timed = all().any(|row| row.completion.is_some());
    let tailed = all().any(|row| row.completion_p95.is_some());
    let mut head = Vec::new();
    if worlds {
        head.push("world");
    }
    if swept {
        head.push("at");
    }
    head.extend([
        "contender",
        "goodput",
        "95 %",
        "median",
        "against first",
        "p",
        "gain",
        "delay by waiting",
    ]);
    if timed {
        head.push("median completion");
    }
    if tailed {
        head.push("95th percentile");
    }
    let mut rows = Vec::new();
    for (at, folder) in study.folders.iter().enumerate() {
        for (nth, row) in folder.report.rows.iter().enumerate() {
            let mut cells = Vec::new();
            if worlds {
                cells.push(study.label(at));
            }
            if swept {
                cells.push(point(&row.swept));
            }
            cells.extend(figures(row));
            if timed {
                cells.push(time(row.completion_median));
            }
            if tailed {
                cells.push(time(row.completion_p95));
            }
            rows.push(Cells {
                texts: cells,
                link: group_anchor(study, at, nth),
                runs: format!("{} of {}", row.ok.0, row.ok.1),
                single: row.single,
            });
        }
    }
    (head, rows)
}

/// A time with its interval.
fn time(estimate: Option<Estimate>) -> String {
    let value = seconds(estimate.map(|time| time.value));
    match estimate.and_then(|time| time.interval) {
        Some(Interval { low, high }) => {
            format!(
                "{value} ({} to {})",
                seconds(Some(low)),
                seconds(Some(high))
            )
        }
        None => value,
    }
}

fn figures(row: &Row) -> [String; 8] {
    let dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let interval = row.goodput.and_then(|goodput| goodput.interval);
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let against = row.against_first.map(|found| match found.interval {
        Some(interval) => format!(
            "{} ({} to {})",
            percent(found.ratio),
            percent(interval.low),
            percent(interval.high)
        ),
        None => percent(found.ratio),
    });
    let p = |p: f64| {
        if p < 0.001 {
            "< 0.001".to_owned()
        } else {
            format!("{p:.3}")
        }
    };
    [
        row.contender.clone(),
        dash(row.goodput.map(|goodput| rate(goodput.mean))),
        dash(interval.map(|i| format!("{} to {}", rate(i.low), rate(i.high)))),
        dash(row.goodput_median.map(|median| match median.interval {
            Some(i) => format!(
                "{} ({} to {})",
                rate(median.value),
                rate(i.low),
                rate(i.high)
            ),
            None => rate(median.value),
        })),
        dash(against),
        dash(row.p.map(p)),
        dash(row.gain.map(|gain| match gain.interval {
            Some(i) => format!("{:.2} ({:.2} to {:.2})", gain.value, i.low, i.high),
            None => format!("{:.2}", gain.value),
        })),
        dash(
            row.reseq_wait
                .map(|wait| format!("{:.2} ms", wait * 1000.0)),
        ),
    ]
}

/// How the results of each folder were obtained.
pub(crate) fn method(study: &Study) -> Vec<Method> {
    let is_new = |at: usize| {
        let (earlier, rest) = study.folders.split_at(at);
        let same = |folder: &Folder| folder.plan.expanded == rest[0].plan.expanded;
        !earlier.iter().any(same)
    };
    let one = |(at, folder): (usize, &Folder)| {
        let failures = &folder.report.failures;
        Method {
            title: study.label(at),
            facts: facts(folder),
            setup: is_new(at).then(|| Setup::of(folder)),
            machine: folder.machine.clone(),
            machine_json: folder.machine_json.clone(),
            invalid: failures.iter().take(SHOWN).cloned().collect(),
            more_invalid: failures.len().saturating_sub(SHOWN),
            commands: commands(study, folder),
        }
    };
    study.folders.iter().enumerate().map(one).collect()
}

fn facts(folder: &Folder) -> Vec<(String, String)> {
    let parts = &folder.parts;
    let count = |status: Status| {
        let with = parts
            .iter()
            .filter(|part| part.outcome.status == status)
            .count();
        (with > 0).then(|| format!("{with} {}", status.name()))
    };
    let all = [
        Status::Ok,
        Status::Timeout,
        Status::Failed,
        Status::Invalid,
        Status::Unsupported,
    ];
    let ended: Vec<String> = all.into_iter().filter_map(count).collect();
    let builds: BTreeSet<&str> = parts.iter().map(|part| part.binary_hash.as_str()).collect();
    let most = parts.iter().map(|part| part.repetition).max().unwrap_or(0);
    let seeds: BTreeSet<&str> = parts.iter().map(|part| part.seed.as_str()).collect();
    let mut seeds: Vec<&str> = seeds.into_iter().collect();
    let number = seeds.len();
    seeds.truncate(6);
    let more = if number > seeds.len() { ", …" } else { "" };
    let wall: f64 = parts.iter().map(|part| part.outcome.wall_s).sum();
    let mut facts = vec![
        ("results".to_owned(), folder.path.display().to_string()),
        ("run by".to_owned(), folder.backend.clone()),
        (
            "builds".to_owned(),
            builds.into_iter().collect::<Vec<_>>().join(", "),
        ),
        ("schema of results".to_owned(), SCHEMA_VERSION.to_string()),
        ("runs".to_owned(), ended.join(", ")),
        ("repetitions".to_owned(), most.to_string()),
        (
            format!("seeds ({number})"),
            format!(
                "{}{more}; all contenders of a repetition have the same",
                seeds.join(", ")
            ),
        ),
        (
            "time of all runs".to_owned(),
            format!("{wall:.1} s, one after the other"),
        ),
    ];
    if folder.missing > 0 {
        let text = format!("{} of the plan", counted(folder.missing, "run"));
        facts.push(("not run yet".to_owned(), text));
    }
    if folder.busy > 0 {
        let text = format!("{} of {}", folder.busy, counted(parts.len(), "run"));
        facts.push(("machine busy with other things during".to_owned(), text));
    }
    if folder.left_out > 0 {
        let text = format!("{} of another version", counted(folder.left_out, "file"));
        facts.push(("left out".to_owned(), text));
    }
    if folder.machine.is_empty() && folder.backend == "sim" {
        let text = "of no influence: time is simulated, the same run has the same result";
        facts.push(("machine".to_owned(), text.to_owned()));
    }
    facts
}

fn commands(study: &Study, folder: &Folder) -> Vec<(String, String)> {
    let path = quoted(&folder.path.join("campaign.toml").display().to_string());
    let verb = if folder.backend == "sim" {
        "sim run".to_owned()
    } else {
        format!("lab run --backend {}", folder.backend)
    };
    let again = quoted(&format!("{}-again", folder.path.display()));
    let old = quoted(&folder.path.display().to_string());
    let wall: f64 = folder.parts.iter().map(|part| part.outcome.wall_s).sum();
    let mut commands = vec![
        (
            format!("all runs again, {wall:.0} s of one core"),
            format!("anabranch {verb} {path} --out {again}"),
        ),
        (
            "whether both agree".to_owned(),
            format!("anabranch lab compare {old} {again}"),
        ),
    ];
    if folder.backend == "sim" && !study.about().is_empty() {
        commands.push((
            "the claims alone".to_owned(),
            format!(
                "anabranch sim papers {}",
                quoted(&study.experiment_pattern())
            ),
        ));
    }
    commands
}
