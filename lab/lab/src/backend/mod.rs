//! What can run a scenario.

mod agents;
mod conduct;
mod drawn;
pub mod host;
mod jobs;
pub mod netns;
mod notes;
mod refusal;
pub mod sim;

use crate::plan::Run;
use crate::results::{Outcome, Status};
use std::fmt::Debug;

pub use conduct::Conduct;
pub use notes::Note;

/// Runs scenarios, several at a time.
pub trait Backend: Debug + Send + Sync {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// Runs one. Whatever goes wrong is reported in the outcome's status.
    fn run(&self, run: &Run) -> Outcome;

    /// Whether links have the rates, delays and losses of the scenario.
    fn shapes_links(&self) -> bool {
        true
    }

    /// What runs it, as a hash: results of different programs are not mixed.
    fn program(&self) -> String {
        crate::campaign::binary_hash()
    }

    /// Whether this run cannot go beside others of its kind: such runs take place one after
    /// another, beside those that can.
    fn takes_turns(&self, _run: &Run) -> bool {
        false
    }

    /// Whether the user aborted the last run, so that its outcome means nothing.
    fn was_broken_off(&self) -> bool {
        false
    }
}

fn ended(status: Status, reason: &str) -> Outcome {
    Outcome {
        status,
        reason: reason.to_owned(),
        ..Outcome::default()
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "panic: {}",
        text.unwrap_or_else(|| "without a message".to_owned())
    )
}
