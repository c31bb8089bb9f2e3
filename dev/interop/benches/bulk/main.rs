//! Bulk transfer over loopback: this engine beside noq and quinn in one run.
//!
//! Each contender sends the same bytes from a server to a client in one process of its own, so that
//! processor time is counted apart; contenders take turns, so that drift of the machine hits all
//! alike. Printed are medians and, pair by pair, the ratio to quinn.
//!
//! `cargo bench -p anabranch-interop --bench bulk [-- MEGABYTES ROUNDS]`

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run has nothing to say"
)]

mod contenders;

use std::process::Command;
use std::time::Duration;

/// What one run cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

const CONTENDERS: [&str; 5] = ["quinn", "noq", "noq-2", "anabranch", "anabranch-2"];

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [role, name, megabytes] = arguments.as_slice()
        && role == "run"
    {
        return run(name, megabytes.parse().unwrap());
    }
    let megabytes: usize = arguments.first().map_or(512, |a| a.parse().unwrap());
    let rounds: usize = arguments.get(1).map_or(5, |a| a.parse().unwrap());
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); CONTENDERS.len()];
    for round in 0..=rounds {
        for (at, name) in CONTENDERS.iter().enumerate() {
            let cost = measure(name, megabytes);
            // The first round warms up.
            if let Some(cost) = cost.filter(|_| round > 0) {
                costs[at].push(cost);
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    report(megabytes, &costs);
}

/// One transfer in a process of its own; `None` if it failed, which is said.
fn measure(name: &str, megabytes: usize) -> Option<Cost> {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args(["run", name, &megabytes.to_string()])
        .output()
        .unwrap();
    let line = String::from_utf8_lossy(&output.stdout);
    let mut figures = line
        .split_whitespace()
        .filter_map(|figure| figure.parse().ok());
    if let (true, Some(wall), Some(cpu)) = (output.status.success(), figures.next(), figures.next())
    {
        return Some(Cost { wall, cpu });
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    eprintln!("{name} failed: {reason}");
    None
}

fn run(name: &str, megabytes: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let bytes = megabytes * 1_000_000;
    let before = cpu_seconds();
    let wall = runtime.block_on(async {
        let transfer = contenders::transfer(name, bytes);
        tokio::time::timeout(Duration::from_secs(120), transfer)
            .await
            .unwrap()
    });
    println!("{} {}", wall.as_secs_f64(), cpu_seconds() - before);
    // Tasks of servers that wait for further clients end with the process.
    std::process::exit(0);
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(megabytes: usize, costs: &[Vec<Cost>]) {
    println!(
        "{:<12} {:>8} {:>10} {:>14} {:>14}",
        "contender", "Gbit/s", "CPU s/GB", "rate / quinn", "CPU / quinn"
    );
    let gigabytes = megabytes as f64 / 1000.0;
    for (name, own) in CONTENDERS.iter().zip(costs) {
        let paired = || own.iter().zip(&costs[0]);
        println!(
            "{name:<12} {:>8.2} {:>10.2} {:>14.2} {:>14.2}",
            median(own.iter().map(|cost| gigabytes * 8.0 / cost.wall).collect()),
            median(own.iter().map(|cost| cost.cpu / gigabytes).collect()),
            median(paired().map(|(own, quinn)| quinn.wall / own.wall).collect()),
            median(paired().map(|(own, quinn)| own.cpu / quinn.cpu).collect()),
        );
    }
}
