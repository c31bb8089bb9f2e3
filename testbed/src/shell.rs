//! Running programs to their end.

use std::process::{Command, Stdio};

use crate::Error;

/// Runs a program and returns what it printed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.args(arguments);
    output(&mut command)
}

pub(crate) fn ip(arguments: &[&str]) -> Result<String, Error> {
    run("ip", arguments)
}

/// Runs a prepared command to its end; a failure carries what it wrote to standard error.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let line = command_line(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|reason| Error::Spawn {
            command: line.clone(),
            reason,
        })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Failed {
            command: line,
            stderr,
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a person would type it, for messages.
pub(crate) fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
