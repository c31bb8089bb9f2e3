//! What is beyond both ends of a tunnel: hosts that know nothing of it.
//!
//! ```text
//! host ── 192.168.50.0/24 ── near ══ path0, path1 ══ far ── 203.0.113.0/24 ── target
//! ```
//! The near end is the client of the lab, the far end its server. IPv6 is beside it on both sides.

use super::Lab;
use anabranch_testbed::{LinkSpec, Node};

/// The target, as the host calls it.
pub const TARGETS: [&str; 2] = ["203.0.113.7", "2001:db8:7::7"];
/// The host.
pub const HOST: [&str; 2] = ["192.168.50.2", "fd00:50::2"];
/// The near end, as the host calls it.
pub const NEAR: [&str; 2] = ["192.168.50.1", "fd00:50::1"];

/// A host behind the near end, and a target behind the far end.
pub fn attach(lab: &mut Lab) -> (Node, Node) {
    let (host, target) = (
        lab.bed.node("host").unwrap(),
        lab.bed.node("target").unwrap(),
    );
    let ends = |a: &str, b: &str| LinkSpec::new(a.parse().unwrap(), b.parse().unwrap());
    let lan = ends("192.168.50.2/24", "192.168.50.1/24");
    lab.bed.link(&host, &lab.client, &lan).unwrap();
    let net = ends("203.0.113.1/24", "203.0.113.7/24");
    lab.bed.link(&lab.server, &target, &net).unwrap();
    let ip = |node: &Node, commands: &[&str]| {
        let commands: Vec<String> = commands.iter().map(|&one| one.to_owned()).collect();
        node.ip(&commands).unwrap();
    };
    ip(
        &host,
        &[
            "address add fd00:50::2/64 dev path2 nodad",
            "route add default via 192.168.50.1",
            "route add default via fd00:50::1",
        ],
    );
    // What is not captured would leave by the uplinks, and come back.
    ip(
        &lab.client,
        &[
            "address add fd00:50::1/64 dev path2 nodad",
            "address add fd00:1::1/64 dev path0 nodad",
            "route add default via 10.1.0.2",
            "route add default via fd00:1::2",
        ],
    );
    ip(
        &lab.server,
        &[
            "address add 2001:db8:7::1/64 dev path3 nodad",
            "address add fd00:1::2/64 dev path0 nodad",
            "route add 192.168.50.0/24 via 10.1.0.1",
            "route add fd00:50::/64 via fd00:1::1",
        ],
    );
    ip(
        &target,
        &[
            "address add 2001:db8:7::7/64 dev path3 nodad",
            "route add default via 203.0.113.1",
            "route add default via 2001:db8:7::1",
        ],
    );
    for node in [&lab.client, &lab.server] {
        node.set_sysctl("ipv4/ip_forward", "1").unwrap();
        node.set_sysctl("ipv6/conf/all/forwarding", "1").unwrap();
    }
    (host, target)
}
