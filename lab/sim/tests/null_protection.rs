//! Whether packets are protected changes the content of their bytes, and nothing else.

use anabranch_link::{Jitter, LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::time::Instant;
use anabranch_sim::app::{Amount, Bulk, Receiver};
use anabranch_sim::scene::{FIRST, Scene};
use std::time::Duration;

fn trace(seed: u64, null_protection: bool) -> (u64, Instant, u64) {
    let link = |mbit: u64, delay_ms| {
        let rate = Rate::bits_per_second(mbit * 1_000_000).expect("a rate above 0");
        let config = LinkConfig {
            queue: Queue::TailDropPackets(50),
            loss: Loss::Independent(Probability::new(0.01).expect("a share")),
            jitter: Jitter::Uniform(Duration::from_millis(2)),
            ..LinkConfig::new(rate, Duration::from_millis(delay_ms))
        };
        (config.clone(), config)
    };
    let config = anabranch_schedulers::transport();
    let mut scene = Scene::new(seed, &[link(10, 10), link(5, 40)]);
    let (mut near, mut far) = scene.pair(config.clone(), config);
    if null_protection {
        (near, far) = (near.leave_unprotected(), far.leave_unprotected());
    }
    let bulk = Bulk::new(FIRST, Amount::Bytes(3_000_000), Instant::ZERO);
    let hosts = scene.start(near.app(bulk), far.app(Receiver::new(1).verify()));
    let end = Instant::ZERO + Duration::from_secs(120);
    let done = scene.world.run_hosts(&[hosts.client, hosts.server], end);
    assert!(done, "seed {seed}");
    (
        scene.world.trace_hash(),
        scene.world.now(),
        scene.world.events(),
    )
}

#[test]
fn protection_does_not_change_a_trace() {
    for seed in 1..6 {
        assert_eq!(trace(seed, false), trace(seed, true), "seed {seed}");
    }
    assert_ne!(trace(1, true), trace(2, true));
}
