//! Swept keys as axes.

use anabranch_lab::results::Part;
use anabranch_lab::scenario::Quantity;
use std::collections::BTreeSet;

/// A swept key with more than one value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Swept {
    /// The key as written in the scenario.
    pub(crate) key: String,
    /// Its values in ascending order, or in the order of the file if they are not quantities.
    pub(crate) values: Vec<String>,
    /// Their amounts, if all are quantities of one kind.
    pub(crate) amounts: Option<Vec<f64>>,
    /// Their common unit, if they have one.
    unit: String,
}

impl Swept {
    /// The keys that vary over `parts`; of keys that vary together only the first.
    pub(crate) fn of(parts: &[Part]) -> Vec<Self> {
        let Some(first) = parts.first() else {
            return Vec::new();
        };
        let mut found: Vec<(Vec<String>, Self)> = Vec::new();
        for (at, (key, _)) in first.swept.iter().enumerate() {
            let column: Vec<String> = parts
                .iter()
                .filter_map(|part| Some(part.swept.get(at)?.1.clone()))
                .collect();
            let mut values: Vec<String> = Vec::new();
            for value in &column {
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
            if values.len() < 2 || column.len() != parts.len() {
                continue;
            }
            if found.iter().any(|(known, _)| in_step(known, &column)) {
                continue;
            }
            found.push((column, Self::new(key, values)));
        }
        found.into_iter().map(|(_, swept)| swept).collect()
    }

    fn new(key: &str, mut values: Vec<String>) -> Self {
        let texts = values.iter().map(String::as_str);
        let mut amounts = Quantity::amounts(texts).map(|(_, amounts)| amounts);
        if let Some(amounts) = &mut amounts {
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|a, b| amounts[*a].total_cmp(&amounts[*b]));
            values = order.iter().map(|at| values[*at].clone()).collect();
            *amounts = order.iter().map(|at| amounts[*at]).collect();
        }
        let units: BTreeSet<&str> = values.iter().map(|value| split(value).1).collect();
        let unit = match units.first() {
            Some(unit) if units.len() == 1 && amounts.is_some() => (*unit).to_owned(),
            _ => String::new(),
        };
        Self {
            key: key.to_owned(),
            values,
            amounts,
            unit,
        }
    }

    /// The last part of the key with the unit, as the title of an axis.
    pub(crate) fn title(&self) -> String {
        let name = short(&self.key);
        if self.unit.is_empty() {
            name.to_owned()
        } else {
            format!("{name} [{}]", self.unit)
        }
    }

    /// The values as labels of an axis whose title has the unit.
    pub(crate) fn labels(&self) -> Vec<String> {
        let label = |value: &String| {
            if self.unit.is_empty() {
                value.clone()
            } else {
                split(value).0.trim().to_owned()
            }
        };
        self.values.iter().map(label).collect()
    }
}

/// The value of a key.
pub(crate) fn value_of<'s>(swept: &'s [(String, String)], key: &str) -> Option<&'s str> {
    let (_, value) = swept.iter().find(|(known, _)| known == key)?;
    Some(value)
}

/// The last part of a key.
pub(crate) fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// A point in readable form.
pub(crate) fn point(swept: &[(String, String)]) -> String {
    let parts: Vec<String> = swept
        .iter()
        .map(|(key, value)| format!("{} = {value}", short(key)))
        .collect();
    parts.join(", ")
}

/// Whether the two columns vary together: each value of one belongs to one value of the other.
fn in_step(a: &[String], b: &[String]) -> bool {
    let pairs: BTreeSet<(&String, &String)> = a.iter().zip(b).collect();
    let (left, right) = (
        a.iter().collect::<BTreeSet<_>>(),
        b.iter().collect::<BTreeSet<_>>(),
    );
    pairs.len() == left.len() && pairs.len() == right.len()
}

fn split(value: &str) -> (&str, &str) {
    let numeric = |c: char| c.is_ascii_digit() || c == '.' || c == '_' || c == '-';
    let end = value.find(|c| !numeric(c)).unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    (digits, unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(points: &[&[(&str, &str)]]) -> Vec<Part> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let part = |point: &&[(&str, &str)]| Part {
            swept: point.iter().map(owned).collect(),
            ..Part::default()
        };
        points.iter().map(part).collect()
    }

    #[test]
    fn quantities_are_sorted_and_their_unit_stands_in_the_title() {
        let swept = Swept::of(&parts(&[
            &[("path.a.rate", "10Mbit/s")],
            &[("path.a.rate", "2Mbit/s")],
        ]));
        assert_eq!(swept[0].labels(), ["2", "10"]);
        assert_eq!(swept[0].title(), "rate [Mbit/s]");
        assert_eq!(swept[0].amounts, Some(vec![2e6, 1e7]));
    }

    #[test]
    fn keys_that_vary_together_are_one_axis() {
        let swept = Swept::of(&parts(&[
            &[("a", "1ms"), ("b", "x"), ("c", "1")],
            &[("a", "2ms"), ("b", "y"), ("c", "1")],
        ]));
        assert_eq!(swept.len(), 1);
        assert_eq!(swept[0].key, "a");
    }

    #[test]
    fn values_without_an_order_keep_that_of_the_file() {
        let swept = Swept::of(&parts(&[&[("p", "zeta")], &[("p", "alpha")]]));
        assert_eq!(swept[0].values, ["zeta", "alpha"]);
        assert_eq!(swept[0].amounts, None);
        assert_eq!(swept[0].title(), "p");
    }
}
