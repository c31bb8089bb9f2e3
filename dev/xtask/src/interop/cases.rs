//! What cases have at hand: files to move, addresses, servers that wait, checks.

use super::Shop;
use super::case::Case;
use super::install::{Installed, Ours};
use super::links::{Links, SERVER};
use super::process::Running;
use anabranch_testbed::Relay;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A case takes seconds; a busy machine gets more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// Bytes of a file for stacks that move some ten megabytes a second.
const FILE: usize = 4_000_000;
/// The file every server offers.
pub(crate) const NAME: &str = "file.bin";

/// One case's place.
pub(crate) struct Bench<'a> {
    pub(crate) shop: &'a Shop,
    pub(crate) ours: &'a Ours,
    pub(crate) theirs: &'a Installed,
    /// What programs write, and what is kept of a failing case.
    pub(crate) logs: PathBuf,
    /// What servers offer and take.
    pub(crate) root: PathBuf,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        shop: &'a Shop,
        ours: &'a Ours,
        theirs: &'a Installed,
        peer: &str,
        case: &Case,
    ) -> Self {
        let title: String = case
            .title()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let logs = shop.cache.join("logs").join(peer).join(title);
        // Of an earlier run, if there was one.
        let _ = fs::remove_dir_all(&logs);
        let root = logs.join("root");
        Self {
            shop,
            ours,
            theirs,
            logs,
            root,
        }
    }

    /// Leaves the logs if something went wrong. Returns where they are.
    pub(crate) fn finish(self, failed: bool) -> PathBuf {
        let leftover = if failed { &self.root } else { &self.logs };
        // It is not there if the case had no files.
        let _ = fs::remove_dir_all(leftover);
        self.logs
    }

    /// The folder for logs, made.
    pub(crate) fn logs(&self) -> Result<&Path, String> {
        fs::create_dir_all(&self.logs).map_err(|e| e.to_string())?;
        Ok(&self.logs)
    }

    /// A file to move, the same every time. Returns where a server finds it.
    pub(crate) fn offer_file(&self) -> Result<PathBuf, String> {
        fs::create_dir_all(&self.root).map_err(|e| e.to_string())?;
        let mut word = 1_u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (word >> 56) as u8
        })
        .take(FILE)
        .collect();
        let file = self.root.join(NAME);
        fs::write(&file, bytes).map_err(|e| e.to_string())?;
        Ok(file)
    }

    /// Whether what arrived is the file that was offered.
    pub(crate) fn compare(&self, arrived: &Path) -> Result<(), String> {
        let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let (sent, arrived) = (read(&self.root.join(NAME))?, read(arrived)?);
        ensure(sent == arrived, || {
            format!(
                "{} of {} bytes arrived, or others",
                arrived.len(),
                sent.len()
            )
        })
    }

    pub(crate) fn start(&self, name: &str, command: &mut Command) -> Result<Running, String> {
        Running::start(self.logs()?, name, command)
    }

    /// `anabranch serve` of the files, listening on the loopback interface.
    pub(crate) fn serve(&self, options: &[&str]) -> Result<(SocketAddr, Running), String> {
        let address = free(1)?;
        let command = Command::new(&self.ours.anabranch);
        Ok((address, self.serve_by(command, address, options)?))
    }

    /// Starts our server on the server's host of these links.
    pub(crate) fn serve_behind(&self, links: &Links, options: &[&str]) -> Result<Running, String> {
        self.serve_by(links.on_server(&self.ours.anabranch), SERVER, options)
    }

    fn serve_by(
        &self,
        mut command: Command,
        address: SocketAddr,
        options: &[&str],
    ) -> Result<Running, String> {
        command
            .args([
                "serve",
                "--listen",
                &address.to_string(),
                "--writable",
                "--root",
            ])
            .arg(&self.root)
            .arg("--cert")
            .arg(&self.ours.cert)
            .arg("--key")
            .arg(&self.ours.key)
            .args(options);
        let mut running = self.start("our-server", &mut command)?;
        running.listens(address)?;
        Ok(running)
    }

    /// Fetches through a NAT that takes another port on the way.
    pub(crate) fn get_through_nat(&self, server: SocketAddr) -> Result<String, String> {
        let relay = Relay::start(free(1)?, server).map_err(|e| e.to_string())?;
        relay.rebind_after(BEFORE_REBINDING);
        let said = self.get(relay.addr().port())?;
        ensure(relay.rebinds() > 0, || "the NAT forgot nothing".to_owned())?;
        Ok(said)
    }

    /// `anabranch get` of the file from a server of theirs, which is compared.
    pub(crate) fn get(&self, port: u16) -> Result<String, String> {
        let arrived = self.logs()?.join("arrived");
        let mut command = Command::new(&self.ours.anabranch);
        command
            .arg("get")
            .arg(format!("anabranch://localhost:{port}/{NAME}"))
            .arg("--output")
            .arg(&arrived)
            .arg("--ca")
            .arg(&self.ours.cert)
            .args(["--no-resume", "--json"]);
        let mut running = self.start("our-client", &mut command)?;
        running.succeeds(PATIENCE)?;
        self.compare(&arrived)?;
        // It would be kept with the logs.
        fs::remove_file(&arrived).map_err(|e| e.to_string())?;
        Ok(running.said())
    }
}

/// What a NAT lets through before it forgets: a part of the file.
const BEFORE_REBINDING: u64 = 1_000_000;

/// A loopback address 127.0.0.`last` with a port that is free.
pub(crate) fn free(last: u8) -> Result<SocketAddr, String> {
    let local = SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 0);
    UdpSocket::bind(local)
        .and_then(|socket| socket.local_addr())
        .map_err(|e| format!("no free port: {e}"))
}

pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Whether a line of what a program said begins so.
pub(crate) fn ensure_said(said: &str, beginning: &str) -> Result<(), String> {
    ensure(said.lines().any(|line| line.starts_with(beginning)), || {
        format!("nobody said `{beginning}`")
    })
}

/// The number after a word in the first line that begins with `beginning`.
pub(crate) fn number(said: &str, beginning: &str, word: &str) -> Result<f64, String> {
    said.lines()
        .find(|line| line.starts_with(beginning))
        .and_then(|line| {
            let mut words = line.split_whitespace();
            words.find(|&found| found == word)?;
            words.next()?.parse().ok()
        })
        .ok_or_else(|| format!("no `{word}` in a line `{beginning}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_by_line_and_word() {
        let said = "path 0 in 5 out 7\npath 1 in 50 out 70\n";
        assert_eq!(number(said, "path 1", "out"), Ok(70.0));
        assert!(number(said, "path 2", "out").is_err());
        assert!(ensure_said(said, "path 0 in 5").is_ok());
        assert!(ensure_said(said, "in").is_err());
    }
}
