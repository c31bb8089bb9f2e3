//! `[[path]]`: what `--path` says in one word, a key for each part of it.

use super::source::{Item, Table};
use anabranch_net::interfaces::spec::{MAX_PATHS_PER_INTERFACE, PathSpec, Selector, SpecOptions};
use anabranch_proto::wire::frame::PathStatus;

/// When a path is used.
const ROLES: [(&str, PathStatus); 2] = [
    ("always", PathStatus::Available),
    ("backup", PathStatus::Backup),
];

/// Reads all of them.
pub(super) fn read(item: &Item<'_>) -> Vec<PathSpec> {
    let paths = item.tables().into_iter().filter_map(path);
    let mut specs: Vec<PathSpec> = Vec::new();
    for (table, spec) in paths {
        if specs.iter().any(|one| one.selector == spec.selector) {
            table.wrong(format!("there are two of {}", spec.selector));
        }
        table.finish();
        specs.push(spec);
    }
    specs
}

fn path(table: Table<'_>) -> Option<(Table<'_>, PathSpec)> {
    let Some(interface) = table.item("interface") else {
        table.wrong("`interface` is missing: expected an interface, pattern, address or \"auto\"");
        return None;
    };
    let selector = interface.text().and_then(|text| {
        // Options have keys of their own.
        let read = text
            .parse::<PathSpec>()
            .map(|spec| (spec.selector, spec.options));
        match read {
            Ok((selector, options)) if options == SpecOptions::default() => Some(selector),
            Ok(_) => {
                interface
                    .wrong("expected an interface alone: options are keys, as role = \"backup\"");
                None
            }
            Err(error) => {
                interface.wrong(error.to_string());
                None
            }
        }
    });
    let mut options = SpecOptions::default();
    if let Some(role) = table.item("role") {
        options.status = role.word(&ROLES).unwrap_or(options.status);
    }
    let whole = |key: &str, range| table.item(key).and_then(|item| item.whole(range));
    if let Some(weight) = whole("weight", 1..=i64::from(u32::MAX)) {
        options.weight = weight as u32;
    }
    if let Some(priority) = whole("priority", i64::from(i32::MIN)..=i64::from(i32::MAX)) {
        options.priority = priority as i32;
    }
    if let Some(cost) = whole("cost", 0..=i64::from(u32::MAX)) {
        options.cost = cost as u32;
    }
    let paths = whole("paths", 1..=i64::from(MAX_PATHS_PER_INTERFACE));
    options.paths = paths.map(|paths| paths as u32);
    // What is wrong is noted: the rest is read all the same.
    let selector = selector.unwrap_or(Selector::Auto);
    Some((table, PathSpec { selector, options }))
}
