//! Which paths may be typed, and how the others are refused.

use super::*;
use anabranch_net::interfaces::{Address, Kind};

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9));

fn interface(name: &str, addresses: &[[u8; 4]]) -> Interface {
    Interface {
        index: 1,
        name: name.to_owned(),
        kind: Kind::Uplink,
        up: true,
        running: true,
        mtu: 1500,
        addresses: addresses
            .iter()
            .map(|ip| Address {
                ip: (*ip).into(),
                prefix_len: 24,
            })
            .collect(),
        gateways: Vec::new(),
        default_route: false,
        destinations: std::collections::BTreeSet::new(),
    }
}

fn understood(specs: &[&str]) -> Outcome<Vec<Road>> {
    understood_of(specs, ["two", "two"])
}

/// Parses paths that occur in these two scenarios.
fn understood_of(specs: &[&str], scenarios: [&str; 2]) -> Outcome<Vec<Road>> {
    let mut down = interface("eth9", &[[10, 0, 9, 1]]);
    down.running = false;
    let interfaces = [
        interface("eth0", &[[10, 0, 0, 1], [10, 0, 0, 2]]),
        interface("wwan0", &[[10, 0, 1, 1]]),
        interface("bare0", &[]),
        down,
    ];
    let wanted = [("dsl", scenarios[0]), ("lte", scenarios[1])].map(|(path, scenario)| Wanted {
        path: path.to_owned(),
        scenarios: vec![scenario.to_owned()],
    });
    let specs: Vec<RoadSpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
    roads(&specs, &wanted, &interfaces, PEER)
}

#[test]
fn paths_lead_to_the_peer_unless_another_address_is_given() {
    let roads = understood(&["dsl=eth0:10.0.0.2", "lte=wwan0=198.51.100.7"]).unwrap();
    let ends: Vec<(IpAddr, IpAddr)> = roads.iter().map(|road| (road.local, road.remote)).collect();
    let lte = IpAddr::from([198, 51, 100, 7]);
    let expected = [([10, 0, 0, 2].into(), PEER), ([10, 0, 1, 1].into(), lte)];
    assert_eq!(ends, expected);
}

#[test]
fn paths_of_different_scenarios_may_share_a_link() {
    let both = ["dsl=eth0", "lte=eth0"];
    assert!(understood_of(&both, ["one", "one"]).is_err());
    let roads = understood_of(&both, ["one", "other"]).unwrap();
    assert_eq!(roads[0].local, roads[1].local);
}

#[test]
fn mistakes_are_told_with_what_is_near() {
    let refused = |specs: &[&str], expected: &[&str]| {
        let failure = understood(specs).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "exit code 2");
        let told = failure.report().unwrap();
        for part in expected {
            assert!(told.contains(part), "{told}");
        }
    };
    refused(&["dls=eth0"], &["no scenario has a path `dls`", "`dsl`"]);
    refused(
        &["dsl=eht0"],
        &["no interface `eht0`", "did you mean `eth0`"],
    );
    refused(&["dsl=eth9"], &["`eth9` is down"]);
    refused(
        &["dsl=bare0"],
        &["no address from which", "it has no address"],
    );
    refused(
        &["dsl=eth0:10.0.1.1"],
        &[
            "10.0.1.1 is no address of interface `eth0`",
            "10.0.0.1, 10.0.0.2",
        ],
    );
    refused(&["dsl=eth0", "dsl=wwan0"], &["`dsl` is given twice"]);
    refused(
        &["dsl=eth0", "lte=eth0"],
        &["`dsl` and `lte` both lead from 10.0.0.1"],
    );
    refused(
        &["dsl=eth0"],
        &[
            "path `lte` of scenario `two`",
            "--path lte=IFACE",
            "eth0, wwan0",
        ],
    );
    refused(&["dsl=eth0=2001:db8::1"], &["no address from which"]);
}

#[test]
fn another_version_is_no_peer() {
    let mut machine = Machine::examine();
    assert!(same_version(&machine).is_ok());
    machine.version = "0.0.1-old".to_owned();
    let told = same_version(&machine).unwrap_err().report().unwrap();
    assert!(
        told.contains("0.0.1-old") && told.contains("same version"),
        "{told}"
    );
}

/// The options of `lab run` as typed.
fn typed(options: &str) -> Run {
    #[derive(Debug, clap::Parser)]
    struct Typed {
        #[command(flatten)]
        run: Run,
    }
    let words = ["run", "scenario.toml"].into_iter();
    let typed = <Typed as clap::Parser>::try_parse_from(words.chain(options.split_whitespace()));
    typed.unwrap().run
}

#[test]
fn options_that_a_backend_does_not_read_are_refused() {
    let refused = |options: &str| {
        let args = typed(options);
        check_options(&args, args.backend == Backend::Host)
    };
    for (options, option) in [
        ("--path dsl=eth0", "--path"),
        ("--in-vm --path dsl=eth0", "--path"),
        ("--identity here", "--identity"),
        ("--backend sim --identity here", "--identity"),
        ("--backend sim --links kernel", "--links"),
        ("--backend sim --pcap", "--pcap"),
        ("--backend host --pcap", "--pcap"),
    ] {
        let failure = refused(options).unwrap_err();
        assert!(failure.what().starts_with(option), "{options}: {failure:?}");
    }
    for options in [
        "--pcap --links kernel",
        "--in-vm --links kernel",
        "--backend host --identity here --path dsl=eth0",
        "--backend sim --warm-up",
    ] {
        assert!(refused(options).is_ok(), "{options}");
    }
}
