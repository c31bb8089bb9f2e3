//! Payloads and bytes that leave with the request of their flow, before its answer.

use super::classes::why;
use super::socks::{Client, Near};
use super::udp::echo;
use super::*;
use crate::entry::{Entrance, Invited};
use crate::identity::Kept;
use anabranch_masque::Protocol;
use anabranch_masque::capsule::{self, Capsule};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// What came with or behind requests: payloads of UDP, or bytes of TCP.
type Heard = mpsc::UnboundedReceiver<Bytes>;

/// How a far end of these tests answers requests for targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Not at all.
    Silent,
    /// It refuses once it has something of what comes behind the request.
    Refuses,
    /// It answers none of the first connection, which it closes as soon as it knows what is asked
    /// and has what comes with it, if that is UDP; then all.
    Forgetful,
    /// It does the same once it has something of what comes behind the request.
    ForgetfulLater,
    /// It answers all.
    Answers,
}

impl Manner {
    /// Of another connection than the first.
    fn later(self) -> Self {
        match self {
            Self::Forgetful | Self::ForgetfulLater => Self::Answers,
            other => other,
        }
    }

    fn forgets(self) -> bool {
        matches!(self, Self::Forgetful | Self::ForgetfulLater)
    }
}

/// A far end that lets everybody in and hands over what comes.
fn far_end(identity: &Identity, manner: Manner) -> (Vec<SocketAddr>, Heard) {
    let endpoint = server(identity, defaults::transport());
    let (remotes, (told, heard)) = (endpoint.local_addrs(), mpsc::unbounded_channel());
    tokio::spawn(async move {
        let mut manner = manner;
        loop {
            let connection = endpoint.accept().await.unwrap();
            let session = Session::start(connection, Settings::OURS).await.unwrap();
            while let Ok(ends) = session.accept().await {
                let (connection, told) = (session.connection().clone(), told.clone());
                tokio::spawn(async move {
                    let is_over = attend(ends, manner, &told).await;
                    if manner.forgets() && matches!(is_over, Ok(true)) {
                        crate::session::close(&connection, Code::INTERNAL_ERROR, "it forgot");
                    }
                });
            }
            manner = manner.later();
        }
    });
    (remotes, heard)
}

/// Returns whether something was asked for that has no answer.
async fn attend(
    (mut outgoing, mut incoming): (Outgoing, Incoming),
    manner: Manner,
    told: &mpsc::UnboundedSender<Bytes>,
) -> Result<bool, Broken> {
    let request = Request::from_fields(incoming.head().await?).unwrap();
    if let RequestLine::Other { .. } = request.line {
        outgoing.answer(incoming, &Response::new(200)).await?;
        return Ok(false);
    }
    let is_tcp = matches!(request.line, RequestLine::Connect { .. });
    if manner == Manner::Answers {
        let mut response = Response::new(200);
        if !is_tcp {
            response.headers.push("capsule-protocol", "?1");
        }
        outgoing.head(&response.to_fields()).await?;
    } else if is_tcp && manner == Manner::Forgetful {
        return Ok(true);
    }
    let mut capsules = capsule::Reader::new(Protocol::Udp);
    while let Item::Data(bytes) = incoming.next().await? {
        if is_tcp {
            let _ = told.send(bytes);
        } else {
            capsules.push(bytes);
            while let Some(item) = capsules.poll().unwrap() {
                if let capsule::Item::Capsule(Capsule::Datagram(payload)) = item {
                    let _ = told.send(payload);
                }
            }
        }
        match manner {
            Manner::Answers | Manner::Silent => {}
            Manner::Refuses => {
                let refusal = Refusal::ConnectionRefused.response();
                outgoing.answer(incoming, &refusal).await?;
                return Ok(false);
            }
            Manner::Forgetful | Manner::ForgetfulLater => return Ok(true),
        }
    }
    outgoing.finish();
    Ok(false)
}

pub(super) async fn near_to(
    remotes: Vec<SocketAddr>,
    identity: &Identity,
    state: &TempDir,
) -> Near {
    let fingerprint = identity.fingerprint();
    let entrance = Entrance::Exit(Invited {
        kept: Kept::in_directory(state.path()),
        server: fingerprint.to_string(),
        invitation: Some(Secret::credential().unwrap()),
        name: "test".into(),
    });
    Near::enter(remotes, fingerprint, entrance, |_| {}).await
}

async fn next(heard: &mut Heard) -> Bytes {
    let next = timeout(END, heard.recv()).await;
    next.expect("it comes in time").unwrap()
}

/// Nothing more is heard although there was time for it.
async fn assert_silent(heard: &mut Heard) {
    let more = timeout(Duration::from_millis(300), heard.recv()).await;
    more.expect_err("once");
}

#[tokio::test]
async fn what_a_host_has_sent_does_not_wait_for_the_answer_to_its_request() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::Silent);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let client = Client::open(&near, true).await;
    client.send("192.0.2.1:53", b"question").await;
    // Context 0, in which a payload has nothing before it (RFC 9298, section 5).
    assert_eq!(&next(&mut heard).await[..], b"\0question");
}

#[tokio::test]
async fn bytes_of_tcp_are_sent_once_although_their_request_was_lost_and_repeated() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::Forgetful);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let mut host = TcpStream::connect(near.proxy).await.unwrap();
    let request = b"CONNECT 192.0.2.1:443 HTTP/1.1\r\n\r\nhello";
    host.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    let read = timeout(END, host.read_exact(&mut answer)).await;
    read.expect("an answer").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert_eq!(&next(&mut heard).await[..], b"hello");
    assert_silent(&mut heard).await;
}

/// A host that was captured, and the near end's task that carries its connection.
async fn captured(near: &Near) -> (TcpStream, tokio::task::JoinHandle<std::io::Result<()>>) {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = TcpStream::connect(door.local_addr().unwrap()).await;
    let (socket, entry) = (door.accept().await.unwrap().0, Arc::clone(&near.entry));
    let target = "192.0.2.1:443".parse().unwrap();
    let carried = tokio::spawn(async move { entry.carry_captured(socket, target).await });
    (host.unwrap(), carried)
}

/// What a host learns that reads on.
async fn ended(host: &mut TcpStream) -> std::io::Result<usize> {
    let mut buffer = [0];
    let read = timeout(END, host.read(&mut buffer));
    read.await.expect("it ends in time")
}

#[tokio::test]
async fn what_a_captured_host_sends_does_not_wait_for_its_target() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::Silent);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let (mut host, _carried) = captured(&near).await;
    for words in [&b"hello"[..], b"and more"] {
        host.write_all(words).await.unwrap();
        assert_eq!(&next(&mut heard).await[..], words);
    }
}

#[tokio::test]
async fn a_captured_host_whose_bytes_went_ahead_is_reset_when_its_target_refuses() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::Refuses);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let (mut host, carried) = captured(&near).await;
    host.write_all(b"hello").await.unwrap();
    assert_eq!(&next(&mut heard).await[..], b"hello");
    let reset = ended(&mut host).await.map_err(|error| error.kind());
    assert_eq!(reset, Err(std::io::ErrorKind::ConnectionReset));
    carried.await.unwrap().unwrap();
    assert_eq!(near.entry.refused_flows(), 1);
    let flow = why(&near, "192.0.2.1:443").await;
    assert_eq!(
        flow.end.as_deref(),
        Some("the target refuses the connection")
    );
}

/// The target may have had them.
#[tokio::test]
async fn bytes_that_went_ahead_of_an_answer_are_not_sent_again_on_the_next_connection() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::ForgetfulLater);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let (mut host, _carried) = captured(&near).await;
    host.write_all(b"hello").await.unwrap();
    assert_eq!(&next(&mut heard).await[..], b"hello");
    ended(&mut host).await.unwrap_err();
    assert_silent(&mut heard).await;
}

#[tokio::test]
async fn a_captured_host_that_waits_for_its_target_is_asked_for_again_when_the_tunnel_breaks() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::Forgetful);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let (mut host, _carried) = captured(&near).await;
    let opened = async {
        while near.entry.opened_flows() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(END, opened).await.expect("it is granted in time");
    host.write_all(b"hello").await.unwrap();
    assert_eq!(&next(&mut heard).await[..], b"hello");
}

/// As nobody knows whether it arrived: hosts expect of UDP that a datagram may come twice, and wait
/// for seconds if it does not come at all.
#[tokio::test]
async fn a_first_datagram_whose_request_was_lost_goes_again_with_the_next_one_and_no_more() {
    let identity = Identity::generate().unwrap();
    let (remotes, mut heard) = far_end(&identity, Manner::Forgetful);
    let state = tempfile::tempdir().unwrap();
    let near = near_to(remotes, &identity, &state).await;
    let client = Client::open(&near, true).await;
    client.send("192.0.2.1:53", b"question").await;
    for _ in ["on the lost connection", "on the next one"] {
        assert_eq!(&next(&mut heard).await[..], b"\0question");
    }
    assert_silent(&mut heard).await;
}

/// Far more than waits anywhere between a client and its near end.
const MUCH: usize = 64 << 20;

#[tokio::test]
async fn a_target_that_refuses_while_its_client_writes_is_told_as_refused() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = closed.local_addr().unwrap();
    drop(closed);
    let host = TcpStream::connect(near.proxy).await.unwrap();
    let (mut read, mut write) = host.into_split();
    let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    write.write_all(request.as_bytes()).await.unwrap();
    let writing = tokio::spawn(async move {
        let bytes = vec![7; 64 << 10];
        for _ in 0..MUCH / bytes.len() {
            // That nobody reads any more is an error, which is no matter.
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        write
    });
    let mut answer = Vec::new();
    let told = timeout(END, async {
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(read.read_u8().await.unwrap());
        }
    });
    told.await.expect("it is told in time");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("error=connection_refused"), "{answer}");
    timeout(END, writing).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_target_that_is_refused_with_its_first_datagram_ends_the_flow_as_refused() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let target = "10.255.255.1:53";
    client.send(target, b"question").await;
    let refused = async {
        while near.entry.refused_flows() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(END, refused).await.expect("it is refused in time");
    let flow = why(&near, target).await;
    let datagrams = flow.datagrams.unwrap();
    assert_eq!((flow.up_bytes, datagrams.up), (0, 0), "nothing was carried");
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
