//! The emulator between namespaces of the kernel that the tests run on.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::tests::{drain, receive};
use crate::{Node, Testbed};
use anabranch_link::{Loss, Probability, Queue, Rate};

use super::*;
use crate::emulate::End;

/// After this much silence, nothing more arrives.
const MOMENT: Duration = Duration::from_millis(400);
/// A bound where a failing test would wait for ever.
const NEVER: Duration = Duration::from_secs(120);

fn wire() -> LinkConfig {
    LinkConfig::default()
}

fn delayed(ms: u64) -> LinkConfig {
    LinkConfig::new(Rate::Unlimited, Duration::from_millis(ms))
}

fn mbit(rate: u64) -> Rate {
    Rate::bits_per_second(rate * 1_000_000).unwrap()
}

fn end(node: &Node, addresses: &[&str]) -> End {
    End {
        node: node.clone(),
        interface: "path0".to_owned(),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        mtu: 1500,
    }
}

/// Two hosts and one emulated link between them.
struct Pair {
    layer: Box<dyn LinkLayer>,
    a: Node,
    b: Node,
    /// Keeps the hosts alive.
    bed: Testbed,
}

impl Pair {
    fn new(name: &str, configs: [LinkConfig; 2]) -> Option<Self> {
        Self::with(name, configs, None)
    }

    fn with(name: &str, configs: [LinkConfig; 2], pcap: Option<&Path>) -> Option<Self> {
        let mut bed = Testbed::require(name)?;
        let (a, b) = (bed.node("a").unwrap(), bed.node("b").unwrap());
        let plan = LinkPlan {
            name: name.to_owned(),
            ends: [
                end(&a, &["10.9.0.1/24", "fd09::1/64"]),
                end(&b, &["10.9.0.2/24", "fd09::2/64"]),
            ],
            configs,
            seed: 7,
            pcap: pcap.map(Path::to_owned),
        };
        let layer = emulator(vec![plan]).unwrap();
        Some(Self { layer, a, b, bed })
    }

    /// A connected socket in A and a bound one in B.
    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        self.sockets_at("10.9.0.1:0", "10.9.0.2:4000")
    }

    fn sockets_at(&self, from: &str, to: &str) -> (UdpSocket, UdpSocket) {
        let to: SocketAddr = to.parse().unwrap();
        let receiver = self.b.enter(|| UdpSocket::bind(to).unwrap()).unwrap();
        receiver.set_read_timeout(Some(MOMENT)).unwrap();
        let sender = self.a.enter(|| UdpSocket::bind(from).unwrap()).unwrap();
        sender.connect(to).unwrap();
        (sender, receiver)
    }

    fn forward(&mut self) -> Counters {
        self.layer.counters(0, Way::Forward).unwrap()
    }

    fn wait_until_in(&mut self, packets: u64) {
        let started = Instant::now();
        while self.forward().packets_in < packets {
            assert!(started.elapsed() < NEVER, "they do not enter");
        }
    }
}

fn send(sender: &UdpSocket, count: usize) {
    for _ in 0..count {
        sender.send(&[7; 972]).unwrap();
    }
}

#[test]
fn packets_of_both_families_cross_and_are_counted_without_their_ethernet_headers() {
    let Some(mut pair) = Pair::new("cross", [wire(), wire()]) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    send(&sender, 10);
    assert_eq!(drain(&receiver), 10);
    let counters = pair.forward();
    assert_eq!((counters.packets_in, counters.bytes_in), (10, 10_000));
    assert_eq!(counters.packets_delivered, 10);
    assert_eq!(counters.bytes_delivered, 10_000);
    let (sender, receiver) = pair.sockets_at("[fd09::1]:0", "[fd09::2]:4000");
    send(&sender, 5);
    assert_eq!(drain(&receiver), 5);
    assert_eq!(pair.forward().bytes_delivered, 10_000 + 5 * 1020);
    let back = pair.layer.counters(0, Way::Backward).unwrap();
    assert_eq!(back.packets_in, 0, "no chatter of the kernel's own");
    let health = pair.layer.health();
    assert!(health.late_max > Duration::ZERO && health.cpu > Duration::ZERO);
    assert_eq!((health.own_drops, health.capture_lost), (0, 0));
    let nothing = pair.layer.counters(1, Way::Forward).unwrap_err();
    assert!(matches!(nothing, Error::NoSuchLink { link: 1, count: 1 }));
}

#[test]
fn the_ways_of_a_link_have_delays_of_their_own() {
    let Some(pair) = Pair::new("ways", [delayed(150), delayed(50)]) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    receiver.set_read_timeout(Some(NEVER)).unwrap();
    sender.set_read_timeout(Some(NEVER)).unwrap();
    let mut there = Vec::new();
    let mut back = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        send(&sender, 1);
        assert!(receive(&receiver));
        there.push(started.elapsed());
        let answered = Instant::now();
        receiver
            .send_to(&[1], sender.local_addr().unwrap())
            .unwrap();
        assert!(receive(&sender));
        back.push(answered.elapsed());
    }
    let (there, back) = (there.iter().min().unwrap(), back.iter().min().unwrap());
    assert!(*there >= Duration::from_millis(150) && *back >= Duration::from_millis(50));
    assert!(
        *there < Duration::from_millis(300) && back < there,
        "{there:?} {back:?}"
    );
}

#[test]
fn a_change_of_rate_keeps_what_waits() {
    let slow = LinkConfig {
        queue: Queue::TailDropPackets(100),
        ..LinkConfig::new(Rate::bits_per_second(8_000).unwrap(), Duration::ZERO)
    };
    let Some(mut pair) = Pair::new("change", [slow.clone(), wire()]) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    // At this rate each packet takes a second, so nothing leaves before the change.
    send(&sender, 20);
    pair.wait_until_in(20);
    let waiting = pair.forward();
    assert!(waiting.queue_bytes >= 17_000, "{waiting:?}");
    let fast = LinkConfig {
        rate: mbit(10),
        ..slow
    };
    pair.layer.change(0, Way::Forward, fast).unwrap();
    assert_eq!(drain(&receiver), 20);
    let counters = pair.forward();
    assert_eq!((counters.queue_bytes, counters.dropped_queue), (0, 0));
    assert!(counters.queue_max_bytes >= waiting.queue_bytes);
    assert!(counters.mean_sojourn > Some(Duration::ZERO));
}

#[test]
fn a_full_queue_drops_and_chance_takes_its_share() {
    let config = LinkConfig {
        queue: Queue::TailDropPackets(10),
        loss: Loss::Independent(Probability::ALWAYS),
        ..LinkConfig::new(mbit(1), Duration::ZERO)
    };
    let Some(mut pair) = Pair::new("drops", [config, wire()]) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    send(&sender, 50);
    pair.wait_until_in(50);
    assert_eq!(drain(&receiver), 0);
    let counters = pair.forward();
    assert!(
        counters.dropped_queue > 0 && counters.dropped_chance >= 11,
        "{counters:?}"
    );
    assert_eq!(counters.dropped_queue + counters.dropped_chance, 50);
    assert_eq!(counters.dropped_silent, 0);
}

#[test]
fn silence_takes_one_way_and_tells_nobody() {
    let Some(mut pair) = Pair::new("silent", [wire(), wire()]) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    pair.layer.set_silent(0, Way::Forward, true).unwrap();
    // Neither a new configuration nor the link coming up ends the silence.
    pair.layer.change(0, Way::Forward, delayed(1)).unwrap();
    send(&sender, 5);
    assert_eq!(drain(&receiver), 0);
    receiver
        .send_to(&[1], sender.local_addr().unwrap())
        .unwrap();
    sender.set_read_timeout(Some(NEVER)).unwrap();
    assert!(receive(&sender), "the other way goes on");
    assert_eq!(pair.forward().dropped_silent, 5);
    pair.layer.set_silent(0, Way::Forward, false).unwrap();
    send(&sender, 5);
    assert_eq!(drain(&receiver), 5);
}

#[test]
fn hosts_see_a_link_go_down_and_find_all_as_it_was_when_it_is_back() {
    let Some(mut pair) = Pair::new("admin", [wire(), wire()]) else {
        return;
    };
    let routes = [
        "10.8.0.0/16 via 10.9.0.2 table 100",
        "fd08::/32 via fd09::2 table 100",
    ];
    let routes = routes.map(|route| format!("route add {route} dev path0"));
    pair.a.ip(&routes).unwrap();
    let (sender, receiver) = pair.sockets();
    let (six, receiver_six) = pair.sockets_at("[fd09::1]:0", "[fd09::2]:4000");
    pair.layer.set_admin(0, false).unwrap();
    pair.layer.set_admin(0, false).unwrap();
    let shown = pair.a.run("ip", &["link", "show", "dev", "path0"]).unwrap();
    assert!(!shown.contains(",UP"), "{shown}");
    let error = sender.send(&[1]).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    pair.layer.set_admin(0, true).unwrap();
    send(&sender, 3);
    assert_eq!(drain(&receiver), 3);
    send(&six, 3);
    assert_eq!(drain(&receiver_six), 3);
    for family in ["-4", "-6"] {
        let shown = pair.a.run("ip", &[family, "route", "show", "table", "100"]);
        assert!(shown.unwrap().contains("via"), "{family}");
    }
}

#[test]
fn a_capture_holds_what_both_ends_sent_and_received() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("link.pcapng");
    let Some(mut pair) = Pair::with("capture", [wire(), wire()], Some(&path)) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    send(&sender, 10);
    assert_eq!(drain(&receiver), 10);
    assert_eq!(pair.layer.health().capture_lost, 0);
    drop(pair);
    let bytes = std::fs::read(&path).unwrap();
    // The lengths of the blocks lead from one to the next, up to the end of the file.
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut packets) = (0, [0, 0]);
    while at < bytes.len() {
        if word(at) == 6 {
            packets[word(at + 8) as usize] += 1;
            assert_eq!(word(at + 20), 1014);
        }
        at += word(at + 4) as usize;
    }
    assert_eq!((at, packets), (bytes.len(), [10, 10]));
}

#[test]
fn a_large_packet_is_cut_to_the_mtu_and_segments_leave_one_by_one() {
    let Some(mut pair) = Pair::new("segments", [wire(), wire()]) else {
        return;
    };
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let listener = b.enter(|| std::net::TcpListener::bind("10.9.0.2:5000").unwrap());
    let listener = listener.unwrap();
    let sender = a.enter(|| std::net::TcpStream::connect("10.9.0.2:5000").unwrap());
    let mut sender = sender.unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let writer = std::thread::spawn(move || {
        std::io::Write::write_all(&mut sender, &vec![1; 300_000]).unwrap();
    });
    let mut all = Vec::new();
    receiver.read_to_end(&mut all).unwrap();
    writer.join().unwrap();
    assert_eq!(all.len(), 300_000);
    let counters = pair.forward();
    assert!(counters.packets_in >= 300_000 / 1460, "{counters:?}");
    assert!(counters.bytes_in / counters.packets_in <= 1500);
}

#[test]
fn links_outlive_their_hosts_without_harm() {
    let Some(pair) = Pair::new("outlive", [wire(), wire()]) else {
        return;
    };
    let Pair { mut layer, bed, .. } = pair;
    drop(bed);
    let before = layer.health().cpu;
    std::thread::sleep(Duration::from_millis(300));
    let health = layer.health();
    let used = health.cpu.saturating_sub(before);
    assert!(used < Duration::from_millis(150), "it spins");
    drop(layer);
}

#[test]
fn plans_that_cannot_be_are_refused_before_anything_is_built() {
    let Some(mut bed) = Testbed::require("plans") else {
        return;
    };
    let (a, b) = (bed.node("a").unwrap(), bed.node("b").unwrap());
    let plan = LinkPlan {
        name: "dsl".to_owned(),
        ends: [end(&a, &["10.9.0.1/24"]), end(&b, &["10.9.0.2/24"])],
        configs: [wire(), wire()],
        seed: 1,
        pcap: None,
    };
    let refused = |links: Vec<LinkPlan>| emulator(links).unwrap_err().to_string();
    let mut long = plan.clone();
    long.ends[0].interface = "a-name-too-long-for-linux".to_owned();
    assert!(refused(vec![long]).contains("1 to 15"));
    let mut twice = plan.clone();
    twice.ends[1].addresses = plan.ends[0].addresses.clone();
    assert!(refused(vec![twice]).contains("10.9.0.1"));
    let mut small = plan.clone();
    small.ends[0].mtu = 20;
    assert!(refused(vec![small]).contains("68 to"));
    let mut uneven = plan.clone();
    uneven.ends[0].mtu = 1400;
    assert!(refused(vec![uneven]).contains("expected the same"));
    assert!(refused(vec![plan.clone(), plan.clone()]).contains("called `path0`"));
    let mut nowhere = plan.clone();
    nowhere.pcap = Some("/nonexistent/link.pcapng".into());
    assert!(refused(vec![nowhere]).contains("/nonexistent/link.pcapng"));
    drop(emulator(vec![plan]).unwrap());
}

/// Names the namespaces in a process that holds links until it is killed.
const HOLD: &str = "ANABRANCH_TEST_NAMESPACES";

/// Builds links, reports that, and waits to be killed.
fn hold_links(name: &str) -> ! {
    let mut bed = Testbed::new(name).unwrap();
    let (a, b) = (bed.node("a").unwrap(), bed.node("b").unwrap());
    let ends = [end(&a, &["10.9.0.1/24"]), end(&b, &["10.9.0.2/24"])];
    let _layer = emulator(vec![LinkPlan {
        name: "held".to_owned(),
        ends,
        configs: [wire(), wire()],
        seed: 1,
        pcap: None,
    }]);
    eprintln!("holding {}", a.namespace());
    loop {
        std::thread::sleep(NEVER);
    }
}

#[test]
fn devices_vanish_with_their_process_and_hosts_with_the_next_start() {
    // The process to be killed runs this test again.
    if let Ok(name) = std::env::var(HOLD) {
        hold_links(&name);
    }
    if Testbed::require("kill").is_none() {
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let test = "devices_vanish_with_their_process_and_hosts_with_the_next_start";
    let (_, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::{test}");
    let mut child = child
        .args(["--exact", "--nocapture", &test])
        .env(HOLD, "killed")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let holding = std::io::BufRead::lines(lines)
        .find_map(|line| Some(line.unwrap().strip_prefix("holding ")?.to_owned()));
    let namespace = holding.expect("the child says what it holds");
    let interfaces = || {
        let shown = std::process::Command::new("ip")
            .args(["-n", &namespace, "link"])
            .output()
            .unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    assert!(interfaces().contains("path0"));
    child.kill().unwrap();
    child.wait().unwrap();
    let started = Instant::now();
    // Another test may remove the whole namespace first.
    while interfaces().contains("path0") {
        assert!(started.elapsed() < NEVER, "the device is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    crate::remove_stale();
    assert!(!Path::new("/run/netns").join(&namespace).exists());
}
