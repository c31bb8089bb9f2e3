//! Exceptions: the classes of `anabranch.errors`, which is where their documentation is.

use anabranch_lab::scenario::{Mistake, Place, nearest};
use pyo3::prelude::*;
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An exception of the class `name` of `anabranch.errors`.
pub(crate) fn raise(name: &str, message: impl Display) -> PyErr {
    let message = message.to_string();
    Python::attach(|py| made(py, name, (message,)).unwrap_or_else(|error| error))
}

/// An exception of the class `name` that also says what to do.
pub(crate) fn raise_with_hint(name: &str, message: impl Display, hint: Option<&str>) -> PyErr {
    let words = (message.to_string(), hint.map(ToOwned::to_owned));
    Python::attach(|py| made(py, name, words).unwrap_or_else(|error| error))
}

/// A mistake in a scenario, with its place.
pub(crate) fn scenario(mistake: &Mistake) -> PyErr {
    let (line, column) = match mistake.place {
        Place::File { line, column } => (Some(line), Some(column)),
        Place::Given => (None, None),
    };
    let words = (
        mistake.to_string(),
        mistake.file.clone(),
        line,
        column,
        mistake.key.clone(),
        mistake.hint.clone(),
    );
    Python::attach(|py| made(py, "ScenarioError", words).unwrap_or_else(|error| error))
}

fn made<'py>(
    py: Python<'py>,
    name: &str,
    words: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<PyErr> {
    let class = py.import("anabranch.errors")?.getattr(name)?;
    Ok(PyErr::from_value(class.call1(words)?))
}

/// What was probably meant by `typed`, as the end of a message; nothing if nothing is similar.
pub(crate) fn hint<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = nearest(typed, known);
    near.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

/// Calls `work`; a panic in it becomes an exception, so that none crosses into Python.
pub(crate) fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    caught(work).unwrap_or_else(|fault| Err(raise("InternalError", fault)))
}

/// Calls `work`; a panic in it becomes the words of an `InternalError`, for whoever raises it in
/// another thread.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| fault(panic.as_ref()))
}

/// The words of an `InternalError` for a panic.
pub(crate) fn fault(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let what = text.unwrap_or("it said nothing");
    format!("a fault of anabranch: {what}")
}
