//! Python objects as a scenario's values, and back.

use crate::error::raise;
use anabranch_lab::scenario::{Entry, Node, Place, Value};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyDelta, PyDeltaAccess, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple,
};

/// Nothing in a scenario is nested deeper.
const MAX_DEPTH: usize = 16;

/// The value that `object` stands for; `key` is where it is, for messages.
pub(crate) fn node(object: &Bound<'_, PyAny>, key: &str) -> PyResult<Node> {
    at_depth(object, key, 0)
}

fn at_depth(object: &Bound<'_, PyAny>, key: &str, depth: usize) -> PyResult<Node> {
    if depth > MAX_DEPTH {
        return Err(raise("ScenarioError", format!("{key}: nested too deep")));
    }
    Ok(Node::given(if let Ok(text) = object.cast::<PyString>() {
        Value::Text(text.to_string())
    } else if let Ok(flag) = object.cast::<PyBool>() {
        Value::Flag(flag.is_true())
    } else if let Ok(number) = object.cast::<PyInt>() {
        let whole = number.extract::<i64>();
        Value::Whole(
            whole.map_err(|_| raise("ScenarioError", format!("{key}: {number} is too large")))?,
        )
    } else if let Ok(number) = object.cast::<PyFloat>() {
        Value::Number(finite(number.extract()?, key)?)
    } else if let Ok(table) = object.cast::<PyDict>() {
        table_of(table, key, depth)?
    } else if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object
            .try_iter()?
            .enumerate()
            .map(|(at, item)| at_depth(&item?, &format!("{key}.{}", at + 1), depth + 1));
        Value::List(items.collect::<PyResult<_>>()?)
    } else if let Ok(time) = object.cast::<PyDelta>() {
        Value::Text(microseconds(time))
    } else {
        let kind = object.get_type().name()?;
        let what = format!(
            "{key}: a scenario cannot hold a {kind}: expected text with its unit such as \
             \"30ms\", a number, True or False, a timedelta, a list or a dict"
        );
        return Err(raise("ScenarioError", what));
    }))
}

fn finite(number: f64, key: &str) -> PyResult<f64> {
    if number.is_finite() {
        return Ok(number);
    }
    Err(raise(
        "ScenarioError",
        format!("{key}: {number} is no number"),
    ))
}

fn table_of(table: &Bound<'_, PyDict>, key: &str, depth: usize) -> PyResult<Value> {
    let mut entries = Vec::with_capacity(table.len());
    for (name, value) in table {
        let name = name
            .cast::<PyString>()
            .map_err(|_| raise("ScenarioError", format!("{key}: the key {name} is no text")))?;
        let name = name.to_string();
        let below = if key.is_empty() {
            name.clone()
        } else {
            format!("{key}.{name}")
        };
        entries.push(Entry {
            place: Place::Given,
            node: at_depth(&value, &below, depth + 1)?,
            key: name,
        });
    }
    Ok(Value::Table(entries))
}

fn microseconds(time: &Bound<'_, PyDelta>) -> String {
    let days = i64::from(time.get_days());
    let seconds = days * 86_400 + i64::from(time.get_seconds());
    format!(
        "{}us",
        seconds * 1_000_000 + i64::from(time.get_microseconds())
    )
}

/// The Python object for a value.
pub(crate) fn object<'py>(py: Python<'py>, node: &Node) -> PyResult<Bound<'py, PyAny>> {
    Ok(match &node.value {
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Whole(number) => number.into_pyobject(py)?.into_any(),
        Value::Number(number) => number.into_pyobject(py)?.into_any(),
        Value::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::List(items) => {
            let items = items.iter().map(|item| object(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Value::Table(entries) => {
            let table = PyDict::new(py);
            for entry in entries {
                table.set_item(&entry.key, object(py, &entry.node)?)?;
            }
            table.into_any()
        }
    })
}
