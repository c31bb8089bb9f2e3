//! The command line of a campaign.

use std::time::Duration;

/// What `cargo xtask soak --help` prints.
pub(crate) const HELP: &str = "\
usage: cargo xtask soak [--for TIME] [--only PART,..] [--fresh] [--no-sanitizer]

Random worlds, links that flap under a transfer and fuzz targets take turns until
the time is up or Ctrl-C. What was done is kept in target/soak, and the next run
goes on from there. Each finding is printed with the command that repeats it, and
lies in target/soak. Links take root and network namespaces, and are left out
elsewhere.

  --for TIME        how long: 90s, 10m, 8h (default 10m); building is not counted
  --only PART,..    engine, simulator, flap, fuzz (all targets) or the name of a
                    target
  --fresh           forget what earlier runs did and found
  --no-sanitizer    fuzz targets without the address sanitizer, which is used where
                    there is a nightly compiler

exit status: 0 nothing found, 1 findings, 2 a mistake in the arguments or a build
that failed

examples:
  cargo xtask soak --for 8h
  nice -n 19 cargo xtask soak --only engine,simulator --for 30m
  cargo xtask soak --only frames --no-sanitizer --for 90s";

/// The default of `--for`.
const USUAL: Duration = Duration::from_secs(600);

/// The options of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    /// How long it runs.
    pub(super) duration: Duration,
    /// Which parts to run; all if empty.
    pub(super) only: Vec<String>,
    /// Whether to start from scratch.
    pub(super) fresh: bool,
    /// Whether to build fuzz targets with the address sanitizer, if possible.
    pub(super) sanitizer: bool,
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parsed {
    /// To print the help text.
    Help,
    /// To run a campaign.
    Run(Options),
}

/// Parses the words after `soak`.
pub(super) fn parse(words: &[&str]) -> Result<Parsed, String> {
    let mut options = Options {
        duration: USUAL,
        only: Vec::new(),
        fresh: false,
        sanitizer: true,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (word, mut inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (*word, None),
        };
        let mut value = |what: &str| {
            let given = inline.take().or_else(|| words.next().copied());
            given.ok_or_else(|| format!("`{word}` needs {what}; see cargo xtask soak --help"))
        };
        match word {
            "--for" => options.duration = duration(value("a time such as 10m")?)?,
            "--only" => {
                let names = value("parts such as engine,frames")?.split(',');
                options.only.extend(names.map(str::to_owned));
            }
            "--fresh" => options.fresh = true,
            "--no-sanitizer" => options.sanitizer = false,
            "-h" | "--help" => return Ok(Parsed::Help),
            _ => {
                return Err(format!(
                    "unexpected argument `{word}`; see cargo xtask soak --help"
                ));
            }
        }
        if inline.is_some() {
            return Err(format!("`{word}` takes no value"));
        }
    }
    Ok(Parsed::Run(options))
}

/// Parses a duration.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: expected a number and s, m or h, such as 10m");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

impl Options {
    /// The parts to run, of those that exist: `names` lists the fuzz targets.
    pub(super) fn choose(&self, names: &[String]) -> Result<Vec<String>, String> {
        let others = ["engine", "simulator", "flap"].map(str::to_owned);
        let all: Vec<String> = others.into_iter().chain(names.iter().cloned()).collect();
        if self.only.is_empty() {
            return Ok(all);
        }
        let mut chosen = Vec::new();
        for wish in &self.only {
            if wish == "fuzz" {
                chosen.extend(names.iter().cloned());
            } else if all.contains(wish) {
                chosen.push(wish.clone());
            } else {
                return Err(format!(
                    "no part `{wish}`: there are fuzz, {}",
                    all.join(", ")
                ));
            }
        }
        chosen.sort();
        chosen.dedup();
        Ok(chosen)
    }
}
