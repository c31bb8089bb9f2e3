//! The lab in a virtual machine, from the command line. Skipped where qemu or its kernel is
//! missing, unless `ANABRANCH_REQUIRE_VM` is 1.

use anabranch_testbed::Need;
use anabranch_vm::{Kernel, requirements};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SCENARIO: &str = r#"
format = 1
name = "bonded"
stop = "30s"
singles = false
[[path]]
name = "a"
forward = { rate = "2Mbit/s", delay = "5ms" }
backward = { like = "forward" }
[[path]]
name = "b"
forward = { rate = "2Mbit/s", delay = "5ms" }
backward = { like = "forward" }
[[flow]]
kind = "bulk"
bytes = "500kB"
[contenders]
bond = { kind = "bonding" }
one = { kind = "tcp", paths = "b" }
"#;

/// Whether guests can be started here.
fn has_vm() -> bool {
    let missing = requirements().into_iter().find(|one| one.found.is_none());
    let kernel = Kernel::default_folder().and_then(|folder| Kernel::find(&folder));
    let why = match (missing, kernel) {
        (Some(missing), _) => format!("there is no `{}`", missing.program),
        (None, Err(error)) => error.to_string(),
        (None, Ok(_)) => return true,
    };
    Need::VirtualMachine.skip("bonded", why);
    false
}

fn lab(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.current_dir(folder).args(words.split(' '));
    command
}

fn talk(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn parts(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder.join("parts")).expect("there are parts");
    let files = entries.map(|entry| entry.expect("a part"));
    let mut parts: Vec<(String, Vec<u8>)> = files
        .map(|file| {
            let name = file.file_name().into_string().expect("a text");
            (name, fs::read(file.path()).expect("a file"))
        })
        .collect();
    parts.sort();
    parts
}

/// Starts a campaign and sends it Ctrl-C after its first run; returns the parts that came back.
fn interrupted(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut first = lab(
        folder,
        "lab run bonded.toml --in-vm=tcg --runs 50 --out out",
    )
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the program starts");
    let pid = Pid::from_raw(i32::try_from(first.id()).expect("a number of a process"));
    let mut said = BufReader::new(first.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("1/100 ") {
        line.clear();
        let read = said.read_line(&mut line).expect("a line");
        assert!(read > 0, "it ended before its first run had");
    }
    kill(pid, Signal::SIGINT).expect("it runs");
    // The current run is finished, and all results come back.
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("its last words");
    assert_eq!(first.wait().expect("an end").code(), Some(1), "{rest}");
    assert!(rest.contains("goes on where it stopped"), "{rest}");
    parts(&folder.join("out"))
}

/// Whether a part is kept when its campaign goes on: one whose run ended badly is measured again.
fn is_settled((_, text): &(String, Vec<u8>)) -> bool {
    let part: serde_json::Value = serde_json::from_slice(text).expect("a part");
    matches!(part["outcome"]["status"].as_str(), Some("ok" | "timeout"))
}

/// Resumes the campaign with fewer repetitions; returns what it printed, as a text and row by row.
/// An emulated processor on a busy machine may be too slow for a run, which gets further chances.
fn resumed(folder: &Path) -> (String, Vec<serde_json::Value>) {
    let words = "lab run bonded.toml --in-vm=tcg --runs 1 --out out --json";
    let mut chances = 3;
    loop {
        let output = lab(folder, words).output().expect("the lab starts");
        chances -= 1;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("a row"));
        let rows: Vec<serde_json::Value> = rows.collect();
        if chances == 0 || rows.iter().all(|row| row["status"] == "ok") {
            assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
            return (text, rows);
        }
    }
}

#[test]
fn a_bond_carries_over_both_paths_and_an_interrupted_campaign_goes_on() {
    if !has_vm() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bonded.toml"), SCENARIO).unwrap();
    let out = folder.path().join("out");
    let before = interrupted(folder.path());
    assert!((1..100).contains(&before.len()), "{}", before.len());
    let (text, rows) = resumed(folder.path());
    let row = |name: &str| rows.iter().find(|row| row["contender"] == name).unwrap();
    let goodput = |name: &str| {
        assert_eq!(row(name)["status"], "ok", "{}", row(name));
        assert_eq!(row(name)["bytes"], 500_000);
        row(name)["goodput_bps"].as_f64().unwrap()
    };
    assert!(goodput("bond") > 1.4 * goodput("one"), "{text}");
    // What had been measured well was not measured again.
    let after = parts(&out);
    for part in before.iter().filter(|part| is_settled(part)) {
        assert!(after.contains(part), "{} has changed", part.0);
    }
    let paths = fs::read_to_string(out.join("paths.csv")).unwrap();
    let id = row("bond")["run_id"].as_str().unwrap();
    let shares: Vec<f64> = paths
        .lines()
        .filter(|line| line.starts_with(id))
        .map(|line| line.split(',').nth(6).unwrap().parse().unwrap())
        .collect();
    assert_eq!(shares.len(), 2, "{paths}");
    assert!(
        shares.iter().all(|share| (0.45..0.55).contains(share)),
        "{paths}"
    );
    let machine = fs::read_to_string(out.join("machine.json")).unwrap();
    let machine: serde_json::Value = serde_json::from_str(&machine).unwrap();
    assert_eq!(machine["vm"], "tcg");
    assert!(machine["host"]["cores"].as_u64().unwrap() > 0);
    // Outside, they count as the results of another machine.
    let output = lab(folder.path(), "lab run bonded.toml --out out")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let refused = talk(&output);
    assert!(
        refused.contains("virtual machine") || refused.contains("they need root"),
        "{refused}"
    );
}

#[test]
fn mistakes_are_told_before_a_machine_is_started() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bonded.toml"), SCENARIO).unwrap();
    for (words, expected) in [
        (
            "lab run nothing-like-this --in-vm",
            "there is no experiment",
        ),
        (
            "lab run bonded.toml --in-vm --backend sim",
            "the simulator needs no virtual machine",
        ),
        (
            "lab run bonded.toml --in-vm=xen",
            "possible values: auto, kvm, tcg",
        ),
        (
            "lab run bonded.toml --in-vm --set contenders.bond.kind=mlppp \
             --set contenders.one.kind=mlppp",
            "multilink PPP",
        ),
    ] {
        let output = lab(folder.path(), words).output().unwrap();
        let talk = talk(&output);
        assert_eq!(output.status.code(), Some(2), "{words}: {talk}");
        assert!(talk.contains(expected), "{words}: {talk}");
    }
}
