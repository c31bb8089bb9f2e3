//! Which crate of ours may depend on which. The diagram of it is in `docs/architecture.md`.

use crate::Finding;
use crate::metadata::{Metadata, Package};

/// What a crate may depend on.
struct Rule {
    name: &'static str,
    /// As a normal or build dependency.
    may_use: &'static [&'static str],
    /// For its tests only.
    tests_may_use: &'static [&'static str],
}

const RULES: &[Rule] = &[
    rule("anabranch-wire", &[], &[]),
    rule("anabranch-masque", &["anabranch-wire"], &[]),
    rule(
        "anabranch-proto",
        &["anabranch-wire"],
        &["anabranch-link", "anabranch-qlog", "anabranch-proto"],
    ),
    rule("anabranch-qlog", &["anabranch-proto"], &[]),
    rule(
        "anabranch-schedulers",
        &["anabranch-wire", "anabranch-proto"],
        &["anabranch-link"],
    ),
    rule("anabranch-link", &[], &[]),
    rule(
        "anabranch-tunnel",
        &["anabranch-wire", "anabranch-proto"],
        &["anabranch-link"],
    ),
    rule(
        "anabranch-net",
        &["anabranch-wire", "anabranch-proto", "anabranch-schedulers"],
        &["anabranch-link", "anabranch-testbed"],
    ),
    rule(
        "anabranch-gateway",
        &[
            "anabranch-wire",
            "anabranch-masque",
            "anabranch-proto",
            "anabranch-tunnel",
            "anabranch-net",
        ],
        &[],
    ),
    rule(
        "anabranch-sim",
        &[
            "anabranch-wire",
            "anabranch-proto",
            "anabranch-schedulers",
            "anabranch-link",
            "anabranch-tunnel",
        ],
        &[],
    ),
    rule("anabranch-testbed", &["anabranch-link"], &[]),
    rule("anabranch-lab", BELOW_LAB, &["anabranch-interop"]),
    rule("anabranch-papers", WITH_LAB, &[]),
    rule("anabranch-agent", WITH_LAB, &[]),
    rule("anabranch-report", WITH_PAPERS, &[]),
    rule("anabranch-vm", &[], &["anabranch-testbed"]),
    rule("anabranch-cli", BELOW_CLI, &["anabranch-interop"]),
    rule("anabranch-python", WITH_CLI, &[]),
    // Test support: what tests stand on stands on nothing of ours.
    rule("anabranch-interop", &[], &TEST_CRATES_MAY_USE),
    // What a stranger writes: schedulers of their own on the public API, and a program with them.
    rule(
        "own-scheduler",
        OWN_PROGRAM,
        &["anabranch-net", "anabranch-sim", "anabranch-testbed"],
    ),
    rule("learning-scheduler", BELOW_LAB, &[]),
    // Relays and namespaces between foreign programs and ours.
    rule("xtask", &["anabranch-testbed"], &[]),
];

/// What ships, each after all that it may stand on.
const FLOORS: [&str; 17] = [
    "anabranch-wire",
    "anabranch-proto",
    "anabranch-schedulers",
    "anabranch-qlog",
    "anabranch-link",
    "anabranch-tunnel",
    "anabranch-sim",
    "anabranch-testbed",
    "anabranch-lab",
    "anabranch-net",
    "anabranch-papers",
    "anabranch-agent",
    "anabranch-report",
    "anabranch-vm",
    "anabranch-masque",
    "anabranch-gateway",
    "anabranch-cli",
];
const OWN_PROGRAM: &[&str] = &["anabranch-proto", "anabranch-schedulers", "anabranch-cli"];
/// Not `net`: who can leave packets unprotected has no sockets for them.
const BELOW_LAB: &[&str] = FLOORS.split_at(8).0;
const WITH_LAB: &[&str] = FLOORS.split_at(10).0;
const WITH_PAPERS: &[&str] = FLOORS.split_at(11).0;
const BELOW_CLI: &[&str] = FLOORS.split_at(16).0;
const WITH_CLI: &[&str] = &FLOORS;
const TEST_CRATES_MAY_USE: [&str; 6] = [
    "anabranch-wire",
    "anabranch-proto",
    "anabranch-schedulers",
    "anabranch-link",
    "anabranch-net",
    "anabranch-testbed",
];

const fn rule(
    name: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
) -> Rule {
    Rule {
        name,
        may_use,
        tests_may_use,
    }
}

/// Adds every edge between packages of the workspace that goes against the arrows.
pub(super) fn check(metadata: &Metadata, findings: &mut Vec<Finding>) {
    for package in metadata
        .packages
        .iter()
        .filter(|package| metadata.is_member(package))
    {
        check_package(package, &metadata.workspace_root, findings);
    }
}

fn check_package(package: &Package, root: &str, findings: &mut Vec<Finding>) {
    let below = package.manifest_path.strip_prefix(root);
    let file = below
        .unwrap_or(&package.manifest_path)
        .trim_start_matches('/');
    let mut add = |message| {
        findings.push(Finding {
            file: file.to_owned(),
            line: 0,
            message,
        });
    };
    let Some(rule) = RULES.iter().find(|rule| rule.name == package.name) else {
        return add(format!(
            "`{}` has no place in the house: name its arrows",
            package.name
        ));
    };
    for dependency in package
        .dependencies
        .iter()
        .filter(|edge| edge.path.is_some())
    {
        let name = dependency.name.as_str();
        let for_tests = dependency.kind.as_deref() == Some("dev");
        let allowed =
            rule.may_use.contains(&name) || (for_tests && rule.tests_may_use.contains(&name));
        if !allowed {
            add(format!(
                "`{}` may not depend on `{name}`: that is against the arrows",
                rule.name
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn found(name: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let edge = Dependency {
            name: dependency.into(),
            kind: kind.map(str::to_owned),
            path: dependency.starts_with("anabranch").then(|| "x".to_owned()),
        };
        let package = Package {
            id: name.into(),
            name: name.into(),
            version: "0.1.0".into(),
            license: None,
            license_file: None,
            source: None,
            manifest_path: "/a/b/Cargo.toml".into(),
            dependencies: vec![edge],
        };
        let mut findings = Vec::new();
        check_package(&package, "/a", &mut findings);
        assert!(
            findings
                .iter()
                .all(|finding| finding.file == "b/Cargo.toml")
        );
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_dependency_along_the_arrows_passes() {
        assert_eq!(found("anabranch-net", "anabranch-proto", None), [""; 0]);
        assert_eq!(found("anabranch-net", "tokio", None), [""; 0]);
        assert_eq!(
            found("anabranch-net", "anabranch-testbed", Some("dev")),
            [""; 0]
        );
    }

    #[test]
    fn a_dependency_against_the_arrows_is_named() {
        assert_eq!(found("anabranch-wire", "anabranch-proto", None).len(), 1);
        assert_eq!(
            found("anabranch-proto", "anabranch-net", Some("dev")).len(),
            1
        );
        assert_eq!(found("anabranch-net", "anabranch-testbed", None).len(), 1);
        for below in ["anabranch-proto", "anabranch-tunnel"] {
            for kind in [None, Some("dev")] {
                assert_eq!(found(below, "anabranch-schedulers", kind).len(), 1);
            }
        }
    }

    #[test]
    fn a_crate_nobody_placed_is_a_finding() {
        assert_eq!(found("anabranch-shed", "tokio", None).len(), 1);
    }
}
