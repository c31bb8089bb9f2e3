//! Checks of what the laboratory needs. None of them leaves a lasting change.

use super::Check;
use super::checks::{CAP_NET_ADMIN, CAP_SYS_ADMIN, capabilities, yes};
use crate::commands::lab::vm;
use anabranch_lab::backend::netns;
use std::fs;
use std::path::Path;

/// What the kernel offers for laboratories and comparisons.
pub(super) fn kernel() -> Vec<Check> {
    let capabilities = capabilities();
    let may = |capability: u64| capabilities & capability != 0;
    let namespaces =
        Path::new("/proc/self/ns/net").exists() && may(CAP_SYS_ADMIN) && may(CAP_NET_ADMIN);
    let remedy = "emulated networks need root (or unshare -rn)";
    let mut checks = vec![Check::new(
        "network namespaces",
        namespaces,
        yes(namespaces),
        remedy,
    )];
    let mptcp = fs::read_to_string("/proc/sys/net/mptcp/enabled");
    let on = mptcp.as_ref().is_ok_and(|text| text.trim() == "1");
    let found = match (mptcp.is_ok(), on) {
        (_, true) => "on",
        (true, false) => "off",
        (false, _) => "not in this kernel",
    };
    let remedy = "to compare with it: a kernel with CONFIG_MPTCP, and sysctl net.mptcp.enabled=1";
    checks.push(Check::new("kernel MPTCP", on, found, remedy));
    let modules = netns::Modules::read();
    for (name, module, remedy) in [
        (
            "netem",
            "sch_netem",
            "our own link emulator is used instead; `lab validate --in-vm` has both",
        ),
        (
            "bonding",
            "bonding",
            "to compare with it: `anabranch lab run --in-vm`, or a kernel with CONFIG_BONDING",
        ),
    ] {
        let found = modules.find(module);
        checks.push(Check::new(
            name,
            found.is_some(),
            found.unwrap_or("no"),
            remedy,
        ));
    }
    checks
}

/// What `anabranch lab` needs, and whether it is here.
pub(super) fn parts() -> Vec<Check> {
    let check = |part: netns::Part| Check::new(part.name, part.ok, part.found, part.remedy);
    let vm = |part: vm::Part| Check::new(part.name, part.ok, part.found, part.remedy);
    let here = netns::parts().into_iter().map(check);
    here.chain(vm::parts().into_iter().map(vm)).collect()
}
