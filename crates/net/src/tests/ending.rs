//! How programs end: when the peer knows, not when nothing can arrive any more.

use super::{pair, soon};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::UdpSocket;

/// How long a datagram is on its way to a distant server, or from there.
const HALF_RTT: Duration = Duration::from_millis(250);

/// The largest datagram of these tests.
const MAX_DATAGRAM: usize = 2048;

/// A long way to a server, for one client; returns where it begins.
async fn long_way(server: SocketAddr) -> SocketAddr {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let near = Arc::new(bind().await.unwrap());
    let far = Arc::new(bind().await.unwrap());
    far.connect(server).await.unwrap();
    let begin = near.local_addr().unwrap();
    let client: Arc<OnceLock<SocketAddr>> = Arc::default();
    tokio::spawn({
        let (near, far, client) = (Arc::clone(&near), Arc::clone(&far), Arc::clone(&client));
        async move {
            let mut buffer = [0; MAX_DATAGRAM];
            while let Ok((length, from)) = near.recv_from(&mut buffer).await {
                let _ = client.set(from);
                let (far, datagram) = (Arc::clone(&far), buffer[..length].to_vec());
                tokio::spawn(async move {
                    tokio::time::sleep(HALF_RTT).await;
                    far.send(&datagram).await
                });
            }
        }
    });
    tokio::spawn(async move {
        let mut buffer = [0; MAX_DATAGRAM];
        while let Ok(length) = far.recv(&mut buffer).await {
            let (near, datagram) = (Arc::clone(&near), buffer[..length].to_vec());
            let client = *client.get().expect("the server answers");
            tokio::spawn(async move {
                tokio::time::sleep(HALF_RTT).await;
                near.send_to(&datagram, client).await
            });
        }
    });
    begin
}

/// The draining period is three times the PTO: with this peer, several seconds.
#[tokio::test]
async fn a_program_may_end_as_soon_as_the_peer_was_told() {
    let mut pair = pair();
    pair.target.remotes = vec![long_way(pair.target.remotes[0]).await];
    let (connection, accepted, _manager) = pair.connect(&[]).await;
    connection.close(7, b"done");
    soon(pair.client.say_goodbye()).await;
    let idle = std::pin::pin!(pair.client.wait_idle());
    assert!(
        futures_util::poll!(idle).is_pending(),
        "it waited until the draining period was over"
    );
    let reason = soon(accepted.closed()).await;
    assert!(reason.to_string().contains('7'), "{reason}");
}

#[tokio::test]
async fn an_address_is_free_once_its_endpoint_is_unbound() {
    let pair = pair();
    let (connection, accepted, _manager) = pair.connect(&[]).await;
    let address = pair.server.local_addrs()[0];
    pair.server.close(0, b"");
    soon(pair.server.wait_idle()).await;
    soon(pair.server.unbind()).await;
    assert!(std::net::UdpSocket::bind(address).is_ok());
    drop((connection, accepted));
}
