//! A server whose application decides about each client.

use super::*;
use crate::Incoming;
use crate::engine::IncomingPolicy;
use anabranch_proto::wire::TransportErrorCode;

/// A client begins to connect; what the server is asked about it.
async fn asked(
    pair: &Pair,
) -> (
    tokio::task::JoinHandle<Result<Connection, ConnectError>>,
    Incoming,
) {
    let (client, config) = (pair.client.clone(), pair.config.clone());
    let target = pair.target.clone();
    let connecting = tokio::spawn(async move {
        let connected = client.connect(&target, config, &paths(&[])).await;
        connected.map(|(connection, _)| connection)
    });
    let incoming = soon(pair.server.incoming()).await.expect("a client");
    (connecting, incoming)
}

fn asking() -> Pair {
    pair_of(|server| server.incoming = IncomingPolicy::Ask)
}

fn is_refused(connected: Result<Connection, ConnectError>) -> bool {
    let told = format!("{}", connected.expect_err("a refusal"));
    told.contains(&TransportErrorCode::CONNECTION_REFUSED.to_string())
}

#[tokio::test]
async fn a_client_that_is_accepted_connects_and_is_not_offered_again() {
    let pair = asking();
    let (connecting, incoming) = asked(&pair).await;
    assert!(incoming.remote_addr().ip().is_loopback());
    let server = incoming.accept().expect("a connection");
    soon(server.established()).await.expect("established");
    let client = soon(connecting).await.unwrap().expect("connected");
    let echo = tokio::spawn(echo(server));
    let data = pattern(100_000);
    assert_eq!(soon(round_trip(&client, &data)).await, data);
    soon(echo).await.unwrap();
    let again = std::pin::pin!(pair.server.accept());
    let again = futures_util::poll!(again);
    assert!(again.is_pending(), "it has its connection");
}

#[tokio::test]
async fn a_client_that_is_refused_or_forgotten_about_is_told() {
    let pair = asking();
    let (connecting, incoming) = asked(&pair).await;
    incoming.refuse();
    assert!(is_refused(soon(connecting).await.unwrap()));
    let (connecting, incoming) = asked(&pair).await;
    drop(incoming);
    assert!(is_refused(soon(connecting).await.unwrap()));
}

#[tokio::test]
async fn a_client_told_to_retry_connects_with_a_proof() {
    let pair = asking();
    let (connecting, incoming) = asked(&pair).await;
    assert!(!incoming.is_validated());
    incoming.retry().expect("it may be told to");
    let again = soon(pair.server.incoming()).await.expect("the client");
    assert!(again.is_validated());
    assert!(!again.may_retry());
    let server = again.accept().expect("a connection");
    soon(server.established()).await.expect("established");
    soon(connecting).await.unwrap().expect("connected");
}
