//! What a campaign has done so far, as stored on disk.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The file in the campaign's folder.
const FILE: &str = "state.json";

/// The most findings kept: a part that fails in every case would fill the disk.
pub(super) const MAX_FINDINGS: usize = 100;

/// Everything done and found so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct State {
    /// Progress by the name of the part.
    pub(super) parts: BTreeMap<String, Progress>,
    /// Oldest first.
    pub(super) findings: Vec<Finding>,
}

/// What one part has done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Worlds or inputs run.
    pub(super) cases: u64,
    /// How many seconds they took.
    pub(super) seconds: u64,
    /// The seed to continue with, counted from the part's first seed.
    pub(super) next: u64,
    /// The most memory the part's process used, in KiB.
    pub(super) most_memory_kib: u64,
}

/// Something that broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    /// Which part found it.
    pub(super) part: String,
    /// What happened, in one line.
    pub(super) what: String,
    /// The command that reproduces it, from the root of the workspace.
    pub(super) replay: String,
    /// Where its output is.
    pub(super) log: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            part,
            what,
            replay,
            log,
        } = self;
        write!(f, "{part}: {what}\n  repeat: {replay}\n  output: {log}")
    }
}

impl State {
    /// Loads what an earlier campaign left in this folder; empty if there was none.
    pub(super) fn load(folder: &Path) -> Result<Self, String> {
        let path = folder.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        serde_json::from_str(&text).map_err(|error| {
            format!(
                "{}: {error}; it is no state of a campaign: begin anew with --fresh",
                path.display()
            )
        })
    }

    /// Saves the state, either completely or not at all.
    pub(super) fn save(&self, folder: &Path) -> Result<(), String> {
        let said = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(folder).map_err(said)?;
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let fresh = folder.join("state.json.new");
        std::fs::write(&fresh, text).map_err(said)?;
        std::fs::rename(&fresh, folder.join(FILE)).map_err(said)
    }

    /// The progress of a part.
    pub(super) fn part(&mut self, name: &str) -> &mut Progress {
        self.parts.entry(name.to_owned()).or_default()
    }

    /// Adds a finding, unless it is already known or there are too many.
    pub(super) fn add(&mut self, finding: Finding) {
        let known = |old: &Finding| old.part == finding.part && old.replay == finding.replay;
        if self.findings.len() < MAX_FINDINGS && !self.findings.iter().any(known) {
            self.findings.push(finding);
        }
    }
}
