//! The results of runs: one outcome each, and tidy tables of all of them.
//!
//! Base units only (seconds, bytes, bits per second), the unit in the name, one fact a row.
//! `docs/results.md` describes every column; a test compares it with the schema.

mod comparison;
mod datagrams;
mod merge;
mod outcome;
pub(crate) mod schema;
mod store;
mod swept;
mod write;

#[cfg(feature = "parquet")]
mod parquet;

#[cfg(test)]
mod tests;

pub use comparison::{ComparisonError, comparison};
pub use datagrams::DatagramFlow;
pub use merge::{common_scenario, gathered, in_order, without_clock};
pub use outcome::{Bin, Decided, Outcome, Part, PathOutcome, Shared, Status};
pub use schema::{Cell, Column, Kind, SCHEMA_VERSION, TABLES, Table, TableInfo, tables};
pub use store::{Store, StoreError};
pub use write::{csv, json_lines};
