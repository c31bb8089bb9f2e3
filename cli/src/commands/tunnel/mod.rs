//! `anabranch tunnel`: both ends of a tunnel, and what they tell of themselves.

pub(crate) mod ask;
mod capture;
mod configuration;
mod file;
mod fleet;
mod flows;
mod ip;
mod join;
mod keeping;
mod metrics;
mod paths;
mod reload;
mod serve;
mod service;
mod show;

use crate::args::tunnel::{Place, Tunnel};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::trust::state_directory;
use crate::tuning::Tuning;
use anabranch_gateway::control::{Answer, Control, Order};
use anabranch_gateway::guard::Duty;
use anabranch_net::engine::TransportConfig;
use anabranch_schedulers::{Names, steered};
use nix::sys::utsname::uname;
use std::path::PathBuf;
use std::process::Command;

/// Runs the command.
pub(crate) async fn run(command: &Tunnel, names: &Names, quiet: bool) -> Outcome {
    match command {
        Tunnel::Serve(args) => serve::run(args, names, quiet, None).await,
        Tunnel::Join(args) => join::run(args, names, quiet, None).await,
        Tunnel::New(args) => configuration::new(args, quiet),
        Tunnel::Check { file } => configuration::check(file, names, quiet).await,
        Tunnel::Up { file } => configuration::up(file, names, quiet).await,
        Tunnel::Reload(node) => ask::reload(node).await,
        Tunnel::Down => capture::down().await,
        Tunnel::Guard { keep, exit, device } => guard(*keep, *exit, device.as_deref()).await,
        Tunnel::Status(args) => ask::status(args).await,
        Tunnel::Paths(args) => paths::run(args).await,
        Tunnel::Flows(args) => flows::list(args).await,
        Tunnel::Why(args) => flows::why(args).await,
        Tunnel::Clients(args) => ask::clients(args).await,
        Tunnel::Invite(node) => ask::invite(node).await,
        Tunnel::Drain(args) => ask::drain(args).await,
    }
}

/// Runs the process that undoes what a node has changed of this machine.
async fn guard(keep: bool, exit: bool, device: Option<&str>) -> Outcome {
    let duty = if exit { Duty::Exit } else { Duty::Capture };
    let done = anabranch_gateway::guard::guard(duty, keep, device).await;
    done.map_err(|error| Failure::failed(format!("not everything is undone: {error}")))
}

/// A process that runs it, when it is started. This device is kept by a manager of services.
fn guard_command(options: &[&str], kept: Option<&str>) -> Command {
    // The program that runs, even if its file was replaced meanwhile.
    let mut guard = Command::new("/proc/self/exe");
    guard.args(["tunnel", "guard"]).args(options);
    if let Some(device) = kept {
        guard.args(["--device", device]);
    }
    guard
}

/// Where other commands ask a node. It runs without, too.
///
/// It is there before the node tells anybody of itself: who reads that may ask at once.
fn control(node: &str) -> Option<Control> {
    let bound = ask::directory().and_then(|directory| {
        let bound = Control::bind(&directory, node);
        bound.map_err(|error| Failure::io(directory.display(), &error))
    });
    let told = bound.inspect_err(|failure| {
        let why = failure.what();
        output::say(format!(
            "note: `anabranch tunnel status` does not find this: {why}"
        ));
    });
    told.ok()
}

/// Answers what other commands ask while a node runs.
async fn answer(control: Option<Control>, answer: impl AsyncFn(Order) -> Answer) {
    match control {
        Some(control) => control.serve(answer).await,
        None => std::future::pending().await,
    }
}

/// Where a node keeps what it has to remember.
fn directory(place: &Place) -> Outcome<PathBuf> {
    let directory = place.state.clone().or_else(state_directory);
    directory.ok_or_else(|| {
        let failure = Failure::usage("there is no home directory to keep keys and credentials in");
        failure.hint("say where with `--state DIR`")
    })
}

/// What a node is called: as the user says, else as the host.
fn name(given: Option<&str>) -> String {
    let of_host = || Some(uname().ok()?.nodename().to_str()?.to_owned());
    given
        .map(str::to_owned)
        .or_else(of_host)
        .unwrap_or_default()
}

/// How an end sends that otherwise sends as `transport` says: as its options say, but classes that
/// are steered as they are to be.
fn sending(
    tuning: &Tuning,
    names: &Names,
    mut transport: TransportConfig,
) -> Outcome<TransportConfig> {
    tuning.resolve(names)?.configure(&mut transport);
    transport.scheduler = steered(transport.scheduler);
    Ok(transport)
}

#[cfg(test)]
mod tests {
    use anabranch_schedulers::SteeringMode;
    use anabranch_tunnel::class::{self, Steering};

    /// A tunnel names and numbers them without knowing any scheduler.
    #[test]
    fn the_modes_of_a_tunnel_are_those_of_its_scheduler() {
        let ours = Steering::ALL.map(|mode| (mode.name(), mode.class()));
        let theirs = SteeringMode::ALL.map(|mode| (mode.name(), mode.class()));
        assert_eq!(ours, theirs);
        assert_eq!(class::ORDERED, anabranch_schedulers::ORDERED);
    }
}
