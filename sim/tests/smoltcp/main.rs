//! The simulator's TCP against smoltcp, whose code shares nothing with ours; and the rates of both,
//! for the reasons in docs/dependencies.md:
//! `cargo test -p anabranch-sim --test smoltcp -- --ignored --nocapture`.

mod peer;

use anabranch_link::{LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::time::Instant;
use anabranch_sim::profile::Names;
use anabranch_sim::tcp::{
    Connect, ENDLESS, Exchange, Once, TcpConfig, TcpHost, TcpReport, TcpState,
};
use anabranch_sim::{NodeKind, Process, ProcessId, World};
use peer::{Peer, Side};
use smoltcp::socket::tcp::{CongestionControl, State};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

const PORT: u16 = 80;
const CLIENT_PORT: u16 = 1000;
const MEGABYTE: u64 = 1_000_000;

/// A link of which both directions are alike but for what is lost.
#[derive(Debug, Clone, Copy)]
struct Line {
    bits: u64,
    one_way: Duration,
    queue: u64,
    /// There and back.
    loss: [f64; 2],
}

impl Line {
    fn configs(self) -> [LinkConfig; 2] {
        self.loss.map(|loss| LinkConfig {
            queue: Queue::TailDropPackets(self.queue),
            loss: Loss::Independent(Probability::new(loss).expect("a share")),
            ..LinkConfig::new(
                Rate::bits_per_second(self.bits).expect("not zero"),
                self.one_way,
            )
        })
    }
}

/// Whose TCP a host runs, and the name of its congestion control.
#[derive(Debug, Clone, Copy)]
enum Stack {
    Ours(&'static str),
    Smoltcp(CongestionControl),
}

use Stack::{Ours, Smoltcp};

impl Stack {
    fn config(name: &str) -> TcpConfig {
        TcpConfig {
            congestion: Names::default().controller(name).expect("a known name"),
            ..TcpConfig::default()
        }
    }

    fn client(self, world: &World, ends: [SocketAddr; 2], what: Exchange) -> Box<dyn Process> {
        let [from, to] = ends;
        match self {
            Ours(name) => {
                let mut host = TcpHost::new(world.seed().derive("client", 0));
                host.connect(Connect {
                    from,
                    to,
                    at: Instant::ZERO,
                    demand: Box::new(Once::new(what)),
                    until: None,
                    config: Self::config(name),
                });
                Box::new(host)
            }
            Smoltcp(congestion) => {
                let side = Side::Client(from.port(), v4(to), what);
                Box::new(Peer::new(*v4(from).ip(), side, congestion))
            }
        }
    }

    fn server(self, world: &World, at: SocketAddr) -> Box<dyn Process> {
        match self {
            Ours(name) => {
                let host = TcpHost::new(world.seed().derive("server", 0));
                Box::new(host.listen(at.port(), Self::config(name)))
            }
            Smoltcp(congestion) => {
                let side = Side::Server(at.port());
                Box::new(Peer::new(*v4(at).ip(), side, congestion))
            }
        }
    }
}

struct Net {
    world: World,
    client: ProcessId,
    server: ProcessId,
}

impl Net {
    /// A client and a server on one link, and one exchange.
    fn new(seed: u64, line: Line, [client, server]: [Stack; 2], what: Exchange) -> Self {
        let mut world = World::new(seed);
        let near = world.add_node(NodeKind::Host);
        let far = world.add_node(NodeKind::Host);
        let [forward, backward] = line.configs();
        let link = world.connect(near, far, forward, backward);
        let from = SocketAddr::new(world.address(near, link), CLIENT_PORT);
        let to = SocketAddr::new(world.address(far, link), PORT);
        let client = client.client(&world, [from, to], what);
        let server = server.server(&world, to);
        Self {
            client: world.attach(near, client),
            server: world.attach(far, server),
            world,
        }
    }

    fn ours(&self, id: ProcessId) -> TcpReport {
        let mut reports = self.world.process::<TcpHost>(id).reports();
        reports.next().expect("one connection")
    }

    fn peer(&self, id: ProcessId) -> &Peer {
        self.world.process(id)
    }
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => panic!("{address} is no IPv4 address"),
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// 10 Mbit/s and 50 ms there and back, with a queue of 50 packets.
fn access(loss: f64) -> Line {
    Line {
        bits: 10_000_000,
        one_way: Duration::from_millis(25),
        queue: 50,
        loss: [loss; 2],
    }
}

const REQUEST: u64 = 16;

/// A megabyte each way, one after the other in one exchange, and one way alone.
fn exchanges() -> [Exchange; 3] {
    let exchange = |request, response| Exchange { request, response };
    [
        exchange(MEGABYTE, 0),
        exchange(REQUEST, MEGABYTE),
        exchange(MEGABYTE, MEGABYTE),
    ]
}

/// Both ends have all bytes, unchanged, and agree that it is over.
fn check(net: &Net, (ours, peer): (ProcessId, ProcessId), [sent, received]: [u64; 2]) {
    let (report, peer) = (net.ours(ours), net.peer(peer));
    let what = format!("{report:?}, {peer:?}");
    assert_eq!(report.state, TcpState::Done, "{what}");
    assert_eq!(report.received_bytes, received, "{what}");
    assert_eq!(report.sent.acknowledged_bytes, sent, "{what}");
    assert!(report.intact, "{what}");
    assert_eq!(peer.received(), sent, "{what}");
    assert!(peer.is_finished() && peer.is_intact(), "{what}");
    assert!(
        matches!(peer.state(), State::Closed | State::TimeWait),
        "{what}"
    );
    assert_eq!(net.world.process::<TcpHost>(ours).strays(), 0, "{what}");
}

fn our_client_and_its_server(loss: f64) {
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        for what in exchanges() {
            let stacks = [Ours("cubic"), Smoltcp(congestion)];
            let mut net = Net::new(1, access(loss), stacks, what);
            net.world.run_until(at(120));
            check(
                &net,
                (net.client, net.server),
                [what.request, what.response],
            );
        }
    }
}

fn its_client_and_our_server(loss: f64) {
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        for what in exchanges() {
            let stacks = [Smoltcp(congestion), Ours("cubic")];
            let mut net = Net::new(1, access(loss), stacks, what);
            net.world.run_until(at(120));
            check(
                &net,
                (net.server, net.client),
                [what.response, what.request],
            );
        }
    }
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_server_of_smoltcp() {
    our_client_and_its_server(0.0);
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_server_of_smoltcp_under_loss() {
    our_client_and_its_server(0.01);
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_client_of_smoltcp() {
    its_client_and_our_server(0.0);
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_client_of_smoltcp_under_loss() {
    its_client_and_our_server(0.01);
}

/// Megabits a second of an upload's content from the 5th to the 65th second.
fn goodput(seed: u64, line: Line, stacks: [Stack; 2]) -> f64 {
    let mut net = Net::new(seed, line, stacks, Exchange::upload(ENDLESS));
    let received = |net: &Net| match stacks[1] {
        Ours(_) => net.ours(net.server).received_bytes,
        Smoltcp(_) => net.peer(net.server).received(),
    };
    net.world.run_until(at(5));
    let before = received(&net);
    net.world.run_until(at(65));
    (received(&net) - before) as f64 * 8.0 / 60.0 / 1e6
}

#[test]
#[ignore = "prints rates to compare, and takes a minute"]
#[expect(clippy::print_stdout, reason = "what it prints is its purpose")]
fn smoltcp_and_ours_send_at_these_rates() {
    let lossy = Line {
        bits: 1_700_000,
        one_way: Duration::from_millis(55),
        queue: 100,
        loss: [0.01, 0.0],
    };
    let senders = [
        ("smoltcp Reno", Smoltcp(CongestionControl::Reno)),
        ("smoltcp CUBIC", Smoltcp(CongestionControl::Cubic)),
        ("ours, new-reno", Ours("new-reno")),
        ("ours, cubic", Ours("cubic")),
    ];
    let receivers = [
        ("ours", Ours("cubic")),
        ("smoltcp", Smoltcp(CongestionControl::Cubic)),
    ];
    for (name, line, seeds) in [("10 Mbit/s", access(0.0), 1), ("1.7 Mbit/s, 1 %", lossy, 4)] {
        for (sender, near) in senders {
            for (receiver, far) in receivers {
                let runs = (0..seeds).map(|seed| goodput(seed, line, [near, far]));
                let mean = runs.sum::<f64>() / seeds as f64;
                println!("{name}: {sender} to {receiver}: {mean:.2} Mbit/s");
                assert!(mean > 0.05 && mean * 1e6 < line.bits as f64, "{mean}");
            }
        }
    }
}
