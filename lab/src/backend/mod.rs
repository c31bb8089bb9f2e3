//! What can run a scenario.

mod drawn;
pub mod sim;

use crate::plan::Run;
use crate::results::Outcome;
use std::fmt::Debug;

/// Runs scenarios, several at a time.
pub trait Backend: Debug + Send + Sync {
    /// Its name in results.
    fn name(&self) -> &'static str;

    /// Runs one. Whatever goes wrong is told by the outcome's status.
    fn run(&self, run: &Run) -> Outcome;

    /// Whether the user broke off the run that came last, so that its outcome means nothing.
    fn was_broken_off(&self) -> bool {
        false
    }
}
