//! The kernel's bonding device, over tunnels to another host's bond.

use std::net::IpAddr;
use std::path::Path;

use crate::{Address, Error, Node};

/// Bytes that a tunnel adds to an IP packet: Ethernet, GRE, IPv4.
pub const TUNNEL_BYTES: u32 = 14 + 4 + 20;

/// A bonding device at one host and its counterpart at another.
///
/// Its links are Ethernet tunnels (GRE), because bonds bind Ethernet interfaces, while the path
/// between two hosts may be routed. It sends one packet over each in turn (balance-rr), whatever
/// their quality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// The device's name, at most 12 bytes; the names of its tunnels append a number.
    pub interface: String,
    /// Its address.
    pub address: Address,
    /// Its own hardware address, and that of the other host's bond.
    pub hardware: [[u8; 6]; 2],
    /// The address of the other host's bond.
    pub peer: IpAddr,
    /// Both ends of each tunnel, the own one first. No two tunnels may have the same ends.
    pub tunnels: Vec<(IpAddr, IpAddr)>,
    /// The largest IP packet: at most the MTU of the tunnels' links less [`TUNNEL_BYTES`].
    pub mtu: u32,
}

impl Node {
    /// Creates a bonding device, which is removed with the host.
    ///
    /// # Errors
    /// [`Error::Failed`] where the kernel has no bonding driver or no GRE, or refuses.
    pub fn bond(&self, bond: &Bond) -> Result<(), Error> {
        if Path::new("/proc/sys/net/ipv6").exists() {
            // Suppresses what the kernel sends by itself at unpredictable times.
            self.set_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
        }
        self.ip(&commands(bond)).map(drop)
    }
}

/// The commands for `ip`.
fn commands(bond: &Bond) -> Vec<String> {
    let Bond {
        interface,
        address,
        mtu,
        peer,
        ..
    } = bond;
    let [own, other] = bond
        .hardware
        .map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":"));
    // A batch of segments would be sent over one link as a whole.
    let single = format!("gso_max_segs 1 mtu {mtu}");
    let mut commands = vec![format!(
        "link add name {interface} address {own} type bond mode balance-rr packets_per_slave 1"
    )];
    for (index, (near, far)) in bond.tunnels.iter().enumerate() {
        let tunnel = format!("{interface}{index}");
        commands.extend([
            format!("link add name {tunnel} type gretap local {near} remote {far} ttl 64"),
            format!("link set dev {tunnel} {single}"),
            format!("link set dev {tunnel} master {interface}"),
        ]);
    }
    commands.extend([
        format!("link set dev {interface} {single}"),
        format!("address add {address} dev {interface}"),
        format!("link set dev {interface} up"),
        // A permanent entry, since a lost ARP request would cost a second.
        format!("neighbour replace {peer} lladdr {other} dev {interface} nud permanent"),
    ]);
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_bond_has_a_tunnel_for_each_pair_and_no_batches() {
        let bond = Bond {
            interface: "bond".to_owned(),
            address: "10.78.0.1/24".parse().expect("an address"),
            hardware: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 0xab]],
            peer: ip("10.78.0.2"),
            tunnels: vec![
                (ip("10.77.0.1"), ip("10.77.0.2")),
                (ip("10.77.1.1"), ip("10.77.1.2")),
            ],
            mtu: 1440,
        };
        let text = commands(&bond).join("\n");
        for line in [
            "link add name bond address 02:00:00:00:00:01 type bond mode balance-rr",
            "link add name bond1 type gretap local 10.77.1.1 remote 10.77.1.2 ttl 64",
            "link set dev bond0 gso_max_segs 1 mtu 1440\nlink set dev bond0 master bond",
            "neighbour replace 10.78.0.2 lladdr 02:00:00:00:00:ab dev bond nud permanent",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
