//! Where connecting begins: which places are tried, in which order, and whether interfaces are
//! followed afterwards.
//!
//! `auto` means the interfaces that lead to the peer. Three things are not theirs to decide:
//!
//! - The peer is this machine. What it sends to itself passes no interface, and a socket that is
//!   bound to one hears nothing of it.
//! - The kernel sends to the peer by an interface that `auto` leaves alone, such as a tunnel. A
//!   user who asked for nothing wants what the routing says.
//! - Interfaces cannot be listed.
//!
//! The one path is then left to the kernel's routing.

use super::{PathsConfig, Target};
use crate::error::ConnectError;
use crate::interfaces::spec::{Candidate, PathSpec, Selector, SpecOptions, check, resolve};
use crate::interfaces::{Interface, Watch};
use crate::sockets::wildcard_for;
use anabranch_proto::wire::frame::PathStatus;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// What connecting tries.
pub(super) struct Start {
    /// The places, the best one first; at least one.
    pub(super) candidates: Vec<Candidate>,
    /// Tells of changes, if paths follow the interfaces.
    pub(super) follow: Option<Watch>,
}

/// Decides where connecting to `target` begins.
///
/// # Errors
///
/// There is no path to try.
pub(super) async fn start(paths: &PathsConfig, target: &Target) -> Result<Start, ConnectError> {
    let remotes = &target.remotes;
    if paths.specs.is_empty() {
        return as_routed(target);
    }
    // Subscribed before anything is resolved, so that no change is missed.
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
        // The best way is tried first: another one may be slow to fail.
        if let Some(best) = routed.first() {
            let is_backup = |one: &Candidate| one.options.status == PathStatus::Backup;
            candidates.sort_by_key(|one| (is_backup(one), one.index != *best));
        }
    }
    if candidates.is_empty() {
        let checked = check(&paths.specs, interfaces, remotes);
        let reason = checked.err().map(|error| error.to_string());
        let reason = reason.unwrap_or_else(|| format!("{} has no address", target.name));
        return Err(ConnectError::NoPath(reason));
    }
    Ok(Start {
        candidates,
        follow: Some(follow),
    })
}

/// One path, by the kernel's routing.
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

/// Whether all of the peer's addresses are this machine's.
fn is_here(interfaces: &[Interface], remotes: &[SocketAddr]) -> bool {
    let own = |ip: IpAddr| {
        let mut addresses = interfaces.iter().flat_map(|one| &one.addresses);
        ip.is_loopback() || addresses.any(|address| address.ip == ip)
    };
    remotes.iter().all(|remote| own(remote.ip()))
}

/// The interfaces by which the kernel would send to the peer's addresses, by index.
fn usual_ways(interfaces: &[Interface], remotes: &[SocketAddr]) -> Vec<u32> {
    let way = |remote: &SocketAddr| {
        let from = routed_from(*remote)?;
        let owns = |one: &&Interface| one.addresses.iter().any(|address| address.ip == from);
        interfaces.iter().find(owns).map(|one| one.index)
    };
    remotes.iter().filter_map(way).collect()
}

/// The address from which the kernel would send to `remote`, if it has a route.
fn routed_from(remote: SocketAddr) -> Option<IpAddr> {
    // Nothing is sent: connecting a datagram socket looks the route up.
    let socket = UdpSocket::bind((wildcard_for(remote), 0)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Whether some candidate leaves by one of these interfaces; yes if the kernel knows no way at all.
fn by_one_of(candidates: &[Candidate], interfaces: &[u32]) -> bool {
    let leaves_by = |one: &Candidate| interfaces.contains(&one.index);
    interfaces.is_empty() || candidates.iter().any(leaves_by)
}

/// What the race tries: each interface by the preferred address family, then by every other address
/// of the peer, in case that the first ones are not reached from there.
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
    // The second path of an interface dies with the first.
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
