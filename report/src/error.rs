//! What can go wrong, for the person at the terminal.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// What was given holds no results.
    #[error("{}: {what}", path.display())]
    Input {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// There is no figure of this name.
    #[error("there is no figure `{name}`")]
    Figure {
        /// What was asked for.
        name: String,
        /// The nearest that is there.
        nearest: Option<String>,
        /// All that are there.
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
    /// A picture could not be made of a drawing.
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

    /// What the user can do now.
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

    /// Whether what was asked for cannot be done, rather than that doing it failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Input { .. } | Self::Figure { .. })
    }
}
