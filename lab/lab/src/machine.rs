//! Describes a machine. Results mean little without it, so it is kept beside them.

use crate::words::counted;
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

/// Variables of the kernel that change what is measured.
const VARIABLES: [&str; 14] = [
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/rmem_default",
    "net/core/netdev_max_backlog",
    "net/core/default_qdisc",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/mptcp/enabled",
    "net/mptcp/scheduler",
    "net/mptcp/path_manager",
    "net/mptcp/stale_loss_cnt",
];

/// Programs whose versions are recorded.
const PROGRAMS: [(&str, &str); 3] = [("ip", "-V"), ("tc", "-V"), ("nft", "--version")];

/// A machine at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's version.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The load average over the minute before the first run.
    pub load: f64,
    /// Variables of the kernel, below `/proc/sys`.
    pub variables: Vec<(String, String)>,
    /// Installed programs, with the versions they report.
    pub programs: Vec<(String, String)>,
    /// This program's version.
    pub version: String,
    /// A hash of this program.
    pub binary_hash: String,
    /// If this is a virtual machine of the laboratory, what executes its instructions: `kvm`, the
    /// processor, or `tcg`, software with a clock that counts instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// The machine that runs this virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Box<Machine>>,
}

/// The kernel parameter that tells a virtual machine what it is (`anabranch_vm::PARAMETER`).
const VM: &str = "anabranch.vm=";

impl Machine {
    /// Examines this machine. What cannot be found out stays empty.
    pub fn examine() -> Self {
        Self {
            programs: PROGRAMS.iter().filter_map(version).collect(),
            binary_hash: crate::campaign::binary_hash(),
            ..Self::default()
        }
        .look_again()
    }

    /// Reads the kernel's data anew, such as load and variables. Programs and the hash are kept: no
    /// program is started, and only files in `/proc` are read.
    #[must_use]
    pub fn look_again(&self) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let after = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.map(|line| line.trim_start_matches([' ', '\t', ':']));
            value.unwrap_or_default().trim().to_owned()
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = memory.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        let load = read("/proc/loadavg");
        let variable = |name: &&str| {
            let value = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
            Some(((*name).to_owned(), value.trim().replace('\t', " ")))
        };
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: after(&cpuinfo, "model name"),
            cores: available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            load: load
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
            variables: VARIABLES.iter().filter_map(variable).collect(),
            programs: self.programs.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            binary_hash: self.binary_hash.clone(),
            vm: read("/proc/cmdline")
                .split_whitespace()
                .find_map(|word| word.strip_prefix(VM))
                .map(ToOwned::to_owned),
            host: self.host.clone(),
        }
    }

    /// A warning about figures from this machine; `None` if there is nothing to warn of.
    pub fn warning(&self) -> Option<String> {
        // A measurement needs cores for the emulator and both ends, so a quarter of the cores may
        // be busy.
        let busy = self.load > self.cores as f64 * 0.25;
        busy.then(|| {
            format!(
                "this machine was busy before the first run: load {:.2} on {}",
                self.load,
                counted(self.cores, "core")
            )
        })
    }
}

fn version((program, word): &(&str, &str)) -> Option<(String, String)> {
    let output = Command::new(program).arg(word).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim().to_owned();
    Some(((*program).to_owned(), line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_what_it_is() {
        let machine = Machine::examine();
        assert!(machine.kernel.contains('.') && machine.cores > 0);
        assert!(machine.memory_bytes > 1 << 20);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }

    #[test]
    fn another_look_starts_no_programs_and_sees_what_changed() {
        let before = Machine {
            programs: vec![("ip".to_owned(), "as it was".to_owned())],
            binary_hash: "as it was".to_owned(),
            load: -1.0,
            ..Machine::default()
        };
        let after = before.look_again();
        assert_eq!(
            (&after.programs, &after.binary_hash),
            (&before.programs, &before.binary_hash)
        );
        assert!(after.load >= 0.0 && after.kernel.contains('.'));
    }

    #[test]
    fn load_warns() {
        let machine = |load| Machine {
            load,
            cores: 4,
            ..Machine::default()
        };
        assert_eq!(machine(0.9).warning(), None);
        assert!(machine(2.0).warning().unwrap().contains("2.00 on 4"));
    }
}
