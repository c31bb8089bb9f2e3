//! Third paper: when does one path beat two?

use super::data::{Data, Worst, amount, figure, percent};
use super::{Check, Experiment, Statement, worked};

const BUFFERS: [&str; 3] = ["32KiB", "64KiB", "128KiB"];
const QUICK_TIME: (&str, &str) = ("flow.1.duration", "25s");

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        ids: &["critical-fig1"],
        source: "third paper, 3.2",
        about: "unequal rates put packets out of order",
        check: Check::Measured {
            scenario: include_str!("critical-fig1.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge: |data| reordering(data, "critical-fig1", "low"),
        },
    },
    Experiment {
        ids: &["critical-fig2"],
        source: "third paper, 3.2",
        about: "unequal delays put packets out of order",
        check: Check::Measured {
            scenario: include_str!("critical-fig2.toml"),
            quick: &[],
            quick_set: &[],
            quick_runs: None,
            judge: |data| reordering(data, "critical-fig2", "near"),
        },
    },
    Experiment {
        ids: &["critical-fig3-trace"],
        source: "third paper, 3.2",
        about: "receive buffer blocking caused by loss",
        check: Check::Exact(worked),
    },
    Experiment {
        ids: &["critical-fig4-trace"],
        source: "third paper, 3.2",
        about: "receive buffer blocking without loss",
        check: Check::Exact(worked),
    },
    Experiment {
        ids: &["critical-s1"],
        source: "third paper, 4.1",
        about: "rate, RTT and receive buffer",
        check: Check::Measured {
            scenario: include_str!("critical-s1.toml"),
            quick: &[
                (
                    "parameters.rate",
                    r#"["1Mbit/s", "2Mbit/s", "4Mbit/s", "7Mbit/s", "10Mbit/s"]"#,
                ),
                ("parameters.main-rtt", r#"["50ms", "100ms"]"#),
            ],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: s1,
        },
    },
    Experiment {
        ids: &["critical-s2"],
        source: "third paper, 4.2",
        about: "rate, loss and receive buffer",
        check: Check::Measured {
            scenario: include_str!("critical-s2.toml"),
            quick: &[
                ("parameters.rate", r#"["2Mbit/s", "10Mbit/s"]"#),
                ("parameters.loss", r#"["1%", "4%", "8%"]"#),
            ],
            quick_set: &[],
            quick_runs: Some(10),
            judge: s2,
        },
    },
    Experiment {
        ids: &["critical-s3a"],
        source: "third paper, 4.3",
        about: "RTT of the other path",
        check: Check::Measured {
            scenario: include_str!("critical-s3a.toml"),
            quick: &[],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: s3a,
        },
    },
    Experiment {
        ids: &["critical-s3b"],
        source: "third paper, 4.3",
        about: "RTTs with a constant sum",
        check: Check::Measured {
            scenario: include_str!("critical-s3b.toml"),
            quick: &[],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: s3b,
        },
    },
    Experiment {
        ids: &["critical-guard"],
        source: "third paper, 4.3",
        about: "guard and growing windows against what s3a and s3b find",
        check: Check::Measured {
            scenario: include_str!("critical-guard.toml"),
            quick: &[],
            quick_set: &[QUICK_TIME],
            quick_runs: None,
            judge: guarded,
        },
    },
];

fn reordering(data: &Data<'_>, id: &str, key: &str) -> Vec<Statement> {
    let peak = |value: &str| {
        data.mean("anabranch", &[(key, value)], |part| {
            part.outcome.reseq_peak_bytes.map(|b| b as f64)
        })
    };
    let values = data.values(key);
    let peaks: Vec<f64> = values.iter().map(|value| peak(value)).collect();
    // Two packets of 1472 bytes on each of two paths.
    let window = 2.0 * 1472.0 * 2.0;
    let rises = peaks.windows(2).all(|pair| pair[1] > pair[0]);
    let shown: Vec<String> = values
        .iter()
        .zip(&peaks)
        .map(|(v, p)| format!("{v}: {p:.0} B"))
        .collect();
    let equal = peaks.first().copied().unwrap_or(f64::NAN);
    vec![
        Statement::new(
            (id, "T1"),
            "peak re-sequencing grows with the asymmetry",
            "grows",
            shown.join(", "),
            rises && peaks.len() > 1,
        ),
        Statement::new(
            (id, "T1b"),
            "with equal paths it stays within the initial windows",
            "at most the initial window",
            format!("{equal:.0} B of {window:.0} B"),
            equal <= window,
        ),
    ]
}

/// A published change: from one point to another, by this many percent.
type Shift<'s> = ([&'s str; 3], [&'s str; 3], f64);

const SHIFTS: [Shift<'static>; 8] = [
    (
        ["1Mbit/s", "50ms", "128KiB"],
        ["10Mbit/s", "50ms", "128KiB"],
        424.2,
    ),
    (
        ["1Mbit/s", "50ms", "64KiB"],
        ["10Mbit/s", "50ms", "64KiB"],
        163.9,
    ),
    (
        ["1Mbit/s", "50ms", "32KiB"],
        ["10Mbit/s", "50ms", "32KiB"],
        39.6,
    ),
    (
        ["10Mbit/s", "50ms", "32KiB"],
        ["10Mbit/s", "50ms", "64KiB"],
        99.7,
    ),
    (
        ["10Mbit/s", "50ms", "32KiB"],
        ["10Mbit/s", "50ms", "128KiB"],
        303.6,
    ),
    (
        ["1Mbit/s", "100ms", "32KiB"],
        ["1Mbit/s", "100ms", "64KiB"],
        54.2,
    ),
    (
        ["1Mbit/s", "100ms", "32KiB"],
        ["1Mbit/s", "100ms", "128KiB"],
        60.6,
    ),
    (
        ["10Mbit/s", "50ms", "128KiB"],
        ["10Mbit/s", "100ms", "128KiB"],
        -49.8,
    ),
];

/// Goodput at a rate, RTT and buffer size.
fn s1_goodput(data: &Data<'_>, contender: &str, [rate, rtt, buffer]: [&str; 3]) -> f64 {
    let at = [("rate", rate), ("main-rtt", rtt), ("buffer", buffer)];
    data.goodput(contender, &at)
}

fn s1(data: &Data<'_>) -> Vec<Statement> {
    let id = "critical-s1";
    let at = |contender: &str, point: [&str; 3]| s1_goodput(data, contender, point);
    let mut all = Vec::new();
    for (from, to, published) in SHIFTS {
        let ours = (at("mp", to) / at("mp", from) - 1.0) * 100.0;
        let tolerance = if published.abs() < 100.0 {
            10.0
        } else {
            published.abs() * 0.1
        };
        let text = format!("MP from ({}) to ({})", from.join(" "), to.join(" "));
        let holds = (ours - published).abs() <= tolerance;
        let published = format!("{published:+.1} %");
        all.push(Statement::new(
            (id, "T1"),
            &text,
            &published,
            format!("{ours:+.1} %"),
            holds,
        ));
    }
    let (rates, rtts) = (data.values("rate"), data.values("main-rtt"));
    let mut never_worse = Worst::default();
    for rate in &rates {
        for rtt in &rtts {
            for buffer in BUFFERS {
                let point = [rate.as_str(), rtt.as_str(), buffer];
                let ratio = at("mp", point) / at("sp", point);
                never_worse.add(ratio, point.join(" "), ratio >= 0.98);
            }
        }
    }
    all.push(never_worse.statement((id, "T2"), "MP at least 0.98 of SP everywhere", "always"));
    all.extend(s1_gains(data));
    all
}

fn s1_gains(data: &Data<'_>) -> Vec<Statement> {
    let id = "critical-s1";
    let at = |contender: &str, point: [&str; 3]| s1_goodput(data, contender, point);
    let mut all = Vec::new();
    let (rates, rtts) = (data.values("rate"), data.values("main-rtt"));
    let gains = BUFFERS.map(|buffer| {
        let point = ["1Mbit/s", "50ms", buffer];
        at("mp", point) / at("sp", point)
    });
    let rising = gains.windows(2).all(|pair| pair[1] >= pair[0] * 0.98);
    let within = gains.iter().all(|gain| (1.75..=2.0).contains(gain));
    let shown = gains.map(figure).join(", ");
    all.push(Statement::new(
        (id, "T3"),
        "MP/SP at 1 Mbit/s, RTT 50: 1.75 to 2, rising with the buffer",
        "1.86, 1.96, 1.98",
        shown,
        rising && within,
    ));
    let flat: Vec<f64> = rtts
        .iter()
        .map(|rtt| at("mp", ["1Mbit/s", rtt, "128KiB"]))
        .collect();
    let (low, high) = extremes(&flat);
    all.push(Statement::new(
        (id, "T4"),
        "128 KB, 1 Mbit/s: RTT matters less than 2 %",
        "< 1 %",
        percent(high / low),
        high / low < 1.02,
    ));
    for buffer in BUFFERS {
        let knee = |contender: &str| knee(&rates, |rate| at(contender, [rate, "50ms", buffer]));
        let (mp, sp) = (knee("mp"), knee("sp"));
        // A curve that still rises at the last rate has its knee beyond it. If both curves do, the
        // grid cannot tell which comes first.
        let beyond = |rate: f64| {
            if rate.is_infinite() {
                "beyond the grid".to_owned()
            } else {
                format!("{rate} Mbit/s")
            }
        };
        let shown = format!("MP {}, SP {}", beyond(mp), beyond(sp));
        all.push(Statement::new(
            (id, "T5"),
            &format!("{buffer}: MP flattens at a lower rate than SP"),
            "sooner",
            shown,
            mp < sp,
        ));
    }
    all
}

/// The rate beyond which one more Mbit/s adds less than 2 %.
fn knee(rates: &[String], goodput: impl Fn(&str) -> f64) -> f64 {
    if rates.is_empty() || rates.iter().any(|rate| goodput(rate).is_nan()) {
        return f64::NAN;
    }
    for pair in rates.windows(2) {
        let (low, high) = (goodput(&pair[0]), goodput(&pair[1]));
        let step = amount(&pair[1]) - amount(&pair[0]);
        if (high / low - 1.0) / step < 0.02 {
            return amount(&pair[0]);
        }
    }
    f64::INFINITY
}

fn extremes(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

fn s2(data: &Data<'_>) -> Vec<Statement> {
    let id = "critical-s2";
    let at = |contender: &str, [rate, loss, buffer]: [&str; 3]| {
        data.goodput(
            contender,
            &[("rate", rate), ("loss", loss), ("buffer", buffer)],
        )
    };
    let (rates, losses) = (data.values("rate"), data.values("loss"));
    let (mut above, mut sure) = (Worst::default(), Worst::default());
    let mut most = [f64::NEG_INFINITY; 3];
    let (mut flat, mut falling) = (Worst::default(), Worst::default());
    for rate in &rates {
        for loss in &losses {
            for (index, buffer) in BUFFERS.iter().enumerate() {
                let point = [rate.as_str(), loss.as_str(), *buffer];
                let ratio = at("mp", point) / at("sp", point);
                above.add(ratio, point.join(" "), ratio > 1.0);
                let at = [("rate", point[0]), ("loss", point[1]), ("buffer", point[2])];
                let interval = data
                    .against("mp", "sp", &at)
                    .and_then(|found| found.interval);
                let low = interval.map_or(f64::NAN, |interval| interval.low);
                sure.add(low, point.join(" "), low > 1.0);
                most[index] = most[index].max(ratio);
            }
            if amount(loss) > 4.0 {
                let ratio = at("mp", [rate, loss, "128KiB"]) / at("mp", [rate, loss, "32KiB"]);
                flat.most(ratio, format!("{rate} {loss}"), ratio <= 1.15);
            }
        }
        for buffer in BUFFERS {
            for pair in losses.windows(2) {
                let change =
                    at("mp", [rate, &pair[1], buffer]) / at("mp", [rate, &pair[0], buffer]);
                falling.most(
                    change,
                    format!("{rate} {} {buffer}", pair[1]),
                    change <= 1.05,
                );
            }
        }
    }
    vec![
        above.statement((id, "T1"), "MP above SP at every point", "every point"),
        Statement::new(
            (id, "T1b"),
            "and so with the whole 95 % interval at 95 % of the points at least",
            "every point",
            sure.text(),
            mostly(&sure),
        ),
        s2_best_case(data),
        s2_largest(most),
        flat.statement(
            (id, "T3"),
            "above 4 % loss the buffer matters less than 15 %",
            "hardly at all",
        ),
        falling.statement(
            (id, "T4"),
            "goodput never rises with loss (5 % noise)",
            "falls",
        ),
        s2_rate(data),
    ]
}

/// Whether 95 % of the points were good.
fn mostly(points: &Worst) -> bool {
    let good = (points.count - points.bad) as f64;
    points.count > 0 && good >= 0.95 * points.count as f64
}

/// The largest gain with each buffer size.
fn s2_largest(most: [f64; 3]) -> Statement {
    let shown = most.map(percent).join(", ");
    let number = ("critical-s2", "T2b");
    Statement::new(number, "the largest gain anywhere", "", shown, true).told()
}

/// The gain in the "best case". As in section 4.1 of the paper, that is the highest rate at the
/// lowest RTT, the best network of the grid, not the largest gain.
fn s2_best_case(data: &Data<'_>) -> Statement {
    let gains = BUFFERS.map(|buffer| {
        let at = [("rate", "10Mbit/s"), ("loss", "1%"), ("buffer", buffer)];
        data.goodput("mp", &at) / data.goodput("sp", &at) - 1.0
    });
    let mut targets = gains.iter().zip([0.363, 0.841, 1.145]);
    let near = targets.all(|(ours, target)| (ours - target).abs() <= 0.25);
    let rising = gains.windows(2).all(|pair| pair[1] > pair[0]);
    Statement::new(
        ("critical-s2", "T2"),
        "the gain at 10 Mbit/s, 1 % grows with the buffer",
        "+36.3 %, +84.1 %, +114.5 %",
        gains.map(|gain| percent(gain + 1.0)).join(", "),
        near && rising,
    )
}

fn s2_rate(data: &Data<'_>) -> Statement {
    let id = "critical-s2";
    let mut useless = Worst::default();
    let losses = data.values("loss");
    for loss in losses.iter().filter(|loss| amount(loss) >= 4.0) {
        for buffer in BUFFERS {
            let at = |rate: &str| {
                data.goodput("mp", &[("rate", rate), ("loss", loss), ("buffer", buffer)])
            };
            let gain = at("10Mbit/s") / at("2Mbit/s");
            useless.most(gain, format!("{loss} {buffer}"), gain < 1.25);
        }
    }
    useless.statement(
        (id, "T4b"),
        "from 4 % loss on, 10 instead of 2 Mbit/s bring less than 25 %",
        "flat from 2 Mbit/s",
    )
}

fn s3a(data: &Data<'_>) -> Vec<Statement> {
    let id = "critical-s3a";
    let at = |contender: &str, rtt: &str, buffer: &str| {
        data.goodput(contender, &[("other-rtt", rtt), ("buffer", buffer)])
    };
    let ratio = |rtt: &str, buffer: &str| at("mp", rtt, buffer) / at("sp", rtt, buffer);
    let rtts = data.values("other-rtt");
    let equal = BUFFERS.map(|buffer| ratio("50ms", buffer));
    let close = (equal[0] - 1.0).abs() <= 0.1 && (equal[1] - 1.0).abs() <= 0.1;
    let mut all = vec![Statement::new(
        (id, "T1"),
        "equal RTTs: MP/SP within 10 % of 1 (32, 64 KB), 1 to 1.15 (128 KB)",
        "about 1, about 1, above 1",
        equal.map(figure).join(", "),
        close && (1.0..=1.15).contains(&equal[2]),
    )];
    for (buffer, published) in BUFFERS.iter().zip([-47.3, -41.5, -48.7]) {
        let curve: Vec<f64> = rtts.iter().map(|rtt| at("mp", rtt, buffer)).collect();
        let falls = curve.windows(2).all(|pair| pair[1] <= pair[0] * 1.02);
        let fall = at("mp", "100ms", buffer) / at("mp", "50ms", buffer);
        all.push(Statement::new(
            (id, "T2"),
            &format!("{buffer}: MP falls with the other RTT, by 35 to 55 % in all"),
            &format!("{published:+.1} %"),
            percent(fall),
            falls && (0.45..=0.65).contains(&fall),
        ));
    }
    let mut below = Worst::default();
    for rtt in rtts.iter().filter(|rtt| amount(rtt) >= 60.0) {
        for buffer in BUFFERS {
            let ratio = ratio(rtt, buffer);
            below.most(ratio, format!("{rtt} {buffer}"), ratio < 1.0);
        }
    }
    let crossover = ratio("50ms", "128KiB") >= 1.0 && ratio("60ms", "128KiB") < 1.0;
    let shown = format!(
        "{}; 128KiB: {} at 50, {} at 55, {} at 60",
        below.text(),
        figure(ratio("50ms", "128KiB")),
        figure(ratio("55ms", "128KiB")),
        figure(ratio("60ms", "128KiB"))
    );
    all.push(Statement::new(
        (id, "T3"),
        "MP below SP from RTT 60 on; crossover of 128 KB between 50 and 60",
        "above 55 ms",
        shown,
        below.all_good() && crossover,
    ));
    all
}

fn s3b(data: &Data<'_>) -> Vec<Statement> {
    let id = "critical-s3b";
    let at = |contender: &str, rtt: &str, buffer: &str| {
        data.goodput(contender, &[("main-rtt", rtt), ("buffer", buffer)])
    };
    let rtts = data.values("main-rtt");
    let (mut rises, mut below, mut bounded) =
        (Worst::default(), Worst::default(), Worst::default());
    let mut fall = (1.0, String::new());
    for buffer in BUFFERS {
        for pair in rtts.windows(2) {
            let (before, after) = (at("sp", &pair[0], buffer), at("sp", &pair[1], buffer));
            // Once the link is full, goodput cannot rise any further.
            let good = after >= before * 0.98 || after > 9.2;
            rises.add(after / before, format!("{} {buffer}", pair[1]), good);
        }
        let limit = if buffer == "128KiB" { 40.0 } else { 49.9 };
        for rtt in &rtts {
            let ratio = at("mp", rtt, buffer) / at("sp", rtt, buffer);
            if amount(rtt) <= limit {
                below.most(ratio, format!("{rtt} {buffer}"), ratio < 1.0);
            }
            let change = at("mp", rtt, buffer) / at("mp", "50ms", buffer);
            bounded.most(change, format!("{rtt} {buffer}"), change <= 1.05);
            if change < fall.0 {
                fall = (change, format!("{rtt} {buffer}"));
            }
        }
    }
    let in_range = (0.3..=0.6).contains(&fall.0);
    vec![
        rises.statement(
            (id, "T1"),
            "SP rises as its RTT shrinks, until the link is full",
            "rises",
        ),
        below.statement(
            (id, "T2"),
            "MP below SP (32, 64 KB: below 50; 128 KB: from 40 down)",
            "in most cases",
        ),
        bounded.statement(
            (id, "T3"),
            "MP never more than 5 % above its value at 50/50",
            "falls",
        ),
        Statement::new(
            (id, "T3b"),
            "largest fall 40 to 70 %",
            "-64.1 %",
            format!("{} at {}", percent(fall.0), fall.1),
            in_range,
        ),
    ]
}

/// The effect that the paper warns of must show without the remedy, and must not with it. The
/// remedy has two parts; each is also tried alone.
fn guarded(data: &Data<'_>) -> Vec<Statement> {
    let id = "critical-guard";
    let (mut on, mut off, mut windows) = (Worst::default(), Worst::default(), Worst::default());
    let (mut guard, mut fixed) = (Vec::new(), Vec::new());
    let (mains, others) = (data.zipped("main-rtt"), data.zipped("other-rtt"));
    for (main, other) in mains.iter().zip(&others) {
        let at = [("main-rtt", main.as_str()), ("other-rtt", other.as_str())];
        let ratio = |mp: &str, sp: &str| data.goodput(mp, &at) / data.goodput(sp, &at);
        let place = format!("{main}/{other}");
        let with = ratio("on", "on-single");
        on.add(with, place.clone(), with >= 0.98);
        for grown in ["windows", "windows-rr"] {
            let with = ratio(grown, "on-single");
            windows.add(with, format!("{place} {grown}"), with >= 0.98);
        }
        guard.push(figure(ratio("guard", "off-single")));
        fixed.push(figure(ratio("fixed-min-rtt", "off-single")));
        if amount(other) >= 60.0 {
            let without = ratio("off", "off-single");
            off.most(without, place, without < 1.0);
        }
    }
    vec![
        on.statement(
            (id, "G1"),
            "with guard and growing windows MP is at least 0.98 of SP at every point",
            "(ours)",
        ),
        off.statement(
            (id, "G2"),
            "without them MP is below SP wherever the other RTT is 60 or more",
            "above 55 ms",
        ),
        windows.statement(
            (id, "G3"),
            "growing windows alone, tail+min-rtt or round-robin: MP at least 0.98 of SP everywhere",
            "(ours)",
        ),
        Statement::new(
            (id, "G4"),
            "the guard alone, with fixed windows: MP/SP at each point",
            "(ours)",
            guard.join(", "),
            true,
        )
        .told(),
        Statement::new(
            (id, "G5"),
            "fixed windows and no guard, but min-rtt: MP/SP at each point",
            "(ours)",
            fixed.join(", "),
            true,
        )
        .told(),
    ]
}
