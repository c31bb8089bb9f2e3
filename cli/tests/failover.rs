//! Links go silent, lose their carrier, come back, appear, change their address, and flap. The
//! transfer goes on, and every byte arrives.
//!
//! Two links of 30 Mbit/s each. Their queues hold 50 ms, which is most of the RTT.
//! `ANABRANCH_LONG=N` makes them flap for N seconds (1 means 600), `ANABRANCH_FLAP_SEED=N` in
//! another order.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Direction, Rate};
use common::figures::{number, path_over, paths, shares};
use common::files::Noise;
use common::observer::{Mark, Observer};
use common::process::Process;
use common::{Family, Lab, Server, judge, measured, wait_for};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const LINK: Rate = Rate::mbit(30);

/// How long the file may stop growing when a link dies. It grows by a megabyte at a time: every
/// 140 ms with two links, every 280 ms with one. The rest is the time to notice, and to send what
/// was lost over the other link.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How soon a repaired link must be used again.
const REPAIRED: Duration = Duration::from_secs(1);

/// How soon a new interface must be used.
const FOUND: Duration = Duration::from_secs(2);

/// For what has no limit of its own but must not take forever.
const END: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy)]
enum Outage {
    /// Packets vanish without any notice.
    Silent(Direction),
    /// The interface loses its carrier.
    Down,
}

impl Outage {
    fn begin(self, lab: &mut Lab, at: usize) {
        match self {
            Self::Silent(direction) => lab.bed.blackhole(lab.links[at], direction).unwrap(),
            Self::Down => lab.set_up(at, false),
        }
    }

    fn end(self, lab: &mut Lab, at: usize) {
        match self {
            Self::Silent(direction) => lab.bed.heal(lab.links[at], direction).unwrap(),
            Self::Down => lab.set_up(at, true),
        }
    }
}

const OUTAGES: [Outage; 4] = [
    Outage::Down,
    Outage::Silent(Direction::Both),
    Outage::Silent(Direction::AToB),
    Outage::Silent(Direction::BToA),
];

#[derive(Debug, Clone, Copy)]
enum Transfer {
    Get,
    Put,
}

/// A transfer in progress.
struct Running {
    process: Process,
    server: Server,
    observer: Observer,
}

impl Running {
    /// Starts a transfer of this many bytes over the paths of `specs`.
    fn start(lab: &mut Lab, transfer: Transfer, length: usize, specs: &[&str]) -> Self {
        let server = lab.serve(&[lab.family.server()], &["--writable", "--json"]);
        let paths: Vec<&str> = specs.iter().flat_map(|spec| ["--path", spec]).collect();
        let url = server.url_of("data");
        let arguments = match transfer {
            Transfer::Get => {
                lab.make_file("files/data", length);
                vec!["get", &url, "--json"]
            }
            Transfer::Put => {
                lab.make_file("got/data", length);
                vec!["put", "data", &url, "--json"]
            }
        };
        let receiver = match transfer {
            Transfer::Get => lab.path("got"),
            Transfer::Put => lab.path("files"),
        };
        let observer = Observer::start(&lab.client, receiver, "data");
        let process = lab.start(&[arguments, paths].concat());
        Self {
            process,
            server,
            observer,
        }
    }

    #[track_caller]
    fn wait_until_received(&mut self, bytes: u64) {
        wait_for("progress", END, || {
            assert!(
                self.process.is_running(),
                "ended early: {}",
                self.process.stderr()
            );
            self.observer.received() >= bytes
        });
    }

    /// The longest time that the file did not grow, from a moment until this long from now.
    fn longest_pause(&self, from: Mark, further: Duration) -> Duration {
        self.observer.wait(further);
        self.observer.longest_pause(from, self.observer.now())
    }

    /// How long it takes until a link carries bulk data, counted from now.
    fn until_used(&self, link: usize, limit: Duration) -> Duration {
        let now = self.observer.now();
        self.observer.until_used(link, now, limit)
    }

    /// Waits for the end; every byte must have arrived.
    #[track_caller]
    fn finish(self, lab: &Lab) -> serde_json::Value {
        let report = self.process.wait(END).report();
        lab.assert_same("files/data", "got/data");
        assert_eq!(report["verified"], "whole");
        report
    }
}

fn outage(name: &str, transfer: Transfer, outage: Outage) {
    measured(name, || measure_outage(name, transfer, outage));
}

fn measure_outage(name: &str, transfer: Transfer, outage: Outage) -> Option<Result<(), String>> {
    let mut lab = Lab::new(name, &[LINK; 2])?;
    let mut running = Running::start(&mut lab, transfer, 36_000_000, &["path0", "path1"]);
    running.wait_until_received(6_000_000);
    let usual = running.longest_pause(running.observer.now(), Duration::from_millis(700));
    let before = running.observer.now();
    // The path that the connection was made over.
    outage.begin(&mut lab, 0);
    let pause = running.longest_pause(before, Duration::from_millis(1500));
    outage.end(&mut lab, 0);
    let again = running.until_used(0, REPAIRED);
    let report = running.finish(&lab);
    let other = path_over(&report, "path1");
    let rtt = other.map_or(f64::NAN, |path| number(path, "smoothed_rtt_ms") / 1e3);
    eprintln!(
        "{name}: paused {} ms, usual {} ms, more by {:.1} RTTs of {:.0} ms at most; \
         used again after {} ms; {}",
        pause.as_millis(),
        usual.as_millis(),
        pause.saturating_sub(usual).as_secs_f64() / rtt,
        rtt * 1e3,
        again.as_millis(),
        shares(&report),
    );
    let open = paths(&report).iter().filter(|path| is_there(path)).count();
    Some(judge(&[
        pause_bar(pause),
        used_bar(again, REPAIRED),
        (open == 2, format!("{open} paths at the end: {report}")),
    ]))
}

fn pause_bar(pause: Duration) -> (bool, String) {
    (
        pause < LONGEST_PAUSE,
        format!("it stood still for {pause:?}"),
    )
}

fn used_bar(after: Duration, limit: Duration) -> (bool, String) {
    (
        after < limit,
        format!("the link was not used for {after:?}"),
    )
}

#[test]
fn a_download_survives_a_silent_link() {
    outage("get-silent", Transfer::Get, Outage::Silent(Direction::Both));
}

#[test]
fn a_download_survives_a_link_that_loses_only_the_data() {
    outage(
        "get-no-data",
        Transfer::Get,
        Outage::Silent(Direction::BToA),
    );
}

#[test]
fn a_download_survives_a_link_that_loses_only_the_acknowledgements() {
    outage(
        "get-no-acks",
        Transfer::Get,
        Outage::Silent(Direction::AToB),
    );
}

#[test]
fn an_upload_survives_a_silent_link() {
    outage("put-silent", Transfer::Put, Outage::Silent(Direction::Both));
}

#[test]
fn a_download_survives_an_unplugged_link() {
    outage("get-down", Transfer::Get, Outage::Down);
}

#[test]
fn an_upload_survives_an_unplugged_link() {
    outage("put-down", Transfer::Put, Outage::Down);
}

#[test]
fn a_new_interface_that_matches_the_pattern_is_used_at_once() {
    measured("glob", measure_new_interface);
}

fn measure_new_interface() -> Option<Result<(), String>> {
    let mut lab = Lab::new("glob", &[LINK])?;
    let mut running = Running::start(&mut lab, Transfer::Get, 24_000_000, &["path*"]);
    running.wait_until_received(4_000_000);
    lab.add_link(LINK);
    let used = running.until_used(1, FOUND);
    let report = running.finish(&lab);
    eprintln!(
        "glob: used after {} ms; {}",
        used.as_millis(),
        shares(&report)
    );
    Some(judge(&[used_bar(used, FOUND)]))
}

#[test]
fn a_new_uplink_is_used_automatically() {
    measured("auto", measure_new_uplink);
}

fn measure_new_uplink() -> Option<Result<(), String>> {
    let mut lab = Lab::new("auto", &[LINK])?;
    default_route(&lab, 0);
    let mut running = Running::start(&mut lab, Transfer::Put, 24_000_000, &["auto"]);
    running.wait_until_received(4_000_000);
    lab.add_link(LINK);
    default_route(&lab, 1);
    let used = running.until_used(1, FOUND);
    let report = running.finish(&lab);
    eprintln!(
        "auto: used after {} ms; {}",
        used.as_millis(),
        shares(&report)
    );
    Some(judge(&[used_bar(used, FOUND)]))
}

/// Adds a default route: it makes a virtual interface count as an uplink.
fn default_route(lab: &Lab, at: usize) {
    let gateway = Family::V4.address(at, 2).to_string();
    let (interface, metric) = (format!("path{at}"), (at + 50).to_string());
    let route = [
        "route", "add", "default", "via", &gateway, "dev", &interface, "metric", &metric,
    ];
    lab.client.run("ip", &route).unwrap();
}

#[test]
fn a_changed_address_is_used_instead_of_the_old_one() {
    measured("address", measure_new_address);
}

fn measure_new_address() -> Option<Result<(), String>> {
    let mut lab = Lab::new("address", &[LINK; 2])?;
    let mut running = Running::start(&mut lab, Transfer::Get, 36_000_000, &["path0", "path1"]);
    running.wait_until_received(6_000_000);
    let change = |action: &str, address: &str| {
        lab.client
            .run("ip", &["address", action, address, "dev", "path0"])
            .unwrap();
    };
    let before = running.observer.now();
    change("del", "10.1.0.1/24");
    change("add", "10.1.0.9/24");
    lab.add_route(0);
    let pause = running.longest_pause(before, Duration::from_secs(1));
    // So far, the link may only have carried the server's packets to the old address.
    let used = running.until_used(0, REPAIRED);
    let report = running.finish(&lab);
    eprintln!(
        "address: paused {} ms, used after {} ms; {}",
        pause.as_millis(),
        1000 + used.as_millis(),
        shares(&report),
    );
    let new = paths(&report)
        .iter()
        .find(|path| path["local"] == "10.1.0.9");
    let carried = new.map_or(0.0, |path| number(path, "bytes"));
    Some(judge(&[
        pause_bar(pause),
        used_bar(used, REPAIRED),
        (
            carried > 1e6,
            format!("the new address carried {carried} bytes"),
        ),
    ]))
}

#[test]
fn a_first_link_that_is_dead_from_the_start_costs_less_than_a_second() {
    measured("dead", measure_dead_first_link);
}

fn measure_dead_first_link() -> Option<Result<(), String>> {
    let mut lab = Lab::new("dead", &[LINK; 2])?;
    lab.bed.blackhole(lab.links[0], Direction::Both).unwrap();
    let mut running = Running::start(&mut lab, Transfer::Get, 36_000_000, &["path0", "path1"]);
    running.wait_until_received(4_000_000);
    lab.bed.heal(lab.links[0], Direction::Both).unwrap();
    // Between two attempts to open the path there is a pause of a second, later of more.
    let limit = Duration::from_secs(6);
    let used = running.until_used(0, limit);
    let report = running.finish(&lab);
    let connect = number(&report, "connect_seconds");
    eprintln!(
        "dead: connected after {connect} s, repaired link used after {} ms; {}",
        used.as_millis(),
        shares(&report),
    );
    let connected = (connect < 1.0, format!("connected after {connect} s"));
    Some(judge(&[connected, used_bar(used, limit)]))
}

/// How long links flap if the user asks for it, in seconds.
fn long() -> Option<u64> {
    let wanted = std::env::var("ANABRANCH_LONG").ok();
    wanted.and_then(|text| text.parse().ok())
}

fn is_long() -> bool {
    long().is_some_and(|seconds| seconds > 0)
}

/// About how long links flap.
fn flapping() -> Duration {
    Duration::from_secs(match long() {
        None | Some(0) => 15,
        Some(1) => 600,
        Some(seconds) => seconds,
    })
}

#[test]
fn links_may_flap_for_long_without_leaks() {
    measured("flap", flap);
}

fn flap() -> Option<Result<(), String>> {
    let rates = [Rate::mbit(10); 3];
    let mut lab = Lab::new("flap", &rates)?;
    let time = flapping();
    // About what the links carry while they flap. They stop when a fifth of it is left, so that the
    // last outages are over before the transfer is.
    let length = 2_000_000 * time.as_secs();
    let mut running = Running::start(&mut lab, Transfer::Get, length as usize, &["path*"]);
    running.wait_until_received(1_000_000);
    let chosen = std::env::var("ANABRANCH_FLAP_SEED").ok();
    let seed = chosen.map_or(7, |seed| seed.parse().expect("a number"));
    let mut choice = Noise::new(seed);
    let mut broken: Vec<Option<Outage>> = vec![None; rates.len()];
    let mut memory: Vec<[u64; 2]> = Vec::new();
    let (started, mut changes) = (Instant::now(), 0);
    while running.observer.received() < length / 5 * 4 && running.process.is_running() {
        let at = choice.below(rates.len() as u64) as usize;
        if let Some(outage) = broken[at].take() {
            outage.end(&mut lab, at);
        } else {
            let outage = OUTAGES[choice.below(OUTAGES.len() as u64) as usize];
            outage.begin(&mut lab, at);
            broken[at] = Some(outage);
        }
        changes += 1;
        thread::sleep(Duration::from_millis(50 + choice.below(600)));
        memory.push([&running.process, &running.server.process].map(Process::memory_kib));
    }
    for (at, outage) in broken.into_iter().enumerate() {
        if let Some(outage) = outage {
            outage.end(&mut lab, at);
        }
    }
    let flapped = started.elapsed();
    let log: PathBuf = running.server.process.stdout_path().into();
    let (process, _server) = (running.process, running.server);
    let report = process.wait(time + END).report();
    lab.assert_same("files/data", "got/data");
    let open = paths(&report).iter().filter(|path| is_there(path)).count();
    let theirs = paths_at_server(&log);
    let [client, server] = [0, 1].map(|side| growth(&memory, side));
    eprintln!(
        "flap: seed {seed}, {changes} changes in {:.0} s, {} paths in turn, {open} open at \
         the end, {theirs} at the server; memory in KiB from {} to {} (client), {} to {} (server)",
        flapped.as_secs_f64(),
        paths(&report).len(),
        client.0,
        client.1,
        server.0,
        server.1,
    );
    for (early, late) in [client, server] {
        assert!(late < MEMORY_KIB, "too much memory: {memory:?}");
        // Windows and buffers grow to what the links need; in a test of some minutes, that takes
        // less than the first third.
        assert!(
            !is_long() || late < early + 16_384,
            "memory grows: {memory:?}"
        );
    }
    let most = rates.len() as u64 + 1;
    Some(judge(&[
        (open <= rates.len(), format!("{open} paths: {report}")),
        (theirs <= most, format!("{theirs} paths at the server")),
    ]))
}

/// Memory that a program may use while links flap, in KiB: several times what three links need.
const MEMORY_KIB: u64 = 131_072;

/// Whether a path of a report still existed at the end.
fn is_there(path: &serde_json::Value) -> bool {
    path["state"] != "closed" && path["state"] != "gone"
}

/// The most memory in the first and in the last third.
fn growth(memory: &[[u64; 2]], side: usize) -> (u64, u64) {
    let third = memory.len() / 3;
    let most = |part: &[[u64; 2]]| part.iter().map(|sample| sample[side]).max().unwrap_or(0);
    (
        most(&memory[..third]),
        most(&memory[memory.len() - third..]),
    )
}

/// How many paths the server had at the end of the request.
fn paths_at_server(log: &std::path::Path) -> u64 {
    let mut paths = None;
    wait_for("the server's report", END, || {
        let text = fs::read_to_string(log).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut requests = lines.filter(|line: &serde_json::Value| line["event"] == "request");
        paths = requests.find_map(|request| request["paths"].as_u64());
        paths.is_some()
    });
    paths.unwrap_or_default()
}
