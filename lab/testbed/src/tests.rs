//! The testbed on the kernel that the tests run on.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::*;

/// After this much silence, nothing more arrives, even on a busy machine.
const MOMENT: Duration = Duration::from_millis(500);

/// Two hosts and one link between them.
struct Pair {
    bed: Testbed,
    a: Node,
    b: Node,
    link: LinkId,
    to_b: SocketAddr,
}

impl Pair {
    fn new(name: &str, adjust: impl FnOnce(LinkSpec) -> LinkSpec) -> Option<Self> {
        let mut bed = Testbed::require(name)?;
        let (a, b) = (bed.node("a").unwrap(), bed.node("b").unwrap());
        let spec = LinkSpec::new(
            "10.9.0.1/24".parse().unwrap(),
            "10.9.0.2/24".parse().unwrap(),
        );
        let link = bed.link(&a, &b, &adjust(spec)).unwrap();
        Some(Self {
            bed,
            a,
            b,
            link,
            to_b: "10.9.0.2:4000".parse().unwrap(),
        })
    }

    /// A connected socket in A and a bound one in B.
    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let receiver = self
            .b
            .enter(|| UdpSocket::bind(self.to_b).unwrap())
            .unwrap();
        receiver.set_read_timeout(Some(MOMENT)).unwrap();
        let sender = self
            .a
            .enter(|| UdpSocket::bind("10.9.0.1:0").unwrap())
            .unwrap();
        sender.connect(self.to_b).unwrap();
        (sender, receiver)
    }
}

/// Whether a packet arrived before the socket's timeout.
pub(crate) fn receive(receiver: &UdpSocket) -> bool {
    resumed(|| receiver.recv(&mut [0; 2000])).is_ok()
}

/// Counts packets until none arrives within the socket's timeout.
pub(crate) fn drain(receiver: &UdpSocket) -> usize {
    std::iter::repeat_with(|| receive(receiver))
        .take_while(|came| *came)
        .count()
}

fn send(sender: &UdpSocket, count: usize) {
    for _ in 0..count {
        sender.send(&[7; 1000]).unwrap();
    }
}

#[test]
fn packets_cross_a_link_of_either_family_and_are_counted() {
    let Some(mut pair) = Pair::new("cross", |spec| spec) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    send(&sender, 10);
    assert_eq!(drain(&receiver), 10);
    let flow = pair.bed.counters(pair.link).unwrap().a_to_b;
    assert!(flow.packets >= 10 && flow.bytes >= 10 * 1042, "{flow:?}");
    assert_eq!(flow.queue_drops, 0);

    let six = LinkSpec::new("fd00::1/64".parse().unwrap(), "fd00::2/64".parse().unwrap());
    pair.bed.link(&pair.a, &pair.b, &six).unwrap();
    let receiver = pair
        .b
        .enter(|| UdpSocket::bind("[fd00::2]:4000").unwrap())
        .unwrap();
    receiver.set_read_timeout(Some(MOMENT)).unwrap();
    let sender = pair
        .a
        .enter(|| UdpSocket::bind("[fd00::1]:0").unwrap())
        .unwrap();
    sender.connect("[fd00::2]:4000").unwrap();
    send(&sender, 5);
    assert_eq!(drain(&receiver), 5);
}

#[test]
fn a_blackhole_swallows_one_direction_and_tells_nobody() {
    let Some(mut pair) = Pair::new("hole", |spec| spec.rate(Rate::mbit(50))) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    pair.bed.blackhole(pair.link, Direction::AToB).unwrap();
    send(&sender, 10);
    assert_eq!(drain(&receiver), 0);
    receiver
        .send_to(&[1], sender.local_addr().unwrap())
        .unwrap();
    sender.set_read_timeout(Some(MOMENT)).unwrap();
    assert_eq!(
        resumed(|| sender.recv(&mut [0; 10])).unwrap(),
        1,
        "the other direction goes on"
    );
    pair.bed.heal(pair.link, Direction::Both).unwrap();
    send(&sender, 10);
    assert_eq!(drain(&receiver), 10);
}

#[test]
fn random_loss_takes_its_share() {
    let Some(mut pair) = Pair::new("loss", |spec| spec) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    pair.bed.set_loss(pair.link, Direction::AToB, 0.5).unwrap();
    let mut received = 0;
    for _ in 0..10 {
        // Small packets, of which a hundred fit the receiver's buffer.
        for _ in 0..100 {
            sender.send(&[7; 100]).unwrap();
        }
        received += drain(&receiver);
    }
    // Fifteen standard deviations of a fair coin.
    assert!((260..740).contains(&received), "{received} of 1000");
}

#[test]
fn a_rate_holds_and_can_be_changed() {
    let slow = |spec: LinkSpec| spec.rate(Rate::mbit(2)).latency(Duration::from_millis(900));
    let Some(mut pair) = Pair::new("rate", slow) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    // As many as the receiver's buffer holds while the sender waits for room in its own.
    let time = || {
        let start = Instant::now();
        send(&sender, 60);
        for _ in 0..60 {
            assert!(receive(&receiver), "a packet is missing");
        }
        start.elapsed()
    };
    // 60 frames of 1042 bytes are 0.25 s at 250 kB/s, less the burst of 3 frames.
    assert!(time() >= Duration::from_millis(230));
    let slower = Some(Rate::mbit(1));
    pair.bed
        .set_rate(pair.link, Direction::AToB, slower)
        .unwrap();
    assert!(time() >= Duration::from_millis(460));
    pair.bed.set_rate(pair.link, Direction::Both, None).unwrap();
    pair.bed.set_rate(pair.link, Direction::Both, None).unwrap();
    // Without a limit the machine sets the pace, so a single fast attempt is enough.
    let is_fast = || time() < Duration::from_millis(200);
    assert!(
        std::iter::repeat_with(is_fast).take(20).any(|fast| fast),
        "there still is a limit"
    );
}

#[test]
fn a_full_queue_drops_and_counts_what_it_drops() {
    let tight = |spec: LinkSpec| spec.rate(Rate::mbit(1)).latency(Duration::from_millis(20));
    let Some(mut pair) = Pair::new("queue", tight) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    send(&sender, 100);
    let received = drain(&receiver);
    let drops = pair.bed.counters(pair.link).unwrap().a_to_b.queue_drops;
    // About ten packets get through if the sender does not have to wait for a processor.
    assert!(drops > 0, "{received} of 100");
    assert_eq!(received as u64 + drops, 100);
}

#[test]
fn a_link_that_is_down_is_an_error_to_senders_until_it_is_up_again() {
    let Some(mut pair) = Pair::new("down", |spec| spec) else {
        return;
    };
    let (sender, receiver) = pair.sockets();
    pair.bed.set_up(pair.link, false).unwrap();
    let error = sender.send(&[1]).unwrap_err().kind();
    assert!(
        [
            ErrorKind::NetworkUnreachable,
            ErrorKind::HostUnreachable,
            ErrorKind::NetworkDown
        ]
        .contains(&error),
        "{error:?}"
    );
    pair.bed.set_up(pair.link, true).unwrap();
    send(&sender, 3);
    assert_eq!(drain(&receiver), 3);
}

#[test]
fn programs_run_inside_their_node() {
    let Some(pair) = Pair::new("run", |spec| spec) else {
        return;
    };
    assert!(
        pair.a
            .run("ip", &["-o", "address"])
            .unwrap()
            .contains("10.9.0.1/24")
    );
    assert!(
        !pair
            .b
            .run("ip", &["-o", "address"])
            .unwrap()
            .contains("10.9.0.1/24")
    );
    let error = pair
        .a
        .run("ip", &["link", "show", "dev", "nothing"])
        .unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
}

#[test]
fn a_process_is_killed_by_its_id_and_only_that_one() {
    let Some(mut pair) = Pair::new("kill", |spec| spec) else {
        return;
    };
    let mut sleep = |node: &Node| {
        let mut command = node.command("sleep");
        command.arg("60");
        pair.bed.spawn(command).unwrap()
    };
    let (first, second) = (sleep(&pair.a), sleep(&pair.b));
    assert!(pair.bed.is_running(first).unwrap() && pair.bed.is_running(second).unwrap());
    pair.bed.kill(first).unwrap();
    assert!(!pair.bed.is_running(first).unwrap());
    assert!(pair.bed.is_running(second).unwrap());
    pair.bed.kill(first).unwrap();
}

#[test]
fn what_a_process_printed_can_be_read() {
    let Some(mut pair) = Pair::new("print", |spec| spec) else {
        return;
    };
    let mut command = pair.a.command("echo");
    command.arg("hello").stdout(std::process::Stdio::piped());
    let id = pair.bed.spawn(command).unwrap();
    assert_eq!(pair.bed.wait(id).unwrap().stdout, b"hello\n");
    assert!(matches!(pair.bed.wait(id), Err(Error::Foreign(_))));
}

#[test]
fn nothing_is_left_after_a_panic() {
    let Some(bed) = Testbed::require("panic") else {
        return;
    };
    let prefix = bed.name.clone();
    let listed = || ip(&["netns", "list"]).unwrap().contains(&prefix);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let mut bed = bed;
        let node = bed.node("a").unwrap();
        let mut command = node.command("sleep");
        command.arg("60");
        bed.spawn(command).unwrap();
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert!(!listed());
}

#[test]
fn what_a_killed_test_left_is_removed_by_the_next_testbed() {
    if Testbed::require("stale").is_none() {
        return;
    }
    // A process id that the kernel never assigns.
    let orphan = "ab-4194999-t1-0-stale-a";
    // This process's id, but with an earlier start time.
    let elder = format!("ab-{}-t1-0-stale-a", std::process::id());
    for name in [orphan, &elder] {
        ip(&["netns", "add", name]).unwrap();
    }
    let mut sleeper = std::process::Command::new("ip");
    let mut sleeper = sleeper
        .args(["netns", "exec", orphan, "sleep", "600"])
        .spawn()
        .unwrap();
    let started = Instant::now();
    while ip(&["netns", "pids", orphan]).unwrap().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let _bed = Testbed::new("stale").unwrap();
    let left = ip(&["netns", "list"]).unwrap();
    assert!(!left.contains(orphan) && !left.contains(&elder), "{left}");
    assert!(!sleeper.wait().unwrap().success(), "killed with its host");
}

#[test]
fn a_batch_names_the_command_that_failed() {
    let Some(pair) = Pair::new("batch", |spec| spec) else {
        return;
    };
    let commands = ["link set dev lo down", "link set dev nothing up"].map(str::to_owned);
    let error = pair.a.ip(&commands).unwrap_err().to_string();
    assert!(error.contains("`ip link set dev nothing up`"), "{error}");
    assert!(
        !pair
            .a
            .run("ip", &["link", "show", "lo"])
            .unwrap()
            .contains("state UP")
    );
}

#[test]
fn variables_of_a_host_are_its_own() {
    let Some(pair) = Pair::new("sysctl", |spec| spec) else {
        return;
    };
    pair.a.set_sysctl("ipv4/ip_forward", "1").unwrap();
    assert_eq!(pair.a.sysctl("ipv4/ip_forward").unwrap(), "1");
    assert_eq!(pair.b.sysctl("ipv4/ip_forward").unwrap(), "0");
    let error = pair.a.set_sysctl("ipv4/nonsense", "1").unwrap_err();
    assert!(error.to_string().contains("ipv4/nonsense"), "{error}");
}

#[test]
fn what_a_killed_test_of_the_same_number_left_is_in_nobodys_way() {
    let Some(mut bed) = Testbed::require("again") else {
        return;
    };
    // Process ids are reused, soon in a container.
    let left = format!("{}-a", bed.name);
    ip(&["netns", "add", &left]).unwrap();
    ip(&[
        "-n", &left, "link", "add", "path0", "type", "veth", "peer", "name", "path1",
    ])
    .unwrap();
    let node = bed.node("a").unwrap();
    assert_eq!(node.namespace(), left);
    assert!(!node.run("ip", &["link"]).unwrap().contains("path0"));
}

#[test]
fn names_and_nodes_that_cannot_be_are_refused() {
    let Some(mut pair) = Pair::new("names", |spec| spec) else {
        return;
    };
    for name in ["a", "", "a b", "../x"] {
        assert!(
            matches!(pair.bed.node(name), Err(Error::NodeName(_))),
            "{name}"
        );
    }
    let stranger = Node::new("a", "elsewhere".to_owned());
    let spec = LinkSpec::new(
        "10.8.0.1/24".parse().unwrap(),
        "10.8.0.2/24".parse().unwrap(),
    );
    assert!(matches!(
        pair.bed.link(&stranger, &pair.b, &spec),
        Err(Error::Foreign(_))
    ));
    for text in ["10.0.0.1", "10.0.0.1/33", "x/24", "::1/129", "10.0.0.1/-1"] {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}
