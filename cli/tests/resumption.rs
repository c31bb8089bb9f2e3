//! What a second connection to the same server saves, as a user sees it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;
#[path = "common/listening.rs"]
mod listening;

use anabranch_proto::wire::header::{self, Header, LongType};
use files::noise;
use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// How long answers are held back for early data that should not come.
const BRIEFLY: Duration = Duration::from_millis(500);
/// How long they are held back for early data that should come: a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way to the server. Over plain loopback, a handshake may be complete before the client has
/// anything to send early. So this holds back the server's answers until early data has passed, or
/// until the time for it is over.
#[derive(Default)]
struct Way {
    turn: Mutex<Turn>,
    changed: Condvar,
}

/// One client's use of the way.
#[derive(Default)]
struct Turn {
    /// How long the server's answers wait for early data, counted from the first answer.
    patience: Duration,
    until: Option<Instant>,
    has_early_data: bool,
}

impl Way {
    /// Prepares for the next client, which should send early data or not.
    fn next(&self, early: bool) {
        *self.turn.lock().unwrap() = Turn {
            patience: if early { PATIENCE } else { BRIEFLY },
            ..Turn::default()
        };
    }

    /// Notes a datagram to the server.
    fn note(&self, datagram: &[u8]) {
        if has_early_data(datagram) {
            self.turn.lock().unwrap().has_early_data = true;
            self.changed.notify_all();
        }
    }

    /// Waits until datagrams may come back.
    fn wait(&self) {
        let (mut turn, now) = (self.turn.lock().unwrap(), Instant::now());
        let patience = turn.patience;
        let until = *turn.until.get_or_insert(now + patience);
        let left = until.saturating_duration_since(now);
        let waits = |turn: &mut Turn| !turn.has_early_data;
        drop(self.changed.wait_timeout_while(turn, left, waits).unwrap());
    }

    /// Opens the way to the server, until the test's process ends.
    fn to(self: &Arc<Self>, server: SocketAddr) -> SocketAddr {
        let bind = || Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let front = bind();
        let address = front.local_addr().unwrap();
        let way = Arc::clone(self);
        thread::spawn(move || {
            let mut clients = HashMap::new();
            let mut buffer = vec![0; 1 << 16];
            while let Ok((length, client)) = front.recv_from(&mut buffer) {
                let upstream = clients.entry(client).or_insert_with(|| {
                    let upstream = bind();
                    upstream.connect(server).unwrap();
                    let (from, to) = (Arc::clone(&upstream), Arc::clone(&front));
                    let way = Arc::clone(&way);
                    thread::spawn(move || {
                        let mut buffer = vec![0; 1 << 16];
                        while let Ok(length) = from.recv(&mut buffer) {
                            way.wait();
                            let _ = to.send_to(&buffer[..length], client);
                        }
                    });
                    upstream
                });
                let _ = upstream.send(&buffer[..length]);
                way.note(&buffer[..length]);
            }
        });
        address
    }
}

/// Whether a datagram contains a 0-RTT packet, alone or after others.
fn has_early_data(mut datagram: &[u8]) -> bool {
    while let Ok(
        Header::Initial { packet_len, .. }
        | Header::Long {
            packet_len,
            kind: LongType::Handshake,
            ..
        },
    ) = header::parse(datagram, 8)
    {
        datagram = &datagram[packet_len..];
    }
    let next = header::parse(datagram, 8);
    matches!(
        next,
        Ok(Header::Long {
            kind: LongType::ZeroRtt,
            ..
        })
    )
}

/// A server with one file, and a user who fetches it again and again.
struct House {
    directory: TempDir,
    process: Child,
    way: Arc<Way>,
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
        let way = Arc::new(Way::default());
        let url = format!("{pin}@{}", way.to(server.parse().unwrap()));
        Self {
            directory,
            process,
            way,
            url,
            data,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Fetches the file, with a request sent before the handshake is complete.
    fn gets_early(&self, name: &str, options: &[&str]) {
        self.get(name, options, true);
    }

    /// Fetches the file, with a request sent only when the handshake is complete.
    fn gets_late(&self, name: &str, options: &[&str]) -> String {
        self.get(name, options, false)
    }

    /// Returns what the client printed on stderr.
    fn get(&self, name: &str, options: &[&str], early: bool) -> String {
        self.way.next(early);
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
        assert_eq!(has_early_packets(&qlog), early, "{name}: {said}");
        said
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
    house.gets_late("first", &[]);
    let mode = fs::metadata(house.kept()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    house.gets_early("second", &[]);
    house.gets_early("third", &[]);
    house.gets_late("fourth", &["--no-resume"]);
}

#[test]
fn a_server_may_read_nothing_early() {
    let house = House::new(&["--no-early-data"]);
    house.gets_late("first", &[]);
    house.gets_late("second", &[]);
}

#[test]
fn a_damaged_store_costs_a_note_and_a_round_trip() {
    let house = House::new(&[]);
    house.gets_late("first", &[]);
    fs::write(house.kept(), "[{").unwrap();
    let said = house.gets_late("second", &[]);
    assert!(said.contains("is damaged"), "{said}");
    house.gets_early("third", &[]);
    fs::write(house.kept(), "[{").unwrap();
    let said = house.gets_late("fourth", &["--quiet"]);
    assert!(said.is_empty(), "{said}");
}

#[test]
fn whoever_holds_the_lock_of_the_store_holds_up_no_transfer() {
    let house = House::new(&[]);
    house.gets_late("first", &[]);
    let lock = fs::File::open(house.kept().with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let said = house.gets_late("second", &[]);
    assert!(said.contains("another process"), "{said}");
    lock.unlock().unwrap();
    house.gets_early("third", &[]);
}

#[test]
fn a_user_without_a_place_to_keep_sessions_does_not_hear_of_it_each_time() {
    let house = House::new(&[]);
    fs::write(house.path("state"), "no directory").unwrap();
    let said = house.gets_late("first", &[]);
    assert!(!said.contains("session"), "{said}");
    let said = house.gets_late("second", &["-v"]);
    assert!(said.contains("no session can be kept"), "{said}");
}

#[test]
fn without_resumption_nothing_is_kept() {
    let house = House::new(&[]);
    house.gets_late("first", &["--no-resume"]);
    assert!(!house.path("state").exists());
}
