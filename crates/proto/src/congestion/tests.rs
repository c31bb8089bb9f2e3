//! Helpers for the controllers' own tests, and all controllers on one modelled link.

use super::coupled::{Linked, Policy};
use super::*;
use crate::spec::Params;
use std::collections::VecDeque;

/// `ms` milliseconds after the epoch.
pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// An acknowledgement of `bytes`, the last of them sent at `sent_ms`, with an RTT of 50 ms.
pub(super) fn ack(now_ms: u64, sent_ms: u64, bytes: u64) -> AckEvent {
    let rtt = Duration::from_millis(50);
    AckEvent {
        now: at(now_ms),
        bytes,
        largest_sent: at(sent_ms),
        bytes_in_flight: 0,
        prior_in_flight: bytes,
        rtt_sample: Some(rtt),
        rtt: RttView {
            latest: rtt,
            min: rtt,
            smoothed: rtt,
        },
        rate: None,
        app_limited: false,
    }
}

/// A loss of `bytes`, the last of them sent at `sent_ms`.
pub(super) fn loss(now_ms: u64, sent_ms: u64, bytes: u64) -> CongestionEvent {
    CongestionEvent {
        now: at(now_ms),
        last_sent: at(sent_ms),
        bytes_lost: bytes,
        bytes_in_flight: 0,
        persistent: false,
        ecn: false,
        sent_in_flight: bytes,
    }
}

/// A packet of `bytes` that was declared lost at `lost_ms` was acknowledged.
pub(super) fn spurious(now_ms: u64, lost_ms: u64, bytes: u64) -> SpuriousLoss {
    SpuriousLoss {
        now: at(now_ms),
        bytes,
        lost_at: at(lost_ms),
    }
}

/// A path of some packets of 1000 bytes; path 0 is the one in question.
pub(super) fn member(path: u32, packets: u64, rtt_ms: u64) -> Member {
    Member {
        path: PathId(path),
        is_self: path == 0,
        window: packets * 1000,
        ssthresh: packets * 1000,
        smoothed_rtt: Duration::from_millis(rtt_ms),
        bytes_between_losses: 0,
        active: true,
        shares_bottleneck: true,
        probing_rtt: false,
    }
}

/// The same group, with another path in question.
pub(super) fn about<const N: usize>(path: usize, mut group: [Member; N]) -> [Member; N] {
    for (at, member) in group.iter_mut().enumerate() {
        member.is_self = at == path;
    }
    group
}

/// A coupled controller in slow start, for packets of 1000 bytes.
pub(super) fn linked<P: Policy>(policy: P) -> Linked<P> {
    let init = ControllerInit {
        max_datagram_size: 1000,
        now: at(1),
        seed: 7,
        path: PathId(0),
    };
    Linked::build(policy, &mut Params::default(), &init).unwrap()
}

/// The same in congestion avoidance, at the window the group says.
fn avoiding<P: Policy>(policy: P, group: &[Member]) -> Linked<P> {
    let own = group.iter().find(|member| member.is_self).unwrap();
    let mut linked = linked(policy);
    (linked.window.size, linked.window.ssthresh) = (own.window, own.window);
    linked
}

/// What one acknowledged packet adds, in packets.
pub(super) fn growth<P: Policy>(policy: P, group: &[Member]) -> f64 {
    let mut linked = avoiding(policy, group);
    let before = linked.window.size as f64;
    linked.on_ack(&ack(10, 5, 1000), group);
    (linked.window.size as f64 + linked.fraction - before) / 1000.0
}

/// The window after a loss, in packets.
pub(super) fn reduced<P: Policy>(policy: P, group: &[Member]) -> f64 {
    let mut linked = avoiding(policy, group);
    linked.on_congestion(&loss(20, 15, 1000), group);
    linked.window.size as f64 / 1000.0
}

pub(super) const PACKET: u64 = 1200;

/// A bottleneck with a tail-drop queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Bytes per second.
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    /// Bytes that may wait.
    pub(super) buffer: u64,
    /// One packet in so many is lost on the way; 0 for none.
    pub(super) loss_one_in: u64,
}

impl Link {
    pub(super) fn new(rate: u64, rtt_ms: u64, buffer_bdps: f64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        let buffer = (rate as f64 * rtt.as_secs_f64() * buffer_bdps) as u64;
        Self {
            rate,
            rtt,
            buffer,
            loss_one_in: 0,
        }
    }

    pub(super) fn bdp(&self) -> u64 {
        (self.rate as f64 * self.rtt.as_secs_f64()) as u64
    }
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    number: u64,
    sent: Instant,
    first_sent: Instant,
    delivered: u64,
    delivered_at: Instant,
    lost: u64,
    in_flight: u64,
    /// When its acknowledgement arrives; `None` if it was dropped.
    acked: Option<Instant>,
}

/// One sender with data without end, one link, a receiver that acknowledges each packet.
pub(super) struct Transfer {
    pub(super) controller: Box<dyn Controller>,
    pub(super) link: Link,
    pub(super) now: Instant,
    pub(super) delivered: u64,
    pub(super) drops: u64,
    /// Bytes waiting at the bottleneck, summed over packets.
    queued_sum: u64,
    sent: u64,
    lost: u64,
    in_flight: u64,
    packets: VecDeque<Packet>,
    next_number: u64,
    busy_until: Instant,
    next_send: Instant,
    smoothed: Duration,
    min_rtt: Duration,
    first_sent: Instant,
    delivered_at: Instant,
}

impl Transfer {
    pub(super) fn new(controller: Box<dyn Controller>, link: Link) -> Self {
        let start = at(1);
        Self {
            controller,
            link,
            now: start,
            delivered: 0,
            drops: 0,
            queued_sum: 0,
            sent: 0,
            lost: 0,
            in_flight: 0,
            packets: VecDeque::new(),
            next_number: 0,
            busy_until: start,
            next_send: start,
            smoothed: Duration::ZERO,
            min_rtt: Duration::MAX,
            first_sent: start,
            delivered_at: start,
        }
    }

    /// Runs for `time`; returns the share of the link's rate that was delivered and the mean queue.
    pub(super) fn run(&mut self, time: Duration) -> (f64, f64) {
        let (end, delivered) = (self.now + time, self.delivered);
        (self.queued_sum, self.sent) = (0, 0);
        while self.now < end {
            self.step();
        }
        let ideal = self.link.rate as f64 * time.as_secs_f64();
        let queue = self.queued_sum as f64 / self.sent.max(1) as f64;
        ((self.delivered - delivered) as f64 / ideal, queue)
    }

    fn step(&mut self) {
        let window_open = self.in_flight + PACKET <= self.controller.window();
        let send_at = window_open.then_some(self.next_send.max(self.now));
        let ack_at = self.packets.iter().find_map(|packet| packet.acked);
        match (send_at, ack_at) {
            (Some(send), None) => self.send(send),
            (Some(send), Some(ack)) if send < ack => self.send(send),
            (_, Some(ack)) => self.acknowledge(ack),
            (None, None) => self.time_out(),
        }
    }

    fn send(&mut self, now: Instant) {
        self.now = now;
        let queued = self.busy_until.since(now).as_secs_f64() * self.link.rate as f64;
        if self.in_flight == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        self.sent += 1;
        self.in_flight += PACKET;
        self.queued_sum += queued as u64;
        let full = queued as u64 + PACKET > self.link.buffer.max(2 * PACKET);
        let unlucky =
            self.link.loss_one_in > 0 && self.next_number.is_multiple_of(self.link.loss_one_in);
        if !full {
            let time = Duration::from_nanos(PACKET * 1_000_000_000 / self.link.rate);
            self.busy_until = self.busy_until.max(now) + time;
        }
        let arrives = (!full && !unlucky).then(|| self.busy_until + self.link.rtt);
        self.next_number += 1;
        self.packets.push_back(Packet {
            number: self.next_number,
            sent: now,
            first_sent: self.first_sent,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            lost: self.lost,
            in_flight: self.in_flight,
            acked: arrives,
        });
        self.controller.on_sent(&SentEvent {
            now,
            bytes: PACKET,
            bytes_in_flight: self.in_flight,
            app_limited: false,
        });
        let spread = self.smoothed.as_secs_f64().max(0.001);
        let default = (1.25 * self.controller.window() as f64 / spread) as u64;
        let rate = self.controller.pacing_rate().unwrap_or(default).max(1);
        self.next_send =
            self.next_send.max(now) + Duration::from_nanos(PACKET * 1_000_000_000 / rate);
    }

    fn acknowledge(&mut self, now: Instant) {
        self.now = now;
        let place = self
            .packets
            .iter()
            .position(|packet| packet.acked.is_some());
        let place = place.expect("an acknowledgement on its way");
        let packet = self.packets[place];
        let prior_in_flight = self.in_flight;
        self.in_flight -= PACKET;
        self.delivered += PACKET;
        (self.delivered_at, self.first_sent) = (now, packet.sent);
        let latest = now.since(packet.sent);
        self.min_rtt = self.min_rtt.min(latest);
        let first = self.smoothed.is_zero();
        self.smoothed = if first {
            latest
        } else {
            (self.smoothed * 7 + latest) / 8
        };
        let older = |lost: &&Packet| lost.number + 3 <= packet.number;
        let lost = self.packets.iter().take(place).take_while(older).count();
        self.lose(lost);
        self.packets.remove(place - lost);
        let rate = self.rate_sample(&packet);
        self.controller.on_ack(
            &AckEvent {
                now,
                bytes: PACKET,
                largest_sent: packet.sent,
                bytes_in_flight: self.in_flight,
                prior_in_flight,
                rtt_sample: Some(latest),
                rtt: RttView {
                    latest,
                    min: self.min_rtt,
                    smoothed: self.smoothed,
                },
                rate,
                app_limited: false,
            },
            &[],
        );
    }

    fn rate_sample(&self, packet: &Packet) -> Option<RateSample> {
        let acked = self.now.since(packet.delivered_at);
        let interval = acked.max(packet.sent.since(packet.first_sent));
        let delivered = self.delivered - packet.delivered;
        (interval >= self.min_rtt).then(|| RateSample {
            rate: (delivered as f64 / interval.as_secs_f64()) as u64,
            delivered: self.delivered,
            prior_delivered: packet.delivered,
            newly_acked: PACKET,
            lost: self.lost - packet.lost,
            in_flight_at_send: packet.in_flight,
            interval,
            app_limited: false,
        })
    }

    /// Declares the oldest `count` packets lost.
    fn lose(&mut self, count: usize) {
        for packet in self.packets.drain(..count) {
            self.drops += 1;
            self.lost += PACKET;
            self.in_flight -= PACKET;
            self.controller.on_congestion(
                &CongestionEvent {
                    now: self.now,
                    last_sent: packet.sent,
                    bytes_lost: PACKET,
                    bytes_in_flight: self.in_flight,
                    persistent: false,
                    ecn: false,
                    sent_in_flight: packet.in_flight,
                },
                &[],
            );
        }
    }

    /// Everything in flight was dropped.
    fn time_out(&mut self) {
        self.now += self.smoothed * 2 + Duration::from_millis(1);
        self.lose(self.packets.len());
    }
}

pub(super) fn controller(text: &str) -> Box<dyn Controller> {
    let factory = Registry::builtin().factory(&text.parse().unwrap()).unwrap();
    factory.build(&ControllerInit {
        max_datagram_size: PACKET as u16,
        now: at(1),
        seed: 7,
        path: PathId(0),
    })
}

pub(super) fn transfer(text: &str, link: Link) -> Transfer {
    Transfer::new(controller(text), link)
}

#[test]
fn what_leaves_at_the_instant_of_a_restart_is_sent_after_it() {
    for name in ["new-reno", "cubic"] {
        let mut controller = controller(name);
        controller.restart(at(100));
        let before = controller.window();
        controller.on_ack(&ack(150, 100, PACKET), &[]);
        assert_eq!(controller.window(), before + PACKET, "{name}");
    }
}

/// All controllers but the constant window.
fn adaptive() -> impl Iterator<Item = &'static str> {
    let all: Vec<_> = Registry::builtin()
        .entries()
        .iter()
        .map(|e| e.name)
        .collect();
    all.into_iter().filter(|name| *name != "constant")
}

#[test]
fn every_controller_fills_a_link_with_a_fair_buffer() {
    for name in adaptive().chain(["cubic:hystart=false"]) {
        for (rate, rtt_ms) in [(1_250_000, 40), (12_500_000, 20), (125_000, 100)] {
            let mut transfer = transfer(name, Link::new(rate, rtt_ms, 1.0));
            transfer.run(Duration::from_secs(10));
            let (share, _) = transfer.run(Duration::from_secs(20));
            assert!(
                (0.92..=1.01).contains(&share),
                "{name} at {rate} B/s: {share}"
            );
        }
    }
}

#[test]
fn cubic_uses_a_link_that_loses_one_packet_in_a_hundred_whatever_is_sent() {
    let link = Link {
        loss_one_in: 100,
        ..Link::new(12_500_000, 40, 2.0)
    };
    let share = |name| {
        let mut transfer = transfer(name, link);
        transfer.run(Duration::from_secs(5));
        transfer.run(Duration::from_secs(20)).0
    };
    let (usual, strict) = (share("cubic"), share("cubic:random-loss=0"));
    assert!(usual > 0.8, "{usual}");
    assert!(strict < 0.2, "{strict}");
}

#[test]
fn hystart_spares_the_losses_of_slow_start() {
    let drops = |name| {
        let mut transfer = transfer(name, Link::new(12_500_000, 50, 4.0));
        transfer.run(Duration::from_secs(4));
        transfer.drops
    };
    let (with, without) = (drops("cubic"), drops("cubic:hystart=false"));
    assert!(with * 4 < without, "{with} and {without}");
}

#[test]
fn a_window_never_falls_below_two_packets_nor_stalls() {
    for name in adaptive() {
        let link = Link {
            loss_one_in: 3,
            ..Link::new(1_250_000, 40, 1.0)
        };
        let mut transfer = transfer(name, link);
        for _ in 0..50 {
            let (share, _) = transfer.run(Duration::from_millis(200));
            assert!(transfer.controller.window() >= 2 * PACKET, "{name}");
            assert!(share > 0.0, "{name}");
        }
    }
}

#[test]
fn a_transfer_repeats_to_the_byte() {
    for name in adaptive() {
        let run = || {
            let mut transfer = transfer(name, Link::new(1_250_000, 40, 0.5));
            transfer.run(Duration::from_secs(8));
            (
                transfer.delivered,
                transfer.drops,
                transfer.controller.window(),
                transfer.now,
            )
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn no_controller_grows_while_the_window_is_not_the_limit() {
    let group = [member(0, 10, 50), member(1, 10, 50)];
    for entry in Registry::builtin().entries() {
        let mut controller = controller(entry.name);
        for cut in [false, true] {
            let before = controller.window();
            for round in 0..200 {
                let idle = AckEvent {
                    app_limited: true,
                    ..ack(1000 + 50 * round, 990 + 50 * round, 12_000)
                };
                controller.on_ack(&idle, &group);
                let window = controller.window();
                assert!(window <= before, "{}: {before} -> {window}", entry.name);
            }
            if !cut {
                controller.on_congestion(&loss(20_000, 19_000, PACKET), &group);
            }
        }
    }
}

#[test]
fn every_controller_starts_with_the_packets_asked_for() {
    for entry in Registry::builtin().entries() {
        for packets in [2, 32] {
            let text = format!("{}:initial-window={packets}", entry.name);
            let mut controller = controller(&text);
            assert_eq!(controller.window(), packets * PACKET, "{text}");
            controller.on_mtu(1400);
            assert_eq!(controller.window(), packets * 1400, "{text}");
        }
    }
}

#[test]
fn a_probe_for_the_rtt_waits_for_that_of_another_path() {
    let probing = |path| Member {
        probing_rtt: true,
        ..member(path, 10, 50)
    };
    let runs = [
        ([member(0, 10, 50), probing(1)], false),
        ([member(0, 10, 50), member(1, 10, 50)], true),
        ([probing(0), member(1, 10, 50)], true),
    ];
    for (group, expected) in runs {
        let mut bbr = controller("bbr");
        let mut probed = false;
        for ms in (10..20_000).step_by(10) {
            bbr.on_ack(&ack(ms, ms - 5, PACKET), &group);
            probed |= bbr.is_probing_rtt();
        }
        assert_eq!(probed, expected);
    }
}

/// What may happen to a controller of one of two paths.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ack {
        packets: u64,
        app_limited: bool,
    },
    Loss {
        persistent: bool,
        ecn: bool,
    },
    Spurious,
    Restart,
    Mtu(u16),
    Sibling {
        packets: u64,
        rtt_ms: u64,
        between: u64,
        active: bool,
    },
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        8 => (1_u64..40, any::<bool>())
            .prop_map(|(packets, app_limited)| Step::Ack { packets, app_limited }),
        2 => (prop::bool::weighted(0.1), prop::bool::weighted(0.2))
            .prop_map(|(persistent, ecn)| Step::Loss { persistent, ecn }),
        1 => Just(Step::Spurious),
        1 => Just(Step::Restart),
        1 => (1200_u16..9000).prop_map(Step::Mtu),
        2 => (2_u64..10_000, 0_u64..1000, 0_u64..1 << 40, any::<bool>()).prop_map(
            |(packets, rtt_ms, between, active)| Step::Sibling { packets, rtt_ms, between, active }
        ),
    ]
}

/// Does a step at a time with a group of the controller itself and maybe a sibling.
fn apply(
    controller: &mut dyn Controller,
    step: Step,
    now_ms: u64,
    sibling: Option<&mut Member>,
    mds: &mut u64,
) {
    let own = Member {
        window: controller.window(),
        ssthresh: controller.ssthresh(),
        bytes_between_losses: controller.bytes_between_losses(),
        ..member(0, 10, 50)
    };
    let mut group = vec![own];
    if let Some(sibling) = sibling {
        if let Step::Sibling {
            packets,
            rtt_ms,
            between,
            active,
        } = step
        {
            *sibling = Member {
                bytes_between_losses: between,
                active,
                ..member(1, packets, rtt_ms)
            };
        }
        group.push(*sibling);
    }
    match step {
        Step::Ack {
            packets,
            app_limited,
        } => {
            let event = ack(now_ms, now_ms - 50, packets * *mds);
            controller.on_ack(
                &AckEvent {
                    app_limited,
                    ..event
                },
                &group,
            );
        }
        Step::Loss { persistent, ecn } => {
            let event = loss(now_ms, now_ms - 50, if ecn { 0 } else { *mds });
            controller.on_congestion(
                &CongestionEvent {
                    persistent,
                    ecn,
                    ..event
                },
                &group,
            );
        }
        Step::Spurious => controller.on_spurious_loss(&spurious(now_ms, now_ms, 1000)),
        Step::Restart => controller.restart(at(now_ms)),
        Step::Mtu(size) if u64::from(size) > *mds => {
            *mds = u64::from(size);
            controller.on_mtu(size);
        }
        Step::Mtu(_) | Step::Sibling { .. } => {}
    }
}

const COUPLED: [&str; 5] = ["lia", "olia", "balia", "cmt-rpv1", "cmt-rpv2"];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn a_coupled_controller_alone_is_newreno(
        steps in proptest::collection::vec((step(), 1_u64..100), 1..200)
    ) {
        for name in COUPLED {
            let (mut coupled, mut reno) = (controller(name), controller("new-reno"));
            let (mut now, mut sizes) = (100, [PACKET; 2]);
            for (step, passed) in &steps {
                now += passed;
                apply(&mut *coupled, *step, now, None, &mut sizes[0]);
                apply(&mut *reno, *step, now, None, &mut sizes[1]);
                proptest::prop_assert_eq!(coupled.window(), reno.window(), "{}", name);
                proptest::prop_assert_eq!(coupled.ssthresh(), reno.ssthresh(), "{}", name);
            }
        }
    }

    #[test]
    fn no_window_falls_below_two_packets_nor_grows_by_more_than_is_acknowledged(
        steps in proptest::collection::vec((step(), 1_u64..100), 1..200)
    ) {
        for name in adaptive() {
            let mut controller = controller(name);
            let mut sibling = member(1, 10, 50);
            let (mut now, mut size) = (100, PACKET);
            for (step, passed) in &steps {
                now += passed;
                let before = controller.window();
                apply(&mut *controller, *step, now, Some(&mut sibling), &mut size);
                let window = controller.window();
                proptest::prop_assert!(window >= 2 * size, "{name}: {window} after {step:?}");
                // BBR returns at once to the window before a probe or a loss; wVegas decides on a
                // packet once per round.
                let slack = match name {
                    "bbr" => 1 << 40,
                    "wvegas" => size,
                    _ => 0,
                };
                if let Step::Ack { packets, app_limited } = *step {
                    let most = slack + if app_limited { 0 } else { packets * size };
                    proptest::prop_assert!(window <= before + most, "{name}: {before} {window}");
                }
            }
        }
    }
}
