//! All results of one scenario, and the claims about it.

use crate::load::Folder;
use anabranch_lab::report::CheckRow;
use anabranch_papers::{Check, Data, Experiment, Statement, Verdict, all_experiments};
use std::fmt::Write;
use std::path::Path;

/// All results of one scenario, from several backends or several versions.
#[derive(Debug, Clone)]
pub struct Study {
    /// The scenario's name.
    pub name: String,
    /// Its folders, simulated ones first.
    pub folders: Vec<Folder>,
}

/// Whether a claim agrees with the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// On all backends that can judge it.
    Yes,
    /// Not on at least one backend.
    No,
    /// Reported, but not judged on any backend.
    Told,
    /// Not run on any backend.
    NotRun,
}

impl Agreement {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Told => "told only",
            Self::NotRun => "not run",
        }
    }
}

/// A claim beside the results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Its id, such as `nitk-table1 T2`, or `C1` for a check of the scenario; the key in
    /// `reasons.toml`.
    pub id: String,
    /// The claim.
    pub text: String,
    /// The published figure, or the bound.
    pub published: String,
    /// The result in the simulator.
    pub simulated: Option<String>,
    /// The result over emulated or real links.
    pub emulated: Option<String>,
    /// Whether they agree.
    pub agree: Agreement,
    /// Why not, if someone has found out.
    pub why: String,
}

impl Study {
    /// Groups folders by scenario, in the order in which scenarios first appear.
    pub fn all(folders: Vec<Folder>) -> Vec<Self> {
        let mut studies: Vec<Self> = Vec::new();
        for folder in folders {
            let name = folder.scenario().to_owned();
            match studies.iter_mut().find(|study| study.name == name) {
                Some(study) => study.folders.push(folder),
                None => studies.push(Self {
                    name,
                    folders: vec![folder],
                }),
            }
        }
        for study in &mut studies {
            study.folders.sort_by_key(|folder| folder.backend != "sim");
        }
        studies
    }

    /// A folder's label within its study: its backend, else its own name, else a number.
    pub fn label(&self, at: usize) -> String {
        let folder = &self.folders[at];
        let unique = |name: fn(&Folder) -> String| {
            let mine = name(folder);
            let same = self.folders.iter().filter(|other| name(other) == mine);
            (same.count() == 1).then_some(mine)
        };
        unique(|folder| folder.backend.clone())
            .or_else(|| unique(|folder| file_name(&folder.path)))
            .unwrap_or_else(|| format!("{} {}", folder.backend, at + 1))
    }

    /// The source and subject of each experiment of the papers that uses the scenario.
    pub fn about(&self) -> Vec<(String, String)> {
        self.experiments()
            .iter()
            .map(|experiment| (experiment.source.to_owned(), experiment.about.to_owned()))
            .collect()
    }

    /// The experiment's name for `sim papers`.
    pub(crate) fn experiment_pattern(&self) -> String {
        let experiments = self.experiments();
        let id = experiments
            .first()
            .and_then(|experiment| experiment.ids.first());
        id.map_or_else(|| self.name.clone(), |id| (*id).to_owned())
    }

    fn experiments(&self) -> Vec<Experiment> {
        let all = all_experiments().into_iter();
        all.filter(|experiment| named(experiment, &self.name))
            .collect()
    }

    /// The statements of the papers, then the scenario's own checks.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = Vec::new();
        for (at, folder) in self.folders.iter().enumerate() {
            let data = Data::new(&folder.parts);
            for experiment in self.experiments() {
                for statement in experiment.judge(&data) {
                    self.add(&mut claims, at, of_statement(statement));
                }
            }
            for claim in of_checks(&folder.report.checks) {
                self.add(&mut claims, at, claim);
            }
        }
        for claim in &mut claims {
            let mut known = self
                .folders
                .iter()
                .filter_map(|folder| folder.reasons.get(&claim.id));
            if let Some(reason) = known.next() {
                claim.why.clone_from(reason);
            }
        }
        claims
    }

    /// Adds a folder's result to an existing claim, or adds the claim.
    fn add(&self, claims: &mut Vec<Claim>, at: usize, (mut claim, ours): (Claim, String)) {
        let simulated = self.folders[at].backend == "sim";
        // Folders of the same kind share a cell.
        let kind = |folder: &&Folder| (folder.backend == "sim") == simulated;
        let several = self.folders.iter().filter(kind).count() > 1;
        let ours = if several {
            format!("{}: {ours}", self.label(at))
        } else {
            ours
        };
        let same = |known: &&mut Claim| known.id == claim.id && known.text == claim.text;
        let mut found = claims.iter_mut().find(same);
        let into = match &mut found {
            Some(known) => known,
            None => &mut claim,
        };
        let cell = if simulated {
            &mut into.simulated
        } else {
            &mut into.emulated
        };
        match cell {
            Some(text) => {
                let _ = write!(text, "; {ours}");
            }
            None => *cell = Some(ours),
        }
        match found {
            Some(known) => known.agree = joined(known.agree, claim.agree),
            None => claims.push(claim),
        }
    }
}

/// A single `no` decides. A backend that did not judge or run a claim does not hide the verdict of
/// another: the kernel's multipath TCP, for one, is a rival in real kernels alone.
fn joined(a: Agreement, b: Agreement) -> Agreement {
    use Agreement::{No, NotRun, Told, Yes};
    let surest = [No, Yes, Told, NotRun];
    surest
        .into_iter()
        .find(|one| [a, b].contains(one))
        .unwrap_or(NotRun)
}

fn of_statement(statement: Statement) -> (Claim, String) {
    let claim = Claim {
        id: format!("{} {}", statement.experiment, statement.number),
        text: statement.text,
        published: statement.published,
        simulated: None,
        emulated: None,
        agree: match statement.verdict {
            Verdict::Holds => Agreement::Yes,
            Verdict::Fails => Agreement::No,
            Verdict::Told => Agreement::Told,
            Verdict::Missing => Agreement::NotRun,
        },
        why: String::new(),
    };
    (claim, statement.ours)
}

/// One claim for each check and contender, with the point that misses it by most.
fn of_checks(checks: &[CheckRow]) -> Vec<(Claim, String)> {
    let mut claims: Vec<(Claim, String)> = Vec::new();
    let mut done: Vec<(&str, &str)> = Vec::new();
    for check in checks {
        let key = (check.demand.as_str(), check.contender.as_str());
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let rows = checks
            .iter()
            .filter(|row| (row.demand.as_str(), row.contender.as_str()) == key);
        let rows: Vec<&CheckRow> = rows.collect();
        let missed: Vec<&&CheckRow> = rows.iter().filter(|row| row.holds == Some(false)).collect();
        let shown = missed.first().copied().or(rows.first());
        let percent = |row: &CheckRow| match (row.ratio, row.interval) {
            (Some(ratio), Some(interval)) => format!(
                "{:.1} % ({:.1} to {:.1})",
                ratio * 100.0,
                interval.low * 100.0,
                interval.high * 100.0
            ),
            (Some(ratio), None) => format!("{:.1} %", ratio * 100.0),
            (None, _) => "not measured".to_owned(),
        };
        let mut ours = shown.map_or_else(String::new, |row| percent(row));
        if rows.len() > 1 {
            let place = shown
                .map(|row| crate::sweep::point(&row.swept))
                .unwrap_or_default();
            ours = format!(
                "{} of {} points miss; {ours} at {place}",
                missed.len(),
                rows.len()
            );
        }
        let claim = Claim {
            id: format!("C{}", done.len()),
            text: format!("{}: {}", check.contender, check.demand),
            published: "demanded".to_owned(),
            simulated: None,
            emulated: None,
            agree: if !missed.is_empty() {
                Agreement::No
            } else if rows.iter().any(|row| row.holds.is_none()) {
                Agreement::NotRun
            } else {
                Agreement::Yes
            },
            why: String::new(),
        };
        claims.push((claim, ours));
    }
    claims
}

/// Whether an experiment's scenario file has this name.
fn named(experiment: &Experiment, name: &str) -> bool {
    let Check::Measured { scenario, .. } = experiment.check else {
        return false;
    };
    let line = scenario
        .lines()
        .find_map(|line| line.strip_prefix("name = "));
    line.is_some_and(|line| line.trim().trim_matches('"') == name)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_not_hidden_by_a_world_that_cannot_judge() {
        use Agreement::{No, NotRun, Told, Yes};
        for (one, other, both) in [
            (Told, Yes, Yes),
            (NotRun, Yes, Yes),
            (Told, No, No),
            (NotRun, No, No),
            (Yes, No, No),
            (NotRun, Told, Told),
            (Told, Told, Told),
            (NotRun, NotRun, NotRun),
        ] {
            assert_eq!(joined(one, other), both, "{one:?} and {other:?}");
            assert_eq!(joined(other, one), both, "{other:?} and {one:?}");
        }
    }
}
