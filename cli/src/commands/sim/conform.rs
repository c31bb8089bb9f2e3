//! `anabranch sim conform`: whether schedulers keep the promises users take for granted.

use crate::args::sim::Conform;
use crate::commands::interrupted;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use anabranch_lab::conformance::{Finding, Kit, Report};
use anabranch_schedulers::Names;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Runs the command.
pub(super) async fn run(args: &Conform, names: &Arc<Names>, quiet: bool) -> Outcome {
    let (specs, names) = (specs(args, names)?, Arc::clone(names));
    let work = spawn_blocking(move || {
        if !quiet {
            output::say("measuring what single paths can do");
        }
        let kit = Kit::new();
        let mut reports = Vec::new();
        for spec in specs {
            if !quiet {
                output::say(&spec);
            }
            reports.push(kit.check(&names, &spec).map_err(Failure::usage)?);
        }
        Ok(reports)
    });
    let done = tokio::select! {
        done = work => done,
        () = interrupted() => return Err(Failure::failed("interrupted")),
    };
    let done = done.map_err(|error| Failure::failed(format!("a check ended badly: {error}")))?;
    let reports = done?;
    show(&reports, args)?;
    verdict(&reports)
}

/// The schedulers to check. Mistakes are reported before anything runs.
fn specs(args: &Conform, names: &Names) -> Outcome<Vec<String>> {
    if args.all {
        let entries = names.schedulers.entries().iter();
        return Ok(entries.map(|entry| entry.name.to_owned()).collect());
    }
    for spec in &args.specs {
        names.scheduler(spec).map_err(Failure::usage)?;
    }
    Ok(args.specs.clone())
}

fn show(reports: &[Report], args: &Conform) -> Outcome {
    if args.json {
        for report in reports {
            for finding in &report.findings {
                output::json(&json(report, finding))?;
            }
        }
        return Ok(());
    }
    output::data(table(reports, args.kept))
}

/// A row for each broken rule, or with `all` for each finding; and a row for each scheduler that
/// conforms.
fn table(reports: &[Report], all: bool) -> Table {
    let mut table = Table::new(&[
        "scheduler",
        "verdict",
        "rule",
        "network",
        "figure",
        "reason",
    ]);
    for report in reports {
        let shown = report.findings.iter().filter(|one| all || !one.kept);
        for finding in shown {
            table.row([
                report.scheduler.clone(),
                name(finding).into(),
                finding.rule.name().into(),
                finding.network.into(),
                finding.figure.clone(),
                finding
                    .excuse
                    .filter(|_| !finding.kept)
                    .unwrap_or("")
                    .into(),
            ]);
        }
        if report.is_conformant() {
            let kept = report.findings.iter().filter(|one| one.kept).count();
            let count = report.findings.len();
            table.row([
                report.scheduler.clone(),
                "conforms".into(),
                format!("{kept} of {count} kept"),
            ]);
        }
    }
    table
}

fn name(finding: &Finding) -> &'static str {
    match (finding.kept, finding.excuse) {
        (true, _) => "kept",
        (false, Some(_)) => "excused",
        (false, None) => "BROKEN",
    }
}

fn json(report: &Report, finding: &Finding) -> serde_json::Value {
    serde_json::json!({
        "scheduler": report.scheduler,
        "rule": finding.rule.name(),
        "network": finding.network,
        "verdict": name(finding).to_lowercase(),
        "figure": finding.figure,
        "reason": finding.excuse.filter(|_| !finding.kept),
    })
}

fn verdict(reports: &[Report]) -> Outcome {
    let broken = reports.iter().filter(|report| !report.is_conformant());
    let broken: Vec<&str> = broken.map(|report| report.scheduler.as_str()).collect();
    if broken.is_empty() {
        return Ok(());
    }
    let failure = Failure::failed(format!("{} does not conform", broken.join(", ")));
    Err(failure.hint("docs/scheduler-reference.md says what each rule asks for"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::conformance::Rule;

    fn report(kept: bool, excuse: Option<&'static str>) -> Report {
        let finding = |rule, kept, excuse| Finding {
            rule,
            network: "wifi and lte",
            kept,
            excuse,
            figure: "1.2 s against 1 s".into(),
        };
        Report {
            scheduler: "mine:patience=3".into(),
            findings: vec![
                finding(Rule::Doubt, true, None),
                finding(Rule::BestPath, kept, excuse),
            ],
        }
    }

    fn args(specs: &[&str], all: bool) -> Conform {
        Conform {
            specs: specs.iter().map(ToString::to_string).collect(),
            all,
            kept: false,
            json: false,
        }
    }

    #[test]
    fn only_a_broken_rule_without_an_excuse_fails_the_command() {
        assert!(verdict(&[report(true, None), report(false, Some("by its nature"))]).is_ok());
        let failure = verdict(&[report(true, None), report(false, None)]).unwrap_err();
        assert!(matches!(failure, Failure::Failed(_)), "exit code 1");
        assert_eq!(failure.what(), "mine:patience=3 does not conform");
    }

    #[test]
    fn the_table_shows_what_was_broken_and_why_it_may_be() {
        let text = |kept, excuse, all| table(&[report(kept, excuse)], all).to_string();
        let broken = text(false, None, false);
        assert!(broken.contains("BROKEN   best path"), "{broken}");
        assert!(!broken.contains("conforms") && !broken.contains("doubt"));
        let excused = text(false, Some("by its nature"), false);
        assert!(excused.contains("excused") && excused.contains("by its nature"));
        assert!(excused.contains("conforms  1 of 2 kept"), "{excused}");
        assert!(text(true, None, true).contains("kept      doubt"));
        let row = json(&report(false, None), &report(false, None).findings[1]);
        assert_eq!(row["verdict"], "broken");
    }

    #[test]
    fn all_means_every_registered_scheduler_and_mistakes_name_what_is_nearest() {
        let names = Names::default();
        let all = specs(&args(&[], true), &names).unwrap();
        assert!(all.len() > 10 && all.contains(&"min-rtt".to_owned()));
        let chosen = specs(&args(&["round-robin:mode=fill"], false), &names);
        assert_eq!(chosen.unwrap(), ["round-robin:mode=fill"]);
        let failure = specs(&args(&["min-rtt", "blesd"], false), &names).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "exit code 2");
        assert!(failure.what().contains("did you mean `blest`?"));
    }
}
