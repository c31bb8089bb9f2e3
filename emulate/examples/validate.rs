//! Prints the validation table of a layer: `emulator`, which is the default, or `kernel`.

#![expect(clippy::print_stdout, reason = "it is what the example is for")]

use std::error::Error;

use anabranch_emulate::{Layer, Verdict, validate};

fn main() -> Result<(), Box<dyn Error>> {
    let layer = match std::env::args().nth(1).as_deref() {
        None | Some("emulator") => Layer::Emulator,
        Some("kernel") => Layer::Kernel,
        Some(other) => return Err(format!("`{other}`: expected emulator or kernel").into()),
    };
    let validation = validate(layer, |progress| eprintln!("{}", progress.link))?;
    println!("| link | property | configured | accepted | measured | late, p99 | |");
    println!("|---|---|---|---|---|---|---|");
    for row in &validation.rows {
        let verdict = match &row.verdict {
            Verdict::Passed => "ok".to_owned(),
            Verdict::Failed(why) => format!("FAILED: {why}"),
            Verdict::Skipped(why) => format!("skipped: {why}"),
        };
        let measured = row
            .measured
            .map_or("-".to_owned(), |value| format!("{value:.3}"));
        println!(
            "| {} | {} | {:.3} {} | {:.3} to {:.3} | {measured} | {:?} | {verdict} |",
            row.link,
            row.property,
            row.configured,
            row.unit,
            row.accepted[0],
            row.accepted[1],
            row.late_p99
        );
    }
    if !validation.passed() {
        return Err("the links are not as configured".into());
    }
    Ok(())
}
