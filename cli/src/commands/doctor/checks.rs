//! The individual checks. None of them leaves a lasting change.

use super::Check;
use crate::commands::lab::vm;
use crate::files::root::Root;
use anabranch_lab::backend::netns;
use anabranch_net::interfaces::{Interface, Kind};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

/// Socket buffer size for a fast path, in bytes: 1 Gbit/s for 30 ms.
const BUFFER_BYTES: u64 = 4 << 20;

/// Open files that a busy server needs.
const FILES: u64 = 4096;

/// Bits of the capability sets (`capability.h`).
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// The interfaces, and how many of them lead to other networks.
pub(super) fn interfaces(interfaces: &[Interface]) -> Vec<Check> {
    let usable = interfaces.iter().filter(|interface| interface.is_usable());
    let lines = usable.map(|interface| {
        let addresses: Vec<String> = interface
            .addresses
            .iter()
            .map(|address| address.ip.to_string())
            .collect();
        let default = if interface.default_route {
            ", default route"
        } else {
            ""
        };
        format!("{} ({}{default})", interface.name, addresses.join(", "))
    });
    let lines: Vec<String> = lines.collect();
    let uplinks: Vec<&str> = interfaces
        .iter()
        .filter(|one| one.is_usable() && one.is_uplink() && leads_elsewhere(one))
        .map(|interface| interface.name.as_str())
        .collect();
    vec![
        Check::new(
            "interfaces",
            !lines.is_empty(),
            lines.join("; "),
            "bring an interface up",
        ),
        Check::new(
            "several uplinks",
            uplinks.len() > 1,
            format!("{} ({})", uplinks.len(), uplinks.join(", ")),
            more_uplinks(interfaces),
        ),
    ]
}

/// Whether a default route leaves through it, in any routing table.
fn leads_elsewhere(interface: &Interface) -> bool {
    let mut networks = interface.destinations.iter();
    interface.default_route || networks.any(|network| network.prefix_len == 0)
}

/// How to get a second uplink from the interfaces there are.
fn more_uplinks(interfaces: &[Interface]) -> String {
    let names = |is: &dyn Fn(&Interface) -> bool| {
        let real = |one: &&Interface| matches!(one.kind, Kind::Uplink | Kind::Virtual);
        let names = interfaces.iter().filter(real).filter(|one| is(one));
        let names: Vec<&str> = names.map(|one| one.name.as_str()).collect();
        names.join(", ")
    };
    let no_gateway = names(&|one| one.is_usable() && !leads_elsewhere(one));
    if !no_gateway.is_empty() {
        return format!(
            "{no_gateway}: no gateway, so only its own subnet is reached; if it leads further: ip \
             route add default via GATEWAY dev IFACE metric 1000"
        );
    }
    let no_address = names(&|one| one.up && one.running && one.addresses.is_empty());
    if !no_address.is_empty() {
        return format!("{no_address}: no address; ask for one by DHCP, or set one");
    }
    let down = names(&|one| !one.up || !one.running);
    if !down.is_empty() {
        return format!("{down}: down or without carrier");
    }
    "one uplink is one path: connect a second network to have more; `anabranch demo` works \
     without"
        .into()
}

/// What UDP sockets support here.
pub(super) fn sockets() -> Vec<Check> {
    let v4 = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let sockets = Check::new(
        "UDP sockets",
        v4.is_ok(),
        v4.as_ref()
            .map_or_else(ToString::to_string, |_| "work".into()),
        "a firewall or sandbox forbids them",
    );
    let mut checks = vec![sockets.essential()];
    let v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0));
    let found = v6
        .as_ref()
        .map_or_else(ToString::to_string, |_| "works".into());
    checks.push(Check::new(
        "IPv6",
        v6.is_ok(),
        found,
        "sysctl net.ipv6.conf.all.disable_ipv6=0",
    ));
    let Ok(socket) = v4 else { return checks };
    let option = |result: nix::Result<()>| match result {
        Ok(()) => (true, "works".to_owned()),
        Err(error) => (false, error.desc().to_owned()),
    };
    let (ok, found) = option(setsockopt(
        &socket,
        sockopt::BindToDevice,
        &OsString::from("lo"),
    ));
    let remedy = "run with CAP_NET_RAW; without, sockets are held to addresses only: see \
                  `anabranch routes`";
    checks.push(Check::new("sockets bound to interfaces", ok, found, remedy));
    let (ok, found) = option(setsockopt(&socket, sockopt::UdpGsoSegment, &1200));
    let remedy = "Linux 4.18 or later: sends batches, much less CPU";
    checks.push(Check::new("UDP GSO", ok, found, remedy));
    let (ok, found) = option(setsockopt(&socket, sockopt::UdpGroSegment, &true));
    let remedy = "Linux 5.0 or later: receives batches, much less CPU";
    checks.push(Check::new("UDP GRO", ok, found, remedy));
    // 2 is ECT(0) (RFC 3168, section 5).
    let (ok, found) = option(setsockopt(&socket, sockopt::Ipv4Tos, &2));
    checks.push(Check::new(
        "ECN",
        ok,
        found,
        "packets cannot be marked: congestion shows by loss",
    ));
    checks
}

/// System limits that slow transfers down.
pub(super) fn limits() -> Vec<Check> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let (receive, send) = (read("rmem_max").unwrap_or(0), read("wmem_max").unwrap_or(0));
    let mut checks = vec![Check::new(
        "socket buffers",
        receive.min(send) >= BUFFER_BYTES,
        format!("at most {receive} bytes in, {send} bytes out"),
        "as root: sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000",
    )];
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let remedy = "ulimit -n 65536, or LimitNOFILE= in the service's unit";
    checks.push(Check::new(
        "open files",
        files >= FILES,
        format!("at most {files}"),
        remedy,
    ));
    let root = Root::open(Path::new("/"));
    let found = root
        .as_ref()
        .map_or_else(ToString::to_string, |_| "works".into());
    let remedy = "`serve` needs openat2: Linux 5.6 or later, and a sandbox that allows it";
    checks.push(Check::new(
        "confined file access",
        root.is_ok(),
        found,
        remedy,
    ));
    checks
}

/// What the kernel offers for routes, labs and comparisons.
pub(super) fn kernel() -> Vec<Check> {
    let capabilities = capabilities();
    let may = |capability: u64| capabilities & capability != 0;
    let yes = |ok: bool| if ok { "yes" } else { "no" };
    let admin = may(CAP_NET_ADMIN);
    let mut checks = vec![Check::new(
        "changing routes",
        admin,
        yes(admin),
        "`anabranch routes apply` needs root or CAP_NET_ADMIN",
    )];
    let namespaces = Path::new("/proc/self/ns/net").exists() && may(CAP_SYS_ADMIN) && admin;
    let remedy = "emulated networks need root (or unshare -rn)";
    checks.push(Check::new(
        "network namespaces",
        namespaces,
        yes(namespaces),
        remedy,
    ));
    let mptcp = fs::read_to_string("/proc/sys/net/mptcp/enabled");
    let on = mptcp.as_ref().is_ok_and(|text| text.trim() == "1");
    let found = match (mptcp.is_ok(), on) {
        (_, true) => "on",
        (true, false) => "off",
        (false, _) => "not in this kernel",
    };
    let remedy = "to compare with it: a kernel with CONFIG_MPTCP, and sysctl net.mptcp.enabled=1";
    checks.push(Check::new("kernel MPTCP", on, found, remedy));
    let tun = Path::new("/dev/net/tun").exists();
    let remedy = "modprobe tun; in containers: --device /dev/net/tun";
    checks.push(Check::new("TUN devices", tun, yes(tun), remedy));
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
pub(super) fn lab() -> Vec<Check> {
    let check = |part: netns::Part| Check::new(part.name, part.ok, part.found, part.remedy);
    let vm = |part: vm::Part| Check::new(part.name, part.ok, part.found, part.remedy);
    let here = netns::parts().into_iter().map(check);
    here.chain(vm::parts().into_iter().map(vm)).collect()
}

/// The effective capabilities of this process.
fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_net::interfaces::Address;
    use std::collections::BTreeSet;

    fn interface(name: &str, default_route: bool, address: Option<&str>) -> Interface {
        let address = address.map(|ip| Address {
            ip: ip.parse().unwrap(),
            prefix_len: 24,
        });
        Interface {
            index: 1,
            name: name.into(),
            kind: Kind::Uplink,
            up: true,
            running: true,
            mtu: 1500,
            addresses: address.into_iter().collect(),
            gateways: Vec::new(),
            default_route,
            destinations: BTreeSet::new(),
        }
    }

    #[test]
    fn what_keeps_an_interface_from_being_an_uplink_is_told_before_another_is_wished_for() {
        let first = interface("eth0", true, Some("192.0.2.2"));
        let remedy = |second: Interface| more_uplinks(&[first.clone(), second]);
        let text = remedy(interface("eth1", false, Some("198.51.100.2")));
        assert!(text.starts_with("eth1: no gateway"), "{text}");
        let text = remedy(interface("eth1", false, None));
        assert!(text.starts_with("eth1: no address"), "{text}");
        let mut down = interface("eth1", false, Some("198.51.100.2"));
        down.running = false;
        assert!(remedy(down).starts_with("eth1: down"));
        assert!(more_uplinks(&[first]).contains("one uplink is one path"));
    }
}
