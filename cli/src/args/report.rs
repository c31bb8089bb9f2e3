//! The command lines of `anabranch lab report` and `anabranch lab compare`.

use clap::Args;
use std::path::PathBuf;

/// What is to be shown, and where.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Folders of results, or folders of such folders; those of one scenario are shown together
    #[arg(value_name = "DIR", required = true)]
    pub(crate) folders: Vec<PathBuf>,
    /// Where the page and its plots go [default: the first DIR]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Make this figure alone, as it is named in the page; may be repeated
    #[arg(long, value_name = "FIGURE")]
    pub(crate) only: Vec<String>,
    /// Make no PNG files
    #[arg(long)]
    pub(crate) no_png: bool,
}

/// What is to be compared, and how far it may lie apart.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The results to compare with, of the simulator or of an earlier version
    pub(crate) first: PathBuf,
    /// The results that are compared
    pub(crate) second: PathBuf,
    /// How far goodput may lie apart, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(crate) goodput: f64,
    /// How far completion times of short flows, files and requests may lie apart, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    pub(crate) completion: f64,
    /// Show what agrees too
    #[arg(long)]
    pub(crate) all: bool,
    /// Write comma-separated values to stdout
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Write a JSON object per figure to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').trim().parse::<f64>();
    match value {
        Ok(value) if value > 0.0 && value <= 1000.0 => Ok(value),
        _ => Err("expected a percentage above 0, such as 5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_percentages_above_zero() {
        assert_eq!(percent("5"), Ok(5.0));
        assert_eq!(percent("2.5 %"), Ok(2.5));
        for wrong in ["0", "-1", "five", "nan", "inf", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
