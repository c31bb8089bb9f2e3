//! Results: `anabranch._engine.Parts`.

use crate::error::{guarded, raise};
use crate::plan::PyPlan;
use crate::table::PyTable;
use anabranch_lab::report::Report;
use anabranch_lab::results::{
    Part, Status, Store, StoreError, TABLES, common_scenario, comparison, gathered, in_order,
    tables, without_clock,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// A check as Python is told of it.
type Checked = (
    String,
    Vec<(String, String)>,
    String,
    Option<f64>,
    Option<(f64, f64)>,
    Option<bool>,
);

/// The results of runs, in the order of their plan.
#[pyclass(name = "Parts", module = "anabranch._engine", frozen)]
#[derive(Debug, Clone)]
pub(crate) struct PyParts {
    parts: Arc<Vec<Part>>,
    /// Whether tables tell how long runs took on this machine.
    clock: bool,
}

impl PyParts {
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        let parts = Arc::new(parts);
        Self { parts, clock: true }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What tables are made of.
    fn shown(&self) -> Arc<Vec<Part>> {
        if self.clock {
            return Arc::clone(&self.parts);
        }
        Arc::new(without_clock(&self.parts))
    }
}

impl PyParts {
    /// What ran them; the simulator, if none was run.
    fn backend(&self) -> &str {
        self.parts.first().map_or("sim", |part| &part.backend)
    }
}

#[pymethods]
impl PyParts {
    /// The number of runs.
    fn __len__(&self) -> usize {
        self.parts.len()
    }

    /// One of the tables of `docs/results.md`.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<PyTable> {
        let parts = self.shown();
        let made = py.detach(|| {
            tables(parts.iter())
                .into_iter()
                .find(|table| table.name == name)
        });
        if let Some(table) = made {
            return PyTable::new(&table);
        }
        let known: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        let what = format!("there is no table `{name}`: expected {}", known.join(", "));
        Err(raise("ColumnError", what))
    }

    /// Each contender against `baseline`, repetition by repetition, by a column of `runs`.
    fn compare(&self, baseline: &str, metric: &str) -> PyResult<PyTable> {
        guarded(|| {
            let made = comparison(&self.parts, baseline, metric);
            PyTable::new(&made.map_err(|error| raise("ColumnError", error))?)
        })
    }

    /// The ids of the runs.
    #[getter]
    fn run_ids(&self) -> Vec<&str> {
        let parts = self.parts.iter();
        parts.map(|part| part.run_id.as_str()).collect()
    }

    /// How each run that did not end well ended: contender, repetition, status and reason.
    fn failures(&self) -> Vec<(String, u64, String, String)> {
        let failed = self
            .parts
            .iter()
            .filter(|part| part.outcome.status != Status::Ok);
        let told = failed.map(|part| {
            let (status, reason) = (part.outcome.status.name(), part.outcome.reason.clone());
            (
                part.contender.clone(),
                part.repetition,
                status.to_owned(),
                reason,
            )
        });
        told.collect()
    }

    /// These results with nothing in the tables about the time that runs took on this machine: so
    /// equal runs make equal tables.
    fn without_clock(&self) -> Self {
        Self {
            clock: false,
            ..self.clone()
        }
    }

    /// These and others in the order of a plan; runs that it does not have are left out, and of
    /// equal ones the first is taken.
    fn merged(&self, plan: &PyPlan, others: Vec<Bound<'_, Self>>) -> Self {
        let others = others.iter().flat_map(|other| other.get().parts.iter());
        Self {
            parts: Arc::new(in_order(&plan.plan, self.parts.iter().chain(others))),
            clock: self.clock,
        }
    }

    /// What folders have of a plan, made by the same program.
    #[staticmethod]
    fn load(py: Python<'_>, plan: &PyPlan, folders: Vec<PathBuf>) -> PyResult<Self> {
        let (plan, program) = (&plan.plan, &plan.program);
        let parts = py.detach(|| gathered(plan, &folders, program));
        Ok(Self::new(
            parts.map_err(|error| raise("StoreError", error))?,
        ))
    }

    /// Keeps these parts in a folder, and makes no tables.
    fn keep(&self, plan: &PyPlan, folder: PathBuf) -> PyResult<()> {
        let store = plan.store(&folder, self.backend())?;
        let kept = store.keep_files(&plan.plan.files);
        let kept = kept.and_then(|()| self.parts.iter().try_for_each(|part| store.keep(part)));
        kept.map_err(|error| raise("StoreError", error))
    }

    /// What the scenario demands of all runs together: the demand, the swept keys with their
    /// values, the contender, the multiple of the reference that was measured with its interval,
    /// whether it holds.
    fn checks(&self, py: Python<'_>, plan: &PyPlan) -> Vec<Checked> {
        let (plan, parts) = (&plan.plan, &self.parts);
        let report = py.detach(|| Report::of(plan, parts));
        let checks = report.checks.into_iter();
        checks
            .map(|row| {
                let interval = row.interval.map(|interval| (interval.low, interval.high));
                let (demand, swept, contender) = (row.demand, row.swept, row.contender);
                (demand, swept, contender, row.ratio, interval, row.holds)
            })
            .collect()
    }

    /// As bytes that `from_bytes` reads.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = serde_json::to_vec(self.parts.as_ref());
        Ok(PyBytes::new(
            py,
            &bytes.map_err(|error| raise("InternalError", error))?,
        ))
    }

    /// Results of another process.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let parts = serde_json::from_slice(bytes);
        parts
            .map(Self::new)
            .map_err(|error| raise("StoreError", format!("no results: {error}")))
    }

    /// Writes the folder that `anabranch sim run --out` writes: files that the plan names, parts
    /// that it lacks, and tables as CSV and, if wanted, as Parquet. Parts that came from another
    /// process may have no plan.
    fn write(&self, plan: Option<&PyPlan>, folder: PathBuf, parquet: bool) -> PyResult<()> {
        let broken = |error: StoreError| raise("StoreError", error);
        let store = match plan {
            Some(plan) => plan.store(&folder, self.backend())?,
            None => Store::open(&folder, "study", "", self.backend()).map_err(broken)?,
        };
        let files = plan.map_or(&[][..], |plan| &plan.plan.files);
        let written = store
            .complete(files, &self.parts)
            .and_then(|()| store.write_tables(&self.shown(), parquet));
        written.map_err(broken)
    }
}

/// The scenario of which all of these folders hold results: the file that keeps it.
#[pyfunction]
pub(crate) fn scenario_of(folders: Vec<PathBuf>) -> PyResult<PathBuf> {
    let found = common_scenario(&folders);
    found
        .map(|(path, _)| path)
        .map_err(|error| raise("StoreError", error))
}
