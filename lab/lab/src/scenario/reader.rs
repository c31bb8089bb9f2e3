//! Takes keys out of a table one by one; keys that are left over are mistakes.

use super::beside::Named;
use super::document::{Entry, Node, Place, Value};
use super::mistake::{Mistake, nearest};
use super::quantity::{Dimension, Quantity, QuantityError};
use anabranch_schedulers::Names;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Shared by all tables of a file.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) file: &'a str,
    pub(super) parameters: &'a [(String, Quantity)],
    pub(super) names: &'a Names,
    /// The files that were read so far because it names them.
    pub(super) files: RefCell<Vec<Named>>,
}

impl Context<'_> {
    /// A mistake at `place` about `key`.
    pub(super) fn mistake(&self, place: Place, key: &str, what: impl Into<String>) -> Mistake {
        Mistake {
            file: self.file.to_owned(),
            place,
            key: key.to_owned(),
            what: what.into(),
            hint: None,
        }
    }

    fn parameter(&self, name: &str) -> Result<Quantity, QuantityError> {
        let known = self.parameters.iter().find(|(known, _)| known == name);
        known.map(|(_, value)| *value).ok_or_else(|| QuantityError {
            what: format!("there is no parameter `{name}`"),
            hint: nearest(
                name,
                self.parameters.iter().map(|(known, _)| known.as_str()),
            ),
        })
    }
}

/// A table being read.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) place: Place,
    key: String,
    entries: &'a [Entry],
    asked: Vec<&'static str>,
}

/// A value being read.
#[derive(Debug, Clone)]
pub(super) struct Item<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) node: &'a Node,
    pub(super) key: String,
}

impl<'a> Table<'a> {
    /// The value of `key`, if present.
    pub(super) fn item(&mut self, key: &'static str) -> Option<Item<'a>> {
        self.asked.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Item {
            context: self.context,
            node: &entry.node,
            key: self.key_of(key),
        })
    }

    /// The value of a key that was read before, so that a mistake can name its position.
    pub(super) fn given(&self, key: &str) -> Option<Item<'a>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Item {
            context: self.context,
            node: &entry.node,
            key: self.key_of(key),
        })
    }

    /// The value of `key`, which must be present.
    pub(super) fn required(&mut self, key: &'static str, what: &str) -> Result<Item<'a>, Mistake> {
        let missing = format!("`{key}` is missing: {what}");
        if let Some(item) = self.item(key) {
            return Ok(item);
        }
        // The unknown key that was probably meant.
        let strangers = self.entries.iter().map(|entry| entry.key.as_str());
        let strangers = strangers.filter(|known| !self.asked.contains(known));
        let instead = nearest(key, strangers);
        let entry = self
            .entries
            .iter()
            .find(|entry| instead.as_ref() == Some(&entry.key));
        Err(match entry {
            Some(Entry { place, key, .. }) => {
                let what = format!("{missing}; is `{key}` meant for it?");
                self.context.mistake(*place, &self.key_of(key), what)
            }
            None => self.mistake(missing),
        })
    }

    /// Reads the value of `key` with `read`, if present.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Item<'a>) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Mistake> {
        self.item(key).map(|item| read(&item)).transpose()
    }

    /// A mistake about the table as a whole.
    pub(super) fn mistake(&self, what: impl Into<String>) -> Mistake {
        self.context.mistake(self.place, &self.key, what)
    }

    /// Complains about the first unknown key.
    pub(super) fn finish(self) -> Result<(), Mistake> {
        let stranger = self
            .entries
            .iter()
            .find(|e| !self.asked.contains(&e.key.as_str()));
        let Some(entry) = stranger else {
            return Ok(());
        };
        let known = self.asked.join(", ");
        let mut mistake = self.context.mistake(
            entry.place,
            &self.key_of(&entry.key),
            format!("there is no key `{}` here: expected {known}", entry.key),
        );
        mistake.hint = nearest(&entry.key, self.asked.iter().copied());
        Err(mistake)
    }

    fn key_of(&self, key: &str) -> String {
        if self.key.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.key)
        }
    }
}

impl<'a> Item<'a> {
    /// The root of a document.
    pub(super) fn root(context: &'a Context<'a>, node: &'a Node) -> Self {
        let key = String::new();
        Self { context, node, key }
    }

    /// A mistake about this value.
    pub(super) fn mistake(&self, what: impl Into<String>) -> Mistake {
        self.context.mistake(self.node.place, &self.key, what)
    }

    /// A mistake that says what was expected instead.
    pub(super) fn expected(&self, what: &str) -> Mistake {
        self.mistake(format!("expected {what}, found {}", self.node.found()))
    }

    /// As a table.
    pub(super) fn table(&self) -> Result<Table<'a>, Mistake> {
        match &self.node.value {
            Value::Table(entries) => Ok(Table {
                context: self.context,
                place: self.node.place,
                key: self.key.clone(),
                entries,
                asked: Vec::new(),
            }),
            _ => Err(self.expected("a table")),
        }
    }

    /// As a list; a single value is a list of one.
    pub(super) fn list(&self) -> Vec<Self> {
        let Value::List(items) = &self.node.value else {
            return vec![self.clone()];
        };
        let item = |(at, node): (usize, &'a Node)| {
            let name = node
                .get("name")
                .map_or_else(|| (at + 1).to_string(), Node::plain);
            Item {
                context: self.context,
                node,
                key: format!("{}.{name}", self.key),
            }
        };
        items.iter().enumerate().map(item).collect()
    }

    /// As text.
    pub(super) fn text(&self) -> Result<&'a str, Mistake> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.expected("text in quotes")),
        }
    }

    /// As one of a few words.
    pub(super) fn word<T: Copy>(&self, known: &[(&str, T)]) -> Result<T, Mistake> {
        let names = || known.iter().map(|(name, _)| *name);
        let all = names().collect::<Vec<_>>().join(", ");
        let Value::Text(text) = &self.node.value else {
            return Err(self.expected(&format!("one of {all}")));
        };
        let found = known.iter().find(|(name, _)| name == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let mut mistake = self.expected(&format!("one of {all}"));
            mistake.hint = nearest(text, names());
            mistake
        })
    }

    /// As true or false.
    pub(super) fn flag(&self) -> Result<bool, Mistake> {
        match self.node.value {
            Value::Flag(flag) => Ok(flag),
            _ => Err(self.expected("true or false")),
        }
    }

    /// As a quantity of any kind.
    pub(super) fn quantity(&self) -> Result<Quantity, Mistake> {
        match &self.node.value {
            Value::Text(text) => {
                let parsed = Quantity::parse(text, &|name| self.context.parameter(name));
                parsed.map_err(|error| {
                    let mut mistake = self.mistake(error.what);
                    mistake.hint = error.hint;
                    mistake
                })
            }
            Value::Whole(number) => Ok(Quantity::bare(*number as f64)),
            Value::Number(number) => Ok(Quantity::bare(*number)),
            _ => Err(self.expected("a quantity")),
        }
    }

    fn amount(&self, dimension: Dimension) -> Result<f64, Mistake> {
        let quantity = self.quantity().map_err(|mut mistake| {
            if !mistake.what.contains("expected") {
                mistake.what = format!("{}: expected {}", mistake.what, dimension.expected());
            }
            mistake
        })?;
        if quantity.dimension != dimension || quantity.amount < 0.0 {
            return Err(self.expected(dimension.expected()));
        }
        Ok(quantity.amount)
    }

    /// As a time.
    pub(super) fn time(&self) -> Result<Duration, Mistake> {
        let seconds = self.amount(Dimension::Time)?;
        // A year is longer than any scenario, and far below what overflows.
        if seconds > 366.0 * 86_400.0 {
            return Err(self.expected("a time of less than a year"));
        }
        Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
    }

    /// As a rate in bits per second, at least 1.
    pub(super) fn rate(&self) -> Result<u64, Mistake> {
        let rate = self.amount(Dimension::Rate)?.round();
        if (1.0..=1e13).contains(&rate) {
            Ok(rate as u64)
        } else {
            Err(self.expected("a rate from 1bit/s to 10000Gbit/s; for none, take the link down"))
        }
    }

    /// As a number of bytes.
    pub(super) fn size(&self) -> Result<u64, Mistake> {
        let bytes = self.amount(Dimension::Size)?.round();
        if bytes <= 1e15 {
            Ok(bytes as u64)
        } else {
            Err(self.expected("at most 1000000GB"))
        }
    }

    /// As a share from 0 to 1: `"1%"` or `0.01`.
    pub(super) fn share(&self) -> Result<f64, Mistake> {
        let share = self.amount(Dimension::Bare)?;
        if share <= 1.0 {
            Ok(share)
        } else {
            Err(self.expected("a share from 0 to 1, such as \"1%\" or 0.01"))
        }
    }

    /// As a number.
    pub(super) fn number(&self) -> Result<f64, Mistake> {
        self.amount(Dimension::Bare)
    }

    /// As a whole number within `range`, which may be negative.
    pub(super) fn whole(&self, range: RangeInclusive<i32>) -> Result<i32, Mistake> {
        let number = self.quantity()?;
        let is_whole = number.dimension == Dimension::Bare && number.amount.fract() == 0.0;
        let found = is_whole.then_some(number.amount as i32);
        let found = found.filter(|one| range.contains(one));
        let (least, most) = (range.start(), range.end());
        found.ok_or_else(|| self.expected(&format!("a whole number from {least} to {most}")))
    }

    /// As a number of things within `range`.
    pub(super) fn count(&self, range: RangeInclusive<u64>) -> Result<u64, Mistake> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let number = match self.quantity()?.amount {
            number if number.fract() == 0.0 && number >= 0.0 => number as u64,
            _ => return Err(self.expected(&expected)),
        };
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.mistake(format!("expected {expected}, found {number}")))
        }
    }
}
