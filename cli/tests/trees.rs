//! Transfers of several files and whole directories to a server and back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/files.rs"]
mod files;
#[path = "common/listening.rs"]
mod listening;
#[path = "common/loopback.rs"]
mod loopback;

use ending::ended;
use files::{names, noise};
use loopback::{Server, client, run, stderr};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Runs `put` in a directory; arguments that begin with a slash are on the server.
fn put(here: &Path, server: &Server, arguments: &[&str]) -> Output {
    let arguments = arguments.iter().map(|one| match one.strip_prefix('/') {
        Some(name) => format!("{}/{name}", server.url),
        None => (*one).to_owned(),
    });
    let all: Vec<String> = ["put".to_owned()].into_iter().chain(arguments).collect();
    run(here, &all.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn assert_code(output: &Output, code: i32, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no `{word}` in: {said}");
    }
}

fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Everything in a directory and below: files with content and time, directories with `None`.
fn tree(directory: &Path) -> BTreeMap<String, Option<(Vec<u8>, SystemTime)>> {
    let mut found = BTreeMap::new();
    for name in names(directory) {
        let path = directory.join(&name);
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            found.extend(
                tree(&path)
                    .into_iter()
                    .map(|(inner, what)| (format!("{name}/{inner}"), what)),
            );
            found.insert(name, None);
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(name, Some((content, metadata.modified().unwrap())));
        }
    }
    found
}

/// Makes a directory with some of everything.
fn grow(at: &Path) {
    for directory in ["", "empty", "a/b/c", "with space & signs?#%41"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    let files = [
        ("nothing", 0),
        ("a/one", 1),
        ("a/b/some", 10_000),
        ("a/b/c/more", 3_000_000),
        ("with space & signs?#%41/\u{e9}t\u{e9} %2f", 500),
    ];
    for (name, length) in files {
        write(&at.join(name), length);
    }
}

/// Writes a file with a modification time in whole seconds, which HTTP can express.
fn write(path: &Path, length: usize) {
    fs::write(path, noise(length)).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    let second = Duration::from_secs(1_000_000_000 + length as u64);
    file.set_modified(SystemTime::UNIX_EPOCH + second).unwrap();
}

#[test]
fn a_directory_that_is_sent_and_fetched_is_the_same() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    let there = here.path().join("tree");
    grow(&there);
    let sent = put(here.path(), &server, &["-r", "tree", "/deep/in/", "--json"]);
    assert_code(&sent, 0, &[]);
    assert_eq!(last_line(&sent)["files"], 5);
    assert!(tree(&server.root("deep/in/tree")) == tree(&there));
    let back = tempfile::tempdir().unwrap();
    let url = format!("{}/deep/in/tree", server.url);
    let fetched = run(back.path(), &["get", "-r", &url]);
    assert_code(&fetched, 0, &[]);
    assert!(tree(&back.path().join("tree")) == tree(&there));
    // Again, with other spellings of the same.
    for arguments in [
        ["-r", "tree/", "/deep/in/", "--json"],
        ["-r", "tree", "/deep/in/tree", "--json"],
        ["-r", "tree/a/..", "/deep/in/tree/", "--json"],
    ] {
        let again = put(here.path(), &server, &arguments);
        assert_code(&again, 0, &[]);
        assert_eq!(last_line(&again)["unchanged"], 5, "{arguments:?}");
        assert_eq!(last_line(&again)["bytes"], 0);
    }
    assert_eq!(names(&server.root("")), ["deep"]);
    assert_eq!(names(&server.root("deep/in")), ["tree"]);
}

#[test]
fn several_files_go_into_a_directory_and_one_that_fails_keeps_none() {
    let server = Server::start(&["--writable"]);
    fs::create_dir_all(server.root("d/taken")).unwrap();
    let here = tempfile::tempdir().unwrap();
    for name in ["a", "taken", "b"] {
        fs::write(here.path().join(name), name).unwrap();
    }
    let sent = put(here.path(), &server, &["a", "taken", "b", "/d/", "--json"]);
    assert_code(
        &sent,
        1,
        &["taken: ", "a directory has this name", "1 file of 3"],
    );
    let summary = last_line(&sent);
    assert_eq!(
        (&summary["files"], &summary["failed"]),
        (&2.into(), &1.into())
    );
    assert_eq!(names(&server.root("d")), ["a", "b", "taken"]);
    // Without -r no directory is made.
    let refused = put(here.path(), &server, &["a", "b", "/new/"]);
    assert_code(&refused, 1, &["no such directory", "put -r"]);
    assert_eq!(names(&server.root("")), ["d"]);
    let made = put(here.path(), &server, &["-r", "a", "b", "/new/"]);
    assert_code(&made, 0, &[]);
    assert_eq!(names(&server.root("new")), ["a", "b"]);
}

#[test]
fn what_has_no_place_on_the_server_is_told_and_keeps_no_other() {
    let server = Server::start(&["--writable"]);
    fs::create_dir(server.root("tree")).unwrap();
    fs::write(server.root("tree/file"), "in the way").unwrap();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), server.root("tree/out")).unwrap();
    let here = tempfile::tempdir().unwrap();
    for directory in ["tree/file", "tree/good"] {
        fs::create_dir_all(here.path().join(directory)).unwrap();
        fs::write(here.path().join(directory).join("x"), "x").unwrap();
    }
    symlink("good", here.path().join("tree/link")).unwrap();
    let sent = put(here.path(), &server, &["-r", "tree", "/"]);
    let words = [
        "/tree/file/: something else",
        "tree/link: not sent",
        "1 file of 2",
    ];
    assert_code(&sent, 1, &words);
    assert_eq!(fs::read(server.root("tree/good/x")).unwrap(), b"x");
    assert_eq!(fs::read(server.root("tree/file")).unwrap(), b"in the way");
    // A link that leads out of the served directory is never followed.
    fs::create_dir_all(here.path().join("out/in")).unwrap();
    let refused = put(here.path(), &server, &["-r", "out", "/tree/"]);
    assert_code(&refused, 1, &["403"]);
    assert!(names(outside.path()).is_empty());
}

#[test]
fn a_server_that_takes_nothing_makes_nothing() {
    let server = Server::start(&[]);
    let here = tempfile::tempdir().unwrap();
    grow(&here.path().join("tree"));
    let refused = put(here.path(), &server, &["-r", "tree", "/"]);
    assert_code(&refused, 1, &["403", "--writable"]);
    assert!(names(&server.root("")).is_empty());
}

#[test]
fn what_is_more_than_a_connection_may_bring_goes_by_the_next_one() {
    let server = Server::start(&["--writable", "--max-upload-files", "4"]);
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("tree")).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(here.path().join("tree").join(name), name).unwrap();
    }
    let first = put(here.path(), &server, &["-r", "tree", "/"]);
    assert_code(&first, 1, &["429", "same command"]);
    assert_eq!(names(&server.root("tree")).len(), 3, "and the directory");
    let second = put(here.path(), &server, &["-r", "tree", "/"]);
    assert_code(&second, 0, &[]);
    assert_eq!(names(&server.root("tree")), ["a", "b", "c", "d", "e"]);
}

#[test]
fn empty_files_that_are_there_count_no_more() {
    let server = Server::start(&["--writable", "--max-upload-files", "3"]);
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("tree")).unwrap();
    let all = ["a", "b", "c", "d", "e"];
    for name in all {
        fs::write(here.path().join("tree").join(name), "").unwrap();
    }
    // A directory counts once, where it is made.
    let first = put(here.path(), &server, &["-r", "tree", "/"]);
    assert_code(&first, 1, &["429", "same command"]);
    let second = put(here.path(), &server, &["-r", "tree", "/", "--json"]);
    assert_code(&second, 0, &[]);
    assert_eq!(names(&server.root("tree")), all);
    assert_eq!(last_line(&second)["unchanged"], 2);
}

#[test]
fn a_directory_that_is_forbidden_keeps_no_other() {
    let server = Server::start(&["--writable"]);
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(server.root("tree")).unwrap();
    symlink(outside.path(), server.root("tree/b")).unwrap();
    let here = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        let directory = here.path().join("tree").join(name).join("in");
        fs::create_dir_all(&directory).unwrap();
    }
    let sent = put(here.path(), &server, &["-r", "tree", "/", "--json"]);
    assert_code(
        &sent,
        1,
        &["/tree/b/in/: ", "403", "but not there", "not made: 1"],
    );
    let summary = last_line(&sent);
    let counts = (&summary["failed"], &summary["failed_directories"]);
    assert_eq!(counts, (&0.into(), &1.into()));
    for name in ["a/in", "c/in"] {
        fs::write(here.path().join("tree").join(name).join("x"), name).unwrap();
    }
    fs::write(here.path().join("tree/b/in/x"), "x").unwrap();
    let sent = put(here.path(), &server, &["-r", "tree", "/", "--json"]);
    assert_code(&sent, 1, &["1 file of 3 not sent"]);
    for name in ["a/in", "c/in"] {
        let there = server.root(&format!("tree/{name}/x"));
        assert_eq!(fs::read(there).unwrap(), name.as_bytes());
    }
    assert!(names(outside.path()).is_empty());
}

#[test]
fn two_files_that_would_get_one_name_are_both_told() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    for directory in ["tree/sub", "other"] {
        fs::create_dir_all(here.path().join(directory)).unwrap();
        fs::write(here.path().join(directory).join("README"), directory).unwrap();
    }
    let clash = ["-r", "tree/sub/..", "other/../tree/sub", "/new/"];
    let refused = put(here.path(), &server, &clash);
    let both = ["tree/sub/../sub/README", "other/../tree/sub/README"];
    assert_code(&refused, 2, &both);
    assert!(!server.root("new").exists());
}

#[test]
fn an_interrupted_command_goes_on_with_what_is_missing() {
    let server = Server::start(&["--writable"]);
    let here = tempfile::tempdir().unwrap();
    let at = here.path().join("tree");
    fs::create_dir(&at).unwrap();
    for name in ["a", "b"] {
        write(&at.join(name), 4_000_000);
    }
    let url = format!("{}/", server.url);
    let mut command = client(
        here.path(),
        &["put", "-r", "tree", &url, "--limit-rate", "1M"],
    );
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let parts = || {
        let found = fs::read_dir(server.root("tree")).into_iter().flatten();
        let lengths = found.map(|entry| entry.unwrap().metadata().map_or(0, |found| found.len()));
        lengths.filter(|length| *length > 0).count()
    };
    let started = Instant::now();
    while parts() < 2 {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "it never began"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_code(&ended(child), 1, &["interrupted", "same command"]);
    let again = put(here.path(), &server, &["-r", "tree", "/", "--json"]);
    assert_code(&again, 0, &[]);
    let moved = last_line(&again)["bytes"].as_u64().unwrap();
    assert!(moved < 8_000_000, "{moved}");
    assert!(tree(&server.root("tree")) == tree(&at));
}

#[test]
fn what_cannot_be_sent_is_told_before_a_server_is_asked() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    let nobody = "anabranch://127.0.0.1:9";
    let (slash, name) = (format!("{nobody}/"), format!("{nobody}/name"));
    for (arguments, word) in [
        (&["tree", &slash][..], "put -r"),
        (&["file", "file", &slash], "another one"),
        (&["file", "tree/../file", &slash], "another one"),
        (&["-r", "file", "tree", &name], "slash"),
        (&["missing", &slash], "missing"),
    ] {
        let refused = run(here.path(), &[&["put"], arguments].concat());
        assert_code(&refused, 2, &[word]);
    }
}
