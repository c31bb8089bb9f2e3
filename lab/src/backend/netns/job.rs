//! What the agents at both ends are asked to do.

use super::network::{Net, Refusal};
use super::{bond, tools};
use crate::backend::drawn;
use crate::hosts::{Carrier, HostPath, Job, JobFlow, Role};
use crate::plan::Run;
use crate::scenario::Kind;
use std::path::Path;
use std::time::Duration;

/// The most subflows the kernel lets a connection have beyond its first.
const MOST_SUBFLOWS: usize = 8;

/// The job of one end.
pub(super) fn job(
    net: &Net<'_>,
    run: &Run,
    role: Role,
    qlog: Option<&Path>,
) -> Result<Job, Refusal> {
    let scenario = &*run.scenario;
    let flows = scenario
        .flows
        .iter()
        .enumerate()
        .map(|(index, flow)| JobFlow {
            kind: flow.kind,
            way: flow.way,
            start: drawn::flow_start(scenario, index, run.seed),
            warm_up: flow.warm_up,
        });
    let qlog = match (scenario.record.qlog, qlog) {
        (false, _) => None,
        (true, Some(folder)) => Some(folder.join(&run.id)),
        (true, None) => {
            let what = "qlog without a folder for results";
            return Err(Refusal::Unsupported(what.to_owned()));
        }
    };
    Ok(Job {
        run_id: run.id.clone(),
        role,
        carrier: carrier(run)?,
        paths: paths(net, role),
        flows: flows.collect(),
        stop: scenario.stop,
        bin: scenario.record.series,
        decisions: scenario.record.decisions,
        qlog,
        seed: run.seed,
    })
}

fn carrier(run: &Run) -> Result<Carrier, Refusal> {
    let scenario = &*run.scenario;
    let transport = &scenario.transport;
    let settings = &transport.settings;
    let buffers = match (settings.receive_buffer, settings.send_buffer) {
        (None, None) => None,
        (receive, send) => {
            let one = receive.or(send).unwrap_or_default();
            Some((receive.unwrap_or(one), send.unwrap_or(one)))
        }
    };
    let congestion = || tools::kernel_name(scenario).map_err(Refusal::Unsupported);
    Ok(match transport.kind {
        Kind::Tcp | Kind::Bonding => Carrier::Tcp {
            congestion: congestion()?,
            buffers,
        },
        Kind::KernelMptcp => Carrier::Mptcp {
            congestion: congestion()?,
            buffers,
        },
        Kind::Anabranch => Carrier::Anabranch {
            profile: transport.profile,
            scheduler: transport.scheduler.as_ref().map(ToString::to_string),
            congestion: transport.congestion.as_ref().map(ToString::to_string),
            settings: Box::new(*settings),
        },
        Kind::Mlppp | Kind::Command => {
            let what = "agents do not carry this kind of contender";
            return Err(Refusal::Unsupported(what.to_owned()));
        }
    })
}

/// The paths as one end sees them.
fn paths(net: &Net<'_>, role: Role) -> Vec<HostPath> {
    let transport = &net.scenario.transport;
    if transport.kind == Kind::Bonding {
        return vec![bond::path(role)];
    }
    let first = transport.paths[0];
    let path = |index: &usize| {
        let path = &net.scenario.network.paths[*index];
        let [client, server] = net.ends(*index);
        let (local, remote) = match role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        };
        // Rules send answers of a server by the right link; kernel TCP goes by its source address,
        // since a subflow must not inherit the interface of another one.
        let bound = role == Role::Client && transport.kind == Kind::Anabranch;
        HostPath {
            name: path.name.clone(),
            interface: bound.then(|| net.layout.interface(path.client_link).to_owned()),
            local,
            remote,
            opens: if *index == first {
                Duration::ZERO
            } else {
                path.opens
            },
            backup: path.backup,
            weight: path.weight,
            priority: path.priority,
            cost: path.cost,
        }
    };
    transport.paths.iter().map(path).collect()
}

/// Tells the path managers of both hosts which subflows there are to be: one for each path.
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
        if net.scenario.network.paths[*path].backup {
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
