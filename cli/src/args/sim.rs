//! The command line of `anabranch sim`.

use crate::args::Listing;
use anabranch_lab::plan::Shard;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with the simulator.
#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run a scenario and compare its contenders
    #[command(after_help = "\
Runs go to all cores. With --out, a second run starts only what is missing. Ctrl-C ends after the
runs under way. Exit code 1 if a run failed or a [check] of the scenario does not hold.

Examples:
  anabranch sim new scenario.toml
  anabranch sim run scenario.toml --out results
  anabranch sim run scenario.toml --set path.lte.forward.loss=1% --runs 10")]
    Run(Run),
    /// Write a commented scenario that runs
    New {
        /// Where to write it; stdout if not given
        file: Option<PathBuf>,
    },
    /// Put folders of results of one scenario together, such as those of its shards
    #[command(after_help = "\
Folders may overlap and come in any order; of equal runs the first is taken. The tables say nothing
about the time that runs took, so they are the same, byte for byte, however the runs were divided.
Results of another version of this program are not taken. Exit code 1 if runs are missing.

Examples:
  anabranch sim run s.toml --shard 1/2 --out part-1      on one machine
  anabranch sim run s.toml --shard 2/2 --out part-2      on another
  anabranch sim merge part-1 part-2 --out whole")]
    Merge(Merge),
    /// List the runs of a scenario without running them
    Expand(Expand),
    /// Re-run the experiments of the five papers and check what they state
    #[command(after_help = "\
Each statement holds or does not hold; our figure stands beside the published one. Exit code 1 if
one does not hold, or with --expect if one came out otherwise than listed.

Examples:
  anabranch sim papers --list
  anabranch sim papers --expect docs/papers.md
  anabranch sim papers critical-s1 critical-s3a --full
  anabranch sim papers 'bremen-*'")]
    Papers(Papers),
    /// Check whether schedulers keep the promises users take for granted
    #[command(after_help = "\
Each scheduler runs on the engine over sixteen simulated networks: it must not be slower than the
best path alone, starve a stream, pause, or trust a path in doubt. What it breaks is shown, with
the reason if it is excused. Exit code 1 if a rule is broken without an excuse.

Examples:
  anabranch sim conform blest
  anabranch sim conform min-rtt round-robin:mode=hold --kept
  anabranch sim conform --all --json")]
    Conform(Conform),
    /// Measure how often several links are slower than the better one alone
    #[command(after_help = "\
Each world has two to four random links, is run with all of them and with each alone, and compared
with an oracle that gets from each link what that link delivers alone. It counts as broken if all
links take longer than 1.02 (1.10) times the better link and one of its round trips: for a file, or
the 95th percentile of requests. Of datagrams one (five) in a hundred more may be late. With
--plain, links only have a rate, a delay, a queue and random loss, and carry one file. A world
depends on its seed only, so schedulers meet the same ones.

With --out, a folder gets worlds.csv, promise.svg and the worst worlds as scenarios, which
`anabranch sim run` runs again. Exit code 1 if more worlds are broken than --at-most allows.

Examples:
  anabranch sim promise
  anabranch sim promise blest --worlds 1000 --seed 50000 --out promise-blest
  anabranch sim promise guard+ecf --congestion bbr --plain --json
  anabranch sim promise --control")]
    Promise(Promise),
}

/// How a scenario is changed for this run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Change {
    /// Change a value, as path.dsl.forward.rate=20Mbit/s; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
    /// Run with each of these values, as path.dsl.forward.delay=10ms,50ms; may be repeated
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = key_value)]
    pub(crate) sweep: Vec<(String, String)>,
    /// Where all randomness comes from
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// Repetitions
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) runs: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The scenario (docs/scenarios.md)
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) change: Change,
    /// Keep results in this directory (docs/results.md)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Run each contender at the first point a second time, and fail if not the same happens
    #[arg(long)]
    pub(crate) twice: bool,
    /// Carry out only the I-th of N parts, from 1; `sim merge` puts their folders together
    #[arg(long, value_name = "I/N", requires = "out", conflicts_with = "twice")]
    pub(crate) shard: Option<Shard>,
    /// Leave the column `wall_s` empty: the tables of equal runs are then equal
    #[arg(long, requires = "out")]
    pub(crate) no_clock: bool,
    /// Write the tables as Parquet too
    #[arg(long, requires = "out")]
    pub(crate) parquet: bool,
    /// Runs at a time [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) jobs: u32,
    /// Write a JSON object per run to stdout, as in the table `runs`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// What `sim run --out` made
    #[arg(value_name = "DIR", required = true)]
    pub(crate) folders: Vec<PathBuf>,
    /// The folder for the whole
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Write the tables as Parquet too
    #[arg(long)]
    pub(crate) parquet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Expand {
    /// The scenario
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

#[derive(Debug, Args)]
pub(crate) struct Papers {
    /// Experiments, or patterns such as 'bremen-*'; all if none is given
    pub(crate) ids: Vec<String>,
    /// List the experiments instead of running them
    #[arg(long)]
    pub(crate) list: bool,
    /// The whole grid with all repetitions instead of a small one
    #[arg(long)]
    pub(crate) full: bool,
    /// Keep results in this directory, in a folder for each scenario
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Runs at a time [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) jobs: u32,
    /// Compare with the table in this file, as `--markdown` writes it, and fail only where a
    /// statement came out otherwise
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "full"])]
    pub(crate) expect: Option<PathBuf>,
    /// Run each contender at the first point of each scenario a second time, and fail if not the
    /// same happens
    #[arg(long, conflicts_with = "list")]
    pub(crate) twice: bool,
    /// Write the table as Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Write a JSON object per statement to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Conform {
    /// Schedulers, as `anabranch schedulers` lists them, with parameters
    #[arg(
        value_name = "SPEC",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) specs: Vec<String>,
    /// Check every scheduler with its defaults
    #[arg(long)]
    pub(crate) all: bool,
    /// Show kept rules too
    #[arg(long)]
    pub(crate) kept: bool,
    /// Write a JSON object per measurement to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Promise {
    /// The scheduler, as `anabranch schedulers` lists it, with parameters [default: the
    /// recommended one]
    #[arg(value_name = "SPEC")]
    pub(crate) scheduler: Option<String>,
    /// How many worlds
    #[arg(long, value_name = "N", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) worlds: u64,
    /// The seed of the first world; the next one has the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) seed: u64,
    /// The congestion control, as `anabranch congestion` lists it
    #[arg(long, value_name = "SPEC")]
    pub(crate) congestion: Option<String>,
    /// Only links with a rate, a delay, a queue and random loss, and one file
    #[arg(long)]
    pub(crate) plain: bool,
    /// Run the better link alone once more, with other losses by chance, in the place of all links:
    /// what the bars show where nothing is gained or lost
    #[arg(long, conflicts_with = "scheduler")]
    pub(crate) control: bool,
    /// Repeat each run with other losses by chance, this often in all, and count the median
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) draws: u32,
    /// Fail if more than this share of worlds takes longer than 1.02 (1.10) times the better link
    /// and a round trip, as 1%,0.1%
    #[arg(long, value_name = "P,P", value_parser = shares)]
    pub(crate) at_most: Option<[f64; 2]>,
    /// Keep a table, a plot and the worst worlds in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Worlds at a time [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) jobs: u32,
    /// Write a JSON object per world to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Two shares, in percent.
fn shares(text: &str) -> Result<[f64; 2], String> {
    let one = |part: &str| {
        let share = part.trim().strip_suffix('%')?.parse::<f64>().ok()? / 100.0;
        (0.0..=1.0).contains(&share).then_some(share)
    };
    let both = text
        .split_once(',')
        .and_then(|(a, b)| Some([one(a)?, one(b)?]));
    both.ok_or_else(|| "expected two shares, such as 1%,0.1%".into())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().into(), value.trim().into()))
        }
        _ => Err("expected KEY=VALUE".into()),
    }
}
