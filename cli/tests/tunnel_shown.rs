//! What both ends of a tunnel show of their paths and flows, over loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/tunnels.rs"]
mod tunnels;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io::{PipeWriter, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tunnels::{Far, Near, PROGRAM, connect_socks, limited};

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// A target that is connected to, and the connection.
fn connected(near: &Near) -> (String, TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = thread::spawn(move || limited(listener.accept().unwrap().0));
    let stream = connect_socks(near.proxy, &address).unwrap();
    (address, stream, accepting.join().unwrap())
}

fn lines(output: &Output) -> Vec<serde_json::Value> {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_flow_tells_whose_it_is_where_it_leads_and_what_it_moved() {
    let far = Far::start(&["--name", "home"]);
    let near = Near::join_in(tempfile::tempdir().unwrap(), &far.url, &["--name", "van"]);
    let (address, mut host, mut target) = connected(&near);
    host.write_all(&[1; 1000]).unwrap();
    target.read_exact(&mut [0; 1000]).unwrap();
    let source = host.local_addr().unwrap().to_string();
    for called in [&address, &source] {
        let told = lines(&near.ask(&["why", called, "--json"])).remove(0);
        assert_eq!(told["source"], *source);
        assert_eq!(told["target"], *address);
        assert_eq!(
            (&told["state"], &told["up_bytes"]),
            (&"open".into(), &1000.into())
        );
    }
    let told = lines(&far.ask(&["why", &address, "--json"])).remove(0);
    assert_eq!(
        (&told["up_bytes"], &told["remote"]),
        (&1000.into(), &address.clone().into())
    );
    assert!(told["client"].is_string(), "{told}");
    let listed = lines(&near.ask(&["flows", "--json"])).remove(0);
    assert_eq!(
        (&listed["open"], &listed["flows"][0]["target"]),
        (&1.into(), &address.clone().into())
    );
    let told = text(near.ask(&["why", &address]));
    assert!(
        told.contains("waits for nothing") && told.contains("up 1.00 kB"),
        "{told}"
    );
    drop((host, target));
    wait_until(&near, &address, |flow| flow["state"] == "ended");
}

/// Asks again and again what a flow does, until that is so.
#[track_caller]
fn wait_until(near: &Near, called: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    let started = Instant::now();
    loop {
        let told = lines(&near.ask(&["why", called, "--json"])).remove(0);
        if is_so(&told) {
            return;
        }
        assert!(started.elapsed() < END, "{told}");
    }
}

#[test]
fn a_flow_whose_application_does_not_read_says_so() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, host, mut target) = connected(&near);
    let sending = thread::spawn(move || {
        // More than all buffers on the way hold. Ends when the host is gone.
        while target.write_all(&[0; 1 << 13]).is_ok() {}
    });
    wait_until(&near, &address, |flow| {
        flow["waits_for_socket_seconds"].is_number()
    });
    let told = text(near.ask(&["why", &address]));
    assert!(
        told.contains("waits for the application here, which does not read"),
        "{told}"
    );
    drop(host);
    sending.join().unwrap();
}

#[test]
fn a_flow_whose_target_does_not_read_is_stopped_by_flow_control() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    let (address, mut host, target) = connected(&near);
    let sending = thread::spawn(move || {
        // More than all buffers on the way hold. Ends when the target is gone.
        while host.write_all(&[0; 1 << 13]).is_ok() {}
    });
    wait_until(&near, &address, |flow| flow["stopped_by"] == "flow-control");
    let told = text(near.ask(&["why", &address]));
    assert!(
        told.contains("flow control, as the other end takes no more"),
        "{told}"
    );
    let told = text(far.ask(&["why", &address]));
    assert!(
        told.contains("waits for the target, which does not read"),
        "{told}"
    );
    drop(target);
    sending.join().unwrap();
}

#[test]
fn a_flow_that_failed_is_remembered_with_its_reason() {
    let far = Far::start(&[]);
    let near = Near::join(&far);
    assert_eq!(connect_socks(near.proxy, "127.0.0.2:80").unwrap_err(), "2");
    let told = text(near.ask(&["why", "127.0.0.2:80"]));
    assert!(
        told.contains("ended after") && told.contains("does not lead there"),
        "{told}"
    );
    let none = near.ask(&["why", "nobody.example:1"]);
    assert_eq!(none.status.code(), Some(1));
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(said.contains("no flow `nobody.example:1`"), "{said}");
}

#[test]
fn paths_are_one_table_for_both_ends() {
    let far = Far::start(&[]);
    let near = Near::join_in(tempfile::tempdir().unwrap(), &far.url, &["--name", "van"]);
    let of = lines(&near.ask(&["paths", "--json"])).remove(0);
    assert_eq!(
        (&of["node"], &of["paths"][0]["role"]),
        (&"near".into(), &"always".into())
    );
    assert_eq!(of["paths"][0]["path"], 0);
    assert!(of["paths"][0]["mtu"].as_u64().unwrap() >= 1200);
    assert_eq!(of["paths"][0]["keep_alive_seconds"], 5.0);
    let of = lines(&far.ask(&["paths", "--json"])).remove(0);
    assert_eq!((&of["node"], &of["peer"]), (&"far".into(), &"van".into()));
    assert!(of["paths"][0]["keep_alive_seconds"].is_null(), "{of}");
    let table = text(near.ask(&["paths"]));
    assert!(
        table.starts_with("of ") && table.contains(" open") && table.contains(" 5 s"),
        "{table}"
    );
    let screen = text(near.ask(&["status"]));
    assert!(screen.contains("asked after 5 s"), "{screen}");
}

/// Whoever reads the URL may ask at once, even before it is read by anybody.
#[test]
fn a_far_end_can_be_asked_before_it_has_told_where_it_is() {
    let state = tempfile::tempdir().unwrap();
    // It has room for nothing more: the far end stops where it prints its URL.
    let (unread, full) = std::io::pipe().unwrap();
    fill(&full);
    let mut serve = Command::new(PROGRAM);
    serve
        .args([
            "tunnel",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--allow",
            "127.0.0.1",
            "--state",
        ])
        .arg(state.path())
        .env("XDG_RUNTIME_DIR", state.path())
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::null());
    let mut far = serve.spawn().unwrap();
    let is_there = || {
        let sockets = std::fs::read_dir(state.path().join("anabranch"));
        let mut names = sockets
            .into_iter()
            .flatten()
            .map(|one| one.unwrap().file_name());
        names.any(|name| name.to_string_lossy().ends_with(".sock"))
    };
    let started = Instant::now();
    while !is_there() && started.elapsed() < END {
        thread::sleep(Duration::from_millis(5));
    }
    let is_there = is_there();
    far.kill().unwrap();
    far.wait().unwrap();
    drop(unread);
    assert!(is_there, "there is no socket");
}

/// Writes to a pipe until nothing more goes in.
fn fill(pipe: &PipeWriter) {
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL).unwrap());
    let set = |flags| fcntl(pipe, FcntlArg::F_SETFL(flags)).unwrap();
    set(flags | OFlag::O_NONBLOCK);
    let mut writer = pipe;
    while writer.write(&[0]).is_ok() {}
    set(flags);
}
