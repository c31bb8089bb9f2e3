//! One table: `anabranch._engine.Table`, an Arrow stream for whatever reads data frames.

use crate::error::{hint, raise};
use anabranch_lab::results::{Cell, Kind, Table};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows and columns; text, whole numbers and numbers, none of them where nothing was measured.
#[pyclass(name = "Table", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyTable {
    batch: RecordBatch,
    #[pyo3(get)]
    name: &'static str,
}

impl PyTable {
    pub(crate) fn new(table: &Table) -> PyResult<Self> {
        let mut fields = Vec::new();
        let mut arrays: Vec<ArrayRef> = Vec::new();
        for (at, column) in table.columns.iter().enumerate() {
            let cells = || table.rows.iter().map(|row| &row[at]);
            let (kind, array): (DataType, ArrayRef) = match column.kind {
                Kind::Text => (
                    DataType::Utf8,
                    Arc::new(cells().map(text).collect::<StringArray>()),
                ),
                Kind::Whole => (
                    DataType::Int64,
                    Arc::new(cells().map(whole).collect::<Int64Array>()),
                ),
                Kind::Number => (
                    DataType::Float64,
                    Arc::new(cells().map(number).collect::<Float64Array>()),
                ),
            };
            let about = [("about".to_owned(), column.about.to_owned())];
            fields.push(Field::new(&column.name, kind, true).with_metadata(HashMap::from(about)));
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Self {
            batch: batch.map_err(broken)?,
            name: table.name,
        })
    }
}

fn broken(error: impl std::fmt::Display) -> PyErr {
    raise("InternalError", format!("a table cannot be made: {error}"))
}

fn text(cell: &Cell) -> Option<&str> {
    match cell {
        Cell::Text(text) => Some(text),
        _ => None,
    }
}

fn whole(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Whole(number) => i64::try_from(*number).ok(),
        _ => None,
    }
}

fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(number) => Some(*number),
        _ => None,
    }
}

#[pymethods]
impl PyTable {
    /// The number of rows.
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let schema = self.batch.schema();
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// What each column means.
    #[getter]
    fn about(&self) -> Vec<(String, String)> {
        let schema = self.batch.schema();
        let about = |field: &Arc<Field>| field.metadata().get("about").cloned().unwrap_or_default();
        schema
            .fields()
            .iter()
            .map(|field| (field.name().clone(), about(field)))
            .collect()
    }

    /// The values of one column; `None` where nothing was measured.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(array) = self.batch.column_by_name(name) else {
            let known = self.columns();
            let hint = hint(name, known.iter().map(String::as_str));
            return Err(raise(
                "ColumnError",
                format!("there is no column `{name}`{hint}"),
            ));
        };
        let any = array.as_any();
        if let Some(texts) = any.downcast_ref::<StringArray>() {
            PyList::new(py, texts.iter().collect::<Vec<_>>())
        } else if let Some(numbers) = any.downcast_ref::<Int64Array>() {
            PyList::new(py, numbers.iter().collect::<Vec<_>>())
        } else if let Some(numbers) = any.downcast_ref::<Float64Array>() {
            PyList::new(py, numbers.iter().collect::<Vec<_>>())
        } else {
            Err(broken("a column of no known kind"))
        }
    }

    /// Arrow's interface of capsules: the columns and their types.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(broken)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Arrow's interface of capsules: the rows. A wish for another schema is not granted, as the
    /// interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let rows = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(rows));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
