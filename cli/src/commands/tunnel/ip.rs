//! `--ip` of `anabranch tunnel serve`, and `--tun` of `anabranch tunnel join`.

use super::guard_command;
use super::keeping::{self, Keeping};
use crate::args::tunnel::{Join, Serve};
use crate::failure::{Failure, Outcome};
use anabranch_gateway::entry::ip::{DEVICE, Tun, TunError};
use anabranch_gateway::exit::ip::{self, IpError, Network, Pools, Undo};
use std::sync::Arc;

/// Makes the network of the clients, if the command line wants one.
pub(super) async fn start(args: &Serve, keeping: &Keeping) -> Outcome<Option<(Network, Undo)>> {
    let pools = Pools::new(&args.ip).map_err(Failure::usage)?;
    let Some(pools) = pools else { return Ok(None) };
    let guard = guard_command(&["--exit"], keeping::is_there().then_some(ip::DEVICE));
    let started = Network::start(pools, guard, keeping).await;
    started.map(Some).map_err(|error| failure(&error))
}

/// What clients can do, for a person.
pub(super) fn words(args: &Serve) -> String {
    let pools: Vec<String> = args.ip.iter().map(ToString::to_string).collect();
    format!(
        "carries packets of any protocol, from {}",
        pools.join(" and ")
    )
}

/// Waits until the network has to end because nobody would undo it.
pub(super) async fn unguarded(undo: Option<&mut Undo>) -> Failure {
    match undo {
        Some(undo) => undo.unguarded().await,
        None => std::future::pending().await,
    }
    Failure::failed("the process that undoes --ip, `anabranch tunnel guard`, was ended")
        .hint("without it a crash would leave firewall rules behind: serve again")
}

/// Undoes it, or `leaves` it to the next process.
pub(super) async fn stop(undo: Undo, leaves: bool) {
    if leaves {
        return undo.leave();
    }
    if let Err(error) = undo.undo().await {
        let failure = failure(&error).hint_if_none("nft delete table inet anabranch-exit");
        failure.tell_of("--ip may not be undone");
    }
}

/// Why clients can send no packets, and what can be done.
fn failure(error: &IpError) -> Failure {
    match error {
        IpError::Rights => Failure::usage(error).hint("sudo anabranch tunnel serve --ip ..."),
        IpError::NoNft => Failure::usage(error)
            .hint("install the package nftables: apt install nftables, apk add nftables"),
        IpError::NotForwarding("IPv4") => {
            Failure::usage(error).hint("sudo sysctl -w net.ipv4.ip_forward=1")
        }
        IpError::NotForwarding(_) => Failure::usage(error).hint(
            "sudo sysctl -w net.ipv6.conf.all.forwarding=1; where this machine learns its own \
             route from a router, net.ipv6.conf.IFACE.accept_ra=2 before",
        ),
        IpError::Taken(..) => Failure::usage(error).hint("choose another pool"),
        IpError::Busy => Failure::usage(error).hint("one far end carries for all clients"),
        IpError::Device(_) => {
            Failure::failed(error).hint("the kernel needs /dev/net/tun, and nobody else the name")
        }
        IpError::Table(_) => Failure::failed(error)
            .hint("the kernel needs nf_tables with nat, masq and ct: see docs/tunnel.md"),
        _ => Failure::failed(error),
    }
}

/// Whether a near end needs a device.
pub(super) fn is_wanted(args: &Join) -> bool {
    args.tun.is_some() || !args.capture.is_empty()
}

/// What that is called.
pub(super) fn name(args: &Join) -> &str {
    args.tun.as_deref().unwrap_or(DEVICE)
}

/// The device of a near end that needs one.
pub(super) async fn device(args: &Join, keeping: &Arc<Keeping>) -> Outcome<Option<Tun>> {
    if !is_wanted(args) {
        return Ok(None);
    }
    let keeper = Arc::clone(keeping);
    let made = Tun::new(name(args), args.tun.is_some(), keeper).await;
    made.map(Some).map_err(|error| match error {
        TunError::Rights => Failure::usage(error).hint("sudo anabranch tunnel join URL --tun"),
        TunError::Name(_) => Failure::usage(error),
        TunError::Device(..) => {
            Failure::failed(error).hint("the kernel needs /dev/net/tun, and nobody else the name")
        }
    })
}
