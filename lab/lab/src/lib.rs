//! Scenarios, runs, results and statistics for multipath experiments on any backend.
//!
//! ```text
//! scenario   TOML -> Scenario; every error names the file, the line and the nearest valid name
//! plan       expands sweeps and contenders into runs, each with its seed
//! backend    one run -> one outcome
//! contender  third-party programs that take part, as files describe them
//! engine     turns a scenario's transport into settings of the engine
//! hosts      what a laboratory's host is asked in a run, and what it reports
//! calibration  scenarios in which simulator and kernels must agree
//! campaign   runs a plan on all cores, resumes, writes results
//! machine    describes the machine, beside its results
//! repeat     whether a run gives the same result twice
//! results    tables with units, as CSV, JSON lines and Parquet
//! stats      means, intervals, paired comparisons
//! conformance  the promises that schedulers are checked against
//! promise    random worlds in which several links must not be slower than the better one
//! ```

pub mod backend;
pub mod calibration;
pub mod campaign;
pub mod conformance;
pub mod contender;
pub mod engine;
pub mod hosts;
pub mod machine;
pub mod plan;
pub mod promise;
pub mod repeat;
pub mod report;
pub mod results;
pub mod scenario;
pub mod stats;
pub mod words;
