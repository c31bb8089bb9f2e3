//! What can be typed after `anabranch lab`.

use crate::args::Listing;
use crate::args::report::{Compare, Report};
use crate::args::sim::Change;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What to do with the laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// List the experiments of the five papers and what can run them
    List(Listing),
    /// Run scenarios in real kernels, with rivals, and compare
    #[command(after_help = "\
A target is a scenario file, an experiment of `lab list` (or a pattern such as 'bremen-*'),
`papers` for all of them, or `calibration` for the small scenarios in which this backend and the
simulator must agree (docs/report.md). The network is built of namespaces (needs root) and
removed again, also after Ctrl-C. Experiments get the kernel's TCP and multipath TCP as rivals.
Runs go one at a time, contenders in random order within each repetition. The same command goes
on where it stopped.
Ctrl-C ends after the run under way, a second one at once. Exit code 1 if a run failed or a [check]
does not hold, 2 if nothing could be run.

Examples:
  anabranch lab run nitk-table1
  anabranch lab run scenario.toml --out results --runs 10
  anabranch lab run papers --quick --out papers
  anabranch lab run 'bremen-router-*' --set transport.congestion=cubic --links kernel")]
    Run(Run),
    /// List the runs of a target without running them
    Expand(Expand),
    /// Tell how far the runs in a folder of results are
    Status {
        /// The folder
        folder: PathBuf,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
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
  anabranch lab run calibration --backend sim --out simulated
  anabranch lab run calibration --out emulated
  anabranch lab compare simulated emulated
  anabranch lab compare before after --goodput 2 --all")]
    Compare(Compare),
    /// Remove what laboratories left that were killed
    Clean,
    /// Measure whether emulated links are as configured
    #[command(after_help = "\
Each link alone under probes: delay, rate, loss, jitter, a trace. Takes about half a
minute on an idle machine. Exit code 1 if a row fails.")]
    Validate(Validate),
    /// Carry the flows of one host: what the laboratory starts at both ends of a run
    #[command(after_help = "\
Reads jobs as lines of JSON on stdin and writes reports to stdout; ends when stdin ends. It is
started by `lab run`, and by hand only to look at what it says.")]
    Agent,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Scenario files, experiments, `papers` or `calibration`
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) grid: Grid,
    /// Keep results in this directory, in a folder for each scenario if there are several
    /// [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What runs it
    #[arg(long, value_enum, default_value_t = Backend::Netns)]
    pub(crate) backend: Backend,
    /// What carries packets between namespaces
    #[arg(long, value_enum, default_value_t = LinkLayer::Auto)]
    pub(crate) links: LinkLayer,
    /// Run the first repetition once more before it, for nothing
    #[arg(long)]
    pub(crate) warm_up: bool,
    /// Write a capture of each link into the folder of results
    #[arg(long)]
    pub(crate) pcap: bool,
    /// Write the tables as Parquet too
    #[arg(long)]
    pub(crate) parquet: bool,
    /// Write a JSON object per run to stdout, as in the table `runs`
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of an experiment is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Grid {
    /// The small grid with at most three repetitions; this is the default
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// The whole grid with all repetitions
    #[arg(long)]
    pub(crate) full: bool,
    /// Without the kernel's TCP and multipath TCP, and the engine as it comes
    #[arg(long)]
    pub(crate) no_rivals: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Expand {
    /// Scenario files, experiments, `papers` or `calibration`
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) grid: Grid,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// Which links; `auto` means the emulator's
    #[arg(long, value_enum, default_value_t = LinkLayer::Auto)]
    pub(crate) links: LinkLayer,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

/// What can run a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Network namespaces of this machine
    Netns,
    /// The simulator
    Sim,
}

/// What can carry packets between namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkLayer {
    /// The emulator, or the kernel where there are no TAP devices
    Auto,
    /// The emulator: the simulator's links in real time
    Emulator,
    /// tbf and netem of the kernel
    Kernel,
}
