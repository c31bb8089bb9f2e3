//! What changes on a path when packets are sent, received, acknowledged or lost.
//!
//! Each method returns what others have to know: the connection carries it to them.

use super::liveness::{Sent, Verdict};
use super::route::Route;
use super::state::Path;
use crate::congestion::{AckEvent, CongestionEvent, Member, SentEvent, SpuriousLoss};
use crate::datagram::{Ecn, Tuple};
use crate::error::TransportError;
use crate::packet::Frames;
use crate::path::ecn::EcnOutcome;
use crate::recovery::ack_policy::AckPolicy;
use crate::recovery::sent::SentFrames;
use crate::recovery::sent_packets::BesideWindow;
use crate::recovery::{LargestNewlyAcked, SentPacket, loss, rate};
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;
use anabranch_wire::frame::{EcnCounts, Form};
use std::ops::RangeInclusive;

/// Weight of one packet in the moving share of losses.
const LOSS_GAIN: f32 = 1.0 / 256.0;

/// The generation that no route ever has.
const NO_ROUTE: u32 = u32::MAX;

/// A packet that leaves.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) pn: u64,
    pub(crate) size: usize,
    /// Its datagram is ECN-marked if the route's are: there is nothing of the handshake in it.
    pub(crate) takes_mark: bool,
    pub(crate) ack_eliciting: bool,
    /// It counts as in flight.
    pub(crate) in_flight: bool,
    pub(crate) is_mtu_probe: bool,
    /// What it is for, if the window was not asked.
    pub(crate) beside_window: Option<BesideWindow>,
    pub(crate) awaits: Sent,
    pub(crate) frames: SentFrames,
}

/// What the packets of one acknowledgement add up to on the current route.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acked {
    pub(crate) bytes: u64,
    pub(crate) eliciting: bool,
    pub(crate) marked: u64,
    pub(crate) prior_in_flight: u64,
    /// What is in flight now.
    pub(crate) in_flight: u64,
    /// The RTT sample that the acknowledgement brought.
    pub(crate) rtt_sample: Option<Duration>,
    /// The newest RTT sample.
    pub(crate) rtt: Duration,
    /// The packet size before and now, if it changed.
    pub(crate) mtu: Option<(u16, u16)>,
    /// The path is trusted again.
    pub(crate) verdict: Option<Verdict>,
    /// What the peer's ECN counts mean, if they were looked at.
    pub(crate) ecn: Option<EcnOutcome>,
}

/// An acknowledgement that told something new.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News<'a> {
    /// The path it came by; `None` if it is one of the handshake.
    pub(crate) by: Option<PathId>,
    /// When it arrived, before it waited for its keys.
    pub(crate) came_at: Instant,
    pub(crate) newly: &'a LargestNewlyAcked,
    /// The peer's delay in answering, as far as it is believed; `None` if nothing is timed.
    pub(crate) delay: Option<Duration>,
    pub(crate) ecn: Option<EcnCounts>,
    pub(crate) max_ack_delay: Duration,
    /// The path is not about to be given up.
    pub(crate) is_open: bool,
}

/// What lost packets amount to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lost {
    pub(crate) event: Option<CongestionEvent>,
    /// The packet size before and now, if it changed.
    pub(crate) mtu: Option<(u16, u16)>,
    /// The route was found to drop packets for their marks, and bears none any more.
    pub(crate) ecn_failed: bool,
}

/// A packet of the path's own space that was authenticated and read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// When it arrived, before it waited for its keys.
    pub(crate) came_at: Instant,
    pub(crate) pn: u64,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) ack_eliciting: bool,
    /// An answer is wanted at once.
    pub(crate) immediate: bool,
    /// It held nothing but a PING.
    pub(crate) lone_ping: bool,
    /// It measures: it wants an answer now, and by the same way.
    pub(crate) measures: bool,
    /// The path is not about to be given up.
    pub(crate) is_open: bool,
}

impl Path {
    /// A packet leaves by the path's route; returns what is remembered of it.
    pub(crate) fn on_sent(&mut self, now: Instant, packet: Leaving) -> SentPacket {
        let size = packet.size as u64;
        self.liveness.on_sent(now, packet.awaits);
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += size;
        self.shaper.on_sent(now, size);
        let route = &mut self.route;
        route.amplification.on_sent(size);
        let ecn_marked = packet.takes_mark && route.ecn.marking().is_some();
        route.ecn.on_sent(ecn_marked);
        let mut snapshot = rate::Snapshot::default();
        if packet.in_flight {
            snapshot = route.rate.on_sent(now, route.in_flight);
            route.in_flight += size;
            route.count_beside_window(packet.beside_window);
            route.pacer.on_sent(now, size);
            route.controller.on_sent(&SentEvent {
                now,
                bytes: size,
                bytes_in_flight: route.in_flight,
                app_limited: route.app_limited,
            });
        }
        if packet.is_mtu_probe {
            route.mtu.on_probe_sent(now, packet.size as u16, packet.pn);
        }
        SentPacket {
            time_sent: now,
            lost_at: None,
            size: packet.size as u16,
            ack_eliciting: packet.ack_eliciting,
            in_flight: packet.in_flight,
            is_mtu_probe: packet.is_mtu_probe,
            beside_window: packet.beside_window,
            ecn_marked,
            tuple_generation: route.generation,
            bytes_in_flight_after: route.in_flight,
            rate: snapshot,
            frames: packet.frames,
        }
    }

    /// A packet leaves by another way than the path's route: its number is used up, and that is
    /// all. What becomes of it says nothing about RTT, congestion or MTU of the route (RFC 9000,
    /// section 9.4), and nothing in it is repeated: it asks or answers, and the asker repeats.
    pub(crate) fn on_sent_elsewhere(&mut self, now: Instant, by_previous: bool, packet: Leaving) {
        let size = packet.size as u64;
        self.count_elsewhere(packet.size);
        if let (true, Some(previous)) = (by_previous, &mut self.previous) {
            previous.amplification.on_sent(size);
        }
        let sent = SentPacket {
            time_sent: now,
            lost_at: None,
            size: packet.size as u16,
            ack_eliciting: false,
            in_flight: false,
            is_mtu_probe: false,
            beside_window: None,
            ecn_marked: false,
            tuple_generation: NO_ROUTE,
            bytes_in_flight_after: self.route.in_flight,
            rate: rate::Snapshot::default(),
            frames: packet.frames,
        };
        self.remember(packet.pn, sent);
    }

    /// Counts a packet that left without being on the route's account.
    pub(crate) fn count_elsewhere(&mut self, size: usize) {
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += size as u64;
    }

    /// A packet that left is one of the path's own packet number space.
    pub(crate) fn remember(&mut self, pn: u64, sent: SentPacket) {
        self.space.remember(pn, sent);
    }

    /// A datagram of this size came along `tuple`, whatever is in it.
    pub(crate) fn on_datagram(&mut self, tuple: Tuple, bytes: u64) {
        self.counters.received_bytes += bytes;
        for route in [Some(&mut self.route), self.previous.as_deref_mut()]
            .into_iter()
            .flatten()
        {
            if route.tuple == tuple {
                route.on_datagram(bytes);
            }
        }
    }

    /// The packet that opened the path came along `tuple`, in a datagram of this size.
    pub(crate) fn on_first_packet(&mut self, tuple: Tuple, bytes: u64) {
        self.on_datagram(tuple, bytes);
        self.counters.received_packets += 1;
    }

    /// A packet number `pn` came along `tuple` and is authentic; whether it is the newest and from
    /// elsewhere, so that the path may have moved.
    pub(crate) fn on_authentic(&mut self, now: Instant, pn: u64, tuple: Tuple) -> bool {
        self.counters.received_packets += 1;
        self.liveness.on_heard(now);
        let largest = self.space.received().largest();
        self.route.tuple != tuple && largest.is_none_or(|largest| pn > largest)
    }

    /// A packet was read; until when acknowledgements take a detour, if one begins now.
    pub(crate) fn on_received(&mut self, now: Instant, packet: Received) -> Option<Instant> {
        let received = self.space.received_mut();
        received.on_received(packet.came_at, packet.pn, packet.ack_eliciting, packet.ecn);
        if packet.ecn == Some(Ecn::Ce) {
            self.counters.ce_marks += 1;
        }
        let probes = packet.lone_ping && !packet.measures;
        if packet.immediate || packet.lone_ping && (packet.measures || packet.is_open) {
            received.request_immediate();
        }
        if !packet.is_open {
            return None;
        }
        if probes {
            return self.liveness.on_lone_ping(now);
        }
        if packet.ack_eliciting && !packet.lone_ping {
            self.liveness.on_other_question();
        }
        None
    }

    /// Writes an acknowledgement of what came and was not reported yet, if there is room.
    pub(crate) fn write_ack(&mut self, now: Instant, frames: &mut Frames<'_>, form: Form) {
        let received = self.space.received_mut();
        received.write_ack(now, frames, form, self.id);
    }

    /// The peer has an acknowledgement that reported packets up to `largest`.
    pub(crate) fn on_ack_acked(&mut self, largest: u64) {
        self.space.received_mut().on_ack_acked(largest);
    }

    /// When the peer wants its packets acknowledged.
    pub(crate) fn set_ack_policy(&mut self, now: Instant, policy: AckPolicy) {
        self.space.received_mut().set_policy(now, policy);
    }

    /// Moves the packets of the path's own space that `ranges` acknowledge to `acked`.
    ///
    /// # Errors
    /// `PROTOCOL_VIOLATION` if one was never sent.
    pub(crate) fn take_acked(
        &mut self,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        acked: &mut Vec<(u64, SentPacket)>,
    ) -> Result<Option<LargestNewlyAcked>, TransportError> {
        self.space.on_ack(ranges, acked)
    }

    /// Packets of the path were acknowledged.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        news: &News<'_>,
        acked: &[(u64, SentPacket)],
    ) -> Acked {
        let mut sum = self.account_acked(now, news, acked);
        self.on_spurious(now, acked);
        if sum.eliciting && news.is_open {
            sum.verdict = self.on_answered(now, news.max_ack_delay, acked);
        }
        if news.by.is_some() {
            let is_newest = news.newly.is_largest_ever;
            sum.ecn = Some(self.route.ecn.on_ack(news.ecn, sum.marked, is_newest));
        }
        sum.in_flight = self.route.in_flight;
        sum.rtt = self.route.rtt.latest();
        sum
    }

    /// Takes acknowledged packets off the routes' accounts and takes the RTT sample.
    fn account_acked(
        &mut self,
        now: Instant,
        news: &News<'_>,
        acked: &[(u64, SentPacket)],
    ) -> Acked {
        let pto = self.pto(news.max_ack_delay);
        self.liveness.on_acked(now, oldest_awaited(acked), pto);
        let mut sum = Acked {
            prior_in_flight: self.route.in_flight,
            ..Acked::default()
        };
        if let Some(delay) = news.delay {
            sum.rtt_sample = self.time(now, news, delay, acked);
        }
        if news.by.is_some() {
            self.pairs.on_ack(now, acked, self.route.mtu.current());
        }
        for (pn, packet) in acked {
            sum.eliciting |= packet.ack_eliciting;
            let current = packet.tuple_generation == self.route.generation;
            let Some(route) = self.route_of(packet.tuple_generation) else {
                continue;
            };
            route.take_off(packet);
            if !current {
                continue;
            }
            route.rate.on_packet_acked(now, packet);
            if packet.is_mtu_probe {
                let old = route.mtu.current();
                if let Some(new) = route.mtu.on_probe_acked(packet.size) {
                    sum.mtu = Some((sum.mtu.map_or(old, |(old, _)| old), new));
                    route.controller.on_mtu(new);
                }
            } else {
                route.mtu.on_acked(packet.size, *pn);
                route.mtu.resume(now, packet.size);
            }
            if packet.in_flight {
                sum.bytes += u64::from(packet.size);
            }
            sum.marked += u64::from(packet.ecn_marked);
            self.loss -= self.loss * LOSS_GAIN;
        }
        self.counters.acked_bytes += sum.bytes;
        sum
    }

    /// Takes an RTT sample of the present route, and returns it.
    fn time(
        &mut self,
        now: Instant,
        news: &News<'_>,
        delay: Duration,
        acked: &[(u64, SentPacket)],
    ) -> Option<Duration> {
        // RFC 10069: an RTT spans both directions, so another return path is another RTT.
        if news.by.is_some_and(|by| self.liveness.on_ack_by(by)) {
            self.route.rtt.restart_min();
        }
        // The route before had an RTT of its own (RFC 9000, section 9.4).
        let current = self.route.generation;
        let newly = news.newly;
        let mut packets = acked.iter();
        if !packets.any(|(pn, packet)| *pn == newly.pn && packet.tuple_generation == current) {
            return None;
        }
        // The wait for keys is no part of it (RFC 9002, section 5.3).
        let rtt = news.came_at.since(newly.time_sent);
        self.route.rtt.on_sample(rtt, delay, now);
        Some(rtt)
    }

    /// Losses that were none: the controller may take back what it did for them.
    fn on_spurious(&mut self, now: Instant, acked: &[(u64, SentPacket)]) {
        for (_, packet) in acked {
            let Some(lost_at) = packet.lost_at else {
                continue;
            };
            // As with the loss: probes are no sign of congestion, and the route before had a window
            // of its own.
            if packet.is_mtu_probe {
                continue;
            }
            self.counters.spurious_losses += 1;
            if packet.tuple_generation == self.route.generation {
                let bytes = u64::from(packet.size);
                let event = SpuriousLoss {
                    now,
                    bytes,
                    lost_at,
                };
                self.route.controller.on_spurious_loss(&event);
            }
        }
    }

    /// Collects the packets that newer acknowledgements or time have overtaken.
    pub(crate) fn detect_lost(&mut self, now: Instant, lost: &mut Vec<(u64, SentPacket)>) {
        self.space.detect_lost(now, &self.route.rtt, lost);
    }

    /// Takes lost packets off the accounts.
    pub(crate) fn on_lost(
        &mut self,
        now: Instant,
        lost: &[(u64, SentPacket)],
        max_ack_delay: Duration,
    ) -> Lost {
        let old = self.route.mtu.current();
        let mut event = None;
        let mut ecn_failed = false;
        for (pn, packet) in lost {
            ecn_failed |= self.account_lost(now, *pn, packet, &mut event);
        }
        // A doubted path was silent, not congested; its controller starts over when it answers.
        if let Some(event) = &mut event
            && self.liveness.is_trusted()
        {
            let rtt = &self.route.rtt;
            let since = rtt.first_sample();
            event.persistent = loss::persistent_congestion(lost, rtt, max_ack_delay, since);
        }
        if event.as_ref().is_some_and(|event| event.persistent) {
            self.route.rtt.restart_min();
        }
        let new = self.route.mtu.current();
        let mtu = (new != old).then_some((old, new));
        Lost {
            event,
            mtu,
            ecn_failed,
        }
    }

    /// Whether the route stops marking packets for the loss of this one.
    fn account_lost(
        &mut self,
        now: Instant,
        pn: u64,
        packet: &SentPacket,
        event: &mut Option<CongestionEvent>,
    ) -> bool {
        let current = packet.tuple_generation == self.route.generation;
        let Some(route) = self.route_of(packet.tuple_generation) else {
            return false;
        };
        let size = u64::from(packet.size);
        route.take_off(packet);
        let ecn_failed = packet.ecn_marked && route.ecn.on_lost() == EcnOutcome::Failed && current;
        if packet.is_mtu_probe {
            route.mtu.on_probe_lost(pn);
            return ecn_failed;
        }
        route.rate.on_lost(size);
        if let Some(mtu) = route.mtu.on_lost(now, packet.size, pn, packet.time_sent) {
            route.controller.on_mtu(mtu);
        }
        let bytes_in_flight = route.in_flight;
        self.counters.lost_packets += 1;
        self.counters.lost_bytes += size;
        self.loss += (1.0 - self.loss) * LOSS_GAIN;
        // What the route before lost says nothing about the present one.
        if packet.in_flight && current {
            let event = event.get_or_insert(CongestionEvent {
                now,
                last_sent: packet.time_sent,
                bytes_lost: 0,
                bytes_in_flight,
                persistent: false,
                ecn: false,
                sent_in_flight: packet.bytes_in_flight_after,
            });
            event.bytes_lost += size;
            event.last_sent = event.last_sent.max(packet.time_sent);
            event.bytes_in_flight = bytes_in_flight;
        }
        ecn_failed
    }

    /// The controller hears of losses or marks.
    pub(crate) fn on_congestion(
        &mut self,
        now: Instant,
        event: &CongestionEvent,
        members: &[Member],
    ) {
        self.route.controller.on_congestion(event, members);
        self.route.update_pacing(now);
    }

    /// The controller hears of what an acknowledgement added up to.
    pub(crate) fn grow_window(
        &mut self,
        now: Instant,
        largest_sent: Instant,
        sum: &Acked,
        members: &[Member],
    ) {
        let route = &mut self.route;
        let rate = route.rate.finish_ack(now, route.rtt.min());
        if let Some(sample) = &rate {
            self.shaper.on_rate(now, sample);
        }
        if sum.bytes > 0 {
            let event = AckEvent {
                now,
                bytes: sum.bytes,
                largest_sent,
                bytes_in_flight: route.in_flight,
                prior_in_flight: sum.prior_in_flight,
                rtt_sample: sum.rtt_sample,
                rtt: route.rtt.view(),
                rate,
                app_limited: route.app_limited,
            };
            route.controller.on_ack(&event, members);
        }
        route.update_pacing(now);
    }

    /// Packets of a space that is gone count as neither acknowledged nor lost.
    pub(crate) fn on_space_gone(&mut self, packets: &[(u64, SentPacket)]) {
        for (_, packet) in packets {
            if let Some(route) = self.route_of(packet.tuple_generation) {
                route.take_off(packet);
            }
        }
        self.liveness.reset_backoff();
    }

    /// The path is given up: returns what was in flight.
    pub(crate) fn on_closing(&mut self) -> Vec<(u64, SentPacket)> {
        self.route.in_flight = 0;
        self.route.forget_beside_window();
        self.previous = None;
        self.elsewhere = super::validation::Elsewhere::default();
        self.liveness.on_closing();
        self.space.take_all()
    }

    /// The route that sent a packet, if it is still there.
    fn route_of(&mut self, generation: u32) -> Option<&mut Route> {
        if self.route.generation == generation {
            return Some(&mut self.route);
        }
        self.previous
            .as_deref_mut()
            .filter(|route| route.generation == generation)
    }
}

/// When the oldest packet was sent that was still waited for.
fn oldest_awaited(acked: &[(u64, SentPacket)]) -> Option<Instant> {
    // In descending order: the last one was sent first.
    let mut packets = acked.iter().rev().map(|(_, packet)| packet);
    let oldest = packets.find(|packet| packet.ack_eliciting && packet.lost_at.is_none());
    oldest.map(|packet| packet.time_sent)
}
