//! Sessions that are resumed between this engine and quinn, and data before the handshake ends.
//!
//! One thread: no driver completes a handshake between two steps of a test.
//!
//! `cargo test --workspace --test quinn_resumption`.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod ours;

use anabranch_interop::quinn_peer::{self, Early, Visitor};
use anabranch_interop::{ALPN, Answer, Request, SERVER_NAME, ServeConfig, service};
use anabranch_net::engine::{ClientConfig, Resume, ResumptionState, tls};
use anabranch_net::identity::provider;
use anabranch_net::sockets::SocketConfig;
use anabranch_net::{Connection, Endpoint};
use ours::{Server, loopback, soon};
use std::net::SocketAddr;
use std::time::Duration;

/// Large enough for several packets, and for several windows of them.
const REQUESTS: [Request; 2] = [Request::Get(100_000), Request::Put(200_000)];

/// A client of ours that keeps what its connections leave behind.
struct OurVisitor {
    endpoint: Endpoint,
    server: SocketAddr,
    config: ClientConfig,
}

impl OurVisitor {
    fn new(server: &anabranch_interop::Server) -> Self {
        let pin = tls::Fingerprint(server.fingerprint());
        let tls = tls::ClientTls::pinned_certificate(provider(), pin).alpn(&[ALPN]);
        Self {
            endpoint: Endpoint::client().unwrap(),
            server: server.addr(),
            config: ClientConfig::new(tls.resumption(true).build().unwrap()),
        }
    }

    fn begin(&self, state: Option<ResumptionState>) -> Connection {
        let socket = SocketConfig::path(loopback(1), None);
        let socket = self.endpoint.add_socket(&socket).unwrap();
        let config = ClientConfig {
            resume: state.map(|state| Resume {
                state,
                age: Duration::ZERO,
                early_data: true,
            }),
            ..self.config.clone()
        };
        let begun = self
            .endpoint
            .begin_over(socket, self.server, SERVER_NAME, config);
        begun.unwrap()
    }

    /// A visit like any other, and what it leaves behind.
    async fn visit(&self) -> ResumptionState {
        let connection = self.begin(None);
        soon(connection.established()).await.unwrap();
        ask(&connection, Request::Get(1000)).await;
        soon(connection.resumable()).await;
        assert!(!connection.is_resumed());
        let state = connection.take_resumption().unwrap();
        // It survives being stored.
        ResumptionState::decode(&state.encode()).unwrap()
    }
}

async fn ask(connection: &Connection, request: Request) {
    let (send, receive) = soon(connection.open_bi()).await.unwrap();
    let answer = soon(service::ask(request, receive, send)).await.unwrap();
    assert_eq!(answer, Answer::expected(request));
}

async fn quinn_server(early_data: bool) -> anabranch_interop::Server {
    let config = ServeConfig {
        early_data,
        ..ServeConfig::default()
    };
    quinn_peer::serve(&config).await.unwrap()
}

#[tokio::test]
async fn quinn_reads_what_our_client_sends_before_the_handshake_ends() {
    let server = quinn_server(true).await;
    let client = OurVisitor::new(&server);
    for request in REQUESTS {
        let state = client.visit().await;
        let connection = client.begin(Some(state));
        assert!(connection.may_send_early_data());
        ask(&connection, request).await;
        soon(connection.established()).await.unwrap();
        assert!(connection.is_resumed());
        assert_eq!(connection.early_data_accepted(), Some(true));
    }
}

#[tokio::test]
async fn our_client_resumes_with_a_quinn_server_that_reads_no_early_data() {
    let server = quinn_server(false).await;
    let client = OurVisitor::new(&server);
    let state = client.visit().await;
    let connection = client.begin(Some(state));
    assert!(!connection.may_send_early_data());
    soon(connection.established()).await.unwrap();
    assert!(connection.is_resumed());
    ask(&connection, REQUESTS[0]).await;
}

#[tokio::test]
async fn what_a_quinn_server_does_not_read_of_our_early_data_is_sent_again() {
    let server = quinn_server(true).await;
    let client = OurVisitor::new(&server);
    let state = client.visit().await;
    let first = client.begin(Some(state.clone()));
    ask(&first, REQUESTS[0]).await;
    // quinn's tickets are good once, as ours are.
    for request in REQUESTS {
        let again = client.begin(Some(state.clone()));
        assert!(again.may_send_early_data());
        ask(&again, request).await;
        soon(again.established()).await.unwrap();
        assert_eq!(again.early_data_accepted(), Some(false));
    }
}

#[tokio::test]
async fn our_server_reads_what_quinn_sends_before_the_handshake_ends() {
    let mut server = Server::resuming();
    let client = Visitor::new(&server.ask(Request::Get(0))).unwrap();
    let first = Request::Get(1000);
    let answer = soon(client.visit(first)).await.unwrap();
    assert_eq!(answer, Answer::expected(first));
    assert!(!server.accepted().await.is_resumed());
    for request in REQUESTS {
        let early = soon(client.visit_early(request)).await.unwrap();
        let expected = Early {
            answer: Answer::expected(request),
            is_accepted: true,
        };
        assert_eq!(early, expected);
        let accepted = server.accepted().await;
        assert!(accepted.is_resumed());
    }
}

#[tokio::test]
async fn quinn_is_served_all_the_same_by_a_server_of_ours_that_forgot_it() {
    let mut server = Server::resuming();
    let client = Visitor::new(&server.ask(Request::Get(0))).unwrap();
    soon(client.visit(Request::Get(1000))).await.unwrap();
    server.accepted().await;
    for request in REQUESTS {
        server.forget_sessions();
        let early = soon(client.visit_early(request)).await.unwrap();
        let expected = Early {
            answer: Answer::expected(request),
            is_accepted: false,
        };
        assert_eq!(early, expected);
        assert!(!server.accepted().await.is_resumed());
    }
}
