//! Rules that hold for a whole connection, or for requests of any kind.

use super::early::near_to;
use super::*;
use crate::session::datagrams::Sequence;
use anabranch_tunnel::Treatment;
use tokio::sync::mpsc;
use tokio::time::Instant;

#[tokio::test]
async fn who_wants_no_more_of_the_control_stream_loses_the_connection() {
    let place = Place::open(10);
    let connection = place.connect().await;
    let control = timeout(END, connection.accept_uni()).await.expect("one");
    control.unwrap().stop(0x10c_u32).unwrap();
    let closed = timeout(END, connection.closed()).await.expect("an end");
    assert_eq!(code(&closed), Some(Code::CLOSED_CRITICAL_STREAM.0));
}

#[tokio::test]
async fn a_server_that_opens_a_stream_for_requests_loses_the_connection() {
    let place = Place::open(10);
    let session = place.visit().await;
    place.let_in(&session).await;
    let connections = place.exit.connections();
    let [server] = &connections[..] else {
        panic!("one is here: {connections:?}");
    };
    let (mut outgoing, _incoming) = server.open_bi().await.unwrap();
    outgoing.write_all(b"x").await.unwrap();
    let closed = timeout(END, server.closed()).await.expect("an end");
    assert_eq!(code(&closed), Some(Code::STREAM_CREATION_ERROR.0));
}

#[tokio::test]
async fn a_datagram_for_a_plain_connect_ends_its_request_alone() {
    let place = Place::open(10);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let flow = open(&session, connect(&target), headers.clone()).await;
    let (outgoing, mut incoming, response) = flow.unwrap();
    assert_eq!(response.status, 200);
    let datagrams = session.datagrams(outgoing.id());
    // It may be lost.
    let ended = async {
        loop {
            let datagram = datagrams.begin(0);
            let treatment = Treatment::default();
            let _ = datagrams.send(datagram, 0, Sequence::None, &treatment);
            let next = timeout(Duration::from_secs(1), incoming.next()).await;
            if let Ok(next) = next {
                break next;
            }
        }
    };
    let ended = timeout(END, ended).await.expect("an end");
    let is_told = matches!(ended, Err(Broken::GivenUp(Code::DATAGRAM_ERROR)));
    assert!(is_told, "{ended:?}");
    let joined = ask(&session, other("POST", crate::JOIN_PATH), headers).await;
    assert_eq!(joined.unwrap().status, 200);
}

#[tokio::test]
async fn who_allows_no_streams_loses_the_connection_in_time() {
    let identity = Identity::generate().unwrap();
    let endpoint = server(&identity, defaults::transport());
    let mut transport = crate::near_transport();
    transport.streams.max_streams_uni = 0;
    let remotes = endpoint.local_addrs();
    let connecting = connect_with(transport, &remotes, identity.fingerprint());
    let ((client, _manager), server) = tokio::join!(connecting, endpoint.accept());
    let deadline = Instant::now() + Duration::from_millis(100);
    let started = Session::start_by(deadline, server.unwrap(), Settings::OURS);
    let started = timeout(END, started).await.expect("an end");
    assert!(matches!(started, Err(Broken::Ended)), "{started:?}");
    let closed = timeout(END, client.closed()).await.expect("an end");
    assert_eq!(code(&closed), Some(Code::EXCESSIVE_LOAD.0));
}

/// Says on each connection that it is leaving, and closes none; hands the connections over.
fn leaving_far_end(identity: &Identity) -> (Vec<SocketAddr>, mpsc::UnboundedReceiver<Connection>) {
    let endpoint = server(identity, defaults::transport());
    let (remotes, (told, heard)) = (endpoint.local_addrs(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        let mut sessions = Vec::new();
        loop {
            let connection = endpoint.accept().await.unwrap();
            let _ = told.send(connection.clone());
            let session = Session::start(connection, Settings::OURS).await.unwrap();
            let (outgoing, mut incoming) = session.accept().await.unwrap();
            incoming.head().await.unwrap();
            outgoing
                .answer(incoming, &Response::new(200))
                .await
                .unwrap();
            session.leave();
            sessions.push(session);
        }
    });
    (remotes, heard)
}

/// What was open when it began to leave is on the first.
#[tokio::test]
async fn of_connections_whose_far_end_leaves_and_closes_none_those_in_between_are_closed() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut connections) = leaving_far_end(&identity);
    let state = tempfile::tempdir().unwrap();
    let _near = near_to(remotes, &identity, &state).await;
    let mut all = Vec::new();
    while all.len() < 5 {
        let next = timeout(END, connections.recv()).await;
        all.push(next.expect("it connects again").unwrap());
    }
    let closed = timeout(END, all[2].closed()).await.expect("an end");
    assert_eq!(code(&closed), Some(Code::NO_ERROR.0));
    for stands in [0, 1, 4] {
        assert!(all[stands].close_reason().is_none(), "{stands}");
    }
}
