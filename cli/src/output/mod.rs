//! Where output goes: data to stdout, messages to stderr.

pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod units;

use crate::failure::{Failure, Outcome};
use anabranch_proto::error::printable;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Whether messages go to the log, because this is no command.
static HUSHED: AtomicBool = AtomicBool::new(false);

/// Whether messages are lines of JSON, for programs.
static AS_JSON: AtomicBool = AtomicBool::new(false);

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

/// From now on, messages go to the log and not to stderr.
pub(crate) fn hush() {
    HUSHED.store(true, Ordering::Relaxed);
}

/// From now on, messages are lines of JSON with the fields that the log has.
pub(crate) fn say_as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Prints a message for the person at the terminal. It is no error if nobody reads it. No escape
/// sequence gets through, whoever wrote parts of the text.
pub(crate) fn say(text: impl Display) {
    let text = text.to_string();
    if HUSHED.load(Ordering::Relaxed) {
        tracing::info!("{}", printable(&text));
        return;
    }
    if AS_JSON.load(Ordering::Relaxed) {
        let line = json_line(&text, SystemTime::now()) + "\n";
        let _ = io::stderr().lock().write_all(line.as_bytes());
        return;
    }
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

/// A message as a line of the log.
fn json_line(text: &str, now: SystemTime) -> String {
    let timestamp = humantime::format_rfc3339_micros(now).to_string();
    let line = serde_json::json!({"timestamp": timestamp, "level": "INFO", "message": text});
    line.to_string()
}

/// How many characters fit in a line of data; a default if stdout is no terminal.
pub(crate) fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    terminal.map_or(WIDTH, |(width, _)| usize::from(width.0))
}

/// Whether a person is looking.
pub(crate) fn is_interactive() -> bool {
    io::stderr().is_terminal() && !AS_JSON.load(Ordering::Relaxed)
}

fn write_failure(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::PipeClosed
    } else {
        Failure::io("cannot write to stdout", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_for_programs_is_one_line_with_time_level_and_text() {
        let line = json_line("two\nlines \u{1b}[31m", SystemTime::UNIX_EPOCH);
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["timestamp"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(
            (&read["level"], &read["message"]),
            (&"INFO".into(), &"two\nlines \u{1b}[31m".into())
        );
    }
}
