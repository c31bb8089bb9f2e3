//! Fourth paper: bonding and multipath TCP over 3G.

use super::data::{Data, amount, figure};
use super::{Check, Experiment, Statement};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        ids: &["aveiro-lbd"],
        source: "fourth paper, IV-B",
        about: "bonding without shaping",
        check: Check::Measured {
            scenario: include_str!("aveiro-lbd.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: Some(2),
            judge: unshaped,
        },
    },
    Experiment {
        ids: &["aveiro-shaped"],
        source: "fourth paper, IV-B",
        about: "bonding with shaping",
        check: Check::Measured {
            scenario: include_str!("aveiro-shaped.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: Some(2),
            judge: shaped,
        },
    },
    Experiment {
        ids: &["aveiro-mptcp"],
        source: "fourth paper, IV-C",
        about: "multipath TCP over two uplinks",
        check: Check::Measured {
            scenario: include_str!("aveiro-mptcp.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: Some(3),
            judge: mptcp,
        },
    },
    Experiment {
        ids: &["aveiro-mptcp-sim"],
        source: "fourth paper, IV-C",
        about: "multipath TCP in simulation",
        check: Check::Measured {
            scenario: include_str!("aveiro-mptcp-sim.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: Some(5),
            judge: simulated,
        },
    },
    Experiment {
        ids: &["aveiro-small-files"],
        source: "fourth paper, IV-C",
        about: "file size",
        check: Check::Measured {
            scenario: include_str!("aveiro-small-files.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge: small_files,
        },
    },
];

fn unshaped(data: &Data<'_>) -> Vec<Statement> {
    let id = "aveiro-lbd";
    let ratio = data.goodput("two", &[]) / data.goodput("one", &[]);
    let (again, lost) = (needless(data), dropped(data));
    vec![
        Statement::new(
            (id, "T1"),
            "two channels over one below 0.95",
            "0.73",
            figure(ratio),
            ratio < 0.95,
        ),
        Statement::new(
            (id, "T3"),
            "two channels: at least 2 % came twice, five times what was dropped",
            "retransmissions without loss",
            format!("{} came twice, {} dropped", share(again), share(lost)),
            again >= 0.02 && again >= 5.0 * lost,
        )
        .if_measured(!again.is_nan()),
    ]
}

fn shaped(data: &Data<'_>) -> Vec<Statement> {
    let id = "aveiro-shaped";
    let (one, two) = (data.goodput("one", &[]), data.goodput("two", &[]));
    let again = needless(data);
    vec![
        Statement::new(
            (id, "T2"),
            "two channels over one: 1.8 to 2",
            "1.96",
            figure(two / one),
            (1.8..=2.0).contains(&(two / one)),
        ),
        Statement::new(
            (id, "T3"),
            "two channels: less than 2 % came twice",
            "almost none",
            share(again),
            again < 0.02,
        )
        .if_measured(!again.is_nan()),
        Statement::new(
            (id, "T4"),
            "one channel at 0.7 to 0.95 of 1 Mbit/s",
            "0.78",
            figure(one),
            (0.7..=0.95).contains(&one),
        ),
    ]
}

fn share(value: f64) -> String {
    if value.is_nan() {
        "-".to_owned()
    } else {
        format!("{:.2} %", value * 100.0)
    }
}

/// Bytes over two channels that arrived more than once, as a share of the data: their repetition
/// was needless.
fn needless(data: &Data<'_>) -> f64 {
    data.mean("two", &[], |part| {
        let again = part.outcome.duplicate_bytes? as f64;
        (part.outcome.bytes > 0).then(|| again / part.outcome.bytes as f64)
    })
}

/// Bytes of a packet of these scenarios.
const PACKET: f64 = 1440.0;

/// The share of the bytes sent over two channels that was in dropped packets.
fn dropped(data: &Data<'_>) -> f64 {
    data.mean("two", &[], |part| {
        let paths = part.outcome.paths.iter();
        let (mut lost, mut sent) = (0, 0);
        for path in paths {
            lost += path.lost_queue? + path.lost_random.unwrap_or(0);
            sent += path.sent_bytes;
        }
        (sent > 0).then(|| lost as f64 * PACKET / sent as f64)
    })
}

/// Congestion controls that the paper may have used; it does not say which.
const CONTROLS: [&str; 3] = [
    "both lia:coupling=all",
    "both olia:coupling=all",
    "both new-reno",
];

/// The margin for chance in samples of 60 s. Each has some 55 losses, and a rate inversely
/// proportional to the square root of their number varies by about 8 %, which the mean of five
/// samples halves.
const SPREAD: f64 = 0.15;

fn mptcp(data: &Data<'_>) -> Vec<Statement> {
    let id = "aveiro-mptcp";
    let (first, second) = (data.goodput("channel1", &[]), data.goodput("channel2", &[]));
    let one = f64::midpoint(first, second);
    let ratios = CONTROLS.map(|who| data.goodput(who, &[]) / one);
    vec![
        Statement::new(
            (id, "T1"),
            "both over one: at least one of LIA, OLIA, uncoupled within 1.2 to 1.7",
            "1.42",
            ratios.map(figure).join(", "),
            ratios.iter().any(|ratio| (1.2..=1.7).contains(ratio)),
        ),
        Statement::new(
            (id, "T2"),
            "the channels within 10 % of each other",
            "equal",
            figure(first / second),
            (0.9..=1.1).contains(&(first / second)),
        ),
    ]
}

fn simulated(data: &Data<'_>) -> Vec<Statement> {
    let id = "aveiro-mptcp-sim";
    let one = data.goodput("channel1", &[]);
    let ratios = CONTROLS.map(|who| data.goodput(who, &[]) / one);
    let spread = anabranch_lab::stats::Summary::of(&data.goodputs("channel1", &[]));
    let spread = spread.map_or(f64::NAN, |summary| {
        summary.deviation.unwrap_or(0.0) / summary.mean
    });
    vec![
        Statement::new(
            (id, "T1"),
            "one channel: the loss-limited 1.1 to 1.5 Mbit/s",
            "1.26",
            figure(one),
            (1.1..=1.5).contains(&one),
        ),
        Statement::new(
            (id, "T2"),
            "both over one: at least one of LIA, OLIA, uncoupled within 1.2 to 1.7",
            "1.43",
            ratios.map(figure).join(", "),
            ratios.iter().any(|ratio| (1.2..=1.7).contains(ratio)),
        ),
        Statement::new(
            (id, "T3"),
            "constant over the samples: relative deviation below 15 %",
            "constant",
            figure(spread),
            spread < SPREAD,
        ),
    ]
}

fn small_files(data: &Data<'_>) -> Vec<Statement> {
    let id = "aveiro-small-files";
    let ratio = |size: &str| {
        data.goodput("both", &[("size", size)]) / data.goodput("one", &[("size", size)])
    };
    let sizes = data.values("size");
    let small = ratio("8KiB");
    let large = ratio("8MiB");
    let passes = sizes.iter().find(|size| ratio(size) >= 1.2);
    let shown: Vec<String> = sizes
        .iter()
        .map(|size| format!("{size} {}", figure(ratio(size))))
        .collect();
    // 1.7 Mbit/s for two RTTs of 110 ms and a path's validation: some 70 KB.
    let passes_at = passes.map_or(f64::NAN, |size| {
        amount(size) * if size.ends_with("MiB") { 1024.0 } else { 1.0 }
    });
    vec![
        Statement::new(
            (id, "T1"),
            "small files: both like one, 0.95 to 1.1",
            "equal",
            figure(small),
            (0.95..=1.1).contains(&small),
        ),
        Statement::new(
            (id, "T1b"),
            "long streams reach the gain of aveiro-mptcp",
            "1.42",
            figure(large),
            large >= 1.2,
        ),
        Statement::new(
            (id, "T1c"),
            "the gain passes 1.2 within a factor 4 of 70 KB",
            "64 to 256 KiB expected",
            shown.join(", "),
            (16.0..=512.0).contains(&passes_at),
        ),
    ]
}
