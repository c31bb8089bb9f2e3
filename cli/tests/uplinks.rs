//! Which uplinks are used if the user names none, or names one that leads nowhere, and what is
//! reported when they come and go.

mod common;

use anabranch_testbed::Rate;
use common::figures::{number, paths};
use common::{Lab, Server};
use serde_json::Value;
use std::time::{Duration, Instant};

const END: Duration = Duration::from_secs(120);

/// Two uplinks of a client and one of a server, with a router between them.
fn two(name: &str) -> Option<(Lab, Server)> {
    let mut lab = Lab::through_router(name, &[Rate::mbit(20); 2], &[Rate::mbit(100)])?;
    let server = lab.serve(&[[10, 101, 0, 2].into()], &[]);
    Some((lab, server))
}

/// An interface of the client that has an address and leads nowhere.
fn dead_end(lab: &Lab) {
    for command in [
        "link add dead type veth peer name nowhere",
        "addr add 10.77.0.1/24 dev dead",
        "link set nowhere up",
        "link set dead up",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        lab.client.run("ip", &words).expect("an interface");
    }
    // The kernel notices that both ends are up some time later.
    let show = ["link", "show", "dev", "dead"];
    let started = Instant::now();
    let is_up = || {
        lab.client
            .run("ip", &show)
            .expect("an interface")
            .contains(" state UP ")
    };
    while !is_up() {
        assert!(started.elapsed() < END, "no carrier");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn interfaces(report: &Value) -> Vec<String> {
    let used = paths(report)
        .iter()
        .filter(|path| number(path, "bytes") > 0.0);
    let name = |path: &Value| path["interface"].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = used.map(name).collect();
    names.sort();
    names
}

#[test]
fn all_uplinks_are_used_unless_told_otherwise() {
    let Some((lab, server)) = two("auto") else {
        return;
    };
    lab.make_file("files/data", 8_000_000);
    // A network that leads nowhere else is not an uplink.
    dead_end(&lab);
    let url = server.url_of("data");
    let report = lab.start(&["get", &url, "--json"]).wait(END).report();
    assert_eq!(interfaces(&report), ["path0", "path1"], "{report}");
    lab.assert_same("files/data", "got/data");
}

#[test]
fn a_named_interface_without_a_gateway_is_told_with_the_cause() {
    let Some((lab, server)) = two("dead-end") else {
        return;
    };
    lab.make_file("files/data", 2_000_000);
    dead_end(&lab);
    let url = server.url_of("data");
    let both = ["get", &url, "--json", "--path", "path0", "--path", "dead"];
    let ended = lab.start(&both).wait(END);
    let report = ended.report();
    assert!(
        ended.stderr.contains("dead has no route to the server"),
        "{}",
        ended.stderr
    );
    for path in paths(&report)
        .iter()
        .filter(|path| path["interface"] == "dead")
    {
        assert!(path["smoothed_rtt_ms"].is_null(), "never measured: {path}");
    }
    let alone = [
        "get",
        &url,
        "-f",
        "--path",
        "dead",
        "--connect-timeout",
        "1",
    ];
    let ended = lab.start(&alone).wait(END);
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("no gateway"), "{}", ended.stderr);
}

#[test]
fn a_server_on_this_very_machine_is_reached_by_its_own_address() {
    let Some((lab, server)) = two("own-address") else {
        return;
    };
    lab.make_file("files/data", 1_000_000);
    let url = server.url_of("data");
    let got = lab.path("got/data");
    let mut command = common::program(&lab.server);
    command.args(["get", &url, "--json", "-o"]).arg(&got);
    let ended = common::process::Process::start(&mut command, &lab.directory).wait(END);
    let report = ended.report();
    assert_eq!(paths(&report).len(), 1, "{report}");
    assert_eq!(ended.stderr.matches("note").count(), 0, "{}", ended.stderr);
    lab.assert_same("files/data", "got/data");
}

#[test]
fn links_that_come_and_go_are_told_in_lines() {
    let Some((lab, server)) = two("told") else {
        return;
    };
    lab.make_file("files/data", 12_000_000);
    let url = server.url_of("data");
    let get = lab.start(&["get", &url, "-v", "--limit-rate", "1M"]);
    let until = |what: &str| {
        let started = Instant::now();
        while !get.stderr().contains(what) {
            assert!(started.elapsed() < END, "{what}: {}", get.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("path0 (10.1.0.1): up");
    until("path1 (10.2.0.1): up");
    lab.client
        .run("ip", &["link", "set", "path1", "down"])
        .unwrap();
    until("path1 (10.2.0.1): down");
    lab.client
        .run("ip", &["link", "set", "path1", "up"])
        .unwrap();
    let via = [
        "route", "replace", "default", "via", "10.2.0.2", "dev", "path1", "metric", "11",
    ];
    lab.client.run("ip", &via).unwrap();
    let ups = || get.stderr().matches("path1 (10.2.0.1): up").count();
    let started = Instant::now();
    while ups() < 2 {
        assert!(started.elapsed() < END, "{}", get.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = get.wait(END);
    assert!(ended.status.success(), "{}", ended.stderr);
    let rows = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("path1 "));
    assert_eq!(
        rows.count(),
        1,
        "one row for an interface: {}",
        ended.stderr
    );
}
