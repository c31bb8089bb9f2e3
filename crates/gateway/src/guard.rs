//! The process that undoes what a node has changed of its machine when the node has ended, even if
//! that was killed.
//!
//! ```text
//! node ── stdin, open as long as it lives ──> guard: holds the lock; at the end of its input it
//!      <── "ready", "busy" ───────────────         removes table, rules and routes, and ends
//! tunnel down ── connects to the lock ──────> guard: tells the node to end
//! ```
//! The lock is a name of the network namespace, which the kernel frees with the process.
//!
//! A node that hands its device to somebody who keeps it may be followed by another one, which
//! needs all that. So its guard gives the lock back and waits for as long as the device is there,
//! and leaves everything to whoever takes the lock meanwhile.

use crate::entry::capture;
use crate::exit::ip;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid, getppid};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{self, SignalKind};
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
/// How long what the next process needs may wait for it. Names that it looks up before it starts
/// may be among what is blocked meanwhile.
const SUCCESSION: Duration = Duration::from_secs(20);

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
        self.say_done();
        drop(self.input);
        let ended = self.ended.wait_for(|ended| *ended);
        timeout(PATIENCE, ended).await.is_ok()
    }

    /// Leaves it behind: it undoes everything unless another process takes over what there is.
    pub(crate) fn leave(mut self) {
        self.say_done();
    }

    /// One byte: nothing is under way any more.
    fn say_done(&mut self) {
        let _ = self.input.write_all(b".");
    }
}

/// What ends a node, and by that its guard. Whoever sends one to a guard as well ends all processes
/// of a service, and waits for each.
struct Signals([Option<unix::Signal>; 2]);

impl Signals {
    fn hear() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        // One that cannot be heard ends this process.
        Self(kinds.map(|kind| unix::signal(kind).ok()))
    }

    /// Waits for one, or one that came before.
    async fn heard(&mut self) {
        let [first, second] = &mut self.0;
        let heard = async |signal: &mut Option<unix::Signal>| match signal {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        };
        tokio::select! {
            () = heard(first) => {}
            () = heard(second) => {}
        }
    }
}

/// What the guard does. With `keep`, the table stays and blocks what was captured. `device` is the
/// one that the node hands to somebody who keeps it.
///
/// # Errors
///
/// Not everything was undone.
pub async fn guard(duty: Duty, keep: bool, device: Option<&str>) -> Result<(), GuardError> {
    let failed = |error: io::Error| GuardError::Failed(error.to_string());
    // These end the node, and the end of that ends this.
    let mut signals = Signals::hear();
    let parent = getppid();
    let Some(Lock(lock)) = Lock::wait(duty).await else {
        return say(BUSY).map_err(failed);
    };
    let lock = tokio::net::UnixListener::from_std(lock).map_err(failed)?;
    say(READY).map_err(failed)?;
    let was_killed = outlive(parent, &lock).await;
    if keep {
        return Ok(());
    }
    let lock = match device.filter(|device| is_there(device)) {
        None => lock,
        Some(device) => {
            drop(lock);
            tokio::select! {
                () = succeeded(duty) => return Ok(()),
                () = is_gone(device) => {}
                () = signals.heard() => {}
                () = sleep(SUCCESSION) => {}
            }
            let Some(Lock(lock)) = Lock::wait(duty).await else {
                return Ok(());
            };
            tokio::net::UnixListener::from_std(lock).map_err(failed)?
        }
    };
    duty.undo().await?;
    if was_killed {
        sleep(SETTLE).await;
        duty.undo().await?;
    }
    drop(lock);
    Ok(())
}

/// Waits for the end of the node; returns whether it was killed.
async fn outlive(parent: Pid, lock: &tokio::net::UnixListener) -> bool {
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    loop {
        tokio::select! {
            count = input.read(&mut byte) => return count.unwrap_or(0) == 0,
            asked = Lock::asked(lock) => match asked {
                // Another process has its number if it has ended.
                Ok(()) if getppid() == parent => drop(kill(parent, Signal::SIGTERM)),
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!("nobody can be heard: {error}");
                    sleep(SETTLE).await;
                }
            },
        }
    }
}

fn is_there(device: &str) -> bool {
    if_nametoindex(device).is_ok()
}

async fn is_gone(device: &str) {
    while is_there(device) {
        sleep(POLL).await;
    }
}

/// Waits until another guard has the lock.
async fn succeeded(duty: Duty) {
    while Lock::take(duty).is_ok() {
        sleep(POLL).await;
    }
}

fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{word}")?;
    out.flush()
}
