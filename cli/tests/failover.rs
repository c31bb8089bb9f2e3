//! Links fall silent, lose their carrier, come back, come new, change their address, and flap; the
//! transfer goes on, and every byte arrives.
//!
//! Two links of 30 Mbit/s each; their queues hold 50 ms, which makes most of the RTT.
//! `ANABRANCH_LONG=N` makes them flap for N seconds (1 means 600).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Direction, Rate};
use common::figures::{number, path_over, paths, shares};
use common::process::Process;
use common::{Family, Lab, Server, judge, measured, names, wait_for};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const LINK: Rate = Rate::mbit(30);

/// How long the file may stop growing when a link dies. It grows by a megabyte at a time, 140 ms
/// apart with two links and 280 ms with one: the rest is what it took to notice and to send what
/// was lost over the other link.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How soon a link that was repaired must be used again.
const REPAIRED: Duration = Duration::from_secs(1);

/// How soon an interface that is new must be used.
const FOUND: Duration = Duration::from_secs(2);

/// For what has no limit of its own but must not hang.
const END: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy)]
enum Outage {
    /// Packets vanish, and nobody is told.
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

/// A transfer under way.
struct Running {
    transfer: Transfer,
    process: Process,
    server: Server,
}

impl Running {
    /// Starts a transfer of so many bytes over the paths of `specs`.
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
        let process = lab.start(&[arguments, paths].concat());
        Self {
            transfer,
            process,
            server,
        }
    }

    /// What there is of the file at the receiver.
    fn received(&self, lab: &Lab) -> u64 {
        let directory = match self.transfer {
            Transfer::Get => lab.path("got"),
            Transfer::Put => lab.path("files"),
        };
        let length = |name: &str| fs::metadata(directory.join(name)).map_or(0, |data| data.len());
        let names = names(&directory);
        names
            .iter()
            .filter(|name| name.contains("data"))
            .map(|name| length(name))
            .max()
            .unwrap_or(0)
    }

    #[track_caller]
    fn wait_until_received(&mut self, lab: &Lab, bytes: u64) {
        wait_for("progress", END, || {
            assert!(
                self.process.is_running(),
                "ended early: {}",
                self.process.stderr()
            );
            self.received(lab) >= bytes
        });
    }

    /// The longest time within this that the file did not grow.
    fn longest_pause(&mut self, lab: &Lab, within: Duration) -> Duration {
        let started = Instant::now();
        let (mut length, mut grown) = (self.received(lab), started);
        let mut longest = Duration::ZERO;
        while started.elapsed() < within {
            thread::sleep(Duration::from_millis(1));
            let now = self.received(lab);
            if now > length {
                longest = longest.max(grown.elapsed());
                (length, grown) = (now, Instant::now());
            }
        }
        longest.max(grown.elapsed())
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
    running.wait_until_received(&lab, 6_000_000);
    let usual = running.longest_pause(&lab, Duration::from_millis(700));
    // The path that the connection was made over.
    outage.begin(&mut lab, 0);
    let pause = running.longest_pause(&lab, Duration::from_millis(1500));
    outage.end(&mut lab, 0);
    let again = lab.until_used(0, REPAIRED);
    let report = running.finish(&lab);
    let rtt = number(path_over(&report, "path1"), "smoothed_rtt_ms") / 1e3;
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
    assert_eq!(open, 2, "{report}");
    Some(judge(&[pause_bar(pause), used_bar(again, REPAIRED)]))
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
    running.wait_until_received(&lab, 4_000_000);
    lab.add_link(LINK);
    let used = lab.until_first_used(1, FOUND);
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
    running.wait_until_received(&lab, 4_000_000);
    lab.add_link(LINK);
    default_route(&lab, 1);
    let used = lab.until_first_used(1, FOUND);
    let report = running.finish(&lab);
    eprintln!(
        "auto: used after {} ms; {}",
        used.as_millis(),
        shares(&report)
    );
    Some(judge(&[used_bar(used, FOUND)]))
}

/// A virtual interface counts as an uplink if the default route says so.
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
    running.wait_until_received(&lab, 6_000_000);
    let change = |action: &str, address: &str| {
        lab.client
            .run("ip", &["address", action, address, "dev", "path0"])
            .unwrap();
    };
    change("del", "10.1.0.1/24");
    change("add", "10.1.0.9/24");
    lab.add_route(0);
    let pause = running.longest_pause(&lab, Duration::from_secs(1));
    let used = lab.until_used(0, REPAIRED);
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
    let new = new.unwrap_or_else(|| panic!("the new address has no path: {report}"));
    let carried = number(new, "bytes");
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
    running.wait_until_received(&lab, 4_000_000);
    lab.bed.heal(lab.links[0], Direction::Both).unwrap();
    // Between two attempts to open it there is a pause of a second, and later of more.
    let limit = Duration::from_secs(6);
    let used = lab.until_used(0, limit);
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

/// How long links flap.
fn flapping() -> Duration {
    let wanted = std::env::var("ANABRANCH_LONG")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(match wanted {
        None | Some(0) => 15,
        Some(1) => 600,
        Some(seconds) => seconds,
    })
}

/// A reproducible choice of what happens next (a linear congruential generator).
struct Choice(u64);

impl Choice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn links_may_flap_for_long_without_leaks() {
    let rates = [Rate::mbit(10); 3];
    let Some(mut lab) = Lab::new("flap", &rates) else {
        return;
    };
    let time = flapping();
    // What two of the links carry: with three that fail now and then it lasts longer than that.
    let length = 2_500_000 * time.as_secs() as usize;
    let mut running = Running::start(&mut lab, Transfer::Get, length, &["path*"]);
    running.wait_until_received(&lab, 1_000_000);
    let seed = 7;
    let mut choice = Choice(seed);
    let mut broken: Vec<Option<Outage>> = vec![None; rates.len()];
    let mut memory: Vec<[u64; 2]> = Vec::new();
    let (started, mut changes) = (Instant::now(), 0);
    while started.elapsed() < time && running.process.is_running() {
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
    assert!(
        open <= rates.len() && theirs <= rates.len() as u64 + 1,
        "{report}"
    );
    for (early, late) in [client, server] {
        // Windows and buffers grow to what the links need in the first third.
        assert!(late < early + 16_384, "memory grows: {memory:?}");
    }
}

/// Whether a path of a report was there at the end.
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

/// How many paths the server had when the request was over.
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
