//! `get` and the other commands do what users of curl, rsync and iperf3 are used to.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;
#[path = "common/listening.rs"]
mod listening;
#[path = "common/loopback.rs"]
mod loopback;

use anabranch_testbed::resumed;
use ending::ended;
use files::{names, noise};
use loopback::{Server, client, run, stderr};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

fn get(here: &Path, server: &Server, arguments: &[&str]) -> Output {
    let names = arguments.iter().map(|one| match one.strip_prefix('/') {
        Some(name) => format!("{}/{name}", server.url),
        None => (*one).to_owned(),
    });
    let all: Vec<String> = ["get".to_owned()].into_iter().chain(names).collect();
    run(here, &all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let values = text.lines().map(serde_json::from_str);
    values.collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_directory_is_listed_and_never_saved_as_a_file() {
    let server = Server::start(&[]);
    fs::create_dir(server.root("sub")).unwrap();
    server.offer("sub/inside", 10);
    let here = tempfile::tempdir().unwrap();
    let listed = get(here.path(), &server, &["/sub"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("inside"), "{text}");
    assert!(
        stderr(&listed).contains("is a directory"),
        "{}",
        stderr(&listed)
    );
    let named = get(here.path(), &server, &["/sub", "-o", "file"]);
    assert_eq!(code(&named), Some(2), "{}", stderr(&named));
    assert!(stderr(&named).contains("/sub/"), "{}", stderr(&named));
    let out = get(here.path(), &server, &["/sub", "-o", "-"]);
    assert_eq!(code(&out), Some(2), "{}", stderr(&out));
    assert!(out.stdout.is_empty());
    assert!(names(here.path()).is_empty(), "{:?}", names(here.path()));
}

#[test]
fn a_dash_is_stdout() {
    let server = Server::start(&[]);
    let data = server.offer("file", 700_000);
    let here = tempfile::tempdir().unwrap();
    let output = get(here.path(), &server, &["/file", "/file", "-o", "-"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout == [data.clone(), data].concat());
    assert!(names(here.path()).is_empty());
    let json = get(here.path(), &server, &["/file", "-o", "-", "--json"]);
    assert_eq!(code(&json), Some(2), "both want stdout");
}

#[test]
fn a_file_that_is_here_is_replaced_only_by_force() {
    let server = Server::start(&[]);
    let data = server.offer("file", 300_000);
    let here = tempfile::tempdir().unwrap();
    let target = here.path().join("file");
    fs::write(&target, "mine").unwrap();
    let refused = get(here.path(), &server, &["/file"]);
    assert_eq!(code(&refused), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    assert_eq!(names(here.path()), ["file"]);
    let forced = get(here.path(), &server, &["/file", "--force"]);
    assert!(forced.status.success(), "{}", stderr(&forced));
    assert!(fs::read(&target).unwrap() == data);
    let again = get(here.path(), &server, &["/file", "--json"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(lines(&again)[0]["unchanged"], true);
    // A file of the same length is not the same file.
    let mut other = data.clone();
    other[1000] ^= 1;
    fs::write(&target, &other).unwrap();
    let refused = get(here.path(), &server, &["/file"]);
    assert_eq!(code(&refused), Some(2), "{}", stderr(&refused));
    assert!(fs::read(&target).unwrap() == other);
}

#[test]
fn several_files_come_over_one_connection_and_one_that_fails_keeps_none() {
    let server = Server::start(&[]);
    let (a, b) = (server.offer("a", 100_000), server.offer("b", 200_000));
    let here = tempfile::tempdir().unwrap();
    let arguments = ["/a", "/missing", "/b", "-o", "in/", "--json"];
    let output = get(here.path(), &server, &arguments);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("/missing: there is no such file"),
        "{}",
        stderr(&output)
    );
    assert!(fs::read(here.path().join("in/a")).unwrap() == a);
    assert!(fs::read(here.path().join("in/b")).unwrap() == b);
    assert_eq!(names(&here.path().join("in")), ["a", "b"]);
    let lines = lines(&output);
    let summary = lines.last().unwrap();
    assert_eq!(
        (lines.len(), &summary["files"], &summary["failed"]),
        (3, &2.into(), &1.into())
    );
    assert_eq!(summary["bytes"], 300_000);
}

#[test]
fn a_directory_is_fetched_with_all_that_is_in_it() {
    let server = Server::start(&[]);
    fs::create_dir_all(server.root("tree/deep/deeper")).unwrap();
    fs::create_dir(server.root("tree/empty")).unwrap();
    for at in 0..30 {
        server.offer(&format!("tree/deep/small {at}%.bin"), 1000 + at);
    }
    let big = server.offer("tree/deep/deeper/big", 3_000_000);
    server.offer("beside", 10);
    let here = tempfile::tempdir().unwrap();
    let output = get(here.path(), &server, &["-r", "/tree", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let got = here.path().join("tree");
    assert_eq!(names(here.path()), ["tree"]);
    assert_eq!(names(&got), ["deep", "empty"]);
    assert_eq!(names(&got.join("deep")), names(&server.root("tree/deep")));
    assert!(fs::read(got.join("deep/deeper/big")).unwrap() == big);
    let small = fs::read(got.join("deep/small 7%.bin")).unwrap();
    assert!(small == noise(1007));
    // The second time there is nothing to do, and a file that was changed here is not replaced.
    fs::write(got.join("deep/small 7%.bin"), "mine").unwrap();
    let again = get(here.path(), &server, &["-r", "/tree/", "--json"]);
    assert_eq!(code(&again), Some(1), "{}", stderr(&again));
    let lines = lines(&again);
    let summary = lines.last().unwrap();
    assert_eq!(
        (&summary["unchanged"], &summary["failed"]),
        (&30.into(), &1.into())
    );
    assert_eq!(fs::read(got.join("deep/small 7%.bin")).unwrap(), b"mine");
    // Nothing is written behind a link.
    fs::remove_dir_all(got.join("deep")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), got.join("deep")).unwrap();
    let linked = get(here.path(), &server, &["-r", "/tree"]);
    assert_eq!(code(&linked), Some(1), "{}", stderr(&linked));
    assert!(names(outside.path()).is_empty());
}

#[test]
fn two_files_for_one_name_are_refused_before_a_server_is_asked() {
    let here = tempfile::tempdir().unwrap();
    let nobody = "anabranch://127.0.0.1:9";
    for (one, other) in [("a", "d/a"), ("a", "a.part"), ("a.part.etag", "a")] {
        let urls = [one, other].map(|name| format!("{nobody}/{name}"));
        let output = run(here.path(), &["get", &urls[0], &urls[1]]);
        assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    }
    assert!(names(here.path()).is_empty());
}

#[test]
fn an_interruption_is_heard_while_a_server_does_not_answer() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    for command in [&["get"][..], &["put", "file"], &["ping"], &["speed"]] {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        silent
            .set_read_timeout(Some(Duration::from_secs(120)))
            .unwrap();
        let url = format!("anabranch://{}/file", silent.local_addr().unwrap());
        let mut command = client(here.path(), &[command, &[&url]].concat());
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        resumed(|| silent.recv(&mut [0; 2000])).unwrap();
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        let output = ended(child);
        assert_eq!(code(&output), Some(1), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("interrupted"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn ping_tells_that_its_server_left() {
    let server = Server::start(&[]);
    let here = tempfile::tempdir().unwrap();
    let often = ["--count", "1000000", "--interval", "0.01"];
    let mut command = client(here.path(), &[&["ping", &server.url][..], &often].concat());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().unwrap();
    // The command may be at any step by then, and must leave in time at each.
    std::thread::sleep(Duration::from_millis(500));
    kill(
        Pid::from_raw(server.process.id().cast_signed()),
        Signal::SIGINT,
    )
    .unwrap();
    let output = ended(child);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("stopped"), "{}", stderr(&output));
}

#[test]
fn nothing_is_made_here_for_a_server_that_does_not_answer() {
    let here = tempfile::tempdir().unwrap();
    let urls = ["a", "b"].map(|name| format!("anabranch://127.0.0.1:9/{name}"));
    let quick = ["--connect-timeout", "0.2", "-o", "new/"];
    for urls in [&[&*urls[0]][..], &[&*urls[0], &*urls[1]]] {
        let output = run(here.path(), &[&["get"], urls, &quick].concat());
        assert_eq!(code(&output), Some(1), "{}", stderr(&output));
        assert!(names(here.path()).is_empty(), "{:?}", names(here.path()));
    }
}

#[test]
fn a_directory_that_cannot_be_listed_keeps_no_other() {
    let server = Server::start(&[]);
    fs::create_dir(server.root("tree")).unwrap();
    server.offer("tree/file", 1000);
    let here = tempfile::tempdir().unwrap();
    let output = get(here.path(), &server, &["-r", "/missing/", "/tree"]);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("/missing/"), "{}", stderr(&output));
    assert_eq!(names(&here.path().join("tree")), ["file"]);
}

#[test]
fn what_each_server_lacks_is_told() {
    let (one, other) = (Server::start(&[]), Server::start(&[]));
    let here = tempfile::tempdir().unwrap();
    let urls = [format!("{}/x", one.url), format!("{}/y", other.url)];
    let output = run(here.path(), &["get", &urls[0], &urls[1]]);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    for name in ["/x: there is no", "/y: there is no"] {
        assert!(stderr(&output).contains(name), "{}", stderr(&output));
    }
}

#[test]
fn a_rate_is_kept() {
    let server = Server::start(&["--writable"]);
    server.offer("file", 3_000_000);
    let here = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let output = get(here.path(), &server, &["/file", "--limit-rate", "1M"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        started.elapsed() > Duration::from_millis(2900),
        "{:?}",
        started.elapsed()
    );
    let started = Instant::now();
    let url = format!("{}/back", server.url);
    let output = run(here.path(), &["put", "file", &url, "--limit-rate", "1M"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        started.elapsed() > Duration::from_millis(2900),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn an_interruption_keeps_what_is_there_of_every_file() {
    let server = Server::start(&[]);
    fs::create_dir(server.root("tree")).unwrap();
    let data = [
        server.offer("tree/a", 4_000_000),
        server.offer("tree/b", 4_000_001),
    ];
    let here = tempfile::tempdir().unwrap();
    let url = format!("{}/tree", server.url);
    let mut command = client(here.path(), &["get", "-r", &url, "--limit-rate", "1M"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let parts = || ["a", "b"].map(|name| here.path().join(format!("tree/{name}.part")));
    let there = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let started = Instant::now();
    while !parts().iter().all(|path| there(path)) {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "both are under way"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // As `timeout` does: first the process, then its group.
    for _ in 0..2 {
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = ended(child);
    assert_eq!(code(&interrupted), Some(1));
    let said = stderr(&interrupted);
    assert!(!said.contains("at once"), "{said}");
    assert!(parts().iter().all(|path| there(path)));
    let output = get(here.path(), &server, &["-r", "/tree", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for (name, data) in ["a", "b"].iter().zip(data) {
        assert!(fs::read(here.path().join("tree").join(name)).unwrap() == data);
    }
    assert!(
        lines(&output)[0]["resumed_from"].as_u64() > Some(0),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_speed_is_measured_both_ways_where_the_server_allows_it() {
    let server = Server::start(&["--speed"]);
    let here = tempfile::tempdir().unwrap();
    let url = format!("{}/", server.url);
    let output = run(here.path(), &["speed", &url, "--time", "1", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = &lines(&output)[0];
    for direction in ["down", "up"] {
        let bytes = report[direction]["bytes"].as_u64().unwrap();
        let seconds = report[direction]["seconds"].as_f64().unwrap();
        assert!(bytes > 0 && seconds >= 0.2, "{direction}: {report}");
        assert_eq!(report[direction]["paths"].as_array().unwrap().len(), 1);
    }
    let down = run(here.path(), &["speed", &url, "--time", "1", "--down"]);
    let text = String::from_utf8_lossy(&down.stdout).into_owned();
    assert!(
        text.starts_with("down: ") && !text.contains("up: "),
        "{text}"
    );
    let refusing = Server::start(&[]);
    let output = run(here.path(), &["speed", &refusing.url]);
    assert_eq!(code(&output), Some(1));
    assert!(stderr(&output).contains("--speed"), "{}", stderr(&output));
}

#[test]
fn the_speed_of_a_server_that_is_gone_is_not_told() {
    let mut server = Server::start(&["--speed"]);
    let here = tempfile::tempdir().unwrap();
    let mut command = client(here.path(), &["speed", &server.url, "--time", "60"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("measuring") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    server.process.kill().unwrap();
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        rest
    });
    assert_eq!(code(&ended(child)), Some(1));
    let rest = rest.join().unwrap();
    assert!(rest.contains("nothing came from the server"), "{rest}");
}

#[test]
fn a_clients_fingerprint_is_known_before_any_server_is_asked() {
    let here = tempfile::tempdir().unwrap();
    let printed = run(here.path(), &["key", "--identity", "me"]);
    assert!(printed.status.success(), "{}", stderr(&printed));
    let fingerprint = String::from_utf8(printed.stdout).unwrap().trim().to_owned();
    let server = Server::start(&["--client-pin", &fingerprint]);
    server.offer("file", 1000);
    let known = get(here.path(), &server, &["/file", "--identity", "me"]);
    assert!(known.status.success(), "{}", stderr(&known));
    let stranger = get(
        here.path(),
        &server,
        &["/file", "--force", "--identity", "other"],
    );
    assert_eq!(code(&stranger), Some(1));
    let json = run(here.path(), &["key", "--identity", "me", "--json"]);
    assert_eq!(lines(&json)[0]["fingerprint"], fingerprint);
}
