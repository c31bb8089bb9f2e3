//! Both sides give up paths, and not the same ones.

#![allow(
    clippy::print_stdout,
    reason = "measurements are shown beside their bounds"
)]

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::Event;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{PathId, TransportErrorCode};
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn connected(ways: usize) -> Pair {
    let way = |index| Way::new(index as u16).rate(20 * MBIT).queue_ms(50);
    let mut pair = Pair::new((1..=ways).map(way).collect(), TransportConfig::default());
    pair.connect();
    pair.open_all();
    pair.run_for(ms(300));
    pair
}

/// How and when a side ended.
fn end(events: &[(Instant, Event)]) -> Option<(Instant, ConnectionError)> {
    events.iter().find_map(|(at, event)| match event {
        Event::Closed(error) => Some((*at, error.clone())),
        _ => None,
    })
}

fn abandon(pair: &mut Pair, server: bool, id: u32) {
    let now = pair.now;
    let side = pair.side(server).expect("a connection");
    side.abandon_path(now, PathId(id), 0x3e)
        .expect("another path is known to work");
}

/// How long the slower side needs to learn that the connection is over.
fn time_to_end(pair: &mut Pair, limit: Duration) -> Option<Duration> {
    let start = pair.now;
    pair.run_until(limit, |pair| {
        end(&pair.client_events).is_some() && end(&pair.server_events).is_some()
    });
    let (client, server) = (end(&pair.client_events)?, end(&pair.server_events)?);
    println!("client {:?}, server {:?}", client.1, server.1);
    for (_, error) in [&client, &server] {
        let code = match error {
            ConnectionError::Transport(error) | ConnectionError::PeerClosed(error) => error.code,
            error => panic!("{error}"),
        };
        assert_eq!(code, TransportErrorCode::NO_VIABLE_PATH);
    }
    Some(client.0.max(server.0).since(start))
}

#[test]
fn paths_given_up_crosswise_end_the_connection_at_once() {
    for (by_client, by_server) in [(0, 1), (1, 0)] {
        for apart in [0, 5, 9] {
            let mut pair = connected(2);
            pair.start(true, 5_000_000);
            pair.start(false, 5_000_000);
            pair.run_for(ms(100));
            abandon(&mut pair, false, by_client);
            pair.run_for(ms(apart));
            abandon(&mut pair, true, by_server);
            let took = time_to_end(&mut pair, Duration::from_secs(60));
            println!("client gives up {by_client}, server {by_server} {apart} ms later: {took:?}");
            assert!(took.is_some_and(|took| took < ms(500)), "{took:?}");
        }
    }
}

/// Each side hears the other on one way only, the way it gave up.
#[test]
fn both_sides_learn_of_the_end_by_whichever_path_still_leads_there() {
    /// The ways cut, up or down, and what client and server give up.
    type Case = (&'static [(usize, bool)], u32, u32);
    let cases: [Case; 4] = [
        (&[(1, true)], 0, 1),
        (&[(1, true), (1, false)], 0, 1),
        (&[(0, true), (0, false)], 1, 0),
        (&[(0, true), (1, false)], 0, 1),
    ];
    for (cuts, by_client, by_server) in cases {
        let mut pair = connected(2);
        pair.start(true, 5_000_000);
        pair.start(false, 5_000_000);
        pair.run_for(ms(100));
        for (way, up) in cuts {
            let open = if *up {
                &mut pair.ways[*way].up
            } else {
                &mut pair.ways[*way].down
            };
            *open = false;
        }
        abandon(&mut pair, false, by_client);
        abandon(&mut pair, true, by_server);
        let took = time_to_end(&mut pair, Duration::from_secs(60));
        println!("cut {cuts:?}: {took:?}");
        assert!(took.is_some_and(|took| took < ms(500)), "{took:?}");
    }
}

#[test]
fn loss_puts_the_end_off_by_few_probes() {
    for seed in 0..20 {
        let mut pair = connected(3);
        pair.dice.0 = seed;
        for way in &mut pair.ways {
            way.loss = 300;
        }
        abandon(&mut pair, false, 0);
        abandon(&mut pair, false, 2);
        abandon(&mut pair, true, 1);
        let took = time_to_end(&mut pair, Duration::from_secs(60));
        println!("seed {seed}: {took:?}");
        assert!(took.is_some_and(|took| took < ms(4_000)), "{took:?}");
    }
}

/// What only one side gives up leaves the other path to both.
#[test]
fn a_path_given_up_by_both_sides_leaves_the_other_one() {
    let mut pair = connected(2);
    abandon(&mut pair, false, 0);
    abandon(&mut pair, true, 0);
    pair.upload(2_000_000, Duration::from_secs(60));
    assert!(end(&pair.client_events).is_none() && end(&pair.server_events).is_none());
}

/// What is sent again and again on the last path must not put off what is to be repeated there.
#[test]
fn a_trickle_of_pings_does_not_keep_an_abandonment_from_being_repeated() {
    let mut pair = connected(2);
    pair.run_for(ms(500));
    // The server's word on the path the client gave up is lost for good, the client's at first.
    pair.ways[0].down = false;
    pair.ways[1].up = false;
    abandon(&mut pair, false, 0);
    abandon(&mut pair, true, 1);
    pair.run_for(ms(15));
    pair.ways[1].up = true;
    pair.ways[1].down = false;
    let start = pair.now;
    while end(&pair.server_events).is_none() && pair.now.since(start) < Duration::from_secs(60) {
        let _ = pair.client_conn().ping(PathId(1));
        pair.run_for(ms(20));
    }
    let took = pair.now.since(start);
    println!("{took:?}");
    assert!(took < ms(1_000), "{took:?}");
}
