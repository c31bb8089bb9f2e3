//! The kernel's layer on the kernel that the tests run on, which may lack netem.

use std::net::UdpSocket;
use std::time::Duration;

use anabranch_link::{Loss, Probability, Queue, Rate};

use super::*;
use crate::emulate::End;
use crate::resumed;
use crate::tests::drain;

/// After this much silence, nothing more arrives.
const MOMENT: Duration = Duration::from_millis(400);

struct Pair {
    layer: Box<dyn LinkLayer>,
    sender: UdpSocket,
    receiver: UdpSocket,
    a: Node,
    _bed: Testbed,
}

fn plans(bed: &mut Testbed, forward: LinkConfig) -> Vec<LinkPlan> {
    let ends = [("a", "10.9.0.1/24"), ("b", "10.9.0.2/24")].map(|(name, address)| End {
        node: bed.node(name).unwrap(),
        interface: "path0".to_owned(),
        addresses: vec![address.parse().unwrap()],
        mtu: 1500,
    });
    vec![LinkPlan {
        name: "wired".to_owned(),
        ends,
        configs: [forward, LinkConfig::default()],
        seed: 1,
        pcap: None,
    }]
}

impl Pair {
    fn new(name: &str, forward: LinkConfig) -> Option<Self> {
        let mut bed = Testbed::require(name)?;
        let plans = plans(&mut bed, forward);
        let [a, b] = [0, 1].map(|end| plans[0].ends[end].node.clone());
        let layer = kernel(plans).unwrap();
        let receiver = b.enter(|| UdpSocket::bind("10.9.0.2:4000").unwrap());
        let receiver = receiver.unwrap();
        receiver.set_read_timeout(Some(MOMENT)).unwrap();
        let sender = a.enter(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
        sender.connect("10.9.0.2:4000").unwrap();
        Some(Self {
            layer,
            sender,
            receiver,
            a,
            _bed: bed,
        })
    }

    fn send(&self, count: usize) {
        for _ in 0..count {
            self.sender.send(&[7; 972]).unwrap();
        }
    }

    fn drain(&self) -> u64 {
        drain(&self.receiver) as u64
    }

    fn forward(&mut self) -> Counters {
        self.layer.counters(0, Way::Forward).unwrap()
    }
}

#[test]
fn packets_cross_the_middle_and_are_counted_without_their_ethernet_headers() {
    let Some(mut pair) = Pair::new("kcross", LinkConfig::default()) else {
        return;
    };
    pair.send(10);
    assert_eq!(pair.drain(), 10);
    let counters = pair.forward();
    assert_eq!((counters.packets_in, counters.bytes_in), (10, 10_000));
    assert_eq!(counters.packets_delivered, 10);
    assert_eq!(counters.bytes_delivered, 10_000);
    assert_eq!(pair.layer.health().verdict, None);
}

#[test]
fn the_middle_has_a_rate_and_a_queue_and_keeps_it_through_changes() {
    let slow = LinkConfig {
        queue: Queue::TailDropPackets(20),
        ..LinkConfig::new(Rate::bits_per_second(8_000).unwrap(), Duration::ZERO)
    };
    let Some(mut pair) = Pair::new("krate", slow.clone()) else {
        return;
    };
    pair.send(60);
    let started = Instant::now();
    let waiting = loop {
        let waiting = pair.forward();
        if waiting.packets_in == 60 {
            break waiting;
        }
        assert!(started.elapsed() < device::CARRIER, "{waiting:?}");
    };
    assert!(waiting.queue_bytes >= 10_000, "{waiting:?}");
    assert!(waiting.dropped_queue >= 20, "{waiting:?}");
    let fast = LinkConfig {
        rate: Rate::Unlimited,
        ..slow
    };
    pair.layer.change(0, Way::Forward, fast).unwrap();
    // The packet being sent takes its full second.
    pair.receiver.set_read_timeout(Some(5 * MOMENT)).unwrap();
    assert_eq!(pair.drain() + waiting.dropped_queue, 60);
    assert_eq!(pair.forward().queue_bytes, 0);
}

#[test]
fn chance_and_silence_are_told_apart() {
    let half = LinkConfig {
        loss: Loss::Independent(Probability::new(0.5).unwrap()),
        ..LinkConfig::default()
    };
    let Some(mut pair) = Pair::new("kloss", half) else {
        return;
    };
    let mut came = 0;
    for _ in 0..4 {
        pair.send(50);
        came += pair.drain();
    }
    // Seven standard deviations of a fair coin.
    assert!((50..=150).contains(&came), "{came} of 200");
    assert_eq!(pair.forward().dropped_chance, 200 - came);
    pair.layer.set_silent(0, Way::Forward, true).unwrap();
    pair.send(10);
    assert_eq!(pair.drain(), 0);
    pair.layer.set_silent(0, Way::Forward, false).unwrap();
    let counters = pair.forward();
    assert_eq!(
        (counters.dropped_silent, counters.dropped_chance),
        (10, 200 - came)
    );
}

#[test]
fn a_link_that_was_down_carries_again() {
    let Some(mut pair) = Pair::new("kadmin", LinkConfig::default()) else {
        return;
    };
    pair.layer.set_admin(0, false).unwrap();
    let shown = pair.a.run("ip", &["link", "show", "dev", "path0"]).unwrap();
    assert!(!shown.contains(",UP"), "{shown}");
    pair.layer.set_admin(0, true).unwrap();
    pair.send(3);
    assert_eq!(pair.drain(), 3);
}

#[test]
fn delay_is_netems_or_refused_by_name() {
    let Some(mut bed) = Testbed::require("kdelay") else {
        return;
    };
    let delayed = LinkConfig::new(Rate::Unlimited, Duration::from_millis(200));
    let plans = plans(&mut bed, delayed);
    let nodes = [0, 1].map(|end| plans[0].ends[end].node.clone());
    for build in [kernel, kernel_in_hosts] {
        let layer = match build(plans.clone()) {
            Ok(layer) => layer,
            Err(error) => {
                assert!(matches!(error, Error::Unsupported { .. }), "{error}");
                assert!(error.to_string().contains("sch_netem"), "{error}");
                continue;
            }
        };
        let receiver = nodes[1].enter(|| UdpSocket::bind("10.9.0.2:4000").unwrap());
        let receiver = receiver.unwrap();
        receiver.set_read_timeout(Some(device::CARRIER)).unwrap();
        let sender = nodes[0].enter(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        let started = Instant::now();
        sender.unwrap().send_to(&[1], "10.9.0.2:4000").unwrap();
        resumed(|| receiver.recv(&mut [0; 10])).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(200));
        drop(layer);
    }
}

#[test]
fn what_the_layer_cannot_do_is_refused_before_anything_is_built() {
    let Some(mut bed) = Testbed::require("krefuse") else {
        return;
    };
    let mut plans = plans(&mut bed, LinkConfig::default());
    plans[0].pcap = Some("link.pcapng".into());
    let error = kernel(plans).unwrap_err().to_string();
    assert!(
        error.contains("`wired`") && error.contains("captures"),
        "{error}"
    );
}
