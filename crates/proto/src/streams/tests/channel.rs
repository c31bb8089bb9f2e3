//! Two sides over a channel that drops, repeats and reorders, with applications that do anything.

use super::*;
use proptest::prelude::*;

/// A packet on its way, or its record at the sender.
#[derive(Debug, Clone)]
struct Flight {
    from: usize,
    path: PathId,
    payload: Vec<u8>,
    sent: SentFrames,
    arrived: bool,
    /// Declared lost, though it may still arrive.
    lost: bool,
}

/// What an application did to a half and saw of it.
#[derive(Debug, Default, Clone)]
struct Half {
    written: u64,
    finished: bool,
    given_up: bool,
    read: u64,
    saw_end: bool,
    saw_reset: bool,
}

struct World {
    sides: [Streams; 2],
    flights: Vec<Flight>,
    /// By the stream and the side that sends.
    halves: BTreeMap<(StreamId, usize), Half>,
}

fn small() -> Limits {
    Limits {
        receive_window: 300,
        max_receive_window: 900,
        stream_receive_window: 200,
        max_stream_receive_window: 600,
        send_buffer: 700,
        max_streams_bidi: 2,
        max_streams_uni: 3,
        ..limits()
    }
}

impl World {
    fn new(release: Release, max_copies: usize) -> Self {
        let limits = Limits {
            release,
            max_copies,
            ..small()
        };
        let sides = [Side::Client, Side::Server].map(|of| side(of, &limits));
        Self {
            sides,
            flights: Vec::new(),
            halves: BTreeMap::new(),
        }
    }

    fn open(&mut self, at: usize, dir: Dir) {
        let Some(id) = self.sides[at].open(dir) else {
            return;
        };
        self.halves.insert((id, at), Half::default());
        if dir == Dir::Bi {
            self.halves.insert((id, 1 - at), Half::default());
        }
    }

    fn pick(&self, at: usize, pick: usize) -> Option<StreamId> {
        let ids: Vec<_> = self.sides[at].live.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[pick % ids.len()])
    }

    fn write(&mut self, at: usize, id: StreamId, length: usize) {
        let Some(half) = self.halves.get_mut(&(id, at)) else {
            return;
        };
        let mut data = pattern(id, half.written, length);
        if let Ok(count) = self.sides[at].write(id, &mut data) {
            half.written += count as u64;
        }
    }

    fn finish(&mut self, at: usize, id: StreamId) {
        if self.sides[at].finish(id).is_ok() {
            self.halves.get_mut(&(id, at)).unwrap().finished = true;
        }
    }

    fn give_up(&mut self, at: usize, id: StreamId, is_sender: bool) {
        let done = if is_sender {
            self.sides[at].reset(id, 1.into()).is_ok()
        } else {
            self.sides[at].stop(id, 2.into()).is_ok()
        };
        let sender = if is_sender { at } else { 1 - at };
        if let Some(half) = self.halves.get_mut(&(id, sender)).filter(|_| done) {
            half.given_up = true;
        }
    }

    fn read(&mut self, at: usize, id: StreamId, max: usize) -> bool {
        let result = self.sides[at].read(id, max);
        let Some(half) = self.halves.get_mut(&(id, 1 - at)) else {
            return false;
        };
        match result {
            Ok(Some(bytes)) => {
                assert_eq!(
                    bytes,
                    pattern(id, half.read, bytes.len()),
                    "in order and as written"
                );
                assert!(bytes.len() <= max);
                half.read += bytes.len() as u64;
                true
            }
            Ok(None) => {
                half.saw_end = true;
                assert!(half.finished && half.read == half.written);
                false
            }
            Err(ReadError::Reset(_)) => {
                assert!(half.given_up, "a reset only after somebody gave up");
                half.saw_reset = true;
                false
            }
            Err(_) => false,
        }
    }

    fn transmit(&mut self, at: usize, path: PathId, limit: usize, skip: u64) -> bool {
        let streams = &mut self.sides[at];
        let ((), out, sent) = written(limit, |frames| {
            streams.write_control(frames);
            streams.write_data(frames, path, skip, u64::MAX);
        });
        self.launch(at, path, limit, out, sent)
    }

    fn launch(
        &mut self,
        from: usize,
        path: PathId,
        limit: usize,
        payload: Vec<u8>,
        sent: SentFrames,
    ) -> bool {
        assert!(payload.len() <= limit);
        assert_eq!(payload.is_empty(), sent.is_empty());
        let is_some = !sent.is_empty();
        if is_some {
            self.flights.push(Flight {
                from,
                path,
                payload,
                sent,
                arrived: false,
                lost: false,
            });
        }
        is_some
    }

    fn copy(&mut self, index: usize, path: PathId, limit: usize) {
        let Flight {
            from,
            path: first,
            sent,
            ..
        } = self.flights[index].clone();
        let side = &mut self.sides[from];
        let (_, out, copy) = written(limit, |frames| side.write_copy(frames, first, path, &sent));
        self.launch(from, path, limit, out, copy);
    }

    fn deliver(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        flight.arrived = true;
        handle(&mut self.sides[1 - flight.from], &flight.payload).expect("an honest peer");
    }

    fn acknowledge(&mut self, index: usize) {
        let flight = self.flights.remove(index);
        flight
            .sent
            .iter()
            .for_each(|frame| self.sides[flight.from].on_acked(frame));
    }

    fn lose(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        if !std::mem::replace(&mut flight.lost, true) {
            let streams = &mut self.sides[flight.from];
            flight
                .sent
                .iter()
                .for_each(|frame| streams.on_lost(frame, flight.path));
        }
    }

    fn reinject(&mut self, index: usize) {
        let flight = &self.flights[index];
        for frame in &flight.sent {
            self.sides[flight.from].reinject(frame, flight.path);
        }
    }

    /// One arbitrary step.
    fn step(&mut self, (op, a, b): (u8, usize, usize)) {
        let at = a % 2;
        let path = PathId((a / 2 % 3) as u32);
        let flight = (!self.flights.is_empty()).then(|| b % self.flights.len().max(1));
        match (op, flight) {
            (0, _) => self.open(
                at,
                if b.is_multiple_of(2) {
                    Dir::Bi
                } else {
                    Dir::Uni
                },
            ),
            (1..=3, _) => {
                if let Some(id) = self.pick(at, a / 2) {
                    self.write(at, id, b % 400);
                }
            }
            (4, _) => {
                if let Some(id) = self.pick(at, b) {
                    match a / 2 % 8 {
                        0 => self.give_up(at, id, true),
                        1 => self.give_up(at, id, false),
                        _ => self.finish(at, id),
                    }
                }
            }
            (5 | 6, _) => {
                if let Some(id) = self.pick(at, a / 2) {
                    self.read(at, id, b % 300);
                }
            }
            (7..=9, _) => {
                let skip = if op == 9 { a as u64 % 500 } else { 0 };
                self.transmit(at, path, 30 + b % 300, skip);
            }
            (10 | 11, Some(index)) => self.deliver(index),
            (12 | 13, Some(index)) if self.flights[index].arrived => self.acknowledge(index),
            (14, Some(index)) => self.lose(index),
            (15, Some(index)) => self.reinject(index),
            (16, Some(index)) => self.copy(index, path, 60 + a % 300),
            (17, Some(index)) if self.flights[index].lost => drop(self.flights.remove(index)),
            _ => {}
        }
        self.sides.iter().for_each(check);
    }

    /// The channel heals, and the applications finish and read everything.
    fn heal(&mut self) {
        for _ in 0..3000 {
            for at in 0..2 {
                while self.transmit(at, PathId(7), 1200, 0) {}
                let ids: Vec<_> = self.sides[at].live.keys().copied().collect();
                for id in ids {
                    self.finish(at, id);
                    while self.read(at, id, 100) {}
                }
            }
            while !self.flights.is_empty() {
                if self.flights[0].lost && !self.flights[0].arrived {
                    self.flights.remove(0);
                } else {
                    self.deliver(0);
                    self.acknowledge(0);
                }
            }
            self.sides.iter().for_each(check);
            let is_done = |streams: &Streams| streams.is_idle() && streams.live.is_empty();
            if self.sides.iter().all(is_done) {
                return;
            }
        }
        panic!("never settled: {:?}", self.halves);
    }
}

/// Totals are what they are the totals of.
fn check(streams: &Streams) {
    let mut sums = [0; 6];
    for stream in streams.live.values() {
        let Some(send) = &stream.send else { continue };
        let load = send.buf.load();
        let parts = [
            load.above,
            load.free,
            load.again,
            load.unacked,
            load.held,
            load.span,
        ];
        sums.iter_mut()
            .zip(parts)
            .for_each(|(sum, part)| *sum += part);
    }
    let totals = streams.ready.totals();
    let expected = [
        totals.above,
        totals.free,
        totals.again,
        totals.unacked,
        totals.held,
        totals.span,
    ];
    assert_eq!(sums, expected);
    let waiting = |stream: &Stream| stream.recv.as_ref().map_or(0, Recv::out_of_order);
    let out_of_order: u64 = streams.live.values().map(|stream| waiting(stream)).sum();
    assert_eq!(streams.stats.buffered_out_of_order, out_of_order);
    let ages: Vec<_> = streams
        .live
        .values()
        .filter_map(|stream| stream.send.as_ref())
        .collect();
    let oldest = ages.iter().filter(|send| send.buf.load().unacked > 0);
    let oldest = oldest.filter_map(|send| send.buf.oldest_sent()).min();
    assert_eq!(streams.backlog().oldest_unacked, oldest);
    let kind = streams.next_unit().kind;
    let backlog = streams.backlog();
    assert_eq!(kind == UnitKind::Idle, backlog.total() == 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_stream_arrives_whole_or_reset_over_a_channel_that_does_anything(
        steps in prop::collection::vec((0..18u8, any::<usize>(), any::<usize>()), 1..250),
        release in prop::sample::select(vec![Release::Acknowledged, Release::InOrder]),
        max_copies in 1..4usize,
    ) {
        let mut world = World::new(release, max_copies);
        for step in steps {
            world.step(step);
        }
        world.heal();
        for half in world.halves.values() {
            prop_assert!(half.given_up || half.finished && half.saw_end, "{:?}", half);
        }
        for at in 0..2 {
            let (sender, receiver) = (&world.sides[at], &world.sides[1 - at]);
            let returned = receiver.inbound.consumed();
            prop_assert_eq!(sender.outbound.used(), returned, "credit is returned in full");
        }
    }
}
