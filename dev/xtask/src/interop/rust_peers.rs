//! noq, quinn and s2n-quic: tests of the crate `interop`, which links them.

use super::Shop;
use super::case::{Outcome, Role, Row};
use super::process::Running;
use std::fs;
use std::time::Duration;

pub(crate) const NAMES: &[&str] = &["noq", "quinn", "s2n-quic"];

/// They take minutes to compile.
const PATIENCE: Duration = Duration::from_secs(3600);

fn tests(name: &str) -> &'static [&'static str] {
    match name {
        "noq" => &["noq", "noq_acks", "noq_paths", "noq_faults"],
        "quinn" => &["quinn", "quinn_resumption"],
        _ => &["s2n"],
    }
}

/// A row for each test.
pub(crate) fn run(shop: &Shop, name: &str) -> Vec<Row> {
    let mut test = crate::cargo();
    test.current_dir(&shop.root).args([
        "test",
        "--package",
        "anabranch-interop",
        "--locked",
        "--no-fail-fast",
    ]);
    for file in tests(name) {
        test.args(["--test", file]);
    }
    let logs = shop.cache.join("logs").join(name);
    let row = |feature: &str, outcome| Row {
        feature: feature.to_owned(),
        role: Role::OurClient,
        outcome,
    };
    let mut run = || -> Result<(Running, Result<(), String>), String> {
        fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
        let mut running = Running::start(&logs, "tests", &mut test)?;
        let ended = running.succeeds(PATIENCE);
        Ok((running, ended))
    };
    let (running, ended) = match run() {
        Ok(done) => done,
        Err(error) => return vec![row("cargo test", Outcome::Failed(error))],
    };
    let where_to_look = format!("logs: {}", logs.display());
    let mut rows: Vec<Row> = results(&running.said())
        .into_iter()
        .map(|(test, passed)| {
            let failed = || Outcome::Failed(where_to_look.clone());
            row(&test, if passed { Outcome::Passed } else { failed() })
        })
        .collect();
    if let Err(error) = ended
        && !rows.iter().any(Row::has_failed)
    {
        let reason = format!("{error}; {where_to_look}");
        rows.push(row("cargo test", Outcome::Failed(reason)));
    }
    rows
}

/// The names of tests in what `cargo test` printed, as sentences, and whether they passed.
fn results(said: &str) -> Vec<(String, bool)> {
    said.lines()
        .filter_map(|line| line.strip_prefix("test "))
        .filter_map(|line| line.rsplit_once(" ... "))
        .filter(|(_, result)| ["ok", "FAILED"].contains(result))
        .map(|(name, result)| (name.replace('_', " "), result == "ok"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_become_sentences() {
        let said = "running 2 tests\ntest both_work ... ok\ntest one_fails ... FAILED\n\
                    test result: FAILED. 1 passed\n";
        let expected = [
            ("both work".to_owned(), true),
            ("one fails".to_owned(), false),
        ];
        assert_eq!(results(said), expected);
    }
}
