//! The version of the workspace: the dependencies on our own crates have to repeat it, as a
//! registry must be told, and cargo accepts older ones too.

use crate::Finding;
use crate::source::Source;

/// The manifest that has both.
const MANIFEST: &str = "Cargo.toml";

/// Finds dependencies on our own crates that name another version.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let Some(manifest) = sources.iter().find(|source| source.path == MANIFEST) else {
        return;
    };
    let mut find = |line, message| {
        findings.push(Finding {
            file: MANIFEST.to_owned(),
            line,
            message,
        });
    };
    let Some(version) = workspace_version(&manifest.text) else {
        find(0, "names no version of the workspace".to_owned());
        return;
    };
    let said = format!("version = \"{version}\"");
    for (at, line) in manifest.text.lines().enumerate() {
        let is_dependency = line.starts_with("anabranch-") && line.contains("path = ");
        if is_dependency && !line.contains(&said) {
            find(at + 1, format!("expected `{said}`, that of the workspace"));
        }
    }
}

/// What `[workspace.package]` says.
fn workspace_version(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[workspace.package]\n")?;
    let mut lines = package.lines().take_while(|line| !line.starts_with('['));
    lines.find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(package: &str, dependency: &str) -> Vec<String> {
        let source = Source {
            path: MANIFEST.to_owned(),
            text: format!("{package}\n\n[workspace.dependencies]\naes = \"0.8\"\n{dependency}\n"),
        };
        let mut findings = Vec::new();
        check(&[source], &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_on_our_own_crates_have_the_version_of_the_workspace() {
        let package = "[workspace.package]\nversion = \"0.2.0\"";
        let right = "anabranch-net = { path = \"net\", version = \"0.2.0\" }";
        assert!(found(package, right).is_empty());
        let profile = "[profile.release.package]\nanabranch-net.codegen-units = 1";
        assert!(found(package, profile).is_empty());
        for wrong in [
            "anabranch-net = { path = \"net\", version = \"0.1.0\" }",
            "anabranch-net = { path = \"net\" }",
        ] {
            let expected = "Cargo.toml:6: expected `version = \"0.2.0\"`, that of the workspace";
            assert_eq!(found(package, wrong), [expected], "{wrong}");
        }
        let without = found("[workspace.package]\nedition = \"2024\"", right);
        assert_eq!(without.len(), 1);
    }
}
