//! The columns of swept keys: each value as written in the scenario and, if all values of a key are
//! quantities of one kind, also as a number in base units.

use super::Part;
use super::schema::{Cell, Column, Kind};
use crate::scenario::{Dimension, Quantity};

/// A swept key of a table.
pub(super) struct SweptKey {
    key: String,
    /// The dimension of its values, if they are quantities of one kind.
    dimension: Option<Dimension>,
}

impl SweptKey {
    /// All swept keys of these runs, in the order in which they appear.
    pub(super) fn of<'a>(parts: &(impl Iterator<Item = &'a Part> + Clone)) -> Vec<Self> {
        let mut keys: Vec<&String> = Vec::new();
        for (key, _) in parts.clone().flat_map(|part| &part.swept) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let swept = |key: &String| {
            let values = parts.clone().filter_map(|part| value(part, key));
            Self {
                key: key.clone(),
                dimension: Quantity::amounts(values).map(|(dimension, _)| dimension),
            }
        };
        keys.into_iter().map(swept).collect()
    }

    /// Its columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = Column> {
        let text = Column {
            name: format!("p.{}", self.key),
            kind: Kind::Text,
            about: "a swept value",
        };
        let number = self.dimension.map(|dimension| Column {
            name: format!("p.{}_{}", self.key, unit(dimension)),
            kind: Kind::Number,
            about: "a swept value in base units",
        });
        [text].into_iter().chain(number)
    }

    /// The cells of one run, one for each column.
    pub(super) fn cells(&self, part: &Part) -> impl Iterator<Item = Cell> {
        let value = value(part, &self.key);
        let text = value.map_or(Cell::Nothing, |value| Cell::Text(value.to_owned()));
        let amount = Quantity::amounts(value.into_iter()).map(|(_, amounts)| amounts[0]);
        let number = self
            .dimension
            .map(|_| amount.map_or(Cell::Nothing, Cell::Number));
        [text].into_iter().chain(number)
    }
}

fn value<'p>(part: &'p Part, key: &str) -> Option<&'p str> {
    let (_, value) = part.swept.iter().find(|(known, _)| known == key)?;
    Some(value)
}

/// The suffix that names a dimension's unit in a column.
fn unit(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Time => "s",
        Dimension::Rate => "bps",
        Dimension::Size => "bytes",
        Dimension::Packets => "packets",
        Dimension::Bare => "value",
    }
}
