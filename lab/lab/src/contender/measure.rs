//! Finds in a program's output how many bytes were transferred and how long that took.

use super::Section;
use crate::results::{Outcome, Status};
use crate::scenario::{FlowKind, Mistake, Scenario};
use std::time::Duration;

/// Where the number stands in a pattern.
const NUMBER: &str = "{}";

/// How results are read.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Whether the server's output is read instead of the client's.
    pub at_server: bool,
    /// Where the number of bytes stands.
    pub bytes: Pattern,
    /// Bytes that one unit of this number stands for.
    pub unit: f64,
    /// Where the time stands; without one, the client's running time counts.
    pub seconds: Option<Pattern>,
    /// Seconds that one unit of this number stands for.
    pub time_unit: f64,
}

/// A text with a number in it, such as `received {} bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    before: String,
    after: String,
}

/// The figures that a program reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Application bytes.
    pub bytes: u64,
    /// How long they took.
    pub seconds: Option<f64>,
}

impl Figures {
    /// The outcome of a run in which the client ran for `took`.
    pub fn outcome(&self, scenario: &Scenario, took: Duration) -> Outcome {
        let seconds = self.seconds.unwrap_or(took.as_secs_f64());
        let wanted = match scenario.flows[0].kind {
            FlowKind::BulkBytes(bytes) => Some(bytes),
            _ => None,
        };
        let short = wanted.filter(|wanted| self.bytes < *wanted);
        Outcome {
            status: match short {
                Some(_) => Status::Failed,
                None => Status::Ok,
            },
            reason: short.map_or_else(String::new, |wanted| {
                format!("it moved {} bytes of {wanted}", self.bytes)
            }),
            bytes: self.bytes,
            completion_s: wanted.map(|_| seconds),
            goodput_bps: (seconds > 0.0).then(|| self.bytes as f64 * 8.0 / seconds),
            ..Outcome::default()
        }
    }
}

const UNITS: [(&str, f64); 7] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("bit", 0.125),
];
const TIME_UNITS: [(&str, f64); 4] = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];

impl Measure {
    pub(super) fn read(section: &Section<'_>) -> Result<Self, Mistake> {
        section.only(&["from", "bytes", "unit", "time", "time-unit"])?;
        let at_server = match section.text("from")?.as_deref() {
            None | Some("client") => false,
            Some("server") => true,
            Some(other) => return Err(section.word("from", other, &["client", "server"])),
        };
        let bytes = pattern(section, "bytes")?;
        let missing = "expected a text with {} where the number is, as \"received {} bytes\"";
        Ok(Self {
            at_server,
            bytes: bytes.ok_or_else(|| section.wrong("bytes", missing))?,
            unit: unit(section, "unit", &UNITS)?,
            seconds: pattern(section, "time")?,
            time_unit: unit(section, "time-unit", &TIME_UNITS)?,
        })
    }

    /// The figures in `output`; the last match counts.
    ///
    /// # Errors
    /// What was not found, as a message for the user.
    pub fn figures(&self, output: &str) -> Result<Figures, String> {
        let find = |pattern: &Pattern, what: &str| {
            let found = output
                .lines()
                .filter_map(|line| pattern.number(line))
                .next_back();
            found
                .ok_or_else(|| format!("its output has no `{}` that tells {what}", pattern.shown()))
        };
        let bytes = find(&self.bytes, "bytes")? * self.unit;
        let seconds = match &self.seconds {
            Some(pattern) => Some(find(pattern, "the time")? * self.time_unit),
            None => None,
        };
        Ok(Figures {
            bytes: bytes.round() as u64,
            seconds,
        })
    }
}

impl Pattern {
    /// The number on a line, if the line matches.
    fn number(&self, line: &str) -> Option<f64> {
        let mut rest = line;
        loop {
            let at = rest.find(&self.before)?;
            let from = &rest[at + self.before.len()..];
            let end = from.find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-'));
            let (digits, after) = from.split_at(end.unwrap_or(from.len()));
            let number: Option<f64> = digits.parse().ok();
            if let Some(number) = number.filter(|number| number.is_finite() && *number >= 0.0)
                && after.starts_with(&self.after)
            {
                return Some(number);
            }
            // The pattern may match further along the line.
            let step = rest[at..].chars().next().map_or(1, char::len_utf8);
            rest = rest.get(at + step..).filter(|rest| !rest.is_empty())?;
        }
    }

    fn shown(&self) -> String {
        format!("{}{NUMBER}{}", self.before, self.after)
    }
}

fn pattern(section: &Section<'_>, key: &'static str) -> Result<Option<Pattern>, Mistake> {
    let Some(text) = section.text(key)? else {
        return Ok(None);
    };
    let split = text.split_once(NUMBER);
    let split = split.filter(|(before, after)| {
        !(after.contains(NUMBER) || before.is_empty() && after.is_empty())
    });
    let Some((before, after)) = split else {
        let what = "expected a text with one {} where the number is, as \"received {} bytes\"";
        return Err(section.wrong(key, what));
    };
    Ok(Some(Pattern {
        before: before.to_owned(),
        after: after.to_owned(),
    }))
}

fn unit(section: &Section<'_>, key: &'static str, units: &[(&str, f64)]) -> Result<f64, Mistake> {
    let Some(text) = section.text(key)? else {
        return Ok(1.0);
    };
    let found = units.iter().find(|(name, _)| *name == text);
    found.map(|(_, factor)| *factor).ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        section.word(key, &text, &names)
    })
}
