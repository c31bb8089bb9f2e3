//! What sources send and sinks count.

use super::*;
use crate::seed::Seed;
use crate::tcp::{Connect, TcpConfig, TcpHost, TcpState};
use crate::{NodeId, NodeKind, World};
use anabranch_link::{Jitter, LinkConfig, Loss, Probability, Rate};
use anabranch_proto::time::Instant;
use std::net::SocketAddr;
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pair(seed: u64, config: LinkConfig) -> (World, [NodeId; 2], [SocketAddr; 2]) {
    let mut world = World::new(seed);
    let nodes = [0, 1].map(|_| world.add_node(NodeKind::Host));
    let link = world.connect(nodes[0], nodes[1], config.clone(), config);
    let ends = nodes.map(|node| SocketAddr::new(world.address(node, link), 9));
    (world, nodes, ends)
}

fn flow(id: u64, ends: [SocketAddr; 2]) -> UdpFlow {
    UdpFlow {
        id,
        from: ends[0],
        to: ends[1],
        size: 972,
        interval: Duration::ZERO,
        start: Instant::ZERO,
        end: Instant::ZERO + Duration::from_secs(10),
    }
}

#[test]
fn a_flow_has_the_rate_asked_for_and_the_sink_sees_delay_and_loss() {
    let config = LinkConfig {
        loss: Loss::Independent(Probability::new(0.1).unwrap()),
        ..LinkConfig::new(Rate::bits_per_second(8_000_000).unwrap(), ms(20))
    };
    let (mut world, nodes, ends) = pair(1, config);
    let source = UdpSource::new().with(flow(7, ends).at_rate(1_000_000));
    let source = world.attach(nodes[0], Box::new(source));
    let sink = world.attach(nodes[1], Box::new(UdpSink::new()));
    world.run_until(Instant::ZERO + Duration::from_secs(11));
    assert_eq!(
        world
            .process::<UdpSource>(source)
            .sent()
            .collect::<Vec<_>>(),
        [1250]
    );
    let stats = world.process::<UdpSink>(sink).stats(7);
    assert_eq!((stats.delay_min, stats.delay_max), (ms(21), ms(21)));
    assert_eq!((stats.delay_mean(), stats.jitter), (ms(21), Duration::ZERO));
    assert!((90..165).contains(&stats.lost()), "{stats:?}");
    assert_eq!((stats.reordered, stats.bytes), (0, stats.received * 972));
}

#[test]
fn flows_of_one_source_are_told_apart_and_jitter_is_seen() {
    let config = LinkConfig {
        jitter: Jitter::Uniform(ms(5)),
        reorder: true,
        ..LinkConfig::new(Rate::Unlimited, ms(20))
    };
    let (mut world, nodes, ends) = pair(1, config);
    let (fast, slow) = (
        flow(1, ends).at_rate(8_000_000),
        flow(2, ends).at_rate(80_000),
    );
    world.attach(nodes[0], Box::new(UdpSource::new().with(fast).with(slow)));
    let sink = world.attach(nodes[1], Box::new(UdpSink::new()));
    world.run_until(Instant::ZERO + Duration::from_secs(11));
    let [fast, slow] = [1, 2].map(|id| world.process::<UdpSink>(sink).stats(id));
    assert_eq!((fast.received, slow.received), (10_000, 100));
    assert!(fast.reordered > 1000 && slow.reordered == 0);
    // The mean distance between two uniform draws is a third of their range.
    assert!((ms(2)..ms(5)).contains(&fast.jitter), "{fast:?}");
    assert!(fast.delay_min >= ms(15) && fast.delay_max <= ms(25));
}

#[test]
fn a_web_user_fetches_page_after_page() {
    let config = LinkConfig::new(Rate::bits_per_second(10_000_000).unwrap(), ms(20));
    let run = || {
        let (mut world, nodes, ends) = pair(1, config.clone());
        let mut client = TcpHost::new(Seed(1));
        let pages = Some(30);
        let web = WebConfig {
            pages,
            ..WebConfig::default()
        };
        let id = client.connect(Connect {
            from: ends[0],
            to: ends[1],
            at: Instant::ZERO,
            demand: Box::new(Web::new(web, Seed(5))),
            until: None,
            config: TcpConfig::default(),
        });
        let server = TcpHost::new(Seed(2)).listen(9, TcpConfig::default());
        let client = world.attach(nodes[0], Box::new(client));
        world.attach(nodes[1], Box::new(server));
        world.run_until(Instant::ZERO + Duration::from_secs(200));
        let host = world.process::<TcpHost>(client);
        let completions = host.completions(id).to_vec();
        assert_eq!(
            (host.report(id).state, completions.len()),
            (TcpState::Done, 30)
        );
        assert!(host.report(id).intact);
        (world.trace_hash(), completions)
    };
    let (hash, completions) = run();
    for page in &completions {
        let took = page.ended.since(page.started);
        let least = ms(40) + Duration::from_nanos(page.exchange.response * 800);
        assert!(took >= least && took < least * 2 + ms(300), "{page:?}");
    }
    assert_eq!(run().0, hash);
}
