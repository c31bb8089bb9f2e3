//! Whether a run gives the same result twice: the simulator's promise, checked with its hashes.

use crate::plan::Plan;
use crate::results::{Part, Status};
use std::fmt;

/// Two runs with one seed that differed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The scenario.
    pub scenario: String,
    /// The contender.
    pub contender: String,
    /// The swept keys with their values.
    pub swept: Vec<(String, String)>,
    /// The run's id.
    pub run_id: String,
    /// The first result and the second: a hash, or why there is none.
    pub found: (String, String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.scenario, self.contender)?;
        for (key, value) in &self.swept {
            write!(f, " {key}={value}")?;
        }
        let (first, second) = &self.found;
        write!(f, ": run {} came out as {first}", self.run_id)?;
        write!(f, " and then as {second}")
    }
}

impl Plan {
    /// The first repetition of each contender at the first point: enough to see whether a scenario
    /// repeats, in a fraction of the time.
    #[must_use]
    pub fn beginning(&self) -> Self {
        let mut plan = self.clone();
        if let Some(first) = self.runs.first() {
            let same = |run: &crate::plan::Run| {
                run.repetition == first.repetition && run.swept == first.swept
            };
            plan.runs.retain(same);
        }
        plan
    }
}

/// Compares runs with their repetitions. Runs made only once are skipped, and so is whatever the
/// backend does not support.
pub fn differences(first: &[Part], second: &[Part]) -> Vec<Difference> {
    let mut found = Vec::new();
    for again in second {
        let Some(part) = first.iter().find(|part| part.run_id == again.run_id) else {
            continue;
        };
        let unsupported = |part: &Part| part.outcome.status == Status::Unsupported;
        let hashes = (&part.outcome.trace_hash, &again.outcome.trace_hash);
        let same = hashes.0.is_some() && hashes.0 == hashes.1;
        if same || (unsupported(part) && unsupported(again)) {
            continue;
        }
        found.push(Difference {
            scenario: again.scenario.clone(),
            contender: again.contender.clone(),
            swept: again.swept.clone(),
            run_id: again.run_id.clone(),
            found: (told(part), told(again)),
        });
    }
    found
}

fn told(part: &Part) -> String {
    let outcome = &part.outcome;
    match &outcome.trace_hash {
        Some(hash) => format!("trace {hash}"),
        None => format!("{}: {}", outcome.status.name(), outcome.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Changes;
    use crate::results::Outcome;
    use crate::scenario::{Document, TEMPLATE};

    fn part(id: &str, hash: Option<&str>) -> Part {
        Part {
            run_id: id.to_owned(),
            scenario: "s".to_owned(),
            contender: "min-rtt".to_owned(),
            swept: vec![("rtt".to_owned(), "50ms".to_owned())],
            outcome: Outcome {
                trace_hash: hash.map(str::to_owned),
                status: if hash.is_some() {
                    Status::Ok
                } else {
                    Status::Failed
                },
                ..Outcome::default()
            },
            ..Part::default()
        }
    }

    #[test]
    fn another_trace_is_told_with_the_scenario_and_both_hashes() {
        let first = [part("1", Some("aa")), part("2", Some("bb"))];
        assert_eq!(differences(&first, &first[..1]), []);
        let second = [part("1", Some("aa")), part("2", Some("cc"))];
        let found = differences(&first, &second);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = "s: min-rtt rtt=50ms: run 2 came out as trace bb and then as trace cc";
        assert_eq!(texts, [expected]);
    }

    #[test]
    fn a_run_without_a_trace_proves_nothing_and_is_told() {
        let none = [part("1", None)];
        assert_eq!(differences(&none, &none).len(), 1);
        let mut unsupported = none;
        unsupported[0].outcome.status = Status::Unsupported;
        assert_eq!(differences(&unsupported, &unsupported), []);
    }

    #[test]
    fn the_beginning_of_a_plan_has_each_contender_once() {
        let document = Document::parse("t", TEMPLATE).unwrap();
        let changes = Changes {
            runs: Some(3),
            ..Changes::default()
        };
        let plan = Plan::make(&document, &changes).unwrap();
        let beginning = plan.beginning();
        assert!(plan.runs.len() >= 3 * beginning.runs.len());
        let mut names: Vec<&str> = beginning
            .runs
            .iter()
            .map(|r| r.contender.as_str())
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(beginning.runs[0].id, plan.runs[0].id);
    }
}
