//! A host that runs an agent, however it is reached.

use super::{Answer, Ask};
use std::fmt::Debug;
use std::time::Duration;

/// The most bytes a line to or from an agent may have: room for a report of a long run with its
/// series and decisions.
pub const MAX_LINE: usize = 512 << 20;

/// The most bytes a line to an agent may have: a job is small.
pub const MAX_ASK: usize = 1 << 20;

/// Why a host does not answer.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It could not be started or reached.
    #[error("{host}: cannot be reached: {why}")]
    Unreachable {
        /// The host's name.
        host: String,
        /// What went wrong.
        why: String,
    },
    /// Its agent is gone.
    #[error("{host}: its agent ended{}", colon(why))]
    Ended {
        /// The host's name.
        host: String,
        /// What the agent said last, if anything.
        why: String,
    },
    /// It said nothing in time.
    #[error("{host}: no answer within {:.1} s", waited.as_secs_f64())]
    Silent {
        /// The host's name.
        host: String,
        /// How long it had.
        waited: Duration,
    },
    /// It said something that is no answer.
    #[error("{host}: cannot understand its answer: {why}")]
    Garbled {
        /// The host's name.
        host: String,
        /// What is wrong with it.
        why: String,
    },
}

fn colon(why: &str) -> String {
    if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    }
}

/// A host that can be asked. Dropping it ends its agent.
pub trait Host: Debug + Send {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// Asks it something; the answers come in their own time.
    ///
    /// # Errors
    /// Its agent is gone.
    fn ask(&mut self, ask: Ask) -> Result<(), HostError>;

    /// The next thing it says, waiting for at most so long.
    ///
    /// # Errors
    /// It said nothing, something that is no answer, or its agent is gone.
    fn answer(&mut self, timeout: Duration) -> Result<Answer, HostError>;
}
