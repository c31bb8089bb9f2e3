//! Reads folders of results.

use crate::error::ReportError;
use anabranch_lab::backend::Note;
use anabranch_lab::plan::{Changes, Plan, Run};
use anabranch_lab::report::Report;
use anabranch_lab::results::{Part, SCHEMA_VERSION};
use anabranch_lab::scenario::{Document, Scenario};
use anabranch_schedulers::Names;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HINT: &str = "give folders that `--out` of a run made (docs/results.md)";

/// The results of one campaign.
#[derive(Debug, Clone)]
pub struct Folder {
    /// Its path.
    pub path: PathBuf,
    /// The backend that ran it: `sim` and so on.
    pub backend: String,
    /// The runs; all contenders of a repetition are adjacent.
    pub plan: Plan,
    /// Their results, in the same order.
    pub parts: Vec<Part>,
    /// A summary of the results.
    pub report: Report,
    /// Runs of the scenario without a result.
    pub missing: usize,
    /// Parts that belong to another version of the scenario, or cannot be read.
    pub left_out: usize,
    /// Runs during which the machine was busy with other things (`notes.jsonl`).
    pub busy: usize,
    /// Facts about the machine (`machine.json`) in words, if they were recorded.
    pub machine: Vec<(String, String)>,
    /// `machine.json` as it was recorded; empty if it was not.
    pub machine_json: String,
    /// The user's reasons for statements that do not hold (`reasons.toml`).
    pub reasons: BTreeMap<String, String>,
}

impl Folder {
    /// The scenario's name.
    pub fn scenario(&self) -> &str {
        &self.plan.name
    }

    /// Reads `path`, or all folders of results in it. `names` are the schedulers and controllers
    /// that their scenarios may name.
    ///
    /// # Errors
    /// [`ReportError::Input`] if there are no results, or none that can be understood.
    pub fn load_all(path: &Path, names: &Arc<Names>) -> Result<Vec<Self>, ReportError> {
        if path.join("campaign.toml").is_file() {
            return Ok(vec![Self::load(path, names)?]);
        }
        let entries = fs::read_dir(path)
            .map_err(|error| ReportError::input(path, error.to_string(), HINT))?;
        let mut inner: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("campaign.toml").is_file())
            .collect();
        inner.sort();
        if inner.is_empty() {
            let what = "holds no results: expected a file campaign.toml in it or one folder below";
            return Err(ReportError::input(path, what, HINT));
        }
        let inner = inner.iter();
        inner.map(|path| Self::load(path, names)).collect()
    }

    /// Reads one folder with `campaign.toml` and `parts`. `names` are as in [`Self::load_all`].
    ///
    /// # Errors
    /// [`ReportError::Input`] if there are no results, or none that can be understood.
    pub fn load(path: &Path, names: &Arc<Names>) -> Result<Self, ReportError> {
        let campaign = path.join("campaign.toml");
        let text = fs::read_to_string(&campaign)
            .map_err(|error| ReportError::input(&campaign, error.to_string(), HINT))?;
        let mistake = |what: String| {
            let hint = "run the scenario again with this version; the files it names are \
                        looked for in campaign.files and beside campaign.toml";
            ReportError::input(&campaign, what, hint)
        };
        let document = Document::parse(&campaign.display().to_string(), &text)
            .map_err(|error| mistake(error.to_string()))?;
        let document = document.with_names(Arc::clone(names));
        let plan = Plan::make(&document, &Changes::default())
            .map_err(|error| mistake(error.to_string()))?;
        let (parts, unreadable) = read_parts(path)?;
        let (plan, parts, foreign) = matched(plan, parts);
        if parts.is_empty() {
            let what = format!(
                "holds no run of its scenario ({} files cannot be used)",
                unreadable + foreign
            );
            let hint = "run the scenario again: results of another version are not mixed";
            return Err(ReportError::input(&path.join("parts"), what, hint));
        }
        let (machine, machine_json) = machine(path)?;
        let known: BTreeSet<&str> = parts.iter().map(|part| part.run_id.as_str()).collect();
        let missing = plan
            .runs
            .iter()
            .filter(|run| !known.contains(run.id.as_str()));
        Ok(Self {
            path: path.to_owned(),
            backend: parts[0].backend.clone(),
            report: Report::of(&plan, &parts),
            missing: missing.count(),
            left_out: unreadable + foreign,
            busy: busy(path)
                .iter()
                .filter(|id| known.contains(id.as_str()))
                .count(),
            machine,
            machine_json,
            reasons: reasons(path)?,
            plan,
            parts,
        })
    }

    /// The scenario of the runs of a contender at a point.
    pub(crate) fn scenario_of(&self, part: &Part) -> Option<&Arc<Scenario>> {
        let run = self.plan.runs.iter().find(|run| run.id == part.run_id)?;
        Some(&run.scenario)
    }
}

/// The ids of runs that other work on the machine disturbed. If a run was repeated, its last
/// attempt counts.
fn busy(path: &Path) -> BTreeSet<String> {
    let notes = Note::read_all(&path.join("notes.jsonl"));
    let busy = notes.into_iter().filter(|(_, note)| note.is_disturbed());
    busy.map(|(id, _)| id).collect()
}

/// The parts that belong to the last campaign, and how many files could not be read.
fn read_parts(path: &Path) -> Result<(Vec<Part>, usize), ReportError> {
    let folder = path.join("parts");
    let entries = fs::read_dir(&folder)
        .map_err(|error| ReportError::input(&folder, error.to_string(), HINT))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    let listed = listed(path);
    let (mut parts, mut unreadable) = (Vec::new(), 0);
    for file in files {
        let id = file.file_stem().and_then(|stem| stem.to_str());
        if let (Some(listed), Some(id)) = (&listed, id)
            && !listed.contains(id)
        {
            // A run with earlier settings, which is not in the tables either.
            continue;
        }
        let part = fs::read_to_string(&file).ok();
        let part: Option<Part> = part.and_then(|text| serde_json::from_str(&text).ok());
        match part.filter(|part| part.schema == SCHEMA_VERSION) {
            Some(part) => parts.push(part),
            None => unreadable += 1,
        }
    }
    Ok((parts, unreadable))
}

/// The ids in `runs.csv`, which lists the runs of the last campaign.
fn listed(path: &Path) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(path.join("runs.csv")).ok()?;
    let id = |line: &str| {
        let (id, _) = line.split_once(',')?;
        let hexadecimal = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        hexadecimal.then(|| id.to_owned())
    };
    let ids: BTreeSet<String> = text.lines().filter_map(id).collect();
    (!ids.is_empty()).then_some(ids)
}

/// A point and a contender.
type Kind<'a> = (&'a [(String, String)], &'a str);

/// Sorts parts in the order of the plan, and replaces the plan's runs with those that took place:
/// seed and number of repetitions may have been given on the command line.
fn matched(mut plan: Plan, mut parts: Vec<Part>) -> (Plan, Vec<Part>, usize) {
    let kinds: Vec<Run> = plan
        .runs
        .iter()
        .filter(|run| run.repetition == 1)
        .cloned()
        .collect();
    let mut order: BTreeMap<Kind<'_>, usize> = BTreeMap::new();
    let mut points: BTreeMap<&[(String, String)], usize> = BTreeMap::new();
    for (at, run) in kinds.iter().enumerate() {
        order.insert((run.swept.as_slice(), run.contender.as_str()), at);
        let next = points.len();
        points.entry(run.swept.as_slice()).or_insert(next);
    }
    let all = parts.len();
    let place = |part: &Part| {
        order
            .get(&(part.swept.as_slice(), part.contender.as_str()))
            .copied()
    };
    parts.retain(|part| place(part).is_some());
    parts.sort_by_cached_key(|part| {
        let point = points.get(part.swept.as_slice()).copied();
        (point, part.repetition, place(part))
    });
    let foreign = all - parts.len();
    let as_planned: BTreeSet<&str> = plan.runs.iter().map(|run| run.id.as_str()).collect();
    if !parts
        .iter()
        .all(|part| as_planned.contains(part.run_id.as_str()))
    {
        let run = |part: &Part| {
            let kind = &kinds[place(part)?];
            Some(Run {
                id: part.run_id.clone(),
                repetition: part.repetition,
                seed: part.seed.parse().unwrap_or(0),
                ..kind.clone()
            })
        };
        let runs = parts.iter().filter_map(run).collect();
        plan.runs = runs;
    }
    (plan, parts, foreign)
}

/// The facts about the machine in words, and as recorded.
fn machine(path: &Path) -> Result<(Vec<(String, String)>, String), ReportError> {
    let file = path.join("machine.json");
    let Ok(text) = fs::read_to_string(&file) else {
        return Ok((Vec::new(), String::new()));
    };
    let wrong = |what: String| ReportError::input(&file, what, "expected a JSON object");
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(object) = value.as_object() else {
        return Err(wrong("is no JSON object".to_owned()));
    };
    Ok((crate::machine::facts(object), text))
}

/// The reasons beside the results, or in the folder above, which several experiments share.
fn reasons(path: &Path) -> Result<BTreeMap<String, String>, ReportError> {
    let places = [Some(path), path.parent()].into_iter().flatten();
    let mut files = places.map(|place| place.join("reasons.toml"));
    let Some(file) = files.find(|file| file.is_file()) else {
        return Ok(BTreeMap::new());
    };
    let text = fs::read_to_string(&file)
        .map_err(|error| ReportError::input(&file, error.to_string(), HINT))?;
    let hint = "expected lines such as: \"nitk-table1 T1\" = \"why it does not hold\"";
    let wrong = |what: String| ReportError::input(&file, what, hint);
    let table: toml::Table = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let mut reasons = BTreeMap::new();
    for (key, value) in table {
        let Some(reason) = value.as_str() else {
            return Err(wrong(format!("the value of `{key}` is no text")));
        };
        reasons.insert(key, reason.to_owned());
    }
    Ok(reasons)
}
