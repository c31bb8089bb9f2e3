//! Studies in parts: `sim run --shard` and `sim merge`.

use std::path::Path;
use std::process::{Command, Output};

const TWO: &str = "\
format = 1\nname = \"two\"\nstop = \"20s\"\n[[path]]\nname = \"a\"\n\
forward = {rate = \"8Mbit/s\", delay = \"10ms\", queue = \"100ms\", loss = \"1%\"}\n\
backward = {like = \"forward\", loss = \"0%\"}\n[[path]]\nname = \"b\"\n\
forward = {rate = \"4Mbit/s\", delay = \"30ms\", queue = \"100ms\"}\n\
backward = {like = \"forward\"}\n[[flow]]\nkind = \"bulk\"\nbytes = \"300kB\"\n\
[repeat]\nruns = 3\n[sweep]\n\"path.b.forward.delay\" = [\"20ms\", \"60ms\"]\n\
[contenders]\nblest = {scheduler = \"blest\"}\nmin-rtt = {scheduler = \"min-rtt\"}\n";

fn sim(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.current_dir(folder).arg("sim").args(arguments);
    command.output().expect("the program starts")
}

fn done(folder: &Path, arguments: &[&str]) {
    let output = sim(folder, arguments);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {words}");
}

fn shard(folder: &Path, which: &str, out: &str) {
    done(folder, &["run", "two.toml", "--shard", which, "--out", out]);
}

#[test]
fn shards_put_together_are_a_single_run_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("two.toml"), TWO).unwrap();
    for number in 1..=3 {
        shard(at, &format!("{number}/3"), &format!("part-{number}"));
    }
    let merge = [
        "merge",
        "part-3",
        "part-1",
        "part-2",
        "--out",
        "whole",
        "--parquet",
    ];
    done(at, &merge);
    let single = [
        "run",
        "two.toml",
        "--out",
        "single",
        "--no-clock",
        "--parquet",
    ];
    done(at, &single);
    for table in ["runs", "paths", "series", "reasons"] {
        for kind in ["csv", "parquet"] {
            let name = format!("{table}.{kind}");
            let of = |folder: &str| std::fs::read(at.join(folder).join(&name)).unwrap();
            assert!(of("whole") == of("single"), "{name} differs");
        }
    }
    // It is a folder of results like any other: nothing is left to do.
    done(at, &["run", "two.toml", "--out", "whole"]);
}

#[test]
fn a_check_is_judged_for_the_whole_and_not_for_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let check = "[check]\ngoodput = {of = \"sum-of-rates\", at-least = 0.99}\n";
    std::fs::write(at.join("two.toml"), format!("{TWO}{check}")).unwrap();
    for number in 1..=2 {
        shard(at, &format!("{number}/2"), &format!("part-{number}"));
    }
    let before = contents(&at.join("part-1"));
    let merged = sim(at, &["merge", "part-1", "part-2", "--out", "whole"]);
    let told = String::from_utf8_lossy(&merged.stderr);
    assert_eq!(merged.status.code(), Some(1), "{told}");
    assert!(told.contains("a check does not hold"), "{told}");
    let shown = String::from_utf8_lossy(&merged.stdout);
    assert!(
        shown.contains("sum of rates") || shown.contains("sum-of-rates"),
        "{shown}"
    );
    assert_eq!(contents(&at.join("part-1")), before, "what is read stays");
}

/// The files of a folder of results, with when they were last changed.
fn contents(folder: &Path) -> Vec<(std::ffi::OsString, std::time::SystemTime)> {
    let changed = |file: &std::fs::DirEntry| file.metadata()?.modified();
    let files = std::fs::read_dir(folder).expect("a folder of results");
    let mut files: Vec<_> = files
        .map(|file| file.expect("its files can be listed"))
        .map(|file| (file.file_name(), changed(&file).expect("a file has a time")))
        .collect();
    files.sort();
    files
}

#[test]
fn what_is_missing_and_what_does_not_fit_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("two.toml"), TWO).unwrap();
    shard(at, "1/2", "part");
    let lacking = sim(at, &["merge", "part", "--out", "whole"]);
    assert_eq!(lacking.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&lacking.stderr).contains("missing"));
    std::fs::write(at.join("two.toml"), TWO.replace("8Mbit/s", "9Mbit/s")).unwrap();
    shard(at, "2/2", "other");
    for (folders, words) in [
        (["part", "other"], "another scenario"),
        (["part", "none"], "holds no results"),
    ] {
        let refused = sim(at, &["merge", folders[0], folders[1], "--out", "whole"]);
        assert_eq!(refused.status.code(), Some(2));
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(told.contains(words), "{told}");
    }
    for wrong in ["3/2", "0/2", "x"] {
        let arguments = ["run", "two.toml", "--shard", wrong, "--out", "part"];
        assert_eq!(sim(at, &arguments).status.code(), Some(2));
    }
}
