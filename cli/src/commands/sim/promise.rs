//! `anabranch sim promise`: how often several links are slower than the better one alone.

use crate::args::sim::Promise as Args;
use crate::commands::interrupted;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::progress;
use crate::output::table::Table;
use crate::output::units;
use anabranch_lab::promise::{
    Measured, Promise, Quantiles, Summary, World, summarise, table as worlds,
};
use anabranch_lab::results;
use anabranch_report::WIDTHS;
use anabranch_schedulers::{Names, RECOMMENDED};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// How many of the worst worlds are kept.
const WORST: usize = 20;

/// How finely the series of a kept world is recorded: bins in the ideal time.
const DETAIL: f64 = 200.0;

/// Runs the command.
pub(super) async fn run(args: &Args, names: &Arc<Names>, quiet: bool) -> Outcome {
    let scheduler = args.scheduler.as_deref().unwrap_or(RECOMMENDED);
    names.scheduler(scheduler).map_err(Failure::usage)?;
    if let Some(congestion) = &args.congestion {
        names.controller(congestion).map_err(Failure::usage)?;
    }
    let promise = Promise {
        scheduler: scheduler.to_owned(),
        congestion: args.congestion.clone(),
        first: args.seed,
        worlds: args.worlds,
        plain: args.plain,
        control: args.control,
        draws: args.draws,
        jobs: args.jobs as usize,
    };
    if let Some(folder) = &args.out {
        let made = empty(&folder.join("worst"));
        made.map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let measured = measure(&promise, names, quiet, &stop).await?;
    if args.json {
        let mut lines = Vec::new();
        results::json_lines(&worlds(&measured), &mut lines)
            .map_err(|error| Failure::io("cannot write JSON", &error))?;
        output::raw(&lines)?;
    } else {
        output::data(table(&summarise(&measured)))?;
    }
    if let Some(folder) = &args.out {
        keep(folder, &promise, &measured)?;
        output::say(format!("results are in {}", folder.display()));
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::failed(
            "interrupted: the figures are of the worlds before",
        ));
    }
    verdict(&measured, args.at_most)
}

/// Measures on all cores, with a progress bar. A signal ends it after the worlds under way.
async fn measure(
    promise: &Promise,
    names: &Arc<Names>,
    quiet: bool,
    stop: &Arc<AtomicBool>,
) -> Outcome<Vec<Measured>> {
    let template = "{bar:24} {pos}/{len} worlds, {eta} left";
    let bar = progress::bar(promise.worlds, quiet, template);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_secs(1));
    }
    let work = {
        let (promise, names) = (promise.clone(), Arc::clone(names));
        let (stop, bar) = (Arc::clone(stop), bar.clone());
        spawn_blocking(move || promise.run(&names, &stop, &|_| bar.inc(1)))
    };
    tokio::pin!(work);
    let done = tokio::select! {
        done = &mut work => done,
        () = interrupted() => {
            stop.store(true, Ordering::Relaxed);
            output::say("ending after the worlds under way");
            work.await
        }
    };
    bar.finish_and_clear();
    let done = done.map_err(|error| Failure::failed(format!("a run ended badly: {error}")))?;
    done.map_err(Failure::failed)
}

fn table(summaries: &[Summary]) -> Table {
    let mut table = Table::new(&[
        "worlds",
        ">count",
        ">better/all: least",
        ">1 %",
        ">5 %",
        ">median",
        ">oracle/all: 5 %",
        ">median",
        ">over 1.02",
        ">over 1.10",
    ]);
    let ratio = |value: f64| format!("{value:.3}");
    for one in summaries {
        let Quantiles {
            least,
            p1,
            p5,
            median,
        } = one.gain;
        let oracle = |of: fn(&Quantiles) -> f64| {
            one.of_oracle
                .as_ref()
                .map_or(String::new(), |it| ratio(of(it)))
        };
        let broken = |at: usize| {
            let share = 100.0 * one.bars[at].broken as f64 / one.worlds as f64;
            format!("{share:.1} %")
        };
        table.row([
            one.class.clone(),
            one.worlds.to_string(),
            ratio(least),
            ratio(p1),
            ratio(p5),
            ratio(median),
            oracle(|it| it.p5),
            oracle(|it| it.median),
            broken(0),
            broken(1),
        ]);
    }
    table
}

/// Makes the folder of the worst worlds, or removes those of an earlier measurement.
fn empty(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_ours = stem.is_some_and(|stem| stem.starts_with("promise-"));
        if is_ours && path.extension().is_some_and(|end| end == "toml") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Writes the table, the plot and the worst worlds.
fn keep(folder: &Path, promise: &Promise, measured: &[Measured]) -> Outcome {
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| Failure::io(path.display().to_string(), &error))
    };
    let mut csv = Vec::new();
    results::csv(&worlds(measured), &mut csv)
        .map_err(|error| Failure::io("cannot write CSV", &error))?;
    write("worlds.csv", &csv)?;
    if let Some(figure) = anabranch_report::promise(measured) {
        write("promise.svg", figure.svg(WIDTHS[0].0).as_bytes())?;
    }
    let mut worst: Vec<&Measured> = measured.iter().filter(|one| one.breaks(1.02)).collect();
    worst.sort_by(|a, b| a.gain().total_cmp(&b.gain()));
    for one in worst.into_iter().take(WORST) {
        let world = World::draw(one.seed, promise.plain);
        let text = world.scenario(&promise.scheduler, promise.congestion.as_deref(), DETAIL);
        let about = format!(
            "# all links {:.4}, link {} alone {:.4} ({})\n",
            one.all,
            one.best_link,
            one.best,
            one.figure.name()
        );
        write(
            &format!("worst/promise-{}.toml", one.seed),
            (about + &text).as_bytes(),
        )?;
    }
    Ok(())
}

/// Fails if more worlds are broken than allowed.
fn verdict(measured: &[Measured], at_most: Option<[f64; 2]>) -> Outcome {
    let Some(allowed) = at_most else {
        return Ok(());
    };
    for (factor, allowed) in [1.02, 1.10].into_iter().zip(allowed) {
        let broken = measured.iter().filter(|one| one.breaks(factor)).count();
        if broken as f64 > allowed * measured.len() as f64 {
            let what = format!(
                "{} of {} took longer than {factor:.2} times the better link and a round trip, \
                 {:.2} % may",
                broken,
                units::counted(measured.len(), "world"),
                allowed * 100.0
            );
            let failure = Failure::failed(what);
            return Err(failure.hint("--out DIR keeps the worst of them as scenarios"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::promise::Figure;

    fn measured(all: f64) -> Measured {
        Measured {
            seed: 7,
            figure: Figure::Completion,
            conditions: vec![],
            links: 2,
            all,
            best: 1.0,
            best_link: "b",
            round_trip: 0.1,
            oracle: None,
            twice: 0.0,
        }
    }

    #[test]
    fn the_command_fails_if_more_worlds_are_broken_than_may_be() {
        let mut worlds = vec![measured(1.0); 99];
        worlds.push(measured(1.15));
        assert!(verdict(&worlds, None).is_ok());
        assert!(verdict(&worlds, Some([0.01, 0.0])).is_ok());
        worlds.push(measured(f64::INFINITY));
        let failure = verdict(&worlds, Some([0.02, 0.0])).unwrap_err();
        assert!(matches!(failure, Failure::Failed(_)), "exit code 1");
        assert!(
            failure
                .what()
                .starts_with("1 of 101 worlds took longer than 1.10 times")
        );
    }

    #[test]
    fn worst_worlds_are_kept_as_scenarios_that_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let worst = folder.path().join("worst");
        fs::create_dir(&worst).unwrap();
        for name in ["promise-3.toml", "mine.toml"] {
            fs::write(worst.join(name), "").unwrap();
        }
        empty(&worst).unwrap();
        assert!(worst.join("mine.toml").exists() && !worst.join("promise-3.toml").exists());
        let promise = Promise {
            scheduler: "min-rtt".into(),
            congestion: None,
            first: 7,
            worlds: 1,
            plain: false,
            control: false,
            draws: 1,
            jobs: 1,
        };
        keep(folder.path(), &promise, &[measured(2.0), measured(1.0)]).unwrap();
        let text = fs::read_to_string(folder.path().join("worst/promise-7.toml")).unwrap();
        assert!(text.starts_with("# all links 2.0000, link b alone 1.0000"));
        anabranch_lab::scenario::Document::parse("world", &text).unwrap();
        let csv = fs::read_to_string(folder.path().join("worlds.csv")).unwrap();
        assert_eq!(csv.lines().count(), 3);
        assert!(folder.path().join("promise.svg").exists());
    }
}
