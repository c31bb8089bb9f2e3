//! The experiments of the five documents, and whether their statements come out here.
//!
//! Each experiment is a scenario file of this crate or a worked example of the simulator's model. A
//! statement that does not hold is kept as it is, with its figure beside the published one.

#[path = "../aveiro/statements.rs"]
mod aveiro;
#[path = "../aveiro/tunnel.rs"]
mod aveiro_tunnel;
#[path = "../bremen/statements.rs"]
mod bremen;
#[path = "../bth/statements.rs"]
mod bth;
#[path = "../critical/statements.rs"]
mod critical;
#[path = "../nitk/statements.rs"]
mod nitk;
#[path = "../rivals/statements.rs"]
mod rivals;

mod data;
mod expected;
mod preference;
#[cfg(test)]
mod repeat;
#[cfg(test)]
mod tests;

pub use data::Data;
pub use expected::{Expected, table};

use anabranch_lab::plan::{Changes, Plan};
use anabranch_lab::scenario::{Document, Mistake, Value};
use anabranch_schedulers::Names;
use std::sync::Arc;

/// An experiment, or several that share a scenario file.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its names, besides that of its scenario.
    pub ids: &'static [&'static str],
    /// The document and the place in it.
    pub source: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// How its statements are checked.
    pub check: Check,
}

/// How statements are checked.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    /// A worked example without a network.
    Exact(fn(&str) -> Vec<Statement>),
    /// The results of a scenario.
    Measured {
        /// The scenario file.
        scenario: &'static str,
        /// Values swept in a quick run, where they differ.
        quick: &'static [(&'static str, &'static str)],
        /// Values set in a quick run, where they differ.
        quick_set: &'static [(&'static str, &'static str)],
        /// Repetitions in a quick run; the file's if not given.
        quick_runs: Option<u64>,
        /// Judges the results.
        judge: fn(&Data<'_>) -> Vec<Statement>,
    },
}

/// Whether a statement holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The statement holds.
    Holds,
    /// The statement does not hold.
    Fails,
    /// Reported, not judged: the document contradicts itself or says nothing definite.
    Told,
    /// The runs were not possible, or did not end well.
    Missing,
}

impl Verdict {
    /// The verdict in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "DOES NOT HOLD",
            Self::Told => "told only",
            Self::Missing => "not run",
        }
    }
}

/// A statement of a document beside our result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The experiment.
    pub experiment: String,
    /// The statement's number in the document, such as `T1`.
    pub number: String,
    /// What is stated.
    pub text: String,
    /// The published figure.
    pub published: String,
    /// Our figure.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
}

impl Statement {
    /// A statement that holds or does not. If one of its figures was not measured (`-`), its
    /// verdict is missing.
    pub fn new(
        (experiment, number): (&str, &str),
        text: &str,
        published: &str,
        ours: impl Into<String>,
        holds: bool,
    ) -> Self {
        let ours = ours.into();
        let is_measured = ours.split([' ', ',']).all(|figure| figure != "-");
        Self {
            experiment: experiment.to_owned(),
            number: number.to_owned(),
            text: text.to_owned(),
            published: published.to_owned(),
            ours,
            verdict: match (is_measured, holds) {
                (false, _) => Verdict::Missing,
                (true, true) => Verdict::Holds,
                (true, false) => Verdict::Fails,
            },
        }
    }

    /// The statement, reported but not judged.
    pub fn told(mut self) -> Self {
        self.verdict = Verdict::Told;
        self
    }

    /// The statement, judged only if what it is about was measured, else reported.
    pub fn if_measured(self, is_measured: bool) -> Self {
        if is_measured { self } else { self.told() }
    }

    /// The statement with a missing verdict, since not all of its figures were measured.
    fn missing_figures(mut self) -> Self {
        self.verdict = Verdict::Missing;
        self
    }

    /// The statement that an experiment could not be run, and why.
    pub fn missing(experiment: &str, why: &str) -> Self {
        Self {
            experiment: experiment.to_owned(),
            number: "-".to_owned(),
            text: "all statements".to_owned(),
            published: String::new(),
            ours: why.to_owned(),
            verdict: Verdict::Missing,
        }
    }
}

/// All experiments, in the order of the documents.
pub fn experiments() -> Vec<Experiment> {
    let groups = [
        bth::EXPERIMENTS,
        nitk::EXPERIMENTS,
        critical::EXPERIMENTS,
        aveiro::EXPERIMENTS,
        aveiro_tunnel::EXPERIMENTS,
        bremen::EXPERIMENTS,
    ];
    groups.concat()
}

/// All experiments of the documents, and this project's own against the kernel.
pub fn all_experiments() -> Vec<Experiment> {
    let mut all = experiments();
    all.extend(rivals::EXPERIMENTS);
    all
}

impl Experiment {
    /// The name of its scenario, which its results and pages bear; `None` for a worked example.
    pub fn scenario_name(&self) -> Option<String> {
        let Check::Measured { scenario, .. } = self.check else {
            return None;
        };
        let document = Document::parse(&self.name(), scenario).ok()?;
        match &document.root.get("name")?.value {
            Value::Text(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// All its names: that of its scenario, if that is not among its ids, and its ids.
    pub fn names(&self) -> Vec<String> {
        let ids = self.ids.iter().map(|id| (*id).to_owned());
        let scenario = self.scenario_name();
        let scenario = scenario.filter(|name| !self.ids.contains(&name.as_str()));
        scenario.into_iter().chain(ids).collect()
    }

    /// Whether `pattern`, which may contain a `*`, matches one of its names.
    pub fn is_meant_by(&self, pattern: &str) -> bool {
        let fits = |id: &str| match pattern.split_once('*') {
            Some((start, end)) => {
                id.len() >= start.len() + end.len() && id.starts_with(start) && id.ends_with(end)
            }
            None => id == pattern,
        };
        self.ids.iter().any(|id| fits(id)) || self.scenario_name().is_some_and(|name| fits(&name))
    }

    /// Whether its statements compare with the kernel's multipath TCP, not just contenders of its
    /// scenario.
    pub fn is_against_kernel(&self) -> bool {
        let ids = |known: &Self| known.ids == self.ids;
        rivals::EXPERIMENTS.iter().any(ids)
    }

    /// Its name in tables.
    pub fn name(&self) -> String {
        match self.ids {
            [one] => (*one).to_owned(),
            [first, .., last] => format!("{first}..{last}"),
            [] => String::new(),
        }
    }

    /// The runs it needs, with the schedulers and controllers of `names`; `None` for a worked
    /// example.
    ///
    /// # Errors
    /// A [`Mistake`] if the scenario names something this build does not have.
    pub fn plan(&self, full: bool, names: &Arc<Names>) -> Result<Option<Plan>, Mistake> {
        let Check::Measured {
            scenario,
            quick,
            quick_set,
            quick_runs,
            ..
        } = self.check
        else {
            return Ok(None);
        };
        let document = Document::parse(&format!("{}.toml", self.name()), scenario)?;
        let document = document.with_names(Arc::clone(names));
        let owned = |pairs: &[(&str, &str)]| {
            let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            pairs.iter().map(pair).collect()
        };
        let changes = if full {
            Changes::default()
        } else {
            Changes {
                set: owned(quick_set),
                sweep: owned(quick),
                runs: quick_runs,
                seed: None,
            }
        };
        Plan::make(&document, &changes).map(Some)
    }

    /// Checks the statements against the results of its plan.
    pub fn judge(&self, data: &Data<'_>) -> Vec<Statement> {
        let name = self.name();
        match self.check {
            Check::Exact(check) => self.ids.iter().flat_map(|id| check(id)).collect(),
            Check::Measured { judge, .. } => match data.unusable() {
                Some(why) => vec![Statement::missing(&name, &why)],
                None => judge(data),
            },
        }
    }
}

/// The worked examples that the simulator's model checks.
fn worked(id: &str) -> Vec<Statement> {
    let verdicts = anabranch_sim::model::verdicts();
    let mine = verdicts
        .into_iter()
        .filter(|verdict| verdict.experiment == id);
    let statements: Vec<Statement> = mine
        .map(|verdict| {
            let number = (verdict.experiment, verdict.statement);
            let (published, ours) = (&verdict.published, verdict.ours.clone());
            Statement::new(number, verdict.text, published, ours, verdict.holds)
        })
        .collect();
    if statements.is_empty() {
        return vec![Statement::missing(id, "the model has no such example yet")];
    }
    statements
}
