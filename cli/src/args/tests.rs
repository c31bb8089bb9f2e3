//! Which command lines are accepted, which are refused, and what the help says.

use super::*;
use clap::CommandFactory;

const PIN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(
        line.replace("URL", &format!("anabranch://{PIN}@h/f"))
            .split(' '),
    )
}

fn refusal(line: &str) -> String {
    let error = parse(line).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_download_takes_paths_and_a_scheduler() {
    let cli = parse("anabranch get URL --path eth0,backup --path 192.0.2.7 --scheduler redundant");
    let Command::Get(get) = cli.unwrap().command else {
        panic!("not get")
    };
    assert_eq!(get.moving.paths.specs().len(), 2);
    assert_eq!(get.moving.tuning.scheduler.unwrap().name, "redundant");
    assert_eq!(get.urls[0].file_name(), Some("f"));
}

#[test]
fn paths_per_interface_is_a_default_for_paths_that_do_not_say() {
    let specs = |line: &str| match parse(line).unwrap().command {
        Command::Get(get) => get
            .moving
            .paths
            .specs()
            .iter()
            .map(|spec| spec.options.paths.expect("a number"))
            .collect::<Vec<_>>(),
        _ => panic!("not get"),
    };
    let line = "anabranch get URL --paths-per-interface 3";
    assert_eq!(
        specs(&format!(
            "{line} --path eth0 --path eth1,paths=2 --path eth2,paths=1"
        )),
        [3, 2, 1]
    );
    assert_eq!(specs(line), [3], "all uplinks");
    assert_eq!(specs("anabranch get URL"), [1], "all uplinks");
}

#[test]
fn the_number_of_a_far_end_is_octets_and_a_key_encrypts_one() {
    let serve = "anabranch tunnel serve";
    for wrong in ["0", "xy", "001", "000102030405060708090a0b"] {
        let refused = refusal(&format!("{serve} --server-id {wrong}"));
        assert!(refused.contains("expected 1 to 11 octets"), "{refused}");
    }
    assert!(refusal(&format!("{serve} --lb-key key")).contains("--server-id <HEX>"));
    assert!(refusal(&format!("{serve} --server-id 01 --lb-rotation 7")).contains("0..=6"));
    let line = format!("{serve} --server-id 00fF --lb-key key --lb-rotation 6");
    assert!(parse(&line).is_ok());
}

#[test]
fn mistakes_name_what_is_nearest() {
    let message = refusal("anabranch get URL --scheduler ecf:beta=");
    assert!(message.contains("--scheduler"), "{message}");
    assert!(refusal("anabranch get URL --path eth0,bakup").contains("`backup`"));
    assert!(refusal("anabranch get URL --chunk 10").contains("500 to 65536"));
    assert!(refusal("anabranch get http://h/f").contains("anabranch://PIN@HOST:PORT"));
    assert!(refusal("anabranch sched").contains("schedulers"));
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    assert!(refusal("anabranch serve --cert x").contains("--key"));
    refusal("anabranch serve --cert x --key y --identity z");
    refusal("anabranch -q -v doctor");
    refusal("anabranch get URL --paths-per-interface 9");
}

#[test]
fn listen_addresses_may_lack_a_port_or_be_one() {
    assert_eq!(
        listen_address("192.0.2.1"),
        Ok("192.0.2.1:4433".parse().unwrap())
    );
    assert_eq!(listen_address("[::1]"), Ok("[::1]:4433".parse().unwrap()));
    assert_eq!(listen_address("::1"), Ok("[::1]:4433".parse().unwrap()));
    assert_eq!(listen_address(":5000"), Ok("[::]:5000".parse().unwrap()));
    assert!(listen_address("example.org").is_err());
}

#[test]
fn metrics_are_for_this_machine_alone_unless_an_address_is_named() {
    let of = |text: &str| match parse(&format!("anabranch tunnel serve --metrics {text}")) {
        Ok(Cli {
            command: Command::Tunnel(tunnel::Tunnel::Serve(serve)),
            ..
        }) => serve.metrics.unwrap().to_string(),
        _ => panic!("{text}"),
    };
    assert_eq!(of(":9434"), "127.0.0.1:9434");
    assert_eq!(of("127.0.0.2"), "127.0.0.2:9434");
    assert_eq!(of("[::]:1"), "[::]:1");
}

/// Set `ANABRANCH_BLESS` to accept the current help as the new snapshot.
#[test]
fn the_help_is_as_reviewed() {
    let mut text = String::new();
    let mut command = Cli::command().term_width(100);
    text += &command.render_help().to_string();
    for sub in command.get_subcommands_mut() {
        let help = sub.clone().term_width(100).render_help();
        text += "\n==== ";
        text += sub.get_name();
        text += "\n";
        text += &help.to_string();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join("\n") + "\n";
    let file = if cfg!(feature = "lab") {
        "src/args/help.txt"
    } else {
        "src/args/help-without-lab.txt"
    };
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("ANABRANCH_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, reviewed,
        "run with ANABRANCH_BLESS=1 and review the difference"
    );
}

#[cfg(not(feature = "lab"))]
#[test]
fn a_command_of_the_laboratory_says_that_it_is_not_here_whatever_follows_it() {
    for line in [
        "anabranch sim run s.toml --runs 3",
        "anabranch lab",
        "anabranch demo --all",
    ] {
        let Command::Absent(command) = parse(line).unwrap().command else {
            panic!("{line}")
        };
        let failure = command.failure();
        assert!(failure.what().contains("without the laboratory"), "{line}");
        assert!(failure.report().unwrap().contains("cargo build"), "{line}");
    }
}
