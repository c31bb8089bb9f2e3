//! Servers and clients as processes of their own, over loopback.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use crate::ending;
use crate::files::{noise, state_home};
use crate::listening;
use anabranch_testbed::Relay;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// A server with its own directory; killed at the end.
pub struct Server {
    pub directory: TempDir,
    pub process: Child,
    pub url: String,
}

impl Server {
    pub fn start(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), options)
    }

    pub fn start_in(directory: TempDir, options: &[&str]) -> Self {
        fs::create_dir_all(directory.path().join("root")).unwrap();
        let mut command = Command::new(PROGRAM);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .arg("--root")
            .arg(directory.path().join("root"))
            .arg("--identity")
            .arg(directory.path().join("identity"));
        let (process, url) = listening::start(command.args(options));
        Self {
            directory,
            process,
            url,
        }
    }

    pub fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    pub fn offer(&self, name: &str, length: usize) -> Vec<u8> {
        let data = noise(length);
        fs::write(self.root(name), &data).unwrap();
        data
    }

    /// A relay to the server that dies after this many bytes, and the server's URL through it.
    pub fn behind_a_dying_link(&self, bytes: u64) -> (Relay, String) {
        let (pin, host) = self.url.split_once('@').unwrap();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let relay = Relay::start(any, host.parse().unwrap()).unwrap();
        relay.cut_after(bytes);
        let url = format!("{pin}@{}", relay.addr());
        (relay, url)
    }

    pub fn kill(mut self) -> TempDir {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn client(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .current_dir(directory)
        .args(arguments)
        .env("XDG_STATE_HOME", state_home())
        .stdin(Stdio::null());
    command
}

#[track_caller]
pub fn run(directory: &Path, arguments: &[&str]) -> Output {
    ending::output(&mut client(directory, arguments))
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
