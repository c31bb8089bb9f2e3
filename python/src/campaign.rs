//! Runs under way: `anabranch._engine.Campaign`.
//!
//! They take place in threads of their own, without the interpreter unless a scheduler written in
//! Python decides. Whoever started them waits in short steps, so that Python hears signals.

use crate::error::{caught, raise};
use crate::laboratory::Laboratory;
use crate::plan::{PyPlan, store_of};
use crate::study::PyParts;
use crate::trouble::Raised;
use anabranch_lab::backend::Backend;
use anabranch_lab::backend::sim::Sim;
use anabranch_lab::campaign::{Campaign, Order, Progress};
use anabranch_lab::plan::{Plan, Run};
use anabranch_lab::results::{Outcome, Part, Status, Store, StoreError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The simulator, which lets Python decide where it must.
#[derive(Debug)]
struct Simulator {
    sim: Sim,
    plan: Py<PyPlan>,
    shared: Arc<Shared>,
    /// Whether what schedulers raise becomes a row of results, and the others go on.
    keeps_errors: bool,
}

impl Backend for Simulator {
    fn name(&self) -> &'static str {
        self.sim.name()
    }

    fn program(&self) -> String {
        self.plan.get().program.clone()
    }

    fn takes_turns(&self, run: &Run) -> bool {
        self.plan.get().is_own(run)
    }

    fn run(&self, run: &Run) -> Outcome {
        let plan = self.plan.get();
        if !plan.is_own(run) {
            return self.sim.run(run);
        }
        // Attached for the whole run: to be asked is then a call like any other.
        let mut outcome = Python::attach(|py| {
            self.shared.name_thread(py);
            let outcome = self.sim.run(run);
            self.shared.thread.store(0, Ordering::Relaxed);
            outcome
        });
        if let Some(raised) = plan.trouble.take() {
            outcome.status = Status::Failed;
            outcome.reason = raised.to_string();
            if !self.keeps_errors {
                self.shared.fail(run, raised);
            }
        }
        outcome
    }

    fn was_broken_off(&self) -> bool {
        self.sim.was_broken_off()
    }
}

/// What ended a campaign early.
#[derive(Debug)]
struct Failure {
    raised: Raised,
    contender: String,
    repetition: u64,
    seed: u64,
}

#[derive(Debug, Default)]
struct State {
    parts: BTreeMap<usize, Part>,
    failure: Option<Failure>,
    /// How it ended, if badly with the class of the exception and its words; nothing while it
    /// goes on.
    ended: Option<Result<(), (&'static str, String)>>,
}

/// What the threads of a campaign and its owner share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Ends runs under way, and begins no other.
    halt: Arc<AtomicBool>,
    /// Python's number of the thread that is being asked; 0 for none.
    thread: AtomicU64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name_thread(&self, py: Python<'_>) {
        let number = py
            .import("threading")
            .and_then(|module| module.call_method0("get_ident"));
        let number = number.and_then(|number| number.extract());
        self.thread.store(number.unwrap_or(0), Ordering::Relaxed);
    }

    fn stop(&self) {
        self.halt.store(true, Ordering::Relaxed);
    }

    fn fail(&self, run: &Run, raised: Raised) {
        self.state().failure.get_or_insert(Failure {
            raised,
            contender: run.contender.clone(),
            repetition: run.repetition,
            seed: run.seed,
        });
        self.stop();
    }

    fn end(&self, how: Result<(), (&'static str, String)>) {
        self.state().ended = Some(how);
        self.changed.notify_all();
    }
}

/// Runs of a plan, some done and some not.
#[pyclass(name = "Campaign", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyCampaign(Arc<Shared>);

#[pymethods]
impl PyCampaign {
    /// Begins. `jobs` runs take place at a time, 0 for one per core; `folder` keeps results and
    /// those of before. With the command line of an `agent`, they take place in network namespaces,
    /// one at a time.
    #[staticmethod]
    #[pyo3(signature = (plan, *, jobs=0, folder=None, keeps_errors=false, agent=None))]
    fn start(
        plan: Py<PyPlan>,
        jobs: usize,
        folder: Option<PathBuf>,
        keeps_errors: bool,
        agent: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let shared = Arc::new(Shared::default());
        let made = Arc::clone(&plan.get().plan);
        let names = Arc::clone(&plan.get().names);
        let (backend, order): (Box<dyn Backend>, Order) = if let Some(agent) = agent {
            let laboratory = Laboratory::new(plan, agent, folder.as_deref(), &shared.halt);
            let (seed, warm_up) = (1, false);
            (Box::new(laboratory), Order::Blocks { seed, warm_up })
        } else {
            let mut sim = Sim::new(names).halt(Arc::clone(&shared.halt));
            if let Some(folder) = &folder {
                sim = sim.qlog(folder.join("qlog"));
            }
            let simulator = Simulator {
                sim,
                plan,
                shared: Arc::clone(&shared),
                keeps_errors,
            };
            (Box::new(simulator), Order::Plan)
        };
        let store = folder.map(|folder| store_of(&made, &folder, backend.name()));
        let store = store.transpose()?;
        let told = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("anabranch-runs".to_owned());
        let begun = thread.spawn(move || {
            let how = (store.as_ref(), jobs, order);
            let ended = match caught(|| carry_out(&made, backend.as_ref(), &told, how)) {
                Ok(done) => done.map_err(|error| ("StoreError", error.to_string())),
                Err(fault) => Err(("InternalError", fault)),
            };
            told.end(ended);
        });
        begun.map_err(|error| raise("RunError", format!("no thread can be started: {error}")))?;
        Ok(Self(shared))
    }

    /// Waits for the end, at most so many seconds; returns whether it was reached.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        py.detach(|| {
            let until = Instant::now() + limit;
            let mut state = self.0.state();
            while state.ended.is_none() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                let waited = self.0.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            true
        })
    }

    /// Ends runs under way, and begins no other.
    fn stop(&self) {
        self.0.stop();
    }

    /// The number of runs done.
    #[getter]
    fn done(&self) -> usize {
        self.0.state().parts.len()
    }

    /// Python's number of the thread in which a scheduler decides; 0 for none.
    #[getter]
    fn thread(&self) -> u64 {
        self.0.thread.load(Ordering::Relaxed)
    }

    /// What a scheduler raised, with the virtual time in seconds, the contender, the repetition
    /// and the seed. An error of the results' folder and a fault of the engine are raised here.
    #[allow(
        clippy::type_complexity,
        reason = "a tuple that Python takes apart at once"
    )]
    fn failure(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>, f64, String, u64, u64)>> {
        let state = self.0.state();
        if let Some(failure) = &state.failure {
            let at = failure.raised.seconds();
            let error = failure.raised.error.clone_ref(py).into_value(py).into_any();
            let (who, which) = (failure.contender.clone(), failure.repetition);
            return Ok(Some((error, at, who, which, failure.seed)));
        }
        match &state.ended {
            Some(Err((class, what))) => Err(raise(class, what)),
            _ => Ok(None),
        }
    }

    /// What is done, in the order of the plan.
    fn parts(&self) -> PyParts {
        PyParts::new(self.0.state().parts.values().cloned().collect())
    }
}

fn carry_out(
    plan: &Plan,
    backend: &dyn Backend,
    shared: &Shared,
    (store, jobs, order): (Option<&Store>, usize, Order),
) -> Result<(), StoreError> {
    let ids = plan.runs.iter().enumerate();
    let places: BTreeMap<&str, usize> = ids.map(|(at, run)| (run.id.as_str(), at)).collect();
    let progress = |progress: Progress<'_>| {
        let (Progress::Found(part) | Progress::Ended(part)) = progress;
        if let Some(at) = places.get(part.run_id.as_str()) {
            shared.state().parts.insert(*at, part.clone());
        }
    };
    let campaign = Campaign {
        store,
        jobs,
        stop: Some(&shared.halt),
        order,
    };
    campaign.run(plan, backend, &progress).map(drop)
}
