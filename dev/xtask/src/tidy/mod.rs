//! The rules of the house that no compiler checks.
//!
//! Each rule is a function from sources, or from what cargo knows, to findings; none of them
//! changes anything. The limits live here.

mod arrows;
mod products;
mod rust;
mod tables;
mod text;
mod versions;

use std::path::Path;

use crate::Finding;
use crate::metadata::Metadata;
use crate::source;

/// Lines a file may have.
const MAX_FILE_LINES: usize = 800;
/// Lines a function may have, from `fn` to its closing brace.
const MAX_FUNCTION_LINES: usize = 70;
/// Characters a line of code may have.
const MAX_LINE_COLUMNS: usize = 100;

/// Runs every rule on the workspace at `root`.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let sources = source::read_all(root)?;
    for source in &sources {
        text::check(source, &mut findings);
        if source.is_rust() {
            rust::check(source, &mut findings);
        }
    }
    tables::check(&sources, &mut findings);
    versions::check(&sources, &mut findings);
    arrows::check(&Metadata::load(root, false)?, &mut findings);
    findings.extend(products::check(root, &sources)?);
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_keeps_the_rules_of_the_house() {
        let findings = super::check(&crate::root()).unwrap();
        let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(
            lines.is_empty(),
            "`cargo xtask tidy` finds:\n{}",
            lines.join("\n")
        );
    }
}
