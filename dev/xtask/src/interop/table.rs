//! The tables of `docs/interop.md`.

use super::case::{Outcome, Role, Row};

/// A line per feature, a column per role.
pub(crate) fn print(title: &str, rows: &[Row]) {
    for line in lines(title, rows) {
        crate::say(&line);
    }
}

fn lines(title: &str, rows: &[Row]) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!("| {title} | its client, our server | our client, its server |"),
        "|---|---|---|".to_owned(),
    ];
    let mut seen: Vec<&str> = Vec::new();
    for row in rows {
        if seen.contains(&row.feature.as_str()) {
            continue;
        }
        seen.push(&row.feature);
        let cell = |role: Role| {
            let of_role = |other: &&Row| other.feature == row.feature && other.role == role;
            rows.iter()
                .find(of_role)
                .map_or("-".to_owned(), |row| brief(&row.outcome))
        };
        let [theirs, ours] = Role::BOTH.map(cell);
        lines.push(format!("| {} | {theirs} | {ours} |", row.feature));
    }
    lines
}

/// A line per test.
pub(crate) fn print_list(title: &str, rows: &[Row]) {
    crate::say("");
    crate::say(&format!("| {title} | |"));
    crate::say("|---|---|");
    for row in rows {
        crate::say(&format!("| {} | {} |", row.feature, brief(&row.outcome)));
    }
}

/// The logs' place has been said already, and does not belong into a table.
fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(_) => "FAIL".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_stand_side_by_side_and_failures_without_their_logs() {
        let row = |feature: &str, role, outcome| Row {
            feature: feature.to_owned(),
            role,
            outcome,
        };
        let rows = [
            row("GET", Role::TheirClient, Outcome::Passed),
            row(
                "GET",
                Role::OurClient,
                Outcome::Failed("no; logs: x".into()),
            ),
            row("Retry", Role::OurClient, Outcome::NotRun("no cmake".into())),
        ];
        let table = lines("p 1", &rows);
        assert_eq!(table[3], "| GET | pass | FAIL |");
        assert_eq!(table[4], "| Retry | - | not run (no cmake) |");
    }
}
