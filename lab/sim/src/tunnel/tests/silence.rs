//! One of two links goes silent and nobody is told: for how long hosts hear nothing.

use super::*;

/// Packets that fit the queue of a link: what it carries in the round trip without a queue, and
/// more than twice that.
const SHORT: u64 = 40;
const LONG: u64 = 100;

/// How long hosts may hear nothing, in milliseconds, by these queues: the silence is noticed after
/// some round trips, which are longer by what waits in the queue. The goal is 100; of these seeds
/// the longest are 94 and 111, of others up to 118.
const BOUNDS: [u64; 2] = [100, 130];

/// The same of datagrams whose class waits for order, beside an upload that fills long queues.
const BOUND_OF_ORDERED: u64 = 280;

/// When the link goes silent: the queues are in their rhythm by then.
const CUT: u64 = 3000;
/// How long afterwards it is watched.
const WATCHED: u64 = 2000;

const SEEDS: u64 = 3;

/// What the product's nodes have.
fn product() -> TransportConfig {
    let mut transport = anabranch_schedulers::transport();
    anabranch_tunnel::streams::suit(&mut transport.streams);
    transport.scheduler = anabranch_schedulers::steered(transport.scheduler);
    transport
}

/// The longest time in which a count did not grow.
struct Silence {
    count: u64,
    since: u64,
    longest: u64,
}

impl Silence {
    fn from(now: u64, count: u64) -> Self {
        Self {
            count,
            since: now,
            longest: 0,
        }
    }

    fn note(&mut self, now: u64, count: u64) {
        if count > self.count {
            (self.count, self.since) = (count, now);
        }
        self.longest = self.longest.max(now - self.since);
    }
}

/// What a host sends or fetches beside the datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Download,
    Upload,
}

/// The longest silences of a connection and of a flow of 50 datagrams a second to this port, in
/// milliseconds.
fn silences((seed, queue): (u64, u64), beside: Beside, link: usize, port: u16) -> [u64; 2] {
    const ENDLESS: u64 = 100_000_000;
    let one = LinkConfig {
        queue: Queue::TailDropPackets(queue),
        ..super::link(20, 10)
    };
    let links = [one.clone(), one];
    let exchange = match beside {
        Beside::Download => Exchange::download(ENDLESS),
        Beside::Upload => Exchange::upload(ENDLESS),
    };
    let mut net = net_with((seed, product()), &links, exchange, None, true);
    let flow = flow(&net, 0, Duration::from_millis(20));
    let flow = UdpFlow {
        to: SocketAddr::new(flow.to.ip(), port),
        end: at(CUT + 2 * WATCHED),
        ..flow
    };
    let world = &mut net.world;
    world.attach_at(net.nodes[0], 7000, Box::new(UdpSource::new().with(flow)));
    let sink = world.attach_at(net.nodes[1], port, Box::new(UdpSink::new()));
    // Each seed meets the rhythm of datagrams and of acknowledgements elsewhere.
    let cut = CUT + 7 * seed;
    let silent = Change::link(net.links[link], Directions::Both, LinkChange::Up(false));
    world.at(at(cut), silent);
    let counts = |net: &Net| {
        let client = net.world.process::<TcpHost>(net.hosts[0]);
        let received = match beside {
            Beside::Download => client.report(net.flow).received_bytes,
            Beside::Upload => net.served().received_bytes,
        };
        let datagrams = net.world.process::<UdpSink>(sink).stats(0).received;
        [received, datagrams]
    };
    net.world.run_until(at(cut));
    let mut heard = counts(&net).map(|count| Silence::from(cut, count));
    for now in cut + 1..=cut + WATCHED {
        net.world.run_until(at(now));
        for (silence, count) in heard.iter_mut().zip(counts(&net)) {
            silence.note(now, count);
        }
    }
    heard.map(|silence| silence.longest)
}

/// Every case with a queue of so many packets.
fn check(queue: u64, bound: u64) {
    /// Ports of the classes `bulk` and `voice`.
    const PORTS: [u16; 2] = [7001, 3478];
    for beside in [Beside::Download, Beside::Upload] {
        for (port, link) in PORTS.into_iter().flat_map(|port| [(port, 0), (port, 1)]) {
            let is_ordered = port == PORTS[0] && beside == Beside::Upload;
            let most = if is_ordered && queue == LONG {
                BOUND_OF_ORDERED
            } else {
                bound
            };
            for seed in 1..=SEEDS {
                let [connection, datagrams] = silences((seed, queue), beside, link, port);
                assert!(
                    connection <= bound && datagrams <= most,
                    "{queue} packets, {beside:?}, port {port}, link {link}, seed {seed}: \
                     {connection} ms, datagrams {datagrams} ms"
                );
            }
        }
    }
}

#[test]
fn hosts_hear_nothing_for_a_tenth_of_a_second_at_most_when_a_link_goes_silent() {
    check(SHORT, BOUNDS[0]);
}

#[test]
fn long_queues_make_silence_longer_within_bounds() {
    check(LONG, BOUNDS[1]);
}
