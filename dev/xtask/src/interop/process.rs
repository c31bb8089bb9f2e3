//! Programs with bounded lives, and what they wrote.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(5);
/// How long a server may take until it listens, on a machine that is busy.
const START: Duration = Duration::from_secs(30);

/// A program that is ended with this at the latest. What it writes goes to files.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Running {
    /// Starts a program; `NAME.out` and `NAME.err` in `logs` take what it says.
    pub(crate) fn start(logs: &Path, name: &str, command: &mut Command) -> Result<Self, String> {
        let file = |extension: &str| {
            let path = logs.join(format!("{name}.{extension}"));
            File::create(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let (output, errors) = (file("out")?, file("err")?);
        // A failing case can be repeated by hand from this.
        fs::write(
            logs.join(format!("{name}.command")),
            format!("{command:?}\n"),
        )
        .map_err(|e| e.to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("{}: {e}", command.get_program().display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            output: logs.join(format!("{name}.out")),
        })
    }

    /// Its number.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has bound this address. Trying to bind it here would take it from the server.
    pub(crate) fn listens(&mut self, address: SocketAddr) -> Result<(), String> {
        let until = Instant::now() + START;
        loop {
            // First: of a process that has ended there is nothing to read.
            self.check_alive()?;
            if is_bound(self.child.id(), address.port())? {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("{} does not listen after {START:?}", self.name));
            }
            sleep(TICK);
        }
    }

    /// Waits until it has written a line that begins like this.
    pub(crate) fn says(&mut self, beginning: &str) -> Result<(), String> {
        self.says_more(beginning, 0)
    }

    /// Lines so far that begin like this.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        let said = self.said();
        said.lines()
            .filter(|line| line.starts_with(beginning))
            .count()
    }

    /// Waits until it has written more than so many such lines.
    pub(crate) fn says_more(&mut self, beginning: &str, than: usize) -> Result<(), String> {
        let until = Instant::now() + START;
        while self.count(beginning) <= than {
            self.check_alive()?;
            if Instant::now() > until {
                return Err(format!("{} does not say `{beginning}`", self.name));
            }
            sleep(TICK);
        }
        Ok(())
    }

    /// Waits until it has written this to standard error.
    pub(crate) fn tells(&mut self, words: &str) -> Result<(), String> {
        let until = Instant::now() + START;
        while !self.told().contains(words) {
            self.check_alive()?;
            if Instant::now() > until {
                return Err(format!("{} does not tell `{words}`", self.name));
            }
            sleep(TICK);
        }
        Ok(())
    }

    /// Everything it wrote to standard error so far.
    pub(crate) fn told(&self) -> String {
        fs::read_to_string(self.output.with_extension("err")).unwrap_or_default()
    }

    fn check_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{} ended early, {status}", self.name)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits for its end; it must be a good one.
    pub(crate) fn succeeds(&mut self, within: Duration) -> Result<(), String> {
        let until = Instant::now() + within;
        loop {
            match self.child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{} failed, {status}", self.name)),
                None if Instant::now() > until => {
                    return Err(format!("{} is not through after {within:?}", self.name));
                }
                None => sleep(TICK),
            }
        }
    }

    /// Everything it wrote to standard output so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }
}

/// Whether a UDP socket of the network namespace that this process is in has this port.
fn is_bound(process: u32, port: u16) -> Result<bool, String> {
    let end = format!(":{port:04X}");
    for table in ["udp", "udp6"] {
        let table = format!("/proc/{process}/net/{table}");
        let sockets = fs::read_to_string(&table).map_err(|e| format!("{table}: {e}"))?;
        let mut local = sockets
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        if local.any(|address| address.ends_with(&end)) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end, within a bound; what it wrote is in the error if it failed.
pub(crate) fn finish(
    folder: &Path,
    name: &str,
    command: &mut Command,
    within: Duration,
) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut running = Running::start(folder, name, command)?;
    running.succeeds(within).map_err(|error| {
        let said = fs::read_to_string(folder.join(format!("{name}.err"))).unwrap_or_default();
        let last = said.trim().lines().last().unwrap_or("").to_owned();
        format!("{error}: {last}")
    })
}
