//! Decisions under way on real connections: whoever decides may not ask the engine, which waits for
//! the answer, and may not take for ever.

use crate::error::raise;
use pyo3::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Since when each thread decides, by Python's number of the thread.
static UNDER_WAY: Mutex<BTreeMap<u64, Instant>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Python's number of this thread, once it was asked for.
    static NUMBER: Cell<Option<u64>> = const { Cell::new(None) };
    /// Whether this thread decides.
    static IS_DECIDING: Cell<bool> = const { Cell::new(false) };
}

fn under_way() -> MutexGuard<'static, BTreeMap<u64, Instant>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A decision of this thread, until it is dropped.
pub(crate) struct Turn(u64);

impl Turn {
    pub(crate) fn begin(py: Python<'_>) -> PyResult<Self> {
        let number = match NUMBER.get() {
            Some(number) => number,
            None => py
                .import("threading")?
                .call_method0("get_ident")?
                .extract()?,
        };
        NUMBER.set(Some(number));
        IS_DECIDING.set(true);
        under_way().insert(number, Instant::now());
        Ok(Self(number))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_DECIDING.set(false);
        under_way().remove(&self.0);
    }
}

/// Asks the engine something, with the interpreter left to others; an error if this thread decides.
pub(crate) fn asking<T: Send>(py: Python<'_>, ask: impl FnOnce() -> T + Send) -> PyResult<T> {
    if IS_DECIDING.get() {
        let what = "a scheduler cannot ask a connection while it decides: its view has what it \
                    may know";
        return Err(raise("UsageError", what));
    }
    Ok(py.detach(ask))
}

/// The threads whose decision has taken longer than so many seconds.
#[pyfunction]
pub(crate) fn overdue(seconds: f64) -> Vec<u64> {
    let under_way = under_way();
    let late = under_way
        .iter()
        .filter(|(_, since)| since.elapsed().as_secs_f64() > seconds);
    late.map(|(number, _)| *number).collect()
}
