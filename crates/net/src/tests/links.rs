//! Links between two hosts that appear, disappear, fall silent and recover.

use super::{ALPN, Traffic, echo, paths, soon};
use crate::engine::{ClientConfig, PathNotice, ServerConfig, TransportConfig, tls};
use crate::identity::{Identity, provider};
use crate::manager::EntryState;
use crate::namespace::{Elsewhere, in_namespace, ip};
use crate::{Connection, Endpoint, Notice, PathManager, PathNotices, Target};
use anabranch_proto::path::PathCounters;
use anabranch_proto::path::PathState;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::wire::PathId;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A client in this host that is connected over link 1 to a server in a host of its own.
struct Linked {
    server: Elsewhere,
    endpoint: Endpoint,
    client: Connection,
    manager: PathManager,
}

impl Linked {
    /// Both sides use their paths in turn and do not abandon silent ones.
    async fn by_one_link() -> Self {
        let scheduler = "round-robin".parse().unwrap();
        let transport = Arc::new(TransportConfig {
            scheduler: SchedulerFactory::new(&anabranch_schedulers::builtin(), &scheduler).unwrap(),
            path_idle_timeout: Duration::from_secs(3600),
            ..TransportConfig::default()
        });
        let identity = Identity::generate().unwrap();
        let client_tls = tls::ClientTls::pinned(provider(), identity.fingerprint());
        let mut config = ClientConfig::new(client_tls.alpn(&[ALPN]).build().unwrap());
        config.transport = Arc::clone(&transport);
        let server = serve_elsewhere(&identity, transport);
        let target = Target {
            name: "localhost".into(),
            remotes: vec!["10.9.9.9:4433".parse().unwrap()],
        };
        let endpoint = Endpoint::client().unwrap();
        let wanted = paths(&["v*"]);
        let connecting = endpoint.connect(&target, config, &wanted);
        let (client, manager) = soon(connecting).await.unwrap();
        Self {
            server,
            endpoint,
            client,
            manager,
        }
    }

    /// Adds a link, and waits until it has a path.
    async fn plug(&mut self, number: u8) {
        plug(&self.server, number);
        let is_open = |state| matches!(state, Some(EntryState::Open(_)));
        soon(self.wait_for(number, is_open)).await;
    }

    /// Waits until the path of a link is in the right state.
    async fn wait_for(&mut self, number: u8, is_right: impl Fn(Option<EntryState>) -> bool) {
        while !is_right(self.entry(number)) {
            assert!(
                self.manager.changed().await,
                "the manager lives as long as the connection"
            );
        }
    }

    fn entry(&self, number: u8) -> Option<EntryState> {
        let interface = format!("v{number}");
        let entries = self.manager.entries();
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry.candidate.interface == interface)?;
        Some(entry.state)
    }

    fn path(&self, number: u8) -> PathId {
        match self.entry(number) {
            Some(EntryState::Open(id)) => id,
            other => panic!("link {number} has a path: {other:?}"),
        }
    }

    fn state(&self, id: PathId) -> PathState {
        self.client.path_stats(id).unwrap().state
    }

    fn counters(&self, id: PathId) -> PathCounters {
        self.client.path_stats(id).unwrap().counters
    }

    /// Waits until the path has carried half a megabyte more in each direction.
    async fn carries_again(&self, id: PathId, traffic: &Traffic) {
        let before = self.counters(id);
        let is_back = |now: PathCounters| {
            now.received_bytes > before.received_bytes + 500_000
                && now.sent_bytes > before.sent_bytes + 500_000
        };
        while !is_back(self.counters(id)) {
            traffic.passes(100_000).await;
        }
    }
}

/// A server on 10.9.9.9 that echoes the first stream of each connection.
fn serve_elsewhere(identity: &Identity, transport: Arc<TransportConfig>) -> Elsewhere {
    let server = identity.server(&["localhost"]).unwrap().alpn(&[ALPN]);
    let mut config = ServerConfig::new(server.build().unwrap());
    config.transport = transport;
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 4433));
    let (ready, wait) = std::sync::mpsc::channel();
    let prepare = |server: &Elsewhere| {
        // Lets the rules of the tests precede the kernel's own.
        for rule in ["rule add pref 10 lookup local", "rule del pref 0"] {
            ip(rule);
            server.ip(rule);
        }
        server.ip("link set lo up");
        server.ip("addr add 10.9.9.9/32 dev lo");
        plug(server, 1);
    };
    let server = Elsewhere::start(prepare, move || async move {
        let endpoint = Endpoint::server(config, &[listen]).unwrap();
        ready.send(()).unwrap();
        let connection = endpoint.accept().await.unwrap();
        echo(connection.clone()).await;
        connection.closed().await;
    });
    wait.recv_timeout(Duration::from_secs(60)).unwrap();
    server
}

/// A link to the server's namespace: `10.8.N.2` on `vN` here, `10.8.N.1` on `pN` there.
fn plug(server: &Elsewhere, number: u8) {
    let (here, there) = (format!("v{number}"), format!("p{number}"));
    ip(&format!(
        "link add {here} type veth peer name {there} netns {}",
        server.name()
    ));
    server.ip(&format!("addr add 10.8.{number}.1/24 dev {there}"));
    server.ip(&format!("link set {there} up"));
    ip(&format!("addr add 10.8.{number}.2/24 dev {here}"));
    ip(&format!("link set {here} up"));
    server.wait_for_carriers(&here, &there);
    ip(&format!(
        "route add default via 10.8.{number}.1 dev {here} metric {number}"
    ));
}

async fn recovers(notices: &mut PathNotices, path: PathId) {
    let is_meant = |notice| match notice {
        Notice::Path(PathNotice::Recovered { id, .. }) => id == path,
        _ => false,
    };
    while !is_meant(notices.next().await.unwrap()) {}
}

#[test]
fn paths_follow_interfaces_as_they_come_and_go() {
    in_namespace(|| async {
        let mut linked = Linked::by_one_link().await;
        let (mut send, mut recv) = linked.client.open_bi().await.unwrap();
        send.write_all(b"one").await.unwrap();
        soon(recv.read_exact(&mut [0; 3])).await.unwrap();

        linked.plug(2).await;
        // The first link is unplugged: the connection survives on the second.
        ip("link del v1");
        send.write_all(b"two").await.unwrap();
        soon(recv.read_exact(&mut [0; 3])).await.unwrap();
        soon(linked.wait_for(1, |state| state.is_none())).await;
        // The first link is plugged in again.
        linked.plug(1).await;
        send.finish().unwrap();
        assert_eq!(&soon(recv.read_to_end(10)).await.unwrap()[..], b"");
        linked.client.close(0, b"");
        soon(linked.endpoint.wait_idle()).await;
    });
}

#[test]
fn a_transfer_survives_a_path_that_goes_silent_and_the_path_returns() {
    in_namespace(|| async {
        let mut linked = Linked::by_one_link().await;
        linked.plug(2).await;
        let silent = linked.path(1);
        let traffic = Traffic::start(&linked.client).await;
        soon(traffic.passes(2 << 20)).await;
        // What arrives over the link is dropped without telling the sender.
        ip("rule add pref 5 iif v1 blackhole");
        linked.server.ip("rule add pref 5 iif p1 blackhole");
        let mut notices = linked.client.path_notices();
        soon(async {
            while linked.state(silent) != PathState::Doubtful {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        // Data that had already arrived may still be read and end a doubt, but not for long.
        soon(traffic.passes(4 << 20)).await;
        ip("rule del pref 5");
        linked.server.ip("rule del pref 5");
        soon(recovers(&mut notices, silent)).await;
        soon(linked.carries_again(silent, &traffic)).await;
        soon(traffic.end()).await;
    });
}

/// The client's packets arrive, and their acknowledgements come back on the other path, so the
/// client has no reason to doubt the path. The server has.
#[test]
fn a_path_that_a_server_cannot_send_by_carries_uploads_and_returns() {
    in_namespace(|| async {
        let mut linked = Linked::by_one_link().await;
        linked.plug(2).await;
        let (one, traffic) = (linked.path(1), Traffic::start(&linked.client).await);
        soon(traffic.passes(2 << 20)).await;
        linked.server.ip("rule add pref 5 to 10.8.1.2 blackhole");
        let sent = linked.counters(one).fresh_bytes;
        let goes_on = async {
            while linked.counters(one).fresh_bytes < sent + (4 << 20) {
                traffic.passes(100_000).await;
            }
        };
        soon(goes_on).await;
        linked.server.ip("rule del pref 5");
        soon(linked.carries_again(one, &traffic)).await;
        soon(traffic.end()).await;
    });
}
