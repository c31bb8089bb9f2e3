//! The content of the files.

use super::*;
use std::time::Duration;

fn part(id: &str, value: &str) -> Part {
    Part {
        schema: SCHEMA_VERSION,
        binary_hash: "b".into(),
        run_id: id.into(),
        scenario: "s".into(),
        contender: "a, \"b\"".into(),
        swept: vec![("path.1.rate".into(), value.into())],
        seed: u64::MAX.to_string(),
        outcome: Outcome {
            bytes: 7,
            goodput_bps: Some(1.5),
            paths: vec![PathOutcome::default(), PathOutcome::default()],
            series: vec![Bin::default()],
            reasons: vec![("no-room".into(), 3)],
            unit_times: vec![0.5],
            background: vec![Shared::new("udp", 1000, Duration::from_secs(2))],
            datagrams: vec![DatagramFlow::default()],
            decisions: vec![Decided::default()],
            ..Outcome::default()
        },
        ..Part::default()
    }
}

#[test]
fn every_row_has_a_cell_of_the_right_kind_for_every_column() {
    let parts = [part("1", "x"), part("2", "y")];
    for table in tables(parts.iter()) {
        assert!(!table.rows.is_empty(), "{}", table.name);
        for row in &table.rows {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            for (column, cell) in table.columns.iter().zip(row) {
                let fits = match cell {
                    Cell::Text(_) => column.kind == Kind::Text,
                    Cell::Whole(_) => column.kind == Kind::Whole,
                    Cell::Number(_) => column.kind == Kind::Number,
                    Cell::Nothing => true,
                };
                assert!(fits, "{}.{}: {cell:?}", table.name, column.name);
            }
        }
    }
}

#[test]
fn what_was_not_measured_is_nothing_in_a_table() {
    let told = without_clock(&[part("1", "x")]);
    let runs = tables(told.iter()).remove(0);
    let at = runs
        .columns
        .iter()
        .position(|column| column.name == "wall_s");
    assert_eq!(runs.rows[0][at.unwrap()], Cell::Nothing);
}

#[test]
fn values_with_commas_and_quotes_survive_csv() {
    let tables = tables([part("1", "x")].iter().collect::<Vec<_>>().into_iter());
    let mut text = Vec::new();
    csv(&tables[0], &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\"a, \"\"b\"\"\""), "{text}");
    assert!(text.lines().next().unwrap().contains("p.path.1.rate"));
    assert!(
        text.contains("18446744073709551615"),
        "seeds keep all digits"
    );
}

#[test]
fn swept_quantities_are_numbers_too() {
    let names = |values: &[&str]| {
        let parts: Vec<Part> = values.iter().map(|value| part(value, value)).collect();
        let runs = tables(parts.iter()).remove(0);
        let name = |at: usize| runs.columns[at].name.clone();
        let swept: Vec<usize> = (0..runs.columns.len())
            .filter(|at| name(*at).starts_with("p."))
            .collect();
        let cells = swept.iter().map(|at| runs.rows[1][*at].clone());
        (swept.iter().map(|at| name(*at)).collect(), cells.collect())
    };
    let (columns, cells): (Vec<String>, Vec<Cell>) = names(&["800kbit/s", "10Mbit/s"]);
    assert_eq!(columns, ["p.path.1.rate", "p.path.1.rate_bps"]);
    assert_eq!(cells, [Cell::Text("10Mbit/s".into()), Cell::Number(1e7)]);
    let (columns, cells): (Vec<String>, Vec<Cell>) = names(&["10ms", "lte.trace"]);
    assert_eq!(columns, ["p.path.1.rate"]);
    assert_eq!(cells, [Cell::Text("lte.trace".into())]);
}

#[test]
fn json_lines_hold_one_object_a_row() {
    let parts = [part("1", "x")];
    let tables = tables(parts.iter());
    let mut text = Vec::new();
    let decisions = tables.iter().find(|table| table.name == "decisions");
    json_lines(decisions.unwrap(), &mut text).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(object["run_id"], "1");
    assert_eq!(object["path"], serde_json::Value::Null);
}

#[test]
fn a_part_is_found_again_by_the_program_that_made_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), "s", "x = 1\n", "sim").unwrap();
    store.keep(&part("1", "x")).unwrap();
    assert_eq!(store.part("1", "b"), Some(part("1", "x")));
    assert_eq!(store.part("1", "other"), None);
    assert_eq!(store.part("2", "b"), None);
    std::fs::write(folder.path().join("parts/2.json"), "{\"schema\":1,").unwrap();
    assert_eq!(store.part("2", "b"), None, "half a part is none");
}

#[test]
fn a_folder_of_another_scenario_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    Store::open(folder.path(), "s", "", "sim").unwrap();
    assert!(Store::open(folder.path(), "s", "changed", "sim").is_ok());
    let error = Store::open(folder.path(), "t", "", "sim")
        .unwrap_err()
        .to_string();
    assert!(error.contains("another scenario"), "{error}");
}

#[test]
fn a_folder_of_another_backend_and_one_that_cannot_be_made_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results");
    let store = Store::open(&path, "s", "", "sim").unwrap();
    assert!(Store::open(&path, "s", "", "netns").is_ok(), "none yet");
    let kept = Part {
        backend: "sim".to_owned(),
        ..part("1", "x")
    };
    store.keep(&kept).unwrap();
    let error = Store::open(&path, "s", "", "netns").unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("--backend sim, not of --backend netns"),
        "{told}"
    );
    std::fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file/results");
    let told = Store::open(&below, "s", "", "sim").unwrap_err().to_string();
    assert!(told.contains("file/results: Not a directory"), "{told}");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_hold_the_rows() {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), "s", "", "sim").unwrap();
    store
        .write_tables(&[part("1", "x"), part("2", "y")], true)
        .unwrap();
    let file = std::fs::File::open(folder.path().join("paths.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 4);
    let row = reader
        .get_row_iter(None)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .to_string();
    assert!(row.contains("run_id: \"1\""), "{row}");
}

/// The page lists exactly the columns of every table. Set `ANABRANCH_BLESS` to rewrite its tables.
#[test]
fn the_page_describes_every_column() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for info in TABLES {
        writeln!(text, "### `{}`\n\nOne row is {}.\n", info.name, info.row).unwrap();
        text += "| column | kind | meaning |\n|---|---|---|\n";
        for column in (info.columns)() {
            let kind = match column.kind {
                Kind::Text => "text",
                Kind::Whole => "whole",
                Kind::Number => "number",
            };
            writeln!(text, "| `{}` | {kind} | {} |", column.name, column.about).unwrap();
        }
        text.push('\n');
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- tables -->\n", "<!-- end -->");
    let from = page.find(begin).unwrap() + begin.len();
    let to = page.find(end).unwrap();
    if std::env::var_os("ANABRANCH_BLESS").is_some() {
        let page = format!("{}{text}{}", &page[..from], &page[to..]);
        std::fs::write(&path, page).unwrap();
        return;
    }
    assert_eq!(
        &page[from..to],
        text,
        "run with ANABRANCH_BLESS=1 and raise SCHEMA_VERSION if needed"
    );
}
