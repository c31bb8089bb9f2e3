//! The commands of the laboratory in a program that was built without it: they are there to say so.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::ffi::OsString;

/// A command that this program lacks.
#[derive(Debug, Subcommand)]
pub(crate) enum Absent {
    /// Not in this program: it was built without the laboratory
    Demo(Words),
    /// Not in this program: it was built without the laboratory
    Sim(Words),
    /// Not in this program: it was built without the laboratory
    Lab(Words),
}

/// Whatever else was typed.
#[derive(Debug, Args)]
pub(crate) struct Words {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Absent {
    /// What to tell whoever wanted it.
    pub(crate) fn failure(&self) -> Failure {
        let name = match self {
            Self::Demo(_) => "demo",
            Self::Sim(_) => "sim",
            Self::Lab(_) => "lab",
        };
        let what = format!("`{name}` is not in this program: it was built without the laboratory");
        Failure::usage(what).hint(
            "from the source, `cargo build --release -p anabranch-cli` builds the program with it",
        )
    }
}
