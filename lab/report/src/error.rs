//! What can go wrong, for the user.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The given path holds no results.
    #[error("{}: {what}", path.display())]
    Input {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What the user can do about it.
        hint: &'static str,
    },
    /// There is no figure of this name.
    #[error("there is no figure `{name}`")]
    Figure {
        /// The name asked for.
        name: String,
        /// The nearest existing name.
        nearest: Option<String>,
        /// All existing names.
        known: Vec<String>,
    },
    /// A file could not be written.
    #[error("{}: {error}", path.display())]
    Output {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A drawing could not be turned into a picture.
    #[error("figure {figure}: {what}")]
    Raster {
        /// Which.
        figure: String,
        /// Why.
        what: String,
    },
}

impl ReportError {
    pub(crate) fn input(path: &Path, what: impl Into<String>, hint: &'static str) -> Self {
        Self::Input {
            path: path.to_owned(),
            what: what.into(),
            hint,
        }
    }

    /// What the user can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Input { hint, .. } => Some((*hint).to_owned()),
            Self::Figure { nearest, known, .. } => Some(match nearest {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("there are: {}", known.join(", ")),
            }),
            Self::Output { .. } | Self::Raster { .. } => None,
        }
    }

    /// Whether the request itself is invalid, as opposed to its execution having failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Input { .. } | Self::Figure { .. })
    }
}
