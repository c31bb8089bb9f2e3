//! Why a scheduler decided: its own words, kept for as long as the program runs.

use anabranch_proto::sched::Reason;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::{Mutex, PoisonError};

/// Different words that a program may use, and one scheduler of one connection; what comes after
/// them counts as [`OTHER`]. Words are never given up, because results and traces refer to them.
const MAX_WORDS: usize = 4096;
/// See [`MAX_WORDS`].
const MAX_OWN_WORDS: usize = 64;
/// What stands for words beyond the limit.
const OTHER: &str = "other";
/// Letters of one reason.
const MAX_LENGTH: usize = 64;
/// Text objects that are known by their identity.
const MAX_OBJECTS: usize = 16;

static WORDS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The words with a place of their own that equal `text`.
fn kept(text: &str) -> &'static str {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.iter().find(|known| **known == text) {
        return known;
    }
    if words.len() >= MAX_WORDS || text.chars().count() > MAX_LENGTH {
        return OTHER;
    }
    let word: &'static str = Box::leak(text.to_owned().into_boxed_str());
    words.push(word);
    word
}

/// The reasons that one scheduler gives, found by the identity of the text: a literal in Python's
/// source is the same object in every call.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    objects: Vec<(Py<PyString>, &'static str)>,
    words: Vec<&'static str>,
}

impl Reasons {
    pub(super) fn of(&mut self, text: &Bound<'_, PyString>) -> PyResult<Reason> {
        if let Some((_, word)) = self.objects.iter().find(|(known, _)| known.is(text)) {
            return Ok(Reason::Other(word));
        }
        let said = text.to_str()?;
        let known = self.words.iter().find(|word| **word == said).copied();
        let word = match known {
            Some(word) => word,
            None if self.words.len() < MAX_OWN_WORDS => {
                let word = kept(said);
                self.words.push(word);
                word
            }
            None => OTHER,
        };
        if self.objects.len() < MAX_OBJECTS {
            self.objects.push((text.clone().unbind(), word));
        }
        Ok(Reason::Other(word))
    }
}
