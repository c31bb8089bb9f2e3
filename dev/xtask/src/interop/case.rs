//! A case: a feature in one role, how it is tried, and what came of it.

use super::cases::Bench;
use std::fmt;

/// Who is client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    TheirClient,
    OurClient,
}

impl Role {
    pub(crate) const BOTH: [Self; 2] = [Self::TheirClient, Self::OurClient];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::TheirClient => "their client",
            Self::OurClient => "our client",
        }
    }
}

pub(crate) type Work = Box<dyn Fn(&mut Bench<'_>) -> Result<(), String>>;

pub(crate) enum How {
    Run(Work),
    /// Why it cannot be tried: what the peer lacks, or what we do.
    Cannot(&'static str),
}

pub(crate) struct Case {
    pub(crate) feature: &'static str,
    pub(crate) role: Role,
    pub(crate) how: How,
}

impl Case {
    pub(crate) fn run(
        feature: &'static str,
        role: Role,
        work: impl Fn(&mut Bench<'_>) -> Result<(), String> + 'static,
    ) -> Self {
        let how = How::Run(Box::new(work));
        Self { feature, role, how }
    }

    pub(crate) fn cannot(feature: &'static str, role: Role, why: &'static str) -> Self {
        let how = How::Cannot(why);
        Self { feature, role, how }
    }

    pub(crate) fn title(&self) -> String {
        format!("{}, {}", self.feature, self.role.label())
    }

    /// Runs it. The logs stay only if it failed.
    pub(crate) fn perform(&self, mut bench: Bench<'_>) -> Outcome {
        let work = match &self.how {
            How::Cannot(why) => return Outcome::Cannot(why),
            How::Run(work) => work,
        };
        let result = work(&mut bench);
        let logs = bench.finish(result.is_err());
        match result {
            Ok(()) => Outcome::Passed,
            Err(reason) if reason.starts_with(NOT_RUN) => {
                Outcome::NotRun(reason[NOT_RUN.len()..].to_owned())
            }
            Err(reason) => Outcome::Failed(format!("{reason}; logs: {}", logs.display())),
        }
    }

    pub(crate) fn row(&self, outcome: Outcome) -> Row {
        Row {
            feature: self.feature.to_owned(),
            role: self.role,
            outcome,
        }
    }
}

/// Beginning of a result that means: this machine cannot, nothing was found out.
pub(crate) const NOT_RUN: &str = "not run: ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    NotRun(String),
    Cannot(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Failed(why) => write!(f, "FAIL ({why})"),
            Self::NotRun(why) => write!(f, "not run ({why})"),
            Self::Cannot(why) => write!(f, "cannot ({why})"),
        }
    }
}

/// A line of the table, before roles are put side by side.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) feature: String,
    pub(crate) role: Role,
    pub(crate) outcome: Outcome,
}

impl Row {
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}
