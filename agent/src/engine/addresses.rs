//! Interfaces whose address changes while a run goes on: the paths over them get another socket.

use super::{Host, bind_path, lock};
use crate::rules::Doors;
use anabranch_lab::hosts::HostPath;
use anabranch_net::interfaces::{Interface, Watch};
use anabranch_proto::datagram::SocketId;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What to do about a path after its interface changed.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It leaves from an address that is there.
    Stays,
    /// Its address is gone, and there is no other one yet.
    Lost,
    /// Its address is gone, and this one is there.
    Moves(IpAddr),
}

fn judge(path: &HostPath, local: IpAddr, interfaces: &[Interface]) -> Verdict {
    let Some(name) = &path.interface else {
        return Verdict::Stays;
    };
    let Some(interface) = interfaces.iter().find(|one| one.name == *name) else {
        return Verdict::Lost;
    };
    if interface
        .addresses
        .iter()
        .any(|address| address.ip == local)
    {
        return Verdict::Stays;
    }
    match interface.address_towards(path.remote) {
        Some(other) => Verdict::Moves(other),
        None => Verdict::Lost,
    }
}

impl Host {
    /// Watches the interfaces of the paths. Tells of each path which socket it has.
    pub(super) fn follow_addresses(
        self: &Arc<Self>,
        helpers: &mut JoinSet<()>,
    ) -> Vec<watch::Receiver<SocketId>> {
        let paths = 0..self.job.paths.len();
        let (moved, moves): (Vec<_>, Vec<_>) = paths
            .map(|index| watch::channel(self.socket(index)))
            .unzip();
        helpers.spawn(follow(Arc::clone(self), moved));
        moves
    }
}

/// Moves paths as their addresses change. Keeps the channels open in any case.
async fn follow(host: Arc<Host>, moved: Vec<watch::Sender<SocketId>>) {
    let paths = &host.job.paths;
    let mut locals: Vec<IpAddr> = paths.iter().map(|path| path.local).collect();
    if paths.iter().any(|path| path.interface.is_some()) {
        let ended = match Watch::start().await {
            Ok(mut watch) => loop {
                move_all(&host, &mut locals, watch.current(), &moved);
                if let Err(error) = watch.next().await {
                    break error;
                }
            },
            Err(error) => error,
        };
        *lock(&host.unfollowed) = Some(ended.to_string());
    }
    std::future::pending::<()>().await;
}

fn move_all(
    host: &Host,
    locals: &mut [IpAddr],
    interfaces: &[Interface],
    moved: &[watch::Sender<SocketId>],
) {
    for (index, path) in host.job.paths.iter().enumerate() {
        let old = host.socket(index);
        match judge(path, locals[index], interfaces) {
            Verdict::Stays => {}
            Verdict::Lost => host.endpoint.report_fault(old),
            Verdict::Moves(local) => {
                host.endpoint.report_fault(old);
                let path = HostPath {
                    local,
                    ..path.clone()
                };
                // An address that cannot be used yet is tried again with the next change.
                if let Ok(socket) = bind_path(&path, &host.endpoint, &Doors::default()) {
                    locals[index] = local;
                    lock(&host.sockets)[index].push(socket);
                    moved[index].send_replace(socket);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_net::interfaces::{Address, Kind};
    use std::time::Duration;

    fn interface(name: &str, addresses: &[[u8; 4]]) -> Interface {
        let address = |ip: &[u8; 4]| Address {
            ip: IpAddr::from(*ip),
            prefix_len: 24,
        };
        Interface {
            index: 2,
            name: name.to_owned(),
            kind: Kind::Uplink,
            up: true,
            running: true,
            mtu: 1500,
            addresses: addresses.iter().map(address).collect(),
            gateways: Vec::new(),
            default_route: false,
        }
    }

    #[test]
    fn a_path_moves_when_its_address_is_gone_and_another_one_is_there() {
        let local = IpAddr::from([10, 0, 0, 1]);
        let mut path = HostPath {
            name: "a".to_owned(),
            interface: Some("eth0".to_owned()),
            local,
            remote: IpAddr::from([10, 0, 9, 9]),
            opens: Duration::ZERO,
            backup: false,
            weight: 1,
            priority: 0,
            cost: 0,
        };
        let verdict = |path: &HostPath, interfaces: &[Interface]| judge(path, local, interfaces);
        let both = [interface("eth0", &[[10, 0, 0, 7], [10, 0, 0, 1]])];
        assert_eq!(verdict(&path, &both), Verdict::Stays);
        let other = [interface("eth0", &[[10, 0, 0, 7]])];
        let new = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(verdict(&path, &other), Verdict::Moves(new));
        let none = [interface("eth0", &[])];
        assert_eq!(verdict(&path, &none), Verdict::Lost);
        let elsewhere = [interface("eth1", &[[10, 0, 0, 1]])];
        assert_eq!(verdict(&path, &elsewhere), Verdict::Lost);
        path.interface = None;
        assert_eq!(verdict(&path, &elsewhere), Verdict::Stays);
    }
}
