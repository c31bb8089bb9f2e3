//! A scenario and contenders as runs: `anabranch._engine.Plan`.

use crate::document::PyDocument;
use crate::error::{guarded, raise, scenario};
use crate::own::{Own, OwnNames, names_of};
use crate::tree;
use crate::trouble::Trouble;
use anabranch_lab::plan::{Changes, Plan, Run, Shard};
use anabranch_lab::results::Store;
use anabranch_lab::scenario::{Document, Entry, KINDS, Node, Place, Value};
use anabranch_schedulers::Names;
use pyo3::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// All runs of a scenario, with the schedulers and controllers that they name.
#[pyclass(name = "Plan", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyPlan {
    pub(crate) plan: Arc<Plan>,
    pub(crate) names: Arc<Names>,
    pub(crate) own: OwnNames,
    pub(crate) trouble: Arc<Trouble>,
    /// What runs it, as a hash.
    pub(crate) program: String,
}

impl PyPlan {
    /// Whether Python is asked in this run.
    pub(crate) fn is_own(&self, run: &Run) -> bool {
        self.own.take_part_in(run)
    }

    /// The folder that keeps its results, those of this backend.
    pub(crate) fn store(&self, folder: &Path, backend: &str) -> PyResult<Store> {
        store_of(&self.plan, folder, backend)
    }

    fn with_plan(&self, plan: Plan) -> Self {
        Self {
            plan: Arc::new(plan),
            names: Arc::clone(&self.names),
            own: self.own.clone(),
            trouble: Arc::clone(&self.trouble),
            program: self.program.clone(),
        }
    }
}

#[pymethods]
impl PyPlan {
    /// `contenders` replaces those of the scenario, each a name and what it changes of
    /// `[transport]`; `sweep` adds to those of the scenario; `own` are schedulers and controllers
    /// that are written in Python.
    #[new]
    #[pyo3(signature = (
        document, program, *, contenders=None, sweep=Vec::new(), own=Vec::new(), runs=None,
        seed=None, singles=None
    ))]
    #[allow(
        clippy::too_many_arguments,
        reason = "in Python all but two have names"
    )]
    fn new(
        document: &PyDocument,
        program: String,
        contenders: Option<Vec<(String, Bound<'_, PyAny>)>>,
        sweep: Vec<(String, Bound<'_, PyAny>)>,
        own: Vec<Own<'_>>,
        runs: Option<u64>,
        seed: Option<u64>,
        singles: Option<bool>,
    ) -> PyResult<Self> {
        let trouble = Arc::new(Trouble::default());
        let names = names_of(&own, &trouble)?;
        let mut document = document.0.clone().with_names(Arc::clone(&names));
        if let Some(contenders) = contenders {
            replace_contenders(&mut document, contenders)?;
        }
        if let Some(singles) = singles {
            document
                .root
                .insert("singles", Node::given(Value::Flag(singles)));
        }
        add_sweep(&mut document, sweep)?;
        let changes = Changes {
            runs,
            seed,
            ..Changes::default()
        };
        let plan = guarded(|| Plan::make(&document, &changes).map_err(|error| scenario(&error)))?;
        Ok(Self {
            plan: Arc::new(plan),
            names,
            own: OwnNames::of(&own),
            trouble,
            program,
        })
    }

    /// The number of runs.
    fn __len__(&self) -> usize {
        self.plan.runs.len()
    }

    /// The scenario's name.
    #[getter]
    fn name(&self) -> &str {
        &self.plan.name
    }

    /// The scenario with all changes, as TOML.
    #[getter]
    fn expanded(&self) -> &str {
        &self.plan.expanded
    }

    /// The ids of the runs, in their order.
    #[getter]
    fn run_ids(&self) -> Vec<&str> {
        self.plan.runs.iter().map(|run| run.id.as_str()).collect()
    }

    /// This plan without these runs.
    fn without(&self, run_ids: Vec<String>) -> Self {
        self.with_plan(self.plan.without(&run_ids.into_iter().collect()))
    }

    /// The part of the runs with this number, from 1, of so many parts. All contenders of a
    /// repetition are in the same part.
    fn shard(&self, number: usize, of: usize) -> PyResult<Self> {
        let shard = Shard::new(number, of).map_err(|what| raise("ScenarioError", what))?;
        Ok(self.with_plan(self.plan.shard(shard)))
    }
}

/// The folder that keeps the results of a plan, those of this backend.
pub(crate) fn store_of(plan: &Plan, folder: &Path, backend: &str) -> PyResult<Store> {
    let opened = Store::open(folder, &plan.name, &plan.expanded, backend);
    opened.map_err(|error| raise("StoreError", error))
}

/// The kinds of contenders that are not carried by a scheduler.
#[pyfunction]
pub(crate) fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|(name, _)| *name).collect()
}

fn replace_contenders(
    document: &mut Document,
    contenders: Vec<(String, Bound<'_, PyAny>)>,
) -> PyResult<()> {
    let mut labels = BTreeSet::new();
    let mut entries = Vec::with_capacity(contenders.len());
    for (label, changes) in contenders {
        if !labels.insert(label.clone()) {
            let what = format!(
                "two contenders are called `{label}`: give them names of their own, as in \
                 contenders={{\"first\": ..., \"second\": ...}}"
            );
            return Err(raise("ScenarioError", what));
        }
        entries.push(Entry {
            place: Place::Given,
            node: tree::node(&changes, &format!("contenders.{label}"))?,
            key: label,
        });
    }
    document
        .root
        .insert("contenders", Node::given(Value::Table(entries)));
    Ok(())
}

fn add_sweep(document: &mut Document, sweep: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
    if sweep.is_empty() {
        return Ok(());
    }
    let known = document.root.remove("sweep");
    let mut table = known.unwrap_or_else(|| Node::given(Value::Table(Vec::new())));
    for (key, values) in sweep {
        let node = tree::node(&values, &format!("sweep.{key}"))?;
        table.insert(&key, node);
    }
    document.root.insert("sweep", table);
    Ok(())
}
