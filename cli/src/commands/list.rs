//! `anabranch schedulers` and `anabranch congestion`: list what is available.

use crate::args::Listing;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::Table;
use anabranch_proto::spec::ParamDoc;
use anabranch_schedulers::{Names, RECOMMENDED};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    is_default: bool,
    /// Wraps another scheduler, as in `guard+blest`, and is not one itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_wrapper: bool,
    parameters: Vec<Parameter>,
}

#[derive(Debug, Serialize)]
struct Parameter {
    key: &'static str,
    default: &'static str,
    summary: &'static str,
}

/// Lists the schedulers.
pub(crate) fn schedulers(args: &Listing, names: &Names) -> Outcome {
    let registry = &names.schedulers;
    let entries = registry.entries().iter();
    let entries = entries.map(|entry| {
        make(
            entry.name,
            entry.summary,
            entry.params,
            entry.name == RECOMMENDED,
        )
    });
    let wrappers = registry.wrappers().iter().map(|wrapper| Entry {
        is_wrapper: true,
        ..make(wrapper.name, wrapper.summary, wrapper.params, false)
    });
    show(&entries.chain(wrappers).collect::<Vec<_>>(), args.json)
}

/// Lists the congestion controls.
pub(crate) fn congestion(args: &Listing, names: &Names) -> Outcome {
    let registry = &names.controllers;
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
        is_wrapper: false,
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
    let mut wraps = false;
    for entry in entries {
        if entry.is_wrapper && !std::mem::replace(&mut wraps, true) {
            table.row([String::new(), String::new(), String::new()]);
            let how = "around any of them, as in guard+blest:scale=1.1,guard.margin=0.9";
            table.row(["wrappers".into(), String::new(), how.into()]);
        }
        let mark = if entry.is_default { "*" } else { "" };
        let name = if entry.is_wrapper {
            format!("{}+", entry.name)
        } else {
            entry.name.into()
        };
        table.row([name, mark.into(), entry.summary.into()]);
        for parameter in &entry.parameters {
            let key = if entry.is_wrapper {
                format!("  {}.{}=", entry.name, parameter.key)
            } else {
                format!("  {}=", parameter.key)
            };
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

    #[test]
    fn wrappers_stand_apart_with_their_names_before_their_parameters() {
        let docs: &'static [ParamDoc] = &[ParamDoc {
            key: "margin",
            default: "0.95",
            summary: "how much is enough",
        }];
        let wrapper = Entry {
            is_wrapper: true,
            ..make("guard", "watches", docs, false)
        };
        let text = table(&[make("one", "does one thing", &[], true), wrapper]).to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines.len(), 6);
        assert!(lines[2].is_empty() && lines[3].starts_with("wrappers"));
        assert!(lines[4].starts_with("guard+"));
        assert!(lines[5].contains("guard.margin="));
    }
}
