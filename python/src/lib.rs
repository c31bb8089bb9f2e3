//! The extension module `anabranch._engine`, on which the Python package `anabranch` stands.
//!
//! ```text
//! document   a scenario: TOML or Python objects, with the laboratory's messages
//! plan       a document and contenders -> runs, some of which Python's schedulers carry
//! campaign   runs a plan in threads of its own; Python waits, stops it, and takes what is done
//! laboratory the same in network namespaces, by hosts that are processes of Python
//! study      the results: tables, comparisons
//! table      one table as an Arrow stream
//! scheduler  schedulers written in Python as schedulers of the engine
//! controller congestion controllers written in Python as controllers of the engine
//! own        both of them by name
//! trouble    what they raise
//! turn       how long they take
//! measures   conformance and promise
//! papers     the experiments of the five papers
//! real       files and connections over real networks, for asyncio
//! ```
//!
//! What users call is written in Python above this; here is what needs the engine. Every function
//! returns an error of `anabranch.errors`, and none lets a panic through.

// A test harness cannot be linked with what only an interpreter has: for it there is nothing here.
#![cfg(not(test))]
#![allow(
    clippy::needless_pass_by_value,
    reason = "functions own what is made of the arguments that Python gives"
)]

mod campaign;
mod controller;
mod document;
mod error;
mod laboratory;
mod measures;
mod own;
mod papers;
mod plan;
mod real;
mod scheduler;
mod study;
mod table;
mod tree;
mod trouble;
mod turn;

/// The engine of the package `anabranch`.
#[pyo3::pymodule]
mod _engine {
    #[pymodule_export]
    use super::campaign::PyCampaign;
    #[pymodule_export]
    use super::controller::event::{
        PyAckEvent, PyCongestionEvent, PyInit, PyMember, PySentEvent, PySpuriousLoss,
    };
    #[pymodule_export]
    use super::document::{PyDocument, template};
    #[pymodule_export]
    use super::laboratory::{clean_laboratories, laboratory_lacks, serve_agent};
    #[pymodule_export]
    use super::measures::{conform, controllers, promise, schedulers};
    #[pymodule_export]
    use super::own::check_table;
    #[pymodule_export]
    use super::papers::{paper_scenario, paper_statements, papers};
    #[pymodule_export]
    use super::plan::{PyPlan, kinds};
    #[pymodule_export]
    use super::real::connection::{PyConnection, PyListener, PyPathChanges, connect, listen};
    #[pymodule_export]
    use super::real::files::{PyServer, get, put};
    #[pymodule_export]
    use super::real::stream::PyBytesStream;
    #[pymodule_export]
    use super::real::{PyOptions, PyStop, tunnels};
    #[pymodule_export]
    use super::scheduler::ask::{ask, decide_many};
    #[pymodule_export]
    use super::scheduler::event::PyEvent;
    #[pymodule_export]
    use super::scheduler::parts::{PyBacklog, PyPath, PyStream, PyUnit};
    #[pymodule_export]
    use super::scheduler::view::{PyChoice, PyView};
    #[pymodule_export]
    use super::study::{PyParts, scenario_of};
    #[pymodule_export]
    use super::table::PyTable;
    #[pymodule_export]
    use super::trouble::ask_no_more;
    #[pymodule_export]
    use super::turn::overdue;
}
