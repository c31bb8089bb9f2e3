//! A scenario file as a tree that remembers the position of each value, so that every error names
//! its line and sweeps and `--set` can change any value before it is interpreted.

use super::mistake::Mistake;
use anabranch_schedulers::Names;
use std::fmt::Write as _;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// A line and a column of the file, both counted from 1.
    File {
        /// The line.
        line: u32,
        /// The column, in characters.
        column: u32,
    },
    /// The command line or a program.
    #[default]
    Given,
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its position.
    pub place: Place,
}

/// A TOML value. Dates are refused when the file is read.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number with a fraction.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the file.
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The position of the key.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

/// A scenario file that is valid TOML; whether its content makes sense is checked later.
#[derive(Debug, Clone)]
pub struct Document {
    /// The file's name in messages.
    pub file: String,
    /// The top-level table.
    pub root: Node,
    /// The schedulers and controllers it may name; by default the built-in ones.
    pub names: Arc<Names>,
}

impl PartialEq for Document {
    /// Compares the values; the schedulers and controllers known to each are not compared.
    fn eq(&self, other: &Self) -> bool {
        (&self.file, &self.root) == (&other.file, &other.root)
    }
}

impl Document {
    /// Uses the schedulers and controllers of a program that has its own.
    #[must_use]
    pub fn with_names(mut self, names: impl Into<Arc<Names>>) -> Self {
        self.names = names.into();
        self
    }

    /// Parses `text`, from a file that messages call `file`.
    ///
    /// # Errors
    /// A [`Mistake`] with line and column if it is not TOML.
    pub fn parse(file: &str, text: &str) -> Result<Self, Mistake> {
        let lines = Lines::of(text);
        let parsed = DeTable::parse(text).map_err(|error| Mistake {
            file: file.to_owned(),
            place: error
                .span()
                .map_or(Place::Given, |span| lines.place(span.start)),
            key: String::new(),
            what: error.message().trim().replace('\n', ", "),
            hint: None,
        })?;
        let place = Place::File { line: 1, column: 1 };
        let reading = Reading { file, lines };
        let root = Node {
            value: reading.table(parsed.get_ref())?,
            place,
        };
        Ok(Self {
            file: file.to_owned(),
            root,
            names: Arc::default(),
        })
    }

    /// Replaces or adds the value at `key`, such as `path.dsl.forward.rate`. Elements of lists of
    /// tables are addressed by name, by number from 1, or all at once by `*`. In a table, `*`
    /// stands for every table in it, such as both directions in `path.dsl.*.delay`.
    ///
    /// # Errors
    /// A [`Mistake`] that names the part of the key that was not found.
    pub fn set(&mut self, key: &str, node: &Node) -> Result<(), Mistake> {
        let parts: Vec<&str> = key.split('.').collect();
        let outcome = set_in(&mut self.root, &parts, node);
        outcome.map_err(|(part, known)| {
            let hint = super::mistake::nearest(&part, known.iter().map(String::as_str));
            Mistake {
                file: self.file.clone(),
                place: node.place,
                key: key.to_owned(),
                what: if known.is_empty() {
                    format!("`{part}` leads nowhere: there is no table to put it into")
                } else {
                    format!(
                        "`{part}` leads nowhere: expected one of {}, or * for all, as in {}",
                        known.join(", "),
                        with_element(key, &part, &known[0])
                    )
                },
                hint,
            }
        })
    }

    /// The places that `key` stands for, as [`set`](Self::set) reads it: `*` is every element or
    /// table there, and an element has a name and a number. What is missing is where it would be
    /// added.
    pub fn places(&self, key: &str) -> Vec<Vec<String>> {
        let parts: Vec<&str> = key.split('.').collect();
        let mut found = Vec::new();
        places_in(Some(&self.root), &parts, &mut Vec::new(), &mut found);
        found
    }

    /// The document as TOML in a canonical form: the file with all changes.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        if let Value::Table(entries) = &self.root.value {
            write_table(&mut text, "", entries);
        }
        text
    }
}

impl Node {
    /// A value that does not come from a file.
    pub fn given(value: Value) -> Self {
        Self {
            value,
            place: Place::Given,
        }
    }

    /// The value typed after `--set key=`: TOML if it is valid, else a string.
    pub fn typed(text: &str) -> Self {
        let parsed = DeValue::parse(text).ok().and_then(|value| {
            let reading = Reading {
                file: "",
                lines: Lines::of(text),
            };
            reading.value(value.get_ref(), Place::Given).ok()
        });
        Self::given(parsed.unwrap_or_else(|| Value::Text(text.to_owned())))
    }

    /// The values typed after `--sweep key=`: a TOML list or table, else values separated by
    /// commas.
    pub fn typed_values(text: &str) -> Self {
        let whole = Self::typed(text);
        if matches!(whole.value, Value::List(_) | Value::Table(_)) {
            return whole;
        }
        let values = text.split(',').map(|value| Self::typed(value.trim()));
        Self::given(Value::List(values.collect()))
    }

    /// The value of `key`, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Table(entries) = &self.value else {
            return None;
        };
        let entry = entries.iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.node)
    }

    /// Removes `key` from this table.
    pub fn remove(&mut self, key: &str) -> Option<Self> {
        let Value::Table(entries) = &mut self.value else {
            return None;
        };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at).node)
    }

    /// Sets `key` in this table to `node`.
    pub fn insert(&mut self, key: &str, node: Self) {
        if let Value::Table(entries) = &mut self.value {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key) {
                entry.node = node;
            } else {
                entries.push(Entry {
                    key: key.to_owned(),
                    place: node.place,
                    node,
                });
            }
        }
    }

    /// What this value is, for a message.
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("\"{text}\""),
            Value::Whole(number) => format!("{number} without a unit or quotes"),
            Value::Number(number) => format!("{number} without a unit or quotes"),
            Value::Flag(flag) => flag.to_string(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// The value on one line, as in an inline table.
    pub fn inline(&self) -> String {
        let mut text = String::new();
        write_inline(&mut text, self);
        text
    }

    /// The value as it appears in a table of results: a string without its quotes.
    pub fn plain(&self) -> String {
        match &self.value {
            Value::Text(text) => text.clone(),
            _ => self.inline(),
        }
    }
}

/// A key with `element` inserted before the part that was taken for an element's name:
/// `flow.1.duration` for `flow.duration`.
fn with_element(key: &str, part: &str, element: &str) -> String {
    let mut parts: Vec<&str> = key.split('.').collect();
    if let Some(at) = parts.iter().position(|known| *known == part) {
        // A last part was meant as an element's name, although no element has it.
        if at + 1 == parts.len() {
            parts.insert(at, element);
        } else {
            parts[at] = element;
        }
    }
    parts.join(".")
}

/// A part that was not found, and the names that exist.
type Astray = (String, Vec<String>);

fn places_in(
    node: Option<&Node>,
    parts: &[&str],
    way: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) {
    let Some((part, rest)) = parts.split_first() else {
        found.push(way.clone());
        return;
    };
    let mut go = |step: String, next: Option<&Node>| {
        way.push(step);
        places_in(next, rest, way, found);
        way.pop();
    };
    match node.map(|node| &node.value) {
        Some(Value::List(items)) => {
            for (at, item) in items.iter().enumerate() {
                if is_element(part, at, item) {
                    go(at.to_string(), Some(item));
                }
            }
        }
        Some(Value::Table(entries)) if *part == "*" => {
            for entry in entries.iter().filter(|entry| is_table(&entry.node)) {
                go(entry.key.clone(), Some(&entry.node));
            }
        }
        _ => go((*part).to_owned(), node.and_then(|node| node.get(part))),
    }
}

/// Whether a part of a key addresses this element of a list.
fn is_element(part: &str, at: usize, item: &Node) -> bool {
    part == "*" || name_of((at, item)) == part || (at + 1).to_string() == part
}

fn set_in(node: &mut Node, parts: &[&str], new: &Node) -> Result<(), Astray> {
    let Some((part, rest)) = parts.split_first() else {
        *node = new.clone();
        return Ok(());
    };
    match &mut node.value {
        Value::List(items) => {
            let mut any = false;
            for (at, item) in items.iter_mut().enumerate() {
                if is_element(part, at, item) {
                    any = true;
                    set_in(item, rest, new)?;
                }
            }
            if any {
                Ok(())
            } else {
                let names = items.iter().enumerate().map(name_of);
                Err(((*part).to_owned(), names.collect()))
            }
        }
        Value::Table(entries) => {
            if *part == "*" {
                let tables = entries.iter_mut().filter(|entry| is_table(&entry.node));
                let mut tables = tables.peekable();
                if tables.peek().is_none() {
                    return Err(((*part).to_owned(), Vec::new()));
                }
                for entry in tables {
                    set_in(&mut entry.node, rest, new)?;
                }
                return Ok(());
            }
            if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *part) {
                return set_in(&mut entry.node, rest, new);
            }
            // A missing key is added; whether it is allowed is checked when the scenario is read.
            let mut made = Node::given(Value::Table(Vec::new()));
            set_in(&mut made, rest, new)?;
            entries.push(Entry {
                key: (*part).to_owned(),
                place: new.place,
                node: made,
            });
            Ok(())
        }
        _ => Err(((*part).to_owned(), Vec::new())),
    }
}

/// The name by which an element of a list of tables is addressed.
fn name_of((at, item): (usize, &Node)) -> String {
    match item.get("name").map(|node| &node.value) {
        Some(Value::Text(name)) => name.clone(),
        _ => (at + 1).to_string(),
    }
}

struct Reading<'a> {
    file: &'a str,
    lines: Lines,
}

impl Reading<'_> {
    fn node(&self, value: &Spanned<DeValue<'_>>) -> Result<Node, Mistake> {
        let place = self.lines.place(value.span().start);
        Ok(Node {
            value: self.value(value.get_ref(), place)?,
            place,
        })
    }

    fn value(&self, value: &DeValue<'_>, place: Place) -> Result<Value, Mistake> {
        let refuse = |what: String| Mistake {
            file: self.file.to_owned(),
            place,
            key: String::new(),
            what,
            hint: None,
        };
        Ok(match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                let digits = number.as_str();
                let whole = i64::from_str_radix(digits, number.radix());
                Value::Whole(whole.map_err(|_| refuse(format!("{digits} is too large")))?)
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse::<f64>().ok();
                let finite = parsed.filter(|number| number.is_finite());
                Value::Number(finite.ok_or_else(|| refuse(format!("{number} is no number")))?)
            }
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Datetime(_) => {
                return Err(refuse(
                    "a scenario knows no dates, only virtual time".into(),
                ));
            }
            DeValue::Array(items) => {
                let items: Result<Vec<Node>, Mistake> =
                    items.iter().map(|i| self.node(i)).collect();
                Value::List(items?)
            }
            DeValue::Table(table) => self.table(table)?,
        })
    }

    fn table(&self, table: &DeTable<'_>) -> Result<Value, Mistake> {
        let mut entries = Vec::new();
        for (key, value) in table {
            entries.push(Entry {
                key: key.get_ref().to_string(),
                place: self.lines.place(key.span().start),
                node: self.node(value)?,
            });
        }
        // The parser sorts by key; users and results need the order of the file.
        entries.sort_by_key(|entry| match entry.place {
            Place::File { line, column } => (line, column),
            Place::Given => (0, 0),
        });
        Ok(Value::Table(entries))
    }
}

/// The offsets at which lines start.
struct Lines {
    text: String,
    starts: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text: text.to_owned(),
            starts: std::iter::once(0).chain(after).collect(),
        }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line.saturating_sub(1)];
        let before = self.text.get(start..offset).unwrap_or_default();
        Place::File {
            line: line as u32,
            column: before.chars().count() as u32 + 1,
        }
    }
}

fn is_table(node: &Node) -> bool {
    matches!(node.value, Value::Table(_))
}

fn is_tables(node: &Node) -> bool {
    matches!(&node.value, Value::List(items) if !items.is_empty() && items.iter().all(is_table))
}

fn write_table(out: &mut String, prefix: &str, entries: &[Entry]) {
    // Writing to a string cannot fail.
    for entry in entries {
        if !is_table(&entry.node) && !is_tables(&entry.node) {
            let _ = writeln!(out, "{} = {}", quoted_key(&entry.key), entry.node.inline());
        }
    }
    for entry in entries {
        let name = match prefix {
            "" => quoted_key(&entry.key),
            _ => format!("{prefix}.{}", quoted_key(&entry.key)),
        };
        match &entry.node.value {
            Value::Table(inner) => {
                let _ = writeln!(out, "\n[{name}]");
                write_flat(out, inner);
            }
            Value::List(items) if is_tables(&entry.node) => {
                for item in items {
                    let _ = writeln!(out, "\n[[{name}]]");
                    if let Value::Table(inner) = &item.value {
                        write_flat(out, inner);
                    }
                }
            }
            _ => {}
        }
    }
}

fn write_flat(out: &mut String, entries: &[Entry]) {
    for entry in entries {
        let _ = writeln!(out, "{} = {}", quoted_key(&entry.key), entry.node.inline());
    }
}

fn write_inline(out: &mut String, node: &Node) {
    let _ = match &node.value {
        Value::Text(text) => write!(out, "{}", quoted(text)),
        Value::Whole(number) => write!(out, "{number}"),
        Value::Number(number) => write!(out, "{number:?}"),
        Value::Flag(flag) => write!(out, "{flag}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(Node::inline).collect();
            write!(out, "[{}]", items.join(", "))
        }
        Value::Table(entries) => {
            let of =
                |entry: &Entry| format!("{} = {}", quoted_key(&entry.key), entry.node.inline());
            let entries: Vec<String> = entries.iter().map(of).collect();
            write!(out, "{{ {} }}", entries.join(", "))
        }
    };
}

fn quoted_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        quoted(key)
    }
}

/// A basic string: TOML has JSON's escapes, and requires one more character to be escaped.
fn quoted(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"x\"\n\n[[path]]\nname = \"dsl\"\n\
             forward = { rate = \"1Mbit/s\" }\n\n[[path]]\nforward = { rate = \"2Mbit/s\" }\n";

    fn rates(document: &Document) -> Vec<String> {
        let Some(Value::List(paths)) = document.root.get("path").map(|node| &node.value) else {
            panic!("no paths")
        };
        let rate = |path: &Node| {
            path.get("forward")
                .and_then(|f| f.get("rate"))
                .map(Node::plain)
        };
        paths.iter().filter_map(rate).collect()
    }

    #[test]
    fn every_value_knows_its_line() {
        let document = Document::parse("f", TEXT).unwrap();
        let Some(Value::List(paths)) = document.root.get("path").map(|node| &node.value) else {
            panic!("no paths")
        };
        let rate = paths[1].get("forward").and_then(|node| node.get("rate"));
        let expected = Place::File {
            line: 8,
            column: 20,
        };
        assert_eq!(rate.map(|node| node.place), Some(expected));
    }

    #[test]
    fn values_are_set_by_name_by_number_and_all_at_once() {
        let mut document = Document::parse("f", TEXT).unwrap();
        let three = Node::typed("3Mbit/s");
        document.set("path.dsl.forward.rate", &three).unwrap();
        assert_eq!(rates(&document), ["3Mbit/s", "2Mbit/s"]);
        document
            .set("path.2.forward.rate", &Node::typed("\"4Mbit/s\""))
            .unwrap();
        assert_eq!(rates(&document), ["3Mbit/s", "4Mbit/s"]);
        document.set("path.*.forward.rate", &three).unwrap();
        assert_eq!(rates(&document), ["3Mbit/s", "3Mbit/s"]);
        document
            .set("transport.chunk", &Node::typed("1000"))
            .unwrap();
        let chunk = document.root.get("transport").and_then(|t| t.get("chunk"));
        assert_eq!(
            chunk.map(|node| node.value.clone()),
            Some(Value::Whole(1000))
        );
    }

    #[test]
    fn both_directions_are_set_at_once() {
        let text = "[[path]]\nname = \"lte\"\nforward = { delay = \"1ms\" }\n\
                    backward = { like = \"forward\" }\n";
        let mut document = Document::parse("f", text).unwrap();
        let delay = Node::typed("30ms");
        document.set("path.lte.*.delay", &delay).unwrap();
        let written = document.to_toml();
        assert!(written.contains("name = \"lte\""), "{written}");
        assert_eq!(written.matches("delay = \"30ms\"").count(), 2, "{written}");
        let error = document.set("path.lte.forward.*.x", &delay).unwrap_err();
        assert!(error.to_string().contains("`*` leads nowhere"), "{error}");
    }

    #[test]
    fn a_key_without_its_element_is_shown_with_one() {
        let mut document = Document::parse("f", "[[flow]]\nkind = \"bulk\"\n").unwrap();
        let error = document
            .set("flow.duration", &Node::typed("5s"))
            .unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("expected one of 1, or * for all, as in flow.1.duration"),
            "{told}"
        );
    }

    #[test]
    fn a_key_that_leads_nowhere_names_what_is_nearest() {
        let mut document = Document::parse("f", TEXT).unwrap();
        let mistake = document.set("path.dls.forward.rate", &Node::typed("x"));
        let message = mistake.unwrap_err().to_string();
        assert!(
            message.contains("`dls`") && message.contains("did you mean `dsl`"),
            "{message}"
        );
        assert!(document.set("name.x", &Node::typed("x")).is_err());
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        let text =
            format!("{TEXT}\n[sweep]\n\"path.dsl.forward.rate\" = [\"1Mbit/s\", \"2Mbit/s\"]\n");
        let document = Document::parse("f", &text).unwrap();
        let written = document.to_toml();
        let again = Document::parse("f", &written).unwrap();
        assert_eq!(again.to_toml(), written);
        assert_eq!(rates(&again), rates(&document));
    }

    #[test]
    fn text_that_is_no_toml_is_refused_with_its_line() {
        let message = Document::parse("f.toml", "a = 1\nb = = 2\n")
            .unwrap_err()
            .to_string();
        assert!(message.starts_with("f.toml:2:"), "{message}");
    }
}
