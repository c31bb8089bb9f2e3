//! Rules on a file as text: length, width, marks of unfinished work, paths of one machine.

use super::{MAX_FILE_LINES, MAX_LINE_COLUMNS};
use crate::Finding;
use crate::source::Source;

/// Marks of unfinished work: allowed with the number of an issue behind them.
// Spelt in two halves, or this file would break its own rule.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
/// Beginnings of paths that exist on somebody's machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/Us", "ers/"),
    concat!("C:\\", "Users"),
];
/// Files whose lines we do not write.
const GENERATED: &[&str] = &["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

/// Adds what is wrong with `source`.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if GENERATED.contains(&source.path.rsplit('/').next().unwrap_or_default()) {
        return;
    }
    let mut add = |line: usize, message: String| {
        findings.push(Finding {
            file: source.path.clone(),
            line,
            message,
        });
    };
    let code = source.is_rust() || source.is_shell() || source.is_python();
    let lines = source.text.lines().count();
    if code && lines > MAX_FILE_LINES {
        add(
            0,
            format!("{lines} lines, {MAX_FILE_LINES} are allowed: divide it by owner of state"),
        );
    }
    for (at, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if code && columns > MAX_LINE_COLUMNS {
            add(
                at + 1,
                format!("{columns} columns, {MAX_LINE_COLUMNS} are allowed"),
            );
        }
        for mark in MARKS {
            if unnumbered(line, mark) {
                add(
                    at + 1,
                    format!("{mark} without an issue: write `{mark}(#123)` or do it"),
                );
            }
        }
        for path in MACHINE_PATHS {
            if names_machine(line, path) {
                add(at + 1, format!("`{path}` names a place on one machine"));
            }
        }
    }
}

/// Whether `line` has `mark` as a word that no `(#number)` follows.
fn unnumbered(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + mark.len()..];
        let word = !before.is_some_and(is_word) && !rest.chars().next().is_some_and(is_word);
        let number = rest
            .strip_prefix("(#")
            .and_then(|rest| rest.split_once(')'));
        let numbered = number.is_some_and(|(n, _)| !n.is_empty() && n.parse::<u64>().is_ok());
        word && !numbered
    })
}

/// Whether `path` begins an absolute path in `line`, rather than going on from a relative one or a
/// URL.
fn names_machine(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word(c) || ".-}$*".contains(c))
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let mut findings = Vec::new();
        check(&source, &mut findings);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_file_may_have_800_lines_and_no_more() {
        assert_eq!(found("a.rs", &"x\n".repeat(MAX_FILE_LINES)), [0; 0]);
        assert_eq!(found("a.rs", &"x\n".repeat(MAX_FILE_LINES + 1)), [0]);
        assert_eq!(found("data.csv", &"x\n".repeat(MAX_FILE_LINES + 1)), [0; 0]);
    }

    #[test]
    fn columns_are_counted_in_characters_of_code_only() {
        let wide = format!("\n{}\n", "é".repeat(MAX_LINE_COLUMNS));
        assert_eq!(found("a.rs", &wide), [0; 0]);
        let wider = format!("\n{}\n", "é".repeat(MAX_LINE_COLUMNS + 1));
        assert_eq!(found("a.rs", &wider), [2]);
        assert_eq!(found("docs/a.md", &wider), [0; 0]);
        assert_eq!(found("run", &format!("#!/usr/bin/env bash{wider}")), [2]);
    }

    #[test]
    fn unfinished_work_needs_the_number_of_an_issue() {
        for mark in MARKS {
            assert_eq!(found("a.rs", &format!("// {mark}: later\n")), [1]);
            assert_eq!(found("a.rs", &format!("// {mark}(soon)\n")), [1]);
            assert_eq!(found("a.rs", &format!("// {mark}(#12): later\n")), [0; 0]);
            assert_eq!(found("a.rs", &format!("// {mark}S and A{mark}\n")), [0; 0]);
        }
    }

    #[test]
    fn a_path_of_one_machine_is_found_anywhere_but_inside_another_path() {
        for path in MACHINE_PATHS {
            assert_eq!(found("docs/a.md", &format!("see {path}x\n")), [1]);
        }
        let inside = format!("https://example.org{0}x and target{0}x\n", MACHINE_PATHS[0]);
        assert_eq!(found("docs/a.md", &inside), [0; 0]);
    }
}
