//! Runs in network namespaces of this machine, whose hosts are processes of Python: so a scheduler
//! or controller written in it meets real kernels.

use crate::own::{Own, names_of};
use crate::plan::PyPlan;
use crate::trouble::Trouble;
use anabranch_agent::{Local, serve_stdio};
use anabranch_lab::backend::netns::{self, Launch, Netns};
use anabranch_lab::backend::{Backend, Conduct};
use anabranch_lab::hosts::{Host, HostError};
use anabranch_lab::plan::Run;
use anabranch_lab::results::Outcome;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How an agent ends whose scheduler or controller raised an exception.
const RAISED: i32 = 1;

/// Starts agents.
#[derive(Debug)]
struct Agents;

impl Launch for Agents {
    fn launch(&self, name: &str, command: Command) -> Result<Box<dyn Host>, HostError> {
        Ok(Box::new(Local::start(name, command)?))
    }
}

/// Network namespaces, with what Python knows of its plan.
#[derive(Debug)]
pub(crate) struct Laboratory {
    netns: Netns,
    plan: Py<PyPlan>,
}

impl Laboratory {
    /// `agent` is the command line of a host; `folder` gets what is kept beside results.
    pub(crate) fn new(
        plan: Py<PyPlan>,
        agent: Vec<String>,
        folder: Option<&Path>,
        halt: &Arc<AtomicBool>,
    ) -> Self {
        let conduct = Conduct {
            qlog: folder.map(|folder| folder.join("qlog")),
            notes_file: folder.map(|folder| folder.join("notes.jsonl")),
            abort: Arc::clone(halt),
        };
        let netns = Netns::new(agent, Box::new(Agents), conduct);
        Self { netns, plan }
    }
}

impl Backend for Laboratory {
    fn name(&self) -> &'static str {
        self.netns.name()
    }

    fn program(&self) -> String {
        self.plan.get().program.clone()
    }

    fn run(&self, run: &Run) -> Outcome {
        self.netns.run(run)
    }

    fn was_broken_off(&self) -> bool {
        self.netns.was_broken_off()
    }
}

/// What this machine lacks for network namespaces, and what to do about it.
#[pyfunction]
pub(crate) fn laboratory_lacks() -> Option<(String, String)> {
    let mut parts = netns::parts().into_iter();
    let missing = parts.find(|part| part.essential && !part.ok)?;
    let what = format!("{}: {}", missing.name, missing.found);
    Some((what, missing.remedy.to_string()))
}

/// Removes what laboratories that were killed left behind; returns the names of it.
#[pyfunction]
pub(crate) fn clean_laboratories(py: Python<'_>) -> Vec<String> {
    py.detach(netns::clean)
}

/// Acts as one host: requests on standard input, answers on standard output. The first exception of
/// a scheduler or controller goes to the file `errors` and ends the process, so that the run fails.
#[pyfunction]
pub(crate) fn serve_agent(py: Python<'_>, own: Vec<Own<'_>>, errors: PathBuf) -> PyResult<()> {
    let trouble = Arc::new(Trouble::of_a_transfer());
    let names = names_of(&own, &trouble)?;
    let runtime = pyo3_async_runtimes::tokio::get_runtime();
    let raised = Arc::clone(&trouble);
    runtime.spawn(async move {
        raised.raised().await;
        // It has a line of its own on standard error, which the laboratory keeps.
        let text = raised.traceback();
        eprintln!("{text}");
        // If it cannot be kept, the run still fails.
        let _ = std::fs::write(errors, text);
        exit(RAISED);
    });
    py.detach(|| serve_stdio(names)).map_err(Into::into)
}
