//! One socket of the exit for many remote ends (draft-ietf-masque-connect-udp-listen).

use super::socks::{Client, Near, eventually};
use super::udp::{echo, visit_with_capsules};
use super::*;
use crate::payloads::{self, Payload, Receiver, Remotes, Sender, Talk};
use crate::records::{Record, Tally};
use crate::session::data;
use anabranch_masque::capsule::Capsule;
use anabranch_masque::extensions::public_addresses;
use anabranch_masque::{Ask, Contexts, Extensions, Protocol, Templates};
use anabranch_proto::wire::Side;
use anabranch_tunnel::Treatment;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Mutex;
use tokio::net::UdpSocket;
use tokio::time::{Instant, interval};

/// From where targets were asked.
pub(super) type Seen = Arc<Mutex<BTreeSet<SocketAddr>>>;

/// An echo that notes who asks.
pub(super) async fn watching(seen: &Seen) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let seen = Arc::clone(seen);
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            seen.lock().unwrap().insert(from);
            let answer = [&buffer[..length], b"!"].concat();
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

/// Remote ends whose contexts the exit has closed.
#[derive(Debug, Clone, Default)]
struct Closed(Arc<Mutex<Vec<SocketAddr>>>);

impl Closed {
    fn list(&self) -> Vec<SocketAddr> {
        self.0.lock().unwrap().clone()
    }
}

impl Remotes for Closed {
    fn allows(&self, _: SocketAddr) -> bool {
        false
    }

    fn closed(&self, remote: SocketAddr, _: bool) {
        self.0.lock().unwrap().push(remote);
    }
}

/// What a client has of a bound socket.
struct Socket {
    sender: Sender,
    receiver: Receiver,
    response: Response,
    closed: Closed,
}

fn request(headers: &Headers, target: Option<&str>, offered: Extensions) -> Request {
    let ask = Ask::Udp(target.map(|target| target.parse().unwrap()));
    let line = Templates::of_proxy("test").unwrap().request(&ask);
    let mut headers = headers.clone();
    offered.put(&mut headers);
    Request { line, headers }
}

impl Socket {
    /// One that names remote ends in each datagram if it `names` them, or else opens a context for
    /// each.
    async fn open(session: &Session, headers: &Headers, target: Option<&str>, names: bool) -> Self {
        let opening = Self::try_open(session, headers, target, names);
        timeout(END, opening).await.expect("an answer")
    }

    async fn try_open(
        session: &Session,
        headers: &Headers,
        target: Option<&str>,
        names: bool,
    ) -> Self {
        let offered = payloads::OURS;
        let asked = request(headers, target, offered);
        let opened = session.request_with_datagrams(&asked).await;
        let (mut outgoing, mut incoming, datagrams) = opened.unwrap();
        let response = incoming.response().await.unwrap();
        assert!(response.opens_capsules().unwrap(), "{response:?}");
        let agreed = offered.and(Extensions::read(&response.headers));
        assert!(agreed.bind);
        let settings = session.settings().await.unwrap();
        let mut contexts = Contexts::new(Side::Client, Protocol::Udp, agreed, target.is_some());
        if names {
            let mut capsule = Vec::new();
            contexts.open_any().unwrap().1.encode(&mut capsule);
            outgoing.write(data(&[&capsule])).await.unwrap();
        }
        let tally = Tally {
            all: Arc::default(),
            record: Record::unlisted(),
        };
        let closed = Closed::default();
        let talk = Talk::of_udp(Treatment::default(), Arc::new(closed.clone()), !names);
        let in_datagrams = session.has_datagrams(&settings);
        let ends = (outgoing, incoming, datagrams);
        let (sender, receiver) = payloads::split(ends, contexts, in_datagrams, tally, talk);
        Self {
            sender,
            receiver,
            response,
            closed,
        }
    }

    async fn send(&mut self, to: Option<&str>, bytes: &'static [u8]) {
        let remote = to.map(|to| to.parse().unwrap());
        let bytes = Bytes::from_static(bytes);
        let payload = Payload { remote, bytes };
        let sending = self.sender.send(&payload);
        timeout(END, sending).await.expect("room").unwrap();
    }

    /// Sends a question until `is_over` says that this, which came of it, is enough.
    async fn until(
        &mut self,
        to: Option<&str>,
        question: &'static [u8],
        mut is_over: impl FnMut(&Closed, &[Payload]) -> bool,
    ) -> Vec<Payload> {
        let mut again = interval(Duration::from_millis(300));
        let deadline = Instant::now() + END;
        let mut payloads = Vec::new();
        while !is_over(&self.closed, &payloads) {
            assert!(Instant::now() < deadline, "no answer");
            tokio::select! {
                _ = again.tick() => self.send(to, question).await,
                goes_on = self.receiver.receive(&mut payloads) => assert!(goes_on.unwrap()),
            }
        }
        payloads
    }

    /// Asks an echo; returns who has answered.
    async fn ask(&mut self, to: Option<&str>, question: &'static [u8]) -> Option<SocketAddr> {
        let answer = [question, b"!"].concat();
        let is_it = |payload: &Payload| payload.bytes == answer;
        let payloads = self
            .until(to, question, |_, all| all.iter().any(is_it))
            .await;
        payloads.into_iter().find(is_it).unwrap().remote
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn three_targets_see_one_port_and_answers_name_who_sent_them() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    for _ in 0..3 {
        let target = watching(&seen).await;
        client.ask(&target, b"who am I?", &target).await;
    }
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
    assert_eq!(place.exit.clients()[0].open, 3, "each is a flow");
    let flows = place.exit.flows(None, 9).await;
    assert_eq!((flows.open, flows.flows.len()), (3, 3));
    assert!(
        flows
            .flows
            .iter()
            .all(|flow| flow.up_bytes == 9 && flow.down_bytes == 10)
    );
    let other = Client::open(&near, true).await;
    let target = watching(&seen).await;
    other.ask(&target, b"and I?", &target).await;
    assert_eq!(
        seen.lock().unwrap().len(),
        2,
        "another socket, another port"
    );
}

#[tokio::test]
async fn an_address_that_was_sent_to_may_answer_from_another_port_and_no_other_may() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    let (first, second) = (watching(&seen).await, watching(&seen).await);
    client.ask(&first, b"a", &first).await;
    client.ask(&second, b"b", &second).await;
    let from = *seen.lock().unwrap().first().unwrap();
    let stranger = UdpSocket::bind("127.0.0.5:0").await.unwrap();
    let neighbour = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let name = neighbour.local_addr().unwrap().to_string();
    let heard = async {
        let mut again = interval(Duration::from_millis(300));
        loop {
            tokio::select! {
                _ = again.tick() => {
                    stranger.send_to(b"let me in", from).await.unwrap();
                    neighbour.send_to(b"it is me", from).await.unwrap();
                }
                (who, bytes) = client.hear() => {
                    assert_ne!(bytes, b"let me in"[..]);
                    if bytes == b"it is me"[..] {
                        return who;
                    }
                }
            }
        }
    };
    let who = timeout(END, heard).await.expect("it is heard");
    assert_eq!(who, name);
    // An answer there leaves by the same port.
    client.send(&name, b"hello").await;
    let mut buffer = [0; 16];
    let answered = timeout(END, neighbour.recv_from(&mut buffer));
    let (length, at) = answered.await.expect("an answer").unwrap();
    assert_eq!((&buffer[..length], at), (&b"hello"[..], from));
}

#[tokio::test]
async fn more_targets_than_a_request_has_contexts_for_take_turns_at_the_same_port() {
    let place = Place::open(1000);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    let first = watching(&seen).await;
    client.ask(&first, b"first", &first).await;
    for _ in 0..130 {
        let target = watching(&seen).await;
        client.ask(&target, b"next", &target).await;
    }
    client.ask(&first, b"again", &first).await;
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
    eventually(|| place.exit.clients()[0].open == 121).await;
}

#[tokio::test]
async fn remote_ends_that_come_and_go_leave_nothing_behind() {
    let place = Place::open(100);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let seen = Seen::default();
    let (first, further) = (watching(&seen).await, watching(&seen).await);
    let mut socket = Socket::open(&session, &headers, Some(&first), false).await;
    for round in 0..150 {
        socket.ask(Some(&further), b"who am I?").await;
        let closing = socket.sender.close(address(&further));
        timeout(END, closing).await.expect("room").unwrap();
        assert!(socket.receiver.spaces() <= 4, "in round {round}");
    }
}

#[tokio::test]
async fn a_mapped_address_of_the_first_target_is_that_of_its_own_family() {
    let place = Place::open(100);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let seen = Seen::default();
    let target = address(&watching(&seen).await);
    let mapped = format!("[::ffff:127.0.0.1]:{}", target.port());
    let mut socket = Socket::open(&session, &headers, Some(&mapped), false).await;
    assert_eq!(socket.ask(None, b"who am I?").await, None);
}

#[tokio::test]
async fn a_further_target_that_is_refused_is_sent_nothing_and_the_others_go_on() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let watched = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let forbidden = watched.local_addr().unwrap().to_string();
    let seen = Seen::default();
    let (first, second) = (watching(&seen).await, watching(&seen).await);
    client.ask(&first, b"a", &first).await;
    for _ in 0..20 {
        client.send(&forbidden, b"no").await;
    }
    eventually(|| near.entry.refused_flows() > 0).await;
    client.ask(&second, b"b", &second).await;
    client.ask(&first, b"c", &first).await;
    assert_eq!(
        near.entry.refused_flows(),
        1,
        "it was asked for by itself, once"
    );
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
    assert!(watched.try_recv(&mut [0]).is_err());
}

#[tokio::test]
async fn a_further_target_that_begins_to_listen_later_is_reached_by_the_same_port() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    let first = watching(&seen).await;
    client.ask(&first, b"a", &first).await;
    let reserved = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let later = reserved.local_addr().unwrap();
    drop(reserved);
    let refused = |flows: &crate::status::flow::Flows| {
        let mut ends = flows.flows.iter().filter_map(|flow| flow.end.as_deref());
        ends.any(|end| end == "the target refuses datagrams")
    };
    let is_heard = async {
        while !refused(&near.entry.flows(Some(&later.to_string()), 9).await) {
            client.send(&later.to_string(), b"early").await;
        }
    };
    timeout(END, is_heard)
        .await
        .expect("it is known to be deaf");
    let socket = UdpSocket::bind(later).await.unwrap();
    let from = async {
        let mut again = interval(Duration::from_millis(300));
        let mut buffer = [0; 16];
        loop {
            tokio::select! {
                _ = again.tick() => client.send(&later.to_string(), b"now").await,
                received = socket.recv_from(&mut buffer) => return received.unwrap().1,
            }
        }
    };
    let from = timeout(END, from).await.expect("it hears");
    assert_eq!(seen.lock().unwrap().first(), Some(&from));
    assert_eq!(near.entry.refused_flows(), 0);
}

#[tokio::test]
async fn a_first_target_that_is_refused_does_not_keep_others_from_one_port() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    client.send("127.0.0.2:53000", b"no").await;
    for _ in 0..3 {
        let target = watching(&seen).await;
        client.ask(&target, b"yes", &target).await;
    }
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
}

#[tokio::test]
async fn a_client_without_a_target_names_remote_ends_and_hears_no_stranger() {
    let place = Place::open(100);
    for session in [place.visit().await, visit_with_capsules(&place).await] {
        let headers = place.let_in(&session).await;
        let seen = Seen::default();
        let (one, other) = (watching(&seen).await, watching(&seen).await);
        let mut socket = Socket::open(&session, &headers, None, true).await;
        assert_eq!(socket.ask(Some(&one), b"a").await, Some(address(&one)));
        assert_eq!(socket.ask(Some(&other), b"b").await, Some(address(&other)));
        let from = seen.lock().unwrap().clone();
        assert_eq!(from.len(), 1, "{from:?}");
        let from = *from.first().unwrap();
        let public = public_addresses(&socket.response.headers);
        assert!(
            public.iter().all(|it| it.port() == from.port()),
            "{public:?}"
        );
        // An address that was sent to may answer from elsewhere; nobody else is heard.
        let stranger = UdpSocket::bind("127.0.0.5:0").await.unwrap();
        let neighbour = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        stranger.send_to(b"let me in", from).await.unwrap();
        neighbour.send_to(b"it is me", from).await.unwrap();
        let heard = socket.until(Some(&one), b"c", |_, all| {
            let has = |bytes: &[u8]| all.iter().any(|one| one.bytes == bytes);
            has(b"it is me") && has(b"c!")
        });
        let heard = heard.await;
        assert!(heard.iter().all(|one| one.bytes != b"let me in"[..]));
        let strayed = heard.iter().find(|one| one.bytes == b"it is me"[..]);
        assert_eq!(strayed.unwrap().remote, neighbour.local_addr().ok());
    }
}

#[tokio::test]
async fn every_remote_end_obeys_the_rules_of_targets() {
    let place = Place::open(100);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let watched = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let forbidden = watched.local_addr().unwrap().to_string();
    let target = echo().await;
    for names in [true, false] {
        let mut socket = Socket::open(&session, &headers, Some(&target), names).await;
        assert_eq!(socket.ask(None, b"a").await, None, "the target has no name");
        let mapped = format!("[::ffff:127.0.0.1]:{}", address(&target).port());
        let refused = [&forbidden, "10.0.0.1:9", "169.254.169.254:80", &mapped];
        for one in refused {
            socket.send(Some(one), b"no").await;
            if !names {
                let is_closed =
                    |closed: &Closed, _: &[Payload]| closed.list().contains(&address(one));
                socket.until(Some(one), b"no", is_closed).await;
            }
        }
        let refused = refused.map(address);
        let closed = socket.closed.list();
        assert!(closed.iter().all(|one| refused.contains(one)), "{closed:?}");
        assert_eq!(socket.ask(None, b"b").await, None);
        assert!(watched.try_recv(&mut [0]).is_err());
    }
}

#[tokio::test]
async fn remote_ends_count_as_flows_and_give_their_places_back() {
    let place = Place::open(3);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let (target, one, two, three) = (echo().await, echo().await, echo().await, echo().await);
    let mut socket = Socket::open(&session, &headers, Some(&target), false).await;
    assert_eq!(socket.ask(Some(&one), b"1").await, Some(address(&one)));
    assert_eq!(socket.ask(Some(&two), b"2").await, Some(address(&two)));
    let is_closed = |closed: &Closed, _: &[Payload]| !closed.list().is_empty();
    socket.until(Some(&three), b"3", is_closed).await;
    assert!(socket.closed.list().iter().all(|it| *it == address(&three)));
    assert_eq!(place.exit.clients()[0].open, 3);
    let again = request(&headers, Some(&target), payloads::OURS);
    let refused = ask(&session, again.line, again.headers).await.unwrap();
    assert_eq!(refused.status, 503, "as many as there may be");
    socket.sender.close(address(&one)).await.unwrap();
    assert_eq!(socket.ask(Some(&three), b"3").await, Some(address(&three)));
    drop(socket);
    eventually(|| place.exit.clients()[0].open == 0).await;
}

#[tokio::test]
async fn a_dead_remote_end_loses_its_context_alone() {
    let place = Place::open(100);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let gone = dead.local_addr().unwrap().to_string();
    drop(dead);
    let (target, other) = (echo().await, echo().await);
    let mut socket = Socket::open(&session, &headers, Some(&target), false).await;
    assert_eq!(socket.ask(Some(&other), b"a").await, Some(address(&other)));
    let is_closed = |closed: &Closed, _: &[Payload]| !closed.list().is_empty();
    socket.until(Some(&gone), b"anybody?", is_closed).await;
    assert_eq!(socket.closed.list()[0], address(&gone));
    assert_eq!(socket.ask(Some(&other), b"b").await, Some(address(&other)));
    assert_eq!(socket.ask(None, b"c").await, None);
}

#[tokio::test]
async fn without_a_target_and_without_bind_there_is_nothing_to_ask_for() {
    let place = Place::open(100);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let asked = request(&headers, None, Extensions::default());
    let refused = ask(&session, asked.line, asked.headers).await.unwrap();
    assert_eq!(refused.status, 400);
    let mut asked = request(&headers, None, payloads::OURS);
    if let RequestLine::Extended { path, .. } = &mut asked.line {
        *path = path.replace("%2A/%2A", "%2A/53");
    }
    let refused = ask(&session, asked.line, asked.headers).await.unwrap();
    assert_eq!(refused.status, 400, "both or none");
}

#[tokio::test]
async fn capsules_about_contexts_that_break_the_rules_end_their_request_alone() {
    let place = Place::open(100);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let target = echo().await;
    let assign = |context, remote| Capsule::CompressionAssign { context, remote };
    let remote = Some(address(&target));
    for (capsules, code) in [
        (vec![assign(1, remote)], Code::MESSAGE_ERROR),
        (vec![assign(0, None)], Code::MESSAGE_ERROR),
        (vec![assign(2, None), assign(4, None)], Code::MESSAGE_ERROR),
        (
            vec![assign(2, remote), assign(2, None)],
            Code::MESSAGE_ERROR,
        ),
        (
            vec![Capsule::CompressionAck { context: 7 }],
            Code::MESSAGE_ERROR,
        ),
        (
            vec![Capsule::CompressionClose { context: 0 }],
            Code::MESSAGE_ERROR,
        ),
        // Context 0 is for the target, and there is none.
        (
            vec![Capsule::Datagram(Bytes::from_static(&[0, 7]))],
            Code::DATAGRAM_ERROR,
        ),
    ] {
        let asked = request(&headers, None, payloads::OURS);
        let opened = open(&session, asked.line, asked.headers).await;
        let (mut outgoing, mut incoming, response) = opened.unwrap();
        assert_eq!(response.status, 200);
        let mut bytes = Vec::new();
        for one in &capsules {
            one.encode(&mut bytes);
        }
        outgoing.write(data(&[&bytes])).await.unwrap();
        let broken = loop {
            match timeout(END, incoming.next()).await.expect("an end") {
                Ok(_) => {}
                Err(broken) => break broken,
            }
        };
        let is_told = matches!(broken, Broken::GivenUp(it) if it == code);
        assert!(is_told, "{capsules:?}: {broken:?}");
    }
    let mut socket = Socket::open(&session, &headers, Some(&target), false).await;
    assert_eq!(socket.ask(None, b"on").await, None);
}

#[tokio::test]
async fn contexts_and_remote_ends_of_a_hostile_client_are_bounded() {
    let place = Place::open(10_000);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let asked = request(&headers, None, payloads::OURS);
    let opened = open(&session, asked.line, asked.headers).await;
    let (mut outgoing, mut incoming, _) = opened.unwrap();
    let mut bytes = Vec::new();
    for n in 1..=600u16 {
        let remote = SocketAddr::from(([127, 0, 0, 1], n));
        let context = 2 * u64::from(n);
        let remote = Some(remote);
        Capsule::CompressionAssign { context, remote }.encode(&mut bytes);
    }
    outgoing.write(data(&[&bytes])).await.unwrap();
    let (mut reader, mut answers) = (
        anabranch_masque::capsule::Reader::new(Protocol::Udp),
        vec![],
    );
    while answers.len() < 600 {
        match timeout(END, incoming.next())
            .await
            .expect("answers")
            .unwrap()
        {
            Item::Data(bytes) => reader.push(bytes),
            other => panic!("{other:?}"),
        }
        while let Some(anabranch_masque::capsule::Item::Capsule(one)) = reader.poll().unwrap() {
            answers.push(one);
        }
    }
    let is_taken = |one: &&Capsule| matches!(one, Capsule::CompressionAck { .. });
    assert_eq!(answers.iter().filter(is_taken).count(), 256);
    assert_eq!(place.exit.clients()[0].open, 257);
}
