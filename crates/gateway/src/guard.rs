//! The process that undoes what a node has changed of its machine when the node has ended, even if
//! that was killed.
//!
//! ```text
//! node ── stdin, open as long as it lives ──> guard: holds the lock; at the end of its input it
//!      <── "ready", "busy" ───────────────         removes table, rules and routes, and ends
//! tunnel down ── connects to the lock ──────> guard: tells the node to end
//! ```
//! The lock is a name of the network namespace, which the kernel frees with the process.

use crate::entry::capture;
use crate::exit::ip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{geteuid, getppid};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

/// How long the guard may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a change of the table that was under way when its process was killed may take.
const SETTLE: Duration = Duration::from_millis(300);

/// How long a guard that was left alone may take to leave.
const LEAVING: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

const READY: &str = "ready";
const BUSY: &str = "busy";

/// What a guard undoes. In a network namespace there is one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// A capture of a near end.
    Capture,
    /// What lets clients of a far end send packets of IP.
    Exit,
}

impl Duty {
    async fn undo(self) -> Result<(), GuardError> {
        let failed = |error: &dyn std::error::Error| GuardError::Failed(error.to_string());
        match self {
            Self::Capture => capture::remove()
                .await
                .map(drop)
                .map_err(|error| failed(&error)),
            Self::Exit => ip::remove().await.map(drop).map_err(|error| failed(&error)),
        }
    }
}

/// Why there is no guard, or not everything was undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// Another node has its guard here.
    #[error("another process does the same in this network namespace")]
    Busy,
    /// The guard did not start, or could not do its work.
    #[error("{0}")]
    Failed(String),
}

/// The right to change a network namespace.
#[derive(Debug)]
pub(crate) struct Lock(UnixListener);

impl Lock {
    fn name(duty: Duty) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(match duty {
            Duty::Capture => "anabranch-capture",
            Duty::Exit => "anabranch-exit",
        })
    }

    /// Takes it, unless somebody has it.
    fn take(duty: Duty) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&Self::name(duty)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Takes it, or gives up if somebody keeps it. A guard whose node was killed, and is started
    /// again at once, takes a moment to leave.
    async fn wait(duty: Duty) -> Option<Self> {
        let deadline = Instant::now() + LEAVING;
        loop {
            match Self::take(duty) {
                Ok(lock) => return Some(lock),
                Err(_) if Instant::now() < deadline => sleep(POLL).await,
                Err(_) => return None,
            }
        }
    }

    pub(crate) fn is_taken(duty: Duty) -> bool {
        Self::name(duty).is_ok_and(|name| UnixStream::connect_addr(&name).is_ok())
    }

    /// Asks who has it to end; returns whether there is somebody.
    pub(crate) async fn ask_owner(duty: Duty) -> bool {
        let asked = spawn_blocking(move || Self::is_taken(duty)).await;
        asked.unwrap_or(false)
    }

    /// Waits for the next who asks, and may.
    async fn asked(listener: &tokio::net::UnixListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let who = stream.peer_cred()?.uid();
            if who == 0 || who == geteuid().as_raw() {
                return Ok(());
            }
        }
    }
}

/// The guard, seen from the node.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Until this is closed.
    input: ChildStdin,
    /// Whether it has ended.
    ended: watch::Receiver<bool>,
}

impl Guard {
    pub(crate) async fn start(mut command: Command) -> Result<Self, GuardError> {
        let failed = |error: io::Error| GuardError::Failed(error.to_string());
        // An interrupt from the terminal is not for it.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let first = spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        let line = match timeout(PATIENCE, first).await {
            Ok(Ok(line)) => line.map_err(failed)?,
            _ => return Err(failed(io::ErrorKind::TimedOut.into())),
        };
        match line.trim() {
            READY => {}
            BUSY => return Err(GuardError::Busy),
            other => return Err(GuardError::Failed(format!("it says `{other}`"))),
        }
        let (told, ended) = watch::channel(false);
        spawn_blocking(move || {
            // It can be waited for once, here.
            let _ = child.wait();
            told.send_replace(true);
        });
        Ok(Self { input, ended })
    }

    /// Waits until it has ended, as it should not before it is stopped.
    pub(crate) async fn ended(&mut self) {
        // An error means that the task that waits for it is gone.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }

    /// Ends it, and waits until it has undone everything; returns whether it was there to do so.
    pub(crate) async fn stop(mut self) -> bool {
        if *self.ended.borrow() {
            return false;
        }
        // One byte: nothing is under way any more.
        let _ = self.input.write_all(b".");
        drop(self.input);
        let ended = self.ended.wait_for(|ended| *ended);
        timeout(PATIENCE, ended).await.is_ok()
    }
}

/// What the guard does. With `keep`, the table stays and blocks what was captured.
///
/// # Errors
///
/// Not everything was undone.
pub async fn guard(duty: Duty, keep: bool) -> Result<(), GuardError> {
    let failed = |error: io::Error| GuardError::Failed(error.to_string());
    // These end the node, and the end of that ends this.
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let _ignored = kinds.map(signal);
    let parent = getppid();
    let Some(Lock(lock)) = Lock::wait(duty).await else {
        return say(BUSY).map_err(failed);
    };
    let lock = tokio::net::UnixListener::from_std(lock).map_err(failed)?;
    say(READY).map_err(failed)?;
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    let count = loop {
        tokio::select! {
            count = input.read(&mut byte) => break count.unwrap_or(0),
            asked = Lock::asked(&lock) => match asked {
                // Another process has its number if it has ended.
                Ok(()) if getppid() == parent => drop(kill(parent, Signal::SIGTERM)),
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!("nobody can be heard: {error}");
                    sleep(SETTLE).await;
                }
            },
        }
    };
    if keep {
        return Ok(());
    }
    duty.undo().await?;
    if count == 0 {
        sleep(SETTLE).await;
        duty.undo().await?;
    }
    Ok(())
}

fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{word}")?;
    out.flush()
}
