//! Our table of nftables, as text: what is captured, what is left alone, what is rejected.

use super::doors::Ports;
use super::{CAPTURED, CARRIED, OURS, Source, Wanted};
use anabranch_net::interfaces::Interface;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

/// Its name. There is one on a machine.
pub(super) const NAME: &str = "anabranch";

/// The bit of a connection's mark that says that somebody outside has opened it. Other bits are
/// left to others.
const FROM_OUTSIDE: u32 = 0x1000_0000;

/// Never captured: this network, loopback, link-local, multicast, reserved and broadcast
/// addresses. The kernel's own list of local and broadcast addresses is asked beside it.
const NEVER_V4: [&str; 5] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
const NEVER_V6: [&str; 3] = ["::/127", "fe80::/10", "ff00::/8"];

/// Of which families packets of any protocol are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    /// Marks what is carried, which is then routed to the device.
    fn rules(self) -> Vec<String> {
        let families = [(self.v4, "ipv4"), (self.v6, "ipv6")];
        let carried = families.iter().filter(|(is_carried, _)| *is_carried);
        let mark = |(_, family): &(bool, &str)| {
            format!("meta nfproto {family} meta mark set {CARRIED:#x} accept")
        };
        carried.map(mark).collect()
    }

    fn is_any(self) -> bool {
        self.v4 || self.v6
    }
}

/// Which packets are carried that are neither TCP nor UDP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Others {
    /// By this device.
    pub(super) device: String,
    /// Of this machine.
    pub(super) host: Families,
    /// Of hosts behind interfaces.
    pub(super) lan: Families,
}

const REJECT: &str = "reject with icmpx type admin-prohibited";

/// The contents of the table, apart from the subnets that the machine is attached to.
#[derive(Debug)]
pub(super) struct Plan {
    lan: Vec<String>,
    host: bool,
    far_end: Vec<IpAddr>,
    ports: Ports,
    pub(super) others: Others,
}

impl Plan {
    pub(super) fn new(wanted: &Wanted, ports: Ports) -> Self {
        let name = |source: &Source| match source {
            Source::Lan(name) => Some(name.clone()),
            Source::Host => None,
        };
        Self {
            lan: wanted.sources.iter().filter_map(name).collect(),
            host: wanted.sources.contains(&Source::Host),
            far_end: wanted.far_end.clone(),
            ports,
            others: Others::default(),
        }
    }

    /// The interfaces behind which hosts are captured.
    pub(super) fn lan(&self) -> &[String] {
        &self.lan
    }

    /// Commands that replace the table, to be carried out at once or not at all.
    pub(super) fn text(&self, interfaces: &[Interface]) -> String {
        let direct = self.direct(interfaces);
        let of_family = |never: &[&str], v4: bool| {
            let own = direct.iter().filter(|(ip, _)| ip.is_ipv4() == v4);
            let own = own.map(|(ip, length)| format!("{ip}/{length}"));
            let all = never.iter().map(|&text| text.to_owned()).chain(own);
            all.collect::<Vec<_>>().join(", ")
        };
        let mut text = format!(
            "table inet {NAME}\n\
             delete table inet {NAME}\n\
             table inet {NAME} {{\n\
             {v4}{v6}",
            v4 = set("direct4", "ipv4_addr", &of_family(&NEVER_V4, true)),
            v6 = set("direct6", "ipv6_addr", &of_family(&NEVER_V6, false)),
        );
        text.push_str(&chain("direct", "", &direct_rules()));
        text.push_str(&chain("take", "", &self.take()));
        let hook = "type filter hook prerouting priority mangle; policy accept;";
        text.push_str(&chain("prerouting", hook, &self.prerouting()));
        if self.host {
            let hook = "type route hook output priority mangle; policy accept;";
            text.push_str(&chain("output", hook, &self.output()));
        }
        let stray = self.stray();
        if !stray.is_empty() {
            let hook = "type filter hook postrouting priority mangle; policy accept;";
            text.push_str(&chain("stray", hook, &stray));
        }
        if self.carries() {
            self.put_device(&mut text);
        }
        text.push_str("}\n");
        text
    }

    fn carries(&self) -> bool {
        self.others.host.is_any() || self.others.lan.is_any()
    }

    /// Packets that leave by the device get its address as their source; connections from outside
    /// are not let in by it.
    fn put_device(&self, text: &mut String) {
        let device = &self.others.device;
        let hook = "type nat hook postrouting priority srcnat; policy accept;";
        let leave = [format!("oifname \"{device}\" masquerade")];
        text.push_str(&chain("leave", hook, &leave));
        let uncalled = [format!(
            "iifname \"{device}\" ct state != {{ established, related }} drop"
        )];
        for (name, on) in [("arrive", "input"), ("pass", "forward")] {
            let hook = format!("type filter hook {on} priority filter; policy accept;");
            text.push_str(&chain(name, &hook, &uncalled));
        }
    }

    /// Drops marked packets that would leave by a link. No rule has led them back or to the device:
    /// somebody has removed ours, or the kernel took none for this family.
    fn stray(&self) -> Vec<String> {
        let mut rules = Vec::new();
        if self.host {
            rules.push(format!("meta mark {CAPTURED:#x} oifname != \"lo\" drop"));
        }
        if self.carries() {
            let device = &self.others.device;
            rules.push(format!(
                "meta mark {CARRIED:#x} oifname != \"{device}\" drop"
            ));
        }
        rules
    }

    /// Marks what this machine sends, so that it is routed anew: TCP and UDP come back by `lo`.
    fn output(&self) -> Vec<String> {
        let mut rules = vec![
            format!("meta mark {OURS:#x} accept"),
            "oifname \"lo\" accept".into(),
            // Leases are renewed with servers that may be elsewhere.
            "udp sport 68 udp dport 67 accept".into(),
            "udp sport 546 udp dport 547 accept".into(),
            "jump direct".into(),
            format!("meta l4proto {{ tcp, udp }} meta mark set {CAPTURED:#x} accept"),
        ];
        rules.extend(self.others.host.rules());
        rules.push(REJECT.into());
        rules
    }

    /// Destinations that are reached as without the tunnel.
    fn direct(&self, interfaces: &[Interface]) -> BTreeSet<(IpAddr, u8)> {
        // An uplink's DHCP server must not decide what bypasses the tunnel.
        let subnets = interfaces.iter().flat_map(|interface| {
            let own = self.lan.contains(&interface.name);
            let subnets = interface.addresses.iter();
            let subnets = subnets.map(|address| (address.network(), address.prefix_len));
            subnets.filter(move |(network, length)| own || is_private(*network, *length))
        });
        let far_end = self.far_end.iter();
        let far_end = far_end.map(|ip| (*ip, if ip.is_ipv4() { 32 } else { 128 }));
        // An interface with a subnet of length 0 is another tunnel.
        subnets
            .chain(far_end)
            .filter(|(_, length)| *length > 0)
            .collect()
    }

    /// TCP and UDP go to our sockets. If nobody listens there, they go on and are rejected, as is
    /// everything else that is not carried.
    fn take(&self) -> Vec<String> {
        let mut rules = Vec::new();
        let families = [
            ("ip", "127.0.0.1", self.ports.v4),
            ("ip6", "[::1]", self.ports.v6),
        ];
        for (family, to, ports) in families {
            let Some((tcp, udp)) = ports else { continue };
            let version = if family == "ip" { "ipv4" } else { "ipv6" };
            for (protocol, port) in [("tcp", tcp), ("udp", udp)] {
                rules.push(format!(
                    "meta nfproto {version} meta l4proto {protocol} tproxy {family} to \
                     {to}:{port} meta mark set {CAPTURED:#x} accept"
                ));
            }
        }
        if self.others.lan.is_any() {
            rules.push(format!("meta l4proto {{ tcp, udp }} {REJECT}"));
            rules.extend(self.others.lan.rules());
        }
        rules.push(REJECT.into());
        rules
    }

    fn prerouting(&self) -> Vec<String> {
        let names: Vec<String> = self.lan.iter().map(|name| format!("\"{name}\"")).collect();
        let names = names.join(", ");
        let from_lan = format!("iifname {{ {names} }}");
        let elsewhere = if names.is_empty() {
            "iifname != \"lo\"".to_owned()
        } else {
            format!("iifname != {{ \"lo\", {names} }}")
        };
        // Answers to who has called from outside go back the way the call came.
        let mut rules = vec![format!(
            "{elsewhere} tcp flags & (fin | syn | rst | ack) == syn ct state new \
             ct mark set ct mark or {FROM_OUTSIDE:#x}"
        )];
        if self.host {
            rules.push(format!("iifname \"lo\" meta mark {CAPTURED:#x} goto take"));
        }
        if !names.is_empty() {
            rules.push(format!("{from_lan} jump direct"));
            rules.push(format!("{from_lan} goto take"));
        }
        rules
    }
}

/// Whether nobody outside has addresses in this network: private, shared, link-local or unique
/// local (RFC 1918, 6598, 3927 and 4193).
fn is_private(network: IpAddr, length: u8) -> bool {
    const V4: [([u8; 4], u8); 5] = [
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
    ];
    match network {
        IpAddr::V4(network) => V4.iter().any(|(first, bits)| {
            let differs = network.to_bits() ^ u32::from_be_bytes(*first);
            length >= *bits && differs >> (32 - bits) == 0
        }),
        IpAddr::V6(network) => {
            length >= 7 && network.is_unique_local()
                || length >= 10 && network.is_unicast_link_local()
        }
    }
}

/// Accepts what is left alone.
fn direct_rules() -> Vec<String> {
    vec![
        "fib daddr type { local, broadcast, multicast, anycast } accept".into(),
        "ip daddr @direct4 accept".into(),
        "ip6 daddr @direct6 accept".into(),
        format!("ct direction reply ct mark and {FROM_OUTSIDE:#x} == {FROM_OUTSIDE:#x} accept"),
    ]
}

fn set(name: &str, kind: &str, elements: &str) -> String {
    format!(
        "set {name} {{ type {kind}; flags interval; auto-merge; elements = {{ {elements} }}; }}\n"
    )
}

fn chain(name: &str, hook: &str, rules: &[String]) -> String {
    let mut text = format!("chain {name} {{\n");
    if !hook.is_empty() {
        text.push_str(hook);
        text.push('\n');
    }
    for rule in rules {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rule}");
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_net::interfaces::{Address, Kind};

    fn plan(sources: &[Source]) -> Plan {
        let wanted = Wanted {
            sources: sources.to_vec(),
            far_end: vec!["198.51.100.9".parse().unwrap()],
            kill_switch: false,
        };
        let ports = Ports {
            v4: Some((1001, 1002)),
            v6: Some((1003, 1004)),
        };
        Plan::new(&wanted, ports)
    }

    fn interface(ip: &str, prefix_len: u8) -> Interface {
        Interface {
            index: 2,
            name: "br0".into(),
            kind: Kind::Virtual,
            up: true,
            running: true,
            mtu: 1500,
            addresses: vec![Address {
                ip: ip.parse().unwrap(),
                prefix_len,
            }],
            gateways: Vec::new(),
            default_route: false,
            destinations: BTreeSet::new(),
        }
    }

    #[test]
    fn attached_subnets_and_the_far_end_are_reached_directly() {
        let plan = plan(&[Source::Lan("br0".into())]);
        let text = plan.text(&[interface("192.168.7.1", 24), interface("fd00:7::1", 64)]);
        let line = |name: &str| {
            let mut lines = text.lines();
            lines
                .find(|line| line.starts_with(name))
                .unwrap()
                .to_owned()
        };
        let v4 = line("set direct4");
        assert!(v4.contains("192.168.7.0/24, 198.51.100.9/32 }"), "{v4}");
        assert!(v4.contains("{ 0.0.0.0/8, 127.0.0.0/8, "), "{v4}");
        assert!(line("set direct6").contains("fd00:7::/64"));
        let everything = plan.text(&[interface("10.0.0.1", 0)]);
        assert!(!everything.contains("/0"), "{everything}");
    }

    #[test]
    fn of_an_uplink_only_private_subnets_are_reached_directly() {
        let plan = plan(&[Source::Host]);
        for (ip, length, is_direct) in [
            ("192.168.7.1", 24, true),
            ("100.64.3.2", 30, true),
            ("192.168.7.1", 8, false),
            ("203.0.113.5", 24, false),
            ("203.0.113.5", 1, false),
            ("fd00:7::1", 64, true),
            ("2001:db8::1", 64, false),
        ] {
            let direct = plan.direct(&[interface(ip, length)]);
            assert_eq!(direct.len() == 2, is_direct, "{ip}/{length}: {direct:?}");
        }
    }

    #[test]
    fn what_is_marked_and_not_brought_back_leaves_by_no_link() {
        let text = plan(&[Source::Host]).text(&[]);
        assert!(text.contains("hook postrouting"), "{text}");
        assert!(text.contains("oifname != \"lo\" drop"), "{text}");
    }

    #[test]
    fn what_is_neither_tcp_nor_udp_is_rejected_and_so_is_all_of_a_family_without_sockets() {
        let mut plan = plan(&[Source::Lan("br0".into())]);
        let rules = plan.take();
        assert_eq!(rules.len(), 5);
        assert!(rules[4].starts_with("reject"), "{rules:?}");
        plan.ports.v6 = None;
        let rules = plan.take();
        assert!(rules.iter().all(|rule| !rule.contains("ip6")), "{rules:?}");
        assert_eq!(rules.len(), 3);
    }

    #[test]
    fn what_is_carried_of_other_protocols_is_marked_and_leaves_by_the_device_alone() {
        let lan = Source::Lan("br0".into());
        let mut plan = plan(&[lan, Source::Host]);
        let v4 = Families {
            v4: true,
            v6: false,
        };
        plan.others = Others {
            device: "tun7".into(),
            host: v4,
            lan: v4,
        };
        let marks = format!("meta nfproto ipv4 meta mark set {CARRIED:#x} accept");
        for rules in [plan.take(), plan.output()] {
            let at = rules.iter().position(|rule| *rule == marks).unwrap();
            assert_eq!(rules[at + 1..], [REJECT]);
            assert!(!rules.iter().any(|rule| rule.contains("ipv6 meta mark")));
        }
        let tcp = plan
            .take()
            .iter()
            .position(|rule| rule.starts_with("meta l4proto"));
        assert_eq!(tcp, Some(4), "before what takes any protocol");
        let text = plan.text(&[]);
        for rule in [
            "oifname \"tun7\" masquerade",
            "iifname \"tun7\" ct state != { established, related } drop",
            "meta mark 0xb000003 oifname != \"tun7\" drop",
        ] {
            assert!(text.contains(rule), "{text}");
        }
    }

    #[test]
    fn the_host_and_hosts_behind_interfaces_are_captured_each_where_it_is_asked_for() {
        let lan = Source::Lan("br0".into());
        let text = plan(std::slice::from_ref(&lan)).text(&[]);
        assert!(text.contains("iifname { \"br0\" } goto take"), "{text}");
        assert!(!text.contains("hook output"), "{text}");
        let text = plan(&[Source::Host]).text(&[]);
        assert!(text.contains("hook output"), "{text}");
        assert!(!text.contains("iifname { "), "{text}");
        let text = plan(&[lan, Source::Host]).text(&[]);
        assert!(text.contains("iifname != { \"lo\", \"br0\" }"), "{text}");
    }
}
