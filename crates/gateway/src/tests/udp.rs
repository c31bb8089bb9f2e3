//! UDP through an exit.

use super::*;
use crate::payloads::{self, Counts, Payload, Receiver, Sender};
use crate::records::{Record, Tally};
use anabranch_masque::{Ask, Contexts, Extensions, Protocol, Templates};
use anabranch_proto::wire::Side;
use anabranch_tunnel::Treatment;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use tokio::net::UdpSocket;
use tokio::time::{Instant, interval};

/// What a client has of one request for UDP.
struct Association {
    sender: Sender,
    receiver: Receiver,
    response: Response,
    counts: Arc<Counts>,
}

impl Association {
    async fn open(session: &Session, headers: &Headers, target: &str) -> Result<Self, Response> {
        Self::open_with(session, headers, target, payloads::OURS).await
    }

    async fn open_with(
        session: &Session,
        headers: &Headers,
        target: &str,
        offered: Extensions,
    ) -> Result<Self, Response> {
        let ask = Ask::Udp(Some(target.parse().unwrap()));
        let line = Templates::of_proxy("test").unwrap().request(&ask);
        let mut headers = headers.clone();
        offered.put(&mut headers);
        let request = Request { line, headers };
        let opened = session.request_with_datagrams(&request).await;
        let (outgoing, mut incoming, datagrams) = opened.unwrap();
        let response = timeout(END, incoming.response()).await.expect("an answer");
        let response = response.unwrap();
        if !response.opens_capsules().unwrap() {
            return Err(response);
        }
        let agreed = offered.and(Extensions::read(&response.headers));
        let settings = session.settings().await.unwrap();
        let contexts = Contexts::new(Side::Client, Protocol::Udp, agreed, true);
        let ends = (outgoing, incoming, datagrams);
        let counts = Arc::<Counts>::default();
        let in_datagrams = session.has_datagrams(&settings);
        let tally = Tally {
            all: Arc::clone(&counts),
            record: Record::unlisted(),
        };
        let remotes = Arc::new(payloads::Nobody);
        let talk = payloads::Talk::of_udp(Treatment::default(), remotes, true);
        let (sender, receiver) = payloads::split(ends, contexts, in_datagrams, tally, talk);
        Ok(Self {
            sender,
            receiver,
            response,
            counts,
        })
    }

    async fn receive(&mut self) -> Result<Vec<Payload>, Broken> {
        let mut payloads = Vec::new();
        let received = timeout(END, self.receiver.receive(&mut payloads));
        received.await.expect("payloads")?;
        Ok(payloads)
    }

    /// Sends a question until it is answered: datagrams may be lost.
    async fn question(&mut self, question: &[u8]) -> Bytes {
        let mut again = interval(Duration::from_secs(1));
        let deadline = Instant::now() + END;
        let mut payloads = Vec::new();
        while payloads.is_empty() {
            assert!(Instant::now() < deadline, "no answer");
            tokio::select! {
                _ = again.tick() => self.sender.send(&payload(question)).await.unwrap(),
                goes_on = self.receiver.receive(&mut payloads) => assert!(goes_on.unwrap()),
            }
        }
        payloads.swap_remove(0).bytes
    }
}

fn payload(bytes: &[u8]) -> Payload {
    Payload {
        remote: None,
        bytes: Bytes::copy_from_slice(bytes),
    }
}

/// Answers each datagram with the same and a `!`; returns where.
pub(super) async fn echo() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let answer = [&buffer[..length], b"!"].concat();
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

/// A session whose client takes no QUIC datagrams for HTTP's.
pub(super) async fn visit_with_capsules(place: &Place) -> Session {
    let ours = Settings {
        h3_datagram: false,
        ..Settings::OURS
    };
    Session::start(place.connect().await, ours).await.unwrap()
}

#[tokio::test]
async fn a_question_is_answered_in_datagrams_and_in_capsules() {
    let place = Place::open(10);
    let target = echo().await;
    for session in [place.visit().await, visit_with_capsules(&place).await] {
        let headers = place.let_in(&session).await;
        let opened = Association::open(&session, &headers, &target).await;
        let mut association = opened.map_err(|refused| refused.status).unwrap();
        let said = &association.response.headers;
        assert!(said.is_true("capsule-protocol"));
        let status = said.text("proxy-status").unwrap();
        assert!(
            status.contains(&format!("next-hop=\"{target}\"")),
            "{status}"
        );
        assert_eq!(association.question(b"a").await, "a!");
        assert_eq!(association.question(b"").await, "!");
    }
}

#[tokio::test]
async fn datagrams_are_numbered_only_where_both_ends_do_it() {
    let place = Place::open(10);
    let target = echo().await;
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    for offered in [payloads::OURS, Extensions::default()] {
        let opened = Association::open_with(&session, &headers, &target, offered).await;
        let mut association = opened.map_err(|refused| refused.status).unwrap();
        let said = association.response.headers.is_true("dg-sequence");
        assert_eq!(said, offered.numbers);
        for number in 0..20u8 {
            let answer = association.question(&[number]).await;
            assert_eq!(answer, [number, b'!'][..]);
        }
        assert_eq!(association.sender.is_numbered(), offered.numbers);
        assert_eq!(association.receiver.was_numbered(), offered.numbers);
    }
}

#[tokio::test]
async fn a_name_is_resolved_at_the_exit() {
    let place = Place::open(10);
    let port = echo().await.rsplit(':').next().unwrap().to_owned();
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let target = format!("localhost:{port}");
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    assert_eq!(association.question(b"name").await, "name!");
}

#[tokio::test]
async fn what_fits_no_packet_is_dropped_and_counted_and_the_flow_goes_on() {
    let large = vec![7; 60_000];
    let place = Place::open(10);
    let target = echo().await;
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    association.sender.send(&payload(&large)).await.unwrap();
    assert_eq!(association.counts.dropped.load(Ordering::Relaxed), 1);
    assert_eq!(association.question(b"small").await, "small!");
    // In capsules the same is carried: the path's size does not matter there.
    let session = visit_with_capsules(&place).await;
    let headers = place.let_in(&session).await;
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    assert_eq!(association.question(&large).await.len(), 60_001);
}

/// An association with an echo over a path that carries no more than it begins with.
async fn unprobed(place: &Place) -> (Association, Session, PathManager) {
    let mut transport = crate::near_transport();
    transport.mtu.max = transport.mtu.min;
    transport.mtu.max_ipv4 = transport.mtu.min;
    let fingerprint = place.identity.fingerprint();
    let (connection, paths) = connect_with(transport, &place.remotes, fingerprint).await;
    let session = Session::start(connection, Settings::OURS).await.unwrap();
    let headers = place.let_in(&session).await;
    let opened = Association::open(&session, &headers, &echo().await).await;
    let association = opened.map_err(|refused| refused.status).unwrap();
    (association, session, paths)
}

#[tokio::test]
async fn what_every_link_carries_passes_where_no_path_was_probed() {
    let place = Place::open(10);
    let (mut association, _session, _paths) = unprobed(&place).await;
    // The first packet of a QUIC connection, with the answer that is a byte longer.
    for length in [1, 1200, 1, 1279] {
        assert_eq!(
            association.question(&vec![7; length]).await.len(),
            length + 1
        );
    }
    assert_eq!(association.counts.dropped.load(Ordering::Relaxed), 0);
    association.sender.send(&payload(&[7; 1281])).await.unwrap();
    assert_eq!(association.counts.dropped.load(Ordering::Relaxed), 1);
    assert_eq!(association.question(b"small").await, "small!");
}

#[tokio::test]
async fn large_payloads_pass_that_are_sent_more_often_than_probes() {
    const LARGE: usize = 1450;
    let place = Place::open(10);
    let (mut association, _session, _paths) = unprobed(&place).await;
    let mut is_dropped = async |length| {
        let dropped = || association.counts.dropped.load(Ordering::Relaxed);
        let before = dropped();
        association
            .sender
            .send(&payload(&vec![7; length]))
            .await
            .unwrap();
        dropped() > before
    };
    // What passes always is no sign of anything.
    for _ in 0..30 {
        assert!(!is_dropped(1250).await);
    }
    for probe in 0..3 {
        assert!(is_dropped(LARGE).await, "{probe}");
    }
    assert!(!is_dropped(LARGE).await);
    assert!(
        is_dropped(1473).await,
        "it has come in pieces, and leaves in none"
    );
    let whole = async { while association.question(&[7; LARGE]).await.len() != LARGE + 1 {} };
    timeout(END, whole).await.expect("it is answered");
}

#[tokio::test]
async fn a_target_that_is_not_permitted_is_refused_before_anything_is_sent() {
    let place = Place::open(10);
    let watched = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let target = watched.local_addr().unwrap().to_string();
    let refused = Association::open(&session, &headers, &target).await.err();
    let status = refused.expect("a refusal").headers;
    let status = status.text("proxy-status").unwrap();
    assert!(status.contains("destination_ip_prohibited"), "{status}");
    let refused = Association::open(&session, &headers, "no-such-host.invalid:53").await;
    assert!([502, 504].contains(&refused.err().unwrap().status));
    assert!(watched.try_recv(&mut [0]).is_err());
}

#[tokio::test]
async fn a_dead_target_ends_its_request_with_a_reason() {
    let place = Place::open(10);
    let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let target = dead.local_addr().unwrap().to_string();
    drop(dead);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    association
        .sender
        .send(&payload(b"anybody?"))
        .await
        .unwrap();
    let broken = association.receive().await.unwrap_err();
    let is_told = matches!(broken, Broken::GivenUp(Code::CONNECT_ERROR));
    assert!(is_told, "{broken:?}");
}

#[tokio::test]
async fn udp_flows_count_like_connections_and_a_reset_frees_their_place() {
    let place = Place::open(1);
    let target = echo().await;
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let first = Association::open(&session, &headers, &target).await;
    let first = first.map_err(|refused| refused.status).unwrap();
    let refused = Association::open(&session, &headers, &target).await;
    assert_eq!(refused.err().map(|refused| refused.status), Some(503));
    drop(first);
    let freed = async {
        while Association::open(&session, &headers, &target)
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(END, freed)
        .await
        .expect("the place of the first is free again");
}

#[tokio::test]
async fn a_flood_from_one_client_does_not_stop_another() {
    let place = Place::open(10);
    let sink = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let flooding = place.visit().await;
    let headers = place.let_in(&flooding).await;
    let to_sink = sink.local_addr().unwrap().to_string();
    let mut flood = Association::open(&flooding, &headers, &to_sink)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    let flood = tokio::spawn(async move {
        loop {
            flood.sender.send(&payload(&[0; 1000])).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let target = echo().await;
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    for number in 0..50u8 {
        let answer = association.question(&[number]).await;
        assert_eq!(answer, [number, b'!'][..]);
    }
    flood.abort();
}

#[tokio::test]
async fn a_client_that_is_revoked_loses_its_udp_too() {
    let place = Place::open(10);
    let target = echo().await;
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    assert_eq!(association.question(b"x").await, "x!");
    place.exit.revoke("unnamed").await.unwrap();
    assert!(matches!(association.receive().await, Err(Broken::Lost(_))));
}

#[tokio::test]
async fn capsules_that_break_the_rules_end_their_request_alone() {
    let place = Place::open(10);
    let target = echo().await;
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let ask = Ask::Udp(Some(target.parse().unwrap()));
    let line = Templates::of_proxy("test").unwrap().request(&ask);
    // An empty datagram capsule has not even a context.
    let (mut outgoing, mut incoming, response) =
        open(&session, line, headers.clone()).await.unwrap();
    assert_eq!(response.status, 200);
    outgoing
        .write(Bytes::from_static(&[0, 2, 0, 0]))
        .await
        .unwrap();
    let broken = timeout(END, incoming.next())
        .await
        .expect("an end")
        .unwrap_err();
    assert!(
        matches!(broken, Broken::GivenUp(Code::DATAGRAM_ERROR)),
        "{broken:?}"
    );
    let mut association = Association::open(&session, &headers, &target)
        .await
        .map_err(|refused| refused.status)
        .unwrap();
    assert_eq!(association.question(b"on").await, "on!");
}
