//! Parts of a plan, for several machines or for what is missing.

use super::Plan;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// One of several parts of equal size: `2/3` is the second of three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// The part with this number, from 1.
    ///
    /// # Errors
    /// There is no such part.
    pub fn new(number: usize, of: usize) -> Result<Self, String> {
        if number == 0 || number > of {
            return Err(format!(
                "there is no shard {number} of {of}: the first is 1"
            ));
        }
        Ok(Self { number, of })
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let (number, of) = numbers.ok_or("expected I/N, as 1/4 for the first of four parts")?;
        Self::new(number, of)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Plan {
    /// A part of it. All contenders of a repetition are in the same one.
    #[must_use]
    pub fn shard(&self, shard: Shard) -> Self {
        let mut group = 0;
        let mut last = None;
        self.keeping(|run| {
            let this = (Arc::clone(&run.swept), run.repetition);
            group += usize::from(last.as_ref().is_some_and(|it| *it != this));
            last = Some(this);
            group % shard.of == shard.number - 1
        })
    }

    /// This plan without the runs of these ids.
    #[must_use]
    pub fn without(&self, ids: &BTreeSet<String>) -> Self {
        self.keeping(|run| !ids.contains(&run.id))
    }

    fn keeping(&self, wanted: impl FnMut(&super::Run) -> bool) -> Self {
        let mut plan = self.clone();
        plan.runs.retain(wanted);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Changes;
    use crate::scenario::{Document, TEMPLATE};

    #[test]
    fn shards_are_the_whole_and_contenders_of_a_repetition_stay_together() {
        let document = Document::parse("t.toml", TEMPLATE).unwrap();
        let changes = Changes {
            runs: Some(5),
            sweep: vec![("path.lte.forward.delay".into(), "10ms,90ms".into())],
            ..Changes::default()
        };
        let plan = Plan::make(&document, &changes).unwrap();
        let ids = |plan: &Plan| plan.runs.iter().map(|run| run.id.clone()).collect();
        let all: BTreeSet<String> = ids(&plan);
        let mut found = BTreeSet::new();
        for number in 1..=3 {
            let part = plan.shard(Shard::new(number, 3).unwrap());
            let mine: BTreeSet<String> = ids(&part);
            assert!(mine.is_disjoint(&found));
            for run in &part.runs {
                let group = |other: &&crate::plan::Run| {
                    (&other.swept, other.repetition) == (&run.swept, run.repetition)
                };
                let whole = plan.runs.iter().filter(group).count();
                assert_eq!(part.runs.iter().filter(group).count(), whole);
            }
            found.extend(mine);
        }
        assert_eq!(found, all);
        assert!(plan.without(&all).runs.is_empty());
    }

    #[test]
    fn a_shard_is_a_number_of_so_many() {
        assert_eq!("2/3".parse(), Shard::new(2, 3));
        assert_eq!(Shard::new(2, 3).unwrap().to_string(), "2/3");
        for wrong in ["", "2", "0/3", "4/3", "0/0", "a/b", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
