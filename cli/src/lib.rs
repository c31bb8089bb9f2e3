//! The command `anabranch` as a library: the whole of it in a program of one's own, with schedulers
//! and congestion controllers of one's own.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     anabranch_cli::main(anabranch_cli::Names::default())
//! }
//! ```
//!
//! is the program `anabranch`. A registry in the place of [`Names`] makes a program that has every
//! command of it and knows what is registered, wherever schedulers or controllers are named:
//!
//! ```no_run
//! # fn my_registry() -> anabranch_proto::sched::Registry { anabranch_schedulers::builtin() }
//! fn main() -> std::process::ExitCode {
//!     anabranch_cli::main(my_registry())
//! }
//! ```
//!
//! That holds in other processes too: the laboratory's agents, in namespaces, in virtual machines
//! and on other machines (`lab agent --listen`), are the same program, started again.
//!
//! Without the feature `lab`, which is on by default, `demo`, `sim` and `lab` say that they are not
//! there, and nothing of the simulator, the emulator or the reports is built.

mod args;
mod commands;
mod failure;
mod files;
mod foreign;
mod guest;
mod http09;
mod http3;
mod join;
mod limit;
mod links;
mod output;
mod paths;
mod qlog;
mod session;
mod speed;
mod tickets;
pub mod transfers;
mod trust;
mod tuning;
mod url;

use args::{Cli, Command, LogFormat};
use clap::Parser;
use commands::wait_for;
use failure::Outcome;
use std::process::ExitCode;
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

pub use anabranch_schedulers::Names;

/// Carries out what the command line says; what it returns is for `main` to return.
///
/// `names` are the schedulers and congestion controllers there are: [`Names`], or a registry of one
/// kind, beside which everything of the other kind is what is built in.
#[must_use]
pub fn main(names: impl Into<Names>) -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(&cli);
    let outcome = run(&cli, &Arc::new(names.into()));
    qlog::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(report) = failure.report() {
                output::say(report);
            }
            failure.exit_code()
        }
    }
}

fn run(cli: &Cli, names: &Arc<Names>) -> Outcome {
    let quiet = cli.quiet;
    match &cli.command {
        #[cfg(feature = "lab")]
        Command::Demo(args) => wait_for(commands::demo::run(args, names, quiet)),
        Command::Serve(args) => wait_for(commands::serve::run(args, names, quiet)),
        Command::Get(args) => wait_for(commands::get::run(args, names, quiet)),
        Command::Put(args) => wait_for(commands::put::run(args, names, quiet)),
        Command::Ping(args) => wait_for(commands::ping::run(args, quiet)),
        Command::Speed(args) => wait_for(commands::speed::run(args, names, quiet)),
        Command::Key(args) => commands::key::run(args, quiet),
        Command::Schedulers(args) => commands::list::schedulers(args, names),
        Command::Congestion(args) => commands::list::congestion(args, names),
        Command::Doctor(args) => wait_for(commands::doctor::run(args)),
        Command::Routes(command) => wait_for(commands::routes::run(command)),
        Command::Tunnel(command) => wait_for(commands::tunnel::run(command, names, quiet)),
        #[cfg(feature = "lab")]
        Command::Sim(command) => wait_for(commands::sim::run(command, names, quiet)),
        #[cfg(feature = "lab")]
        Command::Lab(command) => commands::lab::run(command, names, quiet),
        #[cfg(not(feature = "lab"))]
        Command::Absent(command) => Err(command.failure()),
        Command::Completions { shell } => commands::manual::completions(*shell),
        Command::Man { dir: None } => commands::manual::man(),
        Command::Man { dir: Some(dir) } => commands::manual::pages(dir),
    }
}

/// Sets up logging to stderr. `RUST_LOG` overrides the flags.
fn log_to_stderr(cli: &Cli) {
    let verbose = cli.verbose;
    let level = match (cli.quiet, verbose) {
        (true, _) => "error",
        (_, 0) => "warn",
        (_, 1) => "info",
        (_, 2) => "debug",
        _ => "trace",
    };
    // Messages of the libraries that draw PNG files help only those who look for them.
    let level = match verbose {
        0 | 1 => format!("{level},resvg=off,usvg=off,tiny_skia=off,fontdb=off"),
        _ => level.to_owned(),
    };
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::is_interactive() && !plain)
        .with_target(verbose > 1);
    match cli.log_format {
        LogFormat::Text => log.without_time().init(),
        LogFormat::Json => {
            output::say_as_json();
            log.json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .init();
        }
    }
}
