//! The exit's table of nftables, as text: clients leave in this machine's name, nobody calls them,
//! and none reaches another.

use super::DEVICE;
use super::pool::Pools;
use std::fmt::Write as _;

/// Its name: not that of a capture, which may be on the same machine.
pub(super) const TABLE: &str = "anabranch-exit";

/// Commands that replace the table, to be carried out at once or not at all.
pub(super) fn text(pools: &Pools) -> String {
    let of_family = |prefix: &anabranch_masque::ip::Prefix| match prefix.address() {
        std::net::IpAddr::V4(_) => format!("ip saddr {prefix}"),
        std::net::IpAddr::V6(_) => format!("ip6 saddr {prefix}"),
    };
    let pools: Vec<String> = pools.prefixes().map(|prefix| of_family(&prefix)).collect();
    let mut text = format!(
        "table inet {TABLE}\n\
         delete table inet {TABLE}\n\
         table inet {TABLE} {{\n\
         chain forward {{\n\
         type filter hook forward priority filter; policy accept;\n\
         iifname \"{DEVICE}\" oifname \"{DEVICE}\" drop\n"
    );
    // Writing to a string cannot fail.
    for pool in &pools {
        let _ = writeln!(text, "iifname != \"{DEVICE}\" {pool} drop");
    }
    for way in ["iifname", "oifname"] {
        let _ = writeln!(
            text,
            "{way} \"{DEVICE}\" tcp flags syn tcp option maxseg size set rt mtu"
        );
    }
    // What this machine would take for itself although it is none of its addresses: a broadcast
    // address of its subnets, the anycast address of routers.
    let _ = write!(
        text,
        "oifname \"{DEVICE}\" ct state {{ established, related }} accept\n\
         oifname \"{DEVICE}\" drop\n\
         }}\n\
         chain input {{\n\
         type filter hook input priority filter; policy accept;\n\
         iifname \"{DEVICE}\" fib daddr type != local drop\n\
         }}\n\
         chain postrouting {{\n\
         type nat hook postrouting priority srcnat; policy accept;\n"
    );
    for pool in &pools {
        let _ = writeln!(text, "{pool} oifname != \"{DEVICE}\" masquerade");
    }
    text.push_str("}\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_is_masqueraded_and_clients_do_not_reach_each_other() {
        let prefixes = ["10.90.0.0/16", "fd90::/64"].map(|text| text.parse().unwrap());
        let text = text(&Pools::new(&prefixes).unwrap().unwrap());
        for line in [
            "table inet anabranch-exit {",
            "iifname \"anabranch-exit\" oifname \"anabranch-exit\" drop",
            "iifname != \"anabranch-exit\" ip saddr 10.90.0.0/16 drop",
            "ip6 saddr fd90::/64 oifname != \"anabranch-exit\" masquerade",
            "oifname \"anabranch-exit\" drop",
            "iifname \"anabranch-exit\" fib daddr type != local drop",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
