//! One connection over several links, and its results.

use anabranch_link::{Jitter, LinkConfig, Loss, Probability, Queue, Rate};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::path::{PathOptions, Shape};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_schedulers::Names;
use anabranch_sim::app::{Amount, Bulk, File, Files, Receiver};
use anabranch_sim::quic::QuicHost;
use anabranch_sim::record::{
    End, PacketKind, PacketRow, PathTotals, Probe, Recorder, STEP, Totals, Watch,
};
use anabranch_sim::scene::{FIRST, Hosts, Scene};
use anabranch_sim::{Change, Directions, LinkChange, World};
use std::collections::BTreeMap;
use std::time::Duration;

/// A trial that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// The baseline for comparisons: the lowest RTT as published, without the copies at the tail that
/// are recommended beside it.
pub(crate) const LOWEST_RTT: &str = "min-rtt";

/// A link: its forward and its backward direction.
pub(crate) type Link = (LinkConfig, LinkConfig);

/// A link with this rate both ways, a queue of 60 ms or ten packets, and delays in milliseconds.
pub(crate) fn link(mbps: f64, forward_ms: u64, backward_ms: u64) -> Link {
    queued(mbps, forward_ms, backward_ms, 60)
}

/// Like [`link`], with a queue of this many milliseconds.
pub(crate) fn queued(mbps: f64, forward_ms: u64, backward_ms: u64, queue_ms: u64) -> Link {
    let rate = (mbps * 1e6) as u64;
    let one_way = |ms| LinkConfig {
        queue: Queue::TailDropBytes((rate / 8 * queue_ms / 1000).max(9_000)),
        ..LinkConfig::new(Rate::bits_per_second(rate).unwrap(), millis(ms))
    };
    (one_way(forward_ms), one_way(backward_ms))
}

/// The link with random loss for data packets.
pub(crate) fn lossy(mut link: Link, share: f64) -> Link {
    link.0.loss = Loss::Independent(Probability::new(share).unwrap());
    link
}

/// The link with jitter for data packets that does not reorder them.
pub(crate) fn jittery(mut link: Link, ms: u64) -> Link {
    link.0.jitter = Jitter::Normal(millis(ms));
    link
}

pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn at(ms: u64) -> Instant {
    Instant::ZERO + millis(ms)
}

/// The middle one of an odd number of values.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    /// One stream of this length.
    Bulk(u64),
    /// Files.
    Files(Vec<File>),
}

/// A trial to run.
pub(crate) struct Trial {
    links: Vec<Link>,
    load: Load,
    seed: u64,
    options: Vec<PathOptions>,
    script: Vec<(Instant, usize, LinkChange)>,
    sender: TransportConfig,
    receiver: TransportConfig,
    packets: bool,
}

impl Trial {
    /// A bulk transfer of a megabyte and a half.
    pub(crate) fn on(links: &[Link]) -> Self {
        Self {
            links: links.to_vec(),
            load: Load::Bulk(1_500_000),
            seed: 1,
            options: Vec::new(),
            script: Vec::new(),
            sender: anabranch_schedulers::transport(),
            receiver: anabranch_schedulers::transport(),
            packets: false,
        }
    }

    pub(crate) fn bytes(mut self, bytes: u64) -> Self {
        self.load = Load::Bulk(bytes);
        self
    }

    pub(crate) fn files(mut self, files: Vec<File>) -> Self {
        self.load = Load::Files(files);
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How paths are to be used, in the order of the links.
    pub(crate) fn options(mut self, options: &[PathOptions]) -> Self {
        self.options = options.to_vec();
        self
    }

    pub(crate) fn weights(self, weights: &[u32]) -> Self {
        let option = |weight: &u32| PathOptions {
            weight: *weight,
            ..PathOptions::default()
        };
        let options: Vec<_> = weights.iter().map(option).collect();
        self.options(&options)
    }

    /// Changes a link in both directions at a given time.
    pub(crate) fn change(mut self, time: Instant, link: usize, change: LinkChange) -> Self {
        self.script.push((time, link, change));
        self
    }

    /// Timestamps in both directions.
    pub(crate) fn timestamps(mut self) -> Self {
        self.sender.timestamps = true;
        self.receiver.timestamps = true;
        self
    }

    /// A receive window that never changes.
    pub(crate) fn window(mut self, bytes: u64) -> Self {
        for config in [&mut self.sender, &mut self.receiver] {
            config.streams.receive_window = bytes;
            config.streams.max_receive_window = bytes;
            config.streams.stream_receive_window = bytes;
            config.streams.max_stream_receive_window = bytes;
        }
        self
    }

    pub(crate) fn sender(mut self, tune: impl FnOnce(&mut TransportConfig)) -> Self {
        tune(&mut self.sender);
        self
    }

    pub(crate) fn receiver(mut self, tune: impl FnOnce(&mut TransportConfig)) -> Self {
        tune(&mut self.receiver);
        self
    }

    /// Limits each path to this rate in megabits per second, so that no queue builds up.
    pub(crate) fn shaped(self, rates: &[f64]) -> Self {
        let option = |rate: &f64| PathOptions {
            shape: Some(Shape::Fixed {
                rate: (rate * 1e6 / 8.0) as u64,
                burst: Some(3000),
            }),
            ..PathOptions::default()
        };
        let options: Vec<_> = rates.iter().map(option).collect();
        self.options(&options)
    }

    /// Records a row for each packet.
    pub(crate) fn packets(mut self) -> Self {
        self.packets = true;
        self
    }

    /// Runs to the end of the load.
    pub(crate) fn run(self, scheduler: &str) -> Outcome {
        let mut running = self.start(scheduler);
        running.run_until(Instant::ZERO + LIMIT);
        running.outcome()
    }

    /// Starts the trial, so that it can be observed while it runs.
    pub(crate) fn start(mut self, scheduler: &str) -> Running {
        self.sender.scheduler = Names::default().scheduler(scheduler).unwrap();
        let probe = Probe::new(Watch {
            order: true,
            decisions: false,
            packets: self.packets,
        });
        self.sender.observer = Some(probe.sender());
        self.receiver.observer = Some(probe.receiver());
        let mut scene = Scene::new(self.seed, &self.links);
        let (client, server) = anabranch_sim::quic::configs(self.sender, self.receiver);
        let (mut near, far) = scene.hosts(server);
        let mut dial = scene.dial(client);
        for (plan, options) in dial.paths.iter_mut().zip(&self.options) {
            plan.options = *options;
        }
        near.dial(dial);
        let (near, expected) = match self.load {
            Load::Bulk(bytes) => {
                let bulk = Bulk::new(FIRST, Amount::Bytes(bytes), Instant::ZERO);
                (near.app(bulk), 1)
            }
            Load::Files(files) => {
                let count = files.len();
                (near.app(Files::new(FIRST, files, count)), count as u64)
            }
        };
        // The peer's requests bind the sender, so both ends state the same ones.
        let far = far.path_options(self.options);
        let hosts = scene.start(near, far.app(Receiver::new(expected).verify()));
        for (time, index, change) in self.script {
            let change = Change::link(scene.links[index], Directions::Both, change);
            scene.world.at(time, change);
        }
        let end = |host| End {
            host,
            session: FIRST,
        };
        let recorder = Recorder::new(end(hosts.client), end(hosts.server), probe, STEP);
        Running {
            scene,
            hosts,
            recorder,
            pause: Duration::ZERO,
            latest: (0, None),
        }
    }
}

/// A trial in progress.
pub(crate) struct Running {
    pub(crate) scene: Scene,
    pub(crate) hosts: Hosts,
    recorder: Recorder,
    /// The longest time without progress since this was last set to zero.
    pub(crate) pause: Duration,
    latest: (u64, Option<Instant>),
}

impl Running {
    /// Runs to the end of the load, or until `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        let server = self.hosts.server;
        let (pause, latest) = (&mut self.pause, &mut self.latest);
        self.recorder
            .run_while(&mut self.scene.world, end, |world| {
                let receiver = world.process::<QuicHost>(server).get::<Receiver>();
                let bytes = receiver.total().bytes;
                if bytes > latest.0 {
                    let now = world.now();
                    *pause =
                        (*pause).max(latest.1.map_or(Duration::ZERO, |since| now.since(since)));
                    *latest = (bytes, Some(now));
                }
                !receiver.is_complete()
            });
    }

    /// Bytes the receiver has read.
    pub(crate) fn received(&self) -> u64 {
        self.latest.0
    }

    /// Bits per second read between two times in milliseconds.
    pub(crate) fn goodput(&mut self, from_ms: u64, until_ms: u64) -> f64 {
        self.run_until(at(from_ms));
        let before = self.received();
        self.run_until(at(until_ms));
        let bytes = self.received() - before;
        bytes as f64 * 8.0 / millis(until_ms - from_ms).as_secs_f64()
    }

    /// Stream bytes sent on a path so far, copies included.
    pub(crate) fn carried(&self, path: usize) -> u64 {
        let connection = self.client().connection(FIRST).expect("it is open");
        let stats = connection.path_stats(PathId(path as u32));
        let counters = stats.map(|stats| stats.counters).unwrap_or_default();
        counters.fresh_bytes + counters.retransmitted_bytes + counters.copied_bytes
    }

    pub(crate) fn world(&self) -> &World {
        &self.scene.world
    }

    pub(crate) fn client(&self) -> &QuicHost {
        self.scene.world.process(self.hosts.client)
    }

    /// The results so far.
    pub(crate) fn outcome(mut self) -> Outcome {
        let world = &mut self.scene.world;
        let totals = self.recorder.totals(world);
        let paths = self.recorder.paths(world);
        let receiver = world
            .process::<QuicHost>(self.hosts.server)
            .get::<Receiver>();
        let total = *receiver.total();
        assert_eq!(total.corrupt, 0, "data arrives as it was sent");
        let sent = world.process::<QuicHost>(self.hosts.client);
        let files = sent.all::<Files>().flat_map(|files| {
            let completions = files.completions(receiver, FIRST);
            completions.map(|(_, took)| took).collect::<Vec<_>>()
        });
        let took = total.last_byte.zip(totals.established);
        Outcome {
            took: took
                .filter(|_| receiver.is_complete())
                .map(|(last, established)| last.since(established)),
            files: files.collect(),
            packets: self.recorder.probe().packets(),
            paths,
            totals,
        }
    }
}

/// The results of a trial.
pub(crate) struct Outcome {
    took: Option<Duration>,
    /// How long each file took.
    pub(crate) files: Vec<Option<Duration>>,
    pub(crate) packets: Vec<PacketRow>,
    pub(crate) paths: Vec<PathTotals>,
    pub(crate) totals: Totals,
}

impl Outcome {
    /// Seconds from the end of the handshake to the last byte.
    pub(crate) fn seconds(&self) -> f64 {
        self.took.expect("the transfer ends").as_secs_f64()
    }

    /// Mean seconds per file.
    pub(crate) fn mean_file(&self) -> f64 {
        let times = self
            .files
            .iter()
            .map(|time| time.expect("the file ends").as_secs_f64());
        times.sum::<f64>() / self.files.len() as f64
    }

    /// Stream bytes sent for the first time on a path.
    pub(crate) fn fresh(&self, path: usize) -> u64 {
        self.paths.get(path).map_or(0, |path| path.sent.fresh_bytes)
    }

    /// The share of one path in the stream bytes sent for the first time.
    pub(crate) fn share(&self, path: usize) -> f64 {
        let all: u64 = self.paths.iter().map(|path| path.sent.fresh_bytes).sum();
        self.fresh(path) as f64 / all as f64
    }

    /// Stream bytes sent as copies.
    pub(crate) fn copied(&self) -> u64 {
        self.paths.iter().map(|path| path.sent.copied_bytes).sum()
    }

    /// Mean time in milliseconds that a byte waited for earlier ones at the receiver.
    pub(crate) fn wait_ms(&self) -> f64 {
        self.totals.reseq_waits.mean().as_secs_f64() * 1e3
    }

    /// Packets of fresh data that arrived after later data of their stream.
    pub(crate) fn out_of_order(&self, from: Instant) -> usize {
        let mut rows: Vec<&PacketRow> = self.packets.iter().collect();
        rows.retain(|row| {
            row.arrived.is_some_and(|at| at >= from) && row.kind == PacketKind::Fresh
        });
        rows.sort_by_key(|row| row.arrived);
        let mut highest = BTreeMap::new();
        let mut late = 0;
        for row in rows {
            let (stream, offset) = row.data.expect("it carries data");
            let highest = highest.entry(stream).or_insert(0);
            late += usize::from(offset < *highest);
            *highest = offset.max(*highest);
        }
        late
    }
}
