//! A tunnel's configuration in a file: what `tunnel up` runs by.
//!
//! ```toml
//! [near]                  # or [far]: the options of `tunnel join` or `tunnel serve`
//! url = "anabranch://..."
//!
//! [[path]]                # --path
//! interface = "wwan0"
//! role = "backup"
//! ```
//! What comes out is what the command line gives, so everything behind it knows one kind of
//! settings. All that is wrong is told at once, each with its line.

mod classes;
mod named;
mod options;
mod paths;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use source::Faults;

use crate::args::tunnel::{Join, Serve};
use crate::tuning::Tuning;
use anabranch_net::interfaces::Interface;
use anabranch_schedulers::Names;
use clap::{Args, Command, FromArgMatches};
use options::Given;
use source::{Item, Source, Table};
use std::fs;
use std::path::{Path, PathBuf};

/// The commented configuration of a near end.
const NEAR: &str = include_str!("near.toml");
/// And of a far end.
const FAR: &str = include_str!("far.toml");
/// Where the near end's URL goes.
const URL: &str = "url = \"\"";

/// The longest file that is read.
const MOST: u64 = 1 << 20;

/// What a file sets up.
#[derive(Debug)]
pub(crate) enum Settings {
    /// A near end.
    Near(Box<Join>),
    /// A far end.
    Far(Box<Serve>),
}

/// A configuration that is right.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// Where it came from.
    pub(crate) file: PathBuf,
    pub(crate) settings: Settings,
    given: Given,
}

/// What `tunnel new` writes.
pub(crate) fn template(is_far: bool, url: Option<&str>) -> String {
    match url {
        _ if is_far => FAR.to_owned(),
        Some(url) => NEAR.replacen(URL, &format!("url = \"{url}\""), 1),
        None => NEAR.to_owned(),
    }
}

impl Configuration {
    /// Reads a file and the files that it names. Interfaces may come later.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub(crate) fn read(file: &Path, names: &Names) -> Result<Self, Faults> {
        Self::read_on(file, names, None)
    }

    /// Reads a file and the files that it names, and looks for the interfaces that it captures
    /// among these, if they are known.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub(crate) fn read_on(
        file: &Path,
        names: &Names,
        interfaces: Option<&[Interface]>,
    ) -> Result<Self, Faults> {
        let shown = file.display().to_string();
        let text = text(file).map_err(|error| Faults::of_file(shown.clone(), error))?;
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let base = file.parent().unwrap_or(Path::new("/"));
        let source = Source::new(shown, &text);
        let parsed = source.parse();
        let read = source
            .is_sound()
            .then(|| sections(&source.root(&parsed), base, (names, interfaces)));
        let (given, settings) = source.finish(read.flatten())?;
        Ok(Self {
            file,
            settings,
            given,
        })
    }

    /// The keys that differ from another configuration, but for those that can be changed while a
    /// near end runs: paths and classes.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let section = match (&self.settings, &other.settings) {
            (Settings::Near(_), Settings::Near(_)) => "near",
            (Settings::Far(_), Settings::Far(_)) => "far",
            _ => return vec!["near, far".to_owned()],
        };
        let mut keys: Vec<&String> = self.given.keys().chain(other.given.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.given.get(*key) != other.given.get(*key));
        // It is a property of the paths, which are looked at by themselves.
        keys.retain(|key| *key != "paths-per-interface");
        keys.iter().map(|key| format!("{section}.{key}")).collect()
    }
}

fn text(file: &Path) -> std::io::Result<String> {
    let about = fs::metadata(file)?;
    if about.is_file() && about.len() > MOST {
        return Err(std::io::Error::other("it is too long for a configuration"));
    }
    fs::read_to_string(file)
}

/// The command whose options the keys of a section are.
fn command<T: Args>(name: &'static str) -> Command {
    let command = Command::new(name).no_binary_name(true);
    T::augment_args(command).disable_help_flag(true)
}

/// What a configuration may name of this machine: schedulers, and interfaces if these matter.
type Here<'a> = (&'a Names, Option<&'a [Interface]>);

fn sections(root: &Table<'_>, base: &Path, here: Here<'_>) -> Option<(Given, Settings)> {
    let (near, far) = (root.item("near"), root.item("far"));
    let (path, class) = (root.item("path"), root.item("class"));
    root.finish();
    match (near, far) {
        (Some(near), None) => {
            let read = near.table().and_then(|table| of_near(&table, base, here));
            let paths = path.map(|item| paths::read(&item)).unwrap_or_default();
            let classes = class.map(|item| classes::read(&item)).unwrap_or_default();
            let (given, mut join) = read?;
            (join.paths.specs, join.rules) = paths.into_iter().unzip();
            join.classes = classes;
            Some((given, Settings::Near(Box::new(join))))
        }
        (None, Some(far)) => {
            for item in [path, class].into_iter().flatten() {
                item.wrong("this is for near ends: a far end learns it from them");
            }
            let (given, serve) = of_far(&far.table()?, base, here.0)?;
            Some((given, Settings::Far(Box::new(serve))))
        }
        (Some(_), Some(far)) => {
            far.wrong("one file is for one end: expected [near] or [far]");
            None
        }
        (None, None) => {
            root.wrong("expected a section [near] or [far]: `anabranch tunnel new` writes one");
            None
        }
    }
}

fn of_near(table: &Table<'_>, base: &Path, (names, interfaces): Here<'_>) -> Option<(Given, Join)> {
    let command = command::<Join>("near");
    let given = options::section(&command, table, base, &[("path", "[[path]]")]);
    if !given.contains_key("url") && !given.contains_key("url-file") {
        table.wrong(
            "`url` is missing: expected what `anabranch tunnel serve` printed, or `url-file`",
        );
        return None;
    }
    let join: Join = settings(&command, &given, table)?;
    check_tuning(&join.tuning, table, names);
    named::of_near(&join, table);
    if let Some(interfaces) = interfaces {
        named::interfaces(&join.capture, interfaces, table);
    }
    Some((given, join))
}

fn of_far(table: &Table<'_>, base: &Path, names: &Names) -> Option<(Given, Serve)> {
    let command = command::<Serve>("far");
    let given = options::section(&command, table, base, &[]);
    let serve: Serve = settings(&command, &given, table)?;
    check_tuning(&serve.tuning, table, names);
    named::of_far(&serve, table);
    Some((given, serve))
}

fn settings<T: FromArgMatches>(command: &Command, given: &Given, table: &Table<'_>) -> Option<T> {
    table.finish();
    let matches = options::parse(command, given, table)?;
    T::from_arg_matches(&matches).ok()
}

/// Whether there are a scheduler and a control of these names.
fn check_tuning(tuning: &Tuning, table: &Table<'_>, names: &Names) {
    let Err(failure) = tuning.resolve(names) else {
        return;
    };
    let what = failure.what();
    let (option, why) = what.split_once(": ").unwrap_or((what, what));
    let item: Option<Item<'_>> = table.item(option.trim_start_matches("--"));
    match item {
        Some(item) => item.wrong(why),
        None => table.wrong(what),
    }
}
