//! The interfaces at the ends of a link, for either layer: addresses, neighbours, and going down
//! and up.

use crate::Address;
use crate::device::hardware_address;

use super::{End, Error, LinkPlan};

/// The longest interface name that Linux accepts.
const NAME_BYTES: usize = 15;
/// The smallest MTU that IPv6 accepts (RFC 8200, section 5).
const MTU_MIN_IPV6: u32 = 1280;
/// The smallest MTU that IPv4 accepts (RFC 791, section 3.2).
const MTU_MIN_IPV4: u32 = 68;
/// The largest MTU that a TAP device accepts: 64 KiB, less room for the Ethernet header.
const MTU_MAX: u32 = 65_521;

/// Checks everything that can be checked before anything is built.
pub(crate) fn check(links: &[LinkPlan]) -> Result<(), Error> {
    let mut interfaces = Vec::new();
    let mut addresses = Vec::new();
    for link in links {
        for (end, other) in [(0, 1), (1, 0)].map(|(a, b)| (&link.ends[a], &link.ends[b])) {
            let wrong = |reason| Error::Plan {
                link: link.name.clone(),
                reason,
            };
            check_end(end, other).map_err(wrong)?;
            let interface = (end.node.namespace(), end.interface.as_str());
            if interfaces.contains(&interface) {
                let (node, name) = (end.node.name(), &end.interface);
                return Err(wrong(format!(
                    "`{node}` has two interfaces called `{name}`"
                )));
            }
            interfaces.push(interface);
            for address in &end.addresses {
                if addresses.contains(&address.ip()) {
                    return Err(wrong(format!(
                        "{} is the address of another end as well; each needs its own",
                        address.ip()
                    )));
                }
                addresses.push(address.ip());
            }
        }
    }
    Ok(())
}

fn check_end(end: &End, other: &End) -> Result<(), String> {
    let name = &end.interface;
    let fits = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b'%' && b != b':';
    if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(fits) {
        return Err(format!(
            "`{name}` cannot name an interface: expected 1 to {NAME_BYTES} letters, digits \
             or dashes"
        ));
    }
    let least = if has_ipv6(end) {
        MTU_MIN_IPV6
    } else {
        MTU_MIN_IPV4
    };
    if !(least..=MTU_MAX).contains(&end.mtu) {
        return Err(format!(
            "an MTU of {} bytes at `{name}`: expected {least} to {MTU_MAX}",
            end.mtu
        ));
    }
    if end.mtu != other.mtu {
        return Err(format!(
            "MTUs of {} and {} bytes at its ends: expected the same",
            end.mtu, other.mtu
        ));
    }
    Ok(())
}

fn has_ipv6(end: &End) -> bool {
    end.addresses.iter().any(|address| address.ip().is_ipv6())
}

/// Configures an existing interface that is down, and takes it up.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn set_up(link: usize, plan: &LinkPlan, end: usize) -> Result<(), Error> {
    let here = &plan.ends[end];
    let name = &here.interface;
    // Suppresses what the kernel sends by itself at unpredictable times, which would disturb a loss
    // process that counts packets.
    let ipv6 = format!("ipv6/conf/{name}");
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        if has_ipv6(here) {
            for (key, value) in [
                ("accept_ra", "0"),
                ("router_solicitations", "0"),
                ("addr_gen_mode", "1"),
                // Keeps addresses, and the routes of their networks, when the interface goes down.
                ("keep_addr_on_down", "1"),
            ] {
                here.node.set_sysctl(&format!("{ipv6}/{key}"), value)?;
            }
        } else {
            here.node.set_sysctl(&format!("{ipv6}/disable_ipv6"), "1")?;
        }
    }
    let mut commands = vec![format!(
        "link set dev {name} address {} mtu {}",
        hardware_address(link, end),
        here.mtu
    )];
    commands.extend(here.addresses.iter().map(|own| add_address(*own, name)));
    commands.push(format!("link set dev {name} up"));
    commands.extend(neighbours(link, plan, end));
    here.node.ip(&commands)?;
    Ok(())
}

fn add_address(address: Address, interface: &str) -> String {
    // Without duplicate address detection, during which the address could not be used for its first
    // second.
    let nodad = if address.ip().is_ipv6() { " nodad" } else { "" };
    format!("address replace {address} dev {interface}{nodad}")
}

/// Permanent neighbour entries. Without them, the kernel's own probes would fail after some seconds
/// of a silent link and cause errors.
fn neighbours(link: usize, plan: &LinkPlan, end: usize) -> Vec<String> {
    let (here, there) = (&plan.ends[end], &plan.ends[1 - end]);
    let other_mac = hardware_address(link, 1 - end);
    let reachable = there.addresses.iter().filter(|address| {
        // The kernel refuses a neighbour of an address family that the interface does not have.
        address.ip().is_ipv4() || has_ipv6(here)
    });
    reachable
        .map(|address| {
            format!(
                "neighbour replace {} lladdr {other_mac} dev {} nud permanent",
                address.ip(),
                here.interface
            )
        })
        .collect()
}

/// Commands that restore the routes that an interface loses when it goes down.
#[derive(Debug, Default)]
pub(crate) struct SavedRoutes {
    ends: [Vec<String>; 2],
}

/// Takes both interfaces of a link down or brings them up again, with the routes in `saved`;
/// returns false if they are so already.
pub(crate) fn set_admin(
    link: usize,
    plan: &LinkPlan,
    up: bool,
    saved: &mut Option<SavedRoutes>,
) -> Result<bool, Error> {
    match (up, &*saved) {
        (false, None) => *saved = Some(take_down(plan)?),
        (true, Some(routes)) => {
            bring_up(link, plan, routes)?;
            *saved = None;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Takes both interfaces down.
fn take_down(plan: &LinkPlan) -> Result<SavedRoutes, Error> {
    let mut saved = SavedRoutes::default();
    for (end, routes) in plan.ends.iter().zip(&mut saved.ends) {
        for family in ["-4", "-6"] {
            let arguments = [
                family,
                "route",
                "show",
                "table",
                "all",
                "dev",
                &end.interface,
            ];
            // A kernel without an address family has no routes of it.
            let shown = end.node.run("ip", &arguments).unwrap_or_default();
            let lost = shown.lines().filter_map(|line| {
                let route = to_restore(line, family == "-6")?;
                Some(format!("route replace {route} dev {}", end.interface))
            });
            routes.extend(lost);
        }
    }
    for end in &plan.ends {
        let down = format!("link set dev {} down", end.interface);
        end.node.ip(&[down])?;
    }
    Ok(saved)
}

/// Turns a line of `ip route show` into arguments of `ip route replace`; `None` if the kernel
/// restores that route by itself.
fn to_restore(line: &str, is_ipv6: bool) -> Option<String> {
    let line = line.trim();
    let own = |kind| line.starts_with(kind);
    if line.is_empty()
        || line.contains("proto kernel")
        || ["local ", "broadcast ", "multicast ", "anycast "]
            .into_iter()
            .any(own)
    {
        return None;
    }
    // States are shown but not accepted, and `default` does not name the address family.
    let everywhere = if is_ipv6 { "::/0" } else { "0.0.0.0/0" };
    let words = line.split_whitespace().filter_map(|word| match word {
        "linkdown" | "dead" => None,
        "default" => Some(everywhere),
        word => Some(word),
    });
    Some(words.collect::<Vec<_>>().join(" "))
}

/// Takes both interfaces up and restores what they had lost.
fn bring_up(link: usize, plan: &LinkPlan, saved: &SavedRoutes) -> Result<(), Error> {
    for (index, end) in plan.ends.iter().enumerate() {
        let mut commands = vec![format!("link set dev {} up", end.interface)];
        let addresses = end.addresses.iter().filter(|own| own.ip().is_ipv6());
        commands.extend(addresses.map(|own| add_address(*own, &end.interface)));
        commands.extend(neighbours(link, plan, index));
        end.node.ip(&commands)?;
    }
    // After both are up, since a route is refused while its interface has no carrier.
    for (end, routes) in plan.ends.iter().zip(&saved.ends) {
        if !routes.is_empty() {
            end.node.ip(routes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_put_back_but_not_those_the_kernel_makes() {
        let shown = "default via 10.0.0.2 table 100 metric 5 linkdown ";
        let route = "0.0.0.0/0 via 10.0.0.2 table 100 metric 5";
        assert_eq!(to_restore(shown, false).as_deref(), Some(route));
        for own in [
            "",
            "10.0.0.0/24 proto kernel scope link src 10.0.0.1",
            "local 10.0.0.1 table local proto kernel scope host src 10.0.0.1",
            "multicast ff00::/8 table local metric 256 pref medium",
        ] {
            assert_eq!(to_restore(own, false), None, "{own}");
        }
    }
}
