//! What cargo knows about the workspace: packages, licences, dependencies.

use std::path::Path;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// Package IDs of the workspace's own packages.
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) license_file: Option<String>,
    /// Where it comes from; `None` for a package in a folder.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build`, or `None` for a normal dependency.
    pub(crate) kind: Option<String>,
    /// Set for a dependency on a folder.
    pub(crate) path: Option<String>,
}

impl Metadata {
    /// Asks cargo. Without `resolve`, only the workspace's own packages are listed, which requires
    /// no lock file and no network.
    pub(crate) fn load(root: &Path, resolve: bool) -> Result<Self, String> {
        let mut command = crate::cargo();
        command
            .current_dir(root)
            .args(["metadata", "--format-version", "1"]);
        if resolve {
            command.arg("--locked");
        } else {
            command.arg("--no-deps");
        }
        let output = command
            .output()
            .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cargo metadata failed: {}", reason.trim()));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("cannot understand cargo metadata: {e}"))
    }

    pub(crate) fn is_member(&self, package: &Package) -> bool {
        self.workspace_members.contains(&package.id)
    }
}
