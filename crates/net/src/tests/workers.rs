//! Servers whose connections are driven by several tasks.

use super::{Pair, echo, pair_of_workers, pattern, round_trip, soon};
use crate::Endpoint;
use crate::sockets::SocketConfig;
use anabranch_testbed::Relay;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

const WORKERS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

fn pair() -> Pair {
    pair_of_workers(WORKERS, |_| ())
}

/// Connections of each worker of a server.
fn spread(server: &Endpoint) -> Vec<usize> {
    let workers = server.workers().iter();
    workers
        .map(|worker| worker.lock().handles().len())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn paths_of_a_connection_work_whoever_receives_them() {
    const CLIENTS: usize = 12;
    const PATHS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let mut pair = pair();
    pair.use_paths_in_turn();
    let data = pattern(500_000);
    let mut open = Vec::new();
    for _ in 0..CLIENTS {
        let (client, server, manager) = pair.connect(&PATHS).await;
        let proven = |paths: Vec<(_, crate::engine::PathStats)>| {
            paths.iter().filter(|(_, stats)| stats.is_open()).count()
        };
        soon(async {
            while proven(client.paths()) < PATHS.len() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
        let echo = tokio::spawn(echo(server));
        assert_eq!(soon(round_trip(&client, &data)).await, data);
        for (id, stats) in client.paths() {
            assert!(stats.counters.received_packets > 10, "{id:?}: {stats:?}");
        }
        let server = soon(echo).await.unwrap();
        open.push((client, server, manager));
    }
    let spread = spread(&pair.server);
    assert_eq!(spread.iter().sum::<usize>(), CLIENTS, "{spread:?}");
    // The kernel chooses by the clients' ports: one for all is as likely as 1 to 4 to the 11th.
    assert!(spread.iter().all(|&at_one| at_one < CLIENTS), "{spread:?}");
    pair.server.close(0, b"");
    soon(pair.server.wait_idle()).await;
    for (client, ..) in open {
        soon(client.closed()).await;
    }
}

#[tokio::test]
async fn a_client_whose_address_changes_stays_with_its_worker() {
    let mut pair = pair();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let relay = Relay::start(any, pair.target.remotes[0]).unwrap();
    pair.target.remotes = vec![relay.addr()];
    let (client, server, _manager) = pair.connect(&[]).await;
    let data = pattern(100_000);
    // Each time another socket may be the one that receives it.
    for _ in 0..8 {
        relay.rebind().unwrap();
        let echo = tokio::spawn(echo(server.clone()));
        assert_eq!(soon(round_trip(&client, &data)).await, data);
        soon(echo).await.unwrap();
    }
    assert_eq!(spread(&pair.server).iter().sum::<usize>(), 1);
}

#[tokio::test]
async fn nobody_else_can_have_the_address_of_a_server_with_workers() {
    let pair = pair();
    let address = pair.server.local_addrs()[0];
    for count in [NonZeroUsize::MIN, WORKERS] {
        let config = SocketConfig::listen(address);
        let refused = crate::sockets::Socket::bind_group(&config, count.get()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    }
}

#[tokio::test]
async fn a_server_of_few_connections_has_one_worker() {
    let few = pair_of_workers(WORKERS, |server| server.max_connections = 100);
    assert_eq!(few.server.workers().len(), 1);
    let some = pair_of_workers(WORKERS, |server| server.max_connections = 200);
    assert_eq!(some.server.workers().len(), 3);
}

#[tokio::test]
async fn all_addresses_are_free_once_a_server_with_workers_has_unbound() {
    let pair = pair();
    let address = pair.server.local_addrs()[0];
    soon(pair.server.unbind()).await;
    let config = SocketConfig::listen(address);
    crate::sockets::Socket::bind_group(&config, 1).unwrap();
}
