//! Names with parameters, as users type them: `NAME[:key=value,...]`.
//!
//! A name may be a chain of names joined by `+`; a key may be that of a link of it, before a dot.
//!
//! Schedulers and congestion controllers are both named this way. A mistake becomes a message that
//! says what is wrong and what is nearest to it; nothing is guessed.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

#[cfg(test)]
mod tests;

/// What a user asked for: a name and its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// The name.
    pub name: String,
    /// What follows the colon.
    pub params: Params,
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (text.trim(), None),
        };
        if !name.split('+').all(is_word) {
            return Err(SpecError::syntax(
                text,
                "a name of letters, digits and dashes comes first",
            ));
        }
        let mut params = Params {
            owner: name.to_owned(),
            ..Params::default()
        };
        for item in rest.iter().flat_map(|rest| rest.split(',')) {
            let (key, value) = item.split_once('=').unwrap_or((item, "true"));
            let (key, value) = (key.trim(), value.trim());
            if !is_key(key) || value.is_empty() {
                return Err(SpecError::syntax(
                    text,
                    "after the colon comes key=value,key=value",
                ));
            }
            if params.given.iter().any(|(known, _)| known == key) {
                return Err(SpecError::syntax(text, "a parameter is given twice"));
            }
            params.given.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            params,
        })
    }
}

impl Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let mut separator = ':';
        for (key, value) in &self.params.given {
            write!(f, "{separator}{key}={value}")?;
            separator = ',';
        }
        Ok(())
    }
}

fn is_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(fits)
}

/// A word, or two with a dot between them.
fn is_key(text: &str) -> bool {
    let (owner, key) = text.split_once('.').unwrap_or(("x", text));
    is_word(owner) && is_word(key)
}

/// The description of one parameter, for help texts and for finding misspelt keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamDoc {
    /// The key.
    pub key: &'static str,
    /// The value it has unless given, as a user would type it.
    pub default: &'static str,
    /// One line: what it does.
    pub summary: &'static str,
}

/// Parameters that are taken out one by one, each with its type and its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Params {
    /// Whose parameters these are, for messages.
    owner: String,
    given: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl Params {
    /// The value of `key`, or `default`.
    pub fn take<T: Value>(&mut self, key: &'static str, default: T) -> Result<T, SpecError> {
        match self.remove(key) {
            None => Ok(default),
            Some(text) => self.parse(key, &text, &text),
        }
    }

    /// Like [`take`](Self::take), but refuses a value outside `range`.
    pub fn take_in<T: Value + PartialOrd + Display>(
        &mut self,
        key: &'static str,
        default: T,
        range: RangeInclusive<T>,
    ) -> Result<T, SpecError> {
        let Some(text) = self.remove(key) else {
            return Ok(default);
        };
        let value = self.parse(key, &text, &text)?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(self.bad_value(
            key,
            &text,
            format!("from {} to {}", range.start(), range.end()),
        ))
    }

    /// Whether `key` is given alone or as `key=true`.
    pub fn flag(&mut self, key: &'static str) -> Result<bool, SpecError> {
        self.take(key, false)
    }

    /// Values separated by slashes; none if `key` is not given.
    pub fn list<T: Value>(&mut self, key: &'static str) -> Result<Vec<T>, SpecError> {
        let Some(text) = self.remove(key) else {
            return Ok(Vec::new());
        };
        text.split('/')
            .map(|item| self.parse(key, item.trim(), &text))
            .collect()
    }

    /// One of a few words, each with its meaning.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        words: &[(&str, T)],
    ) -> Result<T, SpecError> {
        let Some(text) = self.remove(key) else {
            return Ok(default);
        };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*meaning);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(self.bad_value(key, &text, known.join(" or ")))
    }

    /// Gives `key` this value, unless the user gave it one.
    pub fn give_unless_given(&mut self, key: &str, value: impl Display) {
        if self.keys().all(|known| known != key) {
            self.given.push((key.to_owned(), value.to_string()));
        }
    }

    /// The keys that are given and not taken out yet.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(|(key, _)| key.as_str())
    }

    /// Refuses what was given and never asked for.
    pub fn finish(&self) -> Result<(), SpecError> {
        self.refuse_unknown(&self.asked)
    }

    /// Refuses keys that `docs` do not describe.
    pub fn check(&self, docs: &[ParamDoc]) -> Result<(), SpecError> {
        let known: Vec<&str> = docs.iter().map(|doc| doc.key).collect();
        self.refuse_unknown(&known)
    }

    /// Takes out the parameters whose keys begin with `owner` and a dot: those are its own.
    #[must_use]
    pub fn split_off(&mut self, owner: &str) -> Self {
        let mut own = Self::default().owned_by(owner);
        self.given.retain(|(key, value)| {
            let key = key
                .strip_prefix(owner)
                .and_then(|key| key.strip_prefix('.'));
            own.given
                .extend(key.map(|key| (key.to_owned(), value.clone())));
            key.is_none()
        });
        own
    }

    /// The same parameters with another owner, for messages.
    #[must_use]
    pub fn owned_by(self, owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            ..self
        }
    }

    /// An error about the value of `key`, for checks that only the owner can make.
    pub fn bad_value(&self, key: &str, value: &str, expected: impl Into<String>) -> SpecError {
        SpecError::BadValue {
            owner: self.owner.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.into(),
        }
    }

    fn refuse_unknown(&self, known: &[&str]) -> Result<(), SpecError> {
        let stray = self
            .given
            .iter()
            .find(|(key, _)| !known.contains(&key.as_str()));
        let Some((key, _)) = stray else { return Ok(()) };
        Err(SpecError::UnknownKey {
            owner: self.owner.clone(),
            key: key.clone(),
            nearest: nearest(key, known.iter().copied()),
            known: known.iter().map(|&key| key.to_owned()).collect(),
        })
    }

    fn remove(&mut self, key: &'static str) -> Option<String> {
        self.asked.push(key);
        let at = self.given.iter().position(|(given, _)| given == key)?;
        Some(self.given.remove(at).1)
    }

    fn parse<T: Value>(&self, key: &str, item: &str, whole: &str) -> Result<T, SpecError> {
        T::parse(item).ok_or_else(|| self.bad_value(key, whole, T::EXPECTED))
    }
}

/// A type that a parameter may have.
pub trait Value: Sized {
    /// What is expected, for a person.
    const EXPECTED: &'static str;

    /// The value that `text` names.
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! whole_number {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

whole_number!(
    u16: "a whole number from 0 to 65535",
    u32: "a whole number from 0 to 4294967295",
    u64: "a whole number, 0 or more",
    i32: "a whole number",
    bool: "true or false"
);

impl Value for f64 {
    const EXPECTED: &'static str = "a number";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|value: &Self| value.is_finite())
    }
}

/// What is wrong with a [`Spec`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing of this kind has the name.
    #[error("there is no {kind} `{name}`{}; known: {}", hint(nearest.as_deref()), known.join(", "))]
    UnknownName {
        /// What was looked for: "scheduler", for example.
        kind: &'static str,
        /// What was typed.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
        /// All names.
        known: Vec<String>,
    },
    /// The parameter does not exist.
    #[error("`{owner}` has no parameter `{key}`{}; {}", hint(nearest.as_deref()), takes(known))]
    UnknownKey {
        /// Whose parameter it would be.
        owner: String,
        /// What was typed.
        key: String,
        /// The most similar key, if one is similar.
        nearest: Option<String>,
        /// All keys.
        known: Vec<String>,
    },
    /// The parameter cannot have this value.
    #[error("`{owner}` cannot use `{key}={value}`: expected {expected}")]
    BadValue {
        /// Whose parameter it is.
        owner: String,
        /// The key.
        key: String,
        /// What was typed.
        value: String,
        /// What would be accepted.
        expected: String,
    },
    /// This is not `NAME[:key=value,...]`.
    #[error("cannot read `{text}`: {expected}")]
    Syntax {
        /// What was typed.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
}

impl SpecError {
    pub(crate) fn syntax(text: &(impl Display + ?Sized), expected: &'static str) -> Self {
        Self::Syntax {
            text: text.to_string(),
            expected,
        }
    }

    /// The error for a `name` that is none of `known`.
    pub fn unknown_name<'a>(
        kind: &'static str,
        name: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        Self::UnknownName {
            kind,
            name: name.to_owned(),
            nearest: nearest(name, known.clone()),
            known: known.map(str::to_owned).collect(),
        }
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}

fn takes(known: &[String]) -> String {
    if known.is_empty() {
        "it takes none".to_owned()
    } else {
        format!("it takes {}", known.join(", "))
    }
}

/// The most similar of `known`. Below this similarity (Jaro and Winkler's, 0 to 1) a hint would
/// confuse more than help.
const SIMILAR: f64 = 0.7;

fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let typed = typed.to_ascii_lowercase();
    let similarity = |name: &str| {
        let contained = typed.len() > 2 && (name.contains(&typed) || typed.contains(name));
        if contained {
            1.0
        } else {
            strsim::jaro_winkler(&typed, name)
        }
    };
    let scored = known
        .map(|name| (similarity(name), name))
        .filter(|(score, _)| *score >= SIMILAR);
    scored
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.to_owned())
}
