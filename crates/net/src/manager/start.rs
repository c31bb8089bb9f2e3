//! The start of connecting: which candidates are tried, in which order, and whether interfaces are
//! watched afterwards.
//!
//! `auto` means the interfaces that lead to the peer. In three cases they are not used, and there
//! is one path, routed by the kernel:
//!
//! - The peer is this machine. Packets a machine sends to itself pass no interface, and a socket
//!   bound to an interface does not receive them.
//! - The kernel sends to the peer through an interface that `auto` does not use, such as a tunnel.
//!   A user who requested nothing specific expects the system's routing.
//! - The interfaces cannot be listed.

use super::{PathsConfig, Target};
use crate::error::ConnectError;
use crate::interfaces::spec::{Candidate, PathSpec, Selector, SpecOptions, check, resolve};
use crate::interfaces::{Interface, Watch};
use crate::sockets::{routed_from, wildcard_for};
use anabranch_proto::wire::frame::PathStatus;
use std::net::{IpAddr, SocketAddr};

/// What connecting has to try.
pub(super) struct Start {
    /// The candidates, the best one first; at least one.
    pub(super) candidates: Vec<Candidate>,
    /// Reports changes, if paths follow the interfaces.
    pub(super) follow: Option<Watch>,
}

/// Decides how connecting to `target` starts.
///
/// # Errors
///
/// There is no path to try.
pub(super) async fn start(paths: &PathsConfig, target: &Target) -> Result<Start, ConnectError> {
    let remotes = &target.remotes;
    if paths.specs.is_empty() {
        return as_routed(target);
    }
    // Subscribe before anything is resolved, so that no change is missed.
    let follow = match Watch::start().await {
        Ok(follow) => follow,
        Err(error) if paths.or_as_routed => {
            tracing::info!("one path only: {error}");
            return as_routed(target);
        }
        Err(error) => return Err(error.into()),
    };
    let interfaces = follow.current();
    let mut candidates = first_candidates(&paths.specs, interfaces, remotes);
    let is_automatic = |spec: &PathSpec| spec.selector == Selector::Auto;
    if paths.specs.iter().all(is_automatic) {
        let routed = usual_ways(interfaces, remotes);
        let goes_elsewhere = candidates.is_empty() || !by_one_of(&candidates, &routed);
        if is_here(interfaces, remotes) || (paths.or_as_routed && goes_elsewhere) {
            return as_routed(target);
        }
        // Try the kernel's choice first: others may take long to fail.
        if let Some(best) = routed.first() {
            let is_backup = |one: &Candidate| one.options.status == PathStatus::Backup;
            candidates.sort_by_key(|one| (is_backup(one), one.index != *best));
        }
    }
    if candidates.is_empty() {
        let checked = check(&paths.specs, interfaces, remotes);
        let reason = checked.err().map(|error| error.to_string());
        let left_out = |spec: &PathSpec| spec.options.paths == Some(0);
        let reason = reason.unwrap_or_else(|| {
            if paths.specs.iter().all(left_out) {
                "every interface that is named is left out".to_owned()
            } else {
                format!("{} has no address", target.name)
            }
        });
        return Err(ConnectError::NoPath(reason));
    }
    Ok(Start {
        candidates,
        follow: Some(follow),
    })
}

/// One path, routed by the kernel.
fn as_routed(target: &Target) -> Result<Start, ConnectError> {
    let candidates: Vec<Candidate> = target.remotes.iter().map(|end| unbound(*end)).collect();
    if candidates.is_empty() {
        let reason = format!("{} has no address", target.name);
        return Err(ConnectError::NoPath(reason));
    }
    Ok(Start {
        candidates,
        follow: None,
    })
}

/// Whether all of the peer's addresses belong to this machine.
fn is_here(interfaces: &[Interface], remotes: &[SocketAddr]) -> bool {
    let own = |ip: IpAddr| {
        let mut addresses = interfaces.iter().flat_map(|one| &one.addresses);
        ip.is_loopback() || addresses.any(|address| address.ip == ip)
    };
    remotes.iter().all(|remote| own(remote.ip()))
}

/// The interfaces through which the kernel would send to the peer's addresses, by index.
fn usual_ways(interfaces: &[Interface], remotes: &[SocketAddr]) -> Vec<u32> {
    let way = |remote: &SocketAddr| {
        let from = routed_from(*remote, None, None)?;
        let owns = |one: &&Interface| one.addresses.iter().any(|address| address.ip == from);
        interfaces.iter().find(owns).map(|one| one.index)
    };
    remotes.iter().filter_map(way).collect()
}

/// Whether some candidate uses one of these interfaces; also true if the kernel knows no route at
/// all.
fn by_one_of(candidates: &[Candidate], interfaces: &[u32]) -> bool {
    let leaves_by = |one: &Candidate| interfaces.contains(&one.index);
    interfaces.is_empty() || candidates.iter().any(leaves_by)
}

/// The candidates of the race: each interface with the preferred address family first, then with
/// every other address of the peer, in case the first ones cannot be reached from there.
pub(super) fn first_candidates(
    specs: &[PathSpec],
    interfaces: &[Interface],
    remotes: &[SocketAddr],
) -> Vec<Candidate> {
    let mut candidates = resolve(specs, interfaces, remotes);
    for remote in remotes {
        for alternative in resolve(specs, interfaces, &[*remote]) {
            if !candidates
                .iter()
                .any(|candidate| candidate.same_place(&alternative))
            {
                candidates.push(alternative);
            }
        }
    }
    // A second path of an interface would fail along with the first.
    candidates.retain(|candidate| candidate.number == 0);
    candidates
}

fn unbound(remote: SocketAddr) -> Candidate {
    Candidate {
        index: 0,
        interface: String::new(),
        local: wildcard_for(remote),
        remote,
        number: 0,
        options: SpecOptions::default(),
        bind_device: false,
    }
}
