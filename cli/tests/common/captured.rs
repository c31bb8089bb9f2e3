//! A tunnel over two links, whose near end may capture what a host sends: see [`super::beyond`]
//! for the picture.

use super::beyond::attach;
use super::process::Process;
use super::{Lab, program, wait_for};
use anabranch_testbed::{Need, Node, Rate};
use std::process::Command;
use std::time::Duration;

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// What each of the two links carries in Mbit/s.
pub const LINK: u64 = 20;

/// How a near end captures what the host sends.
pub const CAPTURED: [&str; 2] = ["--capture", "lan=path2"];

pub struct Net {
    pub lab: Lab,
    pub host: Node,
    pub target: Node,
    /// What the far end lets in by.
    pub url: String,
    _far: Process,
}

impl Net {
    /// Everything but the near end. Returns `None`, and says why, where that cannot be had.
    pub fn new(name: &str) -> Option<Self> {
        let mut lab = Lab::new(name, &[Rate::mbit(LINK); 2])?;
        if !Need::Network.programs(name, &["nft"]) {
            return None;
        }
        let (host, target) = attach(&mut lab);
        let mut command = program(&lab.server);
        let state = lab.path("far");
        let serve = ["tunnel", "serve", "--listen", "10.99.0.1"];
        let allow = [
            "--allow",
            "203.0.113.0/24",
            "--allow",
            "2001:db8::/32",
            "--state",
        ];
        command.args(serve).args(allow).arg(&state);
        command.env("XDG_RUNTIME_DIR", &state);
        let mut far = Process::start(&mut command, &lab.directory);
        let url = far.first_line();
        Some(Self {
            lab,
            host,
            target,
            url,
            _far: far,
        })
    }

    pub fn near_command(&self, options: &[&str]) -> Command {
        let mut command = program(&self.lab.client);
        let state = self.lab.path("near");
        command.args(["tunnel", "join", &self.url, "--state"]);
        command.arg(&state).env("XDG_RUNTIME_DIR", &state);
        command.args(["--path", "path0", "--path", "path1"]);
        command.args(options);
        command
    }

    /// A near end that stands on both links.
    #[track_caller]
    pub fn join(&self, options: &[&str]) -> Process {
        let mut command = self.near_command(options);
        let near = Process::start(command.arg("-v"), &self.lab.directory);
        let stands = || {
            let said = near.stderr();
            ["path0", "path1"]
                .iter()
                .zip(["10.1.0.1", "10.2.0.1"])
                .all(|(name, ip)| said.contains(&format!("{name} ({ip}): up")))
                && said.contains("connected to")
        };
        wait_for("the tunnel", END, stands);
        near
    }
}
