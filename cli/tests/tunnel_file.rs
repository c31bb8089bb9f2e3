//! A tunnel by a file: what is written, checked, run by, and changed while it runs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Rate, resumed};
use common::process::Process;
use common::{Lab, ending, program, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const END: Duration = Duration::from_secs(120);

/// A service of the server, which the far end is allowed to lead to.
const SERVICE: &str = "10.99.0.1:8000";

/// Bytes of a transfer.
const LENGTH: usize = 3_000_000;

const PATHS: &str = "\
[[path]]
interface = \"path0\"

[[path]]
interface = \"path1\"
";

const CLASS: &str = "
[[class]]
name = \"service\"
ports = 8000
priority = 1
";

/// Both ends of a tunnel over two links, each by a file.
struct Tunnel {
    lab: Lab,
    service: TcpListener,
    file: PathBuf,
    /// What the near end's file begins with.
    head: String,
    near: Process,
    _far: Process,
}

impl Tunnel {
    fn new(name: &str) -> Option<Self> {
        let lab = Lab::new(name, &[Rate::mbit(20); 2])?;
        let file = lab.path("far.toml");
        let far =
            "[far]\nlisten = \"10.99.0.1\"\nallow = [\"10.99.0.1,8000-8001\"]\nstate = \"far\"\n";
        fs::write(&file, far).unwrap();
        let mut command = program(&lab.server);
        command.args(["tunnel", "up"]).arg(&file);
        command.env("XDG_RUNTIME_DIR", lab.path("far"));
        let mut far = Process::start(&mut command, &lab.directory);
        fs::write(lab.path("join.url"), far.first_line()).unwrap();
        let head = "[near]\nurl-file = \"join.url\"\nstate = \"near\"\n".to_owned();
        let file = lab.path("near.toml");
        fs::write(&file, format!("{head}{PATHS}")).unwrap();
        let near = start_near(&lab, &file);
        let bound = lab.server.enter(|| TcpListener::bind(SERVICE));
        let service = bound.unwrap().unwrap();
        let tunnel = Self {
            lab,
            service,
            file,
            head,
            near,
            _far: far,
        };
        for at in 0..2 {
            tunnel.hear(&format!("path{at} (10.{}.0.1): up", at + 1));
        }
        Some(tunnel)
    }

    /// Ends the near end, and starts it again by its file.
    fn restart_near(&mut self) {
        self.near.signal(Signal::SIGTERM);
        wait_for("its end", END, || !self.near.is_running());
        self.near = start_near(&self.lab, &self.file);
    }

    /// Waits until the near end has said this.
    #[track_caller]
    fn hear(&self, words: &str) {
        until(words, || self.near.stderr(), |said| said.contains(words));
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = program(&self.lab.client);
        command.arg("tunnel").args(words);
        command.env("XDG_RUNTIME_DIR", self.lab.path("near"));
        ending::output(&mut command)
    }

    /// Writes another configuration behind its head.
    fn write(&self, text: &str) {
        fs::write(&self.file, format!("{}{text}", self.head)).unwrap();
    }

    fn status(&self) -> Value {
        let output = self.ask(&["status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until a path is in this state.
    #[track_caller]
    fn wait_for_state(&self, interface: &str, state: &str) {
        until(
            state,
            || self.status(),
            |status| {
                let paths = status["paths"].as_array().unwrap();
                let path = paths.iter().find(|path| path["interface"] == interface);
                path.is_some_and(|path| path["state"] == state)
            },
        );
    }

    /// One connection through the tunnel: what the client has, and what the service has.
    fn open(&self) -> (TcpStream, TcpStream) {
        let dial = || TcpStream::connect("127.0.0.1:1080");
        let mut stream = self.lab.client.enter(dial).unwrap().unwrap();
        stream.set_read_timeout(Some(END)).unwrap();
        write!(stream, "CONNECT {SERVICE} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = [0; 39];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 Connection established\r\n\r\n");
        // The far end has connected by now.
        let service = self.service.accept().unwrap().0;
        service.set_read_timeout(Some(END)).unwrap();
        (stream, service)
    }

    /// A connection with a byte each way.
    fn connect(&self) {
        let (mut stream, mut service) = self.open();
        stream.write_all(b"?").unwrap();
        service.read_exact(&mut [0]).unwrap();
        service.write_all(b"!").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }

    /// How many flows each class had.
    fn classes(&self) -> Vec<(String, u64)> {
        let status = self.status();
        let classes = status["classes"].as_array().unwrap().iter();
        let count = |class: &Value| {
            let name = class["name"].as_str().unwrap();
            (name.to_owned(), class["made"].as_u64().unwrap())
        };
        classes.map(count).filter(|(_, made)| *made > 0).collect()
    }
}

fn start_near(lab: &Lab, file: &Path) -> Process {
    let mut command = program(&lab.client);
    command.args(["tunnel", "up"]).arg(file).arg("-v");
    command.env("XDG_RUNTIME_DIR", lab.path("near"));
    Process::start(&mut command, &lab.directory)
}

/// Looks again and again until what is seen is as wanted.
#[track_caller]
fn until<T: std::fmt::Debug>(what: &str, look: impl Fn() -> T, is_so: impl Fn(&T) -> bool) {
    let started = Instant::now();
    loop {
        let seen = look();
        if is_so(&seen) {
            return;
        }
        assert!(started.elapsed() < END, "`{what}` is not in: {seen:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn paths_and_classes_change_while_it_runs_and_what_needs_a_restart_is_named() {
    let Some(tunnel) = Tunnel::new("tunnel-file") else {
        return;
    };
    tunnel.connect();
    assert_eq!(tunnel.classes(), [("bulk".to_owned(), 1)]);
    let backup = format!("name = \"van\"\n{PATHS}role = \"backup\"\n{CLASS}");
    tunnel.write(&backup);
    let output = tunnel.ask(&["reload"]);
    let words = said(&output);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("changed: path, class\n"), "{words}");
    assert!(words.contains("after a restart: near.name\n"), "{words}");
    tunnel.wait_for_state("path1", "backup");
    tunnel.connect();
    let counted = [("service".to_owned(), 1), ("bulk".to_owned(), 1)];
    assert_eq!(tunnel.classes(), counted);

    // Nothing of a file is taken that has anything wrong.
    let class = CLASS.replace("priority = 1", "priority = 99\nwiat = \"1ms\"");
    tunnel.write(&format!("{PATHS}{class}"));
    let output = tunnel.ask(&["reload"]);
    let words = said(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    for part in ["from -7 to 7", "did you mean `wait`?"] {
        assert!(words.contains(part), "{words}");
    }
    tunnel.wait_for_state("path1", "backup");

    tunnel.write(&format!("{PATHS}{CLASS}"));
    tunnel.near.signal(Signal::SIGHUP);
    tunnel.hear("changed: path\n");
    tunnel.wait_for_state("path1", "open");
    tunnel.connect();
    let counted = [("service".to_owned(), 2), ("bulk".to_owned(), 1)];
    assert_eq!(tunnel.classes(), counted);

    // A path that is named no more is used no more.
    tunnel.write("[[path]]\ninterface = \"path0\"\n");
    assert!(tunnel.ask(&["reload"]).status.success());
    let count = |status: &Value| status["paths"].as_array().unwrap().len();
    until("one path", || tunnel.status(), |status| count(status) == 1);
    tunnel.connect();
}

#[test]
fn a_class_in_active_standby_keeps_to_one_link_each_way() {
    let Some(mut tunnel) = Tunnel::new("tunnel-steering") else {
        return;
    };
    let class = CLASS.replace("priority = 1", "steering = \"active-standby\"");
    tunnel.write(&format!("{PATHS}{class}"));
    let output = tunnel.ask(&["reload"]);
    assert!(output.status.success(), "{}", said(&output));
    let carried = |tunnel: &mut Tunnel| [0, 1].map(|at| tunnel.lab.carried(at));
    let before = carried(&mut tunnel);
    let (client, service) = tunnel.open();
    for (mut from, mut to) in [(&service, &client), (&client, &service)] {
        thread::scope(|scope| {
            scope.spawn(move || from.write_all(&vec![7; LENGTH]).unwrap());
            to.read_exact(&mut vec![0; LENGTH]).unwrap();
        });
    }
    let after = carried(&mut tunnel);
    let moved = |at: usize, way: fn((u64, u64)) -> u64| way(after[at]) - way(before[at]);
    for way in [|(down, _)| down, |(_, up)| up] as [fn((u64, u64)) -> u64; 2] {
        let (a, b) = (moved(0, way), moved(1, way));
        assert!(a.max(b) > LENGTH as u64, "{a} and {b}");
        assert!(a.min(b) < LENGTH as u64 / 10, "{a} and {b}");
    }
}

/// Two targets, and from where they were sent to. They send everything back.
fn echoes(tunnel: &Tunnel) -> [Arc<Mutex<BTreeSet<SocketAddr>>>; 2] {
    [8000, 8001].map(|port| {
        let bind = || UdpSocket::bind(("10.99.0.1", port)).unwrap();
        let socket = tunnel.lab.server.enter(bind).unwrap();
        let seen = Arc::<Mutex<BTreeSet<SocketAddr>>>::default();
        let sees = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = resumed(|| socket.recv_from(&mut buffer)) {
                sees.lock().unwrap().insert(from);
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
        seen
    })
}

/// A client's association: the connection it lasts with, its socket, and where that sends to.
fn associate(tunnel: &Tunnel) -> (TcpStream, UdpSocket) {
    let dial = || {
        (
            TcpStream::connect("127.0.0.1:1080"),
            UdpSocket::bind("127.0.0.1:0"),
        )
    };
    let (control, socket) = tunnel.lab.client.enter(dial).unwrap();
    let (mut control, socket) = (control.unwrap(), socket.unwrap());
    control.set_read_timeout(Some(END)).unwrap();
    control
        .write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let mut answer = [0; 12];
    control.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..6], [5, 0, 5, 0, 0, 1]);
    let port = u16::from_be_bytes([answer[10], answer[11]]);
    socket.connect(("127.0.0.1", port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    (control, socket)
}

/// Sends a target many datagrams until most have come back, and returns how many it were.
#[track_caller]
fn exchange(socket: &UdpSocket, port: u16) -> usize {
    const SIZE: usize = 1000;
    let mut datagram = vec![0, 0, 0, 1, 10, 99, 0, 1];
    datagram.extend(port.to_be_bytes());
    datagram.resize(10 + SIZE, 7);
    let (mut sent, mut come, mut buffer) = (0, 0, [0; 2048]);
    let started = Instant::now();
    while come < 500 {
        assert!(started.elapsed() < END, "{come} of {sent} came back");
        socket.send(&datagram).unwrap();
        sent += 1;
        // One after the other: links are never full.
        if resumed(|| socket.recv(&mut buffer)).is_ok() {
            come += 1;
        }
    }
    come * SIZE
}

#[test]
fn each_target_of_one_port_is_steered_by_a_class_of_its_own_both_ways() {
    let Some(mut tunnel) = Tunnel::new("tunnel-port-classes") else {
        return;
    };
    let class = |name: &str, port: u16, steering: &str| {
        format!("\n[[class]]\nname = \"{name}\"\nports = {port}\nsteering = \"{steering}\"\n")
    };
    let classes = class("one", 8000, "active-standby") + &class("both", 8001, "redundant");
    tunnel.write(&format!("{PATHS}{classes}"));
    let output = tunnel.ask(&["reload"]);
    assert!(output.status.success(), "{}", said(&output));
    let seen = echoes(&tunnel);
    let (_control, socket) = associate(&tunnel);
    let ways: [fn((u64, u64)) -> u64; 2] = [|(down, _)| down, |(_, up)| up];
    let carried = |tunnel: &mut Tunnel| [0, 1].map(|at| tunnel.lab.carried(at));
    for port in [8000, 8001] {
        let before = carried(&mut tunnel);
        let bytes = exchange(&socket, port) as u64;
        let after = carried(&mut tunnel);
        for way in ways {
            let [a, b] = [0, 1].map(|at: usize| way(after[at]) - way(before[at]));
            assert!(a.max(b) > bytes, "{port}: {a} and {b}");
            if port == 8000 {
                assert!(a.min(b) < bytes / 5, "{port}: {a} and {b}");
            } else {
                assert!(a.min(b) > bytes * 9 / 10, "{port}: {a} and {b}");
            }
        }
    }
    let seen = seen.map(|seen| seen.lock().unwrap().clone());
    assert_eq!(seen[0], seen[1], "one port of the far end");
    assert_eq!(seen[0].len(), 1);
    let counted = [("one".to_owned(), 1), ("both".to_owned(), 1)];
    assert_eq!(tunnel.classes(), counted);
    let told = tunnel.ask(&["why", "10.99.0.1:8001", "--json"]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["class"], "both");
    assert!(told["datagrams"]["copies"].as_u64() > Some(100), "{told}");
    assert_eq!(told["same_port"]["open"], 2);
    let ends = told["same_port"]["flows"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let told: Vec<_> = ends
        .iter()
        .map(|it| [text(&it["target"]), text(&it["class"])])
        .collect();
    assert_eq!(
        told,
        [["10.99.0.1:8001", "both"], ["10.99.0.1:8000", "one"]]
    );
    let told = tunnel.ask(&["why", &socket.local_addr().unwrap().to_string()]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.contains("remote ends of its port at the far end, 2 open:"),
        "{told}"
    );
}

#[test]
fn a_link_whose_cap_is_used_up_carries_no_more_also_after_a_restart() {
    let Some(mut tunnel) = Tunnel::new("tunnel-cap") else {
        return;
    };
    tunnel.write(&format!("{PATHS}cap = \"1MB\"\n"));
    let output = tunnel.ask(&["reload"]);
    assert!(output.status.success(), "{}", said(&output));
    // Twice the cap goes by either link, or would.
    let transfer = |tunnel: &mut Tunnel| {
        let before = tunnel.lab.carried(1);
        let (mut client, mut service) = tunnel.open();
        thread::scope(|scope| {
            scope.spawn(move || service.write_all(&vec![7; LENGTH]).unwrap());
            client.read_exact(&mut vec![0; LENGTH]).unwrap();
        });
        tunnel.lab.carried(1).0 - before.0
    };
    for _ in 0..2 {
        transfer(&mut tunnel);
    }
    tunnel.wait_for_state("path1", "capped");
    tunnel.hear("path1 has carried its 1 MB: not used until 20");
    let by_it = transfer(&mut tunnel);
    assert!(by_it < 100_000, "{by_it} after the cap");
    tunnel.restart_near();
    tunnel.hear("path0 (10.1.0.1): up");
    tunnel.wait_for_state("path1", "capped");
    let by_it = transfer(&mut tunnel);
    assert!(by_it < 100_000, "{by_it} after the restart");
    // A larger cap lets it in again.
    tunnel.write(&format!("{PATHS}cap = \"1GB\"\n"));
    assert!(tunnel.ask(&["reload"]).status.success());
    tunnel.wait_for_state("path1", "open");
    let status = tunnel.status();
    let paths = status["paths"].as_array().unwrap().iter();
    let caps = paths.filter_map(|path| path["cap"]["used_bytes"].as_u64());
    let used: Vec<u64> = caps.collect();
    assert!(used.len() == 1 && used[0] > 1_000_000, "{used:?}");
}

#[test]
fn a_tunnel_ends_rather_than_goes_on_over_a_link_whose_cap_is_used_up() {
    let Some(tunnel) = Tunnel::new("tunnel-capped") else {
        return;
    };
    let only = "[[path]]\ninterface = \"path1\"\n";
    tunnel.write(&format!("{only}cap = \"1MB\"\n"));
    assert!(tunnel.ask(&["reload"]).status.success());
    let (mut client, mut service) = tunnel.open();
    thread::scope(|scope| {
        // It breaks off some time after the cap, but not at the end.
        scope.spawn(move || while service.write_all(&[7; 1 << 12]).is_ok() {});
        scope.spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        tunnel.hear("the tunnel broke");
    });
    tunnel.hear("every interface that is named is left out");
    tunnel.write(&format!("{only}cap = \"1GB\"\n"));
    assert!(tunnel.ask(&["reload"]).status.success());
    tunnel.wait_for_state("path1", "open");
    tunnel.connect();
}

#[test]
fn a_secondary_link_helps_while_the_others_carry_much_and_rests_afterwards() {
    let Some(tunnel) = Tunnel::new("tunnel-spill") else {
        return;
    };
    tunnel.write(&format!(
        "{PATHS}role = \"secondary\"\nspill-above = \"5Mbit/s\"\n"
    ));
    let output = tunnel.ask(&["reload"]);
    assert!(output.status.success(), "{}", said(&output));
    tunnel.wait_for_state("path1", "backup");
    let (mut client, mut service) = tunnel.open();
    let busy = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while busy.load(Ordering::Relaxed) {
                service.write_all(&[7; 1 << 12]).unwrap();
            }
            service.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(|| std::io::copy(&mut client, &mut std::io::sink()).unwrap());
        // It ends whether or not this holds.
        let end = Ended(&busy);
        tunnel.wait_for_state("path1", "open");
        drop(end);
    });
    tunnel.wait_for_state("path1", "backup");
}

/// Ends a transfer when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn what_new_writes_is_checked_and_told_apart_from_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let tunnel = |words: &[&str]| {
        let mut command = std::process::Command::new(common::PROGRAM);
        command.arg("tunnel").args(words).current_dir(&folder);
        ending::output(&mut command)
    };
    let pin = "00112233445566778899aabbccddeeff".repeat(2);
    let url = format!("anabranch://{pin}@192.0.2.1/join/{}", "a".repeat(43));
    let written = tunnel(&["new", "a.toml", "--url", &url]);
    assert!(written.status.success(), "{}", said(&written));
    let output = tunnel(&["check", "a.toml"]);
    assert!(output.status.success(), "{}", said(&output));
    let again = tunnel(&["new", "a.toml"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("there already"), "{}", said(&again));
    let about = fs::metadata(folder.path().join("a.toml")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600, "it has a secret");
    assert!(tunnel(&["new", "b.toml", "--far"]).status.success());
    assert!(tunnel(&["check", "b.toml"]).status.success());
    let shown = tunnel(&["new"]);
    fs::write(folder.path().join("c.toml"), &shown.stdout).unwrap();
    for (command, code) in [("check", 1), ("up", 2)] {
        let output = tunnel(&[command, "c.toml"]);
        assert_eq!(output.status.code(), Some(code));
        let words = said(&output);
        assert!(
            words.starts_with("error: c.toml:12:7: near.url: "),
            "{words}"
        );
    }
}

#[test]
fn what_up_would_refuse_is_told_by_check_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let tunnel = |command: &str, text: &str| {
        fs::write(folder.path().join("t.toml"), text).unwrap();
        let mut tunnel = std::process::Command::new(common::PROGRAM);
        tunnel
            .args(["tunnel", command, "t.toml"])
            .current_dir(&folder);
        ending::output(&mut tunnel)
    };
    let pin = "00112233445566778899aabbccddeeff".repeat(2);
    let near = "[near]\nurl = \"https://192.0.2.1/\"\n";
    for (text, begin) in [
        (
            "[near]\nurl-file = \"no\"\n".to_owned(),
            "2:12: near.url-file: ",
        ),
        (
            format!("{near}ca = \"no.pem\"\n"),
            "3:6: near.ca: cannot use ",
        ),
        (
            format!("{near}credential = \"no\"\n"),
            "3:14: near.credential: ",
        ),
        (
            "[far]\nserver-id = \"01\"\nlb-key = \"t.toml\"\n".to_owned(),
            "3:10: far.lb-key: ",
        ),
        (
            "[far]\ncert = \"t.toml\"\nkey = \"no\"\n".to_owned(),
            "2:8: far.cert: cannot use ",
        ),
    ] {
        let [checked, started] = ["check", "up"].map(|command| tunnel(command, &text));
        assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
        assert_eq!(started.status.code(), Some(2), "{}", said(&started));
        let words = said(&checked);
        assert!(words.contains(&format!("error: t.toml:{begin}")), "{words}");
        assert_eq!(words, said(&started));
    }
    let capture = |name: &str| {
        format!("[near]\nurl = \"anabranch://{pin}@192.0.2.1\"\ncapture = [\"lan={name}\"]\n")
    };
    let checked = tunnel("check", &capture("nonexist0"));
    let words = said(&checked);
    assert_eq!(checked.status.code(), Some(1), "{words}");
    assert!(
        words.starts_with("error: t.toml:3:12: near.capture: "),
        "{words}"
    );
    // Who may not capture is told that first.
    assert_eq!(tunnel("up", &capture("nonexist0")).status.code(), Some(2));
    assert!(tunnel("check", &capture("lo")).status.success());
}

#[test]
fn the_files_of_the_page_about_links_are_right_as_they_stand() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tunnel-links.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let files: Vec<&str> = blocks
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(files.len(), 3, "a file for each guide");
    let folder = tempfile::tempdir().unwrap();
    let pin = "00112233445566778899aabbccddeeff".repeat(2);
    let url = format!("anabranch://{pin}@192.0.2.1\n");
    fs::write(folder.path().join("join.url"), url).unwrap();
    for text in files {
        // Bridges are the reader's: every machine has this interface.
        let text = text
            .replace("lan=br0", "lan=lo")
            .replace("lan=br1", "lan=lo");
        fs::write(folder.path().join("tunnel.toml"), &text).unwrap();
        let mut check = std::process::Command::new(common::PROGRAM);
        check.args(["tunnel", "check", "tunnel.toml"]);
        let output = ending::output(check.current_dir(&folder));
        assert!(output.status.success(), "{}: {text}", said(&output));
    }
}
