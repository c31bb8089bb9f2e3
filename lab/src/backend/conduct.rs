//! How runs in real kernels are conducted, whatever their network: what is kept beside an outcome,
//! and what becomes of a run that has none of its own.

use super::refusal::{Broken, Refusal};
use super::{Note, ended, panic_message};
use crate::results::{Outcome, Status};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a campaign wants of its runs.
#[derive(Debug, Clone, Default)]
pub struct Conduct {
    /// Where qlog files go, in a folder for each run that records them.
    pub qlog: Option<PathBuf>,
    /// The file to which a [`Note`] is added for each run.
    pub notes_file: Option<PathBuf>,
    /// Once set, the run under way is broken off, and what it built is removed.
    pub abort: Arc<AtomicBool>,
}

impl Conduct {
    pub(super) fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// Keeps what is known of a run besides its outcome.
    pub(super) fn keep(&self, note: &Note) -> Result<(), Refusal> {
        let Some(file) = &self.notes_file else {
            return Ok(());
        };
        let kept = note.append(file);
        kept.map_err(|error| Refusal::Failed(format!("{}: {error}", file.display())))
    }
}

/// Runs one after the other.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    broken_off: AtomicBool,
}

impl Attempts {
    /// The outcome of a run, whatever becomes of it. A panic must not take the campaign with it:
    /// unwinding removes what the run built, and agents notice that nobody asks.
    pub(super) fn outcome(&self, carry_out: impl FnOnce() -> Result<Outcome, Broken>) -> Outcome {
        let started = Instant::now();
        self.broken_off.store(false, Ordering::Relaxed);
        let mut outcome = match catch_unwind(AssertUnwindSafe(carry_out)) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(Broken::Refused(Refusal::Unsupported(what)))) => {
                ended(Status::Unsupported, &what)
            }
            Ok(Err(Broken::Refused(Refusal::Failed(what)))) => ended(Status::Failed, &what),
            Ok(Err(Broken::Off)) => {
                self.broken_off.store(true, Ordering::Relaxed);
                ended(Status::Failed, "broken off")
            }
            Err(panic) => ended(Status::Failed, &panic_message(panic.as_ref())),
        };
        outcome.wall_s = started.elapsed().as_secs_f64();
        outcome
    }

    /// Whether the user broke off the run that came last.
    pub(super) fn was_broken_off(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed)
    }
}
