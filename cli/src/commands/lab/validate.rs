//! `anabranch lab validate`: compares links as configured and as measured.

use crate::args::lab::{Layers, Validate};
use crate::commands::interrupted;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use anabranch_testbed::emulate::{Layer, Row, Validation, Verdict, validate};
use tokio::task::spawn_blocking;

/// Runs the command.
pub(super) async fn run(args: &Validate, quiet: bool) -> Outcome {
    if let Some(how) = args.inside.in_vm {
        return super::vm::validate(how, quiet).await;
    }
    super::essentials()?;
    let layers: &[Layer] = match args.links {
        Layers::Auto | Layers::Emulator => &[Layer::Emulator],
        Layers::Kernel => &[Layer::Kernel],
        Layers::Both => &[Layer::Emulator, Layer::Kernel],
    };
    let mut all = Vec::new();
    for layer in layers {
        all.push(one(*layer, quiet).await?);
    }
    if args.listing.json {
        for validation in &all {
            for row in &validation.rows {
                output::json(&json(validation, row))?;
            }
        }
    } else {
        output::data(table(&all))?;
    }
    let failed: Vec<String> = all
        .iter()
        .filter(|validation| !validation.passed())
        .map(|validation| validation.layer.to_string())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    let failure = Failure::failed(format!(
        "links of the {} are not as configured",
        failed.join(" and of the ")
    ));
    Err(failure.hint("run it again while nothing else runs: `uptime` tells the load"))
}

async fn one(layer: Layer, quiet: bool) -> Outcome<Validation> {
    let work = spawn_blocking(move || {
        validate(layer, |progress| {
            if !quiet {
                let (done, total) = (progress.done + 1, progress.total);
                output::say(format!("{layer} {done}/{total} {}", progress.link));
            }
        })
    });
    let done = tokio::select! {
        done = work => done,
        // The next start removes what is left.
        () = interrupted() => return Err(Failure::failed("interrupted")),
    };
    let done = done.map_err(|error| Failure::failed(format!("it ended badly: {error}")))?;
    done.map_err(Failure::failed)
}

fn table(all: &[Validation]) -> Table {
    let mut table = Table::new(&[
        "layer",
        "link",
        "property",
        ">configured",
        ">measured",
        ">accepted",
        "",
        "verdict",
    ]);
    for validation in all {
        for row in &validation.rows {
            let [least, most] = row.accepted;
            table.row([
                validation.layer.to_string(),
                row.link.clone(),
                row.property.into(),
                figure(row.configured),
                row.measured.map_or_else(|| "-".into(), figure),
                format!("{} to {}", figure(least), figure(most)),
                row.unit.into(),
                verdict(row),
            ]);
        }
    }
    table
}

fn figure(value: f64) -> String {
    format!("{value:.3}")
}

fn verdict(row: &Row) -> String {
    match &row.verdict {
        Verdict::Passed => "ok".to_owned(),
        Verdict::Failed(why) => format!("FAILED: {why}"),
        Verdict::Skipped(why) => format!("skipped: {why}"),
    }
}

fn json(validation: &Validation, row: &Row) -> serde_json::Value {
    let (name, why) = match &row.verdict {
        Verdict::Passed => ("passed", None),
        Verdict::Failed(why) => ("failed", Some(why)),
        Verdict::Skipped(why) => ("skipped", Some(why)),
    };
    serde_json::json!({
        "layer": validation.layer.to_string(),
        "link": row.link,
        "property": row.property,
        "unit": row.unit,
        "configured": row.configured,
        "measured": row.measured,
        "accepted": row.accepted,
        "late_p99_ms": row.late_p99.as_secs_f64() * 1e3,
        "verdict": name,
        "why": why,
    })
}
