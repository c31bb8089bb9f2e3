//! connect-ip-go: a foreign client of the far end of a tunnel for packets of IP, and a foreign
//! proxy for the near end, with `dev/interop/peers/connect-ip-go` on top.
//!
//! ```text
//! client and target ── 10.1.0.0/24, fd00:1::/64 ── far end, which has pools and forwards
//! ```
//! Their client makes its packets itself and needs no device. The target is another address of its
//! host: what comes there has left the far end by the kernel, in the far end's name. Their proxy
//! has a device, as our near end has one then.

use super::case::{Case, NOT_RUN, Role};
use super::cases::{Bench, PATIENCE, ensure_said};
use super::far_end::FarEnd;
use super::install::{self, Installed};
use super::near_end::{self, NearEnd};
use super::{Peer, Shop};
use anabranch_testbed::{Error, LinkSpec, Node, Testbed};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

pub(crate) const PEER: Peer = Peer {
    name: "connect-ip-go",
    version: "0.7.0 (quic-go 0.65.0)",
    is_required: false,
    install,
    cases,
};

/// Where the far end listens.
const FAR_END: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2)), 4433);
/// What it carries packets for, and where to.
const CARRIES: [&str; 8] = [
    "--ip",
    "10.90.0.0/16",
    "--ip",
    "fd90:7c3a::/64",
    "--allow",
    "10.1.0.1",
    "--allow",
    "fd00:1::1",
];

fn install(shop: &Shop) -> Result<Installed, String> {
    // Our far end needs it for packets.
    install::debian(shop, &[("nft", "nftables")])?;
    let program = install::go(shop, PEER.name)?;
    Ok(Installed {
        client: program.clone(),
        server: program,
    })
}

/// What is tried: by which words of their client, and what it says then.
const PACKETS: [(&str, &str, &[&str]); 12] = [
    (
        "CONNECT-IP, addresses and routes",
        "learn",
        &[
            "join 200",
            "answer 200",
            "capsule-protocol ?1",
            "assigned 10.90.0.2/32 for request 0",
            "assigned fd90:7c3a::2/128 for request 0",
            "route 0.0.0.0 255.255.255.255 protocol 0",
            "route :: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff protocol 0",
            "asked 10.90.0.2/32 for request 1",
            "asked fd90:7c3a::2/128 for request 2",
            "the same addresses again",
        ],
    ),
    (
        "ICMP echo, IPv4",
        "ping -target 10.1.0.1 -count 50 -size 1300",
        &["answered 50 again"],
    ),
    (
        "ICMP echo, IPv6",
        "ping -target fd00:1::1 -count 50 -size 1300",
        &["answered 50 again"],
    ),
    (
        "1,000 packets of UDP, IPv4",
        "udp -target 10.1.0.1 -count 1000 -size 1300",
        &["seen from 10.1.0.2", "answered 1000 again"],
    ),
    (
        "1,000 packets of UDP, IPv6",
        "udp -target fd00:1::1 -count 1000 -size 1300",
        &["seen from fd00:1::2", "answered 1000 again"],
    ),
    (
        "error of the target, IPv4",
        "udp -target 10.1.0.1 -port 9",
        &["error 3 3 from 10.1.0.1"],
    ),
    (
        "error of the target, IPv6",
        "udp -target fd00:1::1 -port 9",
        &["error 1 4 from fd00:1::1"],
    ),
    (
        "target that is not allowed, IPv4",
        "ping -target 10.7.0.1",
        &["error 3 13 from 10.90.0.1"],
    ),
    (
        "target that is not allowed, IPv6",
        "ping -target fd07::1",
        &["error 1 1 from fd90:7c3a::1"],
    ),
    // Their client takes the first of two hops.
    (
        "no hops left, IPv4",
        "ping -target 10.1.0.1 -hops 2",
        &["error 11 0 from 10.90.0.1"],
    ),
    (
        "no hops left, IPv6",
        "ping -target fd00:1::1 -hops 2",
        &["error 3 0 from fd90:7c3a::1"],
    ),
    ("no credential", "learn -stranger", &["answer 401"]),
];

fn cases() -> Vec<Case> {
    use Role::{OurClient, TheirClient};
    let packets = PACKETS.into_iter().map(|(feature, words, says)| {
        Case::run(feature, TheirClient, move |bench| {
            exchange(bench, &CARRIES, words, says)
        })
    });
    let others = [
        Case::run("far end without pools", TheirClient, |bench| {
            exchange(bench, &[], "learn", &["join 200", "answer 501"])
        }),
        Case::run("1,000 packets of UDP, IPv4", OurClient, |bench| {
            at_their_proxy(bench, "/.well-known/masque/ip/*/*/", 1000)
        }),
        Case::run("template with variables", OurClient, |bench| {
            at_their_proxy(bench, "/.well-known/masque/ip/{target}/{ipproto}/", 1)
        }),
        Case::cannot(
            "one network or protocol alone",
            TheirClient,
            "it takes no template with variables",
        ),
        Case::cannot("packets in capsules", TheirClient, "it skips such capsules"),
    ];
    packets.chain(others).collect()
}

/// What their client says about packets that it sends through our far end.
fn exchange(
    bench: &mut Bench<'_>,
    far_end: &[&str],
    words: &str,
    says: &[&str],
) -> Result<(), String> {
    let bed = Testbed::new("connect-ip").map_err(|e| format!("{NOT_RUN}{e}"))?;
    let hosts = Hosts::join(bed).map_err(|e| e.to_string())?;
    let command = hosts
        .far
        .command(&bench.ours.anabranch.display().to_string());
    let far_end = FarEnd::start_by(bench, command, FAR_END, far_end)?;
    let (what, options) = words.split_once(' ').unwrap_or((words, ""));
    let mut client = hosts
        .near
        .command(&bench.theirs.client.display().to_string());
    client
        .args([what, &far_end.address.to_string(), &far_end.invitation])
        .arg("-ca")
        .arg(&bench.ours.cert)
        .args(options.split_whitespace());
    let mut client = bench.start("their-client", &mut client)?;
    client.succeeds(PATIENCE)?;
    let said = client.said();
    says.iter().try_for_each(|line| ensure_said(&said, line))
}

/// Their proxy's own address behind its device, and the one that it gives.
const INSIDE: [&str; 2] = ["10.90.0.1", "10.90.0.2"];
/// Their device.
const DEVICE: &str = "proxy0";

/// Our near end sends packets by its device to the other side of theirs, and has answers to all.
fn at_their_proxy(bench: &mut Bench<'_>, template: &str, count: u32) -> Result<(), String> {
    let bed = Testbed::new("connect-ip").map_err(|e| format!("{NOT_RUN}{e}"))?;
    let hosts = Hosts::join(bed).map_err(|e| e.to_string())?;
    let mut server = hosts
        .far
        .command(&bench.theirs.server.display().to_string());
    server
        .args(["serve", &FAR_END.to_string(), "-device", DEVICE])
        .args(["-assign", INSIDE[1]])
        .arg("-cert")
        .arg(&bench.ours.cert)
        .arg("-key")
        .arg(&bench.ours.key);
    let mut server = bench.start("their-proxy", &mut server)?;
    server.says("listening")?;
    let set_up = [
        format!("address add {}/24 dev {DEVICE}", INSIDE[0]),
        format!("link set {DEVICE} up"),
    ];
    hosts.far.ip(&set_up).map_err(|e| e.to_string())?;
    let command = hosts
        .near
        .command(&bench.ours.anabranch.display().to_string());
    // Its certificate is for this name, which leads elsewhere.
    let url = format!("https://localhost:{},{FAR_END}/", FAR_END.port());
    let options = ["--tun", "--ip-template", template];
    let ca = &bench.ours.cert;
    let mut near = NearEnd::begin_by(bench, command, &url, ca, &options)?;
    near.tells(&format!("packets of any protocol, as {}", INSIDE[1]))?;
    let rule = format!("rule add to {} lookup 716998", INSIDE[0]);
    hosts.near.ip(&[rule]).map_err(|e| e.to_string())?;
    let bind = |node: &Node, ip: &str| -> Result<UdpSocket, String> {
        let bound = node.enter(|| UdpSocket::bind((ip, 0)));
        bound
            .map_err(|e| e.to_string())?
            .map_err(|e: io::Error| format!("{ip}: {e}"))
    };
    let port = near_end::echo_at(bind(&hosts.far, INSIDE[0])?).map_err(|e| e.to_string())?;
    let socket = bind(&hosts.near, INSIDE[1])?;
    let exchanged = socket.connect((INSIDE[0], port));
    let exchanged = exchanged.and_then(|()| near_end::exchange(&socket, count));
    exchanged.map_err(|e| format!("packets: {e}"))
}

/// Two hosts with a link; gone when dropped.
#[derive(Debug)]
struct Hosts {
    near: Node,
    far: Node,
    _bed: Testbed,
}

impl Hosts {
    fn join(mut bed: Testbed) -> Result<Self, Error> {
        let (near, far) = (bed.node("near")?, bed.node("far")?);
        let link = LinkSpec::new("10.1.0.1/24".parse()?, "10.1.0.2/24".parse()?);
        bed.link(&near, &far, &link)?;
        for (node, address) in [(&near, "fd00:1::1"), (&far, "fd00:1::2")] {
            node.ip(&[format!("address add {address}/64 dev path0 nodad")])?;
        }
        far.set_sysctl("ipv4/ip_forward", "1")?;
        far.set_sysctl("ipv6/conf/all/forwarding", "1")?;
        Ok(Self {
            near,
            far,
            _bed: bed,
        })
    }
}
