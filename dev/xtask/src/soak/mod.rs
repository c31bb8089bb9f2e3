//! `cargo xtask soak`: campaigns that run for a given time.
//!
//! Parts take turns of a minute: random worlds of the engine, those of the simulator, links that
//! flap under a transfer of the real command, each fuzz target. Progress is saved after each turn,
//! so a campaign that was stopped can continue. This module decides which part is next and when to
//! end; parts are built in [`build`], run in [`child`] and judged in [`part`].

mod build;
mod child;
mod options;
mod part;
mod state;
mod table;
#[cfg(test)]
mod tests;

use options::{Options, Parsed};
use part::Part;
use state::State;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use options::HELP;

/// How long a part runs before it is the next one's turn.
const TURN: Duration = Duration::from_secs(60);

/// The folder for everything a campaign writes, relative to the root of the workspace.
const FOLDER: &str = "target/soak";

/// Runs a campaign; returns true if nothing was found, in this run or an earlier one that it
/// continues.
///
/// # Errors
/// Invalid arguments, or something that cannot be built, started or written.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<bool, String> {
    let options = match options::parse(words)? {
        Parsed::Help => {
            super::say(HELP);
            return Ok(true);
        }
        Parsed::Run(options) => options,
    };
    let names = build::names(root)?;
    let chosen = options.choose(&names)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("cannot catch signals: {error}"))?;
    }
    let folder = root.join(FOLDER);
    let mut state = if options.fresh {
        State::default()
    } else {
        State::load(&folder)?
    };
    let parts = build::parts(root, &folder, &chosen, options.sanitizer)?;
    turns(&parts, &options, &folder, &mut state, &stop)?;
    super::say(&table::render(&state, &build::commit(root)));
    for finding in &state.findings {
        super::say(&format!("\n{finding}"));
    }
    Ok(state.findings.is_empty())
}

/// Lets the parts take turns until the time is up or the campaign is stopped.
fn turns(
    parts: &[Part],
    options: &Options,
    folder: &Path,
    state: &mut State,
    stop: &AtomicBool,
) -> Result<(), String> {
    let started = Instant::now();
    let shown = std::io::stderr().is_terminal();
    for part in parts.iter().cycle() {
        let left = options.duration.saturating_sub(started.elapsed());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            break;
        }
        if shown {
            let found = state.findings.len();
            eprintln!(
                "soak: {}, {} s left, {found} findings",
                part.name(),
                left.as_secs()
            );
        }
        let before = state.findings.len();
        part.take_turn(folder, left.min(TURN), state, stop)?;
        state.save(folder)?;
        for finding in &state.findings[before..] {
            eprintln!("{finding}");
        }
    }
    Ok(())
}
