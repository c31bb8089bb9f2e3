//! How a command fails: the message, the hint and the exit code.

use crate::output;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A transfer or a check failed: exit code 1.
    Failed(Message),
    /// The command cannot be carried out as given: exit code 2.
    Usage(Message),
    /// The reader of our output closed the pipe, which is no error: exit code 0.
    PipeClosed,
}

/// What is printed on stderr.
#[derive(Debug)]
pub(crate) struct Message {
    what: String,
    hint: Option<String>,
}

/// What a command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A transfer or check failed.
    pub(crate) fn failed(what: impl Display) -> Self {
        Self::Failed(Message {
            what: what.to_string(),
            hint: None,
        })
    }

    /// The command cannot be carried out as given.
    pub(crate) fn usage(what: impl Display) -> Self {
        Self::Usage(Message {
            what: what.to_string(),
            hint: None,
        })
    }

    /// An operation on a file or device failed.
    pub(crate) fn io(what: impl Display, error: &io::Error) -> Self {
        Self::failed(format!("{what}: {error}"))
    }

    /// Adds a hint: what the user can do now.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        if let Self::Failed(message) | Self::Usage(message) = &mut self {
            message.hint = Some(hint.to_string());
        }
        self
    }

    /// Adds a hint, unless there is one already.
    pub(crate) fn hint_if_none(self, hint: impl Display) -> Self {
        match &self {
            Self::Failed(message) | Self::Usage(message) if message.hint.is_some() => self,
            _ => self.hint(hint),
        }
    }

    /// The message, without the hint.
    pub(crate) fn what(&self) -> &str {
        match self {
            Self::Failed(message) | Self::Usage(message) => &message.what,
            Self::PipeClosed => "the reader of our output went away",
        }
    }

    /// The hint, if there is one.
    pub(crate) fn advice(&self) -> Option<&str> {
        match self {
            Self::Failed(message) | Self::Usage(message) => message.hint.as_deref(),
            Self::PipeClosed => None,
        }
    }

    /// What to tell the user, if anything.
    pub(crate) fn report(&self) -> Option<String> {
        let (Self::Failed(message) | Self::Usage(message)) = self else {
            return None;
        };
        let mut text = format!("error: {}", message.what);
        if let Some(hint) = &message.hint {
            text.push_str("\n  hint: ");
            text.push_str(hint);
        }
        Some(text)
    }

    /// Reports a failure that does not stop the rest of the command. `what` comes first.
    pub(crate) fn tell_of(&self, what: &str) {
        if let Some(text) = self.report_of(what) {
            output::say(text);
        }
    }

    fn report_of(&self, what: &str) -> Option<String> {
        let report = self.report()?;
        let text = report.trim_start_matches("error: ");
        Some(match text.strip_prefix(what) {
            Some(rest) if rest.starts_with(':') => report,
            _ => format!("error: {what}: {text}"),
        })
    }

    /// The process's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::PipeClosed => ExitCode::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_neither_reported_nor_an_error() {
        assert!(Failure::PipeClosed.report().is_none());
        assert_eq!(Failure::PipeClosed.exit_code(), ExitCode::SUCCESS);
    }

    #[test]
    fn what_failed_is_named_once() {
        let named = |what: &str| Failure::failed(what).report_of("/a").unwrap();
        assert_eq!(named("it is gone"), "error: /a: it is gone");
        assert_eq!(named("/a: it is gone"), "error: /a: it is gone");
        assert_eq!(named("/ab: it is gone"), "error: /a: /ab: it is gone");
    }

    #[test]
    fn the_hint_follows_the_message() {
        let failure = Failure::usage("no such file").hint("try another");
        assert_eq!(
            failure.report().unwrap(),
            "error: no such file\n  hint: try another"
        );
        assert_eq!(failure.exit_code(), ExitCode::from(2));
    }
}
