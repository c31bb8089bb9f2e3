//! What three lines of `main` promise: the whole command knows the scheduler, wherever it runs.
//!
//! `OWN_SCHEDULER` names another program with the same scheduler, such as that of the crate outside
//! of this tree that `docs/writing-a-scheduler.md` makes.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

#[path = "../../../cli/tests/common/ending.rs"]
mod ending;
#[path = "../../../cli/tests/common/listening.rs"]
mod listening;

use anabranch_testbed::Testbed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_own-scheduler");

const SPEC: &str = "cheapest:limit-ms=80";

const SCENARIO: &str = r#"
format = 1
name = "two"
stop = "30s"
singles = false
[[path]]
name = "a"
forward = { rate = "8Mbit/s", delay = "5ms" }
backward = { like = "forward" }
[[path]]
name = "b"
forward = { rate = "8Mbit/s", delay = "10ms" }
backward = { like = "forward" }
[[flow]]
kind = "bulk"
bytes = "500kB"
[transport]
scheduler = "min-rtt"
"#;

fn program(folder: &Path, words: &[&str]) -> Command {
    let program = std::env::var_os("OWN_SCHEDULER").unwrap_or_else(|| PROGRAM.into());
    let mut command = Command::new(program);
    command.args(words).current_dir(folder);
    // Not the state of whoever runs the test.
    command.env("XDG_STATE_HOME", folder.join("state"));
    command
}

#[track_caller]
fn output(folder: &Path, words: &[&str]) -> Output {
    ending::output(&mut program(folder, words))
}

#[track_caller]
fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let talk = text(&output.stderr);
    assert!(output.status.success(), "{}: {talk}", output.status);
    text(&output.stdout)
}

/// Runs the scenario with the scheduler.
fn run(folder: &Path, words: &[&str]) -> Output {
    fs::write(folder.join("two.toml"), SCENARIO).unwrap();
    let set = format!("transport.scheduler={SPEC}");
    let run = [words, &["two.toml", "--set", &set, "--out", "out"]].concat();
    output(folder, &run)
}

/// Whether the results say that packets went where they went for the scheduler's reason.
#[track_caller]
fn assert_it_decided(folder: &Path, run: &Output) {
    let talk = text(&run.stderr);
    let reasons = fs::read_to_string(folder.join("out/reasons.csv"));
    let reasons = reasons.unwrap_or_else(|error| panic!("{error}: {talk}"));
    assert!(reasons.contains(",cheapest,"), "{reasons}: {talk}");
}

#[test]
fn it_is_listed_with_its_parameters_beside_the_built_in_ones() {
    let folder = tempfile::tempdir().unwrap();
    let listed = succeeded(&output(folder.path(), &["schedulers", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let named = |name: &str| {
        let mut entries = listed.as_array().unwrap().iter();
        entries.find(|entry| entry["name"] == name).cloned()
    };
    let own = named("cheapest").expect("it is registered");
    assert_eq!(own["parameters"][0]["key"], "limit-ms");
    assert!(named("ecf").is_some(), "{listed}");
}

#[test]
fn it_decides_in_the_simulator_and_its_results_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), &["sim", "run"]);
    succeeded(&run);
    assert_it_decided(folder.path(), &run);
    succeeded(&output(folder.path(), &["lab", "compare", "out", "out"]));
}

#[test]
fn it_decides_in_namespaces_for_agents_are_the_same_program() {
    let Some(_bed) = Testbed::require("own-scheduler") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // On a machine that is too busy for the links the run counts as invalid. It took place all the
    // same.
    let run = run(folder.path(), &["lab", "run"]);
    assert_it_decided(folder.path(), &run);
}

/// Everything in the traces of a folder.
fn traces(folder: &Path) -> String {
    let files = fs::read_dir(folder).unwrap();
    let read = |file: std::io::Result<fs::DirEntry>| fs::read_to_string(file.unwrap().path());
    files.map(|file| read(file).unwrap()).collect()
}

#[test]
fn a_client_asks_a_server_for_it_and_gets_its_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    fs::write(folder.path().join("root/file"), vec![7; 200_000]).unwrap();
    let words = "serve --listen 127.0.0.1:0 --root root --identity key --qlog qlog";
    let words: Vec<&str> = words.split(' ').collect();
    let (server, url) = listening::start(&mut program(folder.path(), &words));
    let url = format!("{url}/file");
    let got = ["get", &url, "-o", "got", "--scheduler", SPEC];
    let got = output(folder.path(), &got);
    let typo = output(folder.path(), &["get", &url, "--scheduler", "cheapst"]);
    // What it records is on the disk when it has ended.
    kill(Pid::from_raw(server.id().cast_signed()), Signal::SIGTERM).unwrap();
    ending::ended(server);
    succeeded(&got);
    assert_eq!(
        fs::read(folder.path().join("got")).unwrap(),
        vec![7; 200_000]
    );
    assert_eq!(typo.status.code(), Some(2));
    let talk = text(&typo.stderr);
    assert!(talk.contains("did you mean `cheapest`?"), "{talk}");
    let traces = traces(&folder.path().join("qlog"));
    assert!(traces.contains("cheapest"), "the server sent by it");
}
