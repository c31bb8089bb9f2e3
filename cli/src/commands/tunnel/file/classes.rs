//! `[[class]]`: which flows are alike, and how they are carried.

use super::source::{Item, Table};
use anabranch_tunnel::class::{
    Class, Classes, DEADLINES, LONGEST_WAIT, MAX_CLASSES, Match, PRIORITIES, Prefix, Steering,
    Transport, Treatment,
};
use nix::unistd::User;
use std::ops::RangeInclusive;
use std::time::Duration;

const PROTOCOLS: [(&str, Transport); 2] = [("tcp", Transport::Tcp), ("udp", Transport::Udp)];

/// The keys that say which flows are meant.
const CONDITIONS: [&str; 7] = [
    "protocol", "ports", "to", "domains", "from", "dscp", "users",
];

/// The longest name of a class.
const LONGEST_NAME: usize = 32;

/// Code points by their names (RFC 2474, 2597, 3246, 5865).
const CODE_POINTS: [(&str, u8); 22] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("voice-admit", 44),
];

/// Reads all of them.
pub(super) fn read(item: &Item<'_>) -> Vec<Class> {
    let tables = item.tables();
    if tables.len() > MAX_CLASSES {
        item.wrong(format!(
            "there are {} classes: expected {MAX_CLASSES} at most",
            tables.len()
        ));
    }
    let mut classes: Vec<Class> = Vec::new();
    for table in tables {
        let class = class(&table);
        if classes.iter().any(|one| one.name == class.name) {
            table.wrong("there is a class of this name already");
        }
        table.finish();
        classes.push(class);
    }
    classes
}

fn class(table: &Table<'_>) -> Class {
    let named = table.item("name");
    if named.is_none() {
        table.wrong("`name` is missing: expected what `tunnel status` is to call this class");
    }
    let name = named.and_then(|item| item.parsed(name));
    let name = name.unwrap_or_default();
    let condition = condition(table);
    let treatment = treatment(table, &condition);
    let names_flows = CONDITIONS.iter().any(|key| table.item(key).is_some());
    let is_builtin = Classes::builtin_names().contains(&name);
    if !names_flows && !is_builtin {
        let (keys, names) = (CONDITIONS.join(", "), Classes::builtin_names().join(", "));
        table.wrong(format!(
            "no flow is named: expected some of {keys}, or a built-in class to change: {names}"
        ));
    }
    let matches = if condition.is_empty() {
        Vec::new()
    } else {
        vec![condition]
    };
    Class {
        name,
        matches,
        treatment,
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.is_empty() && text.len() <= LONGEST_NAME && text.chars().all(is_part) {
        Ok(text.to_owned())
    } else {
        let most = LONGEST_NAME;
        Err(format!(
            "expected a name of lower-case letters, digits and -, {most} at most"
        ))
    }
}

fn condition(table: &Table<'_>) -> Match {
    let protocol = table.item("protocol");
    let transport = protocol.and_then(|item| item.word(&PROTOCOLS));
    let dscp = table.item("dscp");
    if let Some(dscp) = dscp.as_ref().filter(|_| transport == Some(Transport::Tcp)) {
        dscp.wrong("the code point of TCP is not known here: only that of captured UDP is");
    }
    Match {
        transport,
        ports: list(table.item("ports"), |item| item.parsed(ports)),
        targets: list(table.item("to"), |item| item.parsed(str::parse::<Prefix>)),
        domains: list(table.item("domains"), |item| item.parsed(domain)),
        dscp: list(dscp, |item| code_point(&item)),
        sources: list(table.item("from"), |item| item.parsed(str::parse::<Prefix>)),
        owners: list(table.item("users"), |item| item.parsed(user)),
    }
}

fn list<'a, T>(item: Option<Item<'a>>, read: impl FnMut(Item<'a>) -> Option<T>) -> Vec<T> {
    let all = item.map(|item| item.list());
    all.into_iter().flatten().filter_map(read).collect()
}

/// A port, or a range of them.
fn ports(text: &str) -> Result<RangeInclusive<u16>, &'static str> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err("expected a port or a range, as 22 or \"8000-8010\""),
    }
}

fn domain(text: &str) -> Result<String, &'static str> {
    // The dot or the star in front is how others write that all names below it are meant.
    let name = text.trim_start_matches('*').trim_start_matches('.');
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 253 && name.chars().all(is_part) {
        Ok(name.trim_end_matches('.').to_ascii_lowercase())
    } else {
        Err("expected a domain, as \"example.org\", which has all names below it")
    }
}

fn code_point(item: &Item<'_>) -> Option<u8> {
    let typed = item.typed()?;
    let number = typed.parse().ok().filter(|number| *number < 64);
    let named = CODE_POINTS.iter().find(|(name, _)| *name == typed);
    let found = number.or(named.map(|(_, number)| *number));
    if found.is_none() {
        let what = format!("`{typed}`: expected a number from 0 to 63, or a name as \"ef\"");
        item.wrong_name(what, &typed, CODE_POINTS.iter().map(|(name, _)| *name));
    }
    found
}

fn user(text: &str) -> Result<u32, &'static str> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let found = User::from_name(text).ok().flatten();
    found
        .map(|user| user.uid.as_raw())
        .ok_or("expected a user of this machine, by name or number")
}

fn treatment(table: &Table<'_>, condition: &Match) -> Treatment {
    let modes = Steering::ALL.map(|mode| (mode.name(), mode));
    let steering = table.item("steering").and_then(|item| item.word(&modes));
    let priority = table
        .item("priority")
        .and_then(|item| item.whole(i64::from(*PRIORITIES.start())..=i64::from(*PRIORITIES.end())));
    let of_datagrams = |key: &str| {
        let item = table.item(key);
        let is_tcp = condition.transport == Some(Transport::Tcp);
        if let Some(item) = item.as_ref().filter(|_| is_tcp) {
            item.wrong("this is for datagrams, and TCP is not carried in any");
        }
        item
    };
    Treatment {
        steering,
        priority: priority.unwrap_or_default() as i32,
        light: table
            .item("light")
            .and_then(|item| item.flag())
            .unwrap_or_default(),
        deadline: of_datagrams("deadline").and_then(|item| item.time(DEADLINES)),
        wait: of_datagrams("wait").and_then(|item| item.time(Duration::ZERO..=LONGEST_WAIT)),
        copies: of_datagrams("copies")
            .and_then(|item| item.flag())
            .unwrap_or_default(),
    }
}
