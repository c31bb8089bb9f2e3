//! A scenario before it is run: `anabranch._engine.Document`.

use crate::error::{guarded, scenario};
use crate::tree;
use anabranch_lab::plan::{Changes, Plan};
use anabranch_lab::scenario::{Document, TEMPLATE, Value};
use pyo3::prelude::*;

/// A scenario as a tree of values; nothing of it is checked but its form.
#[pyclass(name = "Document", module = "anabranch._engine", frozen)]
#[derive(Debug, Clone)]
pub(crate) struct PyDocument(pub(crate) Document);

#[pymethods]
impl PyDocument {
    /// Reads TOML, from a file that messages call `file`.
    #[staticmethod]
    fn parse(file: &str, text: &str) -> PyResult<Self> {
        guarded(|| {
            Document::parse(file, text)
                .map(Self)
                .map_err(|error| scenario(&error))
        })
    }

    /// Takes dicts, lists, text and numbers.
    #[staticmethod]
    fn build(file: &str, values: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut document = Document::parse(file, "").map_err(|error| scenario(&error))?;
        document.root = tree::node(values, "")?;
        Ok(Self(document))
    }

    /// This document with another value at `key`.
    fn with_value(&self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut document = self.0.clone();
        let node = tree::node(value, key)?;
        document.set(key, &node).map_err(|error| scenario(&error))?;
        Ok(Self(document))
    }

    /// Refuses what the command would refuse.
    fn check(&self) -> PyResult<()> {
        // One run of each contender says all that can be said.
        let changes = Changes {
            runs: Some(1),
            ..Changes::default()
        };
        guarded(|| {
            let made = Plan::make(&self.0, &changes).map(drop);
            made.map_err(|error| scenario(&error))
        })
    }

    /// The file's name in messages.
    #[getter]
    fn file(&self) -> &str {
        &self.0.file
    }

    /// The scenario's name, or nothing if it has none.
    #[getter]
    fn name(&self) -> Option<String> {
        let node = self.0.root.get("name")?;
        matches!(node.value, Value::Text(_)).then(|| node.plain())
    }

    /// As TOML in a canonical form.
    fn to_toml(&self) -> String {
        self.0.to_toml()
    }

    /// As dicts, lists, text and numbers.
    fn to_objects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        tree::object(py, &self.0.root)
    }
}

/// The commented scenario that `anabranch sim new` writes.
#[pyfunction]
pub(crate) fn template() -> &'static str {
    TEMPLATE
}
