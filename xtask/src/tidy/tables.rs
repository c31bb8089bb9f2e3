//! Tables in `docs` that name files and tests: each must exist.

use crate::Finding;
use crate::source::Source;
use std::collections::BTreeSet;

/// The documents whose names are checked.
const DOCUMENTS: &[&str] = &["docs/mechanisms.md", "docs/schedulers-acceptance.md"];
/// Underscores that make a name a sentence, as the names of tests are.
const SENTENCE: usize = 3;

/// Checks every name in backticks that looks like a file or a test.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let files: BTreeSet<&str> = sources.iter().map(|source| &*source.path).collect();
    let rust = sources.iter().filter(|source| source.is_rust());
    let functions: BTreeSet<&str> = rust.flat_map(|source| functions(&source.text)).collect();
    let documents = sources
        .iter()
        .filter(|source| DOCUMENTS.contains(&&*source.path));
    for document in documents {
        for (at, line) in document.text.lines().enumerate() {
            for name in quoted(line) {
                let exists = match kind(name) {
                    Some(Kind::File) => files.contains(name),
                    Some(Kind::Test) => functions.contains(name),
                    None => true,
                };
                if !exists {
                    findings.push(Finding {
                        file: document.path.clone(),
                        line: at + 1,
                        message: format!("names `{name}`, which does not exist"),
                    });
                }
            }
        }
    }
}

enum Kind {
    File,
    Test,
}

fn kind(name: &str) -> Option<Kind> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.contains('/')
        && std::path::Path::new(name)
            .extension()
            .is_some_and(|it| it == "rs")
    {
        Some(Kind::File)
    } else if name.chars().all(word) && name.matches('_').count() >= SENTENCE {
        Some(Kind::Test)
    } else {
        None
    }
}

/// What stands between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The names of all functions.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        Some(&rest[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.into(),
            text: text.into(),
        };
        let sources = [
            source("docs/mechanisms.md", document),
            source("a/b.rs", "#[test]\nfn a_test_that_is_there() {}"),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_exist_and_names_of_other_things_pass() {
        let document = "`a/b.rs`, `a_test_that_is_there` with `min-rtt:mode=hold`, `k_of_n`";
        assert_eq!(found(document), Vec::<String>::new());
    }

    #[test]
    fn a_file_or_test_that_is_gone_is_found_with_its_line() {
        assert_eq!(found("fine\n`a/c.rs`").len(), 1);
        let lines = found("\n\n`a_test_that_is_gone`");
        assert!(lines[0].contains("a_test_that_is_gone"), "{lines:?}");
        assert!(lines[0].contains('3'), "{lines:?}");
    }
}
