//! `anabranch lab`: real kernels, from the command line.

mod common;

use anabranch_testbed::{Need, Testbed};
use common::files::Noise;
use common::stage::{STAGED, Stage};
use common::{judge, measured};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::ExitStatusExt;
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

/// Runs `anabranch lab` on a stage.
fn lab_on(stage: &Stage, folder: &Path, words: &[&str]) -> Command {
    let mut command = stage.command(folder, env!("CARGO_BIN_EXE_anabranch"));
    command.arg("lab").args(words);
    command
}

/// Whether the kernel has multipath TCP.
fn has_mptcp() -> bool {
    let enabled = fs::read_to_string("/proc/sys/net/mptcp/enabled");
    enabled.is_ok_and(|text| text.trim() == "1")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The rows of runs, from the JSON output.
fn rows(output: &Output) -> Vec<serde_json::Value> {
    let lines = text(&output.stdout);
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row is JSON"));
    rows.collect()
}

/// Namespaces of labs that this process started.
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
    let has_mptcp = has_mptcp();
    for name in ["anabranch", "tcp", "mptcp"] {
        let row = row(name);
        if name == "mptcp" && !has_mptcp {
            assert_eq!(row["status"], "unsupported");
            continue;
        }
        // A machine that is too busy for links of 8 Mbit/s may report that.
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

#[test]
fn hosts_that_know_nothing_of_the_tunnel_get_more_than_one_link_through_it() {
    unmodified_hosts_get_more_than_one_link("lab-tunnel", "tunnel");
}

#[test]
fn hosts_that_know_nothing_of_multipath_tcp_get_more_than_one_link_through_a_proxy_pair() {
    if has_mptcp() {
        unmodified_hosts_get_more_than_one_link("lab-mptcp-proxy", "mptcp-proxy");
    }
}

/// By a contender of this kind, in the test of this name.
fn unmodified_hosts_get_more_than_one_link(name: &str, kind: &str) {
    let Some(_bed) = Testbed::require(name) else {
        return;
    };
    if !Need::Network.programs(name, &["nft"]) {
        return;
    }
    measured(name, || {
        let folder = tempfile::tempdir().expect("a folder");
        let scenario = format!(
            "{TWO_PATHS}\n[contenders]\nboth = {{ kind = \"{kind}\" }}\n\
             behind = {{ kind = \"{kind}\", paths = \"b\" }}\n"
        );
        fs::write(folder.path().join("two.toml"), scenario).expect("the folder takes a file");
        let words = ["run", "two.toml", "--json", "--runs", "1", "--out", "out"];
        let output = run(folder.path(), &words);
        let (rows, talk) = (rows(&output), text(&output.stderr));
        let row = |name: &str| {
            let row = rows.iter().find(|row| row["contender"] == name);
            row.unwrap_or_else(|| panic!("{name}: {talk}"))
        };
        let goodput = ["both", "behind"].map(|name| {
            let status = row(name)["status"].as_str().unwrap_or_default();
            assert!(matches!(status, "ok" | "invalid"), "{name}: {talk}");
            row(name)["goodput_bps"].as_f64().unwrap_or_default()
        });
        let [both, one] = goodput;
        let told = || format!("{both} over both, {one} over one");
        Some(judge(&[(both > 1.4 * one && one > 4e6, told())]))
    });
    assert!(namespaces_of(std::process::id()).is_empty());
}

/// Two paths, each behind a gateway that translates addresses and forgets its mappings on the way.
const BEHIND_NATS: &str = r#"
format = 1
name = "nats"
stop = "30s"
singles = false
[[node]]
name = "gateway1"
kind = "nat"
[[node]]
name = "gateway2"
kind = "nat"
[[link]]
name = "access1"
ends = ["client", "gateway1"]
forward = { rate = "4Mbit/s", delay = "5ms" }
backward = { like = "forward" }
[[link]]
name = "core1"
ends = ["gateway1", "server"]
[[link]]
name = "access2"
ends = ["client", "gateway2"]
forward = { rate = "4Mbit/s", delay = "10ms" }
backward = { like = "forward" }
[[link]]
name = "core2"
ends = ["gateway2", "server"]
[[path]]
name = "one"
client = "access1"
server = "core1"
[[path]]
name = "two"
client = "access2"
server = "core2"
[[flow]]
kind = "bulk"
bytes = "3MB"
direction = "backward"
[[event]]
at = "1s"
path = "one"
nat-rebind = true
[[event]]
at = "1500ms"
path = "two"
nat-rebind = true
"#;

#[test]
fn a_download_goes_on_over_both_paths_whose_nats_forget_their_mappings() {
    let Some(_bed) = Testbed::require_with("lab-nats", &["nft", "conntrack"]) else {
        return;
    };
    measured("behind NATs", || {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nats.toml"), BEHIND_NATS).unwrap();
        let words = [
            "run",
            "nats.toml",
            "--no-rivals",
            "--json",
            "--runs",
            "1",
            "--out",
            "out",
        ];
        let output = run(folder.path(), &words);
        let rows = rows(&output);
        assert_eq!(rows.len(), 1, "{}", text(&output.stderr));
        let row = &rows[0];
        if row["status"] == "unsupported" {
            // The programs are installed, but the kernel may be unable to translate addresses.
            Need::Network.skip("lab-nats", &row["reason"]);
            return None;
        }
        if row["status"] == "invalid" {
            return Some(Err(row["reason"].to_string()));
        }
        assert_eq!(row["status"], "ok", "{row}");
        assert_eq!(row["bytes"], 3_000_000, "{row}");
        let notes = fs::read_to_string(folder.path().join("out/notes.jsonl")).unwrap();
        let forgot = notes.matches("the NAT forgot its mappings").count();
        assert_eq!(forgot, 2, "{notes}");
        // One path alone has at most 4 Mbit/s, so both must have gone on.
        let goodput = row["goodput_bps"].as_f64().unwrap();
        Some(judge(&[(goodput > 5e6, format!("{goodput} bit/s"))]))
    });
}

/// Runs the smallest calibration scenario, made shorter and with few Mbit/s, so that a busy machine
/// keeps up.
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

/// How often a calibration repeats runs that a busy machine spoilt.
const CALIBRATIONS: usize = 3;

/// Calibrates until no run is left in which links were late, up to the limit. Returns whether
/// enough runs count for a comparison.
fn is_calibrated(folder: &Path, backend: &str, out: &str) -> bool {
    let mut good = 0;
    for _ in 0..CALIBRATIONS {
        let rows = calibrate(folder, backend, out, "4Mbit/s");
        good = rows.iter().filter(|row| row["status"] == "ok").count();
        for row in rows.iter().filter(|row| row["status"] != "ok") {
            // A machine that is too busy for a link of 4 Mbit/s may report that.
            let late = backend == "netns" && row["status"] == "invalid";
            assert!(late, "{row}");
            eprintln!("{out}: repetition {}: {}", row["repetition"], row["reason"]);
        }
        if good == rows.len() {
            break;
        }
    }
    good >= 2
}

/// Fails if two results differ by more than 5 % and by more than chance.
fn agree(folder: &Path, one: &str, other: &str) -> Result<(), String> {
    let output = run(folder, &["compare", one, other, "--json"]);
    let figures = rows(&output);
    assert_eq!(figures.len(), 1, "{}", text(&output.stderr));
    for figure in &figures {
        let number = |key: &str| figure[key].as_f64();
        let ratio = number("ratio").expect("both have the figure");
        let interval = number("low").zip(number("high"));
        let chance = interval.is_some_and(|(low, high)| (low..=high).contains(&1.0));
        if ratio.ln().abs() > 1.05_f64.ln() && !chance {
            return Err(format!("{one} and {other} do not agree: {figure}"));
        }
    }
    Ok(())
}

#[test]
fn simulator_and_kernels_agree_and_so_do_two_runs_in_kernels() {
    let Some(_bed) = Testbed::require("lab-calibration") else {
        return;
    };
    // Other tests run at the same time: what they delay is tried again.
    measured("calibration", || {
        let folder = tempfile::tempdir().unwrap();
        for (backend, out) in [("sim", "sim"), ("netns", "one"), ("netns", "two")] {
            if !is_calibrated(folder.path(), backend, out) {
                let why = format!("{out}: links were late, so that nothing can be compared");
                if Need::Network.is_required() {
                    return Some(Err(why));
                }
                Need::Network.skip("lab-calibration", why);
                return None;
            }
        }
        let kernels = agree(folder.path(), "sim", "one");
        Some(kernels.and_then(|()| agree(folder.path(), "one", "two")))
    });
}

#[test]
fn what_differs_is_told_by_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    calibrate(folder.path(), "sim", "sim", "4Mbit/s");
    calibrate(folder.path(), "sim", "slow", "3Mbit/s");
    let output = run(folder.path(), &["compare", "sim", "slow"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

/// Fails unless the command is refused with exit code 2 and these words.
fn assert_refused(folder: &Path, words: &[&str], expected: &[&str]) {
    let output = run(folder, words);
    let talk = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {talk}");
    for part in expected {
        assert!(talk.contains(part), "{words:?}: {talk}");
    }
}

#[test]
fn what_is_wrong_is_told_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let refused =
        |words: &[&str], expected: &[&str]| assert_refused(folder.path(), words, expected);
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

/// A scenario cannot give two nodes the same address, since the lab assigns addresses. Over
/// existing links, two paths could share theirs.
#[test]
fn addresses_in_a_scenario_and_two_paths_with_the_same_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused =
        |words: &[&str], expected: &[&str]| assert_refused(folder.path(), words, expected);
    let addressed = format!("{TWO_PATHS}\n[[node]]\nname = \"x\"\naddress = \"10.0.0.1\"\n");
    fs::write(folder.path().join("addressed.toml"), addressed).unwrap();
    refused(
        &["run", "addressed.toml"],
        &["addressed.toml:", "no key `address`"],
    );
    fs::write(folder.path().join("two.toml"), TWO_PATHS).unwrap();
    let peer = format!("{}@127.0.0.1:4433", "ab".repeat(32));
    let real = ["run", "two.toml", "--backend", "host", "--peer", &peer];
    refused(
        &[&real[..], &["--path", "a=lo", "--path", "b=lo"]].concat(),
        &["`a` and `b` both lead from 127.0.0.1"],
    );
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
    for line in list.lines() {
        assert!(
            line.chars().count() <= 100,
            "too wide for a terminal: {line}"
        );
    }
    let told = list.lines().find(|line| line.contains("nitk-table1"));
    assert!(told.is_some_and(|line| line.starts_with("nitk ")), "{list}");
    fs::write(folder.path().join("two.toml"), TWO_PATHS).unwrap();
    let output = run(
        folder.path(),
        &["run", "two.toml", "--backend", "sim", "--json"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(rows(&output)[0]["backend"], "sim");
    assert!(folder.path().join("lab-results/two/runs.csv").exists());
}

#[test]
fn a_single_run_is_counted_as_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("two.toml"), TWO_PATHS).unwrap();
    let output = run(folder.path(), &["expand", "two.toml"]);
    let talk = text(&output.stderr);
    assert!(talk.lines().any(|line| line == "1 run"), "{talk}");
}

#[test]
fn a_report_of_runs_that_are_all_alike_says_nothing_but_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    // Without randomness, every interval has length 0.
    let scenario = format!("{TWO_PATHS}[repeat]\nruns = 3\n");
    fs::write(folder.path().join("two.toml"), scenario).unwrap();
    let made = run(folder.path(), &["run", "two.toml", "--backend", "sim"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let output = run(folder.path(), &["report", "lab-results/two"]);
    let talk = text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert!(!talk.contains("WARN") && !talk.contains('\u{1b}'), "{talk}");
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
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

/// A run of two seconds.
fn write_short(folder: &Path) {
    let scenario = TWO_PATHS.replace("bytes = \"1500kB\"", "duration = \"2s\"");
    fs::write(folder.join("short.toml"), scenario).expect("the folder can be written");
}

/// Waits for a command that does everything it was asked to. A machine that is too busy for links
/// of 8 Mbit/s may report that, with exit code 1.
fn assert_done(mut command: Command) {
    let output = command.output().expect("the program starts");
    let talk = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{talk}");
}

/// Fails unless all agents of a lab end, which they do when the pipe to it closes.
fn assert_no_agents_of(pid: u32) {
    let program = format!("/proc/{pid}/exe");
    wait_for("its agents end", || !is_running(&program));
}

#[test]
fn what_a_killed_laboratory_leaves_the_next_start_removes() {
    let Some(_bed) = Testbed::require_with("lab-kill", &STAGED) else {
        return;
    };
    let (stage, folder) = (Stage::open(), tempfile::tempdir().unwrap());
    write_short(folder.path());
    let start = |out: &str| {
        let words = ["run", "short.toml", "--runs", "1", "--out", out];
        lab_on(&stage, folder.path(), &words)
    };
    let before = stage.snapshot();
    let since = Instant::now();
    assert_done(start("whole"));
    let whole = since.elapsed();
    assert_eq!(stage.snapshot(), before);
    let (mut noise, mut killed, mut left) = (Noise::new(9), 0, 0);
    for tenth in 0..10_u32 {
        // A random moment within each tenth of a run.
        let moment = whole * (100 * tenth + noise.below(100) as u32) / 1000;
        let mut child = start(&format!("killed-{tenth}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(moment);
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().signal() == Some(9));
        // A command that the lab had just started may still make a namespace.
        wait_for("commands under way end", || stage.is_idle());
        left += u32::from(stage.snapshot() != before);
        // This run already has its result, so starting it again only removes what was left.
        assert_done(start("whole"));
        assert_eq!(stage.snapshot(), before, "killed after {moment:?}");
        assert_no_agents_of(child.id());
    }
    assert!(stage.is_idle());
    assert!(
        killed >= 5 && left > 0,
        "{killed} were killed under way, {left} left something"
    );
}

#[test]
fn a_full_disk_is_told_and_everything_is_removed() {
    let Some(_bed) = Testbed::require_with("lab-full", &STAGED) else {
        return;
    };
    let (stage, folder) = (Stage::open(), tempfile::tempdir().unwrap());
    write_short(folder.path());
    fs::create_dir(folder.path().join("out")).unwrap();
    // Nobody else sees this file system, and it disappears with the stage.
    let small = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", "out"];
    let mut mount = stage.command(folder.path(), "mount");
    assert!(mount.args(small).status().unwrap().success());
    let before = stage.snapshot();
    let words = ["run", "short.toml", "--runs", "1", "--out", "out"];
    let child = lab_on(&stage, folder.path(), &words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let namespace = format!("ab-{pid}-");
    wait_for("its namespaces", || stage.snapshot().contains(&namespace));
    let shell = |script: &str| {
        let mut command = stage.command(folder.path(), "sh");
        let output = command.args(["-c", script]).output();
        output.unwrap().status.success()
    };
    assert!(!shell("cat /dev/zero > out/filler"), "no end of room");
    let output = child.wait_with_output().unwrap();
    let talk = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{talk}");
    for words in ["out/parts/", "No space left", "make room"] {
        assert!(talk.contains(words), "`{words}` is missing: {talk}");
    }
    assert_eq!(stage.snapshot(), before);
    assert_no_agents_of(pid);
    assert!(shell("rm out/filler"));
    assert_done(lab_on(&stage, folder.path(), &words));
    assert!(shell("test -s out/runs.csv"), "the rest comes with room");
}

/// Whether a process is running whose command line begins with this word.
fn is_running(word: &str) -> bool {
    let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
    let mut commands = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands.any(|command| command.split(|byte| *byte == 0).next() == Some(word.as_bytes()))
}
