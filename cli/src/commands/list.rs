//! `anabranch schedulers` and `anabranch congestion`: what there is.

use crate::args::Listing;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::Table;
use anabranch_proto::congestion::Registry as Controllers;
use anabranch_proto::sched::Registry as Schedulers;
use anabranch_proto::spec::ParamDoc;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    is_default: bool,
    parameters: Vec<Parameter>,
}

#[derive(Debug, Serialize)]
struct Parameter {
    key: &'static str,
    default: &'static str,
    summary: &'static str,
}

/// Lists the schedulers.
pub(crate) fn schedulers(args: &Listing) -> Outcome {
    let registry = Schedulers::builtin();
    let default = anabranch_proto::sched::SchedulerFactory::default();
    let entries = registry.entries().iter();
    let entries = entries.map(|entry| {
        make(
            entry.name,
            entry.summary,
            entry.params,
            entry.name == default.name(),
        )
    });
    show(&entries.collect::<Vec<_>>(), args.json)
}

/// Lists the congestion controls.
pub(crate) fn congestion(args: &Listing) -> Outcome {
    let registry = Controllers::builtin();
    let default = anabranch_proto::congestion::ControllerFactory::default();
    let entries = registry.entries().iter();
    let entries = entries.map(|entry| {
        make(
            entry.name,
            entry.summary,
            entry.params,
            entry.name == default.name(),
        )
    });
    show(&entries.collect::<Vec<_>>(), args.json)
}

fn make(
    name: &'static str,
    summary: &'static str,
    params: &'static [ParamDoc],
    is_default: bool,
) -> Entry {
    let parameters = params.iter().map(|doc| Parameter {
        key: doc.key,
        default: doc.default,
        summary: doc.summary,
    });
    Entry {
        name,
        summary,
        is_default,
        parameters: parameters.collect(),
    }
}

fn show(entries: &[Entry], json: bool) -> Outcome {
    if json {
        output::json(&entries)
    } else {
        output::data(table(entries))
    }
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["name", "default", "what it does"]);
    for entry in entries {
        let mark = if entry.is_default { "*" } else { "" };
        table.row([entry.name.into(), mark.into(), entry.summary.into()]);
        for parameter in &entry.parameters {
            let key = format!("  {}=", parameter.key);
            table.row([
                key,
                parameter.default.into(),
                format!("  {}", parameter.summary),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_and_parameter_has_its_line() {
        let docs: &'static [ParamDoc] = &[ParamDoc {
            key: "mode",
            default: "skip",
            summary: "which turns count",
        }];
        let entries = [
            make("one", "does one thing", docs, true),
            make("two", "another", &[], false),
        ];
        let text = table(&entries).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("one") && lines[1].contains('*'));
        assert!(lines[2].contains("mode=") && lines[2].contains("skip"));
    }
}
