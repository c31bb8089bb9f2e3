//! Second paper: schedulers of multipath TCP in namespaces.

use super::data::{Data, figure};
use super::{Check, Experiment, Statement};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    ids: &[
        "nitk-lowrtt",
        "nitk-roundrobin",
        "nitk-blest",
        "nitk-table1",
    ],
    source: "second paper, 4.2",
    about: "three schedulers over 5 and 10 Mbit/s",
    check: Check::Measured {
        scenario: include_str!("nitk.toml"),
        quick: &[],
        quick_set: &[],
        quick_runs: None,
        judge,
    },
}];

const SCHEDULERS: [&str; 3] = ["lowrtt", "rr", "blest"];

fn judge(data: &Data<'_>) -> Vec<Statement> {
    let id = "nitk-table1";
    let steady = SCHEDULERS.map(|who| rate(data, who, 2.0, 10.0));
    let first = SCHEDULERS.map(|who| rate(data, who, 0.0, 1.0));
    let means = SCHEDULERS.map(|who| data.goodput(who, &[]));
    let best = data
        .goodput("only path1", &[])
        .max(data.goodput("only path2", &[]));
    let [least, most] = extremes(means);
    let in_order = means[0] >= means[1] && means[1] >= means[2];
    vec![
        Statement::new(
            (id, "T1"),
            "seconds 3 to 10: 13.4 to 14.8 Mbit/s for each scheduler",
            "14.15",
            steady.map(figure).join(", "),
            steady.iter().all(|rate| (13.4..=14.8).contains(rate)),
        ),
        Statement::new(
            (id, "T2"),
            "each at least 1.3 times the better path alone",
            "1.3",
            figure(least / best),
            least >= 1.3 * best,
        ),
        Statement::new(
            (id, "T3"),
            "largest over smallest mean at most 1.15",
            "1.13",
            figure(most / least),
            most / least <= 1.15,
        ),
        Statement::new(
            (id, "T4"),
            "order LowRTT, RR, BLEST",
            "14.8, 13.8, 13.1",
            means.map(figure).join(", "),
            in_order,
        )
        .told(),
        Statement::new(
            (id, "T5"),
            "the first second is well below steady state",
            "5.7 to 7.2",
            first.map(figure).join(", "),
            first
                .iter()
                .zip(steady)
                .all(|(first, steady)| *first < 0.75 * steady),
        ),
    ]
}

/// The smallest and the largest value; both are NaN if one value is.
fn extremes(values: [f64; 3]) -> [f64; 2] {
    if values.iter().any(|value| value.is_nan()) {
        return [f64::NAN; 2];
    }
    [f64::min, f64::max].map(|better| values.into_iter().fold(values[0], better))
}

/// Mean goodput in Mbit/s between two times.
fn rate(data: &Data<'_>, contender: &str, from: f64, to: f64) -> f64 {
    data.mean(contender, &[], |part| {
        let series = part.outcome.series.iter().filter(|bin| bin.path == 0);
        let within = series.filter(|bin| bin.t_s > from + 1e-9 && bin.t_s <= to + 1e-9);
        let bytes: u64 = within.map(|bin| bin.goodput_bytes).sum();
        Some(bytes as f64 * 8.0 / (to - from) / 1e6)
    })
}
