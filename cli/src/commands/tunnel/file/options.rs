//! `[near]` and `[far]`: their keys are the options of `tunnel join` and `tunnel serve`, by their
//! long names, and their values are read as those are. So there is one list of settings, one
//! parser and one help for both ways to give them.

use super::source::{Item, Table};
use crate::foreign::without_secret;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::{Path, PathBuf};

/// What a section says: each key with its values, as they would be typed.
pub(super) type Given = BTreeMap<String, Vec<String>>;

/// Reads a section. `elsewhere` are options that are given in another way, each with that.
pub(super) fn section(
    command: &Command,
    table: &Table<'_>,
    base: &Path,
    elsewhere: &[(&str, &str)],
) -> Given {
    let mut given = Given::new();
    for arg in command.get_arguments() {
        let key = key_of(arg);
        if elsewhere.iter().any(|(name, _)| *name == key) || arg.is_hide_set() {
            continue;
        }
        let Some(item) = table.item(&key) else {
            continue;
        };
        let values = values(command, arg, &item, base);
        // A flag that is not set is as good as none.
        if values != ["false"] || !is_flag(arg) {
            given.insert(key, values);
        }
    }
    for (name, instead) in elsewhere {
        if let Some(item) = table.item(name) {
            item.wrong(format!("this is given by {instead}"));
        }
    }
    given
}

/// What a key is called: the long name of the option, or the name of what has none.
fn key_of(arg: &Arg) -> String {
    let long = arg.get_long().map(str::to_owned);
    long.unwrap_or_else(|| arg.get_id().as_str().replace('_', "-"))
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn values(command: &Command, arg: &Arg, item: &Item<'_>, base: &Path) -> Vec<String> {
    if is_flag(arg) {
        return item
            .flag()
            .map(|flag| flag.to_string())
            .into_iter()
            .collect();
    }
    if !matches!(arg.get_action(), ArgAction::Append) && item.is_list() {
        item.wrong("expected one value, found a list");
        return Vec::new();
    }
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let value = |item: &Item<'_>| {
        let mut text = item.typed()?;
        if text.is_empty() {
            item.wrong("expected a value, found nothing");
            return None;
        }
        if is_path {
            // Files beside the configuration are named as seen from there.
            text = base.join(text).to_string_lossy().into_owned();
        }
        check(command, arg, item, &text).then_some(text)
    };
    item.list().iter().filter_map(value).collect()
}

/// Whether an option may have this value; if not, that is noted.
fn check(command: &Command, arg: &Arg, item: &Item<'_>, text: &str) -> bool {
    let Err(error) = command.clone().try_get_matches_from(typed(arg, text)) else {
        return true;
    };
    match error.kind() {
        ErrorKind::ValueValidation => {
            let why = error.source().map(ToString::to_string);
            let why = why.unwrap_or_else(|| words(&error));
            let said = format!("`{}`: {why}", without_secret(text));
            // What lets a machine in is for no log.
            item.wrong(match text.split_once("/join/") {
                Some((_, secret)) if !secret.is_empty() => said.replace(secret, "..."),
                _ => said,
            });
        }
        ErrorKind::InvalidValue => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => known.clone(),
                _ => Vec::new(),
            };
            let what = format!("expected one of {}, found `{text}`", known.join(", "));
            item.wrong_name(what, text, known.iter().map(String::as_str));
        }
        // Another option is missing: that is looked at with all of them.
        _ => return true,
    }
    false
}

fn typed(arg: &Arg, text: &str) -> Vec<String> {
    match arg.get_long() {
        Some(long) => vec![format!("--{long}={text}")],
        None => vec!["--".to_owned(), text.to_owned()],
    }
}

/// The command line that a section stands for, made of those of its values that are right.
pub(super) fn parse(command: &Command, given: &Given, table: &Table<'_>) -> Option<ArgMatches> {
    let (mut line, mut last) = (Vec::new(), Vec::new());
    for arg in command.get_arguments() {
        let values = given.get(&key_of(arg)).into_iter().flatten();
        match (arg.get_action(), arg.get_long()) {
            (ArgAction::SetTrue, Some(long)) => line.extend(values.map(|_| format!("--{long}"))),
            (_, Some(_)) => line.extend(values.flat_map(|text| typed(arg, text))),
            (_, None) => last.extend(values.flat_map(|text| typed(arg, text))),
        }
    }
    line.append(&mut last);
    match command.clone().try_get_matches_from(line) {
        Ok(matches) => Some(matches),
        Err(error) => {
            // Where a value is wrong, others may only seem to be missing.
            if table.is_sound() {
                table.wrong(words(&error));
            }
            None
        }
    }
}

/// What a command line lacks, with options as they are called in a file.
fn words(error: &clap::Error) -> String {
    let key = |text: &String| {
        // "--capture <host|lan=IFACE>", or "[URL]" of what has no long name.
        let name = text.trim_start_matches("--").trim_start_matches(['[', '<']);
        let end = name.find([' ', '=', ']', '>']).unwrap_or(name.len());
        format!("`{}`", name[..end].to_ascii_lowercase())
    };
    let about = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(all)) => all.iter().map(key).collect(),
        Some(ContextValue::String(one)) => vec![key(one)],
        _ => Vec::new(),
    };
    let about = about.join(", ");
    match (error.kind(), error.get(ContextKind::PriorArg)) {
        (ErrorKind::MissingRequiredArgument, _) => format!("{about} is missing"),
        (ErrorKind::ArgumentConflict, Some(ContextValue::String(other))) => {
            format!("{about} and {} exclude each other", key(other))
        }
        (ErrorKind::ArgumentConflict, _) => format!("{about} excludes another key here"),
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        }
    }
}
