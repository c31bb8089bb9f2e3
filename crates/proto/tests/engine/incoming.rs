//! A server whose application decides about each client.

use crate::pair::{Pair, Way, tls_pair};
use anabranch_proto::config::{ClientConfig, IncomingPolicy, ServerConfig, TransportConfig};
use anabranch_proto::connection::Connection;
use anabranch_proto::endpoint::{AcceptError, Incoming};
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::Event;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::TransportErrorCode;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// A client on its way to a server with this policy.
fn pair(policy: IncomingPolicy) -> Pair {
    let (client, server) = tls_pair();
    let mut server = ServerConfig::new(server);
    server.incoming = policy;
    Pair::with_configs(vec![Way::new(0)], ClientConfig::new(client), server)
}

/// Waits for a client that asks.
fn asked(pair: &mut Pair) -> Incoming {
    let mut incoming = None;
    pair.run_until(LIMIT, |pair| {
        incoming = pair.server.poll_incoming();
        incoming.is_some()
    });
    incoming.expect("a client")
}

fn confirmed_at(pair: &mut Pair) -> Instant {
    let mut at = None;
    pair.run_until(LIMIT, |pair| {
        let mut events = pair.client_events.iter();
        let confirmed = events.find(|(_, event)| *event == Event::Confirmed);
        at = confirmed.map(|(at, _)| *at);
        at.is_some()
    });
    at.expect("a connection")
}

fn is_refused(pair: &Pair) -> bool {
    pair.client_events.iter().any(|(_, event)| {
        matches!(event, Event::Closed(ConnectionError::PeerClosed(error))
            if error.code == TransportErrorCode::CONNECTION_REFUSED)
    })
}

#[test]
fn a_client_that_is_accepted_at_once_connects_as_fast_as_without_being_asked_for() {
    let without = confirmed_at(&mut pair(IncomingPolicy::Accept));
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    assert_eq!(incoming.remote(), pair.ways[0].server.remote);
    assert!(!incoming.is_validated());
    assert_eq!(pair.server.connections().count(), 0);
    pair.server
        .accept(pair.now, incoming, None)
        .expect("a connection");
    assert_eq!(confirmed_at(&mut pair), without);
}

#[test]
fn a_client_that_waits_for_its_answer_has_lost_nothing_by_it() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    pair.run_for(Duration::from_secs(3));
    assert!(
        pair.server.poll_incoming().is_none(),
        "it repeats itself, and is one client"
    );
    pair.server
        .accept(pair.now, incoming, None)
        .expect("a connection");
    let answered = pair.now;
    let took = confirmed_at(&mut pair).since(answered);
    assert!(
        took <= Duration::from_millis(40),
        "{took:?} for a round trip and a half of 20 ms"
    );
}

#[test]
fn a_client_may_get_other_settings_than_the_server_has_for_all() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    let (_, tls) = tls_pair();
    let mut config = ServerConfig::new(tls);
    config.transport = Arc::new(TransportConfig {
        max_paths: 0,
        ..TransportConfig::default()
    });
    let config = Some(Arc::new(config));
    pair.server
        .accept(pair.now, incoming, config)
        .expect("a connection");
    pair.connect();
    assert!(!pair.client_conn().has_multipath());
}

#[test]
fn a_refused_client_is_told() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    pair.server.refuse(pair.now, incoming).expect("it waits");
    assert!(
        pair.run_until(LIMIT, |pair| is_refused(pair)),
        "{:?}",
        pair.client_events
    );
    assert_eq!(pair.server.connections().count(), 0);
}

#[test]
fn a_client_told_to_retry_comes_back_proven_and_may_not_be_told_twice() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    assert!(incoming.may_retry());
    pair.server.retry(pair.now, incoming).expect("it waits");
    let again = asked(&mut pair);
    assert!(again.is_validated());
    assert!(!again.may_retry());
    pair.server
        .accept(pair.now, again, None)
        .expect("a connection");
    pair.connect();

    let mut pair = self::pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    pair.server.retry(pair.now, incoming).expect("it waits");
    let again = asked(&mut pair);
    let refused = pair.server.retry(pair.now, again);
    assert_eq!(refused, Err(AcceptError::RetriedBefore));
}

#[test]
fn an_ignored_client_hears_nothing_and_asks_again() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    pair.server.ignore(incoming);
    assert!(
        pair.server
            .poll_transmit(pair.now, 1, &mut Vec::new())
            .is_none()
    );
    let again = asked(&mut pair);
    pair.server
        .accept(pair.now, again, None)
        .expect("a connection");
    pair.connect();
}

#[test]
fn a_client_that_is_not_answered_is_forgotten_after_ten_seconds() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    let due = pair.server.next_timeout().expect("a deadline");
    assert_eq!(due, pair.now + Duration::from_secs(10));
    pair.server.handle_timeout(due);
    assert_eq!(pair.server.next_timeout(), None);
    let late = pair.server.accept(due, incoming, None);
    assert_eq!(late, Err(AcceptError::Forgotten));
}

#[test]
fn a_server_that_accepts_nobody_any_more_forgets_who_waits() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    pair.server.set_server(None);
    let late = pair.server.accept(pair.now, incoming, None);
    assert_eq!(late, Err(AcceptError::Forgotten));
    assert_eq!(pair.server.next_timeout(), None);
}

#[test]
fn a_client_beyond_the_limit_is_refused_although_it_was_asked_for_before() {
    let mut pair = pair(IncomingPolicy::Ask);
    let incoming = asked(&mut pair);
    let (_, tls) = tls_pair();
    let mut full = ServerConfig::new(tls);
    full.max_connections = 0;
    let refused = pair.server.accept(pair.now, incoming, Some(Arc::new(full)));
    assert_eq!(refused, Err(AcceptError::TooMany));
    assert!(pair.run_until(LIMIT, |pair| is_refused(pair)));
}

#[test]
fn both_sides_are_told_once_that_the_handshake_is_confirmed() {
    let mut pair = pair(IncomingPolicy::Accept);
    pair.connect();
    pair.run_for(Duration::from_secs(1));
    for events in [&pair.client_events, &pair.server_events] {
        let events = events.iter().map(|(_, event)| event);
        let connected = events.clone().position(|event| *event == Event::Connected);
        let confirmed: Vec<usize> = events
            .enumerate()
            .filter(|(_, event)| **event == Event::Confirmed)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(confirmed.len(), 1);
        assert!(connected.expect("an event") < confirmed[0]);
    }
    assert!(
        pair.client
            .connections()
            .all(|(_, it)| Connection::is_confirmed(it))
    );
}
