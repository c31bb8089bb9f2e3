//! One or more TCP flows over links.

use super::*;
use crate::{Direction, LinkId, NodeKind, ProcessId, World};
use anabranch_link::{LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::congestion::{ControllerFactory, Registry};
use anabranch_proto::time::Instant;
use std::net::SocketAddr;
use std::time::Duration;

const PORT: u16 = 80;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn control(name: &str) -> ControllerFactory {
    Registry::builtin().factory(&name.parse().unwrap()).unwrap()
}

fn reno(sack: bool) -> TcpConfig {
    TcpConfig {
        congestion: control("new-reno"),
        sack,
        ..TcpConfig::default()
    }
}

fn link(bits: u64, delay: Duration, queue: u64) -> LinkConfig {
    LinkConfig {
        queue: Queue::TailDropPackets(queue),
        ..LinkConfig::new(Rate::bits_per_second(bits).unwrap(), delay)
    }
}

fn lossy(share: f64, config: LinkConfig) -> LinkConfig {
    LinkConfig {
        loss: Loss::Independent(Probability::new(share).unwrap()),
        ..config
    }
}

struct Net {
    world: World,
    client: ProcessId,
    server: ProcessId,
    link: LinkId,
    flows: Vec<TcpId>,
}

/// A client and a server on one link. Each of these exchanges has a connection of its own, which
/// starts half a second after the previous one.
fn net(
    seed: u64,
    (forward, backward): (LinkConfig, LinkConfig),
    config: &TcpConfig,
    exchanges: &[Exchange],
    until: Option<Instant>,
) -> Net {
    let once = |exchange: &Exchange| -> Box<dyn Demand> { Box::new(Once::new(*exchange)) };
    let demands = exchanges.iter().map(once).collect();
    net_for(seed, (forward, backward), config, demands, until)
}

fn net_for(
    seed: u64,
    (forward, backward): (LinkConfig, LinkConfig),
    config: &TcpConfig,
    demands: Vec<Box<dyn Demand>>,
    until: Option<Instant>,
) -> Net {
    let mut world = World::new(seed);
    let near = world.add_node(NodeKind::Host);
    let far = world.add_node(NodeKind::Host);
    let link = world.connect(near, far, forward, backward);
    let (from, to) = (world.address(near, link), world.address(far, link));
    let mut client = TcpHost::new(world.seed().derive("client", 0));
    let connect = |(index, demand): (usize, Box<dyn Demand>)| {
        client.connect(Connect {
            from: SocketAddr::new(from, 1000 + index as u16),
            to: SocketAddr::new(to, PORT),
            at: Instant::ZERO + ms(500) * index as u32,
            demand,
            until,
            config: config.clone(),
        })
    };
    let flows = demands.into_iter().enumerate().map(connect).collect();
    let server = TcpHost::new(world.seed().derive("server", 0)).listen(PORT, config.clone());
    let client = world.attach(near, Box::new(client));
    let server = world.attach(far, Box::new(server));
    Net {
        world,
        client,
        server,
        link,
        flows,
    }
}

impl Net {
    fn reports(&self) -> Vec<TcpReport> {
        let host = self.world.process::<TcpHost>(self.client);
        self.flows.iter().map(|id| host.report(*id)).collect()
    }

    fn served(&self) -> Vec<TcpReport> {
        self.world
            .process::<TcpHost>(self.server)
            .reports()
            .collect()
    }
}

fn symmetric(config: LinkConfig) -> (LinkConfig, LinkConfig) {
    (config.clone(), config)
}

/// Acknowledged bits per second, over this many seconds from the 10th second on. By then a Reno has
/// retransmitted the losses of its slow start, one segment a round trip.
fn rate(
    seed: u64,
    ends: (LinkConfig, LinkConfig),
    config: &TcpConfig,
    seconds: u64,
) -> (f64, TcpReport) {
    let mut net = net(seed, ends, config, &[Exchange::upload(ENDLESS)], None);
    net.world.run_until(at(10));
    let before = net.reports()[0].sent.acknowledged_bytes;
    net.world.run_until(at(10 + seconds));
    let report = net.reports().remove(0);
    assert!(net.served()[0].intact);
    let bytes = report.sent.acknowledged_bytes - before;
    (bytes as f64 * 8.0 / seconds as f64, report)
}

#[test]
fn uploads_and_downloads_arrive_whole_under_loss_both_ways() {
    for sack in [false, true] {
        let ends = symmetric(lossy(0.03, link(10_000_000, ms(10), 50)));
        let exchanges = [
            Exchange::upload(300_000),
            Exchange::download(500_000),
            Exchange {
                request: 50_000,
                response: 70_000,
            },
        ];
        let mut net = net(3, ends, &reno(sack), &exchanges, None);
        net.world.run_until(at(60));
        for (report, exchange) in net.reports().iter().zip(&exchanges) {
            assert_eq!(report.state, TcpState::Done, "{report:?}");
            assert_eq!(report.completed, 1);
            assert!(report.intact);
            assert_eq!(report.received_bytes, exchange.response);
            assert_eq!(report.sent.acknowledged_bytes, exchange.request);
        }
        for report in net.served() {
            assert_eq!(report.state, TcpState::Done, "{report:?}");
            assert!(report.intact);
        }
        assert_eq!(net.world.process::<TcpHost>(net.server).strays(), 0);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_does_not() {
    let hash = |seed| {
        let ends = symmetric(lossy(0.02, link(10_000_000, ms(10), 50)));
        let mut net = net(
            seed,
            ends,
            &reno(true),
            &[Exchange::upload(2_000_000); 3],
            None,
        );
        net.world.run_until(at(60));
        net.world.trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn a_flow_fills_its_link() {
    for (name, config) in [
        ("reno", reno(false)),
        ("reno with SACK", reno(true)),
        ("cubic", TcpConfig::default()),
    ] {
        let ends = symmetric(link(10_000_000, ms(25), 50));
        // Six of the periods in which a Reno halves its window and regains it.
        let (rate, report) = rate(1, ends, &config, 30);
        let share = rate / (10e6 * 1460.0 / 1500.0);
        // Data that waits for retransmissions at the start is acknowledged later, so the rate can
        // be a little above the link's.
        assert!((0.9..1.02).contains(&share), "{name}: {rate}, {report:?}");
        assert!(report.sent.timeouts <= 1, "{name}: {report:?}");
    }
}

#[test]
fn two_flows_share_a_link_fairly() {
    for (name, config) in [
        ("reno", reno(false)),
        ("reno with SACK", reno(true)),
        ("cubic", TcpConfig::default()),
    ] {
        let ends = symmetric(link(10_000_000, ms(25), 50));
        let mut net = net(1, ends, &config, &[Exchange::upload(ENDLESS); 2], None);
        net.world.run_until(at(40));
        let bytes = net
            .reports()
            .iter()
            .map(|r| r.sent.acknowledged_bytes)
            .collect::<Vec<_>>();
        let share = bytes[0] as f64 / bytes.iter().sum::<u64>() as f64;
        assert!((0.35..0.65).contains(&share), "{name}: {share}");
    }
}

#[test]
fn one_loss_in_a_hundred_leaves_the_rate_of_mathis() {
    // aveiro-mptcp-sim, T1: 1.7 Mbit/s, 110 ms and 1 % loss gave 1.29 Mbit/s.
    let mut total = 0.0;
    for seed in 0..4 {
        let there = lossy(0.01, link(1_700_000, ms(55), 100));
        let config = TcpConfig {
            delayed_ack: None,
            ..reno(true)
        };
        total += rate(seed, (there, link(1_700_000, ms(55), 100)), &config, 100).0;
    }
    let mean = total / 4.0;
    assert!((1.1e6..1.5e6).contains(&mean), "{mean}");
}

#[test]
fn a_gigabit_over_a_tenth_of_a_second_is_filled_when_asked_for() {
    let config = reno(true).for_path(1_000_000_000, ms(100));
    let ends = symmetric(link(1_000_000_000, ms(50), 10_000));
    let mut net = net(1, ends, &config, &[Exchange::download(60_000_000)], None);
    net.world.run_until(at(5));
    let report = &net.reports()[0];
    assert_eq!(report.received_bytes, 60_000_000, "{report:?}");
    let host = net.world.process::<TcpHost>(net.client);
    let ended = host.completions(net.flows[0])[0].ended;
    // With a connection's default buffers it takes 1.9 s.
    assert!(ended < Instant::ZERO + ms(1700), "{ended}");
}

#[test]
fn segments_that_overtake_each_other_are_sent_again_for_nothing() {
    let mut there = link(10_000_000, ms(25), 50);
    there.jitter = anabranch_link::Jitter::Uniform(ms(10));
    there.reorder = true;
    let (_, report) = rate(1, (there, link(10_000_000, ms(25), 50)), &reno(false), 20);
    assert!(report.sent.fast_retransmits > 10, "{report:?}");
}

#[test]
fn what_is_cut_in_between_goes_on_when_the_link_is_back() {
    use crate::Change;
    let ends = symmetric(link(10_000_000, ms(10), 50));
    let mut net = net(1, ends, &reno(false), &[Exchange::upload(5_000_000)], None);
    let link = net.link;
    net.world.at(at(2), Change::up(link, false));
    net.world.at(at(4), Change::up(link, true));
    net.world.run_until(Instant::ZERO + ms(3900));
    let before = net.reports()[0].sent.timeouts;
    assert!(before >= 2, "{:?}", net.reports());
    net.world.run_until(at(20));
    let report = &net.reports()[0];
    assert_eq!(report.state, TcpState::Done, "{report:?}");
    assert!(report.sent.timeouts < 8, "{report:?}");
}

#[test]
fn a_silent_or_absent_server_is_given_up() {
    let ends = symmetric(link(10_000_000, ms(10), 50));
    let dead = lossy(1.0, ends.0.clone());
    let mut net = net(
        1,
        (dead, ends.1),
        &reno(false),
        &[Exchange::upload(1000)],
        None,
    );
    net.world.run_until(at(300));
    assert_eq!(net.reports()[0].state, TcpState::Failed);
    let world = &net.world;
    let link = net.link;
    assert_eq!(world.link_stats(link, Direction::Forward).packets_in, 7);
}

#[test]
fn a_stop_ends_uploads_and_downloads_that_have_no_end() {
    let ends = symmetric(link(10_000_000, ms(10), 50));
    let exchanges = [Exchange::upload(ENDLESS), Exchange::download(ENDLESS)];
    let mut net = net(1, ends, &reno(true), &exchanges, Some(at(5)));
    net.world.run_until(at(10));
    let [up, down] = net.reports().try_into().unwrap();
    assert_eq!((up.state, down.state), (TcpState::Done, TcpState::Done));
    assert!(up.ended.unwrap() < at(6) && down.ended == Some(at(5)));
    assert!(up.sent.acknowledged_bytes > 1_000_000 && down.received_bytes > 1_000_000);
    let served = net.served();
    assert_eq!(served[0].received_bytes, up.sent.acknowledged_bytes);
    assert_eq!(served[1].state, TcpState::Failed, "reset");
    let events = net.world.events();
    net.world.run_until(at(1000));
    assert!(net.world.events() < events + 10, "nothing goes on");
}

/// Exchanges at given times, the last one first.
#[derive(Debug)]
struct Appointments(Vec<(Instant, Exchange)>);

impl Demand for Appointments {
    fn next(&mut self, now: Instant) -> Option<(Instant, Exchange)> {
        let (at, exchange) = self.0.pop()?;
        Some((at.max(now), exchange))
    }
}

#[test]
fn after_an_idle_spell_a_first_window_goes_at_once() {
    let wire = link(100_000_000, ms(50), 1000);
    let small = (at(20), Exchange::upload(10 * 1460));
    let demand = Appointments(vec![small, (at(1), Exchange::upload(2_000_000))]);
    let mut net = net_for(
        1,
        symmetric(wire),
        &reno(true),
        vec![Box::new(demand)],
        None,
    );
    net.world.run_until(at(30));
    let host = net.world.process::<TcpHost>(net.client);
    let done = host.completions(net.flows[0]);
    assert_eq!(done.len(), 2);
    let took = done[1].ended.since(done[1].started);
    // One round trip of 100 ms and a delayed acknowledgement; an initial window of two packets
    // would make it three round trips.
    assert!(took < ms(180), "{took:?}");
}
