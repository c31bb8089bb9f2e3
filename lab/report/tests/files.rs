//! Reports as files, and comparisons, from known results.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod results;

use anabranch_lab::backend::sim::Sim;
use anabranch_lab::campaign::Campaign;
use anabranch_lab::plan::{Changes, Plan};
use anabranch_lab::results::Store;
use anabranch_lab::scenario::Document;
use anabranch_report::{
    Folder, Judgement, Options, PageOptions, Rasteriser, ReportError, WIDTHS, compare, page,
};
use results::{CUT, Made, SWEPT, make};
use resvg::tiny_skia::Pixmap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIM: Made = Made {
    name: "sim",
    factor: 1.0,
};

fn write(folders: &[PathBuf], out: &Path, only: &[&str]) -> Result<Vec<String>, ReportError> {
    let options = PageOptions {
        out: out.to_owned(),
        only: only.iter().map(ToString::to_string).collect(),
        no_png: true,
        ..PageOptions::default()
    };
    page(folders, &options).map(|written| written.figures)
}

#[test]
fn the_page_says_what_came_out_and_needs_nothing_else() {
    let base = tempfile::tempdir().unwrap();
    let folder = make(base.path(), "cut", CUT, SIM);
    let reason = "\"C5\" = \"blest holds | back\"\n";
    fs::write(base.path().join("reasons.toml"), reason).unwrap();
    let figures = write(&[folder], base.path(), &[]).unwrap();
    let kinds = [
        "goodput",
        "gain",
        "completion",
        "time",
        "share",
        "wait",
        "buffer",
        "state",
    ];
    let expected: Vec<String> = kinds
        .iter()
        .chain(&["reasons"])
        .map(|kind| format!("cut-----return-{kind}"))
        .collect();
    assert_eq!(figures, expected);
    let html = fs::read_to_string(base.path().join("report.html")).unwrap();
    for said in [
        "Results of cut &#60;&#38;&#62; return",
        "40 runs of 3 contenders in sim; 1 did not end well and does not count.",
        "3 of 6 claims hold",
        "Highest goodput: anabranch blest",
        "the emulator was late",
        "blest holds | back",
        "lte silent",
    ] {
        assert!(html.contains(said), "{said}");
    }
    for outside in [
        "http://",
        "https://",
        "<script",
        "<link rel=\"stylesheet",
        "@import",
    ] {
        assert!(!html.contains(outside), "{outside}");
    }
    let markdown = fs::read_to_string(base.path().join("report.md")).unwrap();
    assert!(markdown.contains("blest holds \\| back"));
    assert!(markdown.contains("](plots/cut-----return-time-178mm.svg)"));
}

const MACHINE: &str = r#"{
  "backend": "netns",
  "cores": 2,
  "kernel": "6.1.0",
  "load": 0.1,
  "memory_bytes": 4294967296,
  "programs": [["ip", "ip utility, iproute2-6.1.0"]],
  "variables": [["net/ipv4/tcp_sack", "1"]]
}
"#;

#[test]
fn the_method_is_told_in_words_and_the_files_behind_it_are_folded_in() {
    let base = tempfile::tempdir().unwrap();
    let real = Made {
        name: "netns",
        factor: 1.0,
    };
    let folder = make(base.path(), "swept", SWEPT, real);
    fs::write(folder.join("machine.json"), MACHINE).unwrap();
    write(&[folder], base.path(), &[]).unwrap();
    let html = fs::read_to_string(base.path().join("report.html")).unwrap();
    let method = html.split("id=\"swept-method\"").nth(1).unwrap();
    let method = method.split("id=\"swept-repeat\"").next().unwrap();
    let open: String = method
        .split("<details>")
        .map(|piece| piece.split("</details>").last().unwrap_or(""))
        .collect();
    for said in [
        "<dt>flows</dt><dd>bulk, bytes 20MB</dd>",
        "<dt>contenders</dt><dd>anabranch: scheduler min-rtt / blest</dd>",
        "<dt>swept</dt><dd>path.a.forward.rate: 1Mbit/s / 2Mbit/s / 5Mbit/s / 10Mbit/s</dd>",
        "<td class=\"n\">client → server</td><td>1 Mbit/s / 2 Mbit/s / 5 Mbit/s / 10 Mbit/s</td>\
         <td>10 ms</td>",
        "<td>12.5 kB (100 ms) / ",
        "<td>1 %</td>",
        "<dt>memory</dt><dd>4.0 GiB</dd>",
        "<dt>ip</dt><dd>ip utility, iproute2-6.1.0</dd>",
    ] {
        assert!(open.contains(said), "{said}: {open}");
    }
    assert!(
        !open.contains(['{', '[']),
        "JSON is not for reading: {open}"
    );
    let escaped = MACHINE.replace('"', "&#34;");
    assert!(method.contains(&escaped), "the file is there as it is");
    let markdown = fs::read_to_string(base.path().join("report.md")).unwrap();
    assert!(
        markdown.contains("\n- net/ipv4/tcp_sack: 1\n"),
        "{markdown}"
    );
}

#[test]
fn every_link_within_the_page_leads_somewhere_and_every_name_is_there_once() {
    let base = tempfile::tempdir().unwrap();
    let sim = make(base.path(), "sim", SWEPT, SIM);
    let real = Made {
        name: "netns",
        factor: 0.97,
    };
    let real = make(base.path(), "real", SWEPT, real);
    let cut = make(base.path(), "cut", CUT, SIM);
    write(&[sim, real, cut], base.path(), &[]).unwrap();
    let html = fs::read_to_string(base.path().join("report.html")).unwrap();
    let after = |mark: &str| -> Vec<String> {
        let pieces = html.split(mark).skip(1);
        pieces
            .map(|piece| piece.split(['"', ')']).next().unwrap_or("").to_owned())
            .collect()
    };
    let ids = after(" id=\"");
    for id in &ids {
        assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{id}");
    }
    for target in after("href=\"#").iter().chain(&after("url(#")) {
        assert!(ids.contains(target), "{target}");
    }
    for file in after("href=\"plots/") {
        assert!(base.path().join("plots").join(&file).is_file(), "{file}");
    }
}

#[test]
fn figures_follow_from_what_there_is() {
    let base = tempfile::tempdir().unwrap();
    let sim = make(base.path(), "sim", SWEPT, SIM);
    let alone = write(std::slice::from_ref(&sim), &base.path().join("one"), &[]).unwrap();
    for kind in ["crossover", "map", "sweep", "gain"] {
        assert!(
            alone.contains(&format!("swept-{kind}")),
            "{kind}: {alone:?}"
        );
    }
    assert!(
        !alone
            .iter()
            .any(|name| name.ends_with("agreement") || name.ends_with("-goodput"))
    );
    let real = Made {
        name: "netns",
        factor: 0.97,
    };
    let real = make(base.path(), "real", SWEPT, real);
    let both = write(&[sim, real], &base.path().join("two"), &["swept-agreement"]).unwrap();
    assert_eq!(both, ["swept-agreement"]);
    let csv = fs::read_to_string(base.path().join("two/plots/swept-agreement.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 12 * 4);
    assert!(!base.path().join("two/report.html").exists());
}

#[test]
fn gain_counts_each_path_once_also_beside_rivals_with_one_path() {
    let base = tempfile::tempdir().unwrap();
    let rival = "[contenders]\nkernel-tcp = { kind = \"tcp\", paths = [\"dsl\", \"lte\"] }\n";
    let scenario = CUT.replace("[contenders]\n", rival);
    let folder = make(base.path(), "cut", &scenario, SIM);
    let figures = write(std::slice::from_ref(&folder), base.path(), &[]).unwrap();
    assert!(figures.contains(&"cut-----return-gain".to_owned()));
    let csv = base.path().join("plots/cut-----return-gain.csv");
    let csv = fs::read_to_string(csv).unwrap();
    let results = Folder::load(&folder, &Arc::default()).unwrap();
    let row = |name: &str| {
        let rows = &results.report.rows;
        rows.iter().find(|row| row.contender == name).unwrap()
    };
    assert!(!row("kernel-tcp dsl").single && row("only dsl").single);
    for name in ["anabranch min-rtt", "anabranch blest"] {
        let lines = csv.lines().filter(|line| line.starts_with(name));
        let gains: Vec<f64> = lines
            .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(gains.len(), 8);
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        let told = row(name).gain.unwrap().value;
        assert!((mean - told).abs() < 1e-9, "{name}: {mean} and {told}");
    }
}

#[test]
fn what_vega_lite_is_told_to_draw_is_in_the_csv_beside_it() {
    let base = tempfile::tempdir().unwrap();
    let sim = make(base.path(), "sim", SWEPT, SIM);
    let real = Made {
        name: "netns",
        factor: 0.97,
    };
    let real = make(base.path(), "real", SWEPT, real);
    let cut = make(base.path(), "cut", CUT, SIM);
    let figures = write(&[sim, real, cut], base.path(), &[]).unwrap();
    assert!(figures.len() > 20, "{figures:?}");
    for name in &figures {
        let file = base.path().join("plots").join(format!("{name}.vl.json"));
        let chart: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let csv = base.path().join("plots");
        let csv = csv.join(chart["data"]["url"].as_str().unwrap());
        let csv = fs::read_to_string(csv).unwrap();
        let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        for (channel, one) in chart["encoding"].as_object().unwrap() {
            let field = one["field"].as_str().unwrap();
            let place = columns.iter().position(|column| *column == field);
            let place = place.unwrap_or_else(|| panic!("{name}: {channel}: no `{field}`"));
            // A column of numbers holds only numbers; a point of a sweep may be in quotes.
            let row = csv.lines().nth(1).unwrap();
            if one["type"] == "quantitative" && !row.contains('"') {
                let cell = row.split(',').nth(place).unwrap();
                assert!(cell.parse::<f64>().is_ok(), "{name}: {field}: {cell}");
            }
        }
    }
}

#[test]
fn png_files_have_the_size_and_the_colours_of_the_drawing() {
    let Some(rasteriser) = Rasteriser::new() else {
        // Without fonts there are no PNG files, and the page links to none.
        return;
    };
    drop(rasteriser);
    let base = tempfile::tempdir().unwrap();
    let folder = make(base.path(), "cut", CUT, SIM);
    let options = PageOptions {
        out: base.path().to_owned(),
        only: vec!["cut-----return-share".to_owned()],
        ..PageOptions::default()
    };
    page(&[folder], &options).unwrap();
    let plots = base.path().join("plots");
    for (width, name) in WIDTHS {
        let file = plots.join(format!("cut-----return-share-{name}.png"));
        let pixels = Pixmap::decode_png(&fs::read(file).unwrap()).unwrap();
        let expected = width / 96.0 * 300.0;
        assert!(
            (f64::from(pixels.width()) - expected).abs() < 3.0,
            "{}",
            pixels.width()
        );
        let blue = pixels
            .pixels()
            .iter()
            .filter(|pixel| [pixel.red(), pixel.green(), pixel.blue()] == [0x00, 0x72, 0xb2]);
        assert!(blue.count() > 1000);
        let dark = pixels.pixels().iter().filter(|pixel| pixel.green() < 0x40);
        assert!(dark.count() > 200, "letters are drawn");
    }
}

#[test]
fn what_cannot_be_shown_is_refused_with_what_to_do() {
    let base = tempfile::tempdir().unwrap();
    let error = write(&[base.path().to_owned()], base.path(), &[]).unwrap_err();
    assert!(error.is_usage() && error.hint().is_some(), "{error}");
    let folder = make(base.path(), "cut", CUT, SIM);
    let error = write(
        std::slice::from_ref(&folder),
        base.path(),
        &["cut-----return-tim"],
    );
    let hint = error.unwrap_err().hint().unwrap();
    assert_eq!(hint, "did you mean `cut-----return-time`?");
    fs::write(folder.join("reasons.toml"), "C1 = 3\n").unwrap();
    let error = Folder::load(&folder, &Arc::default()).unwrap_err();
    assert!(
        error.to_string().contains("the value of `C1` is no text"),
        "{error}"
    );
    fs::remove_file(folder.join("reasons.toml")).unwrap();
    fs::remove_file(folder.join("runs.csv")).unwrap();
    for part in fs::read_dir(folder.join("parts")).unwrap() {
        fs::write(part.unwrap().path(), "{}").unwrap();
    }
    let error = Folder::load(&folder, &Arc::default()).unwrap_err();
    assert!(
        error.to_string().contains("40 files cannot be used"),
        "{error}"
    );
}

#[test]
fn results_agree_within_their_tolerance_and_no_further() {
    let base = tempfile::tempdir().unwrap();
    let load = |name: &str, factor: f64| {
        let made = Made {
            name: "sim",
            factor,
        };
        vec![Folder::load(&make(base.path(), name, CUT, made), &Arc::default()).unwrap()]
    };
    let (first, near, far) = (load("first", 1.0), load("near", 0.97), load("far", 0.9));
    let options = Options::default();
    let same = compare(&first, &near, &options).unwrap();
    assert!(same.is_good());
    assert_eq!(same.count(Judgement::Agrees), 5);
    assert!((same.lines[0].ratio.unwrap() - 0.97).abs() < 1e-9);
    let id = &far[0].parts[0].run_id;
    // Two runs were disturbed; one of them was repeated undisturbed.
    let again = &far[0].parts[1].run_id;
    let note = |id: &str, cores| format!("{{\"run_id\":\"{id}\",\"others_cores\":{cores}}}\n");
    let notes = [note(again, 2.0), note(id, 1.5), note(again, 0.1)].concat();
    fs::write(far[0].path.join("notes.jsonl"), notes).unwrap();
    let far = vec![Folder::load(&far[0].path, &Arc::default()).unwrap()];
    let other = compare(&first, &far, &options).unwrap();
    let busy = "busy with other things during 1 of 40 runs";
    assert!(
        other.remarks.iter().any(|remark| remark.contains(busy)),
        "{:?}",
        other.remarks
    );
    assert_eq!(other.count(Judgement::Disagrees), 5);
    assert!(!other.is_good());
    assert_eq!(other.csv().lines().count(), 6);
    let loose = Options {
        goodput: 0.2,
        ..options
    };
    assert!(compare(&first, &far, &loose).unwrap().is_good());
    let swept =
        vec![Folder::load(&make(base.path(), "swept", SWEPT, SIM), &Arc::default()).unwrap()];
    let error = compare(&first, &swept, &options).unwrap_err();
    assert!(error.is_usage(), "{error}");
}

#[test]
fn a_scenario_that_only_one_side_has_is_missing_figure_by_figure() {
    let base = tempfile::tempdir().unwrap();
    let load = |name, scenario| {
        Folder::load(&make(base.path(), name, scenario, SIM), &Arc::default()).unwrap()
    };
    let both = [load("cut", CUT), load("swept", SWEPT)];
    let options = Options::default();
    let whole = compare(&both, &both, &options).unwrap();
    assert!(whole.is_good(), "{:?}", whole.lines);
    let swept = whole.lines.iter().filter(|line| line.scenario == "swept");
    let swept = swept.count();
    assert!(swept > 0);
    for (first, second) in [(&both[..], &both[..1]), (&both[..1], &both[..])] {
        let found = compare(first, second, &options).unwrap();
        assert!(!found.is_good(), "{:?}", found.lines);
        assert_eq!(found.lines.len(), whole.lines.len());
        assert_eq!(found.count(Judgement::Missing), swept);
        let gap = found.lines.last().unwrap();
        let known = [gap.first.is_some(), gap.second.is_some()];
        assert_eq!(known, [first.len() == 2, second.len() == 2], "{gap:?}");
        assert_eq!(gap.runs.0.min(gap.runs.1), 0, "{gap:?}");
        assert!(
            found
                .remarks
                .iter()
                .any(|remark| remark.contains("swept: only in"))
        );
    }
}

/// Random losses, so that no two seeds give the same result.
/// Every loss counts as congestion, so that transfers take long enough for their goodput to be
/// compared.
const LOSSY: &str = r#"
format = 1
name = "lossy"
stop = "30s"
singles = false
[[path]]
name = "a"
forward = { rate = "4Mbit/s", delay = "10ms", loss = "2%" }
backward = { rate = "4Mbit/s", delay = "10ms" }
[[path]]
name = "b"
forward = { rate = "4Mbit/s", delay = "20ms", loss = "2%" }
backward = { rate = "4Mbit/s", delay = "20ms" }
[[flow]]
kind = "bulk"
bytes = "1MB"
[transport]
congestion = "cubic:random-loss=0"
[repeat]
runs = 8
"#;

/// Simulates the scenario into a folder below `base`.
fn simulate(base: &Path, name: &str, scenario: &str, seed: u64) -> Vec<Folder> {
    let document = Document::parse(name, scenario).unwrap();
    let changes = Changes {
        seed: Some(seed),
        ..Changes::default()
    };
    let plan = Plan::make(&document, &changes).unwrap();
    let store = Store::open(&base.join(name), &plan.name, &plan.expanded, "sim").unwrap();
    let campaign = Campaign {
        store: Some(&store),
        ..Campaign::default()
    };
    campaign.run(&plan, &Sim::default(), &|_| {}).unwrap();
    vec![Folder::load(store.folder(), &Arc::default()).unwrap()]
}

#[test]
fn two_campaigns_of_one_scenario_agree_within_their_intervals_and_another_network_does_not() {
    let base = tempfile::tempdir().unwrap();
    let one = simulate(base.path(), "one", LOSSY, 1);
    let two = simulate(base.path(), "two", LOSSY, 2);
    assert_eq!(
        one[0].plan.runs[0].seed.to_string(),
        one[0].parts[0].seed,
        "the folder knows its seed"
    );
    let found = compare(&one, &two, &Options::default()).unwrap();
    let line = &found.lines[0];
    assert!(
        line.low.unwrap() < 1.0 && 1.0 < line.high.unwrap(),
        "{line:?}"
    );
    assert!(line.low < line.high, "seeds differ: {line:?}");
    let again = simulate(base.path(), "again", LOSSY, 1);
    let same = compare(&one, &again, &Options::default()).unwrap();
    assert_eq!(same.lines[0].ratio, Some(1.0));
    let worse = LOSSY.replace("2%", "5%");
    let worse = simulate(base.path(), "worse", &worse, 1);
    let found = compare(&one, &worse, &Options::default()).unwrap();
    assert_eq!(found.lines[0].judgement, Judgement::Disagrees);
    assert!(found.lines[0].high.unwrap() < 1.0, "{:?}", found.lines[0]);
}
