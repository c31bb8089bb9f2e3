//! Planning, applying and reverting routes.

use super::*;
use crate::interfaces;
use crate::namespace::{in_namespace, ip, wait_for, wait_until_up};

fn uplink(index: u32, name: &str, address: &str, gateway: Option<&str>) -> Interface {
    let (ip, prefix_len) = address.split_once('/').unwrap();
    Interface {
        index,
        name: name.into(),
        kind: Kind::Uplink,
        up: true,
        running: true,
        mtu: 1500,
        addresses: vec![Address {
            ip: ip.parse().unwrap(),
            prefix_len: prefix_len.parse().unwrap(),
        }],
        gateways: gateway
            .into_iter()
            .map(|text| text.parse().unwrap())
            .collect(),
        default_route: gateway.is_some(),
        destinations: BTreeSet::new(),
    }
}

#[test]
fn the_plan_reads_like_the_commands_that_would_do_it() {
    let interfaces = [
        uplink(2, "eth0", "192.0.2.7/24", Some("192.0.2.1")),
        uplink(3, "wwan0", "2001:db8::7/64", Some("fe80::1")),
    ];
    let (wanted, skipped) = Routing::wanted(&interfaces);
    assert_eq!(skipped, []);
    let plan = Routing::default().plan_to(&wanted, &interfaces);
    assert_eq!(
        plan.to_string(),
        "ip route replace 192.0.2.0/24 dev eth0 src 192.0.2.7 scope link table 717002 proto 171\n\
         ip -6 route replace 2001:db8::/64 dev wwan0 src 2001:db8::7 table 717003 proto 171\n\
         ip route replace default via 192.0.2.1 dev eth0 src 192.0.2.7 table 717002 proto 171\n\
         ip -6 route replace default via fe80::1 dev wwan0 src 2001:db8::7 table 717003 proto 171\n\
         ip rule add from 192.0.2.7 lookup 717002 priority 7170 protocol 171\n\
         ip -6 rule add from 2001:db8::7 lookup 717003 priority 7170 protocol 171\n"
    );
    assert!(wanted.plan_to(&wanted, &interfaces).is_empty());
}

#[test]
fn a_change_of_gateway_replaces_only_the_default_route() {
    let before = [uplink(2, "eth0", "192.0.2.7/24", Some("192.0.2.1"))];
    let after = [uplink(2, "eth0", "192.0.2.7/24", Some("192.0.2.254"))];
    let plan = Routing::wanted(&before)
        .0
        .plan_to(&Routing::wanted(&after).0, &after);
    assert_eq!(plan.steps.len(), 2, "{plan}");
    assert!(matches!(&plan.steps[0], Step::DeleteRoute(route) if route.destination.1 == 0));
    assert!(matches!(&plan.steps[1], Step::AddRoute(route) if route.destination.1 == 0));
}

#[test]
fn interfaces_that_lead_nowhere_are_named() {
    let mut down = uplink(2, "eth0", "192.0.2.7/24", Some("192.0.2.1"));
    down.running = false;
    let lonely = uplink(3, "eth1", "10.0.0.2/24", None);
    let (wanted, skipped) = Routing::wanted(&[down, lonely]);
    assert_eq!(
        skipped,
        [
            Skipped::Unusable("eth0".into()),
            Skipped::NoGateway("eth1".into())
        ]
    );
    assert_eq!(
        (wanted.routes.len(), wanted.rules.len()),
        (1, 1),
        "the subnet alone"
    );
}

/// Two links with carriers and addresses.
fn two_links() {
    for (name, peer, subnet) in [("v0", "p0", 1), ("v1", "p1", 2)] {
        ip(&format!("link add {name} type veth peer name {peer}"));
        for end in [name, peer] {
            ip(&format!("link set {end} addrgenmode none"));
        }
        ip(&format!("addr add 10.7.{subnet}.2/24 dev {name}"));
        ip(&format!("addr add fd07:{subnet}::2/64 dev {name} nodad"));
        for end in [name, peer] {
            ip(&format!("link set {end} up"));
        }
    }
    for end in ["v0", "p0", "v1", "p1"] {
        wait_until_up(end);
    }
    // The kernel starts to use an address some time after the carrier appears.
    for address in ["fd07:1::2", "fd07:2::2"] {
        wait_for(address, || {
            ip("-6 route show table local").contains(&format!("local {address} "))
        });
    }
    ip("route add default via 10.7.1.1 dev v0 metric 100");
    ip("route add default via 10.7.2.1 dev v1 metric 200");
    ip("-6 route add default via fd07:2::1 dev v1");
}

/// All routes of the namespace, one per line: the kernel's own, which may still grow while links
/// settle, and those added by someone else.
fn all_routes() -> (Vec<String>, Vec<String>) {
    let shown = ip("route show table all") + &ip("-6 route show table all");
    let lines = shown.lines().map(str::to_owned);
    lines.partition(|line| line.contains(" proto kernel "))
}

#[test]
fn packets_from_an_address_leave_by_its_interface_once_applied_and_not_after_reverting() {
    in_namespace(|| async {
        two_links();
        let rules_before = ip("rule show") + &ip("-6 rule show");
        let (kernels_before, made_before) = all_routes();
        let from_v1 = "route get 203.0.113.1 from 10.7.2.2";
        assert!(
            ip(from_v1).contains("dev v0"),
            "the better default route wins: {}",
            ip(from_v1)
        );

        let list = interfaces::list().await.unwrap();
        let uplinks: Vec<Interface> = list
            .iter()
            .filter(|interface| interface.name.starts_with('v'))
            .cloned()
            .collect();
        let (wanted, skipped) = Routing::wanted(&uplinks);
        assert_eq!(skipped, []);
        let plan = state().await.unwrap().plan_to(&wanted, &list);
        apply(&plan).await.unwrap();
        assert!(
            ip(from_v1).contains("via 10.7.2.1 dev v1"),
            "{}",
            ip(from_v1)
        );
        assert!(ip("route get 203.0.113.1 from 10.7.1.2").contains("via 10.7.1.1 dev v0"));
        assert!(ip("-6 route get 2001:db8::1 from fd07:2::2").contains("via fd07:2::1 dev v1"));

        assert_eq!(state().await.unwrap(), wanted);
        assert!(
            state().await.unwrap().plan_to(&wanted, &list).is_empty(),
            "idempotent"
        );
        apply(&plan).await.expect("applying again does no harm");

        // A rule and a route of another program that look much like ours.
        ip("rule add from 10.7.1.2 lookup 717999 priority 7170");
        ip("route add 10.99.0.0/16 dev v0 table 717999");
        revert().await.unwrap();
        assert_eq!(state().await.unwrap(), Routing::default());
        assert!(
            ip("rule show").contains("717999"),
            "what others added stays"
        );
        assert!(ip("route show table 717999").contains("10.99.0.0/16"));
        ip("rule del from 10.7.1.2 lookup 717999 priority 7170");
        ip("route del 10.99.0.0/16 dev v0 table 717999");
        assert_eq!(ip("rule show") + &ip("-6 rule show"), rules_before);
        let (kernels, made) = all_routes();
        assert_eq!(made, made_before);
        let lost = kernels_before.iter().find(|line| !kernels.contains(line));
        assert_eq!(lost, None, "the kernel's own stay");
        assert!(revert().await.unwrap().is_empty());
    });
}

#[test]
fn a_step_the_kernel_refuses_is_named() {
    in_namespace(|| async {
        let interfaces = [uplink(999, "gone0", "192.0.2.7/24", Some("192.0.2.1"))];
        let (wanted, _) = Routing::wanted(&interfaces);
        let plan = Routing::default().plan_to(&wanted, &interfaces);
        let error = apply(&plan).await.unwrap_err().to_string();
        assert!(
            error.contains("ip route replace 192.0.2.0/24 dev gone0"),
            "{error}"
        );
    });
}
