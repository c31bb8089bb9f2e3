//! The summary at the end of a campaign.

use super::state::State;
use std::fmt::Write as _;

/// Renders one row per part, and the commit that was tested.
pub(super) fn render(state: &State, commit: &str) -> String {
    let mut text = format!(
        "{:<14} {:>12} {:>9} {:>9} {:>10} {:>9}\n",
        "part", "cases", "seconds", "cases/s", "most MiB", "findings"
    );
    for (name, part) in &state.parts {
        let rate = part.cases as f64 / part.seconds.max(1) as f64;
        let found = state.findings.iter().filter(|it| it.part == *name).count();
        let memory = part.most_memory_kib / 1024;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:<14} {:>12} {:>9} {rate:>9.1} {memory:>10} {found:>9}",
            part.cases, part.seconds
        );
    }
    let _ = write!(text, "commit {commit}");
    text
}
