//! Values from the command line that would not count: nothing is ignored silently.

use super::mistake;
use crate::scenario::{Document, Mistake, Node, PLANNING, Place, Value, nearest};

/// How much of what a key stands for another one stands for, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covered {
    All,
    Part,
    Nothing,
}

/// How much of `key` is written over by a value at `by`: the same place, or a table around it,
/// whichever way they name it.
pub(super) fn covered(document: &Document, key: &str, by: &str) -> Covered {
    let by = document.places(by);
    let places = document.places(key);
    let is_covered = |place: &&Vec<String>| by.iter().any(|by| place.starts_with(by));
    match places.iter().filter(is_covered).count() {
        0 => Covered::Nothing,
        count if count == places.len() => Covered::All,
        _ => Covered::Part,
    }
}

/// Complains about the first value set from the command line that sweeps replace in every run.
pub(super) fn none_is_swept(
    document: &Document,
    set: &[(String, String)],
    swept: &[String],
) -> Result<(), Mistake> {
    let replaced: Vec<_> = swept.iter().flat_map(|by| document.places(by)).collect();
    let is_replaced = |place: &Vec<String>| replaced.iter().any(|by| place.starts_with(by));
    for (key, value) in set {
        if !document.places(key).iter().all(is_replaced) {
            continue;
        }
        let touches = |by: &&String| covered(document, key, by) != Covered::Nothing;
        if let Some(by) = swept.iter().find(touches) {
            // A sweep of a part of it would be one of some of the same values.
            let other = match covered(document, by, key) {
                Covered::All => key,
                _ => by,
            };
            let what = format!(
                "its values come from the sweep of {by}, so that {value} would never count: to \
                 sweep other values, or this one alone, use --sweep {other}={value}"
            );
            return Err(mistake(document, Place::Given, key, what));
        }
    }
    Ok(())
}

/// Complains about the first key that is swept although all runs are planned by it.
pub(super) fn none_plans(document: &Document, swept: &[String]) -> Result<(), Mistake> {
    for key in swept {
        let first = key.split('.').next().unwrap_or_default();
        if PLANNING.contains(&first) {
            let what = format!("`{first}` says which runs there are, and cannot be swept");
            return Err(mistake(document, Place::Given, key, what));
        }
    }
    Ok(())
}

/// Complains about the first key that gives a parameter which neither the file nor another value
/// that is given names.
pub(super) fn parameters_exist(
    document: &Document,
    given: &[&(String, String)],
) -> Result<(), Mistake> {
    let known: Vec<&str> = match document.root.get("parameters").map(|node| &node.value) {
        Some(Value::Table(entries)) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    let is_named = |name: &str| {
        name == "*"
            || known.contains(&name)
            || given.iter().any(|(key, value)| {
                key == "parameters" || value.contains('=') && value.contains(name)
            })
    };
    for (key, _) in given {
        let name = key.strip_prefix("parameters.");
        if let Some(name) = name.filter(|name| !is_named(name)) {
            let what = match known[..] {
                [] => "the file has no parameters".to_owned(),
                _ => format!(
                    "the file has no such parameter: expected {}",
                    known.join(", ")
                ),
            };
            let mut mistake = mistake(document, Place::Given, key, what);
            mistake.hint = nearest(name, known.iter().copied());
            return Err(mistake);
        }
    }
    Ok(())
}

/// The keys of a `[sweep]`, those of lists that advance together among them.
pub(super) fn keys(sweep: &Node) -> Vec<String> {
    let Value::Table(entries) = &sweep.value else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    for entry in entries {
        let tables = match &entry.node.value {
            _ if entry.key != "zip" => {
                keys.push(entry.key.clone());
                continue;
            }
            Value::List(tables) => tables.iter().collect(),
            _ => vec![&entry.node],
        };
        for table in tables {
            if let Value::Table(entries) = &table.value {
                keys.extend(entries.iter().map(|entry| entry.key.clone()));
            }
        }
    }
    keys
}
