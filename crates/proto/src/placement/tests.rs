//! The sending decision without a connection: paths and streams, a scheduler that says what it is
//! told to say, and packets that are written into the open.

use super::*;
use crate::config::{Rescue, RetransmissionPolicy};
use crate::datagram::{SocketId, Tuple};
use crate::handshake::Handshake;
use crate::packet::{Heading, Packet, Via};
use crate::path::cids::RemoteCids;
use crate::path::liveness::Sent;
use crate::path::packets::Leaving;
use crate::path::route::Route;
use crate::path::shaper::Shape;
use crate::path::state::{Path, PathOptions};
use crate::recovery::PacketSpace;
use crate::sched::{Decision, SchedulerFactory, SendView, Wants};
use crate::streams::Limits;
use crate::wire::frame::PathStatus;
use crate::wire::params::TransportParameters;
use crate::wire::{ConnectionId, Dir, Side, StreamId};
use bytes::Bytes;
use std::sync::{Arc, Mutex};

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const ROOM: usize = 1100;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What the scheduler says, and how often it was asked.
type Script = Arc<Mutex<(Decision, u32)>>;

#[derive(Debug)]
struct Scripted(Script);

impl Scheduler for Scripted {
    fn select(&mut self, _: &SendView<'_>) -> Choice {
        let mut script = self.0.lock().unwrap();
        script.1 += 1;
        Choice {
            decision: script.0,
            reason: Reason::Planned,
        }
    }

    fn wants(&self) -> Wants {
        Wants::COPIES
    }
}

/// The same, steadily.
#[derive(Debug)]
struct Steady(Scripted);

impl Scheduler for Steady {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.0.select(view)
    }

    fn is_steady(&self) -> bool {
        true
    }
}

struct World {
    now: Instant,
    paths: Manager,
    streams: Streams,
    one_way: OneWay,
    bottlenecks: Bottlenecks,
    rng: Rng,
    script: Script,
    placement: Placement,
    stream: StreamId,
}

impl World {
    /// Two proven paths, a stream of `bytes`, and the decision.
    fn new(config: TransportConfig, bytes: usize, decision: Decision) -> Self {
        let script: Script = Arc::new(Mutex::new((decision, 0)));
        let told = Arc::clone(&script);
        let build = move || Box::new(Scripted(Arc::clone(&told))) as Box<dyn Scheduler>;
        let config = TransportConfig {
            scheduler: SchedulerFactory::from_fn("scripted", build),
            ..config
        };
        let mut rng = Rng::from_seed([1; 32]);
        let now = Instant::ZERO + ms(1000);
        let path = |id: PathId, rng: &mut Rng| {
            let tuple = Tuple {
                socket: SocketId(id.0),
                local: None,
                remote: "192.0.2.1:4433".parse().unwrap(),
            };
            let mut route = Route::new(&config, rng, now, id, tuple, 0);
            route.set_validated();
            let space = PacketSpace::new(rng);
            Path::new(id, space, route, PathOptions::default(), now)
        };
        let mut paths = Manager::new(path(A, &mut rng));
        paths.negotiate(B, B);
        paths.put(path(B, &mut rng), PathStatus::Available);
        for id in [A, B] {
            let cid = ConnectionId::new(&[id.0 as u8; 8]).unwrap();
            paths.change_cids(id, |cids| *cids = RemoteCids::with_initial(cid));
        }
        let mut streams = Streams::new(Side::Client, &config.streams);
        let mut params = TransportParameters::default();
        Limits::default().announce(&mut params);
        streams.on_peer_params(&params);
        let stream = streams.open(Dir::Uni).unwrap();
        let mut data = Bytes::from(vec![7; bytes]);
        streams.write(stream, &mut data).unwrap();
        Self {
            now,
            paths,
            streams,
            one_way: OneWay::new(),
            bottlenecks: Bottlenecks::default(),
            rng,
            script,
            placement: Placement::new(&config),
            stream,
        }
    }

    fn plain(bytes: usize, decision: Decision) -> Self {
        Self::new(TransportConfig::default(), bytes, decision)
    }

    fn say(&self, decision: Decision) {
        self.script.lock().unwrap().0 = decision;
    }

    fn asked(&self) -> u32 {
        self.script.lock().unwrap().1
    }

    fn decide(&mut self) -> Option<Job> {
        self.placement.decide(&mut Sight {
            now: self.now,
            paths: &self.paths,
            streams: &self.streams,
            one_way: &self.one_way,
            bottlenecks: &self.bottlenecks,
            rng: &mut self.rng,
            level: Level::OneRtt,
            max_ack_delay: ms(25),
            is_watched: false,
        })
    }

    fn next_repeat(&mut self) -> Option<Job> {
        let (paths, streams) = (&self.paths, &self.streams);
        let placement = &mut self.placement;
        placement.next_repeat(self.now, Level::OneRtt, paths, streams)
    }

    /// Writes what was decided into a packet; returns its stream bytes.
    fn carry(&mut self, job: Job) -> u64 {
        let Task::Data(load) = job.task else {
            panic!("{job:?} is no data")
        };
        let heading = Heading {
            level: Level::OneRtt,
            path: job.path,
            via: Via::Route,
            dcid: ConnectionId::default(),
            scid: ConnectionId::default(),
            token: &[],
            key_phase: false,
            pn: 0,
            largest_acked: None,
        };
        let (mut out, around) = (Vec::new(), 2 + Handshake::TAG_LEN);
        let packet = Packet::begin(&heading, &mut out, ROOM + around);
        let mut packet = packet.expect("there is room");
        let (paths, streams) = (&mut self.paths, &mut self.streams);
        self.placement.write(load, &mut packet, paths, streams);
        let (size, frames) = (ROOM - packet.room(), packet.frames().sent().clone());
        assert!(!frames.is_empty(), "{job:?} wrote nothing");
        let bytes = frames.iter().map(|frame| match frame {
            SentFrame::Stream { length, fin, .. } => u64::from(*length) + u64::from(*fin),
            _ => 0,
        });
        let bytes = bytes.sum();
        self.leave(job.path, size, frames);
        bytes
    }

    /// A packet with these frames leaves by a path.
    fn leave(&mut self, id: PathId, size: usize, frames: SentFrames) {
        let path = self.paths.path_mut(id).unwrap();
        let pn = path.space().peek_pn();
        let leaving = Leaving {
            pn,
            size,
            takes_mark: true,
            ack_eliciting: true,
            in_flight: true,
            is_mtu_probe: false,
            beside_window: None,
            awaits: Sent::Awaited,
            frames,
        };
        let sent = path.on_sent(self.now, leaving);
        path.remember(pn, sent);
    }
}

fn load(job: Option<Job>) -> (PathId, Load) {
    match job {
        Some(Job {
            path,
            task: Task::Data(load),
        }) => (path, load),
        other => panic!("{other:?} is no data"),
    }
}

#[test]
fn a_decision_is_kept_until_a_packet_carried_it() {
    let mut world = World::plain(3000, Decision::Send(B));
    let first = world.decide();
    assert_eq!(world.decide(), first);
    assert_eq!(world.asked(), 1);
    world.carry(first.unwrap());
    assert_eq!(world.decide().map(|job| job.path), Some(B));
    assert_eq!(world.asked(), 2);
}

#[test]
fn a_steady_scheduler_is_asked_once_while_its_path_only_sends_and_has_room() {
    let mut world = World::plain(30_000, Decision::Send(B));
    let scripted = Scripted(Arc::clone(&world.script));
    world.placement.set_scheduler(Box::new(Steady(scripted)));
    for _ in 0..3 {
        let job = world.decide();
        assert_eq!(job.map(|job| job.path), Some(B));
        world.carry(job.unwrap());
    }
    assert_eq!(world.asked(), 1);
    let reasons = world.placement.stats().reasons;
    assert_eq!(reasons, [(Reason::Planned, 3)], "each decision counts");
    world.placement.on_acked(B, 1200, ms(10));
    let job = world.decide();
    assert_eq!(world.asked(), 2, "an acknowledgement is news");
    world.carry(job.unwrap());
    world.placement.begin();
    let mut job = world.decide();
    assert_eq!(world.asked(), 3, "and so may be what is before a batch");
    world.say(Decision::Send(A));
    while let Some(sent) = job.filter(|job| job.path == B) {
        world.carry(sent);
        job = world.decide();
    }
    assert_eq!((load(job).0, world.asked()), (A, 4), "B is full");
}

#[test]
fn news_of_any_kind_put_the_question_again() {
    let inputs: [fn(&mut World); 6] = [
        |world| world.placement.on_acked(A, 1200, ms(10)),
        |world| world.placement.on_lost(A, 1200),
        |world| world.placement.on_credit(),
        |world| world.placement.on_path(&PathEvent::Doubted { path: A }),
        |world| {
            let options = PathOptions::default();
            let path = world.paths.path_mut(A).unwrap();
            path.set_options(options, Instant::ZERO);
        },
        |world| {
            let status = PathStatus::Backup;
            world.paths.on_peer_status(A, status, 1);
        },
    ];
    for (at, input) in inputs.into_iter().enumerate() {
        let mut world = World::plain(3000, Decision::Send(A));
        world.decide();
        input(&mut world);
        world.say(Decision::Send(B));
        assert_eq!(world.decide().map(|job| job.path), Some(B), "input {at}");
    }
}

#[test]
fn what_the_application_takes_back_is_not_sent_although_it_was_decided_on() {
    let mut world = World::plain(3000, Decision::Send(A));
    assert!(world.decide().is_some());
    world.streams.reset(world.stream, 0.into()).unwrap();
    assert_eq!(world.decide(), None);
}

#[test]
fn an_answer_that_nothing_can_be_written_for_is_a_hold() {
    let beyond = Decision::SendAt {
        path: A,
        skip: 3000,
    };
    let mut world = World::plain(3000, beyond);
    assert_eq!(world.decide(), None);
    assert!(world.placement.deadline().is_some());
    assert_eq!(world.placement.stats().holds, 1);
    world.placement.on_written();
    world.say(Decision::SendAt {
        path: A,
        skip: 2999,
    });
    let job = world.decide().unwrap();
    assert_eq!(world.carry(job), 1);
}

#[test]
fn an_unknown_path_is_overruled_and_a_stream_with_nothing_to_send_is_not_chosen() {
    let mut world = World::plain(3000, Decision::Send(PathId(9)));
    assert_eq!(world.decide(), None);
    assert_eq!(world.placement.stats().overruled, 1);
    let other = world.streams.open(Dir::Uni).unwrap();
    world.placement.on_written();
    world.say(Decision::SendStream {
        path: A,
        stream: other,
    });
    assert_eq!(world.decide(), None);
}

#[test]
fn patience_ends_however_often_the_scheduler_asks_for_more() {
    let mut world = World::plain(3000, Decision::Hold { until: None });
    assert_eq!(world.decide(), None);
    let end = world.placement.deadline().unwrap();
    world.now += ms(5);
    world.placement.on_written();
    assert_eq!(world.decide(), None);
    assert_eq!(
        world.placement.deadline(),
        Some(end),
        "writing buys no time"
    );
    world.now = end;
    world.placement.on_timeout(end);
    assert_eq!(world.decide().map(|job| job.path), Some(A), "lowest RTT");
}

#[test]
fn acknowledgements_do_not_renew_patience() {
    let mut world = World::plain(3000, Decision::Hold { until: None });
    assert_eq!(world.decide(), None);
    let end = world.placement.deadline().unwrap();
    while world.now < end {
        world.now += ms(1);
        world.placement.on_acked(A, 1200, ms(10));
        world.placement.on_credit();
        world.placement.on_path(&PathEvent::Pto { path: B });
        world.placement.on_timeout(world.now);
        if world.now < end {
            assert_eq!(world.decide(), None);
            assert_eq!(world.placement.deadline(), Some(end));
        }
    }
    // The last acknowledgement came before the time-out, and ended the hold.
    let decided = world.decide().or_else(|| {
        world.placement.on_timeout(world.now);
        world.decide()
    });
    assert_eq!(decided.map(|job| job.path), Some(A), "lowest RTT");
}

#[test]
fn patience_is_not_kept_for_what_comes_after_nothing_waited() {
    let mut world = World::plain(3000, Decision::Hold { until: None });
    assert_eq!(world.decide(), None);
    let end = world.placement.deadline().unwrap();
    world.streams.reset(world.stream, 0.into()).unwrap();
    assert_eq!(world.decide(), None);
    assert_eq!(world.placement.deadline(), None, "nothing is held");
    world.now = end;
    world.placement.on_timeout(end);
    let other = world.streams.open(Dir::Uni).unwrap();
    let mut data = Bytes::from(vec![7; 3000]);
    world.streams.write(other, &mut data).unwrap();
    world.placement.on_written();
    assert_eq!(world.decide(), None, "patience begins anew");
    assert!(world.placement.deadline() > Some(end));
}

#[test]
fn an_answer_that_names_a_paced_path_waits_for_its_pacer() {
    let answers = [
        Decision::Send(A),
        Decision::SendAt { path: A, skip: 10 },
        Decision::Duplicate([A].into_iter().collect()),
    ];
    for answer in answers {
        let mut world = World::plain(30_000, answer);
        let options = PathOptions {
            shape: Some(Shape::Fixed {
                rate: 1_000_000,
                burst: Some(1500),
            }),
            ..PathOptions::default()
        };
        let now = world.now;
        world.paths.path_mut(A).unwrap().set_options(options, now);
        let job = world.decide().unwrap();
        world.carry(job);
        assert_eq!(world.decide(), None, "{answer:?}");
        let ready = world.paths.path(A).unwrap().ready_at(now, 1200);
        assert!(ready > now);
        assert_eq!(world.placement.deadline(), Some(ready), "{answer:?}");
    }
}

#[test]
fn answers_are_counted_by_what_became_of_them() {
    let hold = Decision::Hold { until: None };
    let none = StreamId::new(Side::Client, Dir::Uni, 99);
    let answers = [
        (Decision::Send(A), (0, 0)),
        (hold, (1, 0)),
        (Decision::Send(PathId(9)), (1, 1)),
        (
            Decision::SendAt {
                path: A,
                skip: 3000,
            },
            (1, 1),
        ),
        (
            Decision::SendStream {
                path: A,
                stream: none,
            },
            (1, 1),
        ),
        (Decision::Duplicate(PathSet::EMPTY), (1, 1)),
        (Decision::Copy(A), (1, 1)),
    ];
    for (answer, expected) in answers {
        let mut world = World::plain(3000, answer);
        world.decide();
        let stats = world.placement.stats();
        assert_eq!((stats.holds, stats.overruled), expected, "{answer:?}");
    }
}

#[test]
fn a_path_whose_connection_ids_were_taken_back_carries_nothing_more() {
    let withdraw = |world: &mut World| {
        world.paths.change_cids(B, |cids| *cids = RemoteCids::new());
    };
    // What was decided, ...
    let mut world = World::plain(3000, Decision::Send(B));
    assert_eq!(world.decide().map(|job| job.path), Some(B));
    withdraw(&mut world);
    assert_eq!(world.decide(), None);
    // ... what is left of a chunk, ...
    let config = TransportConfig {
        chunk: Some(5000),
        ..TransportConfig::default()
    };
    let mut world = World::new(config, 10_000, Decision::Send(B));
    let job = world.decide().unwrap();
    world.carry(job);
    withdraw(&mut world);
    world.say(Decision::Send(A));
    assert_eq!(world.decide().map(|job| job.path), Some(A));
    // ... and copies.
    let both = Decision::Duplicate([A, B].into_iter().collect());
    let mut world = World::plain(1000, both);
    let job = world.decide().unwrap();
    world.carry(job);
    withdraw(&mut world);
    assert_eq!(world.next_repeat(), None);
    assert!(world.placement.waits_for(B), "until there is one again");
}

#[test]
fn a_chunk_goes_where_its_first_packet_went() {
    let config = TransportConfig {
        chunk: Some(2500),
        ..TransportConfig::default()
    };
    let mut world = World::new(config, 10_000, Decision::Send(B));
    let mut sent = 0;
    while sent < 2500 {
        let job = world.decide().unwrap();
        assert_eq!(job.path, B);
        world.say(Decision::Send(A));
        sent += world.carry(job);
    }
    assert_eq!((sent, world.asked()), (2500, 1));
    assert_eq!(world.decide().map(|job| job.path), Some(A));
}

#[test]
fn another_chunk_size_leaves_nothing_of_chunks_that_were_begun() {
    let config = TransportConfig {
        chunk: Some(5000),
        ..TransportConfig::default()
    };
    let mut world = World::new(config, 10_000, Decision::Send(B));
    let job = world.decide().unwrap();
    world.carry(job);
    world.placement.set_chunk(None);
    world.say(Decision::Send(A));
    assert_eq!(world.decide().map(|job| job.path), Some(A));
}

#[test]
fn a_doubted_path_loses_what_is_left_of_its_chunk() {
    let config = TransportConfig {
        chunk: Some(5000),
        ..TransportConfig::default()
    };
    let mut world = World::new(config, 10_000, Decision::Send(B));
    let job = world.decide().unwrap();
    world.carry(job);
    world.say(Decision::Send(A));
    world.placement.on_path(&PathEvent::Doubted { path: B });
    assert_eq!(world.decide().map(|job| job.path), Some(A));
}

#[test]
fn a_copy_names_its_original_and_is_made_once() {
    let mut world = World::plain(1000, Decision::Send(A));
    let job = world.decide().unwrap();
    world.carry(job);
    world.say(Decision::Copy(B));
    let (path, copy) = load(world.decide());
    let Load::Copy(original) = copy else {
        panic!("{copy:?}")
    };
    assert_eq!((path, original.path), (B, A));
    world.carry(Job::data(path, copy));
    assert_eq!(world.decide(), None, "all that A carries is on B too");
}

#[test]
fn what_a_path_lost_it_may_copy_although_only_a_copy_is_under_way() {
    let mut world = World::plain(1000, Decision::Send(A));
    let job = world.decide().unwrap();
    world.carry(job);
    let sent = world.paths.path(A).unwrap().space().iter_unacked().next();
    let frame = sent.unwrap().1.frames[0];
    world.say(Decision::Copy(B));
    let job = world.decide().unwrap();
    world.carry(job);
    world.say(Decision::Copy(A));
    assert_eq!(world.decide(), None, "it is under way on A");
    world.streams.on_lost(&frame, A);
    world.placement.on_lost(A, 1000);
    let (path, copy) = load(world.decide());
    let Load::Copy(original) = copy else {
        panic!("{copy:?}")
    };
    assert_eq!((path, original.path), (A, B));
}

#[test]
fn repeats_wait_for_their_path_and_are_forgotten_once_they_are_pointless() {
    let both = Decision::Duplicate([A, B].into_iter().collect());
    let mut world = World::plain(1000, both);
    let job = world.decide().unwrap();
    world.carry(job);
    let repeat = world.next_repeat().unwrap();
    let Task::Repeat(number) = repeat.task else {
        panic!("{repeat:?}")
    };
    assert_eq!(repeat.path, B);
    assert!(world.placement.repeats.get(number).is_some());
    let sent = world.paths.path(A).unwrap().space().iter_unacked().next();
    let frame = sent.unwrap().1.frames[0];
    world.streams.on_acked(&frame);
    assert_eq!(world.next_repeat(), None);
    assert!(world.placement.repeats.get(number).is_none());
}

#[test]
fn a_path_that_is_given_up_takes_its_repeats_along() {
    let both = Decision::Duplicate([A, B].into_iter().collect());
    let mut world = World::plain(1000, both);
    let job = world.decide().unwrap();
    world.carry(job);
    world.placement.on_path(&PathEvent::Abandoned { path: B });
    assert_eq!(world.next_repeat(), None);
}

#[test]
fn what_a_path_carried_that_is_given_up_is_repeated_all_the_more() {
    let both = Decision::Duplicate([A, B].into_iter().collect());
    let mut world = World::plain(1000, both);
    let job = world.decide().unwrap();
    assert_eq!(job.path, A);
    world.carry(job);
    world.placement.on_path(&PathEvent::Abandoned { path: A });
    assert_eq!(world.next_repeat().map(|job| job.path), Some(B));
}

#[test]
fn a_repeat_that_does_not_fit_the_next_packet_waits_for_a_larger_one() {
    let both = [A, B].into_iter().collect();
    let mut world = World::plain(0, Decision::Hold { until: None });
    let datagram = Bytes::from(vec![7; 1100]);
    let streams = &world.streams;
    let repeats = &mut world.placement.repeats;
    repeats.push(A, &both, &SentFrames::new(), &[datagram]);
    let next = |repeats: &mut Repeats, next, full| {
        let found = repeats.next(streams, |_| Some(Room { next, full }));
        found.map(|(path, _)| path)
    };
    assert_eq!(next(repeats, 900, ROOM + 100), None);
    assert_eq!(next(repeats, ROOM + 100, ROOM + 100), Some(B));
    assert_eq!(next(repeats, 900, 900), None, "no packet will hold it");
    assert_eq!(next(repeats, ROOM + 100, ROOM + 100), None);
}

#[test]
fn a_path_that_carries_no_copies_keeps_none_from_others() {
    const C: PathId = PathId(2);
    let all = [A, B, C].into_iter().collect();
    let mut world = World::plain(0, Decision::Hold { until: None });
    let streams = &world.streams;
    let repeats = &mut world.placement.repeats;
    for _ in 0..70 {
        repeats.push(A, &all, &SentFrames::new(), &[Bytes::from_static(b"?")]);
    }
    let room = Room {
        next: ROOM,
        full: ROOM,
    };
    // Of 70 copies for each, the six oldest are gone.
    let first = |path| move |id| (id == path).then_some(room);
    assert_eq!(repeats.next(streams, first(C)), Some((C, 13)));
    assert_eq!(repeats.next(streams, first(B)), Some((B, 12)));
    world.placement.on_path(&PathEvent::Doubted { path: B });
    assert!(
        !world.placement.repeats.wait_for(B),
        "a path in doubt has none"
    );
}

#[test]
fn without_mechanisms_there_is_no_object_of_theirs() {
    let mut config = TransportConfig::default();
    assert!(Placement::new(&config).mechanisms.is_none());
    config.mechanisms.rescue = Rescue::Copy;
    assert!(Placement::new(&config).mechanisms.is_some());
}

#[test]
fn one_retransmission_after_a_loss_need_not_wait_for_room() {
    let mut config = TransportConfig::default();
    config.mechanisms.retransmission = RetransmissionPolicy::LargestWindow;
    let mut world = World::new(config, 1000, Decision::Send(A));
    let job = world.decide().unwrap();
    world.carry(job);
    let sent = world.paths.path(A).unwrap().space().iter_unacked().next();
    let frame = sent.unwrap().1.frames[0];
    for id in [A, B] {
        let window = world.paths.path(id).unwrap().window() as usize;
        world.leave(id, window, SentFrames::new());
    }
    world.streams.on_lost(&frame, A);
    assert_eq!(world.decide(), None, "no window has room");
    world.placement.on_lost(A, 1000);
    let (_, again) = load(world.decide());
    assert!(matches!(again, Load::Waiting { beyond: true, .. }));
}

#[test]
fn a_retransmission_leaves_with_its_pacer_although_what_overtakes_it_is_held_for_longer() {
    let mut config = TransportConfig::default();
    config.mechanisms.retransmission = RetransmissionPolicy::Same;
    let mut world = World::new(config, 3000, Decision::Send(A));
    let options = PathOptions {
        shape: Some(Shape::Fixed {
            rate: 1_000_000,
            burst: Some(1500),
        }),
        ..PathOptions::default()
    };
    let now = world.now;
    world.paths.path_mut(A).unwrap().set_options(options, now);
    let job = world.decide().unwrap();
    world.carry(job);
    let path = world.paths.path(A).unwrap();
    let frame = path.space().iter_unacked().next().unwrap().1.frames[0];
    let opens = path.ready_at(now, 1200);
    assert!(now < opens && opens < now + ms(50));
    world.streams.on_lost(&frame, A);
    let until = Some(now + ms(50));
    world.say(Decision::Hold { until });
    assert_eq!(world.decide(), None);
    assert_eq!(world.placement.deadline(), Some(opens));
    world.now = opens;
    world.placement.on_timeout(opens);
    assert_eq!(world.decide().map(|job| job.path), Some(A));
}

#[test]
fn a_packet_too_small_for_a_job_is_told_before_it_is_begun() {
    let mut world = World::plain(3000, Decision::Send(A));
    let job = world.decide().unwrap();
    let fits = |room| world.placement.would_write(&job, room, &world.streams);
    assert!(!fits(20));
    assert!(fits(60));
}
