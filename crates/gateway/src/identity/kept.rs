//! What a client keeps: a credential for each server that let it in.

use super::file::{self, FileError};
use super::secret::{Digest, Secret};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file's name in the state directory.
const FILE: &str = "tunnels.json";
/// Its lock, a separate file because the other one is replaced.
const LOCK: &str = "tunnels.lock";
/// How long another process may take that changes them, which it does in a moment.
const PATIENCE: Duration = Duration::from_secs(5);
/// Credentials remembered; the one that was added first is dropped.
const MAX_KNOWN: usize = 256;

/// A credential for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The fingerprint of the server's key.
    server: String,
    /// What it knows us by, or is to.
    pub(crate) credential: Secret,
    /// The invitation that let us in, or is to.
    invitation: Option<Digest>,
    /// Whether the server has let us in with it.
    pub(crate) is_accepted: bool,
}

/// The credentials of a user.
#[derive(Debug, Clone)]
pub struct Kept {
    directory: PathBuf,
}

impl Kept {
    /// The credentials in a state directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// What to show to the server with this fingerprint, what is likelier to be accepted first. For
    /// an invitation that was not seen before, a new credential is written down.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub fn for_server(
        &self,
        server: &str,
        invitation: Option<&Secret>,
    ) -> Result<Vec<Known>, FileError> {
        let path = self.directory.join(FILE);
        let Some(invitation) = invitation else {
            let mut known: Vec<Known> = file::read(&path)?;
            known.retain(|known| known.server == server && known.is_accepted);
            return Ok(known);
        };
        let invited = Some(invitation.digest());
        let credential = Secret::credential().map_err(|error| FileError::Io { path, error })?;
        // Looked up within the change: two that start at once show the same credential.
        self.change(|all| {
            let is_for_it = |known: &Known| known.server == server && known.invitation == invited;
            if !all.iter().any(is_for_it) {
                all.push(Known {
                    server: server.into(),
                    credential,
                    invitation: invited.clone(),
                    is_accepted: false,
                });
            }
            let of_server = all.iter().filter(|known| known.server == server).cloned();
            let (mut first, mut others): (Vec<_>, Vec<_>) = of_server.partition(is_for_it);
            others.retain(|known| known.is_accepted);
            first.append(&mut others);
            first
        })
    }

    /// The server has let us in with this: what else was tried there is forgotten.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub(crate) fn accept(&self, known: &Known) -> Result<(), FileError> {
        self.change(|all| {
            all.retain(|other| other.server != known.server);
            all.push(Known {
                is_accepted: true,
                ..known.clone()
            });
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Known>) -> T) -> Result<T, FileError> {
        file::directory(&self.directory)?;
        let _lock = file::lock(&self.directory.join(LOCK), PATIENCE)?;
        let path = self.directory.join(FILE);
        let mut all: Vec<Known> = file::read(&path)?;
        let before = all.clone();
        let result = change(&mut all);
        let excess = all.len().saturating_sub(MAX_KNOWN);
        all.drain(..excess);
        if all != before {
            file::replace(&path, &all)?;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn kept() -> (tempfile::TempDir, Kept) {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::in_directory(&directory.path().join("state"));
        (directory, kept)
    }

    #[test]
    fn an_invitation_has_one_credential_however_often_it_is_tried() {
        let (_directory, kept) = kept();
        let invitation = Secret::invitation().unwrap();
        assert_eq!(kept.for_server("a", None).unwrap(), []);
        let first = kept.for_server("a", Some(&invitation)).unwrap();
        assert_eq!(kept.for_server("a", Some(&invitation)).unwrap(), first);
        assert_eq!(kept.for_server("a", None).unwrap(), [], "not accepted yet");
        kept.accept(&first[0]).unwrap();
        let known = Known {
            is_accepted: true,
            ..first[0].clone()
        };
        assert_eq!(
            kept.for_server("a", None).unwrap(),
            std::slice::from_ref(&known)
        );
        let used = Secret::invitation().unwrap();
        let both = kept.for_server("a", Some(&used)).unwrap();
        assert_eq!(
            (both.len(), &both[1]),
            (2, &known),
            "the old one still counts"
        );
        assert_eq!(kept.for_server("b", None).unwrap(), []);
    }

    #[test]
    fn nobody_else_reads_the_file_and_a_damaged_one_is_not_overwritten() {
        let (_directory, kept) = kept();
        let invitation = Secret::invitation().unwrap();
        kept.for_server("a", Some(&invitation)).unwrap();
        let path = kept.directory.join(FILE);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "[{").unwrap();
        let damaged = kept.for_server("a", Some(&invitation));
        assert!(
            matches!(damaged, Err(FileError::Damaged { .. })),
            "{damaged:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"[{");
    }
}
