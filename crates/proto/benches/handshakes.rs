//! Handshakes per second, and what an idle connection keeps in memory.
//!
//! Both ends run in one thread on a virtual clock, datagrams handed over in memory: what is
//! measured is TLS and the engine, client and server together, without a kernel.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

#[path = "../tests/engine/pair/mod.rs"]
mod pair;

use anabranch_proto::config::{
    ClientConfig, EndpointConfig, RetryPolicy, ServerConfig, TransportConfig,
};
use anabranch_proto::connection::Connection;
use anabranch_proto::datagram::Tuple;
use anabranch_proto::time::Instant;
use anabranch_proto::{Endpoint, Handle};
use pair::Way;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CONNECTIONS: usize = 2000;

/// A handshake waits for its end, and for timers of others, no more often than this.
const MOST_PAUSES: usize = 100_000;

/// The fastest of this many batches gives the rate, as the machine may have other things to do.
const BATCHES: usize = 20;

/// Both ends, and the datagrams between them.
struct World {
    now: Instant,
    ends: [Endpoint; 2],
    tuples: [Tuple; 2],
}

impl World {
    fn new(server: ServerConfig) -> Self {
        let way = Way::new(1);
        let mut listening = Endpoint::new(EndpointConfig::default(), [2; 32]);
        listening.set_server(Some(Arc::new(server)));
        Self {
            now: Instant::from_nanos(1_000_000_000),
            ends: [Endpoint::new(EndpointConfig::default(), [1; 32]), listening],
            tuples: [way.client, way.server],
        }
    }

    /// Opens one connection; returns once the client knows that both sides are complete.
    fn handshake(&mut self, config: &ClientConfig) -> Handle {
        let tuple = self.tuples[0];
        let handle = self.ends[0]
            .connect(self.now, config.clone(), tuple, "server.test")
            .expect("a connection attempt");
        let mut pauses = 0;
        while !self.is_confirmed(handle) {
            if !self.exchange() {
                self.pass_time();
                pauses += 1;
                assert!(pauses < MOST_PAUSES, "the handshake does not end");
            }
        }
        // What the last flight answers, so that nothing is under way any more.
        while self.exchange() {}
        handle
    }

    fn is_confirmed(&self, handle: Handle) -> bool {
        let connection = self.ends[0].connection(handle);
        connection.is_some_and(Connection::is_confirmed)
    }

    /// Hands over what both ends have to send; returns whether there was anything.
    fn exchange(&mut self) -> bool {
        let mut any = false;
        let mut buf = Vec::new();
        for from in [0, 1] {
            let to = 1 - from;
            loop {
                buf.clear();
                let Some(sent) = self.ends[from].poll_transmit(self.now, 10, &mut buf) else {
                    break;
                };
                any = true;
                let size = sent.segment_size.unwrap_or(sent.length);
                for datagram in buf.chunks_mut(size) {
                    let tuple = self.tuples[to];
                    self.ends[to].handle_datagram(self.now, tuple, sent.ecn, datagram);
                }
            }
            while self.ends[from].poll_event().is_some() {}
        }
        any
    }

    /// Goes on to the next time-out, a millisecond at the least.
    fn pass_time(&mut self) {
        let next = self
            .ends
            .iter_mut()
            .filter_map(Endpoint::next_timeout)
            .min();
        let least = self.now + Duration::from_millis(1);
        self.now = next.map_or(least, |at| at.max(least));
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
    }
}

/// Bytes allocated and not freed.
fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn run(name: &str, retry: RetryPolicy, max_paths: u32) {
    let transport = Arc::new(TransportConfig {
        max_paths,
        max_idle_timeout: None,
        ..TransportConfig::default()
    });
    let (client_tls, server_tls) = pair::tls_pair();
    let mut server = ServerConfig::new(server_tls);
    server.transport = transport.clone();
    server.retry = retry;
    // All come from one address.
    server.max_connections_per_address = server.max_connections;
    let mut client = ClientConfig::new(client_tls);
    client.transport = transport;
    let mut world = World::new(server);
    for _ in 0..20 {
        world.handshake(&client);
    }
    let before = live();
    let mut rate: f64 = 0.0;
    for _ in 0..BATCHES {
        let started = std::time::Instant::now();
        for _ in 0..CONNECTIONS / BATCHES {
            world.handshake(&client);
        }
        let seconds = started.elapsed().as_secs_f64();
        rate = rate.max((CONNECTIONS / BATCHES) as f64 / seconds);
    }
    let both = live() - before;
    let [client_end, server_end] = world.ends;
    let with_client = live();
    drop(client_end);
    // The warm-up's connections went with the others.
    let client_share = (with_client - live()) / (CONNECTIONS + 20);
    let server_share = (both / CONNECTIONS).saturating_sub(client_share);
    drop(server_end);
    println!("{name:<26} {rate:>12.0} {client_share:>12} {server_share:>12}");
}

fn main() {
    println!(
        "{:<26} {:>12} {:>12} {:>12}",
        "handshake", "per second", "client bytes", "server bytes"
    );
    run("one path", RetryPolicy::Never, 0);
    run("up to 8 paths", RetryPolicy::Never, 8);
    run("up to 8 paths, with Retry", RetryPolicy::Always, 8);
}
