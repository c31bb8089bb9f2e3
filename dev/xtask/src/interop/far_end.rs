//! The far end of a tunnel, for clients of others.

use super::cases::{Bench, PATIENCE, free};
use super::process::Running;
use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// One that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct FarEnd {
    pub(crate) address: SocketAddr,
    /// It lets one client in.
    pub(crate) invitation: String,
    // Ended before the folder of its socket goes.
    running: Running,
    sockets: Folder,
}

impl FarEnd {
    /// On the loopback interface.
    pub(crate) fn start(bench: &Bench<'_>, options: &[&str]) -> Result<Self, String> {
        let command = Command::new(&bench.ours.anabranch);
        Self::start_by(bench, command, free(1)?, options)
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.running.process()
    }

    /// Of its key, as its URL has it.
    pub(crate) fn pin(&self) -> Result<String, String> {
        let said = self.running.said();
        let url = said
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('@'));
        let pin = url.map(|(pin, _)| pin.to_owned());
        pin.ok_or("our far end says no pin".to_owned())
    }

    /// The credential that it prints for a client which cannot use the invitation.
    pub(crate) fn add_client(&self, bench: &Bench<'_>, name: &str) -> Result<String, String> {
        let mut command = Command::new(&bench.ours.anabranch);
        command
            .args(["tunnel", "clients", "add", name])
            .env("XDG_RUNTIME_DIR", &self.sockets.0);
        let mut asked = bench.start("our-order", &mut command)?;
        asked.succeeds(PATIENCE)?;
        Ok(asked.said().trim().to_owned())
    }

    /// By this command, which runs ours on some host.
    pub(crate) fn start_by(
        bench: &Bench<'_>,
        mut command: Command,
        address: SocketAddr,
        options: &[&str],
    ) -> Result<Self, String> {
        let state = bench.root.join("state");
        let sockets = Folder::new("far", address.port())?;
        command
            .args(["tunnel", "serve", "--listen", &address.to_string()])
            .arg("--state")
            .arg(&state)
            .arg("--cert")
            .arg(&bench.ours.cert)
            .arg("--key")
            .arg(&bench.ours.key)
            .args(options)
            .env("XDG_RUNTIME_DIR", &sockets.0);
        let mut running = bench.start("our-far-end", &mut command)?;
        running.listens(address)?;
        let until = Instant::now() + PATIENCE;
        loop {
            // The URL follows at once.
            if let Some((_, invitation)) = running.said().trim().split_once("/join/") {
                return Ok(Self {
                    address,
                    invitation: invitation.to_owned(),
                    running,
                    sockets,
                });
            }
            if Instant::now() > until {
                return Err("our far end prints no URL".to_owned());
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// Where its control socket is; goes when this is dropped. Not beside the logs: a socket's path may
/// have no more than a hundred characters.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(end: &str, port: u16) -> Result<Self, String> {
        let name = format!("anabranch-interop-{}-{end}-{port}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
