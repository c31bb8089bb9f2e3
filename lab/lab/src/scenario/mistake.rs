//! Errors in a scenario, as shown to its author.

use super::document::Place;
use std::fmt;

/// A mistake in a scenario: where it is, what is wrong, and what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: String,
    /// The position in it.
    pub place: Place,
    /// The key it is about, such as `path.dsl.forward.rate`; empty if it is about the whole file.
    pub key: String,
    /// What is wrong and what was expected.
    pub what: String,
    /// The most similar valid name, if any is similar.
    pub hint: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Place::File { line, column } = self.place {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; did you mean `{hint}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Mistake {}

/// The least similarity (Jaro and Winkler's, 0 to 1) for a hint; below it, one would confuse more
/// than help.
const SIMILAR: f64 = 0.7;

/// The name in `known` that is most similar to `typed`.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let typed = typed.to_ascii_lowercase();
    let scored = known.map(|name| {
        let lower = name.to_ascii_lowercase();
        // Short names have few letters to match: a single typo or transposition is close enough.
        let slip = typed.len() > 1 && strsim::osa_distance(&typed, &lower) == 1;
        let score = strsim::jaro_winkler(&typed, &lower);
        (if slip { score.max(0.9) } else { score }, name)
    });
    let best = scored
        .filter(|(score, _)| *score >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name.to_owned())
}
