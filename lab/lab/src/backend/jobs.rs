//! The jobs given to agents, whatever the network.

use super::drawn;
use super::netns::tools::kernel_name;
use super::refusal::Refusal;
use crate::hosts::{Carrier, HostPath, Job, JobFlow, Role};
use crate::plan::Run;
use crate::scenario::{Kind, Scenario, Usage};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The congestion control of hosts that know nothing of the tunnel below them: Linux's default.
const HOSTS_CONGESTION: &str = "cubic";

/// The job of one end, with its paths in the order of the transport's.
pub(super) fn job(
    run: &Run,
    role: Role,
    paths: Vec<HostPath>,
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
        paths,
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
    let congestion = || kernel_name(scenario).map_err(Refusal::Unsupported);
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
            scheduler: transport.scheduler.clone(),
            congestion: transport.congestion.clone(),
            settings: Box::new(*settings),
        },
        // What the scenario chooses is for what is between the nodes: hosts have the usual.
        Kind::Tunnel | Kind::MptcpProxy => Carrier::Tcp {
            congestion: HOSTS_CONGESTION.to_owned(),
            buffers: None,
        },
        Kind::Mlppp | Kind::Command => {
            let what = "agents do not carry this kind of contender";
            return Err(Refusal::Unsupported(what.to_owned()));
        }
    })
}

/// One end of a path: where it leaves a host, and where it leads.
#[derive(Debug)]
pub(super) struct End {
    /// The interface it is bound to, if any.
    pub(super) interface: Option<String>,
    /// The host's own address.
    pub(super) local: IpAddr,
    /// The other host's address.
    pub(super) remote: IpAddr,
}

/// A path of the scenario as one end sees it. The first path in use is open from the start.
pub(super) fn path(scenario: &Scenario, index: usize, end: End) -> HostPath {
    let path = &scenario.network.paths[index];
    let first = scenario.transport.paths.first() == Some(&index);
    HostPath {
        name: path.name.clone(),
        interface: end.interface,
        local: end.local,
        remote: end.remote,
        opens: if first { Duration::ZERO } else { path.opens },
        usage: path.usage,
    }
}

/// The only path of a host, which knows nothing of those below it.
pub(super) fn sole_path(name: &str, [local, remote]: [IpAddr; 2]) -> HostPath {
    HostPath {
        name: name.to_owned(),
        interface: None,
        local,
        remote,
        opens: Duration::ZERO,
        usage: Usage::default(),
    }
}
