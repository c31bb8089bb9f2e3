//! `anabranch sim papers`: the experiments of the five papers.

use super::run::{Way, again, carry_out, same_twice};
use crate::args::sim::Papers;
use crate::commands::experiments;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_lab::repeat::Difference;
use anabranch_lab::results::Store;
use anabranch_lab::scenario::nearest;
use anabranch_papers::{
    Data, Expected, Experiment, Statement, Verdict, experiments, table as markdown,
};
use anabranch_schedulers::Names;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the command.
pub(super) async fn run(args: &Papers, names: &Arc<Names>, quiet: bool) -> Outcome {
    let chosen = chosen(&args.ids)?;
    if args.list {
        return list(&chosen);
    }
    let expected = expected(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    let way = Way {
        names,
        jobs: args.jobs,
        quiet,
        stop: &stop,
    };
    let mut statements = Vec::new();
    let mut changed: Vec<Difference> = Vec::new();
    for experiment in &chosen {
        if !quiet {
            output::say(format!("{}: {}", experiment.name(), experiment.about));
        }
        let found = one(experiment, args, way, &mut changed).await?;
        if args.json {
            for statement in &found {
                output::json(&json(statement))?;
            }
        }
        statements.extend(found);
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::failed("interrupted"));
        }
    }
    if args.markdown {
        output::data(markdown(&statements).trim_end())?;
    } else if !args.json {
        output::data(table(&statements))?;
    }
    let count = |verdict: Verdict| statements.iter().filter(|s| s.verdict == verdict).count();
    let (holds, fails, missing) = (
        count(Verdict::Holds),
        count(Verdict::Fails),
        count(Verdict::Missing),
    );
    output::say(format!(
        "{} held, {fails} did not, {missing} could not be run",
        units::counted(holds, "statement")
    ));
    if args.twice {
        same_twice(&changed)?;
    }
    match expected {
        Some(expected) => compare(&expected, &statements),
        None if fails + missing > 0 => Err(Failure::failed("not every statement holds")),
        None => Ok(()),
    }
}

/// The expected verdicts.
fn expected(args: &Papers) -> Outcome<Option<Expected>> {
    let Some(path) = &args.expect else {
        return Ok(None);
    };
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    let parsed = Expected::parse(&text).map_err(|why| {
        Failure::usage(format!("{name}: {why}")).hint("`--markdown` writes such a table")
    })?;
    Ok(Some(parsed))
}

fn compare(expected: &Expected, statements: &[Statement]) -> Outcome {
    let differences = expected.differences(statements);
    for difference in &differences {
        output::say(difference);
    }
    let what = match differences.len() {
        0 => return Ok(()),
        1 => "a statement came out otherwise than listed".to_owned(),
        count => format!("{count} statements came out otherwise than listed"),
    };
    Err(Failure::failed(what).hint("find out why; then write the table anew with `--markdown`"))
}

async fn one(
    experiment: &Experiment,
    args: &Papers,
    way: Way<'_>,
    changed: &mut Vec<Difference>,
) -> Outcome<Vec<Statement>> {
    let plan = match experiment.plan(args.full, way.names) {
        Ok(Some(plan)) => Arc::new(plan),
        Ok(None) => return Ok(experiment.judge(&Data::new(&[]))),
        Err(mistake) => {
            return Ok(vec![Statement::missing(
                &experiment.name(),
                &mistake.to_string(),
            )]);
        }
    };
    let store = match &args.out {
        Some(folder) => {
            let folder = folder.join(&plan.name);
            let opened = Store::open(&folder, &plan.name, &plan.expanded, "sim");
            Some(opened.map_err(Failure::usage)?)
        }
        None => None,
    };
    let results = carry_out(&plan, store.clone(), way).await?;
    if results.missing > 0 {
        // Half a grid would lead to wrong verdicts.
        return Err(Failure::failed("interrupted")
            .hint("with --out the same command goes on where it stopped"));
    }
    if let Some(store) = &store {
        store
            .write_tables(&results.parts, false)
            .map_err(Failure::failed)?;
    }
    if args.twice {
        changed.extend(again(&plan, &results.parts, way).await?);
    }
    Ok(experiment.judge(&Data::new(&results.parts)))
}

pub(in crate::commands) fn chosen(patterns: &[String]) -> Outcome<Vec<Experiment>> {
    let all = experiments();
    for pattern in patterns {
        if !all.iter().any(|experiment| experiment.is_meant_by(pattern)) {
            let failure = Failure::usage(format!("there is no experiment `{pattern}`"));
            let names: Vec<String> = all.iter().flat_map(Experiment::names).collect();
            return Err(match nearest(pattern, names.iter().map(String::as_str)) {
                Some(id) => failure.hint(format!("did you mean `{id}`? `--list` shows all")),
                None => failure.hint("`anabranch sim papers --list` shows all"),
            });
        }
    }
    let meant = |experiment: &Experiment| {
        patterns.is_empty()
            || patterns
                .iter()
                .any(|pattern| experiment.is_meant_by(pattern))
    };
    Ok(all.into_iter().filter(meant).collect())
}

fn list(experiments: &[Experiment]) -> Outcome {
    let mut table = Table::new(&["experiment", "source", "about"]);
    for experiment in experiments {
        table.row([
            experiments::name(experiment),
            experiment.source.into(),
            experiment.about.into(),
        ]);
    }
    experiments::print(table, experiments)
}

pub(in crate::commands) fn table(statements: &[Statement]) -> Table {
    let mut table = Table::new(&[
        "experiment",
        "",
        "statement",
        "published",
        "ours",
        "verdict",
    ]);
    for statement in statements {
        table.row([
            statement.experiment.clone(),
            statement.number.clone(),
            statement.text.clone(),
            short(&statement.published),
            short(&statement.ours),
            statement.verdict.name().into(),
        ]);
    }
    table
}

/// Shortens figures that are whole tables; `--json` has all of them.
fn short(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let begin: String = text.chars().take(MOST - 3).collect();
    format!("{begin}...")
}

fn json(statement: &Statement) -> serde_json::Value {
    serde_json::json!({
        "experiment": statement.experiment,
        "statement": statement.number,
        "text": statement.text,
        "published": statement.published,
        "ours": statement.ours,
        "verdict": match statement.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::Told => "told",
            Verdict::Missing => "missing",
        },
    })
}
