//! What a second connection to the same server is spared, as a user meets it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;
#[path = "common/listening.rs"]
mod listening;

use files::noise;
use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// How long a datagram takes each way. Over loopback alone a handshake may be complete before the
/// client has anything to send early; so may it over a short way, where a machine is busy.
const DELAY: Duration = Duration::from_millis(500);

/// A datagram that is on its way: when it arrives, and what happens then.
type OnTheWay = (Instant, Box<dyn FnOnce() + Send>);

/// A long way to the server, until the test's process ends.
fn long_way_to(server: SocketAddr) -> SocketAddr {
    let bind = || Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let (way, arriving) = mpsc::channel::<OnTheWay>();
    thread::spawn(move || {
        for (due, arrive) in arriving {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            arrive();
        }
    });
    let front = bind();
    let address = front.local_addr().unwrap();
    thread::spawn(move || {
        let mut clients = HashMap::new();
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, client)) = front.recv_from(&mut buffer) {
            let upstream = clients.entry(client).or_insert_with(|| {
                let upstream = bind();
                upstream.connect(server).unwrap();
                let (from, to) = (Arc::clone(&upstream), Arc::clone(&front));
                let back = way.clone();
                thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(length) = from.recv(&mut buffer) {
                        let (datagram, to) = (buffer[..length].to_vec(), Arc::clone(&to));
                        let arrive = move || drop(to.send_to(&datagram, client));
                        let _ = back.send((Instant::now() + DELAY, Box::new(arrive)));
                    }
                });
                upstream
            });
            let (datagram, upstream) = (buffer[..length].to_vec(), Arc::clone(upstream));
            let arrive = move || drop(upstream.send(&datagram));
            let _ = way.send((Instant::now() + DELAY, Box::new(arrive)));
        }
    });
    address
}

/// A server with one file, and a user who fetches it again and again.
struct House {
    directory: TempDir,
    process: Child,
    url: String,
    data: Vec<u8>,
}

impl House {
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (root, data) = (directory.path().join("root"), noise(10_000));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), &data).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--root"]);
        command.arg(root).arg("--identity");
        command.arg(directory.path().join("identity"));
        let (process, url) = listening::start(command.args(options));
        let (pin, server) = url.split_once('@').unwrap();
        let url = format!("{pin}@{}", long_way_to(server.parse().unwrap()));
        Self {
            directory,
            process,
            url,
            data,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Fetches the file; tells whether the request went before the handshake was complete.
    fn get(&self, name: &str, options: &[&str]) -> bool {
        self.get_and_say(name, options).0
    }

    /// Tells also what was said.
    fn get_and_say(&self, name: &str, options: &[&str]) -> (bool, String) {
        let qlog = self.path(&format!("{name}.qlog"));
        let mut get = Command::new(PROGRAM);
        get.args(["get", &format!("{}/file", self.url), "-o"])
            .arg(self.path(name))
            .arg("--qlog")
            .arg(&qlog)
            .args(options)
            .env("XDG_STATE_HOME", self.path("state"));
        let output = ending::output(&mut get);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(fs::read(self.path(name)).unwrap(), self.data);
        (has_early_packets(&qlog), said)
    }

    fn kept(&self) -> std::path::PathBuf {
        self.path("state/anabranch/tickets.json")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_early_packets(directory: &Path) -> bool {
    let traces = fs::read_dir(directory).unwrap();
    let mut traces = traces.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    traces.any(|trace| trace.contains("\"packet_type\":\"0RTT\""))
}

#[test]
fn a_second_get_asks_with_its_first_packets() {
    let house = House::new(&[]);
    assert!(!house.get("first", &[]));
    let mode = fs::metadata(house.kept()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(house.get("second", &[]));
    assert!(house.get("third", &[]));
    assert!(!house.get("fourth", &["--no-resume"]));
}

#[test]
fn a_server_may_read_nothing_early() {
    let house = House::new(&["--no-early-data"]);
    assert!(!house.get("first", &[]));
    assert!(!house.get("second", &[]));
}

#[test]
fn a_damaged_store_costs_a_note_and_a_round_trip() {
    let house = House::new(&[]);
    assert!(!house.get("first", &[]));
    fs::write(house.kept(), "[{").unwrap();
    let (early, said) = house.get_and_say("second", &[]);
    assert!(!early && said.contains("is damaged"), "{said}");
    assert!(house.get("third", &[]));
    fs::write(house.kept(), "[{").unwrap();
    let (early, said) = house.get_and_say("fourth", &["--quiet"]);
    assert!(!early && said.is_empty(), "{said}");
}

#[test]
fn whoever_holds_the_lock_of_the_store_holds_up_no_transfer() {
    let house = House::new(&[]);
    assert!(!house.get("first", &[]));
    let lock = fs::File::open(house.kept().with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let (early, said) = house.get_and_say("second", &[]);
    assert!(!early && said.contains("another process"), "{said}");
    lock.unlock().unwrap();
    assert!(house.get("third", &[]));
}

#[test]
fn a_user_without_a_place_to_keep_sessions_does_not_hear_of_it_each_time() {
    let house = House::new(&[]);
    fs::write(house.path("state"), "no directory").unwrap();
    let (_, said) = house.get_and_say("first", &[]);
    assert!(!said.contains("session"), "{said}");
    let (_, said) = house.get_and_say("second", &["-v"]);
    assert!(said.contains("no session can be kept"), "{said}");
}

#[test]
fn without_resumption_nothing_is_kept() {
    let house = House::new(&[]);
    assert!(!house.get("first", &["--no-resume"]));
    assert!(!house.path("state").exists());
}
