//! `[[path]]`: what `--path` says in one word, a key for each part of it, and rules that need more
//! than a word.

use super::source::{Item, Table};
use crate::output::units::ByteSize;
use anabranch_net::interfaces::spec::{
    KEEP_ALIVE, MAX_PATHS_PER_INTERFACE, PathSpec, Selector, SpecOptions,
};
use anabranch_proto::wire::frame::PathStatus;
use anabranch_tunnel::links::{Cap, LAST_DAY, Role, Rule, Then};

/// What a link is for, before its threshold is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Always,
    Secondary,
    Backup,
    Never,
}

const ROLES: [(&str, Word); 4] = [
    ("always", Word::Always),
    ("secondary", Word::Secondary),
    ("backup", Word::Backup),
    ("never", Word::Never),
];

/// What becomes of a link whose cap is used up.
const THEN: [(&str, Then); 2] = [("never", Then::Never), ("backup", Then::Backup)];

/// Units of bits a second.
const RATES: [(&str, u64); 4] = [
    ("kbit/s", 1000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("bit/s", 1),
];

/// Reads all of them.
pub(super) fn read(item: &Item<'_>) -> Vec<(PathSpec, Rule)> {
    let mut paths: Vec<(PathSpec, Rule)> = Vec::new();
    for table in item.tables() {
        let Some(path) = path(&table) else { continue };
        let selector = &path.0.selector;
        if paths.iter().any(|(one, _)| one.selector == *selector) {
            table.wrong(format!("there are two of {selector}"));
        }
        table.finish();
        paths.push(path);
    }
    paths
}

fn path(table: &Table<'_>) -> Option<(PathSpec, Rule)> {
    let Some(interface) = table.item("interface") else {
        table.wrong("`interface` is missing: expected an interface, pattern, address or \"auto\"");
        return None;
    };
    let selector = interface.text().and_then(|text| selector(&interface, text));
    let mut options = options(table);
    let (role, cap) = (role(table), cap(table));
    let rule = Rule { role, cap };
    match rule.role {
        Role::Always => {}
        Role::Secondary { .. } | Role::Backup => options.status = PathStatus::Backup,
        Role::Never => options.paths = Some(0),
    }
    let looks_at_traffic = rule.cap.is_some() || matches!(rule.role, Role::Secondary { .. });
    if looks_at_traffic && matches!(selector, Some(Selector::Auto | Selector::Glob(_))) {
        interface.wrong(
            "a cap and role = \"secondary\" are for one link: expected its interface or address",
        );
    }
    // What is wrong is noted: the rest is read all the same.
    let selector = selector.unwrap_or(Selector::Auto);
    Some((PathSpec { selector, options }, rule))
}

fn selector(item: &Item<'_>, text: &str) -> Option<Selector> {
    // Options have keys of their own.
    match text.parse::<PathSpec>() {
        Ok(spec) if spec.options == SpecOptions::default() => Some(spec.selector),
        Ok(_) => {
            item.wrong("expected an interface alone: options are keys, as role = \"backup\"");
            None
        }
        Err(error) => {
            item.wrong(error.to_string());
            None
        }
    }
}

fn options(table: &Table<'_>) -> SpecOptions {
    let mut options = SpecOptions::default();
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
    let keep_alive = table.item("keep-alive");
    options.keep_alive = keep_alive.and_then(|item| item.time(KEEP_ALIVE));
    options
}

fn role(table: &Table<'_>) -> Role {
    let word = table.item("role").and_then(|role| role.word(&ROLES));
    let word = word.unwrap_or(Word::Always);
    let above = table.item("spill-above");
    let threshold = above.as_ref().and_then(|item| item.parsed(rate));
    match (word, above) {
        (Word::Secondary, None) => {
            table.wrong("`spill-above` is missing: expected a rate, as \"20Mbit/s\"");
        }
        (Word::Secondary, Some(_)) | (_, None) => {}
        (_, Some(above)) => above.wrong("this is for links with role = \"secondary\""),
    }
    match word {
        Word::Always => Role::Always,
        Word::Secondary => Role::Secondary {
            above: threshold.unwrap_or_default(),
        },
        Word::Backup => Role::Backup,
        Word::Never => Role::Never,
    }
}

fn cap(table: &Table<'_>) -> Option<Cap> {
    let bytes = table.item("cap");
    let (day, then) = (table.item("cap-day"), table.item("cap-then"));
    if bytes.is_none() {
        for item in [day, then].into_iter().flatten() {
            item.wrong("there is no `cap` here: expected one, as \"20GB\"");
        }
        return None;
    }
    let bytes = bytes.and_then(|item| item.parsed(str::parse::<ByteSize>));
    let day = day.and_then(|item| item.whole(1..=i64::from(LAST_DAY)));
    let then = then.and_then(|item| item.word(&THEN));
    Some(Cap {
        bytes: bytes.map_or(0, |size| size.0),
        day: day.map_or(1, |day| day as u8),
        then: then.unwrap_or_default(),
    })
}

/// Bits a second with their unit.
fn rate(text: &str) -> Result<u64, String> {
    let read = || {
        let (unit, factor) = RATES.iter().find(|(unit, _)| text.ends_with(unit))?;
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        let bits = number * *factor as f64;
        (1.0..1e12).contains(&bits).then_some(bits as u64)
    };
    read().ok_or_else(|| "expected a rate with its unit, as \"20Mbit/s\"".to_owned())
}
