//! What leaves next: path control first, then data where the scheduler wants it.

use super::Connection;
use crate::config::CreditReturn;
use crate::datagram::Transmit;
use crate::event::Observation;
use crate::handshake::{Handshake, Level};
use crate::packet::{Kind, MIN_USEFUL_ROOM, Packet, SizeRule, Via};
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::placement::{Job, Load, Sight, Task};
use crate::recovery::sent::SentFrame;
use crate::time::Instant;
use crate::wire::frame::{Form, Frame};
use crate::wire::{MIN_DATAGRAM_SIZE, PathId, packet_number};
use smallvec::{SmallVec, smallvec};

/// Acknowledgement-only packets in a row after which one asks to be acknowledged itself, so that
/// the ranges it reports need not be repeated for ever (RFC 9000, section 13.2.4).
const ACKS_BEFORE_PING: u32 = 32;

impl Connection {
    /// Appends the next datagrams for one route to `buf`: up to `max_segments` of equal size.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.clock = self.clock.max(now);
        self.streams.set_clock(self.clock);
        if self.life.is_over() {
            return self.transmit_close(now, buf);
        }
        if self.sent_all_at.take() == Some(now) {
            self.note_all_sent(now);
            return None;
        }
        if let Some(transmit) = self.transmit_handshake(now, buf) {
            return Some(transmit);
        }
        if let Some(transmit) = self.transmit_answer(now, buf) {
            return Some(transmit);
        }
        self.placement.begin();
        if let Some(job) = self.next_job(now, None) {
            return self.transmit_batch(now, job, max_segments, buf);
        }
        self.note_all_sent(now);
        None
    }

    /// Whether 1-RTT packets may be sent: the client waits for the end of the handshake, the server
    /// only for its keys (0.5-RTT).
    pub(super) fn may_send_one_rtt(&self) -> bool {
        self.handshake.has_keys(Level::OneRtt)
            && (self.identity.side().is_server() || self.handshake.is_complete())
    }

    /// The most urgent reason to send something on any path. In a batch only the path that `sent`
    /// can need something for itself that it did not need before.
    fn next_job(&mut self, now: Instant, sent: Option<PathId>) -> Option<Job> {
        let level = self.data_level()?;
        let is_proven = |path: &&Path| path.route().is_validated();
        // Connection IDs must be there before the path that uses them. Where no address is proven,
        // the little that may be sent is for the challenge.
        if self.paths.owes_frames()
            && self.handshake.is_complete()
            && let Some(path) = self.paths.control_path(None).filter(is_proven)
            && path.route().takes_control()
        {
            return Some(Job::new(path.id(), Task::Control));
        }
        let confirmed = self.handshake.is_confirmed();
        let own = |slot: &Slot| Job::of_path(now, slot, confirmed);
        let of_path = match sent {
            None => self.paths.in_use().find_map(own),
            Some(path) => self.paths.slot(path).and_then(own),
        };
        if of_path.is_some() {
            return of_path;
        }
        if let Some(path) = self.ack_routes.due(now, &self.paths) {
            // Data that goes the same way carries the acknowledgement along.
            let data = self.data_job(now, level);
            let data = data.filter(|job| job.path == path);
            return Some(data.unwrap_or(Job::new(path, Task::Acknowledge)));
        }
        if self.has_control()
            && self.settle_control(level)
            && let Some(path) = self
                .credit_path()
                .or_else(|| self.paths.control_path(None).map(Path::id))
            && self.has_control_room(path, level)
        {
            return Some(Job::new(path, Task::Control));
        }
        let (paths, streams) = (&self.paths, &self.streams);
        let repeat = self.placement.next_repeat(now, level, paths, streams);
        repeat.or_else(|| self.data_job(now, level))
    }

    /// What data to send, and where.
    fn data_job(&mut self, now: Instant, level: Level) -> Option<Job> {
        if !self.handshake.is_complete() && self.handshake_waits() {
            // The peer can read nothing without it, and may have earned little more.
            return None;
        }
        let max_ack_delay = self.peer_max_ack_delay();
        let is_watched = self.outbox.is_observed();
        self.placement
            .limit_windows(now, &mut self.paths, &self.streams);
        let job = self.placement.decide(&mut Sight {
            now,
            paths: &self.paths,
            streams: &self.streams,
            one_way: &self.one_way,
            bottlenecks: &self.bottlenecks,
            rng: &mut self.rng,
            level,
            max_ack_delay,
            is_watched,
        });
        if is_watched && let Some(choice) = self.placement.take_news() {
            self.outbox.observe(now, &Observation::Decision { choice });
        }
        job
    }

    /// The path that flow-control credit is to return by, if it is not the best one.
    fn credit_path(&self) -> Option<PathId> {
        let by = match self.config.mechanisms.credit_return {
            CreditReturn::Fastest => None,
            CreditReturn::SamePath => self.last_data.by,
        };
        let able = |slot: &&Slot| Some(slot.id()) == by && slot.takes_frames();
        let slot = self.paths.open().find(able)?;
        let path = slot.open()?;
        (path.route().is_validated() && path.is_healthy()).then_some(path.id())
    }

    /// Writes datagrams for one route, starting with `first`, while the next job fits the batch.
    fn transmit_batch(
        &mut self,
        now: Instant,
        first: Job,
        max_segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let path = self.paths.path(first.path)?;
        let (route, ecn) = match path.previous() {
            Some(previous) if first.by_previous() => (previous, None),
            _ => (path.route(), path.route().ecn_marking()),
        };
        let (tuple, generation) = (route.tuple(), route.generation());
        let mut limit = usize::from(route.max_datagram_size());
        match first.task {
            Task::MtuProbe { size } => limit = usize::from(size),
            // A size that stopped passing must not look like a dead path.
            Task::Probe => limit = limit.min(usize::from(route.safe_datagram_size())),
            _ => {}
        }
        let full = limit;
        let start = buf.len();
        let mut segment_size = 0;
        let mut job = first;
        for segment in 1..=max_segments.max(1) {
            let before = buf.len();
            let size = self.write_datagram(now, job, buf, before + limit);
            debug_assert!(size > 0 || self.life.is_over(), "nothing to write: {job:?}");
            if size == 0 {
                break;
            }
            if segment == 1 {
                segment_size = size;
                limit = size;
            }
            if size < segment_size || !first.is_batchable() || segment == max_segments {
                break;
            }
            match self.next_job(now, Some(first.path)) {
                Some(next) if next.is_batchable() && next.path == first.path => job = next,
                Some(_) => break,
                None => {
                    self.sent_all_at = Some(now);
                    break;
                }
            }
            let slot = self.paths.slot(first.path);
            let Some((slot, path)) = slot.and_then(|slot| Some((slot, slot.path()?))) else {
                break;
            };
            let route = path.route();
            let is_same = route.generation() == generation && route.ecn_marking() == ecn;
            let is_roomy = route.is_validated() && limit == full;
            if !is_same || !is_roomy && !self.fits(job, slot, path, limit) {
                break;
            }
        }
        let length = buf.len() - start;
        let segment_size = (length > segment_size).then_some(segment_size);
        (length > 0).then_some(Transmit {
            tuple,
            ecn,
            length,
            segment_size,
            connection: None,
        })
    }

    /// Whether a datagram of at most `limit` bytes would hold what the job is about, although the
    /// job was made for a larger one.
    fn fits(&self, job: Job, slot: &Slot, path: &Path, limit: usize) -> bool {
        let budget = path.route().amplification_budget();
        let size = limit.min(usize::try_from(budget).unwrap_or(usize::MAX));
        let cid = slot.remote_cids().active();
        let (Some((_, cid, _)), Some(Level::OneRtt)) = (cid, self.data_level()) else {
            return false;
        };
        let space = path.space();
        let number = packet_number::encoded_len(space.peek_pn(), space.largest_acked());
        let around = 1 + cid.len() + number + Handshake::TAG_LEN;
        size >= MIN_USEFUL_ROOM
            && self
                .placement
                .would_write(&job, size - around, &self.streams)
    }

    /// Writes one datagram; returns its size, 0 if nothing could be written.
    fn write_datagram(&mut self, now: Instant, job: Job, buf: &mut Vec<u8>, end: usize) -> usize {
        let start = buf.len();
        let Some(path) = self.paths.path(job.path) else {
            return 0;
        };
        let (via, route) = match path.previous() {
            Some(previous) if job.by_previous() => (Via::Previous, previous),
            _ => (Via::Route, path.route()),
        };
        let budget = route.amplification_budget();
        let end = end.min(start + usize::try_from(budget).unwrap_or(usize::MAX).min(1 << 16));
        let Some(mut packet) = self.begin_packet_via(via, job.path, buf, end) else {
            return 0;
        };
        let mut rule = SizeRule::AsIs;
        match job.task {
            Task::Validate { .. } => {
                packet.set_kind(Kind::Validation);
                let full = end - start >= MIN_DATAGRAM_SIZE;
                if self.write_validation(now, &mut packet, full) && full {
                    rule = SizeRule::AtLeast(start + MIN_DATAGRAM_SIZE);
                }
            }
            Task::Probe => self.write_probe(now, &mut packet),
            Task::MtuProbe { size } => {
                packet.frames().push(&self.question());
                packet.set_kind(Kind::MtuProbe);
                rule = SizeRule::AtLeast(start + usize::from(size));
            }
            Task::Acknowledge => self.write_acks(now, &mut packet, true),
            Task::Control => {
                packet.set_kind(Kind::Control);
                self.write_acks(now, &mut packet, false);
                self.write_control(&mut packet);
            }
            Task::Ping => {
                packet.frames().push(&self.question());
                self.write_timestamp(now, packet.frames());
                if let Some(path) = self.paths.open_path_mut(job.path) {
                    path.take_ping();
                }
            }
            Task::Repeat(number) => self.write_repeat(now, number, &mut packet),
            Task::Data(load) => self.write_data(now, load, &mut packet),
        }
        self.finish_packet(now, packet, rule)
    }

    /// Writes challenges and responses; `full` tells whether the datagram can be full size.
    fn write_validation(&mut self, now: Instant, packet: &mut Packet<'_>, full: bool) -> bool {
        let Some(path) = self.paths.open_path_mut(packet.path()) else {
            return false;
        };
        let by_previous = packet.via() == Via::Previous;
        let wrote = path.write_proof(now, by_previous, packet.frames(), full);
        if packet.via() == Via::Route {
            let (id, multipath) = (packet.path(), self.multipath_active());
            if multipath && self.paths.write_answer_cid(id, packet.frames()) {
                self.ask_for_answer(packet.frames());
            }
            self.write_acks(now, packet, false);
        }
        wrote
    }

    /// A probe carries what is most useful to the peer; on a doubted path that others stand in for
    /// nothing but a PING.
    fn write_probe(&mut self, now: Instant, packet: &mut Packet<'_>) {
        let id = packet.path();
        // A doubted path that nobody stands in for must carry what only it can.
        let alone = !self.paths.has_other_healthy(id);
        let Some(path) = self.paths.open_path_mut(id) else {
            return;
        };
        path.take_probe();
        packet.set_kind(Kind::Probe);
        if path.is_healthy() || alone {
            self.requeue_unacked(id);
            self.write_acks(now, packet, false);
            self.write_control(packet);
            let before = self.streams.bytes_retransmitted();
            let frames = packet.frames();
            let bytes = self.streams.write_data(frames, id, 0, u64::MAX);
            let again = self.streams.bytes_retransmitted() - before;
            if let Some(path) = self.paths.open_path_mut(id) {
                path.count_written(bytes.saturating_sub(again), again);
            }
            self.placement.spend(id, bytes);
        }
        self.ask_for_answer(packet.frames());
        packet.ensure_eliciting();
    }

    /// What a probe is to repeat waits once more: all of the oldest packet that is not
    /// acknowledged, and the control frames of the others.
    fn requeue_unacked(&mut self, id: PathId) {
        let Some(path) = self.paths.path(id) else {
            return;
        };
        let unacked = path.space().iter_unacked().map(|(_, packet)| packet);
        let mut useful = unacked.filter(|packet| packet.ack_eliciting && !packet.frames.is_empty());
        // What is oldest is what the peer waits for, and it may not know what it must do to answer.
        let oldest = useful.next().map(|packet| packet.frames.clone());
        let newer = useful.flat_map(|packet| packet.frames.iter().copied());
        let control: Vec<SentFrame> = newer.filter(is_control).collect();
        for frame in oldest.iter().flatten().chain(&control) {
            if is_control(frame) {
                self.on_frame_lost(Level::OneRtt, id, frame);
            } else {
                self.streams.reinject(frame, id);
            }
        }
    }

    /// Writes data, and what goes along with it.
    fn write_data(&mut self, now: Instant, load: Load, packet: &mut Packet<'_>) {
        let id = packet.path();
        self.write_acks(now, packet, false);
        if self.has_control() {
            self.write_control(packet);
        }
        let is_first = self
            .paths
            .path(id)
            .is_some_and(|path| self.is_first_after_quiet(path));
        if is_first {
            self.ask_for_answer(packet.frames());
        }
        self.placement
            .write(load, packet, &mut self.paths, &mut self.streams);
        if !is_first && self.is_last_for_now() {
            self.ask_for_answer(packet.frames());
        }
    }

    /// Writes a copy that was asked for together with its original.
    fn write_repeat(&mut self, now: Instant, number: u64, packet: &mut Packet<'_>) {
        self.write_acks(now, packet, false);
        let (paths, streams) = (&mut self.paths, &mut self.streams);
        self.placement.write_repeat(number, packet, paths, streams);
    }

    /// Acknowledgements that travel on the packet's path: its own, and those sent its way.
    pub(super) fn write_acks(&mut self, now: Instant, packet: &mut Packet<'_>, alone: bool) {
        let owes = |slot: &Slot| {
            let path = slot.path();
            path.is_some_and(|path| path.space().received().has_unreported())
        };
        if !alone && !self.paths.in_use().any(owes) {
            return;
        }
        let active = self.multipath_active();
        let form = if active { Form::Multipath } else { Form::Plain };
        let carrier = packet.path();
        let travelling: SmallVec<[PathId; 4]> = if self.paths.open_count() <= 1 && !active {
            smallvec![carrier]
        } else {
            self.ack_routes.travelling_on(now, &self.paths, carrier)
        };
        let reported = |id: &PathId| {
            let path = self.paths.path(*id);
            path.is_some_and(|path| path.space().received().has_unreported())
        };
        let frames = packet.frames();
        let before = frames.mark();
        if travelling.iter().any(reported) {
            self.write_timestamp(now, frames);
        }
        let stamped = frames.mark();
        for id in travelling {
            // Also those of a path that is given up: what came on it is acknowledged elsewhere.
            if let Some(path) = self.paths.path_mut(id)
                && path.space().received().has_unreported()
            {
                path.write_ack(now, frames, form);
            }
        }
        if frames.is_at(stamped) {
            // No acknowledgement fitted, so there is nothing to time.
            frames.go_back(before);
        }
        let asks = |path: &Path| {
            path.space().sent_since_ack_eliciting() >= ACKS_BEFORE_PING
                && path.route().takes_control()
        };
        if alone && self.paths.path(carrier).is_some_and(asks) && packet.has_frames() {
            packet.set_kind(Kind::Control);
            packet.frames().put(&Frame::Ping);
        }
    }

    /// Nothing more is to be sent.
    fn note_all_sent(&mut self, now: Instant) {
        for (_, path) in self.paths.open_mut() {
            path.note_app_limited(now);
        }
        let may_send = self.data_level().is_some();
        let (paths, streams) = (&self.paths, &self.streams);
        if let Some((path, span)) = self.placement.note_blocked(now, may_send, paths, streams)
            && let Some(path) = self.paths.open_path_mut(path)
        {
            path.count_blocking(span);
        }
    }
}

/// Whether a frame must arrive but is neither stream data nor an acknowledgement.
fn is_control(frame: &SentFrame) -> bool {
    !matches!(
        frame,
        SentFrame::Stream { .. } | SentFrame::Datagram { .. } | SentFrame::Ack { .. }
    )
}
