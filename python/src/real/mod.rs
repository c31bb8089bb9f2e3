//! Files and connections over real networks, for asyncio.
//!
//! All of it takes place in the threads of one runtime of tokio. What a caller awaits is a future
//! of asyncio's that ends with the one of Rust. Whoever calls into a connection lets go of the
//! interpreter first: the engine's lock may be held by a thread that waits for the interpreter,
//! because a scheduler written in Python decides there.

pub(crate) mod connection;
pub(crate) mod files;
pub(crate) mod stream;

use crate::error::{fault, raise, raise_with_hint};
use crate::own::{Own, names_of};
use crate::trouble::Trouble;
use anabranch_cli::transfers::{self, ErrorKind};
use futures_util::FutureExt;
use pyo3::prelude::*;
use pyo3_async_runtimes::tokio::future_into_py;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

/// How long a transfer that is ended may take to keep what it has and to tell the other side.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// What transfers and connections are told: `anabranch._engine.Options`.
#[pyclass(name = "Options", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyOptions {
    pub(crate) options: transfers::Options,
    pub(crate) trouble: Arc<Trouble>,
}

#[pymethods]
impl PyOptions {
    /// Words are those of the command; `own` are schedulers and controllers that are
    /// written in Python.
    #[new]
    #[pyo3(signature = (
        *, paths=Vec::new(), connect_timeout=None, scheduler=None, congestion=None,
        own=Vec::new(), chunk=None, limit_rate=None, timestamps=false, identity=None, ca=None,
        qlog=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "in Python all have names")]
    fn new(
        paths: Vec<String>,
        connect_timeout: Option<f64>,
        scheduler: Option<String>,
        congestion: Option<String>,
        own: Vec<Own<'_>>,
        chunk: Option<String>,
        limit_rate: Option<String>,
        timestamps: bool,
        identity: Option<PathBuf>,
        ca: Option<PathBuf>,
        qlog: Option<PathBuf>,
    ) -> PyResult<Self> {
        let trouble = Arc::new(Trouble::of_a_transfer());
        let names = names_of(&own, &trouble)?;
        let connect_timeout = connect_timeout.map(Duration::try_from_secs_f64).transpose();
        let connect_timeout = connect_timeout
            .map_err(|error| raise("UsageError", format!("connect_timeout: {error}")))?;
        transfers::quiet();
        let options = transfers::Options {
            paths,
            connect_timeout,
            scheduler,
            congestion,
            chunk,
            limit_rate,
            timestamps,
            identity,
            ca,
            qlog,
            names,
        };
        Ok(Self { options, trouble })
    }
}

/// Ends what it was given to: `anabranch._engine.Stop`.
#[pyclass(name = "Stop", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyStop(pub(crate) Arc<watch::Sender<bool>>);

#[pymethods]
impl PyStop {
    #[new]
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Ends it; what it has is kept.
    fn set(&self) {
        self.0.send_replace(true);
    }
}

/// A value whose destructor takes the engine's lock: it is dropped where nobody holds the
/// interpreter.
#[derive(Debug)]
pub(crate) struct Away<T: Send + 'static>(Option<T>);

impl<T: Send> Away<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("only the destructor takes it"),
        }
    }
}

impl<T: Send> Drop for Away<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        pyo3_async_runtimes::tokio::get_runtime().spawn(async move { drop(value) });
    }
}

/// The process in which the threads of the runtime are: the one that first needed them.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// An error in a process made by `fork` later than that: it has the thread of the caller alone.
fn of_this_process() -> PyResult<()> {
    let process = std::process::id();
    if *PROCESS.get_or_init(|| process) == process {
        return Ok(());
    }
    let hint = "start processes by `spawn`, or fork before the first connection";
    let what = "connections do not work in a process made by fork after the first of them";
    Err(raise_with_hint("UsageError", what, Some(hint)))
}

/// What asyncio awaits for `work`. A panic in it becomes an exception.
pub(crate) fn future<'py, T>(
    py: Python<'py>,
    work: impl Future<Output = PyResult<T>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'any> IntoPyObject<'any> + Send + 'static,
{
    of_this_process()?;
    future_into_py(py, async move {
        let done = AssertUnwindSafe(work).catch_unwind().await;
        done.unwrap_or_else(|panic| Err(raise("InternalError", fault(panic.as_ref()))))
    })
}

/// As [`future`], for what stays in one thread: the compiler cannot see that a future with async
/// closures in it may move to another.
pub(crate) fn in_a_thread<'py, T, F>(
    py: Python<'py>,
    work: impl FnOnce() -> F + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'any> IntoPyObject<'any> + Send + 'static,
    F: Future<Output = PyResult<T>>,
{
    future(py, async move {
        let runtime = tokio::runtime::Handle::current();
        let thread = tokio::task::spawn_blocking(move || runtime.block_on(work()));
        match thread.await {
            Ok(done) => done,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(ended) => Err(raise("InternalError", ended)),
            },
        }
    })
}

/// Waits for `work`, until a scheduler raises an exception.
pub(crate) async fn unless_raised<T>(
    work: impl Future<Output = Result<T, transfers::Error>>,
    trouble: &Trouble,
    stop: &watch::Sender<bool>,
) -> PyResult<T> {
    tokio::pin!(work);
    let done = tokio::select! {
        done = &mut work => done,
        () = trouble.raised() => {
            stop.send_replace(true);
            let _ = tokio::time::timeout(GRACE, &mut work).await;
            return Err(trouble.error());
        }
    };
    done.map_err(|error| {
        if trouble.is_raised() {
            trouble.error()
        } else {
            failed(&error)
        }
    })
}

/// The exception for an error of a transfer.
pub(crate) fn failed(error: &transfers::Error) -> PyErr {
    match error.kind {
        ErrorKind::Spec => raise("SpecError", error),
        ErrorKind::Usage => raise_with_hint("UsageError", error, error.hint.as_deref()),
        ErrorKind::Failed => raise_with_hint("TransferError", error, error.hint.as_deref()),
    }
}

/// What the ends of tunnels on this machine do, as JSON.
#[pyfunction]
#[pyo3(signature = (control=None))]
pub(crate) fn tunnels(py: Python<'_>, control: Option<PathBuf>) -> PyResult<Vec<String>> {
    of_this_process()?;
    let runtime = pyo3_async_runtimes::tokio::get_runtime();
    let asked = async { transfers::tunnels(control).await };
    py.detach(|| runtime.block_on(asked))
        .map_err(|error| failed(&error))
}
