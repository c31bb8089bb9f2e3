//! What this machine has of what a laboratory needs.

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

/// What the kernel calls a congestion control; `None` if it has none of this name, on any machine.
pub(in crate::backend) fn kernel_name(scenario: &Scenario) -> Result<String, String> {
    let Some(spec) = &scenario.transport.congestion else {
        return Ok("cubic".to_owned());
    };
    let name = match spec.name.as_str() {
        "new-reno" => "reno",
        "cubic" => "cubic",
        "bbr" => "bbr",
        other => {
            return Err(format!(
                "the kernel's TCP has no congestion control `{other}`: expected reno, cubic or bbr"
            ));
        }
    };
    match congestions() {
        Ok(known) if !known.iter().any(|known| known == name) => Err(format!(
            "this kernel has no congestion control `{name}`, but {}: modprobe tcp_{name}",
            known.join(", ")
        )),
        _ => Ok(name.to_owned()),
    }
}

/// What of a scenario cannot be done here; `None` if all can.
pub(super) fn refusal(scenario: &Scenario) -> Option<String> {
    let kind = scenario.transport.kind;
    if matches!(kind, Kind::Tcp | Kind::KernelMptcp)
        && let Err(missing) = kernel_name(scenario)
    {
        return Some(missing);
    }
    match kind {
        Kind::Bonding => {
            return Some("a bond runs in the simulator only: --backend sim".to_owned());
        }
        Kind::Mlppp => {
            return Some("multilink PPP: the simulator has it, real kernels do not".to_owned());
        }
        Kind::KernelMptcp => {
            if let Err(missing) = mptcp() {
                return Some(format!("kernel MPTCP: {missing}"));
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
