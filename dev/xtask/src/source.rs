//! The files that the checks inspect, read once.

use std::fs;
use std::path::Path;

/// A text file of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Path relative to the root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// The file's extension; empty if it has none.
    pub(crate) fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }

    /// Whether it is a shell script, by its extension or first line.
    pub(crate) fn is_shell(&self) -> bool {
        let first = self.text.lines().next().unwrap_or_default();
        self.extension() == "sh" || (first.starts_with("#!") && first.contains("sh"))
    }

    pub(crate) fn is_python(&self) -> bool {
        ["py", "pyi"].contains(&self.extension())
    }

    /// The folder of the crate it is in: `net` for what lies below `crates/net`, `cli` for what
    /// lies below `cli`; empty for a file at the root.
    pub(crate) fn room(&self) -> &str {
        let mut parts = self.path.split('/').rev().skip(1).collect::<Vec<_>>();
        let top = parts.pop().unwrap_or_default();
        if SHELVES.contains(&top) {
            parts.pop().unwrap_or_default()
        } else {
            top
        }
    }
}

/// Top-level folders that hold crates and are none.
const SHELVES: &[&str] = &["crates", "lab", "dev", "examples"];
/// Folders that contain build products or other people's files.
const SKIPPED: &[&str] = &[
    "target",
    "corpus",
    "artifacts",
    "node_modules",
    "__pycache__",
];
/// Hidden folders that are part of the project.
const HIDDEN: &[&str] = &[".ci", ".cargo"];

/// Reads every text file below `root`, in order of their paths.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    walk(root, "", &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn walk(root: &Path, below: &str, sources: &mut Vec<Source>) -> Result<(), String> {
    let folder = root.join(below);
    let problem = |e: std::io::Error| format!("cannot read {}: {e}", folder.display());
    for entry in fs::read_dir(&folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type().map_err(problem)?;
        if kind.is_dir() {
            let hidden = name.starts_with('.') && !HIDDEN.contains(&name.as_str());
            if !hidden && !SKIPPED.contains(&name.as_str()) {
                walk(root, &path, sources)?;
            }
        // In an additional git worktree, `.git` is a file that points to the repository.
        } else if kind.is_file() && path != ".git" {
            let bytes = fs::read(entry.path()).map_err(problem)?;
            // A file that is not UTF-8 is data (captures, corpora) and has no lines to check.
            if let Ok(text) = String::from_utf8(bytes) {
                sources.push(Source { path, text });
            }
        }
    }
    Ok(())
}
