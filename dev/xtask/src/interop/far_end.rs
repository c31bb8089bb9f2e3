//! The far end of a tunnel, for clients of others.

use super::cases::{Bench, PATIENCE, free};
use super::process::Running;
use std::net::SocketAddr;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// One that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct FarEnd {
    pub(crate) address: SocketAddr,
    /// It lets one client in.
    pub(crate) invitation: String,
    _running: Running,
}

impl FarEnd {
    /// On the loopback interface.
    pub(crate) fn start(bench: &Bench<'_>, options: &[&str]) -> Result<Self, String> {
        let command = Command::new(&bench.ours.anabranch);
        Self::start_by(bench, command, free(1)?, options)
    }

    /// By this command, which runs ours on some host.
    pub(crate) fn start_by(
        bench: &Bench<'_>,
        mut command: Command,
        address: SocketAddr,
        options: &[&str],
    ) -> Result<Self, String> {
        let state = bench.root.join("state");
        command
            .args(["tunnel", "serve", "--listen", &address.to_string()])
            .arg("--state")
            .arg(&state)
            .arg("--cert")
            .arg(&bench.ours.cert)
            .arg("--key")
            .arg(&bench.ours.key)
            .args(options)
            .env("XDG_RUNTIME_DIR", &state);
        let mut running = bench.start("our-far-end", &mut command)?;
        running.listens(address)?;
        let until = Instant::now() + PATIENCE;
        loop {
            // The URL follows at once.
            if let Some((_, invitation)) = running.said().trim().split_once("/join/") {
                return Ok(Self {
                    address,
                    invitation: invitation.to_owned(),
                    _running: running,
                });
            }
            if Instant::now() > until {
                return Err("our far end prints no URL".to_owned());
            }
            sleep(Duration::from_millis(5));
        }
    }
}
