//! An exit against clients that break its rules, over loopback.

mod bind;
mod classes;
mod early;
mod expired;
mod foreign;
mod rules;
mod socks;
mod stalled;
mod udp;

use crate::exit::{Exit, Permissions};
use crate::identity::{INVITATION, Secret, Store};
use crate::refusal::Refusal;
use crate::session::{Broken, Incoming, Outgoing, Session};
use anabranch_masque::stream::Item;
use anabranch_masque::{Code, Headers, Request, RequestLine, Response, Settings};
use anabranch_net::engine::tls::{self, Fingerprint};
use anabranch_net::engine::{ConnectionError, TransportConfig};
use anabranch_net::identity::provider;
use anabranch_net::{Connection, Endpoint, Identity, PathManager, PathsConfig, Target, defaults};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// An exit that leads to 127.0.0.1, and what it takes to reach it.
struct Place {
    exit: Arc<Exit>,
    identity: Identity,
    remotes: Vec<SocketAddr>,
    state: TempDir,
}

impl Place {
    fn open(max_flows: usize) -> Self {
        let state = tempfile::tempdir().unwrap();
        let identity = Identity::generate().unwrap();
        let endpoint = server(&identity, crate::far_transport());
        let remotes = endpoint.local_addrs();
        let permissions = Permissions {
            allow: vec!["127.0.0.1".parse().unwrap()],
            max_flows,
        };
        let store = Store::open(state.path()).unwrap();
        let exit = Arc::new(Exit::new(store, permissions, "test"));
        let running = Arc::clone(&exit);
        tokio::spawn(async move { running.run(&endpoint).await });
        Self {
            exit,
            identity,
            remotes,
            state,
        }
    }

    async fn visit(&self) -> Session {
        let connection = self.connect().await;
        Session::start(connection, Settings::OURS).await.unwrap()
    }

    async fn connect(&self) -> Connection {
        connect_to(&self.remotes, self.identity.fingerprint())
            .await
            .0
    }

    /// Lets a client in; returns what it shows from then on.
    async fn let_in(&self, session: &Session) -> Headers {
        let credential = Secret::credential().unwrap();
        let headers = showing(&credential);
        let mut first = headers.clone();
        first.push(
            INVITATION,
            self.exit.invite().await.unwrap().as_str().to_owned(),
        );
        let joined = ask(session, other("POST", crate::JOIN_PATH), first)
            .await
            .unwrap();
        assert_eq!(joined.status, 200);
        headers
    }
}

/// An endpoint on loopback that speaks HTTP/3 as `localhost`.
fn server(identity: &Identity, transport: TransportConfig) -> Endpoint {
    let tls = identity.server(&["localhost"]).unwrap();
    let mut config = defaults::server(tls.alpn(&[b"h3"]).build().unwrap());
    config.transport = Arc::new(transport);
    Endpoint::server(config, &["127.0.0.1:0".parse().unwrap()]).unwrap()
}

async fn connect_to(remotes: &[SocketAddr], fingerprint: Fingerprint) -> (Connection, PathManager) {
    connect_with(crate::near_transport(), remotes, fingerprint).await
}

async fn connect_with(
    transport: TransportConfig,
    remotes: &[SocketAddr],
    fingerprint: Fingerprint,
) -> (Connection, PathManager) {
    let tls = tls::ClientTls::pinned(provider(), fingerprint);
    let mut config = defaults::client(tls.alpn(&[b"h3"]).build().unwrap());
    config.transport = Arc::new(transport);
    let target = Target {
        name: "localhost".into(),
        remotes: remotes.to_vec(),
    };
    let endpoint = Endpoint::client().unwrap();
    let paths = PathsConfig::default();
    let connected = endpoint.connect(&target, config, &paths).await;
    connected.unwrap()
}

fn showing(credential: &Secret) -> Headers {
    Headers::new().with("authorization", format!("Bearer {}", credential.as_str()))
}

fn other(method: &str, path: &str) -> RequestLine {
    RequestLine::Other {
        method: method.into(),
        scheme: "https".into(),
        authority: Some("test".into()),
        path: path.into(),
    }
}

fn connect(authority: &str) -> RequestLine {
    RequestLine::Connect {
        authority: authority.into(),
    }
}

async fn open(
    session: &Session,
    line: RequestLine,
    headers: Headers,
) -> Result<(Outgoing, Incoming, Response), Broken> {
    let (outgoing, mut incoming) = session.request(&Request { line, headers }).await?;
    let response = timeout(END, incoming.response())
        .await
        .expect("an answer")?;
    Ok((outgoing, incoming, response))
}

async fn ask(session: &Session, line: RequestLine, headers: Headers) -> Result<Response, Broken> {
    open(session, line, headers)
        .await
        .map(|(_, _, response)| response)
}

async fn ended(session: &Session) -> ConnectionError {
    timeout(END, session.connection().closed())
        .await
        .expect("an end")
}

fn code(error: &ConnectionError) -> Option<u64> {
    match error {
        ConnectionError::ApplicationClosed { code, .. } => Some(*code),
        _ => None,
    }
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_answered_and_the_connection_goes_on() {
    let place = Place::open(10);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let status = async |line| ask(&session, line, headers.clone()).await.unwrap().status;
    for authority in ["nowhere", "a:0", "127.1:80", "[::1:80", "a:b:c"] {
        assert_eq!(status(connect(authority)).await, 400, "{authority}");
    }
    assert_eq!(status(other("GET", "/")).await, 404);
    let extended = RequestLine::Extended {
        protocol: "websocket".into(),
        scheme: "https".into(),
        authority: "test".into(),
        path: "/".into(),
    };
    assert_eq!(status(extended).await, 501);
    assert_eq!(status(other("POST", crate::JOIN_PATH)).await, 200);
}

#[tokio::test]
async fn an_exit_that_leaves_tells_all_and_ends_with_the_last_flow_or_when_it_is_late() {
    let place = Place::open(10);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let flow = open(&session, connect(&target), headers.clone()).await;
    assert_eq!(place.exit.drain(END * 10), 1, "one flow is open");
    let left = timeout(END, session.left()).await;
    left.expect("it is told");
    let late = place.visit().await;
    let left = timeout(END, late.left()).await;
    left.expect("who comes later is told, too");
    let (mut outgoing, incoming, response) = flow.unwrap();
    assert_eq!(response.status, 200);
    let (_asking, answer, second) = open(&session, connect(&target), headers).await.unwrap();
    assert_eq!(second.status, 200, "nothing is refused");
    let mut drained = Box::pin(place.exit.drained());
    let early = timeout(Duration::from_millis(500), &mut drained).await;
    early.expect_err("flows are open");
    outgoing.reset(Code::REQUEST_CANCELLED);
    drop(incoming);
    let early = timeout(Duration::from_millis(500), &mut drained).await;
    early.expect_err("another one is open");
    place.exit.drain(Duration::ZERO);
    timeout(END, drained).await.expect("it waits no longer");
    drop(answer);
}

#[tokio::test]
async fn a_megabyte_of_header_fields_ends_its_request_alone() {
    let place = Place::open(10);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let large = headers.clone().with("x", "y".repeat(1 << 20));
    let broken = ask(&session, connect("127.0.0.1:9"), large)
        .await
        .unwrap_err();
    let is_told = matches!(broken, Broken::GivenUp(Code::EXCESSIVE_LOAD));
    assert!(is_told, "{broken:?}");
    let joined = ask(&session, other("POST", crate::JOIN_PATH), headers).await;
    assert_eq!(joined.unwrap().status, 200);
}

#[tokio::test]
async fn who_proves_nothing_learns_nothing_and_not_often() {
    let place = Place::open(10);
    let session = place.visit().await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        let wrong = showing(&Secret::credential().unwrap());
        match ask(&session, connect("127.0.0.1:9"), wrong).await {
            Ok(response) => statuses.push(response.status),
            Err(_) => break,
        }
    }
    assert!(statuses.len() < 20 && statuses.iter().all(|status| *status == 401));
    let code = code(&ended(&session).await);
    assert_eq!(code, Some(Code::EXCESSIVE_LOAD.0));
    let session = place.visit().await;
    let bare = ask(&session, other("GET", "/"), Headers::new())
        .await
        .unwrap();
    assert_eq!(bare.status, 401, "not even what is there");
}

#[tokio::test]
async fn a_connection_belongs_to_who_came_first() {
    let place = Place::open(10);
    let session = place.visit().await;
    place.let_in(&session).await;
    let elsewhere = place.visit().await;
    let others = place.let_in(&elsewhere).await;
    let response = ask(&session, other("POST", crate::JOIN_PATH), others)
        .await
        .unwrap();
    assert_eq!(response.status, 401);
}

#[tokio::test]
async fn a_client_has_no_more_connections_than_it_may() {
    let place = Place::open(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let first = open(&session, connect(&address), headers.clone())
        .await
        .unwrap();
    assert_eq!(first.2.status, 200);
    let refused = ask(&session, connect(&address), headers.clone())
        .await
        .unwrap();
    assert_eq!(refused.status, 503);
    drop(first);
    let freed = async {
        while ask(&session, connect(&address), headers.clone())
            .await
            .unwrap()
            .status
            != 200
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(END, freed)
        .await
        .expect("the place of the first is free again");
}

#[tokio::test]
async fn frames_that_a_tunnel_cannot_have_end_the_connection() {
    let place = Place::open(10);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let (mut outgoing, _incoming, response) =
        open(&session, connect(&address), headers).await.unwrap();
    assert_eq!(response.status, 200);
    let mut socket = listener.accept().await.unwrap().0;
    outgoing
        .head(&Response::new(200).to_fields())
        .await
        .unwrap();
    assert_eq!(code(&ended(&session).await), Some(Code::FRAME_UNEXPECTED.0));
    let error = socket.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn who_is_revoked_loses_everything_at_once() {
    let place = Place::open(10);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let (_outgoing, mut incoming, _) = open(&session, connect(&address), headers.clone())
        .await
        .unwrap();
    let mut socket = listener.accept().await.unwrap().0;
    socket.write_all(b"x").await.unwrap();
    assert!(matches!(incoming.next().await, Ok(Item::Data(_))));
    place.exit.revoke("unnamed").await.unwrap();
    assert_eq!(code(&ended(&session).await), Some(Code::REQUEST_REJECTED.0));
    assert!(socket.read_u8().await.is_err());
    let session = place.visit().await;
    let again = ask(&session, connect(&address), headers).await.unwrap();
    assert_eq!(again.status, 401);
}

#[tokio::test]
async fn behind_the_end_of_a_message_there_is_nothing() {
    let place = Place::open(10);
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let (_outgoing, mut incoming, _) = open(&session, other("GET", "/"), headers).await.unwrap();
    assert!(matches!(incoming.next().await, Ok(Item::End)));
    for _ in 0..2 {
        let next = timeout(END, incoming.next()).await.expect("an answer");
        assert!(matches!(next, Err(Broken::Ended)), "{next:?}");
    }
}

#[tokio::test]
async fn an_exit_that_cannot_write_down_whom_it_lets_in_says_so_and_is_asked_again() {
    let place = Place::open(10);
    let session = place.visit().await;
    let credential = Secret::credential().unwrap();
    let mut first = showing(&credential);
    first.push(
        INVITATION,
        place.exit.invite().await.unwrap().as_str().to_owned(),
    );
    // A directory in the place of the file that is written first: as good as a full disk.
    let obstacle = place.state.path().join("tunnel-clients.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let join = async || ask(&session, other("POST", crate::JOIN_PATH), first.clone()).await;
    let refused = join().await.unwrap();
    assert_eq!(refused.status, 503);
    assert_eq!(Refusal::of(&refused), Refusal::NotRecorded);
    std::fs::remove_dir(&obstacle).unwrap();
    assert_eq!(
        join().await.unwrap().status,
        200,
        "the invitation still counts"
    );
}

#[tokio::test]
async fn of_two_clients_that_prove_themselves_at_once_one_has_the_connection() {
    let place = Place::open(10);
    let elsewhere = place.visit().await;
    let first = place.let_in(&elsewhere).await;
    let elsewhere = place.visit().await;
    let second = place.let_in(&elsewhere).await;
    for _ in 0..8 {
        let session = place.visit().await;
        let join = async |headers: &Headers| {
            let asked = ask(&session, other("POST", crate::JOIN_PATH), headers.clone());
            asked.await.unwrap().status
        };
        let mut statuses = <[u16; 2]>::from(tokio::join!(join(&first), join(&second)));
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401]);
    }
}

#[tokio::test]
async fn a_host_that_breaks_off_after_its_end_is_noticed_while_nothing_is_sent_to_it() {
    let place = Place::open(10);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let session = place.visit().await;
    let headers = place.let_in(&session).await;
    let (_outgoing, mut incoming, _) = open(&session, connect(&address), headers).await.unwrap();
    let mut socket = listener.accept().await.unwrap().0;
    socket.shutdown().await.unwrap();
    let end = timeout(END, incoming.next()).await.expect("its end");
    assert!(matches!(end, Ok(Item::End)), "{end:?}");
    socket.set_zero_linger().unwrap();
    drop(socket);
    let is_noticed = async {
        while place.exit.clients()[0].open > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(END, is_noticed).await.expect("the flow ends");
}
