//! The engine alone: both ends of a transfer in one thread, datagrams handed over in memory.
//!
//! Prints seconds per gigabyte and nanoseconds per packet for one and two paths, and the same where
//! the sender asks for one acknowledgement in up to 16 packets. What it leaves out is the kernel;
//! what it shows is the cost of the protocol itself, sender and receiver together. With the feature
//! `null-protection` also without packet protection, as simulations run.
//!
//! Then what fewer acknowledgements do to goodput over links of a rate, in virtual time.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../tests/engine/pair/mod.rs"]
mod pair;

use anabranch_proto::config::TransportConfig;
use pair::{MBIT, Pair, Way};
use std::time::{Duration, Instant};

const BYTES: usize = 256 << 20;

/// What is asked of the peer: as many packets per acknowledgement at the most.
const MOST_PACKETS: [Option<u32>; 2] = [None, Some(16)];

fn main() {
    println!(
        "{:<14} {:>10} {:>12} {:>10}",
        "paths", "s/GB", "ns/packet", "packets"
    );
    #[cfg(feature = "null-protection")]
    let runs = [(1, false), (2, false), (1, true), (2, true)];
    #[cfg(not(feature = "null-protection"))]
    let runs = [(1, false), (2, false)];
    for (paths, unprotected) in runs {
        for most in MOST_PACKETS {
            pump(paths, unprotected, most);
        }
    }
    println!(
        "\n{:<26} {:>10} {:>10} {:>10}",
        "links", "Mbit/s", "packets", "lost"
    );
    let near_and_far = || vec![far(1, 50, 10), far(2, 10, 40)];
    let cases: [(&str, Vec<Way>); 4] = [
        ("20 Mbit/s, 10 ms", vec![far(1, 20, 10)]),
        ("50 Mbit/s 10 ms + 10 40 ms", near_and_far()),
        (
            "the same, 1 % lost",
            near_and_far().into_iter().map(|way| way.loss(10)).collect(),
        ),
        ("200 Mbit/s, 2 ms", vec![far(1, 200, 2)]),
    ];
    for (name, ways) in cases {
        for most in MOST_PACKETS {
            carry(name, &ways, most);
        }
    }
}

fn config(most: Option<u32>) -> TransportConfig {
    let mut config = TransportConfig::default();
    config.ack_frequency.most_packets = most;
    config.streams.max_receive_window = 8 << 20;
    config.streams.max_stream_receive_window = 8 << 20;
    config
}

#[cfg(feature = "null-protection")]
fn unprotected_pair(ways: Vec<Way>, config: TransportConfig) -> Pair {
    let mut ends = pair::endpoints();
    for end in &mut ends {
        end.leave_unprotected();
    }
    let (client, server) = pair::configs(config.clone(), config);
    Pair::between(ends, ways, client, server)
}

#[cfg(not(feature = "null-protection"))]
fn unprotected_pair(_ways: Vec<Way>, _config: TransportConfig) -> Pair {
    panic!("needs the feature null-protection");
}

/// A link of this rate and one-way delay, with a queue of 50 ms.
fn far(index: u16, mbit: u64, ms: u64) -> Way {
    Way::new(index).delay(ms).rate(mbit * MBIT).queue_ms(50)
}

fn label(text: &str, most: Option<u32>) -> String {
    most.map_or(text.to_owned(), |most| format!("{text}, 1/{most}"))
}

fn connected(ways: Vec<Way>, unprotected: bool, config: TransportConfig) -> Pair {
    let mut pair = if unprotected {
        unprotected_pair(ways, config)
    } else {
        Pair::new(ways, config)
    };
    pair.discard = true;
    pair.connect();
    pair.open_all();
    pair
}

fn pump(paths: u16, unprotected: bool, most: Option<u32>) {
    let ways = (1..=paths).map(|index| Way::new(index).delay(1)).collect();
    let mut pair = connected(ways, unprotected, config(most));
    let before = pair.delivered;
    let started = Instant::now();
    pair.upload(BYTES, Duration::from_secs(600));
    let seconds = started.elapsed().as_secs_f64();
    let packets = pair.delivered - before;
    let per_gigabyte = seconds * 1e9 / BYTES as f64;
    let per_packet = seconds * 1e9 / packets as f64;
    let name = format!("{paths}{}", if unprotected { " null" } else { "" });
    let name = label(&name, most);
    println!("{name:<14} {per_gigabyte:>10.3} {per_packet:>12.0} {packets:>10}");
}

fn carry(name: &str, ways: &[Way], most: Option<u32>) {
    const BYTES: usize = 32 << 20;
    let mut pair = connected(ways.to_vec(), false, config(most));
    let (before, started) = (pair.delivered, pair.now);
    pair.upload(BYTES, Duration::from_secs(600));
    let seconds = pair.now.since(started).as_secs_f64();
    let packets = pair.delivered - before;
    let connection = pair.client_conn();
    let paths: Vec<_> = connection.paths().collect();
    let stats = paths.iter().filter_map(|id| connection.path_stats(*id));
    let lost: u64 = stats.map(|stats| stats.counters.lost_packets).sum();
    let rate = BYTES as f64 * 8e-6 / seconds;
    let name = label(name, most);
    println!("{name:<32} {rate:>6.2} {packets:>10} {lost:>10}");
}
