//! Licences and sources of everything the workspace links, or runs while it is built.
//!
//! Where `cargo deny` is installed, it checks this and more with `deny.toml`; this check needs only
//! cargo.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Finding;
use crate::metadata::{Metadata, Package};

/// Licences that require no more than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OpenSSL",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Where the reason for each direct dependency is documented.
const DOCUMENT: &str = "docs/dependencies.md";
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every package in the lock file.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let metadata = Metadata::load(root, true)?;
    let mut findings = Vec::new();
    for package in metadata
        .packages
        .iter()
        .filter(|package| !metadata.is_member(package))
    {
        let mut add = |problem: String| {
            let message = format!("{} {}: {problem}", package.name, package.version);
            findings.push(Finding {
                file: "Cargo.lock".into(),
                line: 0,
                message,
            });
        };
        if package.source.as_deref() != Some(REGISTRY) {
            let from = package.source.as_deref().unwrap_or("a folder");
            add(format!("comes from {from}, not from crates.io"));
        }
        if let Some(problem) = licence_problem(package) {
            add(problem);
        }
    }
    let document = std::fs::read_to_string(root.join(DOCUMENT));
    let document = document.map_err(|e| format!("cannot read {DOCUMENT}: {e}"))?;
    for name in undocumented(&metadata, &document) {
        findings.push(Finding {
            file: DOCUMENT.into(),
            line: 0,
            message: format!("`{name}` is a dependency: say why"),
        });
    }
    eprintln!("deps: {} packages", metadata.packages.len());
    Ok(findings)
}

/// Direct dependencies that have no table row in the document.
fn undocumented<'a>(metadata: &'a Metadata, document: &str) -> BTreeSet<&'a str> {
    let members = metadata
        .packages
        .iter()
        .filter(|package| metadata.is_member(package));
    let edges = members.flat_map(|package| &package.dependencies);
    let foreign = edges
        .filter(|edge| edge.path.is_none())
        .map(|edge| edge.name.as_str());
    let rows = document.lines().filter_map(|line| line.strip_prefix('|'));
    let named: Vec<&str> = rows.filter_map(|row| row.split('|').next()).collect();
    let is_named = |name: &str| named.iter().any(|cell| cell.contains(&format!("`{name}`")));
    foreign.filter(|name| !is_named(name)).collect()
}

fn licence_problem(package: &Package) -> Option<String> {
    let Some(expression) = &package.license else {
        return match &package.license_file {
            Some(file) => Some(format!("licence in {file}: read it and name it")),
            None => Some("states no licence".to_owned()),
        };
    };
    match is_allowed(expression) {
        Some(true) => None,
        Some(false) => Some(format!("licence `{expression}` is not on the list")),
        None => Some(format!("cannot read licence `{expression}`")),
    }
}

/// Whether an SPDX expression can be met with allowed licences; `None` if it is not valid. The
/// slash of old manifests means OR.
fn is_allowed(expression: &str) -> Option<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let allowed = any(&mut tokens)?;
    tokens.next().is_none().then_some(allowed)
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(tokens: &mut Tokens<'_>) -> Option<bool> {
    let mut allowed = all(tokens)?;
    while tokens.next_if_eq(&"OR").is_some() {
        allowed |= all(tokens)?;
    }
    Some(allowed)
}

fn all(tokens: &mut Tokens<'_>) -> Option<bool> {
    let mut allowed = one(tokens)?;
    while tokens.next_if_eq(&"AND").is_some() {
        allowed &= one(tokens)?;
    }
    Some(allowed)
}

fn one(tokens: &mut Tokens<'_>) -> Option<bool> {
    let name = tokens.next()?;
    if name == "(" {
        let allowed = any(tokens)?;
        return (tokens.next()? == ")").then_some(allowed);
    }
    if [")", "AND", "OR", "WITH"].contains(&name) {
        return None;
    }
    if tokens.next_if_eq(&"WITH").is_some() {
        let full = format!("{name} WITH {}", tokens.next()?);
        return Some(ALLOWED.contains(&full.as_str()));
    }
    Some(ALLOWED.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert_eq!(is_allowed("MIT OR GPL-3.0"), Some(true));
        assert_eq!(is_allowed("GPL-3.0/MIT"), Some(true));
        assert_eq!(is_allowed("GPL-3.0 OR AGPL-3.0"), Some(false));
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_allowed() {
        assert_eq!(
            is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"),
            Some(true)
        );
        assert_eq!(is_allowed("Apache-2.0 AND GPL-2.0"), Some(false));
        assert_eq!(is_allowed("MIT OR Apache-2.0 AND GPL-2.0"), Some(true));
    }

    #[test]
    fn a_dependency_needs_a_row_of_its_own() {
        let metadata: Metadata = serde_json::from_str(
            r#"{"workspace_members": ["a"], "workspace_root": "/",
            "packages": [{"id": "a", "name": "a",
            "version": "1.0.0", "manifest_path": "Cargo.toml", "dependencies": [
            {"name": "syn"}, {"name": "mio", "kind": "dev"}, {"name": "own", "path": "x"}]}]}"#,
        )
        .unwrap();
        let missing = |document| {
            undocumented(&metadata, document)
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(missing("| `mio`, `syn` | 2 |"), [""; 0]);
        assert_eq!(
            missing("| `mio-more` | like `mio` |\nsee `mio`\n| `syn` |"),
            ["mio"]
        );
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        assert_eq!(is_allowed("Apache-2.0 WITH LLVM-exception"), Some(true));
        assert_eq!(is_allowed("MIT WITH Strings-attached"), Some(false));
    }

    #[test]
    fn a_broken_expression_is_not_a_licence() {
        for broken in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT MIT"] {
            assert_eq!(is_allowed(broken), None, "{broken}");
        }
    }
}
