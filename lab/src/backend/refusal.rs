//! Why a run in real kernels has no outcome of its own.

use anabranch_emulate::Error as LinkError;
use std::fmt;

/// Why something was not made or not carried out.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nothing here can do what the scenario asks for.
    Unsupported(String),
    /// Something went wrong.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unsupported(what) | Self::Failed(what)) = self;
        f.write_str(what)
    }
}

impl From<anabranch_testbed::Error> for Refusal {
    fn from(error: anabranch_testbed::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Unsupported { .. } => Self::Unsupported(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Why a run has no outcome of its own.
#[derive(Debug)]
pub(super) enum Broken {
    /// It was refused or went wrong.
    Refused(Refusal),
    /// The user broke it off.
    Off,
}

impl From<Refusal> for Broken {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
