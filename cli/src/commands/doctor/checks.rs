//! The checks of what every command needs. None of them leaves a lasting change.

use super::Check;
use crate::files::root::Root;
use anabranch_gateway::entry::capture::{self, CaptureError};
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
pub(super) const CAP_NET_ADMIN: u64 = 1 << 12;
#[cfg(feature = "lab")]
pub(super) const CAP_SYS_ADMIN: u64 = 1 << 21;

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

/// Whether hosts that know nothing of a tunnel can use it.
pub(super) fn capture() -> Check {
    let possible = capture::possible();
    let remedy = match possible {
        Err(CaptureError::NoNft) => "install the package nftables",
        _ => "run it as root: sudo anabranch tunnel join URL --capture lan=br0",
    };
    let found = possible
        .as_ref()
        .map_or_else(ToString::to_string, |()| "possible".into());
    Check::new("tunnel: capture", possible.is_ok(), found, remedy)
}

/// What the kernel offers for routes and tunnels.
pub(super) fn kernel() -> Vec<Check> {
    let admin = capabilities() & CAP_NET_ADMIN != 0;
    let mut checks = vec![Check::new(
        "changing routes",
        admin,
        yes(admin),
        "`anabranch routes apply` needs root or CAP_NET_ADMIN",
    )];
    let tun = Path::new("/dev/net/tun").exists();
    let remedy = "modprobe tun; in containers: --device /dev/net/tun";
    checks.push(Check::new("TUN devices", tun, yes(tun), remedy));
    checks
}

pub(super) fn yes(ok: bool) -> &'static str {
    if ok { "yes" } else { "no" }
}

/// The effective capabilities of this process.
pub(super) fn capabilities() -> u64 {
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
