//! Fifth paper: the delivery-delay scheduler.

use super::data::{Data, Worst, amount, figure};
use super::preference::{self, Delays};
use super::{Check, Experiment, Statement, worked};
use anabranch_lab::scenario::{Document, Value};

const H_FILE: &str = include_str!("bremen-h.toml");

const H: &[&str] = &[
    "bremen-H1",
    "bremen-H2",
    "bremen-H3",
    "bremen-H4",
    "bremen-H5",
    "bremen-H6",
    "bremen-H7",
    "bremen-H8",
    "bremen-H9",
    "bremen-H10",
    "bremen-H11",
    "bremen-H12",
];

const QUICK_TIME: (&str, &str) = ("flow.1.duration", "8s");

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        ids: &["bremen-delay-validation"],
        source: "fifth paper, backup",
        about: "delay at the router is measured as configured",
        check: Check::Measured {
            scenario: include_str!("bremen-delay-validation.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge: validation,
        },
    },
    Experiment {
        ids: &["bremen-estimator"],
        source: "fifth paper",
        about: "worked example of the estimator",
        check: Check::Exact(worked),
    },
    Experiment {
        ids: &["bremen-selector-1", "bremen-selector-2"],
        source: "fifth paper",
        about: "decisions of the selector",
        check: Check::Exact(worked),
    },
    Experiment {
        ids: H,
        source: "fifth paper",
        about: "backward delay of subflow 1",
        check: Check::Measured {
            scenario: H_FILE,
            quick: &[(
                "parameters.bpd1",
                r#"["10ms", "40ms", "60ms", "150ms", "200ms", "250ms"]"#,
            )],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: |data| [h(data), h_waits(data)].concat(),
        },
    },
    Experiment {
        ids: &["bremen-router-A", "bremen-router-C", "bremen-router-G"],
        source: "fifth paper, backup",
        about: "delay scenarios with a router",
        check: Check::Measured {
            scenario: include_str!("bremen-router.toml"),
            quick: &[],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: |data| scenarios(data, "bremen-router", &["A", "C", "G"]),
        },
    },
    Experiment {
        ids: &[
            "bremen-simple-A",
            "bremen-simple-B",
            "bremen-simple-C",
            "bremen-simple-D",
            "bremen-simple-E",
            "bremen-simple-F",
        ],
        source: "fifth paper",
        about: "delay scenarios of two nodes",
        check: Check::Measured {
            scenario: include_str!("bremen-simple.toml"),
            quick: &[],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: |data| scenarios(data, "bremen-simple", &["A", "B", "C", "D", "E", "F"]),
        },
    },
    Experiment {
        ids: &[
            "bremen-extended-A",
            "bremen-extended-B",
            "bremen-extended-C",
            "bremen-extended-D",
            "bremen-extended-E",
        ],
        source: "fifth paper",
        about: "with a competing TCP flow",
        check: Check::Measured {
            scenario: include_str!("bremen-extended.toml"),
            quick: &[],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: |data| scenarios(data, "bremen-extended", &["A", "B", "C", "D", "E"]),
        },
    },
    Experiment {
        ids: &["bremen-rcvbuf"],
        source: "fifth paper",
        about: "arrival order, packet by packet",
        check: Check::Exact(worked),
    },
    Experiment {
        ids: &["bremen-dd-outlook", "bremen-intelligent-dd"],
        source: "fifth paper",
        about: "delays, packet by packet",
        check: Check::Exact(worked),
    },
];

/// Capacities in Mbit/s of subflows 1 and 2, as the files sweep them.
const CAPACITIES: [(&str, &str); 3] = [
    ("100Mbit/s", "100Mbit/s"),
    ("100Mbit/s", "10Mbit/s"),
    ("10Mbit/s", "10Mbit/s"),
];

/// Backward delays of subflow 1 in H1 to H12.
const BACKWARD: [&str; 12] = [
    "10ms", "20ms", "40ms", "60ms", "80ms", "100ms", "125ms", "150ms", "175ms", "200ms", "225ms",
    "250ms",
];

/// The scenarios that were run, numbered from 0, with their backward delays.
fn numbered(data: &Data<'_>) -> Vec<(usize, &'static str)> {
    let run = data.values("bpd1");
    let all = BACKWARD.into_iter().enumerate();
    all.filter(|(_, bpd)| run.iter().any(|value| value == bpd))
        .collect()
}

fn validation(data: &Data<'_>) -> Vec<Statement> {
    let delays = ["10Mbit/s", "100Mbit/s"].map(|rate| {
        data.mean("anabranch", &[("rate", rate)], |part| {
            part.outcome.unit_p50_s
        }) * 1000.0
    });
    // 20 ms and the transmission time of a packet of about 1050 bytes.
    let near = delays.iter().all(|delay| (20.0..=22.0).contains(delay));
    vec![Statement::new(
        ("bremen-delay-validation", "T1"),
        "one-way delay as configured at the router (ms)",
        "20",
        delays.map(figure).join(", "),
        near,
    )]
}

fn h(data: &Data<'_>) -> Vec<Statement> {
    let id = "bremen-H";
    let goodput = |who: &str, (r1, r2): (&str, &str), bpd: &str| {
        data.goodput(who, &[("rate1", r1), ("rate2", r2), ("bpd1", bpd)])
    };
    let share = |who: &str, (r1, r2): (&str, &str), bpd: &str, path: usize| {
        let at = [("rate1", r1), ("rate2", r2), ("bpd1", bpd)];
        data.mean(who, &at, |part| part.outcome.paths[path].owd_mean_s)
    };
    let [mut delay, mut equal, mut below, mut filled, mut never] =
        std::array::from_fn(|_| Worst::default());
    for capacity in CAPACITIES {
        for (index, bpd) in numbered(data) {
            let place = format!("H{} {}/{}", index + 1, capacity.0, capacity.1);
            for (path, configured) in [(0, 0.010), (1, 0.050)] {
                // A queue of up to a thousand packets only adds to the delay.
                let measured = share("dd", capacity, bpd, path);
                delay.add(measured - configured, place.clone(), measured >= configured);
            }
            let (dd, srtt, rr) = (
                goodput("dd", capacity, bpd),
                goodput("srtt", capacity, bpd),
                goodput("rr", capacity, bpd),
            );
            equal.most(
                (dd / srtt - 1.0).abs(),
                place.clone(),
                (dd / srtt - 1.0).abs() <= 0.05,
            );
            let strict = goodput("strict", capacity, bpd);
            if capacity == CAPACITIES[1] && index >= 7 {
                below.most(strict / srtt, place.clone(), strict <= 0.9 * srtt);
                filled.most(rr / srtt, place.clone(), rr <= 0.9 * srtt);
            } else {
                let most = rr.max(strict);
                let better = dd.max(srtt);
                never.most(most / better, place.clone(), most <= 1.05 * better);
            }
        }
    }
    vec![
        // Measured by the simulator's own clock: the delays cannot be less than configured.
        delay
            .statement(
                (id, "T1"),
                "delivery delays follow the configured ones",
                "10 and 50 ms + queue",
            )
            .told(),
        h_preferences(data),
        equal.statement((id, "T3"), "DD and sRTT within 5 % of each other", "equal"),
        below.statement(
            (id, "T4"),
            "strict RR at most 0.9 of sRTT at 100/10, H8..H12",
            "below",
        ),
        filled
            .statement((id, "T4a"), "the same of RR that fills windows", "below")
            .told(),
        never.statement(
            (id, "T4b"),
            "elsewhere RR at most 1.05 of the better",
            "below or equal",
        ),
    ]
}

/// Delivery delay always prefers subflow 1; the lowest RTT does so while that subflow's RTT is
/// below 60 ms.
fn h_preferences(data: &Data<'_>) -> Statement {
    let [forward1, forward2, backward2] = ["fpd1", "fpd2", "bpd2"].map(configured);
    let row = |(index, bpd): (usize, &str)| {
        let lowest = if index < 3 { 1 } else { 2 };
        let delays = [forward1, millis(bpd), forward2, backward2];
        (format!("H{}", index + 1), delays, [Some(1), Some(lowest)])
    };
    let rows: Vec<_> = numbered(data).into_iter().map(row).collect();
    preference::statement(("bremen-H", "T2"), &rows)
}

/// A delay of scenario H that is not swept, in whole milliseconds.
fn configured(key: &str) -> u64 {
    let file = Document::parse("bremen-h.toml", H_FILE).expect("a scenario of this crate");
    let parameters = file.root.get("parameters");
    match parameters
        .and_then(|all| all.get(key))
        .map(|node| &node.value)
    {
        Some(Value::Text(text)) => millis(text),
        _ => unreachable!("`{key}` is a time in the file"),
    }
}

/// A time from the files in whole milliseconds.
fn millis(text: &str) -> u64 {
    amount(text) as u64
}

/// Resequencing, which the delivery-delay scheduler is meant to reduce.
fn h_waits(data: &Data<'_>) -> Vec<Statement> {
    let id = "bremen-H";
    let wait = |who: &str, (r1, r2): (&str, &str), bpd: &str| {
        let at = [("rate1", r1), ("rate2", r2), ("bpd1", bpd)];
        data.mean(who, &at, |part| part.outcome.reseq_wait_mean_s)
    };
    let (mut waits, mut same) = (Worst::default(), Worst::default());
    for capacity in CAPACITIES {
        for (index, bpd) in numbered(data) {
            let place = format!("H{} {}/{}", index + 1, capacity.0, capacity.1);
            let (dd, srtt) = (wait("dd", capacity, bpd), wait("srtt", capacity, bpd));
            let apart = (dd - srtt).abs();
            if index >= 3 {
                waits.add(srtt - dd, place, dd <= srtt * 1.02 + 1e-4);
            } else {
                same.most(apart, place, apart <= srtt * 0.05 + 1e-4);
            }
        }
    }
    vec![
        waits.statement(
            (id, "T5"),
            "mean re-sequencing delay DD <= sRTT in H4..H12",
            "below",
        ),
        same.statement((id, "T5b"), "and equal in H1..H3", "equal"),
    ]
}

/// Forward and backward delays of both subflows by letter.
const LETTERS: [(&str, [&str; 4]); 7] = [
    ("A", ["10ms", "20ms", "20ms", "10ms"]),
    ("B", ["10ms", "10ms", "20ms", "10ms"]),
    ("C", ["10ms", "40ms", "20ms", "20ms"]),
    ("D", ["10ms", "20ms", "20ms", "40ms"]),
    ("E", ["10ms", "10ms", "20ms", "20ms"]),
    ("F", ["10ms", "200ms", "20ms", "400ms"]),
    ("G", ["10ms", "10ms", "10ms", "10ms"]),
];

fn scenarios(data: &Data<'_>, id: &str, letters: &[&str]) -> Vec<Statement> {
    let (mut equal, mut worst, mut same) = (Worst::default(), Worst::default(), Worst::default());
    for (letter, [fpd1, bpd1, fpd2, bpd2]) in LETTERS.iter().filter(|(l, _)| letters.contains(l)) {
        for (r1, r2) in CAPACITIES {
            let at = [
                ("rate1", r1),
                ("rate2", r2),
                ("fpd1", *fpd1),
                ("bpd1", *bpd1),
                ("fpd2", *fpd2),
                ("bpd2", *bpd2),
            ];
            let place = format!("{letter} {r1}/{r2}");
            let (dd, srtt, rr) = (
                data.goodput("dd", &at),
                data.goodput("srtt", &at),
                data.goodput("rr", &at),
            );
            equal.most(
                (dd / srtt - 1.0).abs(),
                place.clone(),
                (dd / srtt - 1.0).abs() <= 0.05,
            );
            worst.most(rr / dd.max(srtt), place.clone(), rr <= 1.05 * dd.max(srtt));
            if *letter == "G" && r1 == r2 {
                let spread = dd.max(srtt).max(rr) / dd.min(srtt).min(rr);
                same.most(spread, place, spread <= 1.03);
            }
        }
    }
    let mut all = vec![
        equal.statement((id, "T1"), "DD and sRTT within 5 % of each other", "equal"),
        worst.statement(
            (id, "T1b"),
            "RR worst, or equal within 5 %",
            "worst or equal",
        ),
    ];
    all.push(preferences(data, id, letters));
    if letters.contains(&"G") {
        all.push(same.statement((id, "T1c"), "equal paths: all three within 3 %", "equal"));
    }
    all
}

/// The preferences of the schedulers in each delay scenario: A distinguishes them, C inverts them.
fn preferences(data: &Data<'_>, id: &str, letters: &[&str]) -> Statement {
    let run = data.values("fpd2");
    let mut rows: Vec<(String, Delays, [Option<u32>; 2])> = Vec::new();
    for (letter, delays) in LETTERS.iter().filter(|(l, _)| letters.contains(l)) {
        let want = match *letter {
            "A" => [Some(1), None],
            "C" => [Some(1), Some(2)],
            "G" => [None, None],
            _ => [Some(1), Some(1)],
        };
        if !run.is_empty() {
            rows.push(((*letter).to_owned(), delays.map(millis), want));
        }
    }
    preference::statement((id, "T2"), &rows)
}
