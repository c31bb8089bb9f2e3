//! One part of a campaign: how to run it for a turn, and what its output means.

use super::child::{self, End, Outcome};
use super::state::{Finding, State};
use anabranch_testbed::Need;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The number of worlds in the first turn of a part, before it is known how long they take.
const FIRST_WORLDS: u64 = 100;

/// The first seed of a campaign's worlds. Lower seeds are for tests: their worlds vary less, and
/// some are kept because they found something.
pub(super) const FIRST_SEED: u64 = 2_000_000;

/// How much longer than planned a turn may take before its process is considered stuck.
const PATIENCE: Duration = Duration::from_secs(240);

/// The same for the links that flap: the test tries again on a machine that is busy, and its
/// transfer ends after the last outage.
const FLAP_PATIENCE: Duration = Duration::from_secs(900);

/// The test of links that flap, and the command that repeats it.
const FLAP_TEST: &str = "links_may_flap_for_long_without_leaks";
const FLAP: &str = "ANABRANCH_LONG=60 cargo test --workspace --locked --test failover \
                    links_may_flap";

/// A part, ready to run.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Random worlds: a test program, and the prefix of the variables that select seeds.
    Worlds {
        name: &'static str,
        program: PathBuf,
        /// The folder in which the program expects to run.
        folder: PathBuf,
        variables: &'static str,
        /// The command that repeats one of them.
        replay: &'static str,
    },
    /// Links that flap under a transfer of the real command: a test program, and the folder in
    /// which it expects to run.
    Flap { program: PathBuf, folder: PathBuf },
    /// A fuzz target.
    Fuzz {
        name: String,
        program: PathBuf,
        seeds: PathBuf,
        sanitizer: bool,
    },
}

impl Part {
    /// The name for users.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Worlds { name, .. } => name,
            Self::Flap { .. } => "flap",
            Self::Fuzz { name, .. } => name,
        }
    }

    /// Runs for about `span`, and records what was done and found.
    pub(super) fn take_turn(
        &self,
        folder: &Path,
        span: Duration,
        state: &mut State,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        let log = logs.join(format!("{}.log", self.name()));
        let progress = state.part(self.name()).clone();
        match self {
            Self::Worlds { .. } => {
                let rate = progress.cases as f64 / progress.seconds.max(1) as f64;
                let count = if progress.cases == 0 {
                    FIRST_WORLDS
                } else {
                    ((rate * span.as_secs_f64()) as u64).max(2)
                };
                let from = FIRST_SEED + progress.next;
                let mut command = self.worlds(from, count);
                let outcome = child::run(&mut command, &log, span + PATIENCE, stop)?;
                if outcome.end == End::Stopped {
                    // The seeds of a turn that was stopped are run again.
                    return Ok(());
                }
                self.note(state, &outcome, count, &log)?;
                state.part(self.name()).next += count;
                Ok(())
            }
            Self::Flap { program, folder } => {
                let mut command = flap(program, folder, FIRST_SEED + progress.next, span);
                let outcome = child::run(&mut command, &log, FLAP_PATIENCE, stop)?;
                if outcome.end == End::Stopped {
                    return Ok(());
                }
                self.note(state, &outcome, changes_of(&read(&log)), &log)?;
                state.part(self.name()).next += 1;
                Ok(())
            }
            Self::Fuzz { name, .. } => {
                let artifacts = folder.join("artifacts").join(name);
                let corpus = folder.join("corpus").join(name);
                for needed in [&artifacts, &corpus] {
                    std::fs::create_dir_all(needed)
                        .map_err(|error| format!("{}: {error}", needed.display()))?;
                }
                let before = files(&artifacts);
                let mut command = self.fuzz(&artifacts, &corpus, span, progress.next);
                let outcome = child::run(&mut command, &log, span + PATIENCE, stop)?;
                let text = read(&log);
                let cases = cases_of(&text);
                state.part(name).next += 1;
                let new = files(&artifacts).into_iter();
                let new: Vec<PathBuf> = new.filter(|file| !before.contains(file)).collect();
                for file in &new {
                    self.found_input(state, file, &text, &log)?;
                }
                if outcome.end != End::Failed || new.is_empty() {
                    self.note(state, &outcome, cases, &log)?;
                } else {
                    self.count(state, &outcome, cases);
                }
                Ok(())
            }
        }
    }

    fn worlds(&self, from: u64, count: u64) -> Command {
        let Self::Worlds {
            program,
            folder,
            variables,
            ..
        } = self
        else {
            unreachable!("asked of worlds alone")
        };
        let mut command = Command::new(program);
        command.current_dir(folder);
        command.env(format!("{variables}_SEED_FROM"), from.to_string());
        command.env(format!("{variables}_SEEDS"), count.to_string());
        command.args(["random_worlds_settle", "--test-threads=2"]);
        command
    }

    fn fuzz(&self, artifacts: &Path, corpus: &Path, span: Duration, turn: u64) -> Command {
        let Self::Fuzz { program, seeds, .. } = self else {
            unreachable!("asked of fuzz targets alone")
        };
        let mut command = Command::new(program);
        // The sanitizer holds on to freed memory until a certain amount has accumulated. With its
        // default of 256 MB, this would look like memory that grows throughout a turn.
        command.env("ASAN_OPTIONS", "quarantine_size_mb=16");
        command.args([
            format!("-seed={}", turn + 1),
            format!("-max_total_time={}", span.as_secs().max(1)),
            "-rss_limit_mb=1536".to_owned(),
            "-timeout=20".to_owned(),
            "-print_final_stats=1".to_owned(),
            format!("-artifact_prefix={}/", artifacts.display()),
        ]);
        command.arg(corpus);
        if seeds.is_dir() {
            command.arg(seeds);
        }
        command
    }

    /// Adds a turn to the progress.
    fn count(&self, state: &mut State, outcome: &Outcome, cases: u64) {
        let part = state.part(self.name());
        part.cases += cases;
        part.seconds += outcome.time.as_secs().max(1);
        part.most_memory_kib = part.most_memory_kib.max(outcome.most_memory_kib);
    }

    /// Adds a turn to the progress, and a finding if it ended badly.
    fn note(
        &self,
        state: &mut State,
        outcome: &Outcome,
        cases: u64,
        log: &Path,
    ) -> Result<(), String> {
        self.count(state, outcome, cases);
        let text = read(log);
        let what = match outcome.end {
            End::Failed => "it failed",
            End::TooLong => "it did not end",
            End::TooLarge => "it took more than 2 GiB of memory",
            End::Well | End::Stopped if child::grew(&outcome.memory_kib) => "its memory grew",
            End::Well | End::Stopped => return Ok(()),
        };
        let seeds = failed_seeds(&text);
        let kept = keep(log, state.findings.len())?;
        for seed in &seeds {
            state.add(Finding {
                part: self.name().to_owned(),
                what: format!("seed {seed} failed"),
                replay: self.replay(&seed.to_string()),
                log: kept.clone(),
            });
        }
        if seeds.is_empty() {
            let from = state.part(self.name()).next + FIRST_SEED;
            state.add(Finding {
                part: self.name().to_owned(),
                what: what.to_owned(),
                replay: self.replay_turn(from, cases),
                log: kept,
            });
        }
        Ok(())
    }

    fn found_input(
        &self,
        state: &mut State,
        file: &Path,
        text: &str,
        log: &Path,
    ) -> Result<(), String> {
        let said = text.lines().find(|line| {
            line.contains("panicked at") || line.contains("ERROR: ") || line.contains("SUMMARY: ")
        });
        let kept = keep(log, state.findings.len())?;
        state.add(Finding {
            part: self.name().to_owned(),
            what: said.unwrap_or("it failed").trim().to_owned(),
            replay: self.replay(&file.display().to_string()),
            log: kept,
        });
        Ok(())
    }

    /// The command that repeats one case.
    fn replay(&self, case: &str) -> String {
        match self {
            Self::Worlds {
                variables, replay, ..
            } => format!("{variables}_SEED={case} {replay}"),
            Self::Flap { .. } => format!("ANABRANCH_FLAP_SEED={case} {FLAP}"),
            Self::Fuzz {
                program, sanitizer, ..
            } => {
                let note = if *sanitizer {
                    "  (address sanitizer)"
                } else {
                    ""
                };
                format!("{} {case}{note}", program.display())
            }
        }
    }

    /// The command that repeats a whole turn.
    fn replay_turn(&self, from: u64, count: u64) -> String {
        match self {
            Self::Worlds {
                variables, replay, ..
            } => format!("{variables}_SEED_FROM={from} {variables}_SEEDS={count} {replay}"),
            Self::Flap { .. } => self.replay(&from.to_string()),
            Self::Fuzz { name, .. } => format!("cargo xtask soak --only {name} --for 1m"),
        }
    }
}

/// Lets links flap for about `span`.
fn flap(program: &Path, folder: &Path, seed: u64, span: Duration) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder);
    // 0 and 1 have meanings of their own.
    command.env("ANABRANCH_LONG", span.as_secs().max(2).to_string());
    command.env("ANABRANCH_FLAP_SEED", seed.to_string());
    command.env(Need::Network.variable(), "1");
    command.args([FLAP_TEST, "--exact", "--nocapture"]);
    command
}

/// How often links failed or recovered, according to the output of the test.
pub(super) fn changes_of(text: &str) -> u64 {
    let changes = |line: &str| {
        let (_, rest) = line.strip_prefix("flap: seed ")?.split_once(", ")?;
        rest.split_once(" changes")?.0.parse::<u64>().ok()
    };
    text.lines().filter_map(changes).sum()
}

/// Keeps the output of a turn that found something; returns its path.
fn keep(log: &Path, number: usize) -> Result<String, String> {
    let kept = log.with_extension(format!("{number}.log"));
    std::fs::copy(log, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    Ok(kept.display().to_string())
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The seeds that failed, according to the output of the worlds' tests.
pub(super) fn failed_seeds(text: &str) -> Vec<u64> {
    let seed = |line: &str| {
        let rest = line.strip_prefix("seed ")?.strip_suffix(" failed")?;
        rest.parse().ok()
    };
    let mut seeds: Vec<u64> = text.lines().filter_map(seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

/// How many inputs libFuzzer ran, according to its output.
pub(super) fn cases_of(text: &str) -> u64 {
    let final_count = text.lines().rev().find_map(|line| {
        let number = line.strip_prefix("stat::number_of_executed_units:")?;
        number.trim().parse().ok()
    });
    // A target that crashed prints no statistics, but its last progress line starts with the
    // number.
    final_count.unwrap_or_else(|| {
        let progress = text.lines().rev().find_map(|line| {
            let (number, rest) = line.strip_prefix('#')?.split_once(['\t', ' ', ':'])?;
            let _ = rest;
            number.parse().ok()
        });
        progress.unwrap_or(0)
    })
}
