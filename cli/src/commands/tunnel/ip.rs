//! `--ip` of `anabranch tunnel serve`, and `--tun` of `anabranch tunnel join`.

use super::guard_command;
use crate::args::tunnel::{Join, Serve};
use crate::failure::{Failure, Outcome};
use anabranch_gateway::entry::ip::{DEVICE, Tun, TunError};
use anabranch_gateway::exit::ip::{IpError, Network, Pools, Undo};

/// Makes the network of the clients, if the command line wants one.
pub(super) async fn start(args: &Serve) -> Outcome<Option<(Network, Undo)>> {
    let pools = Pools::new(&args.ip).map_err(Failure::usage)?;
    let Some(pools) = pools else { return Ok(None) };
    let started = Network::start(pools, guard_command(&["--exit"])).await;
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

/// Undoes it.
pub(super) async fn stop(undo: Undo) {
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

/// The device of a near end that needs one.
pub(super) fn device(args: &Join) -> Outcome<Option<Tun>> {
    if args.tun.is_none() && args.capture.is_empty() {
        return Ok(None);
    }
    let name = args.tun.as_deref().unwrap_or(DEVICE);
    let made = Tun::new(name, args.tun.is_some());
    made.map(Some).map_err(|error| match error {
        TunError::Rights => Failure::usage(error).hint("sudo anabranch tunnel join URL --tun"),
        TunError::Name(_) => Failure::usage(error),
        TunError::Device(..) => {
            Failure::failed(error).hint("the kernel needs /dev/net/tun, and nobody else the name")
        }
    })
}
