//! A plain proxy pair for the kernel's multipath TCP: a relay beside each agent, which speaks TCP
//! and knows nothing of it.
//!
//! ```text
//! client  TCP - near relay =(multipath TCP)= far relay - TCP  server
//! ```
//!
//! What the client's host sends to the server is redirected to the near relay. The agents have the
//! addresses that they have behind the tunnel, which no link leads to: what is not redirected gets
//! nowhere.

use super::network::{Net, Refusal};
use super::tunnel::{HOSTS, wait};
use super::{Broken, Conduct};
use crate::contender::{Process, scratch};
use crate::hosts::Relay;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where the relays listen, the near one first. No agent listens at such a low port.
const PORTS: [u16; 2] = [7300, 7301];

/// Both relays of a run; they end when dropped.
#[derive(Debug)]
pub(super) struct Relays {
    _near: Process,
    _far: Process,
    _folder: tempfile::TempDir,
}

/// Starts both relays; `agent` is the command line of an agent, and `congestion` the kernel's name
/// of a congestion control.
pub(super) fn prepare(
    net: &Net<'_>,
    agent: &[String],
    congestion: &str,
    conduct: &Conduct,
) -> Result<Relays, Broken> {
    let [client, server] = HOSTS;
    for (node, address) in net.nodes.iter().zip(HOSTS) {
        let command = format!("address add {address}/32 dev lo");
        node.ip(&[command]).map_err(Refusal::from)?;
    }
    let near = &net.nodes[0];
    // Without a route there is nothing to redirect.
    let route = format!("route add {server}/32 dev lo src {client}");
    near.ip(&[route]).map_err(Refusal::from)?;
    let rules = format!(
        "add table ip lab; add chain ip lab out {{ type nat hook output priority -100; }}; \
         add rule ip lab out ip daddr {server} meta l4proto tcp redirect to :{}",
        PORTS[0]
    );
    near.run("nft", &[&rules]).map_err(Refusal::from)?;

    let folder = scratch().map_err(|error| Refusal::Failed(error.to_string()))?;
    let start = |node: usize, whose: &str, relay: &Relay| {
        let [program, arguments @ ..] = agent else {
            return Err(Refusal::Failed("agents have no command line".to_owned()));
        };
        let mut command = net.nodes[node].command(program);
        command
            .args(arguments)
            .args(["--relay", &relay.to_string()]);
        let started = Process::spawn(command, program.clone(), folder.path(), whose);
        started.map_err(Refusal::Failed)
    };
    let anywhere = |port: usize| SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORTS[port]));
    let [own, first] = net.ends(net.scenario.transport.paths[0]);
    let told = |port: usize, far: Option<[SocketAddr; 2]>| Relay {
        listen: anywhere(port),
        congestion: congestion.to_owned(),
        far,
    };
    let at = |address: IpAddr, port: u16| SocketAddr::new(address, port);
    let is_ready = |relay: &Process| relay.said(Relay::READY);
    let mut far = start(1, "far", &told(1, None))?;
    wait(&mut far, "the far relay", is_ready, conduct)?;
    let ends = [at(own, 0), at(first, PORTS[1])];
    let mut near = start(0, "near", &told(0, Some(ends)))?;
    wait(&mut near, "the near relay", is_ready, conduct)?;
    Ok(Relays {
        _near: near,
        _far: far,
        _folder: folder,
    })
}
