//! `anabranch lab run --backend host`: two machines, which are namespaces, and links between them
//! that the lab did not make. Also handovers, where an interface gets a new address.

#![allow(
    clippy::unwrap_used,
    reason = "a test helper that fails, fails the test"
)]

use anabranch_testbed::{LinkSpec, Node, Rate, Testbed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long enough for any machine: tests wait for events, not for times.
const PATIENCE: Duration = Duration::from_secs(300);

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

const PATHS: &str = r#"
format = 1
name = "real"
stop = "60s"
singles = false
[[path]]
name = "a"
forward = { rate = "8Mbit/s", delay = "5ms" }
[[path]]
name = "b"
forward = { rate = "8Mbit/s", delay = "5ms" }
"#;

/// A contender that transfers nothing; its server prints what it would have transferred.
const FAKE: &str = r#"
format = 1
name = "fake"
paths = "all"
ready = "here I am"
[server]
command = ["sh", "-c", "echo here I am at {port}; echo moved {bytes} bytes in 2 s; exec sleep 600"]
[client]
command = ["sh", "-c", "echo {pairs} {interfaces} {port} > pairs.txt"]
[measure]
from = "server"
bytes = "moved {} bytes"
time = "bytes in {} s"
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two machines with two links of 8 Mbit/s; the peer's addresses end in 2.
struct Machines {
    near: Node,
    far: Node,
    net: u8,
    folder: TempDir,
    // Dropped last, because it removes the machines.
    _bed: Testbed,
}

impl Machines {
    fn new(name: &str, net: u8) -> Option<Self> {
        let mut bed = Testbed::require(name)?;
        let (near, far) = (bed.node("lab").unwrap(), bed.node("peer").unwrap());
        for link in 1..3 {
            let address = |host| format!("10.{net}.{link}.{host}/24").parse().unwrap();
            let spec = LinkSpec::new(address(1), address(2)).rate(Rate::mbit(8));
            bed.link(&near, &far, &spec).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Self {
            near,
            far,
            net,
            folder,
            _bed: bed,
        })
    }

    /// The near machine's interface on a link.
    fn interface(&self, link: u8) -> String {
        let net = format!("10.{}.{link}.1/24", self.net);
        let shown = self
            .near
            .run("ip", &["-o", "-4", "address", "show"])
            .unwrap();
        let line = shown.lines().find(|line| line.contains(&net)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    fn command(&self, node: &Node) -> Command {
        let mut command = node.command(PROGRAM);
        command.current_dir(self.folder.path()).arg("lab");
        command
    }

    fn key(&self, directory: &str) -> String {
        let output = self
            .command(&self.near)
            .args(["key", "--identity", directory])
            .output()
            .unwrap();
        text(&output.stdout).trim().to_owned()
    }

    /// An agent on the far machine that trusts this key.
    fn agent(&self, trusted: &str) -> Agent {
        fs::write(self.folder.path().join("fake.toml"), FAKE).unwrap();
        let listen = format!("10.{}.1.2:4433", self.net);
        let mut child = self
            .command(&self.far)
            .args(["agent", "--listen", &listen, "--trust", trusted])
            .args(["--identity", "peer", "--ports", "4434-4441"])
            .args(["--contender", "fake.toml"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (say, said) = channel();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = output.read_line(&mut line);
            let _ = say.send(line);
            // Keeps the pipe open while the agent lives.
            let _ = output.read_to_end(&mut Vec::new());
        });
        let peer = said.recv_timeout(PATIENCE).unwrap().trim().to_owned();
        assert!(peer.ends_with(&format!("@{listen}")), "{peer}");
        Agent { child, peer }
    }

    /// `lab run` over both links with this scenario.
    fn lab(&self, peer: &str, identity: &str, scenario: &str) -> Command {
        fs::write(self.folder.path().join("real.toml"), scenario).unwrap();
        let (a, b) = (self.interface(1), self.interface(2));
        let mut command = self.command(&self.near);
        command
            .args([
                "run",
                "real.toml",
                "--backend",
                "host",
                "--json",
                "--runs",
                "1",
            ])
            .args(["--out", "out", "--peer", peer, "--identity", identity])
            .args(["--path", &format!("a={a}")])
            .args(["--path", &format!("b={b}=10.{}.2.2", self.net)]);
        command
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join("out").join(file)).unwrap()
    }
}

/// An agent that is ended with the test.
struct Agent {
    child: Child,
    peer: String,
}

impl Agent {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rows(output: &Output) -> Vec<serde_json::Value> {
    let lines = text(&output.stdout);
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row is JSON"));
    rows.collect()
}

/// A run over other links must be refused: the existing results would be taken for results over
/// these.
fn refuses_other_links(machines: &Machines, peer: &str) {
    let (a, b) = (machines.interface(1), machines.interface(2));
    let mut swapped = machines.command(&machines.near);
    let swapped = swapped
        .args(["run", "real.toml", "--backend", "host", "--runs", "1"])
        .args(["--out", "out", "--peer", peer, "--identity", "lab"])
        .args(["--path", &format!("a={b}=10.81.2.2")])
        .args(["--path", &format!("b={a}")])
        .output()
        .unwrap();
    let talk = text(&swapped.stderr);
    assert_eq!(swapped.status.code(), Some(2), "{talk}");
    for part in ["another network", "path `a` led from 10.81.1.1", "--out"] {
        assert!(talk.contains(part), "{part}: {talk}");
    }
}

#[test]
fn the_engine_and_tcp_run_over_links_that_exist() {
    let Some(machines) = Machines::new("host-run", 81) else {
        return;
    };
    let mut agent = machines.agent(&machines.key("lab"));
    let scenario = format!(
        "{PATHS}[[flow]]\nkind = \"bulk\"\nbytes = \"1500kB\"\n[contenders]\nanabranch = {{}}\n\
         tcp = {{ congestion = \"cubic\", paths = \"b\" }}\n\
         [[event]]\nat = \"1s\"\npath = \"a\"\nhandover = true\n"
    );
    let events = machines
        .lab(&agent.peer, "lab", &scenario)
        .output()
        .unwrap();
    assert_eq!(events.status.code(), Some(2), "links cannot be changed");
    assert!(
        text(&events.stderr).contains("events"),
        "{}",
        text(&events.stderr)
    );
    let scenario = scenario.split("[[event]]").next().unwrap();
    for _ in 0..2 {
        // The second time there is nothing left to do.
        let output = machines.lab(&agent.peer, "lab", scenario).output().unwrap();
        let talk = text(&output.stderr);
        assert!(output.status.success(), "{talk}");
        let rows = rows(&output);
        assert_eq!(rows.len(), 2, "{talk}");
        for row in rows {
            assert_eq!(
                (&row["status"], &row["backend"]),
                (&"ok".into(), &"host".into())
            );
            assert_eq!(row["bytes"], 1_500_000, "{row}");
            assert!(
                row["sum_rate_bps"].is_null(),
                "nobody gave the links a rate: {row}"
            );
        }
    }
    for (contender, used) in [
        ("anabranch", ["a", "b"].as_slice()),
        ("tcp", ["b"].as_slice()),
    ] {
        for path in used {
            let sent = sent_by(&machines, contender, path);
            // Merely opening a path takes some kilobytes.
            assert!(sent > 50_000, "{contender} over {path}: {sent}");
        }
    }
    refuses_other_links(&machines, &agent.peer);
    let machine: serde_json::Value = serde_json::from_str(&machines.read("machine.json")).unwrap();
    assert_eq!(machine["peer"]["machine"]["kernel"], machine["kernel"]);
    assert_eq!(machine["peer"]["paths"][1]["remote"], "10.81.2.2");
    let notes = machines.read("notes.jsonl");
    assert_eq!(notes.lines().count(), 2);
    for note in notes.lines() {
        let note: serde_json::Value = serde_json::from_str(note).unwrap();
        let [ahead, error] = [0, 1].map(|at| note["clock_ahead_s"][at].as_f64().unwrap());
        // Both machines are the same one: the estimate must be right within its error.
        assert!(ahead.abs() <= error && error > 0.0, "{note}");
    }
    assert!(agent.is_running());
    agent.signal(Signal::SIGTERM);
    assert!(
        agent.child.wait().unwrap().success(),
        "it ends when it is told to"
    );
}

#[test]
fn the_peer_starts_programs_it_was_given_and_no_others() {
    let Some(machines) = Machines::new("host-program", 84) else {
        return;
    };
    let agent = machines.agent(&machines.key("lab"));
    let other = FAKE.replace("name = \"fake\"", "name = \"other\"");
    let shared = FAKE.replace("{interfaces}", "{folder}");
    for (file, text) in [("other.toml", &other), ("shared.toml", &shared)] {
        fs::write(machines.folder.path().join(file), text).unwrap();
    }
    let kinds = ["fake", "other", "shared"]
        .map(|name| format!("{name} = {{ kind = \"command\", file = \"{name}.toml\" }}\n"));
    let scenario = format!(
        "{PATHS}[[flow]]\nkind = \"bulk\"\nbytes = \"100kB\"\n[contenders]\n{}",
        kinds.concat()
    );
    let output = machines
        .lab(&agent.peer, "lab", &scenario)
        .output()
        .unwrap();
    let talk = text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let rows = rows(&output);
    let row = |name: &str| rows.iter().find(|row| row["contender"] == name).unwrap();
    assert_eq!(row("fake")["status"], "ok", "{talk}");
    assert_eq!(row("fake")["goodput_bps"], 400_000.0);
    for (name, expected) in [("other", "--contender FILE"), ("shared", "{folder}")] {
        let row = row(name);
        assert_eq!(row["status"], "unsupported", "{row}");
        assert!(row["reason"].as_str().unwrap().contains(expected), "{row}");
    }
    let pairs = fs::read_to_string(machines.folder.path().join("pairs.txt")).unwrap();
    assert!(
        pairs.starts_with("10.84.1.1=10.84.1.2,10.84.2.1=10.84.2.2"),
        "{pairs}"
    );
    assert!(
        pairs.contains(&machines.interface(2)) && pairs.contains("44"),
        "{pairs}"
    );
}

#[test]
fn strangers_and_mistakes_are_refused_before_anything_runs() {
    let Some(machines) = Machines::new("host-refused", 82) else {
        return;
    };
    let agent = machines.agent(&machines.key("lab"));
    let scenario = format!("{PATHS}[[flow]]\nkind = \"bulk\"\nbytes = \"100kB\"\n");
    let refused = |command: &mut Command, expected: &[&str]| {
        let output = command.output().unwrap();
        let talk = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{talk}");
        for part in expected {
            assert!(talk.contains(part), "{part}: {talk}");
        }
        assert!(!machines.folder.path().join("out").exists());
    };
    let stranger = machines.key("stranger");
    refused(
        &mut machines.lab(&agent.peer, "stranger", &scenario),
        &["--trust", &stranger],
    );
    let (_, place) = agent.peer.split_once('@').unwrap();
    refused(
        &mut machines.lab(&format!("{stranger}@{place}"), "lab", &scenario),
        &["cannot be reached", place, "the key of --peer"],
    );
    refused(
        machines
            .lab(&agent.peer, "lab", &scenario)
            .args(["--path", "a=nowhere9"]),
        &["`a` is given twice"],
    );
    let mut command = machines.command(&machines.near);
    refused(
        command.args(["run", "real.toml", "--backend", "host", "--out", "out"]),
        &["no --peer was given", "lab agent --listen"],
    );
    let mut command = machines.command(&machines.near);
    let interface = machines.interface(1);
    let almost = format!("a={interface}x");
    refused(
        command
            .args(["run", "real.toml", "--backend", "host", "--out", "out"])
            .args(["--peer", &agent.peer, "--path", &almost]),
        &["there is no interface", &interface],
    );
}

#[test]
fn a_peer_that_dies_fails_the_run_and_says_so() {
    let Some(machines) = Machines::new("host-dies", 83) else {
        return;
    };
    let mut agent = machines.agent(&machines.key("lab"));
    let scenario = format!("{PATHS}[[flow]]\nkind = \"bulk\"\nduration = \"50s\"\n");
    let mut command = machines.lab(&agent.peer, "lab", &scenario);
    let lab = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the run", || sends(&machines));
    agent.signal(Signal::SIGTERM);
    agent.child.wait().unwrap();
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let rows = rows(&output);
    assert_eq!(rows[0]["status"], "failed", "{}", text(&output.stderr));
    let reason = rows[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("server") || reason.contains("ended"),
        "{reason}"
    );
    // A new agent with the same key is there, and another campaign finds it.
    let agent = machines.agent(&machines.key("lab"));
    let short = scenario.replace("50s", "500ms");
    fs::remove_dir_all(machines.folder.path().join("out")).unwrap();
    let output = machines.lab(&agent.peer, "lab", &short).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Bytes that a contender sent over a path, from the tables of results.
fn sent_by(machines: &Machines, contender: &str, path: &str) -> u64 {
    let ids: Vec<String> = cells(&machines.read("runs.csv"), ["run_id", "contender"])
        .into_iter()
        .filter(|[_, who]| who == contender)
        .map(|[id, _]| id)
        .collect();
    cells(
        &machines.read("paths.csv"),
        ["run_id", "name", "sent_bytes"],
    )
    .into_iter()
    .filter(|[id, name, _]| ids.contains(id) && name == path)
    .map(|[_, _, sent]| sent.parse::<u64>().unwrap())
    .sum()
}

/// Columns of a table, by name.
fn cells<const N: usize>(table: &str, columns: [&str; N]) -> Vec<[String; N]> {
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = columns.map(|name| names.iter().position(|known| *known == name).unwrap());
    let rows = lines.map(|line| line.split(',').collect::<Vec<&str>>());
    rows.map(|row| at.map(|at| row[at].to_owned())).collect()
}

/// Whether more than a megabyte has left the near machine.
fn sends(machines: &Machines) -> bool {
    let interface = machines.interface(1);
    let file = format!("/sys/class/net/{interface}/statistics/tx_bytes");
    let bytes = machines.near.run("cat", &[&file]).unwrap();
    bytes.trim().parse::<u64>().unwrap() > 1_000_000
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_client_whose_address_changes_goes_on_from_the_new_one() {
    let Some(_bed) = Testbed::require("handover") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "{PATHS}[[flow]]\nkind = \"bulk\"\nbytes = \"8MB\"\n[contenders]\n\
         both = {{ kind = \"anabranch\" }}\none = {{ kind = \"anabranch\", paths = \"a\" }}\n\
         [[event]]\nat = \"1s\"\npath = \"a\"\nhandover = true\n[record]\nseries = \"200ms\"\n"
    );
    fs::write(folder.path().join("move.toml"), scenario).unwrap();
    let output = Command::new(PROGRAM)
        .current_dir(folder.path())
        .args([
            "lab",
            "run",
            "move.toml",
            "--json",
            "--runs",
            "1",
            "--out",
            "out",
        ])
        .output()
        .unwrap();
    let talk = text(&output.stderr);
    let rows = rows(&output);
    assert_eq!(rows.len(), 2, "{talk}");
    for row in &rows {
        // A machine that is too busy for links of 8 Mbit/s may report that.
        if row["status"] == "invalid" {
            continue;
        }
        assert_eq!(row["status"], "ok", "{row}\n{talk}");
        // If only path `a` is used, it has to carry most of the data after the move. If both are,
        // `b` alone would take six seconds for the rest: time enough to notice the new address,
        // even if others keep the cores busy.
        assert_eq!(row["bytes"], 8_000_000, "{row}");
        let after = delivered_after(folder.path(), row["run_id"].as_str().unwrap(), 2.0);
        assert!(after > 0, "nothing over the path that moved: {row}");
    }
    let notes = fs::read_to_string(folder.path().join("out/notes.jsonl")).unwrap();
    assert!(notes.contains("the client has another address"), "{notes}");
}

/// Bytes that the first path delivered after a given time.
fn delivered_after(folder: &Path, run: &str, from: f64) -> u64 {
    let table = fs::read_to_string(folder.join("out/series.csv")).unwrap();
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let [id, time, path, bytes] = ["run_id", "t_s", "path", "delivered_bytes"].map(column);
    let rows = lines.map(|line| line.split(',').collect::<Vec<&str>>());
    let rows = rows.filter(|row| row[id] == run && row[path] == "1");
    let late = rows.filter(|row| row[time].parse::<f64>().unwrap() > from);
    late.map(|row| row[bytes].parse::<u64>().unwrap()).sum()
}
