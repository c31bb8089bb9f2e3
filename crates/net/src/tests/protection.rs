//! What connections carry is never on the wire in the clear, also in a build whose engine can leave
//! packets of simulated hosts unprotected: tests of the whole workspace are such a build.

use super::{pair, soon};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::net::UdpSocket;

/// What the application sends, over and over.
const CONTENT: &[u8] = b"what nobody on the way may read ";

/// Bytes each way.
const AMOUNT: usize = 64 << 10;

/// The largest datagram of these tests.
const MAX_DATAGRAM: usize = 2048;

/// A way to a server, for one client, that keeps all it carries; returns where it begins.
async fn watched_way(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let near = bind().await.unwrap();
    let far = bind().await.unwrap();
    far.connect(server).await.unwrap();
    let begin = near.local_addr().unwrap();
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        let client: OnceLock<SocketAddr> = OnceLock::new();
        let (mut there, mut back) = ([0; MAX_DATAGRAM], [0; MAX_DATAGRAM]);
        loop {
            tokio::select! {
                Ok((length, from)) = near.recv_from(&mut there) => {
                    let _ = client.set(from);
                    kept.lock().unwrap().extend_from_slice(&there[..length]);
                    let _ = far.send(&there[..length]).await;
                }
                Ok(length) = far.recv(&mut back) => {
                    kept.lock().unwrap().extend_from_slice(&back[..length]);
                    let client = *client.get().expect("the server answers");
                    let _ = near.send_to(&back[..length], client).await;
                }
                else => return,
            }
        }
    });
    (begin, seen)
}

#[tokio::test]
async fn nothing_that_is_sent_can_be_read_on_the_way() {
    let mut pair = pair();
    let (begin, seen) = watched_way(pair.target.remotes[0]).await;
    pair.target.remotes = vec![begin];
    let (connection, accepted, _manager) = pair.connect(&[]).await;
    let content = CONTENT.repeat(AMOUNT / CONTENT.len());
    for (from, to) in [(&connection, &accepted), (&accepted, &connection)] {
        let mut sending = soon(from.open_uni()).await.unwrap();
        soon(sending.write_all(&content)).await.unwrap();
        sending.finish().unwrap();
        let mut receiving = soon(to.accept_uni()).await.unwrap();
        let got = soon(receiving.read_to_end(AMOUNT)).await.unwrap();
        assert_eq!(got, content);
        from.send_datagram(CONTENT.to_vec().into()).unwrap();
        assert_eq!(soon(to.read_datagram()).await.unwrap(), CONTENT);
    }
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 2 * AMOUNT, "the way carried {}", seen.len());
    // The content is repeated: whichever part of it were in the clear, its beginning would be.
    let beginning = &CONTENT[..8];
    assert!(!seen.windows(8).any(|bytes| bytes == beginning));
}
