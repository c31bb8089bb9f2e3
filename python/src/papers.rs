//! The experiments of the five papers: their scenarios, and their statements beside results.

use crate::error::{guarded, hint, raise, scenario};
use crate::study::PyParts;
use anabranch_papers::{Data, Experiment, experiments};
use anabranch_schedulers::Names;
use pyo3::prelude::*;
use std::sync::Arc;

fn found(name: &str) -> PyResult<Experiment> {
    let all = experiments();
    if let Some(one) = all.iter().find(|one| one.is_meant_by(name)) {
        return Ok(*one);
    }
    let known: Vec<String> = all.iter().flat_map(Experiment::names).collect();
    let hint = hint(name, known.iter().map(String::as_str));
    let what = format!("no paper has an experiment `{name}`{hint}");
    Err(raise("ScenarioError", what))
}

/// The experiments: names, the place in its paper, and what it is about.
#[pyfunction]
pub(crate) fn papers() -> Vec<(Vec<String>, &'static str, &'static str)> {
    let told = |one: &Experiment| (one.names(), one.source, one.about);
    experiments().iter().map(told).collect()
}

/// The scenario of an experiment as TOML, with its small grid or the whole one; nothing for a
/// worked example.
#[pyfunction]
pub(crate) fn paper_scenario(name: &str, full: bool) -> PyResult<Option<String>> {
    let experiment = found(name)?;
    guarded(|| {
        let plan = experiment.plan(full, &Arc::new(Names::default()));
        Ok(plan
            .map_err(|error| scenario(&error))?
            .map(|plan| plan.expanded))
    })
}

/// The statements of an experiment beside results of its scenario: experiment, number, text, the
/// published figure, ours, and the verdict.
#[pyfunction]
#[allow(
    clippy::type_complexity,
    reason = "a list that Python takes apart at once"
)]
pub(crate) fn paper_statements(
    name: &str,
    parts: &PyParts,
) -> PyResult<Vec<(String, String, String, String, String, &'static str)>> {
    let experiment = found(name)?;
    guarded(|| {
        let statements = experiment.judge(&Data::new(parts.parts()));
        let told = statements.into_iter().map(|one| {
            let verdict = one.verdict.name();
            (
                one.experiment,
                one.number,
                one.text,
                one.published,
                one.ours,
                verdict,
            )
        });
        Ok(told.collect())
    })
}
