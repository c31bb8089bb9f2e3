//! One transfer, and what is observed of it.

use crate::app::{Amount, Bulk, File, Files, Receiver};
use crate::quic::QuicHost;
use crate::scene::{FIRST, Hosts, Scene};
use crate::{Change, Direction, Directions, LinkChange, World};
use anabranch_link::{LinkConfig, Loss};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::event::Level;
use anabranch_proto::event::{Observation, Observer, ObserverFactory, PathNotice, Purpose};
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::Frame;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Concurrent streams when fairness between them is measured.
const STREAMS: u64 = 4;

/// A transfer that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// How long stalls keep occurring: longer than any transfer that meets them takes.
const TROUBLED: Duration = Duration::from_secs(10);

/// The result of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Result {
    /// From writing the first byte until the last one could be read; `None` if that never happened.
    pub(super) took: Option<Duration>,
    /// The longest time without progress between these.
    pub(super) pause: Duration,
    /// Packets with new data on a path in doubt while another one answered.
    pub(super) on_doubted: u64,
    /// Times the sender doubted a path.
    pub(super) doubts: u64,
    /// Stream bytes sent for the first time or because they were presumed lost. Copies the
    /// scheduler asks for do not count.
    pub(super) sent: u64,
    /// When half of all bytes had arrived: the worst-served stream's part of its fair half, in
    /// percent.
    pub(super) least_percent: u64,
}

/// What is wrong with the second link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    /// The link fails and comes back again and again.
    Flaps,
    /// At intervals, a delay is added for a moment and removed again, in some directions.
    /// Everything sent after that waits for it, as with a peer too busy to acknowledge.
    Stalls {
        ways: Directions,
        delay: Duration,
        lasting: Duration,
        every: Duration,
    },
}

impl Trouble {
    /// Acknowledgements come in bursts, later than the peer announced.
    pub(super) const LATE_PEER: Self = Self::Stalls {
        ways: Directions::Only(Direction::Backward),
        delay: Duration::from_millis(40),
        lasting: Duration::from_millis(30),
        every: Duration::from_millis(50),
    };
    /// A radio link that pauses ten times a second.
    pub(super) const STALLS: Self = Self::Stalls {
        ways: Directions::Both,
        delay: Duration::from_millis(60),
        lasting: Duration::from_millis(3),
        every: Duration::from_millis(100),
    };

    /// Schedules the trouble in the world.
    fn plan(self, scene: &mut Scene, usual: Duration) {
        let Some(&link) = scene.links.get(1) else {
            return;
        };
        match self {
            Self::None => {}
            Self::Flaps => {
                for at in 1..20_u32 {
                    let time = Instant::ZERO + Duration::from_millis(300) * at;
                    let up = at % 2 == 0;
                    scene.world.at(time, Change::up(link, up));
                }
            }
            Self::Stalls {
                ways,
                delay,
                lasting,
                every,
            } => {
                let mut begin = Instant::ZERO + every;
                while begin < Instant::ZERO + TROUBLED {
                    for (time, delay) in [(begin, usual + delay), (begin + lasting, usual)] {
                        let change = LinkChange::Delay(delay);
                        scene.world.at(time, Change::link(link, ways, change));
                    }
                    begin += every;
                }
            }
        }
    }
}

/// A bulk transfer over these links, with something wrong with the second one.
pub(super) fn bulk(
    scheduler: &SchedulerFactory,
    links: &[LinkConfig],
    bytes: u64,
    trouble: Trouble,
) -> Result {
    let (mut scene, watch, hosts) = start(scheduler, links, bytes, false);
    let usual = links.get(1).map_or(Duration::ZERO, |link| link.delay);
    trouble.plan(&mut scene, usual);
    follow(&mut scene.world, hosts, &watch, &[bytes])
}

/// Several equal streams at once over these links.
pub(super) fn streams(scheduler: &SchedulerFactory, links: &[LinkConfig], bytes: u64) -> Result {
    let (mut scene, watch, hosts) = start(scheduler, links, bytes, true);
    let each = [bytes / STREAMS; STREAMS as usize];
    follow(&mut scene.world, hosts, &watch, &each)
}

fn start(
    scheduler: &SchedulerFactory,
    links: &[LinkConfig],
    bytes: u64,
    streams: bool,
) -> (Scene, DoubtWatch, Hosts) {
    let both = |link: &LinkConfig| {
        let backward = LinkConfig {
            loss: Loss::None,
            ..link.clone()
        };
        (link.clone(), backward)
    };
    let links: Vec<_> = links.iter().map(both).collect();
    let mut scene = Scene::new(1, &links);
    let watch = DoubtWatch::default();
    let sender = TransportConfig {
        scheduler: scheduler.clone(),
        observer: Some(watch.factory()),
        ..anabranch_schedulers::transport()
    };
    let (near, far) = scene.pair(sender, anabranch_schedulers::transport());
    let (near, expected) = if streams {
        let file = File::new(Instant::ZERO, bytes / STREAMS);
        let files = vec![file; STREAMS as usize];
        (near.app(Files::new(FIRST, files, 8)), STREAMS)
    } else {
        let bulk = Bulk::new(FIRST, Amount::Bytes(bytes), Instant::ZERO);
        (near.app(bulk), 1)
    };
    let hosts = scene.start(near, far.app(Receiver::new(expected).verify()));
    (scene, watch, hosts)
}

/// Watches until streams of these lengths have arrived.
fn follow(world: &mut World, hosts: Hosts, watch: &DoubtWatch, streams: &[u64]) -> Result {
    let end = Instant::ZERO + LIMIT;
    let half = streams.iter().sum::<u64>() / 2;
    let mut least_percent = None;
    let (mut bytes, mut since, mut pause) = (0, None::<Instant>, Duration::ZERO);
    let done = world.run_while_until(end, |world| {
        let receiver = world.process::<QuicHost>(hosts.server).get::<Receiver>();
        let total = receiver.total();
        if total.bytes > bytes {
            let now = world.now();
            pause = pause.max(since.map_or(Duration::ZERO, |since| now.since(since)));
            (bytes, since) = (total.bytes, Some(now));
        }
        if least_percent.is_none() && bytes >= half {
            let heard = receiver.streams().count();
            let arrived = receiver.streams().map(|(.., record)| record.bytes);
            let least = arrived
                .min()
                .filter(|_| heard == streams.len())
                .unwrap_or(0);
            let fair = half / streams.len().max(1) as u64;
            least_percent = Some(least * 100 / fair.max(1));
        }
        !receiver.is_complete()
    });
    let server = world.process::<QuicHost>(hosts.server);
    let last = server.get::<Receiver>().total().last_byte;
    let intact = server.get::<Receiver>().total().corrupt == 0;
    let client = world.process::<QuicHost>(hosts.client);
    let session = &client.sessions()[FIRST.0];
    let connection = client.connection(FIRST).into_iter();
    let stats = connection.flat_map(|connection| {
        let stats = |id| connection.path_stats(id);
        connection.paths().filter_map(stats)
    });
    let (mut doubts, mut sent) = (0, 0);
    for counters in stats.map(|stats| stats.counters) {
        doubts += counters.doubts;
        sent += counters.fresh_bytes + counters.retransmitted_bytes;
    }
    let took = last.zip(session.established());
    let took = took.map(|(last, established)| last.since(established));
    Result {
        took: took.filter(|_| done && intact),
        pause,
        on_doubted: watch.count(),
        doubts,
        sent,
        least_percent: least_percent.unwrap_or(0),
    }
}

#[derive(Debug, Default)]
struct Doubts {
    open: BTreeSet<PathId>,
    doubted: BTreeSet<PathId>,
    count: u64,
}

/// Counts packets with stream data on paths in doubt while another path answers.
#[derive(Debug, Clone, Default)]
struct DoubtWatch(Arc<Mutex<Doubts>>);

impl DoubtWatch {
    fn factory(&self) -> ObserverFactory {
        let watch = self.clone();
        ObserverFactory::from_fn(move |_| Some(Box::new(watch.clone())))
    }

    fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count
    }
}

impl Observer for DoubtWatch {
    fn observe(&mut self, _: Instant, observation: &Observation<'_>) {
        let mut doubts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match observation {
            Observation::Path(PathNotice::Opened { id, .. }) => {
                doubts.open.insert(*id);
            }
            Observation::Path(PathNotice::Doubted { id }) => {
                doubts.doubted.insert(*id);
            }
            Observation::Path(PathNotice::Recovered { id, .. }) => {
                doubts.doubted.remove(id);
            }
            Observation::Path(PathNotice::Abandoned { id, .. }) => {
                doubts.open.remove(id);
                doubts.doubted.remove(id);
            }
            Observation::PacketSent {
                level: Level::OneRtt,
                path,
                purpose: Purpose::Frames,
                frames,
                ..
            } => {
                let data = |frame: &Frame<'_>| matches!(frame, Frame::Stream(_));
                let has_data = frames.iter().any(|(_, frame)| data(frame));
                let others = doubts.open.difference(&doubts.doubted).any(|id| id != path);
                if has_data && others && doubts.doubted.contains(path) {
                    doubts.count += 1;
                }
            }
            _ => {}
        }
    }
}
