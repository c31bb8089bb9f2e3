//! What can be typed after `anabranch lab`.

use crate::args::report::{Compare, Report};
use clap::Subcommand;

/// What to do with results.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Show results as one page with tables and plots
    #[command(after_help = "\
Writes report.html, which needs nothing else and asks nobody for anything, report.md, and plots/
with SVG, PNG and CSV of each figure, for one and two columns of a paper. docs/report.md says more.

Examples:
  anabranch sim run scenario.toml --out results
  anabranch lab report results
  anabranch lab report simulated emulated --out page
  anabranch lab report results --only nitk-time")]
    Report(Report),
    /// Compare two results: simulator and emulator, or two versions
    #[command(after_help = "\
Ratios with their 95 % intervals for each scenario, point and contender. Exit code 1 if one lies
beyond its tolerance or is missing; `unclear` means within, but with an interval that reaches out.

Examples:
  anabranch lab compare simulated emulated
  anabranch lab compare before after --goodput 2 --all")]
    Compare(Compare),
}
