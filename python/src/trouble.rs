//! Exceptions of schedulers and controllers that are written in Python.
//!
//! In the simulator an exception ends the run at once, by an unwinding that is caught there as any
//! other. Over real networks a thread serves other connections too: the engine goes on, and whoever
//! waits for the connection ends it.

use crate::error::raise;
use crate::turn::Turn;
use anabranch_proto::time::Instant;
use pyo3::prelude::*;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Whether the program ends: then nothing is asked about connections that are still there.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// The program ends: schedulers and controllers of connections are asked nothing more.
#[pyfunction]
pub(crate) fn ask_no_more() {
    IS_OVER.store(true, Ordering::Relaxed);
}

/// What code in Python raised, and when.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) error: PyErr,
    pub(crate) at: Instant,
}

impl Raised {
    /// When, in seconds of virtual time.
    pub(crate) fn seconds(&self) -> f64 {
        self.at.as_nanos() as f64 / 1e9
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.seconds();
        write!(f, "at {at:.6} s of virtual time: {}", self.error)
    }
}

/// Where exceptions of the schedulers and controllers of one plan or one transfer are kept; the
/// first of a run counts.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    first: Mutex<Option<Raised>>,
    /// Whether the engine goes on without them until whoever hears of it has ended the connection:
    /// schedulers then hold, and windows stay as they are. Otherwise the run ends by an unwinding.
    goes_on: bool,
    told: watch::Sender<bool>,
}

impl Trouble {
    /// For connections over real networks, whose threads serve others too.
    pub(crate) fn of_a_transfer() -> Self {
        Self {
            goes_on: true,
            ..Self::default()
        }
    }

    fn first(&self) -> MutexGuard<'_, Option<Raised>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, raised: Raised) {
        self.first().get_or_insert(raised);
        self.told.send_replace(true);
    }

    pub(crate) fn take(&self) -> Option<Raised> {
        self.first().take()
    }

    /// Whether one raised an exception.
    pub(crate) fn is_raised(&self) -> bool {
        self.first().is_some()
    }

    /// Waits until one does.
    pub(crate) async fn raised(&self) {
        // It cannot fail: the sender is here.
        let _ = self.told.subscribe().wait_for(|told| *told).await;
    }

    /// The `SchedulerError` for it.
    pub(crate) fn error(&self) -> PyErr {
        Python::attach(|py| {
            let cause = self.first().as_ref().map(|it| it.error.clone_ref(py));
            let Some(cause) = cause else {
                return raise("InternalError", "nothing was raised");
            };
            let what = format!("a scheduler or controller raised {cause}");
            let error = raise("SchedulerError", what);
            error.set_cause(py, Some(cause));
            error
        })
    }

    /// What was raised, as Python would print it.
    pub(crate) fn traceback(&self) -> String {
        Python::attach(|py| {
            let first = self.first();
            let Some(raised) = first.as_ref() else {
                return String::new();
            };
            let error = &raised.error;
            let told = (error.get_type(py), error.value(py), error.traceback(py));
            let shown = py
                .import("traceback")
                .and_then(|module| module.call_method1("format_exception", told))
                .and_then(|lines| lines.extract::<Vec<String>>());
            shown.map_or_else(|_| raised.to_string(), |lines| lines.concat())
        })
    }

    /// Calls into Python. If that raises, the run ends, or nothing is called any more.
    pub(crate) fn call<T>(
        &self,
        now: Instant,
        work: impl FnOnce(Python<'_>) -> PyResult<T>,
    ) -> Option<T> {
        if self.goes_on && (self.is_raised() || IS_OVER.load(Ordering::Relaxed)) {
            return None;
        }
        // Nothing is asked of an interpreter that ends.
        let done = Python::try_attach(|py| {
            let _turn = self.goes_on.then(|| Turn::begin(py)).transpose()?;
            work(py)
        });
        match done? {
            Ok(done) => Some(done),
            Err(error) => {
                self.keep(Raised { error, at: now });
                if self.goes_on {
                    return None;
                }
                resume_unwind(Box::new("code in Python raised an exception"))
            }
        }
    }
}
