//! What this machine has of what a laboratory needs.

use super::bond;
use super::modules::Modules;
use crate::scenario::{Action, Event, Kind, NodeKind, Scenario};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether a program can be found.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
}

fn is_program(path: &Path) -> bool {
    let mode = fs::metadata(path).map(|meta| (meta.is_file(), meta.permissions().mode()));
    mode.is_ok_and(|(file, mode)| file && mode & 0o111 != 0)
}

/// A part of the laboratory and whether it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Whether it is there.
    pub ok: bool,
    /// What was found.
    pub found: String,
    /// How to get it.
    pub remedy: &'static str,
    /// Whether no scenario runs without it.
    pub essential: bool,
}

/// What this machine has of the laboratory.
pub fn parts() -> Vec<Part> {
    let part = |name, found: Result<String, String>, remedy, essential| Part {
        name,
        ok: found.is_ok(),
        found: found.unwrap_or_else(|missing| missing),
        remedy,
        essential,
    };
    let tools = |names: &[&str]| {
        let missing: Vec<&str> = names.iter().copied().filter(|name| !has(name)).collect();
        if missing.is_empty() {
            Ok(names.join(", "))
        } else {
            Err(format!("no {}", missing.join(", no ")))
        }
    };
    let exists = |path: &str| {
        if Path::new(path).exists() {
            Ok("yes".to_owned())
        } else {
            Err(format!("no {path}"))
        }
    };
    vec![
        part(
            "lab: namespaces",
            anabranch_testbed::Testbed::available()
                .map(|()| "can be made".to_owned())
                .map_err(|error| error.to_string()),
            "run as root, with iproute2 installed",
            true,
        ),
        part(
            "lab: emulated links",
            exists("/dev/net/tun"),
            "modprobe tun; in containers: --device /dev/net/tun --cap-add NET_ADMIN",
            true,
        ),
        part(
            "lab: kernel TCP",
            congestions().map(|all| all.join(", ")),
            "modprobe tcp_bbr",
            false,
        ),
        part(
            "lab: kernel MPTCP",
            mptcp(),
            "a kernel with CONFIG_MPTCP, and sysctl net.mptcp.enabled=1",
            false,
        ),
        part(
            "lab: kernel bonding",
            bonding(&Modules::read()),
            "anabranch lab run --in-vm",
            false,
        ),
        part(
            "lab: NAT",
            tools(&["nft"])
                .or_else(|_| tools(&["iptables"]))
                .map_err(|_| "no nft, no iptables".to_owned()),
            "install nftables",
            false,
        ),
        part(
            "lab: NAT rebinding",
            tools(&["conntrack"]),
            "install conntrack",
            false,
        ),
    ]
}

/// Whether this kernel has multipath TCP, and its scheduler.
pub(in crate::backend) fn mptcp() -> Result<String, String> {
    match fs::read_to_string("/proc/sys/net/mptcp/enabled") {
        Ok(text) if text.trim() == "1" => {
            let scheduler = fs::read_to_string("/proc/sys/net/mptcp/scheduler");
            let scheduler = scheduler.unwrap_or_else(|_| "default".to_owned());
            Ok(format!("on, scheduler {}", scheduler.trim()))
        }
        Ok(_) => Err("switched off".to_owned()),
        Err(_) => Err("not in this kernel".to_owned()),
    }
}

/// The congestion controls of the kernel's TCP.
fn congestions() -> Result<Vec<String>, String> {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    Ok(text.split_whitespace().map(ToOwned::to_owned).collect())
}

/// What a bond takes, or which of it is missing.
fn bonding(modules: &Modules) -> Result<String, String> {
    let found: Result<Vec<String>, String> = bond::MODULES
        .iter()
        .map(|(name, missing)| match modules.find(name) {
            Some(how) => Ok(format!("{name} {how}")),
            None => Err(format!("this kernel has {missing}")),
        })
        .collect();
    found.map(|all| all.join(", "))
}

/// Whose kernel is asked whether a scenario can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    /// The running one.
    Here,
    /// The one that is prepared for virtual machines; its tools are this machine's.
    InVm,
}

impl Has {
    /// The congestion controls of TCP; nothing if the kernel does not tell.
    fn congestions(self) -> Option<Vec<String>> {
        match self {
            Self::Here => congestions().ok(),
            Self::InVm => Some(["reno", "cubic", "bbr"].map(ToOwned::to_owned).into()),
        }
    }

    fn mptcp(self) -> Result<(), String> {
        match self {
            Self::Here => mptcp().map(drop),
            Self::InVm => Ok(()),
        }
    }

    fn bonding(self) -> Result<(), String> {
        match self {
            Self::Here => bonding(&Modules::read()).map(drop),
            Self::InVm => Ok(()),
        }
    }

    /// What the kernel calls a scenario's congestion control, or why it has none of this name.
    fn kernel_name(self, scenario: &Scenario) -> Result<String, String> {
        let Some(spec) = &scenario.transport.congestion else {
            return Ok("cubic".to_owned());
        };
        let name = match spec.name.as_str() {
            "new-reno" => "reno",
            "cubic" => "cubic",
            "bbr" => "bbr",
            other => {
                return Err(format!(
                    "the kernel's TCP has no congestion control `{other}`: expected reno, cubic \
                     or bbr"
                ));
            }
        };
        match self.congestions() {
            Some(known) if !known.iter().any(|known| known == name) => Err(format!(
                "this kernel has no congestion control `{name}`, but {}: modprobe tcp_{name}, or \
                 run with --in-vm",
                known.join(", ")
            )),
            _ => Ok(name.to_owned()),
        }
    }
}

/// What the kernel calls a congestion control, or why it has none of this name.
pub(in crate::backend) fn kernel_name(scenario: &Scenario) -> Result<String, String> {
    Has::Here.kernel_name(scenario)
}

/// What of a scenario cannot be done; `None` if all can.
pub(super) fn refusal(scenario: &Scenario, machine: Has) -> Option<String> {
    let kind = scenario.transport.kind;
    if matches!(kind, Kind::Tcp | Kind::KernelMptcp | Kind::Bonding)
        && let Err(missing) = machine.kernel_name(scenario)
    {
        return Some(missing);
    }
    match kind {
        Kind::Bonding => {
            if let Some(what) = bond::refusal(scenario) {
                return Some(what);
            }
            if let Err(missing) = machine.bonding() {
                return Some(format!("{missing}: run with --in-vm"));
            }
        }
        Kind::Mlppp => {
            return Some("multilink PPP: the simulator has it, real kernels do not".to_owned());
        }
        Kind::KernelMptcp => {
            if let Err(missing) = machine.mptcp() {
                return Some(format!("kernel MPTCP: {missing}: run with --in-vm"));
            }
        }
        _ => {}
    }
    let nat = |kind: NodeKind| kind == NodeKind::Nat;
    let nodes = &scenario.network.nodes;
    if nodes.iter().any(|node| nat(node.kind)) && !has("nft") && !has("iptables") {
        return Some("a NAT: install nftables or iptables".to_owned());
    }
    let rebinds = |event: &Event| event.action == Action::Rebind;
    if scenario.events.iter().any(rebinds) && !has("conntrack") {
        return Some("nat-rebind: install conntrack".to_owned());
    }
    None
}
