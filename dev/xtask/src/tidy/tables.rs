//! Tables in `docs` that name files and tests: each must exist.

use crate::Finding;
use crate::source::Source;
use std::collections::BTreeSet;

/// The documents whose names are checked.
const DOCUMENTS: &[&str] = &[
    "docs/features.md",
    "docs/mechanisms.md",
    "docs/schedulers-acceptance.md",
];
/// Underscores that make a name a sentence, as the names of tests are.
const SENTENCE: usize = 3;

/// Checks every name in backticks that looks like a file or a test.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let files: BTreeSet<&str> = sources.iter().map(|source| &*source.path).collect();
    let rust = sources.iter().filter(|source| source.is_rust());
    let tests: BTreeSet<&str> = rust.flat_map(|source| test_names(&source.text)).collect();
    let documents = sources
        .iter()
        .filter(|source| DOCUMENTS.contains(&&*source.path));
    for document in documents {
        for (at, line) in document.text.lines().enumerate() {
            for name in quoted(line) {
                let (exists, what) = match kind(name) {
                    Some(Kind::File) => (files.contains(name), "file"),
                    Some(Kind::Test) => (tests.contains(name), "test"),
                    None => continue,
                };
                if !exists {
                    findings.push(Finding {
                        file: document.path.clone(),
                        line: at + 1,
                        message: format!("names `{name}`; there is no such {what}"),
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

/// The names of the functions that run as tests, those within `proptest!` included: what carries an
/// attribute named `test`, such as `#[test]` or `#[tokio::test(start_paused = true)]`.
fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some(attribute) = line.strip_prefix("#[") {
            let end = attribute.find(['(', ']']).unwrap_or(attribute.len());
            is_test |= attribute[..end].rsplit("::").next() == Some("test");
            return None;
        }
        if line.starts_with("//") {
            return None;
        }
        // An attribute is of what comes next and of nothing after it.
        if std::mem::take(&mut is_test) {
            function(line)
        } else {
            None
        }
    })
}

/// The function whose signature begins here.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "
        #[test]
        fn a_test_that_is_there() {
            a_helper_of_a_test();
        }

        fn a_helper_of_a_test() {}

        #[cfg(test)]
        mod tests {}

        fn a_function_below_a_module() {}

        #[tokio::test(start_paused = true)]
        #[should_panic]
        async fn a_test_that_waits_a_while() {}

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(8))]

            /// Whatever the number.
            #[test]
            // With a word about it.
            fn a_test_of_many_numbers(number in 0..9u8) {}
        }
    ";

    fn found(document: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.into(),
            text: text.into(),
        };
        let sources = [
            source("docs/mechanisms.md", document),
            source("a/b.rs", CODE),
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
    fn tests_that_wait_or_take_many_values_pass() {
        let document = "`a_test_that_waits_a_while`, `a_test_of_many_numbers`";
        assert_eq!(found(document), Vec::<String>::new());
    }

    #[test]
    fn a_function_that_is_no_test_is_none() {
        for name in ["a_helper_of_a_test", "a_function_below_a_module"] {
            let lines = found(&format!("`{name}`"));
            assert_eq!(lines.len(), 1, "{name}");
            assert!(lines[0].contains("no such test"), "{lines:?}");
        }
    }

    #[test]
    fn a_file_or_test_that_is_gone_is_found_with_its_line() {
        assert_eq!(found("fine\n`a/c.rs`").len(), 1);
        let lines = found("\n\n`a_test_that_is_gone`");
        assert!(lines[0].contains("a_test_that_is_gone"), "{lines:?}");
        assert!(lines[0].contains('3'), "{lines:?}");
    }
}
