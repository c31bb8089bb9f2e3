//! `anabranch demo`: the point of the project, made visible without network or root.
//!
//! Server and client run in this process. Between them are three paths over loopback addresses,
//! each shaped by a modelled link. The same file is fetched over each path alone, then over all of
//! them with each scheduler, then once more with the best path cut in the middle.

pub(crate) mod relay;
mod run;

use crate::args::Demo;
use crate::commands::interrupted;
use crate::failure::{Failure, Outcome};
use crate::files::service::Service;
use crate::guest::Guest;
use crate::http3;
use crate::output::table::Table;
use crate::output::{self, units};
use crate::trust::ALPN_H3;
use crate::tuning::{Granted, Tuning};
use anabranch_net::defaults;
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::tls;
use anabranch_net::identity::{Identity, provider};
use anabranch_proto::rng::Rng;
use anabranch_schedulers::{Names, RECOMMENDED};
use relay::Shape;
use run::{Figures, Plan, Target};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file's name on the server.
const FILE: &str = "demo.bin";

/// The three paths: unequal, like a cable, a radio link and a mobile network.
const SHAPES: [Shape; 3] = [
    Shape {
        mbit: 100,
        delay_ms: 5,
        loss: 0.0,
    },
    Shape {
        mbit: 60,
        delay_ms: 10,
        loss: 0.0,
    },
    Shape {
        mbit: 40,
        delay_ms: 20,
        loss: 0.0001,
    },
];

/// Share of the file that has arrived when the best path is cut.
const CUT_AT: f64 = 0.4;

/// One scheduler of each kind, so that the table is complete within a minute; a program's own are
/// shown too, and `--all` shows the others.
const SHOWN: [&str; 10] = [
    RECOMMENDED,
    "round-robin",
    "weighted",
    "priority",
    "redundant",
    "delivery-delay",
    "otias",
    "edpf-like",
    "blest",
    "ecf",
];

/// One run in the result.
#[derive(Debug, Clone, Serialize)]
struct Row {
    /// What was run.
    run: String,
    /// The scheduler's name, with parameters.
    scheduler: String,
    /// The paths used, from 0.
    paths: Vec<usize>,
    bytes: u64,
    seconds: f64,
    goodput_bps: f64,
    /// Goodput divided by the sum of all link rates.
    of_sum: f64,
    /// Goodput divided by the goodput of the best path alone.
    of_best: f64,
    /// Share of the received bytes, for each path.
    shares: Vec<Option<f64>>,
    reassembly_peak_bytes: u64,
    duplicate_bytes: u64,
    /// After the cut, the longest time without data for the application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_ms: Option<f64>,
    /// This pause in round trips of the path that was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_rtts: Option<f64>,
}

/// Runs the command.
pub(crate) async fn run(args: &Demo, names: &Arc<Names>, quiet: bool) -> Outcome {
    let scratch = Scratch::new()?;
    let result = tokio::select! {
        result = demonstrate(args, names, quiet, &scratch) => result,
        () = interrupted() => Err(Failure::failed("interrupted")),
    };
    let rows = result?;
    if args.json {
        return output::json(&rows);
    }
    output::data(links())?;
    output::data("")?;
    output::data(table(&rows))?;
    conclusion(&rows).map_or(Ok(()), |line| output::data(format!("\n{line}")))
}

async fn demonstrate(
    args: &Demo,
    names: &Arc<Names>,
    quiet: bool,
    scratch: &Scratch,
) -> Outcome<Vec<Row>> {
    let started = Instant::now();
    let file = |error: io::Error| Failure::io("cannot write a temporary file", &error);
    write_random(&scratch.0.join(FILE), args.size.0, args.seed).map_err(file)?;
    let (_server, target) = serve(&scratch.0, names)?;
    let mut rows: Vec<Row> = Vec::new();
    let plans = plans(args, names)?;
    let count = plans.len();
    for (index, (name, plan)) in plans.into_iter().enumerate() {
        if !quiet {
            output::say(format!("[{}/{count}] {name}", index + 1));
        }
        let figures = run::run(&target, &plan).await.map_err(|failure| {
            Failure::failed(format!("{name}: {}", failure.what())).hint("try again with `-v`")
        })?;
        let best = rows
            .iter()
            .filter(|row| row.paths.len() == 1)
            .map(|row| row.goodput_bps);
        let best = best.fold(0.0, f64::max);
        rows.push(row(name, &plan, &figures, best));
    }
    let best = rows
        .iter()
        .filter(|row| row.paths.len() == 1)
        .map(|row| row.goodput_bps);
    let best = best.fold(0.0, f64::max);
    for row in &mut rows {
        row.of_best = ratio(row.goodput_bps, best);
    }
    if !quiet {
        output::say(format!("done in {:.0} s", started.elapsed().as_secs_f64()));
    }
    Ok(rows)
}

/// The runs: each path alone, all paths with each scheduler, and the cut.
fn plans(args: &Demo, names: &Names) -> Outcome<Vec<(String, Plan)>> {
    let plan = |paths: &[usize], scheduler: &str, cut_at| -> Outcome<Plan> {
        let tuning = Tuning {
            scheduler: Some(scheduler.parse().map_err(Failure::usage)?),
            congestion: args.congestion.clone(),
            chunk: None,
        };
        Ok(Plan {
            paths: paths.to_vec(),
            shapes: SHAPES.to_vec(),
            sending: tuning.resolve(names)?,
            tuning,
            seed: args.seed,
            cut_at,
        })
    };
    let all: Vec<usize> = (0..SHAPES.len()).collect();
    let mut plans = Vec::new();
    for path in &all {
        plans.push((
            format!("path {} alone", path + 1),
            plan(&[*path], RECOMMENDED, None)?,
        ));
    }
    let builtin = anabranch_schedulers::builtin();
    let is_own = |name: &str| builtin.entries().iter().all(|known| known.name != name);
    for entry in names.schedulers.entries() {
        if !args.all && !SHOWN.contains(&entry.name) && !is_own(entry.name) {
            continue;
        }
        // Schedulers cannot know the rates: `weighted` is given weights in proportion to them.
        let scheduler = match entry.name {
            "weighted" => "weighted:weights=5/3/2",
            name => name,
        };
        plans.push((scheduler.to_owned(), plan(&all, scheduler, None)?));
    }
    plans.push(("path 1 cut".into(), plan(&all, RECOMMENDED, Some(CUT_AT))?));
    Ok(plans)
}

fn serve(root: &Path, names: &Arc<Names>) -> Outcome<(Endpoint, Target)> {
    let identity = Identity::generate().map_err(Failure::failed)?;
    let server = identity.server(&["localhost"]).map_err(Failure::failed)?;
    let server = server.alpn(&[ALPN_H3]).build().map_err(Failure::failed)?;
    let client = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let client = client.alpn(&[ALPN_H3]).build().map_err(Failure::failed)?;
    let endpoint = Endpoint::server(defaults::server(server), &[(Ipv4Addr::LOCALHOST, 0).into()]);
    let endpoint = endpoint.map_err(|error| Failure::io("no socket", &error))?;
    let service = Service::new(root, None);
    let service = Arc::new(service.map_err(|error| Failure::io("cannot serve", &error))?);
    let accepting = endpoint.clone();
    let (paused, names) = (Arc::default(), Arc::clone(names));
    tokio::spawn(async move {
        while let Some(connection) = accepting.accept().await {
            let (service, paused) = (Arc::clone(&service), Arc::clone(&paused));
            let all = (Granted::Everything, Arc::clone(&names));
            let guest = Guest::new(connection, service, paused, all);
            tokio::spawn(http3::serve(guest, |_| {}));
        }
    });
    let address = endpoint.local_addrs().first().copied();
    let address = address.ok_or_else(|| Failure::failed("the server has no address"))?;
    Ok((
        endpoint,
        Target {
            address,
            tls: client,
            name: FILE,
        },
    ))
}

fn row(run: String, plan: &Plan, figures: &Figures, best: f64) -> Row {
    let goodput = units::rate(figures.bytes, figures.duration);
    let sum: f64 = SHAPES.iter().map(|shape| shape.rate()).sum();
    let scheduler = plan.tuning.scheduler.as_ref().map(ToString::to_string);
    let rtt = SHAPES[plan.paths[0]].rtt();
    Row {
        run,
        scheduler: scheduler.unwrap_or_default(),
        paths: plan.paths.clone(),
        bytes: figures.bytes,
        seconds: units::json_seconds(figures.duration),
        goodput_bps: goodput.round(),
        of_sum: ratio(goodput, sum),
        of_best: ratio(goodput, best),
        shares: figures.shares.clone(),
        reassembly_peak_bytes: figures.reassembly_peak,
        duplicate_bytes: figures.duplicates,
        pause_ms: figures.pause.map(units::json_millis),
        pause_rtts: figures
            .pause
            .map(|pause| ratio(pause.as_secs_f64(), rtt.as_secs_f64())),
    }
}

fn ratio(value: f64, reference: f64) -> f64 {
    if reference > 0.0 {
        (value / reference * 1000.0).round() / 1000.0
    } else {
        0.0
    }
}

fn links() -> String {
    let links = SHAPES.iter().enumerate().map(|(index, shape)| {
        let loss = if shape.loss > 0.0 {
            format!(", {} % loss", shape.loss * 100.0)
        } else {
            String::new()
        };
        format!(
            "path {}: 127.0.0.{}, {} Mbit/s, {} ms each way{loss}",
            index + 1,
            index + 1,
            shape.mbit,
            shape.delay_ms
        )
    });
    links.collect::<Vec<_>>().join("\n")
}

fn table(rows: &[Row]) -> Table {
    let head = [
        "run", ">goodput", ">of sum", ">of best", ">path 1", ">path 2", ">path 3",
    ];
    let mut table = Table::new(&[&head[..], &[">reorder peak", ">duplicates"]].concat());
    for row in rows {
        let mut cells = vec![
            row.run.clone(),
            units::bit_rate(row.goodput_bps),
            format!("{:.0} %", row.of_sum * 100.0),
            format!("{:.2} x", row.of_best),
        ];
        cells.extend(row.shares.iter().map(|share| match share {
            Some(share) => format!("{:.0} %", share * 100.0),
            None => "-".into(),
        }));
        cells.push(units::bytes(row.reassembly_peak_bytes));
        cells.push(units::bytes(row.duplicate_bytes));
        table.row(cells);
    }
    table
}

fn conclusion(rows: &[Row]) -> Option<String> {
    let several = || {
        rows.iter()
            .filter(|row| row.paths.len() > 1 && row.pause_ms.is_none())
    };
    let best = several().max_by(|a, b| a.goodput_bps.total_cmp(&b.goodput_bps))?;
    let mut text = format!(
        "Three paths with {}: {:.2} times the best path alone.",
        best.scheduler, best.of_best
    );
    for row in rows {
        if let (Some(ms), Some(rtts)) = (row.pause_ms, row.pause_rtts) {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\nPath 1 cut without a word at {:.0} % of the file: data paused for {ms:.0} ms \
                 ({rtts:.1} round trips of that path), and the file arrived whole.",
                CUT_AT * 100.0
            );
        }
    }
    Some(text)
}

/// Writes an incompressible file whose content depends on the seed.
fn write_random(path: &Path, length: u64, seed: u64) -> io::Result<()> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = Rng::from_seed(key);
    let mut file = File::create(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let piece = left.min(buffer.len() as u64) as usize;
        rng.fill(&mut buffer[..piece]);
        file.write_all(&buffer[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

/// A temporary directory that is removed at the end, even after a failure or Ctrl-C.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Self> {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unique = since.unwrap_or(Duration::ZERO).as_nanos();
        let name = format!("anabranch-demo-{}-{unique:x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|error| {
            let failure = Failure::io(format!("cannot make {}", path.display()), &error);
            failure.hint("set TMPDIR to a directory that can be written")
        })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the system cleans up its temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests;
