//! Runs a small scenario in the simulator and writes its page; or, given folders of results and
//! `--out FOLDER`, writes the page of those.

use anabranch_lab::backend::sim::Sim;
use anabranch_lab::campaign::Campaign;
use anabranch_lab::plan::{Changes, Plan};
use anabranch_lab::results::Store;
use anabranch_lab::scenario::{Document, TEMPLATE};
use anabranch_report::{PageOptions, page};
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (mut folders, mut out) = (Vec::new(), None);
    while let Some(argument) = arguments.next() {
        if argument == "--out" {
            out = arguments.next().map(PathBuf::from);
        } else {
            folders.push(PathBuf::from(argument));
        }
    }
    let own = tempfile::tempdir()?;
    if folders.is_empty() {
        let plan = Plan::make(
            &Document::parse("template.toml", TEMPLATE)?,
            &Changes::default(),
        )?;
        let store = Store::open(
            &own.path().join("results"),
            &plan.name,
            &plan.expanded,
            "sim",
        )?;
        let campaign = Campaign {
            store: Some(&store),
            ..Campaign::default()
        };
        let results = campaign.run(&plan, &Sim::default(), &|_| {})?;
        store.write_tables(&results.parts, false)?;
        folders.push(store.folder().to_owned());
    }
    let options = PageOptions {
        out: out.unwrap_or_else(|| own.path().join("report")),
        ..PageOptions::default()
    };
    let written = page(&folders, &options)?;
    let mut stdout = std::io::stdout().lock();
    for remark in &written.remarks {
        writeln!(stdout, "{remark}")?;
    }
    for figure in &written.figures {
        writeln!(stdout, "{figure}")?;
    }
    if let Some(page) = &written.page {
        writeln!(stdout, "{}", page.display())?;
    }
    Ok(())
}
