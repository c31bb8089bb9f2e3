//! TCP over the kernel's bonding driver (balance-rr): a bond at each end, and a tunnel along each
//! path as its links.
//!
//! ```text
//! client  TCP - bond =(tunnel over path 1)= bond - TCP  server
//!                    =(tunnel over path 2)=
//! ```
//!
//! The fourth paper bonds tunnels too. A bond needs Ethernet, and a path that is shaped in a
//! scenario leads through a router, so without tunnels a bond could only bind paths of one link.
//! Bytes of paths are those of the links, tunnel headers included.

use super::network::{MTU, Net, Refusal};
use crate::backend::jobs;
use crate::hosts::{HostPath, Role};
use crate::scenario::{Action, NodeKind, Scenario};
use anabranch_testbed::{Address, Bond, TUNNEL_BYTES};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The name of the device at both ends.
const INTERFACE: &str = "lab-bond";

/// The kernel modules a bond needs, with what each is for.
pub(super) const MODULES: [(&str, &str); 2] = [
    ("bonding", "no bonding driver"),
    ("ip_gre", "no GRE tunnels, which the links of a bond are"),
];

/// The kernel's messages for device types that it does not know.
const UNKNOWN: [&str; 2] = ["Unknown device type", "not supported"];

/// A scenario's packet size counts the content of a UDP datagram; with these headers it is an IP
/// packet.
const UDP_HEADERS: u64 = 28;

/// The smallest packet size that IPv4 must carry unfragmented (RFC 791, section 3.2).
const MTU_MIN: u32 = 576;

/// The first thing in a scenario that no bond can do; `None` if there is none.
pub(super) fn refusal(scenario: &Scenario) -> Option<String> {
    let transport = &scenario.transport;
    if let Some(spec) = &transport.scheduler
        && spec.name != "round-robin"
    {
        return Some(format!(
            "the kernel's bond takes its links in turn; `{}` is for the simulator: --backend sim",
            spec.name
        ));
    }
    let network = &scenario.network;
    if network.nodes.iter().any(|node| node.kind == NodeKind::Nat) {
        return Some("the tunnels of a bond through a NAT".to_owned());
    }
    // As with all transports, the first path is open from the start, whatever its `opens` says.
    let later = |(order, path): &(usize, &usize)| {
        let path = &network.paths[**path];
        path.usage.backup || (*order > 0 && path.opens > Duration::ZERO)
    };
    if let Some((_, path)) = transport.paths.iter().enumerate().find(later) {
        return Some(format!(
            "a bond uses all its links from the start: path `{}` opens later or is a backup",
            network.paths[*path].name
        ));
    }
    let moved = scenario.events.iter().find(|event| {
        let uses = |path: &usize| network.paths[*path].client_link == event.link;
        event.action == Action::Handover && transport.paths.iter().any(uses)
    });
    if let Some(event) = moved {
        return Some(format!(
            "a handover of link `{}` under a bond: its tunnels keep their addresses",
            network.links[event.link].name
        ));
    }
    let ends = |path: &usize| {
        let path = &network.paths[*path];
        (path.client_link, path.server_link)
    };
    let paths = &transport.paths;
    let repeated = paths
        .iter()
        .enumerate()
        .any(|(at, path)| paths[..at].iter().any(|other| ends(other) == ends(path)));
    repeated.then(|| "a bond over paths that share their addresses at both ends".to_owned())
}

/// Makes the bond at both ends.
pub(super) fn prepare(net: &Net<'_>) -> Result<(), Refusal> {
    for role in [Role::Client, Role::Server] {
        let [own, peer] = addresses(role);
        let near = place(role);
        let far = 1 - near;
        let pairs = net.scenario.transport.paths.iter().map(|path| {
            let ends = net.ends(*path);
            (ends[near], ends[far])
        });
        let made = net.nodes[near].bond(&Bond {
            interface: INTERFACE.to_owned(),
            address: Address::new(own, 24)?,
            hardware: [hardware(near), hardware(far)],
            peer,
            tunnels: pairs.collect(),
            mtu: mtu(net.scenario),
        });
        made.map_err(|error| refused(error.to_string()))?;
    }
    Ok(())
}

/// Even a driver that is listed may be missing: in containers, for example, which load no modules.
fn refused(what: String) -> Refusal {
    if UNKNOWN.iter().any(|words| what.contains(words)) {
        Refusal::Unsupported(format!("{what}: run with --in-vm"))
    } else {
        Refusal::Failed(what)
    }
}

/// The bond's MTU: the size of the scenario's packets, as far as the tunnels leave room.
fn mtu(scenario: &Scenario) -> u32 {
    let most = MTU - TUNNEL_BYTES;
    let wanted = scenario.transport.settings.packet_size;
    let wanted = wanted.and_then(|bytes| u32::try_from(bytes + UDP_HEADERS).ok());
    wanted.unwrap_or(most).clamp(MTU_MIN, most)
}

/// The bond, as the only path of a host.
pub(super) fn path(role: Role) -> HostPath {
    jobs::sole_path("bond", addresses(role))
}

fn place(role: Role) -> usize {
    match role {
        Role::Client => 0,
        Role::Server => 1,
    }
}

/// The addresses of a host's own bond and of the peer's.
fn addresses(role: Role) -> [IpAddr; 2] {
    let address = |place: usize| IpAddr::V4(Ipv4Addr::new(10, 78, 0, place as u8 + 1));
    [address(place(role)), address(1 - place(role))]
}

/// A locally administered hardware address that no link uses.
fn hardware(place: usize) -> [u8; 6] {
    [0x02, 0xab, 0xb0, 0, 0, place as u8 + 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Document;

    fn what_is_refused(rest: &str) -> Option<String> {
        let text = format!(
            "format = 1\nname = \"b\"\nstop = \"9s\"\nsingles = false\n{rest}\n\
             [[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
        );
        let document = Document::parse("b.toml", &text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        refusal(&plan.runs[0].scenario)
    }

    #[test]
    fn a_driver_that_is_listed_but_not_there_is_no_failure() {
        let refusal = refused("`ip link add` failed: Error: Unknown device type.".to_owned());
        assert!(matches!(refusal, Refusal::Unsupported(what) if what.contains("--in-vm")));
        let refusal = refused("RTNETLINK answers: File exists".to_owned());
        assert!(matches!(refusal, Refusal::Failed(_)));
    }

    const PATHS: &str = "[[path]]\nforward = { rate = \"1Mbit/s\" }\n\
                         [[path]]\nforward = { rate = \"1Mbit/s\" }\n";

    #[test]
    fn a_bond_takes_its_links_in_turn_and_no_other_way() {
        let with = |transport: &str| {
            what_is_refused(&format!(
                "{PATHS}[transport]\nkind = \"bonding\"\n{transport}"
            ))
        };
        assert_eq!(with(""), None);
        assert_eq!(with("scheduler = \"round-robin\""), None);
        let other = with("scheduler = \"weighted:weights=2/1\"").unwrap();
        assert!(
            other.contains("`weighted`") && other.contains("--backend sim"),
            "{other}"
        );
    }

    #[test]
    fn what_would_leave_a_link_of_the_bond_dead_or_unused_is_refused() {
        let with = |second: &str, rest: &str| {
            what_is_refused(&format!(
                "[[path]]\nname = \"a\"\nforward = {{ rate = \"1Mbit/s\" }}\n\
                 [[path]]\nname = \"b\"\nforward = {{ rate = \"1Mbit/s\" }}\n{second}\n\
                 [transport]\nkind = \"bonding\"\n{rest}"
            ))
        };
        let event = |what: &str| format!("[[event]]\nat = \"1s\"\npath = \"b\"\n{what}");
        let refused = with("", &event("handover = true")).unwrap();
        assert!(refused.contains("handover"), "{refused}");
        assert_eq!(with("", &event("down = \"both\"")), None);
        let other = format!("paths = \"a\"\n{}", event("handover = true"));
        assert_eq!(with("", &other), None);
        for later in ["opens = \"2s\"", "backup = true"] {
            let refused = with(later, "").unwrap();
            assert!(refused.contains("path `b`"), "{refused}");
        }
    }

    #[test]
    fn packets_are_as_large_as_the_scenario_says_if_the_tunnels_leave_room() {
        let scenario = |size: &str| {
            let text = format!(
                "format = 1\nname = \"b\"\nstop = \"9s\"\nsingles = false\n{PATHS}\
                 [transport]\nkind = \"bonding\"\n{size}\n\
                 [[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
            );
            let document = Document::parse("b.toml", &text).unwrap();
            let plan = Plan::make(&document, &Changes::default()).unwrap();
            mtu(&plan.runs[0].scenario)
        };
        assert_eq!(scenario(""), 1462);
        assert_eq!(scenario("packet-size = \"1412B\""), 1440);
        assert_eq!(scenario("packet-size = \"1472B\""), 1462);
    }
}
