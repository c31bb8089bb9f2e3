//! The expected verdicts: reads and writes the table of docs/papers.md.

use super::{Statement, Verdict};
use std::fmt::Write as _;

const HEAD: &str = "| experiment | | statement | published | ours | holds |";

/// The verdicts that a table lists.
///
/// A table is Markdown with the columns `experiment`, number, `statement`, `published`, `ours` and
/// `holds`. Text before and after it is ignored, so it may stand in a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    line: usize,
    /// Experiment, number and text.
    key: [String; 3],
    verdict: Verdict,
}

impl Expected {
    /// Reads a table.
    ///
    /// # Errors
    /// A line whose verdict is unknown, or the lack of a table.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rows = Vec::new();
        let lines = text.lines().enumerate();
        let mut lines = lines.skip_while(|(_, line)| line.trim() != HEAD).skip(2);
        let table = lines.by_ref().take_while(|(_, line)| line.starts_with('|'));
        for (index, line) in table {
            let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").collect();
            let [experiment, number, text, _, _, verdict] = cells.as_slice() else {
                let what = format!("line {}: expected six cells", index + 1);
                return Err(format!("{what}, found {}", cells.len()));
            };
            let verdict = verdict_of(verdict.trim()).ok_or_else(|| {
                let what = format!("line {}: `{}` is no verdict", index + 1, verdict.trim());
                format!("{what}; expected `holds`, `**no**` or `told`")
            })?;
            rows.push(Row {
                line: index + 1,
                key: [experiment, number, text].map(|cell| cell.trim().to_owned()),
                verdict,
            });
        }
        if rows.is_empty() {
            return Err(format!("there is no table below a line `{HEAD}`"));
        }
        Ok(Self { rows })
    }

    /// The differences between these statements and the table, in words; empty if there are none.
    /// Experiments without a statement here were not run, so their rows are not compared.
    pub fn differences(&self, statements: &[Statement]) -> Vec<String> {
        let mut found = Vec::new();
        for statement in statements {
            let key = key(statement);
            let name = key.join(" ");
            match self.rows.iter().find(|row| row.key == key) {
                None => found.push(format!("{name}: {}, not listed", word(statement.verdict))),
                Some(row) if row.verdict != statement.verdict => found.push(format!(
                    "{name}: {} ({}), listed as `{}` in line {}",
                    word(statement.verdict),
                    statement.ours,
                    word(row.verdict),
                    row.line
                )),
                Some(_) => {}
            }
        }
        for row in &self.rows {
            let mut run = statements.iter();
            let was_run = run.any(|statement| statement.experiment == row.key[0]);
            if was_run && !statements.iter().any(|s| key(s) == row.key) {
                let name = row.key.join(" ");
                found.push(format!("{name}: listed in line {}, not judged", row.line));
            }
        }
        found
    }
}

/// Renders the statements in the format `Expected::parse` reads; figures that are whole tables
/// themselves are shortened.
pub fn table(statements: &[Statement]) -> String {
    let mut text = format!("{HEAD}\n|---|---|---|---|---|---|\n");
    for statement in statements {
        let [experiment, number, what] = key(statement);
        let (published, ours) = (cut(&statement.published), cut(&statement.ours));
        let verdict = word(statement.verdict);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {experiment} | {number} | {what} | {published} | {ours} | {verdict} |"
        );
    }
    text
}

fn key(statement: &Statement) -> [String; 3] {
    [&statement.experiment, &statement.number, &statement.text].map(|cell| cell.trim().to_owned())
}

fn cut(text: &str) -> String {
    const MOST: usize = 110;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

const WORDS: [(Verdict, &str); 4] = [
    (Verdict::Holds, "holds"),
    (Verdict::Fails, "**no**"),
    (Verdict::Told, "told"),
    (Verdict::Missing, "not run"),
];

fn word(verdict: Verdict) -> &'static str {
    let known = WORDS.into_iter().find(|(known, _)| *known == verdict);
    known.map_or("", |(_, word)| word)
}

fn verdict_of(text: &str) -> Option<Verdict> {
    let known = WORDS.into_iter().find(|(_, word)| *word == text);
    known.map(|(verdict, _)| verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(number: &str, ours: &str, holds: bool) -> Statement {
        Statement::new(("one", number), "it does", "much", ours, holds)
    }

    fn three() -> [Statement; 3] {
        [
            statement("T1", "3", true),
            statement("T2", "4", false),
            statement("T3", "5", true).told(),
        ]
    }

    #[test]
    fn a_table_that_was_written_is_read_again() {
        let text = format!("# Title\n\nText.\n\n{}\n| a | b |\n", table(&three()));
        let expected = Expected::parse(&text).unwrap();
        assert_eq!(expected.rows.len(), 3);
        assert_eq!(expected.differences(&three()), [""; 0]);
    }

    #[test]
    fn a_change_either_way_is_told_with_its_line() {
        let expected = Expected::parse(&table(&three())).unwrap();
        let [_, _, third] = three();
        let now = [
            statement("T1", "9", false),
            statement("T2", "8", true),
            third,
        ];
        let found = expected.differences(&now);
        assert_eq!(
            found,
            [
                "one T1 it does: **no** (9), listed as `holds` in line 3",
                "one T2 it does: holds (8), listed as `**no**` in line 4",
            ]
        );
    }

    #[test]
    fn statements_that_came_or_went_are_told() {
        let expected = Expected::parse(&table(&three()[..2])).unwrap();
        let found = expected.differences(&three()[1..]);
        assert_eq!(
            found,
            [
                "one T3 it does: told, not listed",
                "one T1 it does: listed in line 3, not judged",
            ]
        );
        let other = Statement::new(("two", "T1"), "it does", "", "", true);
        assert_eq!(
            expected.differences(&[other]),
            ["two T1 it does: holds, not listed"]
        );
    }

    #[test]
    fn what_is_no_table_is_refused_with_the_line() {
        let error = Expected::parse("nothing here").unwrap_err();
        assert!(error.contains("there is no table"), "{error}");
        let text = table(&three()).replace("| **no** |", "| perhaps |");
        let error = Expected::parse(&text).unwrap_err();
        assert!(error.contains("line 4: `perhaps` is no verdict"), "{error}");
        let text = table(&three()).replace(" | 4 |", " |");
        let error = Expected::parse(&text).unwrap_err();
        assert!(
            error.contains("line 4: expected six cells, found 5"),
            "{error}"
        );
    }
}
