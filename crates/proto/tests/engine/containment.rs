//! What a panic in one connection does to the others of its endpoint: nothing.

use crate::pair::tls_pair;
use anabranch_proto::config::{ClientConfig, EndpointConfig, TransportConfig};
use anabranch_proto::sched::{Choice, Scheduler, SchedulerFactory, SendView};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::Side;
use anabranch_proto::{Endpoint, Event, Handle};
use std::sync::Arc;
use std::time::Duration;

/// A scheduler that panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Scheduler for Bomb {
    fn select(&mut self, _: &SendView<'_>) -> Choice {
        panic!("a scheduler's bug")
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bug in a destructor")
    }
}

/// Sends what is to be sent to nobody; returns what the endpoint tells.
fn drain(endpoint: &mut Endpoint, now: Instant) -> Vec<(Handle, Event)> {
    let mut buf = Vec::new();
    while endpoint.poll_transmit(now, 1, &mut buf).is_some() {
        buf.clear();
    }
    std::iter::from_fn(|| endpoint.poll_event()).collect()
}

#[test]
fn a_scheduler_whose_destructor_panics_takes_nobody_with_it() {
    let config = EndpointConfig {
        contain_panics: true,
        ..EndpointConfig::default()
    };
    let mut endpoint = Endpoint::new(config, [1; 32]);
    let mut now = Instant::from_nanos(1_000_000_000);
    let good = ClientConfig::new(tls_pair().0);
    let mut bad = good.clone();
    bad.transport = Arc::new(TransportConfig {
        scheduler: SchedulerFactory::from_fn("bomb", || Box::new(Bomb)),
        ..TransportConfig::default()
    });
    let tuple = crate::raw::route(Side::Client, 0);
    let [bad, good] = [bad, good].map(|config| {
        let begun = endpoint.connect(now, config, tuple, "server.test");
        begun.expect("a connection attempt")
    });
    drain(&mut endpoint, now);
    let connection = endpoint.connection_mut(bad).expect("it was just begun");
    connection.close(now, 0, b"");
    drain(&mut endpoint, now);
    // Both have something to do at once: one to go, the other to ask its server again.
    now += Duration::from_secs(10);
    endpoint.connection_mut(good).expect("it is there");
    endpoint.handle_timeout(now);
    let told = drain(&mut endpoint, now);
    assert!(told.contains(&(bad, Event::Drained)), "{told:?}");
    assert!(endpoint.connection(bad).is_none());
    let connection = endpoint.connection_mut(good).expect("it is there");
    connection.close(now, 0, b"");
    let told = drain(&mut endpoint, now);
    let closed = |told: &(Handle, Event)| told.0 == good && matches!(told.1, Event::Closed(_));
    assert!(told.iter().any(closed), "{told:?}");
    now += Duration::from_secs(10);
    endpoint.handle_timeout(now);
    let told = drain(&mut endpoint, now);
    assert!(told.contains(&(good, Event::Drained)), "{told:?}");
    assert_eq!(endpoint.connections().count(), 0);
}
