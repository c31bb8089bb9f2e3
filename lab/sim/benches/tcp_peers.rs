//! Compares our TCP with smoltcp's, through a short queue and through random loss.
//! docs/dependencies.md has the reasons. Takes minutes:
//! `cargo bench -p anabranch-sim --bench tcp_peers`.

#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../tests/smoltcp/net.rs"]
mod net;
#[path = "../tests/smoltcp/peer.rs"]
#[expect(dead_code, reason = "only the tests ask whether all came whole")]
mod peer;

use anabranch_sim::Direction;
use anabranch_sim::tcp::{ENDLESS, Exchange};
use net::{LARGE, Line, Net, SMALL, Stack, access, at};
use smoltcp::socket::tcp::CongestionControl;
use std::time::Duration;

fn main() {
    compare("10 Mbit/s, 50 ms, 50 packets", access(0.0), 1);
    let line = Line {
        bits: 1_700_000,
        one_way: Duration::from_millis(55),
        queue: 100,
        loss: [0.01, 0.0],
    };
    compare("1.7 Mbit/s, 110 ms, 1 %", line, 3);
}

/// An upload's goodput in Mbit/s from the 5th to the 65th second, and how many bytes of packets
/// were sent for each byte of content.
fn upload(seed: u64, line: Line, stacks: [&Stack; 2]) -> (f64, f64) {
    let mut net = Net::new(seed, line, stacks, Exchange::upload(ENDLESS));
    let count = |net: &Net| {
        let content = match stacks[1] {
            Stack::Ours(_) => net.ours(net.server).received_bytes,
            Stack::Smoltcp(_) => net.peer(net.server).received(),
        };
        let sent = net.world.link_stats(net.link, Direction::Forward).bytes_in;
        (content as f64, sent as f64)
    };
    net.world.run_until(at(5));
    let before = count(&net);
    net.world.run_until(at(65));
    let after = count(&net);
    let content = after.0 - before.0;
    (content * 8.0 / 60.0 / 1e6, (after.1 - before.1) / content)
}

fn compare(name: &str, line: Line, seeds: u64) {
    use CongestionControl::{Cubic, None, Reno};
    let smoltcp = Stack::smoltcp;
    let senders = [
        ("smoltcp none 64k", smoltcp(None, SMALL)),
        ("smoltcp Reno 64k", smoltcp(Reno, SMALL)),
        ("smoltcp CUBIC 64k", smoltcp(Cubic, SMALL)),
        ("smoltcp none 512k", smoltcp(None, LARGE)),
        ("smoltcp Reno 512k", smoltcp(Reno, LARGE)),
        ("smoltcp CUBIC 512k", smoltcp(Cubic, LARGE)),
        ("ours new-reno", Stack::ours("new-reno")),
        ("ours cubic", Stack::ours("cubic")),
    ];
    let receivers = [
        ("ours", Stack::ours("cubic").prompt()),
        ("smoltcp", smoltcp(Cubic, LARGE)),
    ];
    for (sender, near) in &senders {
        for (receiver, far) in &receivers {
            let runs = (0..seeds).map(|seed| upload(seed, line, [near, far]));
            let add = |sum: (f64, f64), run: (f64, f64)| (sum.0 + run.0, sum.1 + run.1);
            let (rate, cost) = runs.fold((0.0, 0.0), add);
            let (rate, cost) = (rate / seeds as f64, cost / seeds as f64);
            println!("{name}: {sender} to {receiver}: {rate:.2} Mbit/s, {cost:.2} sent for 1");
            assert!(rate > 0.05 && rate * 1e6 < line.bits as f64, "{rate}");
            assert!(cost > 1.0, "{cost}");
        }
    }
}
