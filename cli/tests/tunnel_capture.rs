//! Capture: hosts that know nothing of a tunnel use it.
//!
//! ```text
//! host ── 192.168.50.0/24 ── near ══ path0, path1 ══ far ── 203.0.113.0/24 ── target
//! ```
//! The near end is the client of the lab, the far end its server. IPv6 is beside it on both sides.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Need, Node, resumed};
use common::beyond::{HOST, NEAR, TARGETS};
use common::captured;
use common::ending;
use common::files::noise;
use common::process::Process;
use common::{PROGRAM, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::process::Output;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

const LENGTH: usize = 5_000_000;
/// Where the target sends [`LENGTH`] bytes, where it sends datagrams back, and where nobody is.
const CONTENT: u16 = 80;
const ECHO: [u16; 2] = [53, 7000];
/// Where the target says which port it sees, or says so from elsewhere if it is asked to.
const MIRRORS: [u16; 3] = [7001, 7002, 7003];
const NOBODY: u16 = 9;

/// A tunnel, and a target with services.
struct Net {
    tunnel: captured::Net,
    content: Arc<[u8]>,
}

impl Deref for Net {
    type Target = captured::Net;

    fn deref(&self) -> &captured::Net {
        &self.tunnel
    }
}

impl DerefMut for Net {
    fn deref_mut(&mut self) -> &mut captured::Net {
        &mut self.tunnel
    }
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

impl Net {
    /// Everything but the near end.
    fn new(name: &str) -> Option<Self> {
        let net = Self {
            tunnel: captured::Net::new(name)?,
            content: noise(LENGTH).into(),
        };
        net.serve();
        Some(net)
    }

    /// The target's services, until this process ends.
    fn serve(&self) {
        for ip in TARGETS {
            let bind = || TcpListener::bind(address(ip, CONTENT)).unwrap();
            let listener = self.target.enter(bind).unwrap();
            let content = Arc::clone(&self.content);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    // Who leaves early wants no more.
                    let content = Arc::clone(&content);
                    thread::spawn(move || drop((&stream).write_all(&content)));
                }
            });
            for port in MIRRORS {
                let bind = |port| UdpSocket::bind(address(ip, port)).unwrap();
                let (socket, elsewhere) = self.target.enter(|| (bind(port), bind(0))).unwrap();
                let other = elsewhere.try_clone().unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 2048];
                    while let Ok((_, from)) = resumed(|| other.recv_from(&mut buffer)) {
                        let _ = other.send_to(from.port().to_string().as_bytes(), from);
                    }
                });
                thread::spawn(move || {
                    let mut buffer = [0; 2048];
                    while let Ok((length, from)) = resumed(|| socket.recv_from(&mut buffer)) {
                        let by = match &buffer[..length] {
                            b"elsewhere" => &elsewhere,
                            _ => &socket,
                        };
                        let _ = by.send_to(from.port().to_string().as_bytes(), from);
                    }
                });
            }
            for port in ECHO {
                let bind = || UdpSocket::bind(address(ip, port)).unwrap();
                let socket = self.target.enter(bind).unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 2048];
                    while let Ok((length, from)) = resumed(|| socket.recv_from(&mut buffer)) {
                        // Somebody may be gone already.
                        let _ = socket.send_to(&buffer[..length], from);
                    }
                });
            }
        }
    }

    /// `tunnel down` on the near end's machine.
    fn down(&self) -> Output {
        let mut command = self.lab.client.command(PROGRAM);
        ending::output(command.args(["tunnel", "down"]))
    }

    /// Everything that a capture changes there.
    fn tables(&self) -> String {
        let near = &self.lab.client;
        let mut all = near.run("nft", &["list", "ruleset"]).unwrap();
        for words in [
            "rule",
            "-6 rule",
            "route show table 716999",
            "-6 route show table 716999",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            // A table that never was is an error.
            all += &near.run("ip", &words).unwrap_or_default();
        }
        all
    }

    /// Whether the tables are as they were before, soon.
    #[track_caller]
    fn wait_for_tables(&self, before: &str) {
        wait_for("everything is undone", END, || self.tables() == before);
    }
}

fn connect(from: &Node, to: SocketAddr) -> std::io::Result<TcpStream> {
    let connect = || TcpStream::connect_timeout(&to, END);
    let stream = from.enter(connect).unwrap()?;
    stream.set_read_timeout(Some(END))?;
    Ok(stream)
}

/// A UDP socket that sends to one address and hears it alone.
fn socket(from: &Node, to: SocketAddr) -> UdpSocket {
    let open = || {
        let any: IpAddr = if to.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect(to).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        socket
    };
    from.enter(open).unwrap()
}

/// Sends until something comes back: what that is.
#[track_caller]
fn ask(socket: &UdpSocket, payload: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut buffer = [0; 2048];
    for _ in 0..10 {
        socket.send(payload)?;
        match resumed(|| socket.recv(&mut buffer)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result.map(|length| buffer[..length].to_vec()),
        }
    }
    panic!("nothing comes back from {:?}", socket.peer_addr());
}

/// Pings: type and code of what comes back.
fn ping(from: &Node, to: &str) -> std::io::Result<[u8; 2]> {
    const V4: [u8; 8] = [8, 0, 0xf7, 0xfe, 0, 0, 0, 1];
    const V6: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 1];
    let to = address(to, 0);
    let (domain, protocol, request, header) = match to {
        SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, V4, 20),
        SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, V6, 0),
    };
    let send = || {
        let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.send_to(&request, &to.into())?;
        loop {
            let mut buffer = [0; 256];
            let length = resumed(|| (&socket).read(&mut buffer))?;
            assert!(length > header + 1, "{length}");
            let answer = [buffer[header], buffer[header + 1]];
            // Neighbours are looked for by the same protocol.
            if !matches!(answer[0], 128 | 133..=137) {
                return Ok(answer);
            }
        }
    };
    from.enter(send).unwrap()
}

/// What leaves a host's links beside the tunnel, as lines of tcpdump.
struct Leaks(Process);

impl Leaks {
    /// Listens at the far end, which every packet of the uplinks reaches. The near end's kernel
    /// refuses what still comes from the far end once the near end was killed: its errors name
    /// the tunnel's port, and leak nothing.
    fn watch(net: &Net) -> Option<Self> {
        if !Need::Network.programs("leaks", &["tcpdump"]) {
            return None;
        }
        let near = "host 10.1.0.1 or host 10.2.0.1 or net 192.168.50.0/24";
        let hosts = format!("{near} or net fd00:50::/64 or host fd00:1::1");
        // Where an error quotes the port a packet came from: behind 8 bytes of its own and an IP
        // header (RFC 792; RFC 4443, section 3.1).
        let refused = "icmp[0] == 3 and icmp[28:2] == 4434";
        let refused6 = "ip6[6] == 58 and ip6[40] == 1 and ip6[88:2] == 4434";
        let filter = format!("({hosts}) and not (port 4434 or ({refused}) or ({refused6}))");
        let mut command = net.lab.server.command("tcpdump");
        command.args(["-i", "any", "-n", "-l", "--immediate-mode", &filter]);
        let process = Process::start(&mut command, &net.lab.directory);
        let listens = || process.stderr().contains("listening on");
        wait_for("tcpdump", END, listens);
        Some(Self(process))
    }

    /// What has leaked until now, but for how neighbours find each other.
    fn lines(&self, net: &Net) -> Vec<String> {
        // What comes after everything else says that everything else was seen.
        let canary = net
            .lab
            .client
            .enter(|| UdpSocket::bind("10.1.0.1:7777").unwrap());
        canary.unwrap().send_to(b"?", "10.1.0.2:7777").unwrap();
        let seen = || self.0.stdout().contains("10.1.0.2.7777");
        wait_for("the canary", END, seen);
        let said = self.0.stdout();
        let is_leak = |line: &&str| {
            let neighbours = ["ARP", "neighbor", "router", "multicast", ".7777"];
            !neighbours.iter().any(|word| line.contains(word)) && !is_about_canary(line)
        };
        said.lines().filter(is_leak).map(Into::into).collect()
    }
}

/// Nobody listens where it goes.
fn is_about_canary(line: &str) -> bool {
    line.contains("10.1.0.2 > 10.1.0.1: ICMP 10.1.0.2 udp port 7777 unreachable")
}

/// Reads what the target sends, and calls `during` after each megabyte.
#[track_caller]
fn fetch(mut stream: TcpStream, content: &[u8], mut during: impl FnMut(usize)) {
    let mut got = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while got.len() < content.len() {
        let before = got.len() / 1_000_000;
        let count = resumed(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "it ended after {} bytes", got.len());
        got.extend_from_slice(&buffer[..count]);
        if got.len() / 1_000_000 > before {
            during(got.len() / 1_000_000);
        }
    }
    assert!(got == content, "the same bytes in the same order");
}

/// Whatever works without a tunnel works with it, and what does not is told.
#[track_caller]
fn use_it(net: &Net, from: &Node, target: &str) {
    let stream = connect(from, address(target, CONTENT)).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), address(target, CONTENT));
    fetch(stream, &net.content, |_| {});
    for port in ECHO {
        let socket = socket(from, address(target, port));
        for payload in [b"one".as_slice(), b"two"] {
            assert_eq!(ask(&socket, payload).unwrap(), payload, "{target} {port}");
        }
    }
    let refused = socket(from, address(target, NOBODY));
    let error = ask(&refused, b"?").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{target}");
    // The reset may come before whoever connects has heard that the connection stood.
    let refused = connect(from, address(target, NOBODY));
    let error = refused.and_then(|mut stream| resumed(|| stream.read(&mut [0])));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{target}");
}

/// Which port of the far end a mirror sees: what it says from there, or from elsewhere.
#[track_caller]
fn seen(socket: &UdpSocket, mirror: SocketAddr, is_elsewhere: bool) -> String {
    seen_from(socket, mirror, is_elsewhere).0
}

/// The same, and where it said so from.
#[track_caller]
fn seen_from(socket: &UdpSocket, mirror: SocketAddr, is_elsewhere: bool) -> (String, SocketAddr) {
    let question: &[u8] = if is_elsewhere { b"elsewhere" } else { b"?" };
    let mut buffer = [0; 64];
    for _ in 0..10 {
        socket.send_to(question, mirror).unwrap();
        loop {
            match resumed(|| socket.recv_from(&mut buffer)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                result => {
                    let (length, from) = result.unwrap();
                    assert_eq!(from.ip(), mirror.ip());
                    // Others may answer what was asked twice.
                    let is_it = if is_elsewhere {
                        !MIRRORS.contains(&from.port())
                    } else {
                        from == mirror
                    };
                    if is_it {
                        let text = String::from_utf8_lossy(&buffer[..length]).into();
                        return (text, from);
                    }
                }
            }
        }
    }
    panic!("nothing comes back from {mirror}");
}

#[test]
fn one_port_of_a_host_is_one_port_of_the_far_end_whomever_it_sends_to() {
    let Some(net) = Net::new("capture-bind") else {
        return;
    };
    let _near = net.join(&["--capture", "lan=path2"]);
    for (target, any) in TARGETS.into_iter().zip(["0.0.0.0", "::"]) {
        let open = || UdpSocket::bind(address(any, 0)).unwrap();
        let [one, other] = [(); 2].map(|()| net.host.enter(open).unwrap());
        for socket in [&one, &other] {
            let wait = Some(Duration::from_secs(5));
            socket.set_read_timeout(wait).unwrap();
        }
        let mirrors = MIRRORS.map(|port| address(target, port));
        let port = seen(&one, mirrors[0], false);
        for mirror in mirrors {
            assert_eq!(seen(&one, mirror, false), port, "{mirror}");
        }
        assert_ne!(seen(&other, mirrors[0], false), port);
        // As peers behind translators do, of which one knows the address alone.
        assert_eq!(seen(&one, mirrors[1], true), port);
        for mirror in mirrors {
            let (said, elsewhere) = seen_from(&one, mirror, true);
            assert_eq!(said, port);
            // What the host answers there, it is heard, and so on.
            for _ in 0..3 {
                assert_eq!(seen(&one, elsewhere, false), port, "{elsewhere}");
                assert_eq!(seen(&one, mirror, false), port, "{mirror}");
                assert_eq!(seen(&one, mirror, true), port, "{mirror}");
            }
        }
    }
}

#[test]
fn hosts_behind_a_router_use_both_links_and_nothing_of_theirs_leaves_beside_the_tunnel() {
    let Some(mut net) = Net::new("capture-lan") else {
        return;
    };
    let _near = net.join(&["--capture", "lan=path2"]);
    let leaks = Leaks::watch(&net);
    for target in TARGETS {
        use_it(&net, &net.host, target);
    }
    // Administratively prohibited.
    assert_eq!(ping(&net.host, TARGETS[0]).unwrap(), [3, 13]);
    assert_eq!(ping(&net.host, TARGETS[1]).unwrap(), [1, 1]);
    assert_eq!(
        ping(&net.host, NEAR[0]).unwrap(),
        [0, 0],
        "it is a neighbour"
    );
    assert_eq!(
        ping(&net.host, NEAR[1]).unwrap(),
        [129, 0],
        "it is a neighbour"
    );
    if let Some(leaks) = leaks {
        assert_eq!(leaks.lines(&net), Vec::<String>::new());
    }
    for at in 0..2 {
        let (down, _) = net.lab.carried(at);
        assert!(down > LENGTH as u64 / 20, "link {at} carried {down} bytes");
    }
    // The near end itself is not captured.
    assert_eq!(ping(&net.lab.client, TARGETS[0]).unwrap(), [0, 0]);
}

#[test]
fn a_host_is_told_how_long_a_datagram_may_be_that_is_too_long_for_the_links() {
    const LINK: usize = 1500;
    const HEADERS: [usize; 2] = [28, 48];
    let Some(net) = Net::new("capture-long") else {
        return;
    };
    let _near = net.join(&["--capture", "lan=path2"]);
    for (target, headers) in TARGETS.into_iter().zip(HEADERS) {
        let first = socket(&net.host, address(target, ECHO[1]));
        // It fits once the links' MTU is known.
        ask(&first, &[7; 1380]).unwrap();
        let payload = vec![7; LINK - headers];
        // What the host's kernel keeps of it.
        let mtu = || {
            let route = net.host.run("ip", &["route", "get", target]).unwrap();
            let mut words = route.split(' ').skip_while(|word| *word != "mtu");
            words.nth(1).map(|mtu| mtu.trim().parse::<usize>().unwrap())
        };
        wait_for("the host is told", END, || {
            // From then on the kernel cuts it up, or refuses it.
            let _ = first.send(&payload);
            mtu().is_some()
        });
        let longest = mtu().unwrap() - headers;
        // The links' own MTU is probed, less headers of the tunnel.
        assert!((1380..LINK - headers).contains(&longest), "{longest}");
        // The error that the first one has waiting for it is not for this one.
        let second = socket(&net.host, address(target, ECHO[1]));
        let echo = ask(&second, &vec![7; longest]).unwrap();
        assert_eq!(echo.len(), longest);
    }
}

#[test]
fn a_connection_of_an_unmodified_host_outlives_the_cut_of_a_link() {
    let Some(mut net) = Net::new("capture-cut") else {
        return;
    };
    let _near = net.join(&["--capture", "lan=path2"]);
    let stream = connect(&net.host, address(TARGETS[0], CONTENT)).unwrap();
    let content = Arc::clone(&net.content);
    fetch(stream, &content, |megabytes| {
        if megabytes == 2 {
            net.lab.set_up(0, false);
        }
    });
}

#[test]
fn this_machine_s_own_traffic_is_captured_but_not_the_tunnel_nor_answers_to_who_has_called() {
    let Some(net) = Net::new("capture-host") else {
        return;
    };
    let near = &net.lab.client;
    let _near = net.join(&["--capture", "host"]);
    let leaks = Leaks::watch(&net);
    for target in TARGETS {
        use_it(&net, near, target);
    }
    for target in TARGETS {
        let error = ping(near, target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    assert_eq!(ping(near, HOST[0]).unwrap(), [0, 0], "it is a neighbour");
    if let Some(leaks) = leaks {
        assert_eq!(leaks.lines(&net), Vec::<String>::new());
    }
    // Somebody who is not a neighbour logs in from outside.
    let listen = || TcpListener::bind("10.1.0.1:2222").unwrap();
    let listener = near.enter(listen).unwrap();
    let mut outside = connect(&net.target, "10.1.0.1:2222".parse().unwrap()).unwrap();
    let (mut inside, _) = listener.accept().unwrap();
    inside.write_all(b"hello").unwrap();
    outside.read_exact(&mut [0; 5]).unwrap();
    // Hosts behind it are not captured.
    assert_eq!(ping(&net.host, TARGETS[0]).unwrap(), [0, 0]);
}

#[test]
fn nothing_is_left_when_the_near_end_ends_however_it_ends() {
    let Some(net) = Net::new("capture-end") else {
        return;
    };
    let before = net.tables();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let near = net.join(&["--capture", "lan=path2", "--capture", "host"]);
        assert_ne!(net.tables(), before);
        near.signal(signal);
        let ended = near.wait(END);
        assert_eq!(
            ended.status.success(),
            signal != Signal::SIGKILL,
            "{}",
            ended.stderr
        );
        net.wait_for_tables(&before);
    }
    // Who has just cleaned up may take a moment to leave.
    wait_for("nothing to do", END, || {
        let down = net.down();
        assert!(down.status.success());
        let said = String::from_utf8(down.stderr).unwrap();
        said.contains("nothing of a capture is on this machine")
    });
}

/// The processes that a process has started.
fn children(of: Pid) -> Vec<Pid> {
    let parent = format!("PPid:\t{of}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_child = |status: &str| status.lines().any(|line| line == parent);
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        is_child(&status).then(|| Pid::from_raw(pid))
    });
    pids.collect()
}

#[test]
fn a_near_end_whose_guard_is_killed_undoes_everything_and_ends() {
    let Some(net) = Net::new("capture-guard") else {
        return;
    };
    let before = net.tables();
    let near = net.join(&["--capture", "lan=path2"]);
    let guards = children(near.pid());
    assert_eq!(guards.len(), 1);
    kill(guards[0], Signal::SIGKILL).unwrap();
    let ended = near.wait(END);
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("undoes capture"), "{}", ended.stderr);
    assert_eq!(net.tables(), before);
}

#[test]
fn a_kill_switch_blocks_until_it_is_taken_away() {
    let Some(net) = Net::new("capture-switch") else {
        return;
    };
    let before = net.tables();
    let near = net.join(&[
        "--capture",
        "lan=path2",
        "--capture",
        "host",
        "--kill-switch",
    ]);
    use_it(&net, &net.host, TARGETS[0]);
    near.signal(Signal::SIGKILL);
    near.wait(END);
    let leaks = Leaks::watch(&net);
    for (from, target) in [(&net.host, TARGETS[0]), (&net.lab.client, TARGETS[1])] {
        assert!(connect(from, address(target, CONTENT)).is_err());
        assert!(ask(&socket(from, address(target, ECHO[0])), b"?").is_err());
    }
    if let Some(leaks) = leaks {
        assert_eq!(leaks.lines(&net), Vec::<String>::new());
    }
    // The next one takes over what blocks.
    let near = net.join(&["--capture", "lan=path2", "--kill-switch"]);
    use_it(&net, &net.host, TARGETS[0]);
    // It is told to end, too.
    let down = net.down();
    let said = String::from_utf8(down.stderr).unwrap();
    assert!(said.contains("removed the table inet anabranch"), "{said}");
    assert!(near.wait(END).status.success());
    assert_eq!(net.tables(), before);
    assert_eq!(ping(&net.host, TARGETS[0]).unwrap(), [0, 0]);
}

#[test]
fn what_cannot_be_captured_is_told_before_anything_is_changed() {
    let Some(net) = Net::new("capture-refused") else {
        return;
    };
    let refused = |command: &mut std::process::Command| {
        let output = ending::output(command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    let before = net.tables();
    let said = refused(&mut net.near_command(&["--capture", "lan=path3"]));
    assert!(
        said.contains("no interface `path3`: did you mean `path"),
        "{said}"
    );
    let said = refused(&mut net.near_command(&["--capture", "wan=path2"]));
    assert!(
        said.contains("expected `host` or `lan=INTERFACE`"),
        "{said}"
    );
    let said = refused(&mut net.near_command(&["--kill-switch"]));
    assert!(said.contains("--capture"), "{said}");
    let mut without_nft = net.lab.client.command("env");
    without_nft.args([
        "PATH=/nowhere",
        PROGRAM,
        "tunnel",
        "join",
        &net.url,
        "--capture",
        "host",
    ]);
    let said = refused(&mut without_nft);
    assert!(said.contains("apt install nftables"), "{said}");
    if Need::Network.programs("capture without rights", &["setpriv"]) {
        let mut command = net.lab.client.command("setpriv");
        command.args(["--bounding-set", "-net_admin", PROGRAM]);
        command.args(["tunnel", "join", &net.url, "--capture", "host"]);
        let said = refused(&mut command);
        assert!(said.contains("CAP_NET_ADMIN"), "{said}");
        assert!(said.contains("sudo anabranch"), "{said}");
    }
    assert_eq!(net.tables(), before);
    let near = net.join(&["--capture", "lan=path2"]);
    let during = net.tables();
    let more = ["--capture", "host", "--listen", "127.0.0.1:1081"];
    let said = refused(&mut net.near_command(&more));
    assert!(
        said.contains("another `anabranch tunnel join` captures"),
        "{said}"
    );
    assert_eq!(net.tables(), during);
    drop(near);
}
