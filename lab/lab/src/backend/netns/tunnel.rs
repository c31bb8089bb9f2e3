//! The product's tunnel: a node beside each agent, which speaks TCP and knows nothing of it.
//!
//! ```text
//! client  TCP - near node =(all paths)= far node - TCP  server
//! ```
//!
//! The near node captures what the client's host sends (`--capture host`), as it does for whoever
//! runs it. The agents have addresses that no link leads to: what is not captured gets nowhere. The
//! tunnel is there before its first flow.

use super::network::{Net, Refusal};
use super::{Broken, Conduct};
use crate::backend::jobs;
use crate::contender::{Process, scratch};
use crate::hosts::{HostPath, Role};
use crate::scenario::{Kind, Scenario};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

/// The addresses of the client and the server, each on its own loopback interface.
pub(super) const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 2), Ipv4Addr::new(10, 79, 0, 1)];

/// What the nodes are called in errors.
const NEAR: &str = "the near node of the tunnel";
const FAR: &str = "the far node of the tunnel";

/// How long a node may take to say what is waited for.
const READY: Duration = Duration::from_secs(30);

/// How often it is asked.
const LOOK: Duration = Duration::from_millis(20);

/// The first thing in a scenario that a tunnel, or a proxy pair in its place, is not set up for
/// here; `None` if there is none.
pub(super) fn refusal(scenario: &Scenario) -> Option<String> {
    let what = match scenario.transport.kind {
        Kind::MptcpProxy => "a proxy pair",
        _ => "a tunnel",
    };
    let network = &scenario.network;
    let paths = &scenario.transport.paths;
    let later = |(order, path): &(usize, &usize)| {
        *order > 0 && network.paths[**path].opens > Duration::ZERO
    };
    if let Some((_, path)) = paths.iter().enumerate().find(later) {
        return Some(format!(
            "{what} uses its links from the start: path `{}` opens later",
            network.paths[*path].name
        ));
    }
    let link = |path: &usize| network.paths[*path].client_link;
    let before = |at: usize| paths[..at].iter().map(link);
    let shared = (1..paths.len()).find(|at| before(*at).any(|other| other == link(&paths[*at])));
    shared.map(|at| {
        format!(
            "{what} has one path for each link of the client: path `{}` shares that of another",
            network.paths[paths[at]].name
        )
    })
}

/// The tunnel, as the only path of a host.
pub(super) fn path(role: Role) -> HostPath {
    let [client, server] = HOSTS.map(IpAddr::V4);
    let ends = match role {
        Role::Client => [client, server],
        Role::Server => [server, client],
    };
    jobs::sole_path("tunnel", ends)
}

/// Both nodes of a run; they end when dropped.
#[derive(Debug)]
pub(super) struct Nodes {
    _near: Process,
    _far: Process,
    _folder: tempfile::TempDir,
}

/// Starts both nodes and waits until all paths are in use.
pub(super) fn prepare(
    net: &Net<'_>,
    program: Option<&str>,
    conduct: &Conduct,
) -> Result<Nodes, Broken> {
    let Some(program) = program else {
        let what = "a tunnel is started by the command: `anabranch lab run`";
        return Err(Refusal::Unsupported(what.to_owned()).into());
    };
    for (node, address) in net.nodes.iter().zip(HOSTS) {
        let command = format!("address add {address}/32 dev lo");
        node.ip(&[command]).map_err(Refusal::from)?;
    }
    let folder = scratch().map_err(|error| Refusal::Failed(error.to_string()))?;
    let start = |role: Role, words: &dyn Fn(&Path) -> Vec<String>| {
        let (at, whose) = match role {
            Role::Client => (0, "near"),
            Role::Server => (1, "far"),
        };
        let state = folder.path().join(format!("state-{whose}"));
        let mut command = net.nodes[at].command(program);
        command.arg("tunnel").args(words(&state));
        // Where a node is asked what it does; two on one machine would share it.
        command.env("XDG_RUNTIME_DIR", &state);
        let started = Process::spawn(command, program.to_owned(), folder.path(), whose);
        started.map_err(Refusal::Failed)
    };
    let mut far = start(Role::Server, &|state| far_words(net, state))?;
    wait(&mut far, FAR, |far| far.output().contains('\n'), conduct)?;
    let url = far.output().lines().next().unwrap_or_default().to_owned();
    let mut near = start(Role::Client, &|state| near_words(net, &url, state))?;
    let ends = net.scenario.transport.paths.iter();
    let ends = ends.map(|path| (interface(net, *path), net.ends(*path)[0]));
    let ups: Vec<String> = ends
        .map(|(name, own)| format!("{name} ({own}): up"))
        .collect();
    let is_up = |near: &Process| near.said("connected to") && ups.iter().all(|up| near.said(up));
    wait(&mut near, NEAR, is_up, conduct)?;
    Ok(Nodes {
        _near: near,
        _far: far,
        _folder: folder,
    })
}

/// The interface of the client that a path leaves by.
fn interface<'a>(net: &'a Net<'_>, path: usize) -> &'a str {
    let link = net.scenario.network.paths[path].client_link;
    net.layout.interface(link)
}

fn far_words(net: &Net<'_>, state: &Path) -> Vec<String> {
    let first = net.ends(net.scenario.transport.paths[0])[1];
    let listen = [
        "serve",
        "--listen",
        &first.to_string(),
        "--allow",
        &HOSTS[1].to_string(),
    ]
    .map(str::to_owned);
    [listen.to_vec(), common_words(net.scenario, state)].concat()
}

fn near_words(net: &Net<'_>, url: &str, state: &Path) -> Vec<String> {
    let mut words = ["join", "-v", url, "--capture", "host"]
        .map(str::to_owned)
        .to_vec();
    for path in &net.scenario.transport.paths {
        let planned = &net.scenario.network.paths[*path];
        let mut options = vec![interface(net, *path).to_owned()];
        if planned.usage.backup {
            options.push("backup".to_owned());
        }
        let said = planned.usage.unusual();
        options.extend(said.map(|(name, value)| format!("{name}={value}")));
        words.extend(["--path".to_owned(), options.join(",")]);
    }
    words.extend(common_words(net.scenario, state));
    words
}

/// What both nodes are told.
fn common_words(scenario: &Scenario, state: &Path) -> Vec<String> {
    let transport = &scenario.transport;
    let mut words = vec!["--state".to_owned(), state.display().to_string()];
    for (option, spec) in [
        ("--scheduler", &transport.scheduler),
        ("--congestion", &transport.congestion),
    ] {
        if let Some(spec) = spec {
            words.extend([option.to_owned(), spec.to_string()]);
        }
    }
    words
}

/// Waits until a node, which is `called` this in errors, has said something.
pub(super) fn wait(
    node: &mut Process,
    called: &str,
    has_said: impl Fn(&Process) -> bool,
    conduct: &Conduct,
) -> Result<(), Broken> {
    loop {
        if has_said(node) {
            return Ok(());
        }
        if conduct.is_aborted() {
            return Err(Broken::Off);
        }
        let ended = node.ended().map_err(Refusal::Failed)?;
        let what = match ended {
            Some(status) => format!("ended: {status}"),
            None if node.began().elapsed() > READY => "does not become ready".to_owned(),
            None => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        let words = node.last_words();
        let what = format!("{called} {what}{words}");
        return Err(Refusal::Failed(what).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Document;

    fn what_is_refused(second: &str) -> Option<String> {
        let text = format!(
            "format = 1\nname = \"t\"\nstop = \"9s\"\nsingles = false\n\
             [[path]]\nname = \"a\"\nforward = {{ rate = \"1Mbit/s\" }}\n\
             [[path]]\nname = \"b\"\nforward = {{ rate = \"1Mbit/s\" }}\n{second}\n\
             [transport]\nkind = \"tunnel\"\n[[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n"
        );
        let document = Document::parse("t.toml", &text).unwrap();
        let plan = Plan::make(&document, &Changes::default()).unwrap();
        refusal(&plan.runs[0].scenario)
    }

    #[test]
    fn a_path_that_opens_later_is_refused_and_a_backup_is_not() {
        assert_eq!(what_is_refused(""), None);
        assert_eq!(what_is_refused("backup = true"), None);
        let refused = what_is_refused("opens = \"2s\"").unwrap();
        assert!(refused.contains("path `b`"), "{refused}");
    }
}
