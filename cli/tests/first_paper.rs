//! Shows for this system what the first of the papers claims for its own: packets of all paths are
//! in flight at the same time and overtake each other, and copies of packets do no harm.
//!
//! The paper's set-up, slowed down to what a debug build manages: a client with a fast wired link
//! and two modems, a server with one address, one file from the client to the server.
//! `ANABRANCH_LONG=1` sends the paper's 104 857 600 bytes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Direction, Rate};
use common::capture::{Capture, Packet};
use common::figures::{content_rate, number, path_over, paths, shares};
use common::{Family, Lab, is_long, judge, measured, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

const END: Duration = Duration::from_secs(300);

/// An IP packet of at least this many bytes carries bulk data.
const BULK: usize = 1000;

#[test]
fn packets_of_all_three_paths_are_interleaved_and_overtake_each_other() {
    measured("concurrency", measure_concurrency);
}

fn measure_concurrency() -> Option<Result<(), String>> {
    let rates = [20, 5, 5].map(Rate::mbit);
    let mut lab = Lab::behind_gateways("concurrency", &rates)?;
    let server = lab.serve(&[lab.family.server()], &["--writable"]);
    let length = if is_long() { 104_857_600 } else { 15_000_000 };
    lab.make_file("got/data", length);
    let filter = "udp dst port 4433";
    let at_client = Capture::start(&lab.client, "client.pcap", filter, &lab.directory)?;
    let at_server = Capture::start(&lab.server, "server.pcap", filter, &lab.directory)?;
    let report = lab.start_put(&server, "data", &[]).wait(END).report();
    lab.assert_same("got/data", "files/data");
    let (sent, received) = match (at_client.finish(), at_server.finish()) {
        (Ok(sent), Ok(received)) => (sent, received),
        (Err(holes), _) | (_, Err(holes)) => return Some(Err(holes)),
    };

    let sent: Vec<Packet> = sent
        .into_iter()
        .filter(|packet| packet.length >= BULK)
        .collect();
    let windows = interleaving(&sent);
    let order = order(&sent, &received);
    eprintln!(
        "concurrency: {} packets sent, {} received; changes of path per second: {:?}; \
         {} of {} came before one that was sent earlier, by up to {} packets; {}",
        sent.len(),
        received.len(),
        windows
            .iter()
            .map(|window| window.changes)
            .collect::<Vec<_>>(),
        order.overtaken,
        order.compared,
        order.furthest,
        shares(&report),
    );
    let all = BTreeSet::from([0, 1, 2].map(|at| Family::V4.address(at, 1).to_string()));
    let enough = windows.len() >= 2;
    let mut bars = vec![(enough, "too short to say anything".to_owned())];
    for Window { sources, changes } in windows {
        let sources: BTreeSet<String> = sources.iter().map(Ipv4Addr::to_string).collect();
        bars.push((sources == all, format!("{sources:?} alone in one second")));
        // Three transfers in sequence would change the path twice.
        bars.push((changes > 50, format!("hardly interleaved: {changes}")));
    }
    let fits = order.compared > sent.len() / 2;
    bars.push((fits, "the captures do not fit".into()));
    let is_reordered = order.overtaken * 20 > order.compared;
    bars.push((is_reordered, "hardly anything is reordered".into()));
    Some(judge(&bars))
}

/// One second of what was sent.
#[derive(Default)]
struct Window {
    sources: BTreeSet<Ipv4Addr>,
    /// How often a packet had a different source address than the one before.
    changes: usize,
}

/// Each whole second of the transfer.
fn interleaving(sent: &[Packet]) -> Vec<Window> {
    let Some((first, last)) = sent.first().zip(sent.last()) else {
        return Vec::new();
    };
    let seconds = last.time.saturating_sub(first.time).as_secs() as usize;
    let mut windows: Vec<Window> = (0..seconds).map(|_| Window::default()).collect();
    let mut before = first.source;
    for packet in sent {
        let Some(window) =
            windows.get_mut(packet.time.saturating_sub(first.time).as_secs() as usize)
        else {
            break;
        };
        window.sources.insert(packet.source);
        window.changes += usize::from(packet.source != before);
        before = packet.source;
    }
    windows
}

/// How the order of arrival differs from the order of sending.
struct Order {
    /// Packets found in both traces.
    compared: usize,
    /// Packets that arrived after one that was sent later.
    overtaken: usize,
    /// The most packets that one was overtaken by, in the order of sending.
    furthest: usize,
}

fn order(sent: &[Packet], received: &[Packet]) -> Order {
    let positions: BTreeMap<&[u8], usize> = sent
        .iter()
        .enumerate()
        .map(|(at, packet)| (packet.name.as_slice(), at))
        .collect();
    let mut order = Order {
        compared: 0,
        overtaken: 0,
        furthest: 0,
    };
    let mut latest = 0;
    for packet in received {
        let Some(&at) = positions.get(packet.name.as_slice()) else {
            continue;
        };
        order.compared += 1;
        if at < latest {
            order.overtaken += 1;
            order.furthest = order.furthest.max(latest - at);
        }
        latest = latest.max(at);
    }
    order
}

#[test]
fn the_copy_that_arrives_later_is_dropped() {
    measured("duplicate", fetch_twice);
}

/// Fetches a file over two links, with a copy on each. That takes no longer than over one link
/// alone.
fn fetch_twice() -> Option<Result<(), String>> {
    const LINK: u64 = 20;
    let mut lab = Lab::new("duplicate", &[Rate::mbit(LINK); 2])?;
    let server = lab.serve(&[lab.family.server()], &[]);
    let length = if is_long() { 104_857_600 } else { 12_000_000 };
    lab.make_file("files/data", length);
    let process = lab.start_get(&server, "data", &["--scheduler", "redundant"]);
    let report = process.wait(END).report();
    lab.assert_same("files/data", "got/data");
    let duplicates = number(&report, "duplicate_bytes") / length as f64;
    let seconds = number(&report, "seconds");
    let Some(path) = path_over(&report, "path0") else {
        return Some(Err("there was no path over path0".into()));
    };
    let mtu = number(path, "mtu");
    let alone = length as f64 * 8.0 / content_rate(LINK as f64 * 1e6, mtu, Family::V4);
    eprintln!(
        "duplicate: {duplicates:.3} of the file came twice; {seconds:.2} s, {alone:.2} s over \
         one link at best; {}",
        shares(&report),
    );
    // What is lost to a full queue arrives only once, over the other link.
    let came_twice = (0.9..=1.0).contains(&duplicates);
    Some(judge(&[
        (came_twice, format!("{duplicates} of the file came twice")),
        (
            seconds <= alone / 0.95,
            format!("slower than one link alone: {seconds} s, not {alone} s"),
        ),
    ]))
}

#[test]
fn copies_on_a_link_that_was_cut_need_not_be_sent_again() {
    measured("cut", cut_a_copy);
}

fn cut_a_copy() -> Option<Result<(), String>> {
    let mut lab = Lab::new("cut", &[Rate::mbit(20); 2])?;
    let server = lab.serve(&[lab.family.server()], &["--writable"]);
    let length = 12_000_000;
    lab.make_file("got/data", length);
    let mut process = lab.start_put(&server, "data", &["--scheduler", "redundant"]);
    wait_for("half of it", END, || {
        assert!(process.is_running(), "{}", process.stderr());
        let lengths = fs::read_dir(lab.path("files")).unwrap();
        lengths
            .filter_map(Result::ok)
            .any(|entry| entry.metadata().is_ok_and(|data| data.len() > 4_000_000))
    });
    lab.bed.blackhole(lab.links[1], Direction::Both).unwrap();
    let report = process.wait(END).report();
    lab.assert_same("got/data", "files/data");
    let again = number(&report, "retransmitted_bytes");
    let cut = paths(&report)
        .iter()
        .find(|path| path["interface"] == "path1");
    let lost = cut.map_or(0.0, |path| number(path, "lost_packets"));
    eprintln!(
        "cut: {again} bytes sent again, {lost} packets lost on the link that was cut; {:.2} s; {}",
        number(&report, "seconds"),
        shares(&report),
    );
    // After a stall of the machine, a burst may overflow the other link's queue and be sent again.
    let few = again < 0.01 * f64::from(length as u32);
    Some(judge(&[(few, format!("{again} bytes were sent again"))]))
}
