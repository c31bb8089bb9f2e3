//! Follows interfaces whose address changes during a run: the paths over them get new sockets.

use super::{Host, bind_path, lock};
use crate::rules::Doors;
use anabranch_lab::hosts::HostPath;
use anabranch_net::interfaces::{Interface, Watch};
use anabranch_proto::datagram::SocketId;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What happens to a path after its interface has changed.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Its address still exists.
    Stays,
    /// Its address is gone, and there is no other one yet.
    Lost,
    /// Its address is gone, but this one exists.
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

/// The current local address of a path.
#[derive(Debug)]
struct Followed {
    local: IpAddr,
    /// Whether the loss of this address has been reported.
    is_told: bool,
}

impl Followed {
    fn new(path: &HostPath) -> Self {
        Self {
            local: path.local,
            is_told: false,
        }
    }

    /// Whether a verdict is news of a lost address. A loss is reported once, however often other
    /// interfaces change.
    fn is_news(&mut self, verdict: &Verdict) -> bool {
        let is_gone = *verdict != Verdict::Stays;
        !std::mem::replace(&mut self.is_told, is_gone) && is_gone
    }

    fn moved(&mut self, local: IpAddr) {
        *self = Self {
            local,
            is_told: false,
        };
    }
}

impl Host {
    /// Watches the interfaces of the paths. Returns a channel for each path with its current
    /// socket.
    pub(super) fn follow_addresses(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
    ) -> Vec<watch::Receiver<SocketId>> {
        let paths = 0..self.job.paths.len();
        let (moved, moves): (Vec<_>, Vec<_>) = paths
            .map(|index| watch::channel(self.socket(index)))
            .unzip();
        tasks.spawn(follow(Arc::clone(self), moved));
        moves
    }
}

/// Moves paths as their addresses change. Never returns, so that the channels stay open.
async fn follow(host: Arc<Host>, moved: Vec<watch::Sender<SocketId>>) {
    let paths = &host.job.paths;
    let mut followed: Vec<Followed> = paths.iter().map(Followed::new).collect();
    if paths.iter().any(|path| path.interface.is_some()) {
        let ended = match Watch::start().await {
            Ok(mut watch) => loop {
                move_all(&host, &mut followed, watch.current(), &moved);
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
    followed: &mut [Followed],
    interfaces: &[Interface],
    moved: &[watch::Sender<SocketId>],
) {
    for (index, path) in host.job.paths.iter().enumerate() {
        let old = host.socket(index);
        let verdict = judge(path, followed[index].local, interfaces);
        if followed[index].is_news(&verdict) {
            host.endpoint.report_fault(old);
        }
        let Verdict::Moves(local) = verdict else {
            continue;
        };
        let path = HostPath {
            local,
            ..path.clone()
        };
        // An address that cannot be used yet is tried again at the next change.
        if let Ok(socket) = bind_path(&path, &host.endpoint, &Doors::default()) {
            followed[index].moved(local);
            lock(&host.sockets)[index].push(socket);
            moved[index].send_replace(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_lab::scenario::Usage;
    use anabranch_net::interfaces::{Address, Kind};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn an_address_that_is_gone_is_told_once_until_it_is_there_again() {
        let [old, new] = [1, 7].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut followed = Followed {
            local: old,
            is_told: false,
        };
        let mut news = |verdict| followed.is_news(&verdict);
        assert!(!news(Verdict::Stays));
        assert!(news(Verdict::Lost));
        assert!(!news(Verdict::Lost), "another interface has changed");
        assert!(
            !news(Verdict::Moves(new)),
            "the old one is as gone as before"
        );
        assert!(
            !news(Verdict::Stays) && news(Verdict::Lost),
            "lost once more"
        );
        followed.moved(new);
        assert!(
            followed.is_news(&Verdict::Lost),
            "the new one is another one"
        );
    }

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
            destinations: BTreeSet::new(),
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
            usage: Usage::default(),
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
