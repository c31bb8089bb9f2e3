//! `anabranch`: moves files over several network paths at once.

mod args;
mod commands;
mod failure;
mod files;
mod guest;
mod http09;
mod http3;
mod limit;
mod links;
mod output;
mod paths;
mod qlog;
mod session;
mod speed;
mod tickets;
mod trust;
mod tuning;
mod url;

use args::lab::Lab;
use args::{Cli, Command};
use clap::Parser;
use failure::{Failure, Outcome};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose, cli.quiet);
    let outcome = run(&cli);
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

fn run(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Schedulers(args) => return commands::list::schedulers(args),
        Command::Congestion(args) => return commands::list::congestion(args),
        Command::Completions { shell } => return commands::manual::completions(*shell),
        Command::Man { dir: None } => return commands::manual::man(),
        Command::Man { dir: Some(dir) } => return commands::manual::pages(dir),
        Command::Key(args) => return commands::key::run(args, cli.quiet),
        // It has its own runtime, on one thread.
        Command::Lab(Lab::Agent(args)) => return commands::lab::agent(args, cli.quiet),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start", &error))?;
    let outcome = runtime.block_on(run_async(cli));
    // A read or write delayed by the disk must not keep the program from ending.
    runtime.shutdown_background();
    outcome
}

async fn run_async(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Demo(args) => commands::demo::run(args, cli.quiet).await,
        Command::Serve(args) => commands::serve::run(args, cli.quiet).await,
        Command::Get(args) => commands::get::run(args, cli.quiet).await,
        Command::Put(args) => commands::put::run(args, cli.quiet).await,
        Command::Ping(args) => commands::ping::run(args, cli.quiet).await,
        Command::Speed(args) => commands::speed::run(args, cli.quiet).await,
        Command::Doctor(args) => commands::doctor::run(args).await,
        Command::Routes(command) => commands::routes::run(command).await,
        Command::Sim(command) => commands::sim::run(command, cli.quiet).await,
        Command::Lab(command) => commands::lab::run(command, cli.quiet).await,
        Command::Schedulers(_)
        | Command::Congestion(_)
        | Command::Completions { .. }
        | Command::Key(_)
        | Command::Man { .. } => Ok(()),
    }
}

/// Sets up logging to stderr. `RUST_LOG` overrides the flags.
fn log_to_stderr(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
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
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::is_interactive() && !plain)
        .with_target(verbose > 1)
        .without_time()
        .init();
}
