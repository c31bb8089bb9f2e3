//! How runs in real kernels are conducted, whatever their network: what is kept beside an outcome,
//! and which outcome a run gets if it produced none itself.

use super::refusal::{Broken, Refusal};
use super::{Note, ended, panic_message};
use crate::results::{Outcome, Status};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a campaign asks of its runs.
#[derive(Debug, Clone, Default)]
pub struct Conduct {
    /// Where qlog files go, in a folder for each run that records them.
    pub qlog: Option<PathBuf>,
    /// The file to which a [`Note`] is added for each run.
    pub notes_file: Option<PathBuf>,
    /// Once set, the current run is aborted, and what it built is removed.
    pub abort: Arc<AtomicBool>,
}

impl Conduct {
    pub(super) fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// Keeps what is known of a run beyond its outcome.
    pub(super) fn keep(&self, note: &Note) -> Result<(), Refusal> {
        let Some(file) = &self.notes_file else {
            return Ok(());
        };
        let kept = note.append(file);
        kept.map_err(|error| Refusal::Failed(format!("{}: {error}", file.display())))
    }
}

/// The runs of a backend, one after the other. Each gets an outcome, whatever happens, and whether
/// the user aborted the last one is remembered.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    broken_off: AtomicBool,
}

impl Attempts {
    /// The outcome of a run, whatever happens. A panic must not end the campaign: unwinding removes
    /// what the run built, and agents notice that the laboratory has gone.
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

    /// Whether the user aborted the last run.
    pub(super) fn was_broken_off(&self) -> bool {
        self.broken_off.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(attempts: &Attempts, result: Result<Outcome, Broken>) -> (Status, String) {
        let outcome = attempts.outcome(|| result);
        (outcome.status, outcome.reason)
    }

    #[test]
    fn a_run_that_ended_keeps_its_outcome_and_gets_the_time_it_took() {
        let attempts = Attempts::default();
        let outcome = attempts.outcome(|| {
            Ok(Outcome {
                status: Status::Timeout,
                reason: "late".to_owned(),
                bytes: 7,
                wall_s: -1.0,
                ..Outcome::default()
            })
        });
        assert_eq!(outcome.status, Status::Timeout);
        assert_eq!((&*outcome.reason, outcome.bytes), ("late", 7));
        assert!(outcome.wall_s >= 0.0, "{}", outcome.wall_s);
        assert!(!attempts.was_broken_off());
    }

    #[test]
    fn what_was_refused_is_unsupported_or_failed_and_says_why() {
        let attempts = Attempts::default();
        let refused = |refusal: Refusal| told(&attempts, Err(refusal.into()));
        let unsupported = refused(Refusal::Unsupported("no such link".to_owned()));
        assert_eq!(
            unsupported,
            (Status::Unsupported, "no such link".to_owned())
        );
        let failed = refused(Refusal::Failed("no agent answers".to_owned()));
        assert_eq!(failed, (Status::Failed, "no agent answers".to_owned()));
        assert!(!attempts.was_broken_off());
    }

    #[test]
    fn a_run_that_was_broken_off_is_told_apart_until_the_next_one() {
        let attempts = Attempts::default();
        let off = told(&attempts, Err(Broken::Off));
        assert_eq!(off, (Status::Failed, "broken off".to_owned()));
        assert!(attempts.was_broken_off());
        let next = told(&attempts, Ok(Outcome::default()));
        assert_eq!(next.0, Status::Ok);
        assert!(!attempts.was_broken_off());
    }

    #[test]
    fn a_panic_is_a_failed_run_and_the_next_one_goes_on() {
        let attempts = Attempts::default();
        let outcome = attempts.outcome(|| panic!("the link is gone"));
        assert_eq!(outcome.status, Status::Failed);
        assert_eq!(outcome.reason, "panic: the link is gone");
        assert!(!attempts.was_broken_off());
        assert_eq!(told(&attempts, Ok(Outcome::default())).0, Status::Ok);
    }
}
