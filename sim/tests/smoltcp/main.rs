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
use anabranch_sim::{Direction, LinkId, NodeKind, Process, ProcessId, World};
use peer::{Peer, PeerConfig, Side};
use smoltcp::socket::tcp::{CongestionControl, State};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

const PORT: u16 = 80;
const CLIENT_PORT: u16 = 1000;
const MEGABYTE: u64 = 1_000_000;

/// Bytes of smoltcp's buffers: what the links of these tests can have under way without a queue
/// that overflows, and several times of it.
const SMALL: usize = 64 * 1024;
const LARGE: usize = 512 * 1024;

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

/// Whose TCP a host runs.
#[derive(Debug, Clone)]
enum Stack {
    Ours(TcpConfig),
    Smoltcp(PeerConfig),
}

impl Stack {
    fn ours(congestion: &str) -> Self {
        let congestion = Names::default().controller(congestion);
        Self::Ours(TcpConfig {
            congestion: congestion.expect("a known name"),
            ..TcpConfig::default()
        })
    }

    /// Acknowledges every segment, as formulas for the rate assume.
    fn prompt(self) -> Self {
        match self {
            Self::Ours(config) => Self::Ours(TcpConfig {
                delayed_ack: None,
                ..config
            }),
            other @ Self::Smoltcp(_) => other,
        }
    }

    fn smoltcp(congestion: CongestionControl, buffer: usize) -> Self {
        Self::Smoltcp(PeerConfig { congestion, buffer })
    }

    fn client(&self, world: &World, ends: [SocketAddr; 2], what: Exchange) -> Box<dyn Process> {
        let [from, to] = ends;
        match self {
            Self::Ours(config) => {
                let mut host = TcpHost::new(world.seed().derive("client", 0));
                host.connect(Connect {
                    from,
                    to,
                    at: Instant::ZERO,
                    demand: Box::new(Once::new(what)),
                    until: None,
                    config: config.clone(),
                });
                Box::new(host)
            }
            Self::Smoltcp(config) => {
                let side = Side::Client(from.port(), v4(to), what);
                Box::new(Peer::new(*v4(from).ip(), side, *config))
            }
        }
    }

    fn server(&self, world: &World, at: SocketAddr) -> Box<dyn Process> {
        match self {
            Self::Ours(config) => {
                let host = TcpHost::new(world.seed().derive("server", 0));
                Box::new(host.listen(at.port(), config.clone()))
            }
            Self::Smoltcp(config) => {
                let side = Side::Server(at.port());
                Box::new(Peer::new(*v4(at).ip(), side, *config))
            }
        }
    }
}

struct Net {
    world: World,
    link: LinkId,
    client: ProcessId,
    server: ProcessId,
}

impl Net {
    /// A client and a server on one link, and one exchange.
    fn new(seed: u64, line: Line, [client, server]: [&Stack; 2], what: Exchange) -> Self {
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
            link,
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
    let ours = Stack::ours("cubic");
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        let peer = Stack::smoltcp(congestion, LARGE);
        for what in exchanges() {
            let mut net = Net::new(1, access(loss), [&ours, &peer], what);
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
    let ours = Stack::ours("cubic");
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        let peer = Stack::smoltcp(congestion, LARGE);
        for what in exchanges() {
            let mut net = Net::new(1, access(loss), [&peer, &ours], what);
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

/// Megabits a second of an upload's content from the 5th to the 65th second; and how many bytes of
/// packets were sent for each of the content.
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

#[expect(clippy::print_stdout, reason = "what it prints is its purpose")]
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

#[test]
#[ignore = "prints rates to compare, and takes a minute"]
fn both_send_at_these_rates_into_a_short_queue() {
    compare("10 Mbit/s, 50 ms, 50 packets", access(0.0), 1);
}

#[test]
#[ignore = "prints rates to compare, and takes minutes"]
fn both_send_at_these_rates_where_one_packet_in_a_hundred_is_lost() {
    let line = Line {
        bits: 1_700_000,
        one_way: Duration::from_millis(55),
        queue: 100,
        loss: [0.01, 0.0],
    };
    compare("1.7 Mbit/s, 110 ms, 1 %", line, 3);
}
