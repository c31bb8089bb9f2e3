//! How much the emulator can carry: kernel TCP over several links at once, one connection each.
//!
//! ```text
//! cargo run --release -p anabranch-testbed --example throughput -- [SECONDS [LINKS [MBIT/S]]]
//! ```
//!
//! By default it runs for 3 seconds over 2 links of 600 Mbit/s, 5 ms each way. It prints the sum of
//! what the receivers got, and the emulator's processor time.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anabranch_link::{LinkConfig, Queue, Rate};
use anabranch_testbed::emulate::{End, LinkLayer, LinkPlan, Way, emulator};
use anabranch_testbed::{Node, Testbed};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse());
    let seconds = arguments.next().transpose()?.unwrap_or(3);
    let links = arguments.next().transpose()?.unwrap_or(2);
    let mbit = arguments.next().transpose()?.unwrap_or(600);
    let Some(mut bed) = Testbed::require("throughput") else {
        return Ok(());
    };
    let nodes = [bed.node("client")?, bed.node("server")?];
    for node in &nodes {
        // The machine's default may pace, and a timer for each packet is not the emulator's cost.
        node.set_sysctl("ipv4/tcp_congestion_control", "reno")?;
    }
    let plans: Result<Vec<_>, _> = (0..links).map(|link| plan(&nodes, link, mbit)).collect();
    let mut layer = emulator(plans?)?;
    let duration = Duration::from_secs(seconds);
    let started = Instant::now();
    let bytes: u64 = std::thread::scope(|scope| {
        let receivers: Vec<_> = (0..links)
            .map(|link| {
                let nodes = &nodes;
                scope.spawn(move || transfer(nodes, link, duration))
            })
            .collect();
        let received = receivers.into_iter().map(|receiver| {
            let received = receiver.join().expect("a receiver does not panic");
            received.map_err(|e| e.to_string())
        });
        received.sum::<Result<u64, String>>()
    })?;
    let sum = bytes as f64 * 8e-6 / started.elapsed().as_secs_f64();
    report(layer.as_mut(), links, sum)?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn report(layer: &mut dyn LinkLayer, links: u64, sum: f64) -> Result<(), Box<dyn Error>> {
    println!("{sum:.0} Mbit/s in sum");
    for link in 0..links as usize {
        let counters = layer.counters(link, Way::Forward)?;
        println!("link {link}: {counters:?}");
    }
    let health = layer.health();
    println!("{health:?}");
    let cpu = health.cpu.as_secs_f64() / health.wall.as_secs_f64();
    println!("the emulator used {:.0} % of a core", cpu * 100.0);
    Ok(())
}

fn plan(nodes: &[Node; 2], link: u64, mbit: u64) -> Result<LinkPlan, Box<dyn Error>> {
    let rate = NonZeroU64::new(mbit * 1_000_000).ok_or("a rate above 0")?;
    let config = LinkConfig {
        // The data of 30 ms, with some room for the sender's own bursts.
        queue: Queue::TailDropBytes(mbit * 1_000_000 / 8 / 33),
        ..LinkConfig::new(
            Rate::Fixed {
                bits_per_second: rate,
                burst: 0,
            },
            Duration::from_millis(5),
        )
    };
    let end = |index: usize| -> Result<End, Box<dyn Error>> {
        Ok(End {
            node: nodes[index].clone(),
            interface: format!("path{link}"),
            addresses: vec![format!("10.77.{link}.{}/24", index + 1).parse()?],
            mtu: 1500,
        })
    };
    Ok(LinkPlan {
        name: format!("path{link}"),
        ends: [end(0)?, end(1)?],
        configs: [config.clone(), config],
        seed: link,
        pcap: None,
    })
}

/// Sends over one link for `duration`; returns the bytes that arrived.
fn transfer(nodes: &[Node; 2], link: u64, duration: Duration) -> Result<u64, std::io::Error> {
    let system = |e: anabranch_testbed::Error| std::io::Error::other(e.to_string());
    let to = format!("10.77.{link}.2:5000");
    let listener = nodes[1]
        .enter(|| TcpListener::bind(&to))
        .map_err(system)??;
    let mut sender = nodes[0]
        .enter(|| TcpStream::connect(&to))
        .map_err(system)??;
    let (mut receiver, _) = listener.accept()?;
    let counter = std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        let mut total = 0;
        while let Ok(count) = receiver.read(&mut buffer) {
            if count == 0 {
                break;
            }
            total += count as u64;
        }
        total
    });
    let chunk = vec![0; 256 << 10];
    let started = Instant::now();
    while started.elapsed() < duration {
        sender.write_all(&chunk)?;
    }
    drop(sender);
    Ok(counter.join().expect("the counter does not panic"))
}
