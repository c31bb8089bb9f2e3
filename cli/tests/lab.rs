//! `anabranch lab`: real kernels, from the command line.

use anabranch_testbed::Testbed;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Long enough for any machine: tests wait for events, not for times.
const PATIENCE: Duration = Duration::from_secs(300);

const TWO_PATHS: &str = r#"
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
bytes = "1500kB"
"#;

fn lab(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.current_dir(folder).arg("lab").args(words);
    command
}

fn run(folder: &Path, words: &[&str]) -> Output {
    lab(folder, words).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The rows of `runs` as JSON.
fn rows(output: &Output) -> Vec<serde_json::Value> {
    let lines = text(&output.stdout);
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row is JSON"));
    rows.collect()
}

/// Namespaces of laboratories that this process started.
fn namespaces_of(pid: u32) -> Vec<String> {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with(&format!("ab-{pid}-")))
        .collect()
}

#[test]
fn the_engine_tcp_and_mptcp_meet_over_the_same_links() {
    let Some(_bed) = Testbed::require("lab-three") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "{TWO_PATHS}\n[contenders]\nanabranch = {{}}\nmptcp = {{ congestion = \"cubic\" }}\n\
         tcp = {{ congestion = \"reno\", paths = \"b\" }}\nmlppp = {{}}\n"
    );
    fs::write(folder.path().join("two.toml"), scenario).unwrap();
    let output = run(
        folder.path(),
        &["run", "two.toml", "--json", "--runs", "1", "--out", "out"],
    );
    let talk = text(&output.stderr);
    let rows = rows(&output);
    assert_eq!(rows.len(), 4, "{talk}");
    let row = |name: &str| rows.iter().find(|row| row["contender"] == name).unwrap();
    assert_eq!(row("mlppp")["status"], "unsupported", "{talk}");
    let has_mptcp = fs::read_to_string("/proc/sys/net/mptcp/enabled")
        .is_ok_and(|enabled| enabled.trim() == "1");
    for name in ["anabranch", "tcp", "mptcp"] {
        let row = row(name);
        if name == "mptcp" && !has_mptcp {
            assert_eq!(row["status"], "unsupported");
            continue;
        }
        // A machine that is too busy for links of 8 Mbit/s says so, and is right.
        if row["status"] == "invalid" {
            continue;
        }
        assert_eq!(row["status"], "ok", "{row}\n{talk}");
        assert_eq!(row["bytes"], 1_500_000, "{row}");
        let goodput = row["goodput_bps"].as_f64().unwrap();
        let most = if name == "tcp" { 8e6 } else { 16e6 };
        assert!((0.5e6..most).contains(&goodput), "{name}: {goodput}");
    }
    for file in ["runs.csv", "machine.json", "notes.jsonl", "plan.json"] {
        assert!(folder.path().join("out").join(file).exists(), "{file}");
    }
    let notes = fs::read_to_string(folder.path().join("out/notes.jsonl")).unwrap();
    assert!(
        notes.contains("cubic") && notes.contains("tcp_rmem"),
        "{notes}"
    );
    let status = run(folder.path(), &["status", "out", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["runs"], &status["done"]), (&4.into(), &4.into()));
}

/// The calibration scenario with the least in it, made shorter and, with few Mbit/s, so slow that
/// a busy machine keeps up.
fn calibrate(folder: &Path, backend: &str, out: &str, rate: &str) -> Vec<serde_json::Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/scenarios/calibration");
    let file = file.join("one-path.toml");
    let rate = format!("path.dsl.forward.rate={rate}");
    let words = [
        "run",
        file.to_str().expect("a path of this project is text"),
        "--backend",
        backend,
        "--out",
        out,
        "--set",
        &rate,
        "--set",
        "flow.1.duration=5s",
        "--runs",
        "3",
        "--json",
    ];
    let output = run(folder, &words);
    let rows = rows(&output);
    assert_eq!(rows.len(), 3, "{}", text(&output.stderr));
    rows
}

#[test]
fn simulator_and_kernels_agree_and_so_do_two_runs_in_kernels() {
    let Some(_bed) = Testbed::require("lab-calibration") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut usable = Vec::new();
    for (backend, out) in [("sim", "sim"), ("netns", "one"), ("netns", "two")] {
        let rows = calibrate(folder.path(), backend, out, "4Mbit/s");
        let ok = |row: &&serde_json::Value| row["status"] == "ok";
        for row in &rows {
            // A machine that is too busy for a link of 4 Mbit/s says so, and is right.
            let late = backend == "netns" && row["status"] == "invalid";
            assert!(ok(&row) || late, "{row}");
        }
        if rows.iter().any(|row| ok(&row)) {
            usable.push(out);
        } else {
            eprintln!("{out}: links were late in every run, so that nothing is compared with it");
        }
    }
    // How far they agree is for a calibration by hand on an idle machine: other tests run beside
    // this one, and what they delay has to stay within a factor of two.
    for pair in usable.windows(2) {
        let words = ["compare", pair[0], pair[1], "--goodput", "100", "--json"];
        let output = run(folder.path(), &words);
        let lines = text(&output.stdout);
        assert!(output.status.success(), "{lines}{}", text(&output.stderr));
        assert_eq!(lines.lines().count(), 1, "{lines}");
    }
    calibrate(folder.path(), "sim", "slow", "3Mbit/s");
    let output = run(folder.path(), &["compare", "sim", "slow"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

#[test]
fn what_is_wrong_is_told_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], expected: &[&str]| {
        let output = run(folder.path(), words);
        let talk = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {talk}");
        for part in expected {
            assert!(talk.contains(part), "{words:?}: {talk}");
        }
    };
    refused(&["run", "nitk-table"], &["did you mean `nitk-table1`"]);
    refused(&["run", "calibrate"], &["did you mean `calibration`"]);
    refused(&["run", "no.toml"], &["no.toml"]);
    refused(
        &["run", "critical-fig3-trace"],
        &["worked example", "sim papers"],
    );
    refused(&["status", "."], &["plan.json"]);
    let fast = TWO_PATHS.replace("8Mbit/s", "100Gbit/s");
    fs::write(folder.path().join("fast.toml"), fast).unwrap();
    let twice = format!("{TWO_PATHS}\n[[node]]\nname = \"x\"\n[[node]]\nname = \"x\"\n");
    fs::write(folder.path().join("twice.toml"), twice).unwrap();
    refused(&["run", "twice.toml"], &["twice.toml:", "taken"]);
    let kinds = format!("{TWO_PATHS}\n[contenders]\nmlppp = {{}}\n");
    fs::write(folder.path().join("kinds.toml"), kinds).unwrap();
    if Testbed::available().is_ok() {
        refused(&["run", "fast.toml"], &["Gbit/s", "--backend sim"]);
        refused(&["run", "kinds.toml"], &["multilink PPP", "doctor"]);
    } else {
        refused(&["run", "fast.toml"], &["root"]);
    }
    assert!(!folder.path().join("lab-results").exists());
}

#[test]
fn the_list_names_every_experiment_and_the_simulator_runs_one() {
    let folder = tempfile::tempdir().unwrap();
    let list = text(&run(folder.path(), &["list"]).stdout);
    for id in [
        "nitk-table1",
        "bth-chunk-size",
        "bremen-router-A",
        "aveiro-mptcp",
        "critical-s1",
    ] {
        assert!(list.contains(id), "{list}");
    }
    fs::write(folder.path().join("two.toml"), TWO_PATHS).unwrap();
    let output = run(
        folder.path(),
        &["run", "two.toml", "--backend", "sim", "--json"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(rows(&output)[0]["backend"], "sim");
    assert!(folder.path().join("lab-results/two/runs.csv").exists());
}

/// A run that lasts until it is stopped.
fn endless(folder: &Path) -> Child {
    let scenario = TWO_PATHS.replace("bytes = \"1500kB\"", "duration = \"25s\"");
    fs::write(folder.join("long.toml"), scenario).expect("the folder can be written");
    lab(folder, &["run", "long.toml", "--out", "out"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_request_to_terminate_removes_everything() {
    let Some(_bed) = Testbed::require("lab-term") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut child = endless(folder.path());
    let pid = child.id();
    wait_for("its namespaces", || namespaces_of(pid).len() == 2);
    Command::new("kill").arg(pid.to_string()).status().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

#[test]
fn what_a_killed_laboratory_leaves_the_next_start_removes() {
    let Some(_bed) = Testbed::require("lab-kill") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    // Different moments of the first second, from before anything is made to under way.
    for step in 0..10_u64 {
        let mut child = endless(folder.path());
        let pid = child.id();
        std::thread::sleep(Duration::from_millis(step * step * 12));
        child.kill().unwrap();
        child.wait().unwrap();
        let cleaned = run(folder.path(), &["clean"]);
        assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
        assert_eq!(namespaces_of(pid), Vec::<String>::new());
        // Agents end with their pipe; those in namespaces were killed with them.
        let program = format!("/proc/{pid}/exe");
        wait_for("its agents are gone", || !is_running(&program));
    }
}

/// Whether a process runs whose command begins with this word.
fn is_running(word: &str) -> bool {
    let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
    let mut commands = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands.any(|command| command.split(|byte| *byte == 0).next() == Some(word.as_bytes()))
}
