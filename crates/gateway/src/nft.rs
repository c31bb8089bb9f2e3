//! The program `nft`, with a bound on how long it may take.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// How long it may take: a busy router of the slow kind needs less than one of them.
const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// Why the firewall is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NftError {
    /// There is no such program.
    #[error("there is no program `nft`")]
    Missing,
    /// It could not be run, or refused.
    #[error("{0}")]
    Failed(String),
}

/// Whether it is there.
pub(crate) fn check() -> Result<(), NftError> {
    nft(&["--version"], "")
}

/// Carries out commands, all of them at once or none.
pub(crate) async fn load(text: String) -> Result<(), NftError> {
    on_thread(move || nft(&["-f", "-"], &text)).await
}

/// Removes a table; returns whether there was one.
pub(crate) async fn unload(name: &'static str) -> Result<bool, NftError> {
    let removed = on_thread(move || nft(&["delete", "table", "inet", name], "")).await;
    match removed {
        Ok(()) => Ok(true),
        Err(NftError::Failed(said)) if said.contains("No such file") => Ok(false),
        // Nobody can have made one.
        Err(NftError::Missing) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn on_thread(
    work: impl FnOnce() -> Result<(), NftError> + Send + 'static,
) -> Result<(), NftError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(NftError::Failed(error.to_string())))
}

/// Runs it with these arguments and this input, which is short enough for a pipe or is read.
fn nft(arguments: &[&str], input: &str) -> Result<(), NftError> {
    let failed = |error: io::Error| NftError::Failed(error.to_string());
    let mut command = Command::new("nft");
    command
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NftError::Missing,
        _ => failed(error),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // What it does not read it complains about.
        let _ = stdin.write_all(input.as_bytes());
    }
    if !wait(&mut child).map_err(failed)? {
        return Err(NftError::Failed(format!("nft takes more than {LIMIT:?}")));
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).map_err(failed)?;
    }
    if child.wait().map_err(failed)?.success() {
        Ok(())
    } else {
        Err(NftError::Failed(format!("nft: {}", said.trim())))
    }
}

/// Waits for the end of a process, or ends it; returns whether it has ended by itself.
fn wait(child: &mut Child) -> io::Result<bool> {
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(POLL);
    }
    Ok(true)
}
