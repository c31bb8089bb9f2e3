//! Reading, choosing and watching interfaces.

use super::spec::{PathSpec, Selector, SpecError, check, resolve, without_route};
use super::watch::diff;
use super::*;
use crate::namespace::{in_namespace, ip};
use anabranch_proto::wire::frame::PathStatus;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;

fn interface(index: u32, name: &str, kind: Kind, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| {
        let (ip, prefix_len) = text.split_once('/').unwrap();
        Address {
            ip: ip.parse().unwrap(),
            prefix_len: prefix_len.parse().unwrap(),
        }
    });
    Interface {
        index,
        name: name.into(),
        kind,
        up: true,
        running: true,
        mtu: 1500,
        addresses: addresses.collect(),
        gateways: Vec::new(),
        default_route: false,
        destinations: everywhere(),
    }
}

/// The destinations of default routes.
fn everywhere() -> BTreeSet<Address> {
    let any = |ip: &str| Address {
        ip: ip.parse().unwrap(),
        prefix_len: 0,
    };
    [any("0.0.0.0"), any("::")].into()
}

fn machine() -> Vec<Interface> {
    vec![
        interface(1, "lo", Kind::Loopback, &["127.0.0.1/8", "::1/128"]),
        interface(
            2,
            "eth0",
            Kind::Uplink,
            &["192.0.2.7/24", "2001:db8::7/64", "fe80::1/64"],
        ),
        interface(3, "wlan0", Kind::Uplink, &["198.51.100.9/24"]),
        interface(4, "wlan1", Kind::Uplink, &["203.0.113.9/24"]),
        interface(5, "docker0", Kind::Virtual, &["172.17.0.1/16"]),
        interface(6, "wg0", Kind::Tunnel, &["10.9.0.2/24"]),
    ]
}

fn spec(text: &str) -> PathSpec {
    text.parse().unwrap()
}

fn remote(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn names(specs: &[&str], remotes: &[&str]) -> Vec<String> {
    let specs: Vec<PathSpec> = specs.iter().map(|text| spec(text)).collect();
    let remotes: Vec<SocketAddr> = remotes.iter().map(|text| remote(text)).collect();
    let found = resolve(&specs, &machine(), &remotes);
    found
        .into_iter()
        .map(|place| format!("{} {}", place.interface, place.local))
        .collect()
}

#[test]
fn auto_takes_network_cards_and_leaves_plumbing_tunnels_and_loopback() {
    assert_eq!(
        names(&["auto"], &["198.51.100.1:443"]),
        ["eth0 192.0.2.7", "wlan0 198.51.100.9", "wlan1 203.0.113.9"]
    );
}

#[test]
fn auto_passes_over_an_interface_without_a_way_to_the_server() {
    let mut interfaces = machine();
    // One interface knows only its own subnet, another only a route to a single host.
    interfaces[2].destinations = interfaces[2].addresses.iter().copied().collect();
    let host = Address {
        ip: "192.0.2.200".parse().unwrap(),
        prefix_len: 32,
    };
    interfaces[3].destinations = [host].into();
    let names = |text: &str| -> Vec<String> {
        let found = resolve(&[spec("auto")], &interfaces, &[remote(text)]);
        found.into_iter().map(|place| place.interface).collect()
    };
    assert_eq!(names("1.2.3.4:1"), ["eth0"]);
    assert_eq!(names("198.51.100.1:1"), ["eth0", "wlan0"]);
    assert_eq!(names("192.0.2.200:1"), ["eth0", "wlan1"]);
}

#[test]
fn a_named_interface_without_a_way_to_the_server_is_told() {
    let mut interfaces = machine();
    interfaces[2].destinations.clear();
    let lacking = |specs: &[&str], text: &str| {
        let specs: Vec<PathSpec> = specs.iter().map(|text| spec(text)).collect();
        let names = without_route(&specs, &interfaces, &[remote(text)]);
        names.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lacking(&["eth0", "wlan*"], "1.2.3.4:1"), ["wlan0"]);
    assert_eq!(lacking(&["198.51.100.9"], "1.2.3.4:1"), ["wlan0"]);
    assert!(lacking(&["eth0"], "1.2.3.4:1").is_empty());
    assert!(lacking(&["lo"], "127.0.0.1:1").is_empty());
}

#[test]
fn auto_takes_a_virtual_interface_that_has_the_default_route() {
    let mut interfaces = machine();
    interfaces[4].default_route = true;
    let found = resolve(&[spec("auto")], &interfaces, &[remote("198.51.100.1:443")]);
    assert!(found.iter().any(|place| place.interface == "docker0"));
}

#[test]
fn a_named_interface_is_taken_whatever_it_is() {
    assert_eq!(
        names(&["wg0", "docker0"], &["1.2.3.4:1"]),
        ["wg0 10.9.0.2", "docker0 172.17.0.1"]
    );
}

#[test]
fn a_pattern_takes_every_interface_that_matches() {
    assert_eq!(
        names(&["wlan*"], &["1.2.3.4:1"]),
        ["wlan0 198.51.100.9", "wlan1 203.0.113.9"]
    );
    assert_eq!(names(&["?th0"], &["1.2.3.4:1"]), ["eth0 192.0.2.7"]);
}

#[test]
fn the_local_address_has_the_family_and_reach_of_the_remote_one() {
    assert_eq!(
        names(&["eth0"], &["[2001:db8:1::1]:1"]),
        ["eth0 2001:db8::7"]
    );
    assert_eq!(names(&["eth0"], &["[fe80::9]:1"]), ["eth0 fe80::1"]);
    assert_eq!(
        names(&["wlan0"], &["[2001:db8:1::1]:1", "1.2.3.4:1"]),
        ["wlan0 198.51.100.9"]
    );
}

#[test]
fn every_loopback_address_can_be_named() {
    assert_eq!(
        names(&["127.0.0.2", "127.0.0.3"], &["127.0.0.1:1"]),
        ["lo 127.0.0.2", "lo 127.0.0.3"]
    );
}

#[test]
fn backups_come_last_and_an_earlier_specification_wins() {
    let specs = [spec("eth0,backup"), spec("auto,weight=3")];
    let found = resolve(&specs, &machine(), &[remote("1.2.3.4:1")]);
    let last = found.last().unwrap();
    assert_eq!(
        (last.interface.as_str(), last.options.status),
        ("eth0", PathStatus::Backup)
    );
    assert_eq!(
        found
            .iter()
            .filter(|place| place.interface == "eth0")
            .count(),
        1
    );
    assert!(found[..2].iter().all(|place| place.options.weight == 3));
}

#[test]
fn an_interface_can_carry_several_paths() {
    let found = resolve(&[spec("eth0,paths=3")], &machine(), &[remote("1.2.3.4:1")]);
    assert_eq!(
        found.iter().map(|place| place.number).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert!(!found[0].same_place(&found[1]));
}

#[test]
fn an_interface_that_is_left_out_is_not_selected_by_a_wider_specification() {
    let specs = [spec("eth0,never"), spec("auto")];
    let found = resolve(&specs, &machine(), &[remote("1.2.3.4:1")]);
    assert!(!found.is_empty() && found.iter().all(|place| place.interface != "eth0"));
    assert_eq!(specs[0].to_string(), "eth0,never");
    // It need not even be there.
    let absent = [spec("docker0,never"), spec("auto")];
    assert_eq!(check(&absent, &machine(), &[remote("1.2.3.4:1")]), Ok(()));
}

/// Where paths lead from interfaces with these addresses.
fn ends(local: &[&[&str]], remotes: &[&str]) -> Vec<String> {
    let numbered = local.iter().zip(1..);
    let interfaces: Vec<Interface> = numbered
        .map(|(addresses, index)| interface(index, &format!("eth{index}"), Kind::Uplink, addresses))
        .collect();
    let remotes: Vec<SocketAddr> = remotes.iter().map(|text| remote(text)).collect();
    let found = resolve(&[spec("auto")], &interfaces, &remotes);
    found.iter().map(|one| one.remote.to_string()).collect()
}

#[test]
fn each_path_leads_to_another_address_of_the_peer() {
    let three: [&[&str]; 3] = [&["10.1.0.1/24"], &["10.2.0.1/24"], &["10.3.0.1/24"]];
    let found = ends(&three, &["192.0.2.1:1", "198.51.100.1:1"]);
    assert_eq!(found, ["192.0.2.1:1", "198.51.100.1:1", "192.0.2.1:1"]);
    // The address family of the first remote address is used.
    let both: [&[&str]; 2] = [
        &["10.1.0.1/24", "2001:db8::1/64"],
        &["10.2.0.1/24", "2001:db8:1::1/64"],
    ];
    let found = ends(&both, &["192.0.2.1:1", "[2001:db8:9::1]:1"]);
    assert_eq!(found, ["192.0.2.1:1", "192.0.2.1:1"]);
}

#[test]
fn an_address_in_the_interfaces_own_subnet_is_preferred() {
    let two: [&[&str]; 2] = [&["fd00:1::1/64"], &["fd00:2::1/64"]];
    let found = ends(&two, &["[fd00:2::2]:1", "[fd00:1::2]:1"]);
    assert_eq!(found, ["[fd00:1::2]:1", "[fd00:2::2]:1"]);
}

#[test]
fn a_dead_interface_is_passed_over_for_now() {
    let mut interfaces = machine();
    interfaces[1].running = false;
    assert_eq!(
        resolve(&[spec("eth0")], &interfaces, &[remote("1.2.3.4:1")]),
        []
    );
    let error = check(&[spec("eth0")], &interfaces, &[remote("1.2.3.4:1")]).unwrap_err();
    assert!(error.to_string().contains("eth0 has no carrier"), "{error}");
}

#[test]
fn errors_say_what_is_wrong_and_what_was_probably_meant() {
    let message = |text: &str| text.parse::<PathSpec>().unwrap_err().to_string();
    assert!(message("").contains("expected `auto`"));
    assert!(message("eth0,backpu").contains("did you mean `backup`?"));
    assert!(message("eth0,weight=0").contains("a whole number from 1"));
    assert!(message("eth0,paths=99").contains("from 1 to 8"));
    for time in [
        "0s", "4.9s", "26s", "-5s", "20", "20 min", "s", "NaNs", "1e30s",
    ] {
        let message = message(&format!("eth0,keep-alive={time}"));
        assert!(message.contains("seconds from `5s` to `25s`"), "{message}");
    }
    assert!(message("a name too long for linux").contains("at most 15 characters"));
    let missing =
        |text: &str| check(&[spec(text)], &machine(), &[remote("1.2.3.4:1")]).unwrap_err();
    assert!(missing("eth1").to_string().contains("did you mean `eth0`?"));
    assert!(
        missing("zzzzzzzz")
            .to_string()
            .contains("there are lo, eth0")
    );
    assert!(
        missing("192.0.2.8")
            .to_string()
            .contains("there are 127.0.0.1")
    );
    assert!(matches!(
        missing("wlam*"),
        SpecError::NoInterface {
            nearest: Some(_),
            ..
        }
    ));
    let error = check(&[spec("wlan0")], &machine(), &[remote("[2001:db8::1]:1")]).unwrap_err();
    assert!(error.to_string().contains("no IPv6 address"), "{error}");
}

proptest! {
    #[test]
    fn what_is_printed_parses_to_the_same(
        name in "[a-z]{1,8}[0-9*?]{0,2}", backup: bool, weight in 1u32.., priority: i32, cost: u32,
        paths in 1u32..=8, rest_ms in 5000u32..=25_000,
    ) {
        let mut text = name.clone();
        if backup {
            text.push_str(",backup");
        }
        let rest = f64::from(rest_ms) / 1e3;
        let options = format!(
            ",weight={weight},priority={priority},cost={cost},paths={paths},keep-alive={rest}s"
        );
        text.push_str(&options);
        let parsed: PathSpec = text.parse().unwrap();
        prop_assert_eq!(parsed.to_string().parse::<PathSpec>().unwrap(), parsed.clone());
        if name != "auto" {
            prop_assert_ne!(parsed.selector, Selector::Auto);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,40}") {
        let _ = text.parse::<PathSpec>();
    }

    #[test]
    fn a_pattern_matches_like_the_naive_matcher(pattern in "[ab*?]{0,6}", name in "[ab]{0,8}") {
        fn naive(pattern: &[u8], name: &[u8]) -> bool {
            match (pattern.first(), name.first()) {
                (None, None) => true,
                (Some(b'*'), _) => {
                    naive(&pattern[1..], name) || (!name.is_empty() && naive(pattern, &name[1..]))
                }
                (Some(b'?'), Some(_)) => naive(&pattern[1..], &name[1..]),
                (Some(p), Some(n)) if p == n => naive(&pattern[1..], &name[1..]),
                _ => false,
            }
        }
        prop_assert_eq!(
            spec::glob_matches(&pattern, &name),
            naive(pattern.as_bytes(), name.as_bytes())
        );
    }
}

#[test]
fn a_subnet_covers_its_addresses() {
    let address = Address {
        ip: "10.1.2.3".parse().unwrap(),
        prefix_len: 22,
    };
    assert_eq!(address.network(), "10.1.0.0".parse::<IpAddr>().unwrap());
    assert!(address.covers("10.1.3.255".parse().unwrap()));
    assert!(!address.covers("10.1.4.0".parse().unwrap()));
    assert!(!address.covers("::1".parse().unwrap()));
    let any = Address {
        ip: "10.1.2.3".parse().unwrap(),
        prefix_len: 0,
    };
    assert!(any.covers("255.0.0.1".parse().unwrap()));
}

#[test]
fn the_difference_of_two_states_names_each_change_once() {
    let old = machine();
    let mut new = machine();
    let gone = new.remove(2);
    new[1].running = false;
    new.push(interface(9, "wwan0", Kind::Uplink, &["100.64.0.2/32"]));
    assert_eq!(
        diff(&old, &new),
        [
            Change::Removed {
                index: gone.index,
                name: gone.name
            },
            Change::Updated(new[1].clone()),
            Change::Added(new[5].clone()),
        ]
    );
    assert_eq!(diff(&new, &new), []);
}

#[test]
fn a_change_is_told_also_after_somebody_has_stopped_waiting_for_it() {
    in_namespace(|| async {
        let mut watch = Watch::start().await.unwrap();
        ip("link add v0 type veth peer name v1");
        // Gives up between the kernel's hint and the reading of the state.
        for _ in 0..5 {
            let early = tokio::time::timeout(Duration::from_millis(5), watch.next()).await;
            assert!(early.is_err(), "{early:?}");
        }
        let change = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        assert!(matches!(change, Ok(Ok(Change::Added(_)))), "{change:?}");
    });
}

#[test]
fn a_new_interface_its_address_its_route_and_its_end_are_followed() {
    in_namespace(|| async {
        let mut watch = Watch::start().await.unwrap();
        // Where the kernel modules are loaded, their tunnels (`tunl0`, `sit0`) exist too.
        let known = |name| watch.current().iter().any(|one| one.name == name);
        assert!(known("lo") && !known("v0") && !known("v1"));
        ip("link add v0 type veth peer name v1");
        ip("addr add 10.7.0.2/24 dev v0");
        ip("link set v0 up");
        ip("link set v1 up");
        ip("route add default via 10.7.0.1 dev v0");
        let settled = async {
            loop {
                watch.next().await.unwrap();
                let found = watch
                    .current()
                    .iter()
                    .find(|interface| interface.name == "v0");
                if let Some(v0) = found.filter(|v0| v0.default_route && v0.is_usable()) {
                    return v0.clone();
                }
            }
        };
        let v0 = tokio::time::timeout(Duration::from_secs(180), settled)
            .await
            .unwrap();
        assert_eq!(v0.kind, Kind::Virtual);
        assert!(v0.is_uplink());
        assert_eq!(v0.gateway(true), Some("10.7.0.1".parse().unwrap()));
        assert!(v0.addresses.contains(&Address {
            ip: "10.7.0.2".parse().unwrap(),
            prefix_len: 24
        }));
        ip("link del v0");
        let gone = async {
            loop {
                if let Change::Removed { name, .. } = watch.next().await.unwrap()
                    && name == "v0"
                {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(180), gone)
            .await
            .unwrap();
    });
}
