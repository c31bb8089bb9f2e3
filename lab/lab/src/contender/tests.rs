//! Files that are read and files that are refused.

use super::*;

const FILE: &str = r#"format = 1
name = "other"
paths = "all"
directions = ["forward"]
ready = "listening"
ready-within = "3s"
[server]
command = ["./other", "serve", "{server}:{port}"]
env = { SEED = "{seed}" }
[client]
command = ["other", "put", "--paths={pairs}", "{{literal}}", "{bytes}"]
[measure]
from = "server"
bytes = '"received": {},'
time = "took {} ms"
time-unit = "ms"
"#;

fn read(text: &str) -> Result<Contender, String> {
    Contender::parse(Path::new("peers/other.toml"), text).map_err(|error| error.to_string())
}

fn refusal(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    read(&FILE.replace(from, to)).unwrap_err()
}

#[test]
fn a_file_tells_how_programs_start_and_what_they_print() {
    let contender = read(FILE).unwrap();
    assert_eq!(contender.paths, PathUse::All);
    assert_eq!(contender.ways, [true, false]);
    assert_eq!(contender.amounts, [true, true]);
    assert_eq!(contender.ready_within, Duration::from_secs(3));
    let fill = |place: Place| match place {
        Place::Server => "10.0.0.2".to_owned(),
        Place::Port => "7000".to_owned(),
        Place::Pairs => "10.0.0.1=10.0.0.2".to_owned(),
        other => format!("<{other:?}>"),
    };
    let words = |program: &Program| -> Vec<String> {
        program
            .command
            .iter()
            .map(|word| word.filled(&fill))
            .collect()
    };
    assert_eq!(
        words(&contender.server),
        ["peers/./other", "serve", "10.0.0.2:7000"],
        "a program beside the file is found from anywhere"
    );
    assert_eq!(
        words(&contender.client),
        [
            "other",
            "put",
            "--paths=10.0.0.1=10.0.0.2",
            "{literal}",
            "<Bytes>"
        ]
    );
    assert_eq!(contender.server.env[0].1.filled(&fill), "<Seed>");
}

#[test]
fn figures_are_the_last_ones_that_fit() {
    let measure = read(FILE).unwrap().measure;
    let output =
        "{\"received\": 10, }\nnoise took x ms\n{\"received\": 2000000, }\ntook 1.5e3 ms\n";
    let figures = measure.figures(output).unwrap();
    assert_eq!(figures.bytes, 2_000_000);
    assert!((figures.seconds.unwrap() - 1.5).abs() < 1e-9);
    let missing = measure.figures("took 3 ms\n").unwrap_err();
    assert!(missing.contains("\"received\": {},"), "{missing}");
    assert!(measure.figures("\"received\": -3,\ntook 3 ms").is_err());
}

#[test]
fn a_number_at_the_beginning_of_a_line_is_found() {
    let text = FILE.replace(
        "time = \"took {} ms\"\ntime-unit = \"ms\"",
        "unit = \"MiB\"",
    );
    let measure = read(&text.replace("'\"received\": {},'", "\"{} MiB\""))
        .unwrap()
        .measure;
    let figures = measure.figures("é 7 x 3.5 MiB").unwrap();
    assert_eq!((figures.bytes, figures.seconds), (3_670_016, None));
}

#[test]
fn mistakes_name_their_line_and_the_nearest_valid_name() {
    let message = refusal("{pairs}", "{pair}");
    assert!(message.starts_with("peers/other.toml:11:"), "{message}");
    assert!(message.contains("did you mean `pairs`"), "{message}");
    let message = refusal("ready-within", "ready-withn");
    assert!(message.contains("did you mean `ready-within`"), "{message}");
    let message = refusal("\"forward\"", "\"foward\"");
    assert!(message.contains("did you mean `forward`"), "{message}");
    for (from, to, expected) in [
        ("format = 1", "format = 2", "format = 1"),
        ("\"3s\"", "\"3kB\"", "a time"),
        ("[measure]", "[mesure]", "there is no such key"),
        ("'\"received\": {},'", "\"none\"", "where the number is"),
        ("[\"other\", \"put\"", "[7, \"put\"", "texts only"),
        ("{{literal}}", "{literal", "brace"),
        ("\"ms\"\n", "\"m\"\n", "expected one of s, ms"),
        (
            "from = \"server\"",
            "from = \"serve\"",
            "did you mean `server`",
        ),
    ] {
        let message = refusal(from, to);
        assert!(message.contains(expected), "{to}: {message}");
    }
}
