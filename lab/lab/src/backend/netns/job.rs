//! The jobs for the agents at both ends, with the addresses and interfaces of the network that was
//! built.

use super::network::{Net, Refusal};
use super::{bond, tunnel};
use crate::backend::jobs::{self, End};
use crate::hosts::{HostPath, Job, Role};
use crate::plan::Run;
use crate::scenario::Kind;
use std::path::Path;

/// The most subflows that the kernel allows a connection, not counting the first.
const MOST_SUBFLOWS: usize = 8;

/// The job of one end.
pub(super) fn job(
    net: &Net<'_>,
    run: &Run,
    role: Role,
    qlog: Option<&Path>,
) -> Result<Job, Refusal> {
    jobs::job(run, role, paths(net, role), qlog)
}

/// The paths as one end sees them.
fn paths(net: &Net<'_>, role: Role) -> Vec<HostPath> {
    let transport = &net.scenario.transport;
    match transport.kind {
        Kind::Bonding => return vec![bond::path(role)],
        Kind::Tunnel | Kind::MptcpProxy => return vec![tunnel::path(role)],
        _ => {}
    }
    let path = |index: &usize| {
        let path = &net.scenario.network.paths[*index];
        let [client, server] = net.ends(*index);
        let (local, remote) = match role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        };
        // A server's answers are routed to the right link by rules. Kernel TCP is routed by its
        // source address, since a subflow must not inherit another one's interface.
        let bound = role == Role::Client && transport.kind == Kind::Anabranch;
        let ends = End {
            interface: bound.then(|| net.layout.interface(path.client_link).to_owned()),
            local,
            remote,
        };
        jobs::path(net.scenario, *index, ends)
    };
    transport.paths.iter().map(path).collect()
}

/// Configures the path managers of both hosts so that there is one subflow for each path.
pub(super) fn prepare_mptcp(net: &Net<'_>) -> Result<(), Refusal> {
    let used = &net.scenario.transport.paths;
    let pairs: Vec<[std::net::IpAddr; 2]> = used.iter().map(|path| net.ends(*path)).collect();
    let further = used.len() - 1;
    if further > MOST_SUBFLOWS {
        let what = format!("kernel MPTCP with more than {} paths", MOST_SUBFLOWS + 1);
        return Err(Refusal::Unsupported(what));
    }
    let distinct = |end: usize| {
        let mut seen = Vec::new();
        for pair in &pairs {
            if !seen.contains(&pair[end]) {
                seen.push(pair[end]);
            }
        }
        seen.len()
    };
    let backup = |path: &usize| {
        if net.scenario.network.paths[*path].usage.backup {
            " backup"
        } else {
            ""
        }
    };
    let (mut client, mut server) = (Vec::new(), Vec::new());
    let mut accepted = 0;
    if distinct(0) == used.len() {
        for (path, pair) in used.iter().zip(&pairs).skip(1) {
            let link = net.scenario.network.paths[*path].client_link;
            let device = net.layout.interface(link);
            client.push(format!(
                "mptcp endpoint add {} dev {device} subflow{}",
                pair[0],
                backup(path)
            ));
        }
    } else if distinct(1) == used.len() {
        accepted = further;
        for pair in pairs.iter().skip(1) {
            server.push(format!("mptcp endpoint add {} signal", pair[1]));
        }
    } else {
        let what = "kernel MPTCP where paths share addresses at both ends: it cannot be told \
                    which pairs are meant";
        return Err(Refusal::Unsupported(what.to_owned()));
    }
    let limits = |accepted: usize| {
        format!("mptcp limits set subflows {further} add_addr_accepted {accepted}")
    };
    client.insert(0, limits(accepted));
    server.insert(0, limits(0));
    net.nodes[0].ip(&client)?;
    net.nodes[1].ip(&server)?;
    Ok(())
}
