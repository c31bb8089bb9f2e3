//! One host of a laboratory: it carries the flows of a run and measures them.
//!
//! ```text
//! serve     lines of JSON in (Ask), lines of JSON out (Answer)
//!   rules     what it may do for a laboratory: ports, files
//!   run       a job -> ready -> start -> report
//!     engine    flows over the engine: a socket for each path, a stream for each unit
//!     kernel    flows over the kernel's TCP or multipath TCP: a connection for each flow
//!     ledger    what arrived, and whether that is everything
//!     series    samples: bins, means, percentiles
//!   program   a third-party program as the server, if the agent was started with it
//! local     an agent as a process, reached over pipes
//! remote    an agent on another machine, over a connection of the engine with both keys pinned
//! relay     one end of a plain proxy pair between agents
//! ```
//!
//! An agent knows one job at a time, the other host as the laboratory describes it, and nothing of
//! the network between. It ends when its input ends, so that it cannot outlive the process that
//! started it.

mod engine;
mod kernel;
mod ledger;
mod local;
mod machine;
mod payload;
mod program;
mod relay;
mod remote;
mod rules;
mod run;
mod series;
mod serve;
#[cfg(test)]
mod tests;

pub use local::Local;
pub use relay::relay;
pub use remote::{Listen, ListenError, Remote, Service, Stop, listen};

use anabranch_schedulers::Names;
use rules::Rules;
use std::io;
use std::sync::Arc;

/// Answers requests from standard input on standard output, until the input ends. Jobs may name the
/// schedulers and congestion controllers of `names`.
///
/// # Errors
/// Standard input or output failed.
pub fn serve_stdio(names: Arc<Names>) -> io::Result<()> {
    let runtime = runtime()?;
    let served = runtime.block_on(serve::serve(
        tokio::io::stdin(),
        tokio::io::stdout(),
        Rules::own(names),
    ));
    // Ends whatever is left of the last run.
    runtime.shutdown_background();
    served
}

/// A single thread, so that its processor time is what one core spent, whatever else is running.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
