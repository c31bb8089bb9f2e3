//! A configuration's TOML, each value with its place, and all that is wrong with it.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The least similarity (Jaro and Winkler's, 0 to 1) of a name that is proposed.
const SIMILAR: f64 = 0.7;

/// Something wrong: where it is and what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    line: usize,
    column: usize,
    /// The key it is about; empty if it is about the whole file.
    key: String,
    what: String,
    /// The valid name that was probably meant.
    nearest: Option<String>,
}

/// All that is wrong with a file, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults {
    file: String,
    all: Vec<Fault>,
}

impl Faults {
    /// One of a file as a whole.
    pub(super) fn of_file(file: String, what: impl fmt::Display) -> Self {
        let fault = Fault {
            line: 0,
            column: 0,
            key: String::new(),
            what: what.to_string(),
            nearest: None,
        };
        let all = vec![fault];
        Self { file, all }
    }

    /// Each in a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |fault: &Fault| {
            let Fault {
                line, column, key, ..
            } = fault;
            let mut text = self.file.clone();
            if *line > 0 {
                let _ = write!(text, ":{line}:{column}");
            }
            if !key.is_empty() {
                let _ = write!(text, ": {key}");
            }
            let _ = write!(text, ": {}", fault.what);
            if let Some(nearest) = &fault.nearest {
                let _ = write!(text, "; did you mean `{nearest}`?");
            }
            text
        };
        self.all.iter().map(line).collect()
    }
}

/// The name among those known that is most like the one that was written.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let scored = known.map(|name| {
        // Short names have few letters to go by: one slip is like enough.
        let slip = written.len() > 1 && strsim::osa_distance(written, name) == 1;
        let score = strsim::jaro_winkler(written, name);
        (if slip { score.max(0.9) } else { score }, name)
    });
    let similar = scored.filter(|(score, _)| *score >= SIMILAR);
    let best = similar.max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name.to_owned())
}

/// A file while it is read.
#[derive(Debug)]
pub(super) struct Source<'a> {
    file: String,
    text: &'a str,
    faults: RefCell<Vec<Fault>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: String, text: &'a str) -> Self {
        Self {
            file,
            text,
            faults: RefCell::default(),
        }
    }

    /// The whole of it. What is no TOML is a fault for each place.
    pub(super) fn parse(&self) -> Spanned<DeTable<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let what = error.message().replace('\n', ", ");
            self.fault(error.span().unwrap_or_default().start, "", what, None);
        }
        table
    }

    pub(super) fn root<'b>(&'b self, table: &'b Spanned<DeTable<'a>>) -> Table<'b> {
        Table::new(self, String::new(), 0, table.get_ref())
    }

    fn fault(&self, at: usize, key: &str, what: impl Into<String>, nearest: Option<String>) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let fault = Fault {
            line: before.matches('\n').count() + 1,
            column: before[begin..].chars().count() + 1,
            key: key.to_owned(),
            what: what.into(),
            nearest,
        };
        self.faults.borrow_mut().push(fault);
    }

    /// Whether nothing was wrong so far.
    pub(super) fn is_sound(&self) -> bool {
        self.faults.borrow().is_empty()
    }

    /// What was read, or all that is wrong.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, Faults> {
        let mut all = self.faults.into_inner();
        match read {
            Some(read) if all.is_empty() => Ok(read),
            _ => {
                all.sort_by_key(|fault| (fault.line, fault.column));
                let file = self.file;
                Err(Faults { file, all })
            }
        }
    }
}

/// A table while it is read: what nobody asks for is wrong.
#[derive(Debug)]
pub(super) struct Table<'a> {
    source: &'a Source<'a>,
    key: String,
    at: usize,
    entries: &'a DeTable<'a>,
    asked: RefCell<Vec<String>>,
}

impl<'a> Table<'a> {
    fn new(source: &'a Source<'a>, key: String, at: usize, entries: &'a DeTable<'a>) -> Self {
        Self {
            source,
            key,
            at,
            entries,
            asked: RefCell::default(),
        }
    }

    /// The value of a key, if it is there.
    pub(super) fn item(&self, key: &str) -> Option<Item<'a>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.iter().any(|one| one == key) {
            asked.push(key.to_owned());
        }
        let mut entries = self.entries.iter();
        let (_, value) = entries.find(|(name, _)| name.get_ref() == key)?;
        Some(Item {
            source: self.source,
            key: self.full(key),
            span: value.span(),
            value: value.get_ref(),
        })
    }

    fn full(&self, key: &str) -> String {
        match self.key.as_str() {
            "" => key.to_owned(),
            table => format!("{table}.{key}"),
        }
    }

    /// Something wrong with the table as a whole.
    pub(super) fn wrong(&self, what: impl Into<String>) {
        self.source.fault(self.at, &self.key, what, None);
    }

    /// Whether nothing was wrong in the whole file so far.
    pub(super) fn is_sound(&self) -> bool {
        self.source.is_sound()
    }

    /// Complains about each key that nobody asked for.
    pub(super) fn finish(&self) {
        let asked = self.asked.borrow();
        for (name, _) in self.entries {
            let key = name.get_ref();
            if asked.iter().any(|one| one == key) {
                continue;
            }
            let near = nearest(key, asked.iter().map(String::as_str));
            let mut what = format!("there is no such {} here", self.kind());
            if near.is_none() {
                let _ = write!(what, ": expected one of {}", asked.join(", "));
            }
            let at = name.span().start;
            self.source.fault(at, &self.full(key), what, near);
        }
    }

    fn kind(&self) -> &'static str {
        if self.key.is_empty() {
            "section"
        } else {
            "key"
        }
    }
}

/// A value while it is read. What cannot be read is noted, and nothing then.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    source: &'a Source<'a>,
    pub(super) key: String,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Item<'a> {
    /// Notes that it is wrong.
    pub(super) fn wrong(&self, what: impl Into<String>) {
        self.source.fault(self.span.start, &self.key, what, None);
    }

    /// The same with the name that was probably meant.
    pub(super) fn wrong_name<'b>(
        &self,
        what: impl Into<String>,
        name: &str,
        known: impl Iterator<Item = &'b str>,
    ) {
        let near = nearest(name, known);
        self.source.fault(self.span.start, &self.key, what, near);
    }

    fn unexpected(&self, what: &str) {
        let found = match self.value {
            DeValue::Table(_) => "a table",
            DeValue::Array(_) => "a list",
            _ => self.source.text.get(self.span.clone()).unwrap_or_default(),
        };
        self.wrong(format!("expected {what}, found {found}"));
    }

    /// As a table.
    pub(super) fn table(&self) -> Option<Table<'a>> {
        if let DeValue::Table(entries) = self.value {
            let table = Table::new(self.source, self.key.clone(), self.span.start, entries);
            return Some(table);
        }
        self.unexpected("a table");
        None
    }

    /// As tables, as `[[name]]` makes them, each called by its `name` or its number.
    pub(super) fn tables(&self) -> Vec<Table<'a>> {
        let DeValue::Array(all) = self.value else {
            self.unexpected(&format!("tables, as [[{}]] makes them", self.key));
            return Vec::new();
        };
        let table = |(number, value): (usize, &'a Spanned<DeValue<'a>>)| {
            let name = match value.get_ref() {
                DeValue::Table(table) => table.get("name").and_then(|name| name.get_ref().as_str()),
                _ => None,
            };
            let name = name.map_or_else(|| (number + 1).to_string(), str::to_owned);
            self.of(value, format!("{}.{name}", self.key)).table()
        };
        all.iter().enumerate().filter_map(table).collect()
    }

    fn of(&self, value: &'a Spanned<DeValue<'a>>, key: String) -> Self {
        Self {
            source: self.source,
            key,
            span: value.span(),
            value: value.get_ref(),
        }
    }

    /// As a list of at least one; a value is a list of one.
    pub(super) fn list(&self) -> Vec<Self> {
        let DeValue::Array(all) = self.value else {
            return vec![self.clone()];
        };
        if all.is_empty() {
            self.wrong("expected at least one value: leave the key out if there is none");
        }
        let item = |value| self.of(value, self.key.clone());
        all.iter().map(item).collect()
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    /// Its text, if it is one.
    pub(super) fn as_text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// As text.
    pub(super) fn text(&self) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.unexpected("text in quotes");
        }
        text
    }

    /// A text, number or flag as somebody would type it.
    pub(super) fn typed(&self) -> Option<String> {
        match self.value {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            _ => {
                self.unexpected("text in quotes or a number");
                None
            }
        }
    }

    /// As true or false.
    pub(super) fn flag(&self) -> Option<bool> {
        if let DeValue::Boolean(flag) = self.value {
            return Some(*flag);
        }
        self.unexpected("true or false");
        None
    }

    /// As a whole number.
    pub(super) fn whole(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let read = match self.value {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let read = read.filter(|number| range.contains(number));
        if read.is_none() {
            self.unexpected(&format!(
                "a whole number from {} to {}",
                range.start(),
                range.end()
            ));
        }
        read
    }

    /// As a time with its unit.
    pub(super) fn time(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let text = self.value.as_str();
        let read = text.and_then(|text| humantime::parse_duration(text).ok());
        let read = read.filter(|time| range.contains(time));
        if read.is_none() {
            let words = |time: &Duration| humantime::format_duration(*time).to_string();
            let (least, most) = (words(range.start()), words(range.end()));
            self.unexpected(&format!(
                "a time with its unit, as \"50ms\", from {least} to {most}"
            ));
        }
        read
    }

    /// As one of a few words.
    pub(super) fn word<T: Copy>(&self, known: &[(&str, T)]) -> Option<T> {
        let names = || known.iter().map(|(name, _)| *name);
        let text = self.text()?;
        let found = known.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let all: Vec<&str> = names().collect();
            let what = format!("expected one of {}, found \"{text}\"", all.join(", "));
            self.wrong_name(what, text, names());
        }
        found.map(|(_, value)| *value)
    }

    /// As what some parser makes of its text or number.
    pub(super) fn parsed<T, E: fmt::Display>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.typed()?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong(format!("`{text}`: {error}"));
                None
            }
        }
    }
}
