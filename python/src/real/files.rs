//! Files: `get`, `put` and `serve`, by the code of the command.

use super::{PyOptions, PyStop, failed, future, in_a_thread, unless_raised};
use crate::error::raise;
use anabranch_cli::transfers::{self, Get, Put, Serve, Server};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Fetches a file; its result is what `get --json` writes.
#[pyfunction]
pub(crate) fn get<'py>(
    py: Python<'py>,
    url: String,
    to: Option<PathBuf>,
    force: bool,
    options: &PyOptions,
    stop: &PyStop,
) -> PyResult<Bound<'py, PyAny>> {
    let (trouble, stop) = (Arc::clone(&options.trouble), Arc::clone(&stop.0));
    let options = options.options.clone();
    let what = Get { url, to, force };
    let work = || async move {
        let stopped = stop.subscribe();
        let work = Box::pin(transfers::get(&what, &options, &stopped));
        unless_raised(work, &trouble, &stop).await
    };
    in_a_thread(py, work)
}

/// Sends a file; its result is what `put --json` writes.
#[pyfunction]
pub(crate) fn put<'py>(
    py: Python<'py>,
    file: PathBuf,
    url: String,
    no_clobber: bool,
    options: &PyOptions,
    stop: &PyStop,
) -> PyResult<Bound<'py, PyAny>> {
    let (trouble, stop) = (Arc::clone(&options.trouble), Arc::clone(&stop.0));
    let options = options.options.clone();
    let what = Put {
        file,
        url,
        no_clobber,
    };
    let work = || async move {
        let stopped = stop.subscribe();
        let work = Box::pin(transfers::put(&what, &options, &stopped));
        unless_raised(work, &trouble, &stop).await
    };
    in_a_thread(py, work)
}

/// A server of files: `anabranch._engine.Server`.
#[pyclass(name = "Server", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyServer {
    #[pyo3(get)]
    url: String,
    server: Mutex<Option<Server>>,
    options: Py<PyOptions>,
}

#[pymethods]
impl PyServer {
    /// Listens.
    #[staticmethod]
    fn start(
        py: Python<'_>,
        root: PathBuf,
        listen: Vec<String>,
        advertise: Vec<String>,
        writable: bool,
        fixed_tuning: bool,
        options: Py<PyOptions>,
    ) -> PyResult<Bound<'_, PyAny>> {
        let what = Serve {
            root,
            listen,
            advertise,
            writable,
            fixed_tuning,
        };
        future(py, async move {
            let server = Server::start(&what, &options.get().options).await;
            let server = server.map_err(|error| failed(&error))?;
            Ok(Self {
                url: server.url(),
                server: Mutex::new(Some(server)),
                options,
            })
        })
    }

    /// Serves until it is stopped.
    fn run<'py>(&self, py: Python<'py>, stop: &PyStop) -> PyResult<Bound<'py, PyAny>> {
        let server = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let server = server.ok_or_else(|| raise("UsageError", "this server has run already"))?;
        let trouble = Arc::clone(&self.options.get().trouble);
        let stop = Arc::clone(&stop.0);
        future(py, async move {
            let stopped = stop.subscribe();
            let work = async {
                server.run(&stopped).await;
                Ok(())
            };
            unless_raised(work, &trouble, &stop).await
        })
    }
}
