//! Packets of any protocol by a tunnel, between unmodified hosts.
//!
//! ```text
//! host ── 192.168.50.0/24 ── near ══ path0, path1 ══ far ── 203.0.113.0/24 ── target
//!                          10.90.0.2              10.90.0.1
//! ```

use super::beyond::attach;
use super::process::Process;
use super::{Lab, program, wait_for};
use anabranch_testbed::{Need, Node, Rate, resumed};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

pub const POOLS: [&str; 2] = ["10.90.0.0/16", "fd90:7c3a::/64"];
/// The far end and the first client, as they are called there.
pub const FAR: [&str; 2] = ["10.90.0.1", "fd90:7c3a::1"];
pub const CLIENT: [&str; 2] = ["10.90.0.2", "fd90:7c3a::2"];

pub struct Net {
    pub lab: Lab,
    pub host: Node,
    pub target: Node,
}

impl Net {
    pub fn new(name: &str) -> Option<Self> {
        let mut lab = Lab::new(name, &[Rate::mbit(20); 2])?;
        if !Need::Network.programs(name, &["nft", "sh"]) {
            return None;
        }
        let (host, target) = attach(&mut lab);
        Some(Self { lab, host, target })
    }

    pub fn far_command(&self, options: &[&str]) -> Command {
        let mut command = program(&self.lab.server);
        let state = self.lab.path("far");
        command.args(["tunnel", "serve", "--listen", "10.99.0.1", "--state"]);
        command.arg(&state).env("XDG_RUNTIME_DIR", &state);
        for pool in POOLS {
            command.args(["--ip", pool]);
        }
        command.args(options);
        command
    }

    /// A far end, and a URL that leads to it.
    pub fn serve(&self) -> (Process, String) {
        let mut far = Process::start(&mut self.far_command(&[]), &self.lab.directory);
        let url = far.first_line();
        (far, url)
    }

    pub fn near_command(&self, url: &str, options: &[&str]) -> Command {
        let mut command = program(&self.lab.client);
        let state = self.lab.path("near");
        command.args(["tunnel", "join", url, "--state"]);
        command.arg(&state).env("XDG_RUNTIME_DIR", &state);
        command.args(["--path", "path0", "--path", "path1", "-v"]);
        command.args(options);
        command
    }

    /// A near end that carries packets of both families.
    pub fn join(&self, url: &str, options: &[&str]) -> Process {
        let mut command = self.near_command(url, options);
        let near = Process::start(&mut command, &self.lab.directory);
        carries(&near);
        near
    }

    /// Everything that is changed on both machines.
    pub fn tables(&self) -> String {
        let mut all = String::new();
        for node in [&self.lab.client, &self.lab.server] {
            all += &node.run("nft", &["list", "ruleset"]).unwrap();
            for words in [
                "rule",
                "-6 rule",
                "-o link",
                "route show table all proto 171",
                "-6 route show table all proto 171",
            ] {
                let words: Vec<&str> = words.split(' ').collect();
                let said = node.run("ip", &words).unwrap_or_default();
                // The state and number of links that were there before may change.
                let lines = said.lines().filter(|_| words[0] != "-o");
                all.extend(lines);
                all.extend(said.match_indices("anabranch").map(|(_, name)| name));
            }
        }
        all
    }
}

/// Waits until a near end says that it carries packets of both families.
pub fn carries(near: &Process) {
    let says = format!("any protocol, as {} and {}", CLIENT[0], CLIENT[1]);
    wait_for("addresses", END, || near.stderr().contains(&says));
}

/// What comes back from a ping, and from whom.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub kind: [u8; 2],
    pub from: IpAddr,
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "compared with what may be nothing"
)]
pub fn answer(kind: [u8; 2], from: &str) -> Option<Answer> {
    let from = from.parse().unwrap();
    Some(Answer { kind, from })
}

/// Pings once; nothing if nothing comes back.
pub fn ping(from: &Node, to: &str, hops: u32, patience: Duration) -> Option<Answer> {
    const V4: [u8; 8] = [8, 0, 0xf7, 0xfe, 0, 0, 0, 1];
    const V6: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 1];
    let to = SocketAddr::new(to.parse().unwrap(), 0);
    let (domain, protocol, request, header) = match to {
        SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, V4, 20),
        SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, V6, 0),
    };
    let send = || {
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
        if to.is_ipv4() {
            socket.set_ttl_v4(hops).unwrap();
        } else {
            socket.set_unicast_hops_v6(hops).unwrap();
        }
        socket.set_read_timeout(Some(patience)).unwrap();
        // Refused on this machine itself.
        socket.send_to(&request, &to.into()).ok()?;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let from = resumed(|| socket.peek_sender()).ok()?.as_socket()?.ip();
            let mut bytes = [0; 2048];
            let length = resumed(|| (&socket).read(&mut bytes)).ok()?;
            assert!(length > header + 1, "{length}");
            let kind = [bytes[header], bytes[header + 1]];
            // Neighbours are looked for by the same protocol.
            if !matches!(kind[0], 128 | 133..=137) {
                return Some(Answer { kind, from });
            }
        }
        None
    };
    from.enter(send).unwrap()
}

/// Pings until something comes back.
#[track_caller]
pub fn ping_again(from: &Node, to: &str, hops: u32) -> Option<Answer> {
    (0..10).find_map(|_| ping(from, to, hops, Duration::from_secs(3)))
}
