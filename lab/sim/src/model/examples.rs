//! The worked examples of the papers, and whether ours reproduce them.

use super::{critical, delivery};
use anabranch_proto::sched::Scheduler;

/// A statement of a paper beside what our run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The experiment, as `docs/papers.md` names it.
    pub experiment: &'static str,
    /// The statement's number.
    pub statement: &'static str,
    /// What the paper states.
    pub text: &'static str,
    /// The published value.
    pub published: String,
    /// Our value.
    pub ours: String,
    /// Whether they agree as closely as the statement requires.
    pub holds: bool,
}

/// Runs all worked examples.
pub fn verdicts() -> Vec<Verdict> {
    let mut all = critical::verdicts();
    all.extend(delivery::verdicts());
    all
}

/// A scheduler of the engine, by name.
pub(super) fn scheduler(spec: &str) -> Box<dyn Scheduler> {
    let spec = spec.parse().expect("a specification");
    anabranch_schedulers::builtin()
        .build(&spec)
        .expect("a known scheduler")
}

/// A verdict that requires equality.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    (experiment, statement, text): (&'static str, &'static str, &'static str),
    published: &T,
    ours: &T,
) -> Verdict {
    Verdict {
        experiment,
        statement,
        text,
        published: format!("{published:?}"),
        ours: format!("{ours:?}"),
        holds: published == ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_hold(verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            assert!(verdict.holds, "{verdict:#?}");
        }
    }

    #[test]
    fn the_third_papers_tables_come_out_as_published() {
        all_hold(critical::verdicts());
    }

    #[test]
    fn the_fifth_papers_tables_come_out_as_published() {
        all_hold(delivery::verdicts());
    }
}
