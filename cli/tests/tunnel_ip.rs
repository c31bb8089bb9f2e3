//! Packets of any protocol: ping, traceroute and GRE of hosts that know nothing of a tunnel.
//!
//! ```text
//! host ── 192.168.50.0/24 ── near ══ path0, path1 ══ far ── 203.0.113.0/24 ── target
//!                          10.90.0.2              10.90.0.1
//! ```

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::resumed;
use common::beyond::{NEAR, TARGETS};
use common::packets::{CLIENT, FAR, Net, answer, ping, ping_again};
use common::{ending, wait_for};
use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// A packet of GRE from the host to the target, and one back: whom the target sees.
fn gre(net: &Net, to: &str) -> IpAddr {
    const GRE: i32 = 47;
    const PACKET: [u8; 8] = [0, 0, 0x88, 0xb5, b'p', b'i', b'n', b'g'];
    let to: IpAddr = to.parse().unwrap();
    let open = || {
        let socket = Socket::new(
            Domain::for_address((to, 0).into()),
            Type::RAW,
            Some(GRE.into()),
        );
        let socket = socket.unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(3)))
            .unwrap();
        socket
    };
    let (host, target) = (
        net.host.enter(open).unwrap(),
        net.target.enter(open).unwrap(),
    );
    let receive = |socket: &Socket| {
        let from = resumed(|| socket.peek_sender())?;
        let mut buffer = [0; 256];
        let length = resumed(|| (&*socket).read(&mut buffer))?;
        assert!(buffer[..length].ends_with(&PACKET[4..]));
        Ok::<_, std::io::Error>(from)
    };
    for _ in 0..10 {
        host.send_to(&PACKET, &SocketAddr::new(to, 0).into())
            .unwrap();
        let seen = match receive(&target) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            seen => seen.unwrap(),
        };
        target.send_to(&PACKET, &seen).unwrap();
        if receive(&host).is_ok() {
            return seen.as_socket().unwrap().ip();
        }
    }
    panic!("no packet of GRE comes back from {to}");
}

#[test]
fn unmodified_hosts_send_any_protocol_over_both_links_and_live_through_the_cut_of_one() {
    let Some(mut net) = Net::new("ip-lan") else {
        return;
    };
    let (_far, url) = net.serve();
    let _near = net.join(&url, &["--capture", "lan=path2"]);
    for (at, target) in TARGETS.into_iter().enumerate() {
        let (reply, exceeded) = [([0, 0], [11, 0]), ([129, 0], [3, 0])][at];
        let is_in_use = || ping(&net.host, target, 64, END / 30) == answer(reply, target);
        wait_for("a reply", END, is_in_use);
        // Each machine on the way takes one off the hops that are left.
        for (hops, from) in [NEAR[at], FAR[at]].into_iter().enumerate() {
            let found = ping_again(&net.host, target, hops as u32 + 1);
            assert_eq!(found, answer(exceeded, from), "{target}");
        }
        assert_eq!(ping_again(&net.host, target, 3), answer(reply, target));
        // The target knows the far end alone.
        let seen = gre(&net, target).to_string();
        assert_eq!(seen, ["203.0.113.1", "2001:db8:7::1"][at]);
    }
    // Neither another client nor what is behind the far end.
    for to in ["10.90.0.3", "10.90.0.1", "10.77.0.7"] {
        let refused = answer([3, 13], FAR[0]);
        assert_eq!(ping_again(&net.host, to, 64), refused, "{to}");
    }
    for to in ["fd90:7c3a::3", "fd77::7"] {
        let refused = answer([1, 1], FAR[1]);
        assert_eq!(ping_again(&net.host, to, 64), refused, "{to}");
    }
    let mut replies = Vec::new();
    for at in 0..60 {
        if at == 10 {
            net.lab.set_up(0, false);
        }
        let found = ping(&net.host, TARGETS[0], 64, Duration::from_millis(500));
        replies.push(found == answer([0, 0], TARGETS[0]));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(replies[..10].contains(&true), "{replies:?}");
    assert!(replies[40..].contains(&true), "{replies:?}");
}

#[test]
fn nothing_is_left_on_either_machine_however_both_ends_end() {
    let Some(net) = Net::new("ip-end") else {
        return;
    };
    let before = net.tables();
    let mut invited = None;
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let (far, url) = net.serve();
        // Another invitation would be another client.
        let url = invited.get_or_insert(url);
        let near = net.join(url, &["--capture", "lan=path2", "--capture", "host"]);
        let target = TARGETS[0];
        let replies = || ping(&net.lab.client, target, 64, END / 30) == answer([0, 0], target);
        wait_for("a reply to the near end itself", END, replies);
        assert_ne!(net.tables(), before);
        for end in [near, far] {
            end.signal(signal);
            end.wait(END);
        }
        wait_for("everything is undone", END, || net.tables() == before);
    }
}

#[test]
fn a_device_for_who_routes_by_himself_keeps_its_addresses_over_a_restart_of_the_far_end() {
    let Some(net) = Net::new("ip-tun") else {
        return;
    };
    let (far, url) = net.serve();
    let near = net.join(&url, &["--tun", "tun7"]);
    let client = &net.lab.client;
    for (at, target) in TARGETS.into_iter().enumerate() {
        let family = ["-4", "-6"][at];
        let rule = [family, "rule", "add", "to", target, "lookup", "716998"];
        client.run("ip", &rule).unwrap();
        let reply = [[0, 0], [129, 0]][at];
        assert_eq!(ping_again(client, target, 64), answer(reply, target));
    }
    // By the device: the far end is on the way.
    assert_eq!(ping_again(client, TARGETS[0], 1), answer([11, 0], FAR[0]));
    far.signal(Signal::SIGKILL);
    far.wait(END);
    let (_far, _) = net.serve();
    let replies = || ping(client, TARGETS[0], 64, END / 30) == answer([0, 0], TARGETS[0]);
    wait_for("a reply after the restart", END, replies);
    let said = client.run("ip", &["-o", "address", "show", "dev", "tun7"]);
    let said = said.unwrap();
    assert!(CLIENT.iter().all(|ip| said.contains(ip)), "{said}");
    near.signal(Signal::SIGINT);
    assert!(near.wait(END).status.success());
    assert!(client.run("ip", &["link", "show", "dev", "tun7"]).is_err());
}

#[test]
fn a_far_end_that_cannot_carry_packets_says_why_and_changes_nothing() {
    let Some(net) = Net::new("ip-refused") else {
        return;
    };
    let before = net.tables();
    let refused = |options: &[&str]| {
        let output = ending::output(&mut net.far_command(options));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    let said = refused(&["--ip", "10.91.0.0/16"]);
    assert!(said.contains("one pool for each"), "{said}");
    net.lab.server.set_sysctl("ipv4/ip_forward", "0").unwrap();
    let said = refused(&[]);
    assert!(said.contains("sysctl -w net.ipv4.ip_forward=1"), "{said}");
    net.lab.server.set_sysctl("ipv4/ip_forward", "1").unwrap();
    let taken = ["address", "add", "10.90.3.1/24", "dev", "lo"];
    net.lab.server.run("ip", &taken).unwrap();
    let said = refused(&[]);
    assert!(said.contains("in common"), "{said}");
    assert_eq!(net.tables(), before);
}
