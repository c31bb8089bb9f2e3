//! A restart by a manager of services that keeps the device: what hosts have open by it goes on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::Node;
use common::beyond::TARGETS;
use common::manager::Manager;
use common::packets::{CLIENT, Net, carries};
use common::pinger::Pinger;
use common::process::Process;
use common::wait_for;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);
/// How long packets go unanswered that were sent shortly before the end.
const BEFORE: Duration = Duration::from_millis(500);

/// The number of a device; none if there is no such device.
fn index(node: &Node, device: &str) -> Option<u64> {
    let said = node.run("ip", &["-j", "link", "show", "dev", device]);
    let said: Value = serde_json::from_str(&said.ok()?).unwrap();
    said[0]["ifindex"].as_u64()
}

/// The addresses and routes by a device.
fn routes(node: &Node, device: &str) -> String {
    let mut all = String::new();
    for family in ["-4", "-6"] {
        for words in [
            ["-o", "address", "show", "dev", device, "scope", "global"].as_slice(),
            &["route", "show", "table", "all", "dev", device],
        ] {
            all += &node.run("ip", &[&[family], words].concat()).unwrap();
        }
    }
    all
}

/// Counts packets to the target that leave by a link and not by the tunnel.
fn watch_links(node: &Node) {
    let rules = "table inet watch { chain leave { \
                 type filter hook postrouting priority 300; policy accept; \
                 oifname { \"path0\", \"path1\" } ip daddr 203.0.113.7 counter; }; }";
    node.run("nft", &[rules]).unwrap();
}

fn leaked(node: &Node) -> u64 {
    let said = node.run("nft", &["-j", "list", "table", "inet", "watch"]);
    let said: Value = serde_json::from_str(&said.unwrap()).unwrap();
    let all = said["nftables"].as_array().unwrap();
    let rule = all.iter().find_map(|one| one.get("rule")).unwrap();
    let parts = rule["expr"].as_array().unwrap();
    let counter = parts.iter().find_map(|one| one.get("counter")).unwrap();
    counter["packets"].as_u64().unwrap()
}

/// Sends what goes to the target by the table of the device.
fn lead(node: &Node) {
    let rule = ["rule", "add", "to", TARGETS[0], "lookup", "716998"];
    node.run("ip", &rule).unwrap();
}

#[track_caller]
fn wait_for_answers(pinger: &Pinger) -> Instant {
    let now = Instant::now();
    wait_for("an answer", END, || pinger.is_answered_since(now));
    Instant::now()
}

/// Checks that nothing was refused, and nothing lost but from `begin` to `end`; a busy machine may
/// lose one at another time.
#[track_caller]
fn lost_only_between(pinger: &Pinger, begin: Instant, end: Instant) {
    let seen = pinger.settle();
    assert!(seen.refused.is_empty(), "{:?}", seen.refused);
    let (gap, lost) = seen.gap();
    // What waits in the device's queue is late, and not lost.
    let Some([first, last]) = gap else {
        return eprintln!("none of {} lost", seen.sent.len());
    };
    eprintln!("{lost} of {} lost in {:?}", seen.sent.len(), last - first);
    let is_within = first + BEFORE >= begin && last <= end;
    assert!(is_within || lost == 1, "{lost} lost");
}

/// What a descriptor of a process is of, for each that it has.
fn open_files(process: &Process) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    let all = all.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    all.map(|one| one.display().to_string()).collect()
}

#[test]
fn a_device_outlives_a_restart_of_the_near_end_and_a_ping_by_it_goes_on() {
    let Some(net) = Net::new("restart-near") else {
        return;
    };
    let (_far, url) = net.serve();
    let client = &net.lab.client;
    let command = net.near_command(&url, &["--tun", "tun7"]);
    let mut manager = Manager::new(true);
    let mut near = manager.start(&command);
    carries(&near);
    assert_eq!(manager.store.len(), 1, "{:?}", manager.heard);
    assert_eq!(manager.store[0].0, "near-tun");
    watch_links(client);
    lead(client);
    let first = index(client, "tun7");
    assert!(first.is_some());
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let pinger = Pinger::start(client, TARGETS[0]);
        wait_for_answers(&pinger);
        let before = routes(client, "tun7");
        assert!(CLIENT.iter().all(|ip| before.contains(ip)), "{before}");
        let begin = Instant::now();
        near = manager.restart(near, signal, &command, || {
            assert_eq!(routes(client, "tun7"), before, "{signal}");
        });
        let end = wait_for_answers(&pinger);
        lost_only_between(&pinger, begin, end);
        carries(&near);
        assert_eq!(index(client, "tun7"), first);
        assert_eq!(routes(client, "tun7"), before);
        assert_eq!(manager.store.len(), 1, "kept once: {:?}", manager.heard);
    }
    assert_eq!(leaked(client), 0);
    manager.stop(near, Signal::SIGTERM);
    wait_for("the end of the device", END, || {
        index(client, "tun7").is_none()
    });
}

#[test]
fn without_somebody_who_keeps_it_a_device_goes_with_the_process() {
    let Some(net) = Net::new("restart-plain") else {
        return;
    };
    let (_far, url) = net.serve();
    let client = &net.lab.client;
    let command = net.near_command(&url, &["--tun", "tun7"]);
    let mut manager = Manager::new(false);
    let near = manager.start(&command);
    carries(&near);
    let first = index(client, "tun7");
    assert!(first.is_some() && manager.store.is_empty());
    let near = manager.restart(near, Signal::SIGTERM, &command, || {
        assert_eq!(index(client, "tun7"), None);
    });
    carries(&near);
    assert!(index(client, "tun7") > first);
    manager.stop(near, Signal::SIGTERM);
    assert_eq!(index(client, "tun7"), None);
}

#[test]
fn what_is_captured_stays_so_over_a_restart_and_nothing_leaves_beside_the_tunnel() {
    let Some(net) = Net::new("restart-lan") else {
        return;
    };
    let (_far, url) = net.serve();
    let client = &net.lab.client;
    watch_links(client);
    let untouched = net.tables();
    let options = ["--capture", "lan=path2", "--capture", "host"];
    let command = net.near_command(&url, &options);
    let mut manager = Manager::new(true);
    let mut near = manager.start(&command);
    carries(&near);
    manager.hear_until("FDNAME=near-tun");
    let first = index(client, "anabranch");
    let rules = |node: &Node| node.run("ip", &["rule"]).unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let pinger = Pinger::start(&net.host, TARGETS[0]);
        wait_for_answers(&pinger);
        let (before, ruled) = (routes(client, "anabranch"), rules(client));
        let begin = Instant::now();
        near = manager.restart(near, signal, &command, || {
            // Neither this machine nor the host gets a connection, by whichever way.
            for node in [client, &net.host] {
                let to = format!("{}:80", TARGETS[0]).parse().unwrap();
                let connect = || std::net::TcpStream::connect_timeout(&to, END / 60);
                assert!(node.enter(connect).unwrap().is_err());
            }
            assert_eq!(routes(client, "anabranch"), before, "{signal}");
        });
        let end = wait_for_answers(&pinger);
        lost_only_between(&pinger, begin, end);
        carries(&near);
        assert_eq!(index(client, "anabranch"), first);
        assert_eq!(
            (routes(client, "anabranch"), rules(client)),
            (before, ruled)
        );
    }
    assert_eq!(leaked(client), 0);
    manager.stop(near, Signal::SIGTERM);
    wait_for("everything is undone", END, || net.tables() == untouched);
}

#[test]
fn clients_of_a_far_end_that_is_restarted_go_on_with_the_same_device() {
    let Some(net) = Net::new("restart-far") else {
        return;
    };
    let untouched = net.tables();
    let command = net.far_command(&[]);
    let mut manager = Manager::new(true);
    let mut far = manager.start(&command);
    let url = far.first_line();
    let near = net.join(&url, &["--tun", "tun7"]);
    let (client, server) = (&net.lab.client, &net.lab.server);
    lead(client);
    let first = index(server, "anabranch-exit");
    let tables = || server.run("nft", &["list", "table", "inet", "anabranch-exit"]);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let pinger = Pinger::start(client, TARGETS[0]);
        wait_for_answers(&pinger);
        let begin = Instant::now();
        far = manager.restart(far, signal, &command, || {
            assert!(tables().is_ok(), "what comes back belongs to clients");
        });
        let end = wait_for_answers(&pinger);
        lost_only_between(&pinger, begin, end);
        assert_eq!(index(server, "anabranch-exit"), first);
        assert_eq!(manager.store.len(), 1);
    }
    drop(near);
    // Another pool: addresses are put right.
    far.signal(Signal::SIGTERM);
    far.wait(END);
    let mut other = common::program(server);
    other.args([
        "tunnel",
        "serve",
        "--listen",
        "10.99.0.1",
        "--ip",
        "10.91.0.0/16",
    ]);
    other.arg("--state").arg(net.lab.path("other"));
    let far = manager.start(&other);
    let now = routes(server, "anabranch-exit");
    assert_eq!(index(server, "anabranch-exit"), first);
    assert!(now.contains("10.91.0.1/16") && !now.contains("10.90.") && !now.contains("fd90:"));
    manager.stop(far, Signal::SIGTERM);
    client
        .run("ip", &["rule", "del", "to", TARGETS[0]])
        .unwrap();
    wait_for("everything is undone", END, || net.tables() == untouched);
}

/// Starts a node that says why it does not use what is kept, and makes its device as ever.
#[track_caller]
fn refused(manager: &mut Manager, command: &Command, client: &Node, why: &str) -> Process {
    let near = manager.start(command);
    carries(&near);
    let said = near.stderr();
    assert!(said.contains(why), "{why}: {said}");
    // Only the new one is kept.
    assert_eq!(manager.store.len(), 1, "{:?}", manager.heard);
    assert!(index(client, "tun7").is_some());
    near
}

#[test]
fn a_descriptor_that_is_no_device_is_closed_and_the_node_starts_as_ever() {
    let Some(net) = Net::new("restart-wrong") else {
        return;
    };
    let (_far, url) = net.serve();
    let command = net.near_command(&url, &["--tun", "tun7"]);
    let file = File::create(net.lab.path("a-file-of-others")).unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    let mut manager = Manager::new(true);
    for (name, kept, why) in [
        ("near-tun", file.into(), "it is no TUN device"),
        ("near-tun", socket.into(), "it is no TUN device"),
        ("elsewhere", null.into(), "nothing of this node is kept so"),
    ] {
        manager.store.push((name.into(), kept));
        let why = format!("`{name}` is closed and not used: {why}");
        let near = refused(&mut manager, &command, &net.lab.client, &why);
        let open = open_files(&near);
        let is_open = open.iter().any(|one| one.contains("of-others"));
        assert!(!is_open, "{open:?}");
        manager.stop(near, Signal::SIGTERM);
    }
}

#[test]
fn of_two_descriptors_none_is_taken_and_neither_is_that_of_another_device() {
    let Some(net) = Net::new("restart-other") else {
        return;
    };
    let (_far, url) = net.serve();
    let client = &net.lab.client;
    let command = net.near_command(&url, &["--tun", "tun7"]);
    let mut manager = Manager::new(true);
    let near = manager.start(&net.near_command(&url, &["--tun", "tun8"]));
    carries(&near);
    near.signal(Signal::SIGTERM);
    near.wait(END);
    let near = refused(
        &mut manager,
        &command,
        client,
        "not used: it is the device `tun8`",
    );
    assert_eq!(index(client, "tun8"), None);
    // The right one and another one: nobody knows which.
    let first = index(client, "tun7");
    near.signal(Signal::SIGTERM);
    near.wait(END);
    let near = manager.start_with_two(&command);
    carries(&near);
    let said = near.stderr();
    assert!(said.contains("not used: 2 are kept so"), "{said}");
    assert_eq!(manager.store.len(), 1, "{:?}", manager.heard);
    assert!(index(client, "tun7") > first);
    manager.stop(near, Signal::SIGTERM);
    wait_for("the end of the device", END, || {
        index(client, "tun7").is_none()
    });
}
