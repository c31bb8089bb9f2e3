//! Runs programs until they end.

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

/// Runs a program with `input` as its standard input and returns what it printed.
pub(crate) fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String, Error> {
    use std::io::Write;

    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let line = command_line(&command);
    let spawn_error = |reason| Error::Spawn {
        command: line.clone(),
        reason,
    };
    let mut child = command.spawn().map_err(spawn_error)?;
    let mut stdin = child.stdin.take().expect("its standard input is a pipe");
    // A program that stops reading its input has failed, and reports the reason itself.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(spawn_error)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    // `Command failed -:3` names a line of the input, which only this function knows.
    let failed = stderr
        .rsplit_once("-:")
        .and_then(|(_, number)| number.trim().parse::<usize>().ok())
        .and_then(|number| input.lines().nth(number.checked_sub(1)?));
    Err(Error::Failed {
        command: failed.map_or(line, |failed| format!("{program} {failed}")),
        stderr: stderr.lines().next().unwrap_or_default().to_owned(),
    })
}

/// Runs a prepared command until it ends; an error carries its standard error.
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
