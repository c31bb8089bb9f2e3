//! Schedulers and congestion controllers written in Python, by name.

use crate::error::raise;
use crate::trouble::Trouble;
use crate::{controller, scheduler};
use anabranch_lab::plan::Run;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_schedulers::Names;
use anabranch_schedulers::table::{Feature, Measure, Table};
use pyo3::prelude::*;
use std::sync::Arc;

/// What `anabranch.scheduler.Own` says of one of them.
#[derive(FromPyObject)]
pub(crate) struct Own<'py> {
    name: String,
    /// "scheduler", "controller", or "table": a scheduler that is a table.
    kind: String,
    /// Makes one when it is called; of a table, the table.
    make: Bound<'py, PyAny>,
    /// What has its attributes: the class, or the object.
    about: Bound<'py, PyAny>,
}

/// What is built in, and these.
pub(crate) fn names_of(own: &[Own<'_>], trouble: &Arc<Trouble>) -> PyResult<Arc<Names>> {
    let mut names = Names::default();
    for one in own {
        if one.kind == "controller" {
            let made = controller::factory(&one.name, &one.make, trouble);
            names.controllers.register_factory(made);
        } else {
            names.schedulers.register_factory(one.scheduler(trouble)?);
        }
    }
    Ok(Arc::new(names))
}

impl Own<'_> {
    /// A scheduler for each connection.
    pub(crate) fn scheduler(&self, trouble: &Arc<Trouble>) -> PyResult<SchedulerFactory> {
        match self.kind.as_str() {
            "scheduler" => scheduler::factory(&self.name, &self.make, &self.about, trouble),
            "table" => Ok(table(&self.make)?.scheduler(self.name.as_str())),
            kind => Err(raise("InternalError", format!("there is no kind {kind}"))),
        }
    }
}

/// The table of `anabranch.policy.PolicyTable`.
fn table(told: &Bound<'_, PyAny>) -> PyResult<Table> {
    type Told = (String, u32, Vec<f64>);
    let features = told.getattr("features")?.extract::<Vec<Told>>()?;
    let features = features.into_iter().map(|(name, path, edges)| {
        let measure = Measure::named(&name).ok_or_else(|| {
            let known = Measure::ALL.map(|(_, name)| name);
            let what = format!("there is no feature `{name}`; known: {}", known.join(", "));
            raise("UsageError", what)
        })?;
        Ok(Feature {
            measure,
            path,
            edges,
        })
    });
    let features = features.collect::<PyResult<Vec<_>>>()?;
    // What no table can have is refused with the rest.
    let small = |number: i64| u8::try_from(number).unwrap_or(u8::MAX);
    let actions = told.getattr("actions")?.extract::<Vec<i64>>()?;
    let actions = actions.into_iter().map(small).collect();
    let paths = match told.getattr("paths")?.extract::<i64>()? {
        paths @ 1..=16 => small(paths),
        paths => {
            return Err(raise(
                "UsageError",
                format!("paths={paths}: expected from 1 to 16"),
            ));
        }
    };
    Table::new(features, actions, paths).map_err(|error| raise("UsageError", error))
}

/// Whether a policy can be a table; an error that says why not.
#[pyfunction]
pub(crate) fn check_table(told: &Bound<'_, PyAny>) -> PyResult<()> {
    table(told).map(drop)
}

/// The names of those that are written in Python.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnNames {
    schedulers: Vec<String>,
    controllers: Vec<String>,
}

impl OwnNames {
    pub(crate) fn of(own: &[Own<'_>]) -> Self {
        let named = |kind: &str| {
            let of_kind = own.iter().filter(|one| one.kind == kind);
            of_kind.map(|one| one.name.clone()).collect()
        };
        Self {
            schedulers: named("scheduler"),
            controllers: named("controller"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.schedulers.is_empty() && self.controllers.is_empty()
    }

    /// Whether Python is asked in this run.
    pub(crate) fn take_part_in(&self, run: &Run) -> bool {
        let transport = &run.scenario.transport;
        let scheduler = transport.scheduler.as_ref().is_some_and(|spec| {
            let mut parts = spec.name.split('+');
            parts.any(|part| self.schedulers.iter().any(|own| own == part))
        });
        let congestion = transport.congestion.as_ref();
        scheduler || congestion.is_some_and(|spec| self.controllers.contains(&spec.name))
    }
}
