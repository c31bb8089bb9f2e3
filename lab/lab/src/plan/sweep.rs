//! `[sweep]`: values that are run in all combinations, and lists that advance together.

use super::ignored::{Covered, covered};
use super::{mistake, whole_file};
use crate::scenario::{Dimension, Document, Entry, Mistake, Node, Quantity, Value};

/// One combination: keys and their values.
pub(super) type Point = Vec<(String, Node)>;

/// All combinations; a single one without values if nothing is swept.
pub(super) fn points(document: &Document) -> Result<Vec<Point>, Mistake> {
    let mut points: Vec<Point> = vec![Vec::new()];
    let Some(node) = document.root.get("sweep") else {
        return Ok(points);
    };
    let Value::Table(entries) = &node.value else {
        return Err(mistake(
            document,
            node.place,
            "sweep",
            "expected a table".into(),
        ));
    };
    for entry in entries.iter().filter(|entry| entry.key != "zip") {
        let values = values(document, entry)?;
        let choices = values
            .into_iter()
            .map(|value| vec![(entry.key.clone(), value)]);
        points = product(document, &points, &choices.collect::<Vec<_>>())?;
    }
    for table in zips(entries) {
        let choices = zipped(document, table)?;
        points = product(document, &points, &choices)?;
    }
    Ok(points)
}

/// The tables of lists that advance together.
fn zips(entries: &[Entry]) -> Vec<&Node> {
    let zip = entries.iter().find(|entry| entry.key == "zip");
    match zip.map(|zip| (&zip.node, &zip.node.value)) {
        Some((_, Value::List(tables))) => tables.iter().collect(),
        Some((table, _)) => vec![table],
        None => Vec::new(),
    }
}

/// The keys of a `[sweep]`, those of lists that advance together among them.
fn keys(sweep: &Node) -> Vec<String> {
    let of = |node: &Node| match &node.value {
        Value::Table(entries) => entries.iter().map(|entry| entry.key.clone()).collect(),
        _ => Vec::new(),
    };
    let mut keys: Vec<String> = of(sweep);
    keys.retain(|key| key != "zip");
    if let Value::Table(entries) = &sweep.value {
        keys.extend(zips(entries).into_iter().flat_map(of));
    }
    keys
}

/// Sweeps `key` over `values`, in place of those that `sweep` has for what it stands for, by itself
/// or among lists that advance together.
///
/// # Errors
/// One of its keys stands for more, or only for a part of it.
pub(super) fn replace(
    document: &Document,
    sweep: &mut Node,
    key: &str,
    values: Node,
) -> Result<(), Mistake> {
    for before in keys(sweep) {
        if before == key && sweep.get(key).is_some() {
            // It keeps its place, and with that the seeds of its runs.
            continue;
        }
        match covered(document, &before, &[key]) {
            Covered::All => forget(sweep, &before),
            Covered::Nothing if covered(document, key, &[&before]) == Covered::Nothing => {}
            _ => {
                let what = format!(
                    "the sweep of {before} has some of the same values: sweep {before}, or change \
                     the file"
                );
                return Err(mistake(document, values.place, key, what));
            }
        }
    }
    sweep.insert(key, values);
    Ok(())
}

/// Sweeps `key` no more.
fn forget(sweep: &mut Node, key: &str) {
    sweep.remove(key);
    if let Value::Table(entries) = &mut sweep.value
        && let Some(zip) = entries.iter_mut().find(|entry| entry.key == "zip")
    {
        match &mut zip.node.value {
            Value::List(tables) => tables.iter_mut().for_each(|table| drop(table.remove(key))),
            _ => drop(zip.node.remove(key)),
        }
    }
}

fn product(
    document: &Document,
    points: &[Point],
    choices: &[Point],
) -> Result<Vec<Point>, Mistake> {
    if points.len().saturating_mul(choices.len()) > super::MAX_RUNS {
        let what = format!("the sweep has more than {} combinations", super::MAX_RUNS);
        return Err(whole_file(document, &what));
    }
    let mut all = Vec::with_capacity(points.len() * choices.len());
    for point in points {
        for choice in choices {
            let mut combined = point.clone();
            combined.extend(choice.iter().cloned());
            all.push(combined);
        }
    }
    Ok(all)
}

/// Lists of one length, taken element by element.
fn zipped(document: &Document, table: &Node) -> Result<Vec<Point>, Mistake> {
    let Value::Table(entries) = &table.value else {
        return Err(mistake(
            document,
            table.place,
            "sweep.zip",
            "expected tables".into(),
        ));
    };
    let mut choices: Vec<Point> = Vec::new();
    if entries.is_empty() {
        // All of its lists were replaced.
        return Ok(vec![Vec::new()]);
    }
    for (at, entry) in entries.iter().enumerate() {
        let values = values(document, entry)?;
        if at == 0 {
            choices = vec![Vec::new(); values.len()];
        }
        if values.len() != choices.len() {
            let what = format!(
                "has {} values, the others have {}",
                values.len(),
                choices.len()
            );
            let key = format!("sweep.zip.{}", entry.key);
            return Err(mistake(document, entry.node.place, &key, what));
        }
        for (choice, value) in choices.iter_mut().zip(values) {
            choice.push((entry.key.clone(), value));
        }
    }
    Ok(choices)
}

/// A list as written, or `{ from, to, step }` with both ends included.
fn values(document: &Document, entry: &Entry) -> Result<Vec<Node>, Mistake> {
    let key = format!("sweep.{}", entry.key);
    let refuse = |what: String| mistake(document, entry.node.place, &key, what);
    match &entry.node.value {
        Value::List(items) if !items.is_empty() => Ok(items.clone()),
        Value::Table(_) => {
            let end = |name: &str| {
                let node = entry.node.get(name);
                let node = node.ok_or_else(|| refuse(format!("`{name}` is missing")))?;
                quantity(node).map_err(&refuse)
            };
            let (from, to, step) = (end("from")?, end("to")?, end("step")?);
            range(from, to, step).map_err(refuse).map(|texts| {
                let node = |value| Node {
                    value,
                    place: entry.node.place,
                };
                texts.into_iter().map(node).collect()
            })
        }
        _ => Err(refuse(
            "expected a list of values, or { from, to, step }".into(),
        )),
    }
}

fn quantity(node: &Node) -> Result<Quantity, String> {
    match &node.value {
        Value::Text(text) => {
            let none = |name: &str| {
                Err(crate::scenario::QuantityError {
                    what: format!("a range knows no parameter `{name}`"),
                    hint: None,
                })
            };
            Quantity::parse(text, &none).map_err(|error| error.what)
        }
        Value::Whole(number) => Ok(Quantity::bare(*number as f64)),
        Value::Number(number) => Ok(Quantity::bare(*number)),
        _ => Err("expected quantities".into()),
    }
}

fn range(from: Quantity, to: Quantity, step: Quantity) -> Result<Vec<Value>, String> {
    if from.dimension != to.dimension || from.dimension != step.dimension {
        return Err("from, to and step must be of one kind".into());
    }
    if step.amount <= 0.0 || to.amount < from.amount {
        return Err("expected from <= to and a step above 0".into());
    }
    // A millionth of a step of slack, since sums of decimal fractions are inexact.
    let steps = ((to.amount - from.amount) / step.amount + 1e-6).floor();
    if steps > 100_000.0 {
        return Err("more than 100000 steps".into());
    }
    let value = |at: u64| {
        let amount = from.amount + step.amount * at as f64;
        let rounded = (amount * 1e9).round() / 1e9;
        if from.dimension == Dimension::Bare {
            return Value::Number(rounded);
        }
        Value::Text(readable(rounded, from.dimension))
    };
    Ok((0..=steps as u64).map(value).collect())
}

/// The amount in the usual unit in which it is whole, if there is one.
fn readable(amount: f64, dimension: Dimension) -> String {
    let units: &[(&str, f64)] = match dimension {
        Dimension::Time => &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6)],
        Dimension::Rate => &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)],
        Dimension::Size => &[("MB", 1e6), ("KiB", 1024.0), ("kB", 1e3)],
        _ => &[],
    };
    for (unit, size) in units {
        let count = amount / size;
        if (count - count.round()).abs() < 1e-6 && count >= 1.0 {
            return format!("{}{unit}", count.round());
        }
    }
    Quantity { amount, dimension }.to_string()
}
