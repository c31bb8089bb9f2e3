//! This engine beside quinn, noq and s2n-quic over loopback: bulk, small requests, handshakes and
//! many connections.
//!
//! Each stack does the same work in a process of its own, so that processor time is counted apart,
//! with server and client in it; stacks take turns, so that drift of the machine hits all alike.
//! Printed are medians and, pair by pair, the ratio to the first stack.
//!
//! `cargo bench -p anabranch-interop --bench stacks [-- WORK [AMOUNT [ROUNDS [STACK...]]]]`: WORK
//! is `bulk` (AMOUNT in MB), `requests` (in thousands), `handshakes` or `connections`; all of them
//! if none is given, and all stacks.
//!
//! With `--features quiche` quiche takes part, whose `BoringSSL` takes minutes to compile, and
//! cmake, a C++ compiler and libclang; with `--features aws-lc` this engine once more, with AWS-LC
//! in the place of ring.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot run has nothing to say"
)]

mod stack;
mod workload;

#[cfg(feature = "aws-lc")]
use stack::AwsLc;
#[cfg(feature = "quiche")]
use stack::Quiche;
use stack::{Anabranch, Noq, Quinn, S2n};
use std::process::Command;
use std::time::Duration;
use workload::{Cost, Workload};

const CONTENDERS: &[&str] = &[
    "quinn",
    "noq",
    "noq-2",
    "s2n-quic",
    #[cfg(feature = "quiche")]
    "quiche",
    #[cfg(feature = "quiche")]
    "quiche-x25519",
    "anabranch",
    "anabranch-2",
    #[cfg(feature = "aws-lc")]
    "anabranch-aws-lc",
];
/// The longest that one run may take.
const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["run", work, name, amount] => run(work, name, amount.parse().unwrap()),
        [] => {
            for work in Workload::ALL {
                compare(work, work.default_amount(), 5, CONTENDERS);
            }
        }
        [work, rest @ ..] => {
            let Some(work) = Workload::from_name(work) else {
                let known = Workload::ALL.map(Workload::name).join(", ");
                eprintln!("no work is called {work}; there are {known}");
                std::process::exit(2);
            };
            let given = |at: usize| rest.get(at).map(|a| a.parse().unwrap());
            let amount = given(0).unwrap_or(work.default_amount());
            let stacks = rest.get(2..).filter(|stacks| !stacks.is_empty());
            let stacks = stacks.unwrap_or(CONTENDERS);
            compare(work, amount, given(1).unwrap_or(5), stacks);
        }
    }
}

fn compare(work: Workload, amount: usize, rounds: usize, stacks: &[&str]) {
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); stacks.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for (name, costs) in stacks.iter().zip(&mut costs) {
            if !is_of_use(name, work) {
                continue;
            }
            let cost = measure(work, name, amount);
            costs.extend(cost.filter(|_| round > 0));
        }
        eprintln!("{}: round {round} of {rounds}", work.name());
    }
    report(work, amount, stacks, &costs);
}

/// Whether this work would say something about this stack.
fn is_of_use(name: &str, work: Workload) -> bool {
    let has_many_handshakes = matches!(work, Workload::Handshakes | Workload::Connections);
    match name {
        // Waiting until it takes a second path would be all that is measured.
        "noq-2" => !has_many_handshakes,
        // It differs in handshakes alone.
        "quiche-x25519" => has_many_handshakes,
        _ => true,
    }
}

/// One run in a process of its own; `None` if it failed, which is said.
fn measure(work: Workload, name: &str, amount: usize) -> Option<Cost> {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args(["run", work.name(), name, &amount.to_string()])
        .output()
        .unwrap();
    let line = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = line
        .split_whitespace()
        .filter_map(|figure| figure.parse().ok())
        .collect();
    if let (true, &[seconds, cpu, memory]) = (output.status.success(), figures.as_slice()) {
        return Some(Cost {
            seconds,
            cpu,
            memory,
        });
    }
    eprintln!("{name} failed: {}", String::from_utf8_lossy(&output.stderr));
    None
}

fn run(work: &str, name: &str, amount: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let work = Workload::from_name(work).unwrap();
    let cost = runtime.block_on(async {
        tokio::time::timeout(LIMIT, work_of(work, name, amount))
            .await
            .unwrap()
    });
    println!("{} {} {}", cost.seconds, cost.cpu, cost.memory);
    // Tasks of servers that wait for further clients end with the process.
    std::process::exit(0);
}

async fn work_of(work: Workload, name: &str, amount: usize) -> Cost {
    match name {
        "quinn" => work.run::<Quinn>(amount, 1).await,
        "noq" => work.run::<Noq>(amount, 1).await,
        "noq-2" => work.run::<Noq>(amount, 2).await,
        "s2n-quic" => work.run::<S2n>(amount, 1).await,
        #[cfg(feature = "quiche")]
        "quiche" => work.run::<Quiche>(amount, 1).await,
        #[cfg(feature = "quiche")]
        "quiche-x25519" => work.run::<Quiche<true>>(amount, 1).await,
        "anabranch" => work.run::<Anabranch>(amount, 1).await,
        "anabranch-2" => work.run::<Anabranch>(amount, 2).await,
        #[cfg(feature = "aws-lc")]
        "anabranch-aws-lc" => work.run::<Anabranch<AwsLc>>(amount, 1).await,
        other => panic!("no stack is called {other}"),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A figure of one run, in the unit that its column names.
type Figure = fn(&Cost, f64) -> f64;

fn report(work: Workload, amount: usize, stacks: &[&str], costs: &[Vec<Cost>]) {
    let time: (&str, Figure) = match work {
        Workload::Bulk => ("Gbit/s", |cost, megabytes| megabytes / 125.0 / cost.seconds),
        Workload::Requests => ("1000/s", |cost, thousands| thousands / cost.seconds),
        Workload::Handshakes => ("ms (median)", |cost, _| cost.seconds * 1e3),
        Workload::Connections => ("seconds", |cost, _| cost.seconds),
    };
    let load: (&str, Figure) = match work {
        Workload::Bulk => ("CPU s/GB", |cost, megabytes| cost.cpu * 1000.0 / megabytes),
        Workload::Requests => ("CPU us each", |cost, thousands| cost.cpu * 1e3 / thousands),
        Workload::Handshakes => ("CPU ms each", |cost, count| cost.cpu * 1e3 / count),
        Workload::Connections => ("kB each", |cost, count| cost.memory / 1e3 / count),
    };
    println!(
        "\n{} of {amount}\n{:<16} {:>12} {:>12}   both / {}",
        work.name(),
        "stack",
        time.0,
        load.0,
        stacks[0]
    );
    let amount = amount as f64;
    for (name, own) in stacks.iter().zip(costs).filter(|(_, own)| !own.is_empty()) {
        let all = |figure: Figure| median(own.iter().map(|cost| figure(cost, amount)).collect());
        let ratio = |figure: Figure| {
            let pairs = own.iter().zip(&costs[0]);
            median(
                pairs
                    .map(|(own, first)| figure(own, amount) / figure(first, amount))
                    .collect(),
            )
        };
        println!(
            "{name:<16} {:>12.2} {:>12.2}   {:.2} {:.2}",
            all(time.1),
            all(load.1),
            ratio(time.1),
            ratio(load.1)
        );
    }
}
