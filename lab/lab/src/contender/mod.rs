//! Contender files: how a third-party program takes part in a run.
//!
//! A file says how a server and a client are started, and where in their output they report how
//! many bytes they transferred and how long that took. It is checked as strictly as a scenario.

mod measure;
mod process;
mod template;
mod terms;

#[cfg(test)]
mod tests;

pub use measure::{Figures, Measure};
pub use process::{Process, scratch};
pub use template::{PLACEHOLDERS, Place, Template};
pub use terms::Terms;

use crate::scenario::{Document, FlowKind, Mistake, Node, Scenario, Value, Way, nearest};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to report that it is ready, unless the file sets it.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A program that takes part.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// Its name in messages.
    pub name: String,
    /// The file it was read from. A changed file is another contender, so the text is kept too.
    pub file: PathBuf,
    /// The text of `file`.
    pub text: String,
    /// How many paths it can use at once.
    pub paths: PathUse,
    /// Whether it can send from the client to the server, and from the server to the client.
    pub ways: [bool; 2],
    /// Whether it can send for a given time, and whether a given number of bytes.
    pub amounts: [bool; 2],
    /// The program that accepts the connection.
    pub server: Program,
    /// The program that opens the connection.
    pub client: Program,
    /// Text on a line of the server's output that says it is ready; without one, it is ready at
    /// once.
    pub ready: Option<String>,
    /// How long it may take to become ready.
    pub ready_within: Duration,
    /// How results are read.
    pub measure: Measure,
}

/// How many paths a program uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// The first path only.
    One,
    /// All of them.
    All,
}

/// How a program is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<Template>,
    /// Variables of its environment.
    pub env: Vec<(String, Template)>,
}

impl Program {
    /// Whether its command or environment uses this placeholder.
    pub fn has(&self, place: Place) -> bool {
        let words = self.command.iter();
        let values = self.env.iter().map(|(_, value)| value);
        words.chain(values).any(|template| template.has(place))
    }
}

impl Contender {
    /// The first thing in a scenario that the program cannot do; `None` if there is none.
    pub fn refusal(&self, scenario: &Scenario) -> Option<String> {
        let [flow] = scenario.flows.as_slice() else {
            return Some("programs carry one flow".to_owned());
        };
        if self.paths == PathUse::One && scenario.transport.paths.len() > 1 {
            let what = format!(
                "`{}` uses one path: give it one by `paths`, or say paths = \"all\" in its file",
                self.name
            );
            return Some(what);
        }
        let [time, bytes] = self.amounts;
        let amount = match flow.kind {
            FlowKind::BulkTime(_) => time,
            FlowKind::BulkBytes(_) => bytes,
            _ => return Some("programs carry bulk flows only".to_owned()),
        };
        if !amount || !self.ways[usize::from(flow.way == Way::Backward)] {
            let what = format!("`{}` cannot do this: see its contender file", self.name);
            return Some(what);
        }
        let started_late = flow.start.to > Duration::ZERO || flow.warm_up > Duration::ZERO;
        started_late.then(|| "programs begin at once and are not warmed up".to_owned())
    }

    /// Whether its server is ready.
    ///
    /// # Errors
    /// It ended, or was not ready in time.
    pub fn is_ready(&self, server: &mut Process) -> Result<bool, String> {
        let Some(ready) = self.ready.as_ref().filter(|text| !server.said(text)) else {
            return Ok(true);
        };
        let (name, within) = (&self.name, self.ready_within);
        if let Some(status) = server.ended()? {
            let words = server.last_words();
            return Err(format!("the server of `{name}` ended: {status}{words}"));
        }
        if server.began().elapsed() > within {
            let words = server.last_words();
            return Err(format!(
                "the server of `{name}` did not say `{ready}` within {within:?}{words}"
            ));
        }
        Ok(false)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A [`Mistake`] with its line.
    pub fn load(path: &Path) -> Result<Self, Mistake> {
        let text = fs::read_to_string(path).map_err(|error| Mistake {
            file: path.display().to_string(),
            place: crate::scenario::Place::Given,
            key: String::new(),
            what: format!("cannot read the contender file: {error}"),
            hint: None,
        })?;
        Self::parse(path, &text)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A [`Mistake`] with its line.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Mistake> {
        let document = Document::parse(&path.display().to_string(), text)?;
        let root = Section::root(&document);
        let keys = [
            "format",
            "name",
            "about",
            "paths",
            "directions",
            "amounts",
            "ready",
            "ready-within",
            "server",
            "client",
            "measure",
        ];
        root.only(&keys)?;
        match root.required("format", "expected format = 1")?.value {
            Value::Whole(1) => {}
            _ => return Err(root.wrong("format", "expected format = 1, the only one so far")),
        }
        let paths = match root.text("paths")?.as_deref() {
            None | Some("one") => PathUse::One,
            Some("all") => PathUse::All,
            Some(other) => return Err(root.word("paths", other, &["one", "all"])),
        };
        let base = path.parent().unwrap_or(Path::new(""));
        Ok(Self {
            name: root.needed_text("name", "expected a name for messages")?,
            file: path.to_owned(),
            text: text.to_owned(),
            paths,
            ways: root.words("directions", ["forward", "backward"])?,
            amounts: root.words("amounts", ["time", "bytes"])?,
            server: program(&root.table("server")?, base)?,
            client: program(&root.table("client")?, base)?,
            ready: root.text("ready")?,
            ready_within: root.time("ready-within")?.unwrap_or(READY_WITHIN),
            measure: Measure::read(&root.table("measure")?)?,
        })
    }
}

fn program(section: &Section<'_>, base: &Path) -> Result<Program, Mistake> {
    section.only(&["command", "env"])?;
    let command = section.required("command", "the program and its arguments")?;
    let Value::List(words) = &command.value else {
        let what = "expected a list such as [\"iperf3\", \"-s\", \"-p\", \"{port}\"]";
        return Err(section.wrong("command", what));
    };
    let mut parts = Vec::new();
    for word in words {
        let Value::Text(text) = &word.value else {
            return Err(section.wrong("command", "expected texts only"));
        };
        parts.push(Template::parse(text).map_err(|error| section.template("command", &error))?);
    }
    let Some(first) = parts.first_mut() else {
        return Err(section.wrong("command", "expected at least the program"));
    };
    // A program beside the file is named `./program` and found there, whatever folder a run is
    // started in.
    first.resolve(base);
    let mut env = Vec::new();
    if let Some(node) = section.node.get("env") {
        let Value::Table(entries) = &node.value else {
            return Err(section.wrong("env", "expected a table of texts"));
        };
        for entry in entries {
            let Value::Text(text) = &entry.node.value else {
                return Err(section.wrong("env", "expected texts only"));
            };
            let value = Template::parse(text).map_err(|error| section.template("env", &error))?;
            env.push((entry.key.clone(), value));
        }
    }
    Ok(Program {
        command: parts,
        env,
    })
}

/// A table of the file, and its name.
struct Section<'a> {
    file: &'a str,
    name: &'static str,
    node: &'a Node,
}

impl<'a> Section<'a> {
    fn root(document: &'a Document) -> Self {
        Self {
            file: &document.file,
            name: "",
            node: &document.root,
        }
    }

    fn table(&self, key: &'static str) -> Result<Self, Mistake> {
        let node = self.required(key, &format!("expected a table [{key}]"))?;
        if !matches!(node.value, Value::Table(_)) {
            return Err(self.wrong(key, "expected a table"));
        }
        Ok(Self {
            file: self.file,
            name: key,
            node,
        })
    }

    fn mistake(&self, key: &str, what: String, hint: Option<String>) -> Mistake {
        let place = self
            .node
            .get(key)
            .map_or(self.node.place, |node| node.place);
        let key = match (self.name, key) {
            ("", key) => key.to_owned(),
            (name, key) => format!("{name}.{key}"),
        };
        Mistake {
            file: self.file.to_owned(),
            place,
            key,
            what,
            hint,
        }
    }

    fn wrong(&self, key: &str, what: &str) -> Mistake {
        self.mistake(key, what.to_owned(), None)
    }

    fn word(&self, key: &str, found: &str, known: &[&str]) -> Mistake {
        let what = format!("expected one of {}, found `{found}`", known.join(", "));
        self.mistake(key, what, nearest(found, known.iter().copied()))
    }

    fn template(&self, key: &str, error: &template::Unknown) -> Mistake {
        self.mistake(key, error.to_string(), error.hint.clone())
    }

    /// Refuses unknown keys.
    fn only(&self, known: &[&str]) -> Result<(), Mistake> {
        let Value::Table(entries) = &self.node.value else {
            return Ok(());
        };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let what = format!("there is no such key here: expected {}", known.join(", "));
                let hint = nearest(&entry.key, known.iter().copied());
                return Err(self.mistake(&entry.key, what, hint));
            }
        }
        Ok(())
    }

    fn required(&self, key: &str, what: &str) -> Result<&'a Node, Mistake> {
        let missing = || self.mistake(key, format!("missing: {what}"), None);
        self.node.get(key).ok_or_else(missing)
    }

    fn text(&self, key: &str) -> Result<Option<String>, Mistake> {
        match self.node.get(key).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Text(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(key, "expected a text")),
        }
    }

    fn needed_text(&self, key: &str, what: &str) -> Result<String, Mistake> {
        self.required(key, what)?;
        self.text(key)?.ok_or_else(|| self.wrong(key, what))
    }

    fn time(&self, key: &str) -> Result<Option<Duration>, Mistake> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let wrong = || self.wrong(key, "expected a time above 0 such as \"10s\"");
        let parsed = crate::scenario::Quantity::parse(&text, &|_| {
            Err(crate::scenario::QuantityError {
                what: "there are no parameters here".to_owned(),
                hint: None,
            })
        });
        let quantity = parsed.map_err(|_| wrong())?;
        let is_time = quantity.dimension == crate::scenario::Dimension::Time;
        if !is_time || !(1e-3..=3600.0).contains(&quantity.amount) {
            return Err(wrong());
        }
        Ok(Some(Duration::from_secs_f64(quantity.amount)))
    }

    /// Which of two words a list contains; both if the key is missing.
    fn words(&self, key: &str, known: [&str; 2]) -> Result<[bool; 2], Mistake> {
        let Some(node) = self.node.get(key) else {
            return Ok([true; 2]);
        };
        let list = match &node.value {
            Value::List(list) => list.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut found = [false; 2];
        for node in list {
            let Value::Text(text) = &node.value else {
                return Err(self.wrong(key, "expected texts"));
            };
            match known.iter().position(|word| word == text) {
                Some(at) => found[at] = true,
                None => return Err(self.word(key, text, &known)),
            }
        }
        if found == [false; 2] {
            let what = format!("expected at least one of {}", known.join(", "));
            return Err(self.wrong(key, &what));
        }
        Ok(found)
    }
}
