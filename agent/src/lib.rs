//! What one host of a laboratory does: it carries the flows of a run and measures them.
//!
//! ```text
//! serve     lines of JSON in (Ask), lines of JSON out (Answer)
//!   rules     what it may do for whoever asks: ports, files
//!   run       a job -> ready -> start -> report
//!     engine    flows over the engine: a socket for each path, a stream for each unit
//!     kernel    flows over TCP or multipath TCP of the kernel: a connection for each flow
//!     ledger    what arrived, and whether that is all
//!     series    samples: bins, means, percentiles
//!   program   a program of others as the server, if whoever started the agent allowed it
//! local     an agent as a process, spoken to over pipes
//! remote    an agent on another machine, over a connection of the engine with both keys pinned
//! ```
//!
//! An agent knows one job at a time, the other host by what the laboratory tells of it, and nothing
//! of the network between. It ends when its input ends, so that it cannot outlive who started it.

mod engine;
mod kernel;
mod ledger;
mod local;
mod machine;
mod payload;
mod program;
mod remote;
mod rules;
mod run;
mod series;
mod serve;
#[cfg(test)]
mod tests;

pub use local::Local;
pub use remote::{Listen, ListenError, Remote, Service, Stop, listen};

use rules::Rules;
use std::io;

/// Answers on standard output what is asked on standard input, until that ends.
///
/// # Errors
/// Standard input or output broke.
pub fn serve_stdio() -> io::Result<()> {
    let runtime = runtime()?;
    let served = runtime.block_on(serve::serve(
        tokio::io::stdin(),
        tokio::io::stdout(),
        Rules::own(),
    ));
    // What lingers of a last run lingers no longer.
    runtime.shutdown_background();
    served
}

/// One thread: the processor time it takes is then what one core gave, whoever else is busy.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
