//! Two far ends behind one address: the balancer is nftables, by the commands of
//! `docs/tunnel-operation.md`.
//!
//! ```text
//! client ══ path0, path1 ══ balancer ── 10.50.1.0/24 ── node 01
//!                              └─────── 10.50.2.0/24 ── node 02     both have 10.99.0.1
//! ```
//! The client is that of the lab, the balancer its server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{LinkSpec, Need, Node, Rate};
use common::process::Process;
use common::{Lab, wait_for};
use nix::sys::signal::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// A service that both nodes have: each on the address that all clients call.
const SERVICE: &str = "10.99.0.1:8000";
const SERVICE_RULE: &str = "10.99.0.1,8000";
/// Where the near end listens, in the namespace of the client.
const PROXY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 1080);

/// The blocks of commands in the section "A fleet", by what they are called in its comments.
fn printed(called: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tunnel-operation.md");
    let page = fs::read_to_string(page).unwrap();
    let start = format!("```sh\n# {called}\n");
    let (_, rest) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("no `{called}`"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// Runs commands of the page as they are printed.
fn shell(node: &Node, called: &str) {
    let script = format!("set -e\n{}", printed(called));
    node.run("sh", &["-c", &script]).unwrap();
}

/// A far end, and the service at its machine.
struct Far {
    node: Node,
    process: Process,
    service: TcpListener,
    url: String,
}

impl Far {
    fn start(lab: &Lab, node: Node, number: usize) -> Self {
        let state = lab.path(&format!("node{number}"));
        let mut command = common::program(&node);
        let serve = [
            "tunnel",
            "serve",
            "--advertise",
            "10.99.0.1",
            "--allow",
            SERVICE_RULE,
        ];
        command
            .args(serve)
            .args(["--server-id", &format!("{number:02}")]);
        command
            .arg("--state")
            .arg(&state)
            .env("XDG_RUNTIME_DIR", &state);
        let mut process = Process::start(&mut command, &lab.directory);
        let url = process.first_line();
        let service = node.enter(|| TcpListener::bind(SERVICE)).unwrap().unwrap();
        service.set_nonblocking(true).unwrap();
        Self {
            node,
            process,
            service,
            url,
        }
    }
}

/// A connection of an application through the tunnel.
struct Flow {
    stream: TcpStream,
    accepted: TcpStream,
    /// At which node it ends.
    at: usize,
}

impl Flow {
    /// A few bytes, there and back.
    fn exchange(&mut self) {
        let mut bytes = [0; 4];
        self.stream.write_all(b"ping").unwrap();
        self.accepted.read_exact(&mut bytes).unwrap();
        self.accepted.write_all(&bytes).unwrap();
        self.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ping");
    }
}

struct Fleet {
    lab: Lab,
    far: Vec<Far>,
    near: Process,
}

impl Fleet {
    /// Both nodes, and a near end that is connected to the first of them by both paths.
    fn new(name: &str) -> Option<Self> {
        let mut lab = Lab::new(name, &[Rate::mbit(20); 2])?;
        if !Need::Network.programs(name, &["nft", "sysctl"]) {
            return None;
        }
        // The balancer leads to the address, and has it not.
        let delete = ["address", "del", "10.99.0.1/32", "dev", "lo"];
        lab.server.run("ip", &delete).unwrap();
        let [one, other] = [1, 2].map(|number| {
            let node = lab.bed.node(&format!("node{number}")).unwrap();
            let end = |host: u8| format!("10.50.{number}.{host}/24").parse().unwrap();
            let link = LinkSpec::new(end(1), end(2));
            lab.bed.link(&lab.server, &node, &link).unwrap();
            let gateway = format!("10.50.{number}.1");
            let route = ["route", "add", "default", "via", &gateway];
            node.run("ip", &route).unwrap();
            shell(&node, "on each node");
            node
        });
        shell(&lab.server, "on the balancer");
        lead_newcomers_to(&lab, 1);
        let first = Far::start(&lab, one, 1);
        let state = lab.path("near");
        let mut command = common::program(&lab.client);
        command.args([
            "tunnel", "join", &first.url, "--path", "path0", "--path", "path1",
        ]);
        command
            .arg("-v")
            .arg("--state")
            .arg(&state)
            .env("XDG_RUNTIME_DIR", &state);
        let near = Process::start(&mut command, &lab.directory);
        let mut fleet = Self {
            lab,
            far: vec![first],
            near,
        };
        for at in 0..2 {
            fleet.hear(&format!("path{at} (10.{}.0.1): up", at + 1), 1);
        }
        // Who was let in is on the disk by now: the second knows the same key and clients.
        fleet.hear("connected to", 1);
        copy(&fleet.lab.path("node1"), &fleet.lab.path("node2"));
        fleet.far.push(Far::start(&fleet.lab, other, 2));
        Some(fleet)
    }

    fn connect(&self) -> Flow {
        let open = || TcpStream::connect(PROXY).unwrap();
        let mut stream = self.lab.client.enter(open).unwrap();
        stream.set_read_timeout(Some(END)).unwrap();
        write!(stream, "CONNECT {SERVICE} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = [0; 39];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 Connection established\r\n\r\n");
        let mut found = None;
        wait_for("the connection at a node", END, || {
            let accept = |at: usize| Some((self.far[at].service.accept().ok()?.0, at));
            found = (0..self.far.len()).find_map(accept);
            found.is_some()
        });
        let (accepted, at) = found.unwrap();
        accepted.set_nonblocking(false).unwrap();
        accepted.set_read_timeout(Some(END)).unwrap();
        Flow {
            stream,
            accepted,
            at,
        }
    }

    /// Waits until the near end has said this so many times.
    #[track_caller]
    fn hear(&self, words: &str, times: usize) {
        let started = Instant::now();
        while self.near.stderr().matches(words).count() < times {
            let said = self.near.stderr();
            assert!(
                started.elapsed() < END,
                "`{words}` is not {times} times in: {said}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn lead_newcomers_to(lab: &Lab, number: usize) {
    let rules = format!(
        "flush chain ip fleet newcomers; add rule ip fleet newcomers meta mark set {number}"
    );
    lab.server.run("nft", &[&rules]).unwrap();
}

/// Copies the files of a state directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn all_paths_reach_one_node_a_drained_one_loses_nothing_and_a_killed_one_is_replaced() {
    let Some(mut fleet) = Fleet::new("fleet") else {
        return;
    };
    // From here on only the number in its connection IDs leads a packet to the first node.
    shell(&fleet.lab.server, "node 01 gets no new clients");
    let mut old = fleet.connect();
    assert_eq!(old.at, 0);
    fleet.lab.set_up(0, false);
    old.exchange();
    fleet.lab.set_up(0, true);
    old.exchange();

    let state = fleet.lab.path("node1");
    let mut drain = common::program(&fleet.far[0].node);
    drain
        .args(["tunnel", "drain"])
        .env("XDG_RUNTIME_DIR", &state);
    let drained = common::ending::output(&mut drain);
    assert!(drained.status.success(), "{drained:?}");
    fleet.hear("the far end is leaving", 1);
    fleet.hear("connected to", 2);
    let mut new = fleet.connect();
    assert_eq!(new.at, 1, "who is told goes elsewhere");
    new.exchange();
    old.exchange();
    drop(old);
    let Far { node, process, .. } = fleet.far.remove(0);
    let ended = process.wait(END);
    assert!(ended.status.success(), "{}", ended.stderr);
    new.exchange();
    assert!(!fleet.near.stderr().contains("the tunnel broke"));

    fleet.far.insert(0, Far::start(&fleet.lab, node, 1));
    fleet.far[1].process.signal(Signal::SIGKILL);
    shell(&fleet.lab.server, "node 02 is dead");
    // The other node knows the key, and so how to tell that the connection is gone.
    // Whoever asks next hears of it, which may have happened already.
    let _ = new.stream.write_all(b"ping");
    fleet.hear("the tunnel broke", 1);
    fleet.hear("connected to", 3);
    let mut next = fleet.connect();
    assert_eq!(next.at, 0);
    next.exchange();
}
