//! A host that runs an agent, however it is reached.

use super::{Answer, Ask};
use std::fmt::Debug;
use std::time::Duration;

/// The longest line to or from an agent, in bytes: room for the report of a long run with its
/// series and decisions.
pub const MAX_LINE: usize = 512 << 20;

/// The longest line to an agent, in bytes: a job is small.
pub const MAX_ASK: usize = 1 << 20;

/// Why a host does not answer.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The host could not be started or reached.
    #[error("{host}: cannot be reached: {why}")]
    Unreachable {
        /// The host's name.
        host: String,
        /// What went wrong.
        why: String,
    },
    /// The host's agent has ended.
    #[error("{host}: its agent ended{}", colon(why))]
    Ended {
        /// The host's name.
        host: String,
        /// The agent's last output, if any.
        why: String,
    },
    /// The host did not answer in time.
    #[error("{host}: no answer within {:.1} s", waited.as_secs_f64())]
    Silent {
        /// The host's name.
        host: String,
        /// How long the laboratory waited.
        waited: Duration,
    },
    /// The host's answer could not be understood.
    #[error("{host}: cannot understand its answer: {why}")]
    Garbled {
        /// The host's name.
        host: String,
        /// What is wrong with the answer.
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
    /// The host's name, for messages.
    fn name(&self) -> &str;

    /// Sends it a request; the answers come later.
    ///
    /// # Errors
    /// Its agent has ended.
    fn ask(&mut self, ask: Ask) -> Result<(), HostError>;

    /// Returns its next answer, after waiting at most `timeout`.
    ///
    /// # Errors
    /// It said nothing, its answer was not understood, or its agent has ended.
    fn answer(&mut self, timeout: Duration) -> Result<Answer, HostError>;
}
