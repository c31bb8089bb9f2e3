//! Where output goes: data to stdout, messages to stderr.

pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod units;

use crate::failure::{Failure, Outcome};
use anabranch_proto::error::printable;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Characters per line if the width of the output is unknown.
const WIDTH: usize = 100;

/// Writes one line of data.
pub(crate) fn data(line: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    let result = writeln!(out, "{line}").and_then(|()| out.flush());
    result.map_err(|error| write_failure(&error))
}

/// Writes bytes as they are.
pub(crate) fn raw(bytes: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    let result = out.write_all(bytes).and_then(|()| out.flush());
    result.map_err(|error| write_failure(&error))
}

/// Writes one JSON object on a line of its own.
pub(crate) fn json(value: &impl Serialize) -> Outcome {
    match serde_json::to_string(value) {
        Ok(text) => data(text),
        Err(error) => Err(Failure::failed(format!(
            "cannot write the result as JSON: {error}"
        ))),
    }
}

/// Prints a message for the person at the terminal. It is no error if nobody reads it. No escape
/// sequence gets through, whoever wrote parts of the text.
pub(crate) fn say(text: impl Display) {
    let text = text.to_string();
    let fit = |line: &str| {
        line.split('\t')
            .map(printable)
            .collect::<Vec<_>>()
            .join("\t")
    };
    let lines = text.split('\n').map(|line| fit(line) + "\n");
    let _ = io::stderr()
        .lock()
        .write_all(lines.collect::<String>().as_bytes());
}

/// How many characters fit in a line of data; a default if stdout is no terminal.
pub(crate) fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    terminal.map_or(WIDTH, |(width, _)| usize::from(width.0))
}

/// Whether a person is looking.
pub(crate) fn is_interactive() -> bool {
    io::stderr().is_terminal()
}

fn write_failure(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::PipeClosed
    } else {
        Failure::io("cannot write to stdout", error)
    }
}
