//! Which of the laboratory's requirements this machine meets.

use super::modules::Modules;
use super::{bond, tunnel};
use crate::backend::refusal::{from_behind_the_far_end, only_simulated};
use crate::scenario::{Action, BackgroundKind, Event, Kind, NodeKind, Scenario};
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

/// A part of the laboratory and whether it is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Whether it is present.
    pub ok: bool,
    /// What was found.
    pub found: String,
    /// How to get it.
    pub remedy: &'static str,
    /// Whether no scenario runs without it.
    pub essential: bool,
}

/// The parts of the laboratory, as found on this machine.
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

fn exists(path: &str) -> Result<String, String> {
    if Path::new(path).exists() {
        Ok("yes".to_owned())
    } else {
        Err(format!("no {path}"))
    }
}

/// Whether this kernel has multipath TCP, and with which scheduler.
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

/// The modules a bond needs, or which of them is missing.
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

/// The kernel that is asked whether a scenario can run.
#[derive(Clone, Copy)]
pub(super) enum Has<'a> {
    /// The running kernel.
    Here,
    /// The kernel prepared for virtual machines, with a function that tells whether it has a
    /// module. Tools are taken from this machine.
    InVm(&'a dyn Fn(&str) -> bool),
}

/// The congestion controls a kernel may have besides Reno, with their modules.
const CONGESTIONS: [(&str, &str); 2] = [("cubic", "tcp_cubic"), ("bbr", "tcp_bbr")];

/// The kernel modules a NAT needs.
const NAT_MODULES: [&str; 3] = ["nf_tables", "nft_chain_nat", "nft_masq"];

impl Has<'_> {
    /// The congestion controls of TCP; `None` if the kernel does not say.
    fn congestions(self) -> Option<Vec<String>> {
        match self {
            Self::Here => congestions().ok(),
            Self::InVm(has) => {
                let modules = CONGESTIONS.iter().filter(|(_, module)| has(module));
                let names = modules.map(|(name, _)| *name);
                Some(
                    std::iter::once("reno")
                        .chain(names)
                        .map(ToOwned::to_owned)
                        .collect(),
                )
            }
        }
    }

    fn mptcp(self) -> Result<(), String> {
        match self {
            Self::Here => mptcp().map(drop),
            // Multipath TCP is never a module, but `mptcp_diag` (which also needs `inet_diag`)
            // comes with it.
            Self::InVm(has) if has("mptcp_diag") => Ok(()),
            Self::InVm(_) => Err("not in this kernel".to_owned()),
        }
    }

    fn bonding(self) -> Result<(), String> {
        match self {
            Self::Here => bonding(&Modules::read()).map(drop),
            Self::InVm(has) => match bond::MODULES.iter().find(|(name, _)| !has(name)) {
                None => Ok(()),
                Some((_, missing)) => Err(format!("this kernel has {missing}")),
            },
        }
    }

    /// What the tunnel lacks, if anything.
    fn tunnel(self) -> Option<String> {
        let what = match self {
            Self::Here if has("nft") => return None,
            Self::Here => "a tunnel captures what a host sends by `nft`: install nftables",
            Self::InVm(_) => {
                "a tunnel in a virtual machine: its nodes need more than the guest has"
            }
        };
        Some(what.to_owned())
    }

    /// Checks for what redirecting a host's connections to a proxy needs.
    fn redirect(self) -> Result<(), &'static str> {
        match self {
            Self::Here if has("nft") => Ok(()),
            Self::Here => Err("a proxy is given what a host sends by `nft`: install nftables"),
            Self::InVm(_) => Err("a proxy in a virtual machine: nothing redirects to it there"),
        }
    }

    /// Checks for what a NAT needs.
    fn nat(self) -> Result<(), &'static str> {
        match self {
            Self::Here if has("nft") || has("iptables") => Ok(()),
            Self::Here => Err("a NAT: install nftables or iptables"),
            // The guest has no other tool for NAT.
            Self::InVm(_) if !has("nft") => Err("a NAT: install nftables, which the guest gets"),
            Self::InVm(knows) if NAT_MODULES.iter().all(|module| knows(module)) => Ok(()),
            Self::InVm(_) => Err("a NAT: this kernel has no nftables for it"),
        }
    }

    /// What to do where a kernel lacks something.
    fn advice(self) -> &'static str {
        match self {
            Self::Here => "run with --in-vm",
            Self::InVm(_) => "`anabranch lab vm prepare --again` fetches the current one",
        }
    }

    /// The kernel's name of a scenario's congestion control, or why it has none like it.
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
        self.congestion(name)?;
        Ok(name.to_owned())
    }

    /// Checks for a congestion control of TCP, by the kernel's name.
    fn congestion(self, name: &str) -> Result<(), String> {
        let load = match self {
            Self::Here => format!("modprobe tcp_{name}, or "),
            Self::InVm(_) => String::new(),
        };
        match self.congestions() {
            Some(known) if !known.iter().any(|known| known == name) => Err(format!(
                "this kernel has no congestion control `{name}`, but {}: {load}{}",
                known.join(", "),
                self.advice()
            )),
            _ => Ok(()),
        }
    }

    /// Checks for the congestion controls of background traffic.
    fn background(self, scenario: &Scenario) -> Result<(), String> {
        scenario
            .background
            .iter()
            .try_for_each(|one| match one.kind {
                BackgroundKind::Tcp { congestion } => self.congestion(congestion.name()),
                _ => Ok(()),
            })
    }
}

/// The running kernel's name of a scenario's congestion control, or why it has none like it.
pub(in crate::backend) fn kernel_name(scenario: &Scenario) -> Result<String, String> {
    Has::Here.kernel_name(scenario)
}

/// The first thing in a scenario that cannot be done here; `None` if there is none.
pub(super) fn refusal(scenario: &Scenario, machine: Has<'_>) -> Option<String> {
    let kind = scenario.transport.kind;
    if matches!(
        kind,
        Kind::Tcp | Kind::KernelMptcp | Kind::MptcpProxy | Kind::Bonding
    ) && let Err(missing) = machine.kernel_name(scenario)
    {
        return Some(missing);
    }
    if let Err(missing) = machine.background(scenario) {
        return Some(missing);
    }
    if let Some(what) = only_simulated(&scenario.transport) {
        return Some(what);
    }
    if let Some(what) = from_behind_the_far_end(scenario) {
        return Some(what.to_owned());
    }
    match kind {
        Kind::Bonding => {
            if let Some(what) = bond::refusal(scenario) {
                return Some(what);
            }
            if let Err(missing) = machine.bonding() {
                return Some(format!("{missing}: {}", machine.advice()));
            }
        }
        Kind::Mlppp => {
            return Some("multilink PPP: the simulator has it, real kernels do not".to_owned());
        }
        Kind::Tunnel => {
            let refused = tunnel::refusal(scenario).or_else(|| machine.tunnel());
            if refused.is_some() {
                return refused;
            }
        }
        Kind::KernelMptcp | Kind::MptcpProxy => {
            if let Err(missing) = machine.mptcp() {
                return Some(format!("kernel MPTCP: {missing}: {}", machine.advice()));
            }
            if kind == Kind::MptcpProxy {
                let missing = || machine.redirect().err().map(str::to_owned);
                let refused = tunnel::refusal(scenario).or_else(missing);
                if refused.is_some() {
                    return refused;
                }
            }
        }
        _ => {}
    }
    let nat = |kind: NodeKind| kind == NodeKind::Nat;
    let nodes = &scenario.network.nodes;
    if nodes.iter().any(|node| nat(node.kind))
        && let Err(missing) = machine.nat()
    {
        return Some(missing.to_owned());
    }
    let rebinds = |event: &Event| event.action == Action::Rebind;
    if scenario.events.iter().any(rebinds) && !has("conntrack") {
        return Some("nat-rebind: install conntrack".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Document;

    fn in_vm(transport: &str, modules: &[&str]) -> Option<String> {
        let text = format!(
            "format = 1\nname = \"v\"\nstop = \"9s\"\nsingles = false\n\
             [[path]]\nforward = {{ rate = \"1Mbit/s\" }}\n[transport]\n{transport}\n\
             [[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
        );
        let document = Document::parse("v.toml", &text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        let has = |name: &str| modules.contains(&name);
        refusal(&plan.runs[0].scenario, Has::InVm(&has))
    }

    #[test]
    fn a_virtual_machine_is_asked_for_what_its_kernel_has() {
        let bbr = "kind = \"tcp\"\ncongestion = \"bbr\"";
        let refused = in_vm(bbr, &["tcp_cubic"]).unwrap();
        assert!(refused.contains("`bbr`, but reno, cubic"), "{refused}");
        assert!(!refused.contains("--in-vm"), "{refused}");
        assert_eq!(in_vm(bbr, &["tcp_bbr"]), None);
        let beside = format!(
            "[[background]]\npath = \"1\"\n{}",
            "kind = \"tcp\"\ncongestion = \"bbr\""
        );
        let refused = in_vm(&beside, &["tcp_cubic"]).unwrap();
        assert!(refused.contains("`bbr`, but reno, cubic"), "{refused}");
        assert_eq!(in_vm(&beside, &["tcp_bbr"]), None);
        assert_eq!(in_vm("kind = \"mptcp\"", &["mptcp_diag"]), None);
        assert!(in_vm("kind = \"mptcp\"", &[]).unwrap().contains("MPTCP"));
        assert_eq!(in_vm("kind = \"bonding\"", &["bonding", "ip_gre"]), None);
        let refused = in_vm("kind = \"bonding\"", &["bonding"]).unwrap();
        assert!(refused.contains("GRE"), "{refused}");
    }

    #[test]
    fn settings_that_kernels_ignore_are_refused_there_too() {
        let refused = in_vm("kind = \"tcp\"\ninitial-window = 4", &["tcp_cubic"]).unwrap();
        assert!(refused.contains("`initial-window`"), "{refused}");
    }
}
