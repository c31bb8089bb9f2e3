//! First paper: chunks over several connections per path.

use super::data::{Data, Worst, amount, figure};
use super::{Check, Experiment, Statement};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        ids: &["bth-concurrency"],
        source: "first paper, 5.1.1",
        about: "all paths carry the file at once",
        check: Check::Measured {
            scenario: include_str!("bth-concurrency.toml"),
            quick: &[],
            quick_set: &[("flow.1.bytes", "20MB")],
            quick_runs: None,
            judge: concurrency,
        },
    },
    Experiment {
        ids: &["bth-duplicate"],
        source: "first paper, 4.2.2",
        about: "every packet on both paths",
        check: Check::Measured {
            scenario: include_str!("bth-duplicate.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge: duplicate,
        },
    },
    Experiment {
        ids: &["bth-paths"],
        source: "first paper, table 2",
        about: "one, two, three paths",
        check: Check::Measured {
            scenario: include_str!("bth-paths.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge: paths,
        },
    },
    Experiment {
        ids: &["bth-chunk-size", "bth-chunk-count"],
        source: "first paper, table 1, figures 5.4 and 5.5",
        about: "chunk size, in turn and weighted",
        check: Check::Measured {
            scenario: include_str!("bth-chunk-size.toml"),
            quick: &[(
                "parameters.chunk",
                r#"["500B", "1500B", "3000B", "5000B", "5500B", "6000B", "7000B",
                    "10000B", "20000B"]"#,
            )],
            quick_set: &[],
            quick_runs: None,
            judge: chunks,
        },
    },
];

fn concurrency(data: &Data<'_>) -> Vec<Statement> {
    let id = "bth-concurrency";
    // The shares of each path in all repetitions; in every repetition all paths must take part.
    let mut shares: [Vec<f64>; 3] = Default::default();
    let mut whole = data.runs("rr", &[]).next().is_some();
    let mut all = whole;
    for part in data.runs("rr", &[]) {
        let paths = &part.outcome.paths;
        for (shares, path) in shares.iter_mut().zip(paths) {
            shares.extend(path.share);
        }
        all &= paths.len() == 3 && paths.iter().all(|path| path.share > Some(0.2));
        whole &= part.outcome.bytes > 0 && part.outcome.completion_s.is_some();
    }
    let mean = |shares: &Vec<f64>| shares.iter().sum::<f64>() / shares.len() as f64;
    let shown: Vec<String> = shares.iter().map(|one| figure(mean(one))).collect();
    vec![
        Statement::new(
            (id, "T1"),
            "all three paths carry a good part of the file",
            "interleaved",
            shown.join(", "),
            all,
        ),
        Statement::new(
            (id, "T2"),
            "the file arrives whole and in order",
            "identical",
            if whole { "whole" } else { "not whole" },
            whole,
        ),
    ]
}

fn duplicate(data: &Data<'_>) -> Vec<Statement> {
    let id = "bth-duplicate";
    let size = 10_000_000.0;
    let of = |cut: &str, get: fn(&anabranch_lab::results::Outcome) -> Option<f64>| {
        data.mean("anabranch", &[("cut", cut)], |part| get(&part.outcome))
    };
    let bytes = of("100s", |outcome| Some(outcome.bytes as f64));
    let twice = of("100s", |outcome| {
        outcome.duplicate_bytes.map(|bytes| bytes as f64)
    });
    let alone = data.mean("only first", &[("cut", "100s")], |part| {
        part.outcome.completion_s
    });
    let ours = of("100s", |outcome| outcome.completion_s);
    let cut = of("3s", |outcome| {
        outcome.completion_s.map(|_| outcome.bytes as f64)
    });
    vec![
        Statement::new(
            (id, "T1"),
            "the file arrives whole",
            "identical",
            figure(bytes),
            (bytes - size).abs() < 0.5,
        ),
        Statement::new(
            (id, "T2"),
            "discarded bytes over the file's size (2 copies)",
            "1",
            figure(twice / size),
            (0.9..=1.05).contains(&(twice / size)),
        ),
        Statement::new(
            (id, "T2b"),
            "no later than the faster path alone, plus a packet",
            "at most 1",
            figure(ours / alone),
            ours <= alone + 0.01,
        ),
        Statement::new(
            (id, "T3"),
            "with one path cut it still completes",
            "completes",
            figure(cut),
            (cut - size).abs() < 0.5,
        ),
    ]
}

fn paths(data: &Data<'_>) -> Vec<Statement> {
    let id = "bth-paths";
    let [one, two, three] = ["one", "two", "three"].map(|who| data.goodput(who, &[]));
    vec![
        Statement::new(
            (id, "T1"),
            "two paths over one: 1.5 to 2",
            "1.72",
            figure(two / one),
            (1.5..=2.0).contains(&(two / one)),
        ),
        Statement::new(
            (id, "T2"),
            "three paths over two: 1 to 1.1",
            "1.021",
            figure(three / two),
            (1.0..=1.1).contains(&(three / two)),
        ),
    ]
}

/// Published kB/s by chunk size: round robin, weighted.
const TABLE: [(&str, f64, f64); 18] = [
    ("500B", 41.81, 39.54),
    ("1000B", 153.128, 176.597),
    ("1500B", 332.918, 325.096),
    ("2000B", 578.664, 582.483),
    ("2500B", 857.507, 873.016),
    ("3000B", 1210.344, 1234.246),
    ("3500B", 1643.588, 1629.826),
    ("4000B", 2011.32, 2053.257),
    ("4500B", 2564.395, 2555.429),
    ("5000B", 3052.923, 3087.028),
    ("5500B", 3294.36, 3599.679),
    ("6000B", 3370.482, 4055.893),
    ("7000B", 3387.114, 4465.263),
    ("8000B", 3464.274, 4441.448),
    ("9000B", 3414.742, 4456.348),
    ("10000B", 3439.892, 4444.296),
    ("15000B", 3446.825, 4448.634),
    ("20000B", 3300.384, 4415.992),
];

fn chunks(data: &Data<'_>) -> Vec<Statement> {
    let id = "bth-chunk-size";
    // Converts Mbit/s to kB/s.
    let at = |who: &str, chunk: &str| data.goodput(who, &[("chunk", chunk)]) * 125.0;
    let sizes = data.values("chunk");
    let (mut equal, mut better, mut rr_flat, mut wrr_flat) = (
        Worst::default(),
        Worst::default(),
        Worst::default(),
        Worst::default(),
    );
    for chunk in &sizes {
        let (size, rr, wrr) = (amount(chunk), at("rr", chunk), at("wrr", chunk));
        let ratio = wrr / rr;
        if (1500.0..=5000.0).contains(&size) {
            equal.most((ratio - 1.0).abs(), chunk, (ratio - 1.0).abs() <= 0.05);
        }
        if size >= 6000.0 {
            better.add(ratio, chunk, ratio >= 1.2);
        }
        if size >= 5500.0 {
            let plateau = at("rr", "10000B");
            let apart = (rr / plateau - 1.0).abs();
            rr_flat.most(apart, chunk, apart <= 0.03);
        }
        if size >= 7000.0 {
            let plateau = at("wrr", "10000B");
            let apart = (wrr / plateau - 1.0).abs();
            wrr_flat.most(apart, chunk, apart <= 0.01);
        }
    }
    let slope = (at("rr", "5000B") / at("rr", "500B")).ln() / 10f64.ln();
    let plateau = at("wrr", "10000B") / at("rr", "10000B");
    vec![
        equal.statement(
            (id, "T1"),
            "WRR and RR within 5 % for 1500..5000 B",
            "equal",
        ),
        better.statement(
            (id, "T2"),
            "WRR/RR at least 1.2 from 6000 B on",
            "1.20 to 1.34",
        ),
        Statement::new(
            (id, "T2b"),
            "plateau of WRR/RR",
            "1.28 to 1.34",
            figure(plateau),
            (1.28..=1.34).contains(&plateau),
        ),
        rr_flat.statement((id, "T3"), "RR flat (3 %) from 5500 B on", "3390 kB/s"),
        wrr_flat.statement((id, "T3b"), "WRR flat (1 %) from 7000 B on", "4445 kB/s"),
        Statement::new(
            (id, "T4"),
            "log-log slope of RR from 500 to 5000 B: 1.6 to 2",
            "1.87",
            figure(slope),
            (1.6..=2.0).contains(&slope),
        ),
        Statement::new(
            ("bth-chunk-count", "T1"),
            "kB/s, RR/WRR (published)",
            "table 1",
            beside_the_table(data, &sizes),
            true,
        )
        .told(),
    ]
}

/// Our kB/s by chunk size, with the published ones in parentheses.
fn beside_the_table(data: &Data<'_>, sizes: &[String]) -> String {
    let at = |who: &str, chunk: &str| data.goodput(who, &[("chunk", chunk)]) * 125.0;
    let known = sizes
        .iter()
        .filter_map(|chunk| TABLE.iter().find(|(known, ..)| known == chunk));
    let row = |(chunk, rr, wrr): &(&str, f64, f64)| {
        let ours = (at("rr", chunk), at("wrr", chunk));
        format!("{chunk}: {:.0}/{:.0} ({rr:.0}/{wrr:.0})", ours.0, ours.1)
    };
    known.map(row).collect::<Vec<_>>().join(", ")
}
