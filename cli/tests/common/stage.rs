//! A part of this machine that a test has to itself.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The programs needed to make a stage and to run commands on it.
pub const STAGED: [&str; 8] = [
    "unshare", "nsenter", "mount", "sh", "mkdir", "cat", "rm", "test",
];

/// `ip netns` keeps its names in a folder; the stage has its own. The last command stays until its
/// input ends, at the latest when this process ends, however that happens.
const SET_UP: &str = "mkdir -p /run/netns && mount -t tmpfs netns /run/netns && \
                      ip link set dev lo up && echo ready && exec cat";

/// Interfaces, routes, namespaces and mounts that nobody else sees or changes, so that before and
/// after can be compared exactly while other tests make networks of their own.
pub struct Stage {
    keeper: Child,
}

impl Stage {
    pub fn open() -> Self {
        let mut keeper = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", SET_UP])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is unshare");
        let stdout = keeper.stdout.as_mut().expect("its output is a pipe");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("a line can be read");
        assert_eq!(line, "ready\n", "a network and mounts of its own");
        Self { keeper }
    }

    /// A command in `folder`. Its process becomes the program.
    pub fn command(&self, folder: &Path, program: &str) -> Command {
        let keeper = self.keeper.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &keeper, "--net", "--mount", "sh", "-c"]);
        command.arg("cd \"$0\" && exec \"$@\"");
        command.arg(folder).arg(program);
        command
    }

    /// Interfaces, routing rules and namespaces, as `ip` lists them.
    pub fn snapshot(&self) -> String {
        let lists = ["-o link", "rule", "netns"].map(|words| {
            let mut command = self.command(Path::new("/"), "ip");
            let output = command.args(words.split(' ')).output();
            let output = output.expect("there is nsenter");
            assert!(output.status.success(), "ip {words}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        });
        lists.concat()
    }

    /// Whether no command is running here. Processes in namespaces made here have mounts of their
    /// own and do not count.
    pub fn is_idle(&self) -> bool {
        let mounts = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
        let keeper = PathBuf::from(format!("/proc/{}", self.keeper.id()));
        let here = mounts(&keeper).expect("the keeper stays");
        let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
        let mut others = entries
            .map(|entry| entry.path())
            .filter(|path| *path != keeper);
        !others.any(|process| mounts(&process).is_some_and(|mounts| mounts == here))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // This fails only if the process has ended and been waited for.
        let _ = self.keeper.wait();
    }
}
