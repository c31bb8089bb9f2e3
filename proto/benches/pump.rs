//! The engine alone: both ends of a transfer in one thread, datagrams handed over in memory.
//!
//! Prints seconds per gigabyte and nanoseconds per packet for one and two paths. What it leaves out
//! is the kernel; what it shows is the cost of the protocol itself, sender and receiver together.
//! With the feature `null-protection` also without packet protection, as simulations run.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../tests/engine/pair/mod.rs"]
mod pair;

use anabranch_proto::config::TransportConfig;
use pair::{Pair, Way};
use std::time::{Duration, Instant};

const BYTES: usize = 256 << 20;

fn main() {
    println!(
        "{:<10} {:>10} {:>12} {:>10}",
        "paths", "s/GB", "ns/packet", "packets"
    );
    #[cfg(feature = "null-protection")]
    let runs = [(1, false), (2, false), (1, true), (2, true)];
    #[cfg(not(feature = "null-protection"))]
    let runs = [(1, false), (2, false)];
    for (paths, unprotected) in runs {
        let ways = (1..=paths).map(|index| Way::new(index).delay(1)).collect();
        let mut config = TransportConfig::default();
        #[cfg(feature = "null-protection")]
        {
            config.null_protection = unprotected;
        }
        config.streams.max_receive_window = 8 << 20;
        config.streams.max_stream_receive_window = 8 << 20;
        let mut pair = Pair::new(ways, config);
        pair.discard = true;
        pair.connect();
        pair.open_all();
        let before = pair.delivered;
        let started = Instant::now();
        pair.upload(BYTES, Duration::from_secs(600));
        let seconds = started.elapsed().as_secs_f64();
        let packets = pair.delivered - before;
        let per_gigabyte = seconds * 1e9 / BYTES as f64;
        let per_packet = seconds * 1e9 / packets as f64;
        let name = format!("{paths}{}", if unprotected { " null" } else { "" });
        println!("{name:<10} {per_gigabyte:>10.3} {per_packet:>12.0} {packets:>10}");
    }
}
