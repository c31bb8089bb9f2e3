//! `anabranch lab compare`: two results side by side.

use super::report::failure;
use crate::args::report::Compare;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_report::{Comparison, Folder, Judgement, Line, Options, compare};
use anabranch_schedulers::Names;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Runs the command.
pub(super) async fn run(args: &Compare, names: &Arc<Names>, quiet: bool) -> Outcome {
    let names = Arc::clone(names);
    let (first, second) = (args.first.clone(), args.second.clone());
    let options = Options {
        goodput: args.goodput / 100.0,
        completion: args.completion / 100.0,
        ..Options::default()
    };
    let work = spawn_blocking(move || {
        let first = Folder::load_all(&first, &names)?;
        let second = Folder::load_all(&second, &names)?;
        compare(&first, &second, &options)
    });
    let done = work
        .await
        .map_err(|error| Failure::failed(format!("no comparison: {error}")))?;
    let comparison = done.map_err(|error| failure(&error))?;
    if args.csv {
        output::raw(comparison.csv().as_bytes())?;
    } else if args.json {
        for line in &comparison.lines {
            output::json(line)?;
        }
    } else {
        let table = table(&comparison, args.all);
        if !table.is_empty() {
            output::data(table)?;
        }
    }
    for remark in &comparison.remarks {
        output::say(remark);
    }
    if !quiet {
        say_counts(&comparison);
    }
    verdict(&comparison)
}

fn table(comparison: &Comparison, all: bool) -> Table {
    let mut table = Table::new(&[
        "scenario",
        "at",
        "contender",
        "metric",
        ">first",
        ">second",
        ">ratio",
        ">95 %",
        ">allowed",
        ">runs",
        "verdict",
    ]);
    let shown = |line: &&Line| all || line.judgement != Judgement::Agrees;
    for line in comparison.lines.iter().filter(shown) {
        let value = |value: Option<f64>| match (value, line.metric) {
            (Some(value), "goodput") => units::bit_rate(value),
            (Some(value), _) => format!("{value:.3} s"),
            (None, _) => "-".into(),
        };
        let interval = match (line.low, line.high) {
            (Some(low), Some(high)) => format!("{low:.3} to {high:.3}"),
            _ => "-".into(),
        };
        table.row([
            line.scenario.clone(),
            line.point.clone(),
            line.contender.clone(),
            line.metric.into(),
            value(line.first),
            value(line.second),
            line.ratio
                .map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}")),
            interval,
            format!("{:.0} %", line.tolerance * 100.0),
            format!("{}/{}", line.runs.0, line.runs.1),
            line.judgement.name().into(),
        ]);
    }
    table
}

fn say_counts(comparison: &Comparison) {
    let count = |judgement| comparison.count(judgement);
    output::say(format!(
        "{}: {} agreed, {} unclear, {} disagreed, {} missing",
        units::counted(comparison.lines.len(), "figure"),
        count(Judgement::Agrees),
        count(Judgement::Unclear),
        count(Judgement::Disagrees),
        count(Judgement::Missing),
    ));
}

fn verdict(comparison: &Comparison) -> Outcome {
    if comparison.is_good() {
        return Ok(());
    }
    Err(Failure::failed(
        "the results do not agree within the tolerance",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(judgement: Judgement) -> Line {
        Line {
            scenario: "s".into(),
            point: String::new(),
            contender: "anabranch".into(),
            metric: "goodput",
            first: Some(2e7),
            second: Some(1.8e7),
            runs: (5, 5),
            paired: true,
            ratio: Some(0.9),
            low: Some(0.88),
            high: Some(0.92),
            tolerance: 0.05,
            judgement,
        }
    }

    fn comparison(judgements: &[Judgement]) -> Comparison {
        Comparison {
            lines: judgements.iter().map(|one| line(*one)).collect(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn disagreement_and_gaps_fail_the_command_and_doubt_does_not() {
        use Judgement::{Agrees, Disagrees, Missing, Unclear};
        assert!(verdict(&comparison(&[Agrees, Unclear])).is_ok());
        for bad in [Disagrees, Missing] {
            let failure = verdict(&comparison(&[Agrees, bad])).unwrap_err();
            assert!(matches!(failure, Failure::Failed(_)), "exit code 1");
        }
    }

    #[test]
    fn the_table_shows_what_does_not_agree_and_all_if_asked() {
        let comparison = comparison(&[Judgement::Agrees, Judgement::Disagrees]);
        let text = table(&comparison, false).to_string();
        assert!(
            text.contains("DISAGREES") && !text.contains("agrees"),
            "{text}"
        );
        assert!(
            text.contains("0.900") && text.contains("0.880 to 0.920"),
            "{text}"
        );
        assert!(table(&comparison, true).to_string().contains("agrees"));
    }
}
