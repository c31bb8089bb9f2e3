//! The program as a user sees it: a server and clients in processes of their own, over loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;
#[path = "common/listening.rs"]
mod listening;
#[path = "common/loopback.rs"]
mod loopback;

use files::{names, noise};
use loopback::{Server, client, run, stderr};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_file_is_fetched_whole_and_verified() {
    let server = Server::start(&[]);
    let data = server.offer("a file.bin", 3_000_000);
    let here = tempfile::tempdir().unwrap();
    let url = format!("{}/a file.bin", server.url);
    let output = run(here.path(), &["get", &url, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(here.path().join("a file.bin")).unwrap(), data);
    assert_eq!(names(here.path()), ["a file.bin"], "nothing else is left");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bytes"], 3_000_000);
    assert_eq!(report["verified"], "whole");
}

#[test]
fn an_empty_file_is_a_file_too() {
    let server = Server::start(&["--writable"]);
    server.offer("empty", 0);
    let here = tempfile::tempdir().unwrap();
    let output = run(here.path(), &["get", &format!("{}/empty", server.url)]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(here.path().join("empty")).unwrap(), b"");
    let output = run(
        here.path(),
        &["put", "empty", &format!("{}/back", server.url)],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(server.root("back")).unwrap(), b"");
}

#[test]
fn a_broken_download_goes_on_where_it_stopped() {
    let server = Server::start(&[]);
    let data = server.offer("file", 2_000_000);
    let here = tempfile::tempdir().unwrap();
    let url = format!("{}/file", server.url);
    // An interrupted download leaves a part and the tag of the server's file.
    let output = run(here.path(), &["get", &url, "-o", "whole", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::write(here.path().join("file.part"), &data[..1_500_000]).unwrap();
    let tag = etag(&server.root("file"));
    let note = serde_json::json!({ "etag": tag }).to_string();
    fs::write(here.path().join("file.part.etag"), note).unwrap();
    let output = run(here.path(), &["get", &url, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["resumed_from"], 1_499_999);
    assert_eq!(fs::read(here.path().join("file")).unwrap(), data);
    assert_eq!(names(here.path()), ["file", "whole"]);
}

fn etag(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).unwrap();
    let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    format!("\"{:x}-{:x}-{modified:x}\"", metadata.ino(), metadata.len())
}

#[test]
fn a_part_with_wrong_bytes_is_found_out_and_thrown_away() {
    let server = Server::start(&[]);
    server.offer("file", 1_000_000);
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file.part"), vec![0; 500_000]).unwrap();
    let note = serde_json::json!({ "etag": etag(&server.root("file")) }).to_string();
    fs::write(here.path().join("file.part.etag"), note).unwrap();
    let output = run(here.path(), &["get", &format!("{}/file", server.url)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("SHA-256"), "{}", stderr(&output));
    assert!(names(here.path()).is_empty(), "{:?}", names(here.path()));
}

#[test]
fn a_part_of_an_older_file_is_not_continued() {
    let server = Server::start(&[]);
    let data = server.offer("file", 1_000_000);
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file.part"), vec![0; 500_000]).unwrap();
    fs::write(here.path().join("file.part.etag"), r#"{"etag":"\"old\""}"#).unwrap();
    let output = run(here.path(), &["get", &format!("{}/file", server.url)]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(here.path().join("file")).unwrap(), data);
}

#[test]
fn a_file_is_sent_over_two_paths() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    let data = noise(30_000_000);
    fs::write(here.path().join("file"), &data).unwrap();
    let url = format!("{}/sent", server.url);
    let paths = ["--path", "127.0.0.1,paths=2", "--scheduler", "round-robin"];
    let output = run(
        here.path(),
        &[&["put", "file", &url, "--json"][..], &paths].concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["paths"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(fs::read(server.root("sent")).unwrap(), data);
    assert_eq!(names(&server.root("")), ["sent"], "no part is left");
    let again = run(here.path(), &["put", "file", &url, "--no-clobber"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("exists"), "{}", stderr(&again));
}

#[test]
fn a_server_that_is_not_writable_takes_nothing() {
    let server = Server::start(&[]);
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    let output = run(
        here.path(),
        &["put", "file", &format!("{}/file", server.url)],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("--writable"),
        "{}",
        stderr(&output)
    );
    assert!(names(&server.root("")).is_empty());
}

#[test]
fn what_cannot_be_fetched_is_explained() {
    let server = Server::start(&[]);
    server.offer("file", 10);
    let here = tempfile::tempdir().unwrap();
    let get = |name: &str, options: &[&str]| {
        let url = format!("{}/{name}", server.url);
        run(here.path(), &[&["get", &url][..], options].concat())
    };
    let missing = get("nothing", &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("404"), "{}", stderr(&missing));
    let outside = get("%2e%2e/identity", &[]);
    assert_eq!(outside.status.code(), Some(1));
    assert!(stderr(&outside).contains("403"), "{}", stderr(&outside));
    let typo = get("file", &["--scheduler", "min-rrt"]);
    assert_eq!(typo.status.code(), Some(2));
    assert!(stderr(&typo).contains("min-rtt"), "{}", stderr(&typo));
    let nowhere = get("file", &["-o", "missing/directory/file"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let interface = get("file", &["--path", "nosuch0", "--connect-timeout", "2"]);
    assert_eq!(interface.status.code(), Some(2));
    assert!(
        stderr(&interface).contains("nosuch0"),
        "{}",
        stderr(&interface)
    );
    assert!(names(here.path()).is_empty(), "{:?}", names(here.path()));
}

#[test]
fn another_key_is_not_believed() {
    let server = Server::start(&[]);
    server.offer("file", 10);
    let here = tempfile::tempdir().unwrap();
    let (_, host) = server.url.split_once('@').unwrap();
    let url = format!("anabranch://{}@{host}/file", "0".repeat(64));
    let output = run(here.path(), &["get", &url]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("key"), "{}", stderr(&output));
    assert!(names(here.path()).is_empty());
}

#[test]
fn a_port_without_server_is_told_in_time() {
    let here = tempfile::tempdir().unwrap();
    let url = format!("anabranch://{}@127.0.0.1:9/file", "0".repeat(64));
    let started = Instant::now();
    let output = run(here.path(), &["get", &url, "--connect-timeout", "1"]);
    assert_eq!(output.status.code(), Some(1));
    // The default of `--connect-timeout`.
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(stderr(&output).contains("serve"), "{}", stderr(&output));
}

#[test]
fn a_directory_is_listed() {
    let server = Server::start(&[]);
    server.offer("file", 10);
    fs::create_dir(server.root("dir")).unwrap();
    let here = tempfile::tempdir().unwrap();
    let output = run(here.path(), &["get", &format!("{}/", server.url)]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("dir/") && text.contains("10  file"), "{text}");
}

#[test]
fn an_upload_goes_on_after_the_server_was_killed() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    let data = noise(20_000_000);
    fs::write(here.path().join("file"), &data).unwrap();
    let (_relay, url) = server.behind_a_dying_link(8_000_000);
    let url = format!("{url}/sent");
    let mut put = client(here.path(), &["put", "file", &url, "--quiet"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let part = wait_for_part(&server.root(""), 2_000_000);
    let directory = server.kill();
    // The client would notice only by its idle timeout.
    put.kill().unwrap();
    put.wait().unwrap();
    assert!(fs::metadata(&part).unwrap().len() >= 2_000_000);
    assert!(!directory.path().join("root/sent").exists(), "no half file");
    let server = Server::start_in(directory, &["--writable"]);
    let output = run(
        here.path(),
        &["put", "file", &format!("{}/sent", server.url), "--json"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        report["resumed_from"].as_u64().unwrap() >= 1_999_999,
        "{report}"
    );
    assert_eq!(fs::read(server.root("sent")).unwrap(), data);
    assert_eq!(names(&server.root("")), ["sent"]);
}

#[test]
fn an_upload_whose_connection_died_unseen_goes_on_at_once() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    let data = noise(20_000_000);
    fs::write(here.path().join("file"), &data).unwrap();
    let (_relay, url) = server.behind_a_dying_link(8_000_000);
    let mut put = client(here.path(), &["put", "file", &format!("{url}/sent")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_part(&server.root(""), 2_000_000);
    put.kill().unwrap();
    put.wait().unwrap();
    // The server keeps the dead connection for half a minute.
    let url = format!("{}/sent", server.url);
    let output = run(here.path(), &["put", "file", &url, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["resumed_from"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(fs::read(server.root("sent")).unwrap(), data);
    assert_eq!(names(&server.root("")), ["sent"]);
}

#[test]
fn a_file_that_the_server_has_is_not_sent_again() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    let data = noise(3_000_000);
    let file = here.path().join("file");
    fs::write(&file, &data).unwrap();
    let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let open = fs::File::options().write(true).open(&file).unwrap();
    open.set_modified(then).unwrap();
    let url = format!("{}/sent", server.url);
    let put = || {
        let output = run(here.path(), &["put", "file", &url, "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["verified"], "whole");
        let unchanged = report["unchanged"].as_bool().unwrap();
        let there = if unchanged { data.len() } else { 0 };
        assert_eq!(report["resumed_from"], there, "as `get` tells it");
        unchanged
    };
    let modified = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    assert!(!put());
    assert_eq!(modified(server.root("sent")), then, "it keeps its time");
    assert!(put(), "nothing is left to send");
    // A file that somebody else put there is compared too, and a different one of this length is
    // sent.
    fs::write(server.root("sent"), &data).unwrap();
    assert!(put());
    fs::write(server.root("sent"), vec![0; 3_000_000]).unwrap();
    assert!(!put());
    assert_eq!(fs::read(server.root("sent")).unwrap(), data);
    let output = run(here.path(), &["get", &url, "-o", "back"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(modified(here.path().join("back")), then);
}

#[test]
fn what_keeps_an_upload_out_is_told_apart() {
    let server = Server::start(&["--writable"]);
    fs::create_dir(server.root("dir")).unwrap();
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    let words = |name: &str| {
        let url = format!("{}/{name}", server.url);
        let output = run(here.path(), &["put", "file", &url]);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let missing = words("missing/file");
    assert!(missing.contains("no such directory"), "{missing}");
    let taken = words("dir");
    assert!(taken.contains("a directory has this name"), "{taken}");
}

/// Waits until an unfinished file in `directory` has this length.
fn wait_for_part(directory: &Path, length: u64) -> PathBuf {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        for name in names(directory) {
            let path = directory.join(&name);
            let there = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            if path.extension().is_some_and(|end| end == "part") && there >= length {
                return path;
            }
        }
        assert!(Instant::now() < deadline, "nothing was transferred");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_interrupted_download_tells_how_to_go_on() {
    let server = Server::start(&[]);
    let data = server.offer("file", 20_000_000);
    let here = tempfile::tempdir().unwrap();
    let (_relay, dying) = server.behind_a_dying_link(8_000_000);
    let get = client(here.path(), &["get", &format!("{dying}/file")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _part = wait_for_part(here.path(), 1_000_000);
    let id = nix::unistd::Pid::from_raw(get.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = ending::ended(get);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("same command"),
        "{}",
        stderr(&output)
    );
    assert_eq!(names(here.path()), ["file.part", "file.part.etag"]);
    let url = format!("{}/file", server.url);
    let output = run(here.path(), &["get", &url, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["resumed_from"].as_u64().unwrap() > 0);
    assert_eq!(fs::read(here.path().join("file")).unwrap(), data);
}

#[test]
fn lists_are_data_and_a_closed_pipe_is_no_error() {
    let here = tempfile::tempdir().unwrap();
    for command in ["schedulers", "congestion"] {
        let output = run(here.path(), &[command, "--json"]);
        let entries: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(entries.as_array().unwrap().len() > 2, "{command}");
        assert!(output.stderr.is_empty());
    }
    let mut man = client(here.path(), &["man"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(man.stdout.take());
    let mut words = String::new();
    man.stderr
        .take()
        .unwrap()
        .read_to_string(&mut words)
        .unwrap();
    assert!(man.wait().unwrap().success());
    assert!(words.is_empty(), "{words}");
}

#[test]
fn qlog_and_the_key_log_are_written_where_they_are_wanted() {
    let server = Server::start(&[]);
    server.offer("file", 100_000);
    let here = tempfile::tempdir().unwrap();
    let url = format!("{}/file", server.url);
    let mut get = client(here.path(), &["get", &url, "--qlog", "logs"]);
    let output = ending::output(get.env("SSLKEYLOGFILE", here.path().join("keys")));
    assert!(output.status.success(), "{}", stderr(&output));
    let keys = fs::read_to_string(here.path().join("keys")).unwrap();
    assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0"));
    let logs = names(&here.path().join("logs"));
    assert_eq!(logs.len(), 1);
    let text = fs::read_to_string(here.path().join("logs").join(&logs[0])).unwrap();
    assert!(text.contains("quic:packet_received") && text.contains("quic:connection_closed"));
}

#[test]
fn ping_measures_the_path() {
    let server = Server::start(&[]);
    let here = tempfile::tempdir().unwrap();
    let options = ["--count", "3", "--interval", "0.05", "--json"];
    let output = run(
        here.path(),
        &[&["ping", &server.url][..], &options].concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["paths"][0]["sent"], 3);
    assert!(report["paths"][0]["rtt_min_ms"].as_f64().unwrap() > 0.0);
    assert!(report["one_way_delay_difference_ms"].is_null());
    let reason = report["one_way_delay_reason"].as_str().unwrap();
    assert!(reason.contains("one path"), "{reason}");
}
