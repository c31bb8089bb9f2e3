//! Contenders against one of them, repetition by repetition, as a table.

use super::outcome::{Part, Status};
use super::schema::{Cell, Column, Kind, Table, number, tables};
use crate::scenario::nearest;
use crate::stats::{Comparison, compare, holm};
use std::fmt;

/// What cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComparisonError {
    /// There is no such contender.
    Contender {
        /// What was asked for.
        name: String,
        /// All there are.
        known: Vec<String>,
    },
    /// The table of runs has no such column of numbers.
    Metric {
        /// What was asked for.
        name: String,
        /// The most similar one.
        hint: Option<String>,
    },
}

impl fmt::Display for ComparisonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meant = |hint: Option<&String>| {
            hint.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
        };
        match self {
            Self::Contender { name, known } => {
                let near = nearest(name, known.iter().map(String::as_str));
                let (hint, known) = (meant(near.as_ref()), known.join(", "));
                write!(f, "there is no contender `{name}`{hint}; known: {known}")
            }
            Self::Metric { name, hint } => {
                let hint = meant(hint.as_ref());
                write!(f, "`runs` has no column of numbers `{name}`{hint}")
            }
        }
    }
}

impl std::error::Error for ComparisonError {}

/// The figure of each part, nothing where a run did not end well.
fn figures(parts: &[Part], metric: &str) -> Result<Vec<Option<f64>>, ComparisonError> {
    let made = tables(parts.iter());
    let Some(runs) = made.iter().find(|table| table.name == "runs") else {
        return Ok(vec![None; parts.len()]);
    };
    let numbers = runs
        .columns
        .iter()
        .filter(|column| column.kind != Kind::Text);
    let numbers: Vec<&str> = numbers.map(|column| column.name.as_str()).collect();
    let at = runs.columns.iter().position(|column| column.name == metric);
    let Some(at) = at.filter(|_| numbers.contains(&metric)) else {
        return Err(ComparisonError::Metric {
            name: metric.to_owned(),
            hint: nearest(metric, numbers.iter().copied()),
        });
    };
    let figure = |(part, row): (&Part, &Vec<Cell>)| match (part.outcome.status, &row[at]) {
        (Status::Ok, Cell::Whole(number)) => Some(*number as f64),
        (Status::Ok, Cell::Number(number)) => Some(*number),
        _ => None,
    };
    Ok(parts.iter().zip(&runs.rows).map(figure).collect())
}

/// The columns after those of swept keys.
const COLUMNS: [(&str, Kind, &str); 9] = [
    ("contender", Kind::Text, "who is compared"),
    ("baseline", Kind::Text, "with whom"),
    ("metric", Kind::Text, "the column of `runs`"),
    ("pairs", Kind::Whole, "repetitions in which both ended well"),
    (
        "ratio",
        Kind::Number,
        "geometric mean of the figure over the baseline's",
    ),
    (
        "low",
        Kind::Number,
        "lower end of its 95 % confidence interval",
    ),
    (
        "high",
        Kind::Number,
        "upper end of its 95 % confidence interval",
    ),
    (
        "p",
        Kind::Number,
        "Wilcoxon's signed-rank test, corrected for comparisons at this point (Holm)",
    ),
    (
        "single",
        Kind::Whole,
        "1 if it only tells what one path does alone",
    ),
];

/// Each contender against `baseline`, repetition by repetition, by a column of numbers of `runs`.
///
/// # Errors
/// There is no such contender or column.
pub fn comparison(parts: &[Part], baseline: &str, metric: &str) -> Result<Table, ComparisonError> {
    let mut known: Vec<&str> = Vec::new();
    for part in parts {
        if !known.contains(&part.contender.as_str()) {
            known.push(&part.contender);
        }
    }
    if !known.contains(&baseline) {
        return Err(ComparisonError::Contender {
            name: baseline.to_owned(),
            known: known.into_iter().map(ToOwned::to_owned).collect(),
        });
    }
    let figures = figures(parts, metric)?;
    let mut points: Vec<&Vec<(String, String)>> = Vec::new();
    for part in parts {
        if !points.contains(&&part.swept) {
            points.push(&part.swept);
        }
    }
    let keys: Vec<&String> = points.first().map_or(Vec::new(), |point| {
        point.iter().map(|(key, _)| key).collect()
    });
    let swept = keys.iter().map(|key| Column {
        name: format!("p.{key}"),
        kind: Kind::Text,
        about: "the swept value",
    });
    let fixed = COLUMNS.iter().map(|(name, kind, about)| Column {
        name: (*name).to_owned(),
        kind: *kind,
        about,
    });
    let mut rows = Vec::new();
    for point in points {
        let all: Vec<(&Part, Option<f64>)> = parts
            .iter()
            .zip(figures.iter().copied())
            .filter(|(part, _)| part.swept == *point)
            .collect();
        rows.extend(rows_of(&all, point, &known, [baseline, metric]));
    }
    Ok(Table {
        name: "comparison",
        columns: swept.chain(fixed).collect(),
        rows,
    })
}

/// The rows of one swept point: every contender but the baseline.
fn rows_of(
    all: &[(&Part, Option<f64>)],
    point: &[(String, String)],
    contenders: &[&str],
    [baseline, metric]: [&str; 2],
) -> Vec<Vec<Cell>> {
    let figure = |who: &str, repetition: u64| {
        let mut of = all.iter().filter(|(part, _)| part.contender == who);
        of.find(|(part, _)| part.repetition == repetition)
            .and_then(|(_, figure)| *figure)
    };
    let others = contenders.iter().filter(|who| **who != baseline);
    let compared: Vec<(&str, bool, Option<Comparison>)> = others
        .filter_map(|who| {
            let ours: Vec<&(&Part, Option<f64>)> = all
                .iter()
                .filter(|(part, _)| part.contender == *who)
                .collect();
            let single = ours.first()?.0.single;
            let pairs: Vec<(f64, f64)> = ours
                .iter()
                .filter_map(|(part, ours)| Some(((*ours)?, figure(baseline, part.repetition)?)))
                .collect();
            Some((*who, single, compare(&pairs)))
        })
        .collect();
    let tested = |(_, single, found): &(&str, bool, Option<Comparison>)| {
        found.and_then(|found| found.p).filter(|_| !single)
    };
    let values: Vec<f64> = compared.iter().filter_map(tested).collect();
    let mut corrected = holm(&values).into_iter();
    let mut rows = Vec::new();
    for one in &compared {
        let p = tested(one).and_then(|_| corrected.next());
        let (who, single, found) = one;
        let interval = found.and_then(|found| found.interval);
        let mut cells: Vec<Cell> = point
            .iter()
            .map(|(_, value)| Cell::Text(value.clone()))
            .collect();
        cells.extend([
            Cell::Text((*who).to_owned()),
            Cell::Text(baseline.to_owned()),
            Cell::Text(metric.to_owned()),
            Cell::Whole(found.map_or(0, |found| found.pairs as u64)),
            number(found.map(|found| found.ratio)),
            number(interval.map(|interval| interval.low)),
            number(interval.map(|interval| interval.high)),
            number(p),
            Cell::Whole(u64::from(*single)),
        ]);
        rows.push(cells);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Outcome;

    fn part(contender: &str, repetition: u64, point: &str, goodput: Option<f64>) -> Part {
        Part {
            contender: contender.into(),
            repetition,
            swept: vec![("delay".into(), point.into())],
            outcome: Outcome {
                status: if goodput.is_some() {
                    Status::Ok
                } else {
                    Status::Failed
                },
                goodput_bps: goodput,
                ..Outcome::default()
            },
            ..Part::default()
        }
    }

    fn cell<'a>(table: &'a Table, row: usize, name: &str) -> &'a Cell {
        let at = table.columns.iter().position(|column| column.name == name);
        &table.rows[row][at.unwrap()]
    }

    #[test]
    fn each_point_is_compared_in_pairs_of_runs_that_both_ended_well() {
        let mut parts = Vec::new();
        for (point, factor) in [("10ms", 2.0), ("90ms", 0.5)] {
            for repetition in 0..4 {
                let base = 1e6 * (repetition + 1) as f64;
                parts.push(part("base", repetition, point, Some(base)));
                let ours = (repetition != 3).then_some(base * factor);
                parts.push(part("ours", repetition, point, ours));
            }
        }
        let table = comparison(&parts, "base", "goodput_bps").unwrap();
        assert_eq!(table.rows.len(), 2);
        for (row, (point, factor)) in [("10ms", 2.0), ("90ms", 0.5)].into_iter().enumerate() {
            assert_eq!(cell(&table, row, "p.delay"), &Cell::Text(point.into()));
            assert_eq!(cell(&table, row, "contender"), &Cell::Text("ours".into()));
            assert_eq!(cell(&table, row, "pairs"), &Cell::Whole(3));
            let Cell::Number(ratio) = cell(&table, row, "ratio") else {
                panic!("{table:?}");
            };
            assert!((ratio - factor).abs() < 1e-9, "{ratio}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_told_with_the_nearest_name() {
        let parts = [part("blest", 0, "10ms", Some(1.0))];
        let error = comparison(&parts, "blets", "goodput_bps").unwrap_err();
        assert!(
            error.to_string().contains("did you mean `blest`"),
            "{error}"
        );
        let error = comparison(&parts, "blest", "godput_bps").unwrap_err();
        assert!(
            error.to_string().contains("did you mean `goodput_bps`"),
            "{error}"
        );
    }
}
