//! Scenarios, runs, results and statistics for multipath experiments on any backend.
//!
//! ```text
//! scenario   TOML -> Scenario, with file, line and nearest name in every complaint
//! plan       sweeps and contenders unfold into runs, each with its seed
//! backend    one run -> one outcome
//! contender  programs of others that take part, as files describe them
//! engine     a scenario's transport as settings of the engine
//! hosts      what a host of a laboratory is asked in a run, and what it tells
//! calibration  where simulator and kernels must agree
//! campaign   runs a plan on all cores, resumes, writes results
//! machine    what a machine is like, beside its results
//! repeat     whether a run does the same twice
//! results    tables with units, as CSV, JSON lines and Parquet
//! stats      means, intervals, paired comparisons
//! conformance  the promises schedulers are checked for
//! papers     the experiments of the five documents and the statements checked on their results
//! ```

pub mod backend;
pub mod calibration;
pub mod campaign;
pub mod conformance;
pub mod contender;
pub mod engine;
pub mod hosts;
pub mod machine;
pub mod papers;
pub mod plan;
pub mod qlog;
pub mod repeat;
pub mod report;
pub mod results;
pub mod scenario;
pub mod stats;
pub mod words;
