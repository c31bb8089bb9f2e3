//! `--capture` of `anabranch tunnel join`, and `anabranch tunnel down`.

use super::keeping;
use super::{guard_command, ip};
use crate::args::tunnel::Join;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::session::look_up;
use crate::url::ServerUrl;
use anabranch_gateway::entry::capture::{self, Capture, CaptureError, Doors, Wanted};
use anabranch_gateway::entry::ip::Carried;
use anabranch_net::Target;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;

/// Time before the far end's name is looked up again.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether what the command line says can be captured.
pub(super) async fn check(args: &Join) -> Outcome {
    let checked = capture::check(&args.capture).await;
    checked.map_err(|error| failure(&error))
}

/// The addresses of the far end. Its name cannot be looked up any more once questions go by the
/// tunnel, so this waits until it is known.
pub(super) async fn far_end(server: &ServerUrl, quiet: bool) -> Target {
    let mut told = String::new();
    loop {
        match look_up(server).await {
            Ok(target) => return target,
            Err(failure) => {
                if !quiet && failure.what() != told {
                    failure.what().clone_into(&mut told);
                    output::say(format!("{told}; nothing is captured yet, trying again"));
                }
                sleep(PAUSE).await;
            }
        }
    }
}

/// Begins to capture what the command line says.
pub(super) async fn start(
    args: &Join,
    far_end: &Target,
    carried: Receiver<Carried>,
) -> Outcome<(Capture, Doors)> {
    let wanted = Wanted {
        sources: args.capture.clone(),
        far_end: far_end.remotes.iter().map(SocketAddr::ip).collect(),
        kill_switch: args.kill_switch,
    };
    let kept = keeping::is_there().then(|| ip::name(args));
    let started = Capture::start(&wanted, carried, guard_command(&[], kept)).await;
    started.map_err(|error| failure(&error))
}

/// What is captured, for a person.
pub(super) fn words(args: &Join) -> String {
    let sources: Vec<String> = args.capture.iter().map(ToString::to_string).collect();
    format!("captures TCP and UDP of {}", sources.join(", "))
}

/// Waits until a capture has to end because nobody would undo it.
pub(super) async fn unguarded(capture: Option<&mut Capture>) -> Failure {
    match capture {
        Some(capture) => capture.unguarded().await,
        None => std::future::pending().await,
    }
    Failure::failed("the process that undoes capture, `anabranch tunnel guard`, was ended")
        .hint("without it a crash would leave hosts without a network: join again")
}

/// Ends it, or `leaves` it to the next process.
pub(super) async fn stop(capture: Capture, args: &Join, leaves: bool, quiet: bool) {
    if leaves {
        capture.leave().await;
    } else if let Err(error) = capture.stop().await {
        let failure = failure(&error).hint_if_none("sudo anabranch tunnel down");
        failure.tell_of("capture may not be undone");
    }
    if args.kill_switch && !quiet {
        output::say("what was captured is blocked now, until `sudo anabranch tunnel down`");
    }
}

/// Runs `tunnel down`.
pub(super) async fn down() -> Outcome {
    let done = capture::down().await.map_err(|error| match error {
        CaptureError::Rights => failure(&error).hint("sudo anabranch tunnel down"),
        error => failure(&error),
    })?;
    if done.is_empty() {
        output::say("nothing of a capture is on this machine");
    }
    for one in done {
        output::say(one);
    }
    Ok(())
}

/// Why nothing is captured, and what can be done.
pub(crate) fn failure(error: &CaptureError) -> Failure {
    match error {
        CaptureError::Rights => {
            Failure::usage(error).hint("sudo anabranch tunnel join URL --capture ...")
        }
        CaptureError::NoNft => Failure::usage(error)
            .hint("install the package nftables: apt install nftables, apk add nftables"),
        CaptureError::Interface(_) => Failure::usage(error).hint("`anabranch doctor` lists them"),
        CaptureError::Busy => Failure::usage(error).hint(
            "one captures for all: repeat `--capture` there; `sudo anabranch tunnel down` ends it",
        ),
        CaptureError::Table(_) => Failure::failed(error)
            .hint("the kernel needs nf_tables with tproxy, fib and ct: see docs/tunnel.md"),
        _ => Failure::failed(error),
    }
}
