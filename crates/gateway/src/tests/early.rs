//! Payloads that leave with the request of their flow, before its answer.

use super::classes::why;
use super::socks::{Client, Near};
use super::udp::echo;
use super::*;
use crate::entry::{Entrance, Invited};
use crate::identity::Kept;
use anabranch_masque::Protocol;
use anabranch_masque::capsule::{self, Capsule};
use bytes::Bytes;
use std::net::Ipv4Addr;
use tokio::sync::mpsc;

/// A far end that lets everybody in and answers no request for UDP: it hands over what comes with
/// it.
fn reticent(identity: &Identity) -> (Vec<SocketAddr>, mpsc::UnboundedReceiver<Bytes>) {
    let tls = identity.server(&["localhost"]).unwrap();
    let config = defaults::server(tls.alpn(&[b"h3"]).build().unwrap());
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = Endpoint::server(config, &[listen]).unwrap();
    let (remotes, (told, heard)) = (endpoint.local_addrs(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        let connection = endpoint.accept().await.unwrap();
        let session = Session::start(connection, Settings::OURS).await.unwrap();
        while let Ok((outgoing, incoming)) = session.accept().await {
            tokio::spawn(attend(outgoing, incoming, told.clone()));
        }
    });
    (remotes, heard)
}

async fn attend(
    mut outgoing: Outgoing,
    mut incoming: Incoming,
    told: mpsc::UnboundedSender<Bytes>,
) -> Result<(), Broken> {
    let request = Request::from_fields(incoming.head().await?).unwrap();
    if let RequestLine::Other { .. } = request.line {
        return outgoing.answer(incoming, &Response::new(200)).await;
    }
    let mut capsules = capsule::Reader::new(Protocol::Udp);
    while let Item::Data(bytes) = incoming.next().await? {
        capsules.push(bytes);
        while let Some(item) = capsules.poll().unwrap() {
            if let capsule::Item::Capsule(Capsule::Datagram(payload)) = item {
                let _ = told.send(payload);
            }
        }
    }
    outgoing.finish();
    Ok(())
}

#[tokio::test]
async fn what_a_host_has_sent_does_not_wait_for_the_answer_to_its_request() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = reticent(&identity);
    let state = tempfile::tempdir().unwrap();
    let fingerprint = identity.fingerprint();
    let entrance = Entrance::Exit(Invited {
        kept: Kept::in_directory(state.path()),
        server: fingerprint.to_string(),
        invitation: Some(Secret::credential().unwrap()),
        name: "test".into(),
    });
    let near = Near::enter(remotes, fingerprint, entrance, |_| {}).await;
    let client = Client::open(&near, true).await;
    client.send("192.0.2.1:53", b"question").await;
    let early = timeout(END, heard.recv()).await.expect("a payload");
    // Context 0, in which a payload has nothing before it (RFC 9298, section 5).
    assert_eq!(&early.unwrap()[..], b"\0question");
}

#[tokio::test]
async fn an_exit_sends_on_what_came_with_a_request() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let target = echo().await;
    client.send(&target, b"once").await;
    let heard = timeout(END, client.hear()).await.expect("an answer");
    assert_eq!(heard, (target.clone(), b"once!".to_vec()));
    let far = place.exit.flows(Some(&target), 9).await.flows.remove(0);
    for flow in [why(&near, &target).await, far] {
        let datagrams = flow.datagrams.unwrap();
        assert_eq!((datagrams.up, datagrams.down), (1, 1), "{flow:?}");
        assert_eq!((flow.up_bytes, flow.down_bytes), (4, 5), "{flow:?}");
    }
    // What is too large to go with a request goes behind the answer, once paths carry it.
    let target = echo().await;
    client.ask(&target, &[b'x'; 1300], &target).await;
}
