//! Runs over existing links: checks the options against this machine and calls the peer.

use super::target::Target;
use crate::args::lab::{Backend, LinkLayer, Run};
use crate::args::road::{Peer, RoadSpec};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::units;
use crate::trust::own_identity;
use anabranch_agent::{Local, Remote};
use anabranch_lab::backend::host::{Reach, Road};
use anabranch_lab::hosts::{Host, HostError};
use anabranch_lab::machine::Machine;
use anabranch_lab::scenario::nearest;
use anabranch_net::identity::Identity;
use anabranch_net::interfaces::{self, Interface};
use anabranch_proto::tls::Fingerprint;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::spawn_blocking;

/// What messages call the other end of a run.
const SERVER: &str = "server";

/// Everything that is known before the first run.
#[derive(Debug)]
pub(super) struct Real {
    /// Where the paths lead.
    pub(super) roads: Vec<Road>,
    peer: Arc<Called>,
    machine: Machine,
}

/// A peer that has answered a call.
#[derive(Debug)]
struct Called {
    address: SocketAddr,
    key: Fingerprint,
    identity: Identity,
    /// The first call, until a run takes it.
    first: Mutex<Option<Remote>>,
}

/// A peer as the backend reaches it.
#[derive(Debug)]
struct Reached(Arc<Called>);

impl Called {
    fn call(&self) -> Result<Remote, HostError> {
        Remote::connect(SERVER, self.address, self.key, &self.identity)
    }
}

impl Reach for Reached {
    fn near(&self) -> Result<Box<dyn Host>, HostError> {
        // The running program, even if its file has been replaced.
        let program = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        let mut command = Command::new(program);
        // A process group of its own: Ctrl-C is for the lab, which lets a run end first.
        command.args(["lab", "agent"]).process_group(0);
        Ok(Box::new(Local::start("client", command)?))
    }

    fn far(&self) -> Result<Box<dyn Host>, HostError> {
        let mut first = self.0.first.lock().unwrap_or_else(PoisonError::into_inner);
        let remote = match first.take() {
            Some(remote) => remote,
            None => self.0.call()?,
        };
        Ok(Box::new(remote))
    }
}

impl Real {
    /// How to reach both hosts.
    pub(super) fn reach(&self) -> Box<dyn Reach> {
        Box::new(Reached(Arc::clone(&self.peer)))
    }

    /// The peer and the paths, for readers of the results.
    pub(super) fn facts(&self) -> serde_json::Value {
        let roads = self.roads.iter().map(|road| {
            serde_json::json!({
                "path": road.path,
                "interface": road.interface,
                "local": road.local,
                "remote": road.remote,
            })
        });
        serde_json::json!({
            "address": self.peer.address,
            "key": self.peer.key.to_string(),
            "machine": self.machine,
            "paths": roads.collect::<Vec<_>>(),
        })
    }
}

/// Refuses options that only suit another backend.
pub(super) fn check_options(args: &Run, is_host: bool) -> Outcome {
    let wrong = if is_host && args.pcap {
        Some((
            "--pcap",
            "captures emulated links",
            "tcpdump captures an interface",
        ))
    } else if is_host && args.links != LinkLayer::Auto {
        let hint = "leave it out: the links are there";
        Some(("--links", "says how links are emulated", hint))
    } else if !is_host {
        let options = [
            ("--peer", args.peer.is_some()),
            ("--path", !args.roads.is_empty()),
            ("--identity", args.identity.is_some()),
        ];
        let given = options.iter().find(|(_, given)| *given);
        given.map(|(option, _)| (*option, "is for links that exist", "add --backend host"))
    } else {
        None
    };
    let simulated = [
        ("--pcap", args.pcap, "captures links of real kernels"),
        (
            "--links",
            args.links != LinkLayer::Auto,
            "says how links are emulated",
        ),
    ];
    let simulated = simulated
        .iter()
        .find(|(_, given, _)| *given && args.backend == Backend::Sim)
        .map(|(option, _, what)| (*option, *what, "leave it out, or --backend sim"));
    let wrong = wrong.or(simulated);
    match wrong {
        None => Ok(()),
        Some((option, what, hint)) => Err(Failure::usage(format!("{option} {what}")).hint(hint)),
    }
}

/// Finds out where the paths lead, and calls the peer.
pub(super) async fn prepare(args: &Run, targets: &[Target], quiet: bool) -> Outcome<Real> {
    let Some(peer) = &args.peer else {
        let failure = Failure::usage("--backend host needs the other machine: no --peer was given");
        return Err(failure.hint(
            "`anabranch lab agent --listen :4433 --trust KEY` there prints what --peer takes",
        ));
    };
    let address = address_of(peer).await?;
    let interfaces = interfaces::list().await.map_err(Failure::failed)?;
    let wanted = wanted(targets);
    let roads = roads(&args.roads, &wanted, &interfaces, address.ip())?;
    let identity = own_identity(args.identity.as_deref())?;
    let own_key = identity.fingerprint();
    let called = Called {
        address,
        key: peer.key,
        identity,
        first: Mutex::default(),
    };
    let calling = spawn_blocking(move || {
        let mut remote = called.call()?;
        let machine = remote.machine()?;
        *called.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(remote);
        Ok::<_, HostError>((called, machine))
    });
    let done = calling
        .await
        .map_err(|error| Failure::failed(format!("the call of the peer broke off: {error}")))?;
    let (called, machine) = done.map_err(|error| unreachable(&error, own_key))?;
    same_version(&machine)?;
    if !quiet {
        announce(&roads, &called, &machine);
    }
    Ok(Real {
        roads,
        peer: Arc::new(called),
        machine,
    })
}

async fn address_of(peer: &Peer) -> Outcome<SocketAddr> {
    let name = &peer.host.name;
    let found = tokio::net::lookup_host((name.as_str(), peer.host.port)).await;
    let first = found.map(|mut all| all.next());
    match first {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::usage(format!("--peer: `{name}` has no address"))),
        Err(error) => Err(Failure::usage(format!("--peer: `{name}`: {error}"))),
    }
}

/// A path for which the user has to say where it leads.
#[derive(Debug)]
struct Wanted {
    path: String,
    /// The scenarios that have it, in order.
    scenarios: Vec<String>,
}

/// The paths of all scenarios, in order.
fn wanted(targets: &[Target]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for run in targets.iter().flat_map(|target| &target.plan.runs) {
        let scenario = &run.scenario.name;
        for path in &run.scenario.network.paths {
            match wanted.iter_mut().find(|known| known.path == path.name) {
                Some(known) if known.scenarios.contains(scenario) => {}
                Some(known) => known.scenarios.push(scenario.clone()),
                None => wanted.push(Wanted {
                    path: path.name.clone(),
                    scenarios: vec![scenario.clone()],
                }),
            }
        }
    }
    wanted
}

/// Whether two paths occur in the same scenario.
fn meet(wanted: &[Wanted], one: &str, other: &str) -> bool {
    let of = |path: &str| wanted.iter().find(|known| known.path == path);
    match (of(one), of(other)) {
        (Some(one), Some(other)) => one
            .scenarios
            .iter()
            .any(|name| other.scenarios.contains(name)),
        _ => false,
    }
}

fn roads(
    specs: &[RoadSpec],
    wanted: &[Wanted],
    interfaces: &[Interface],
    peer: IpAddr,
) -> Outcome<Vec<Road>> {
    let mut roads: Vec<Road> = Vec::new();
    for spec in specs {
        let name = &spec.path;
        let names = || wanted.iter().map(|known| known.path.as_str());
        if !names().any(|known| known == name) {
            let failure = Failure::usage(format!("--path: no scenario has a path `{name}`"));
            return Err(match nearest(name, names()) {
                Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                None => failure.hint(format!("expected one of {}", join(names()))),
            });
        }
        if roads.iter().any(|road| road.path == *name) {
            return Err(Failure::usage(format!("--path: `{name}` is given twice")));
        }
        let road = road(spec, interfaces, peer)?;
        // Two paths that no run uses together may share a link.
        let same = roads
            .iter()
            .filter(|other| meet(wanted, &other.path, name))
            .find(|other| (other.local, other.remote) == (road.local, road.remote));
        if let Some(same) = same {
            let (local, remote) = (road.local, road.remote);
            let failure = Failure::usage(format!(
                "--path: `{}` and `{name}` both lead from {local} to {remote}",
                same.path
            ));
            return Err(failure.hint("two paths differ in an address at one end at least"));
        }
        roads.push(road);
    }
    let lost = wanted
        .iter()
        .find(|known| !roads.iter().any(|road| road.path == known.path));
    if let Some(Wanted { path, scenarios }) = lost {
        let scenario = scenarios.first().map_or("", String::as_str);
        let failure = Failure::usage(format!(
            "nobody said where path `{path}` of scenario `{scenario}` leads"
        ));
        let usable = interfaces.iter().filter(|one| one.is_usable());
        let usable = join(usable.map(|one| one.name.as_str()));
        return Err(failure.hint(format!("add --path {path}=IFACE; there are: {usable}")));
    }
    Ok(roads)
}

fn road(spec: &RoadSpec, interfaces: &[Interface], peer: IpAddr) -> Outcome<Road> {
    let (path, name) = (&spec.path, &spec.interface);
    let Some(interface) = interfaces.iter().find(|one| one.name == *name) else {
        let failure = Failure::usage(format!("--path {path}: there is no interface `{name}`"));
        let names = || interfaces.iter().map(|one| one.name.as_str());
        return Err(match nearest(name, names()) {
            Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
            None => failure.hint(format!("there are: {}", join(names()))),
        });
    };
    if !interface.up || !interface.running {
        let what = format!("--path {path}: interface `{name}` is down or has no carrier");
        return Err(Failure::usage(what).hint(format!("ip link show dev {name}")));
    }
    let remote = spec.remote.unwrap_or(peer);
    let own = interface.addresses.iter().map(|address| address.ip);
    let shown = || match interface.addresses.as_slice() {
        [] => "it has no address".to_owned(),
        all => format!("it has {}", join(all.iter().map(|one| one.ip.to_string()))),
    };
    let local = match spec.local {
        Some(local) if own.clone().any(|ip| ip == local) => local,
        Some(local) => {
            let what = format!("--path {path}: {local} is no address of interface `{name}`");
            return Err(Failure::usage(what).hint(shown()));
        }
        None => interface.address_towards(remote).ok_or_else(|| {
            let what = format!(
                "--path {path}: interface `{name}` has no address from which {remote} could be \
                 reached"
            );
            Failure::usage(what).hint(shown())
        })?,
    };
    if local.is_ipv4() != remote.is_ipv4() {
        let what = format!("--path {path}: from {local} to {remote}");
        return Err(Failure::usage(what).hint("both have to be IPv4, or both IPv6"));
    }
    Ok(Road {
        path: path.clone(),
        interface: name.clone(),
        local,
        remote,
    })
}

fn join(names: impl Iterator<Item = impl Into<String>>) -> String {
    let names: Vec<String> = names.map(Into::into).collect();
    names.join(", ")
}

/// Why the peer cannot be reached, with a hint.
fn unreachable(error: &HostError, own_key: Fingerprint) -> Failure {
    let hint = match error {
        // The peer answered, and hung up when it saw who was calling.
        HostError::Ended { .. } => format!(
            "the agent has to trust this machine's key: anabranch lab agent --listen :4433 --trust \
             {own_key}"
        ),
        _ => "is the agent running there, may UDP pass, and is the key of --peer the one that it \
              printed?"
            .to_owned(),
    };
    Failure::usage(error).hint(hint)
}

/// Refuses a peer of another version: their figures would not be one measurement.
fn same_version(peer: &Machine) -> Outcome {
    let own = env!("CARGO_PKG_VERSION");
    if peer.version == own {
        return Ok(());
    }
    let theirs = &peer.version;
    let failure = Failure::usage(format!(
        "the peer runs anabranch {theirs}, this machine {own}"
    ));
    Err(failure.hint("install the same version on both"))
}

fn announce(roads: &[Road], called: &Called, machine: &Machine) {
    let (kernel, cores) = (&machine.kernel, units::counted(machine.cores, "core"));
    output::say(format!("peer {}: Linux {kernel}, {cores}", called.address));
    if machine.binary_hash != anabranch_lab::campaign::binary_hash() {
        output::say("warning: the peer runs another build of this version");
    }
    for road in roads {
        output::say(format!(
            "path {}: {} ({}) to {}",
            road.path, road.interface, road.local, road.remote
        ));
    }
    output::say("links are as they are: what the scenario says of them is not applied");
}

#[cfg(test)]
mod tests;
