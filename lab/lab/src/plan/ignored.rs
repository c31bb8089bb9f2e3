//! Values from the command line that would not count: nothing is ignored silently.

use super::mistake;
use crate::scenario::{Document, Mistake, PLANNING, Place, Value, nearest};

/// How much of what a key stands for another one stands for, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covered {
    All,
    Part,
    Nothing,
}

/// How much of `key` is written over by values at `by`: the same places, or tables around them,
/// whichever way they name them.
pub(super) fn covered(document: &Document, key: &str, by: &[&str]) -> Covered {
    let by: Vec<_> = by.iter().flat_map(|by| document.places(by)).collect();
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
    let swept: Vec<&str> = swept.iter().map(String::as_str).collect();
    for (key, value) in set {
        if covered(document, key, &swept) != Covered::All {
            continue;
        }
        let touches = |by: &&&str| covered(document, key, &[by]) != Covered::Nothing;
        if let Some(by) = swept.iter().find(touches) {
            // A sweep of a part of it would be one of some of the same values.
            let other = match covered(document, by, &[key]) {
                Covered::All => key.as_str(),
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
                let mut words = value.split(|c: char| !c.is_alphanumeric() && !"-_".contains(c));
                key == "parameters" || value.contains('=') && words.any(|word| word == name)
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
