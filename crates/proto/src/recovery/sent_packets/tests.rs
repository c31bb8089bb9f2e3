//! What sent packets must do.

use super::*;
use crate::recovery::sent::SentFrame;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A data packet of 1200 bytes.
pub(in crate::recovery) fn packet(time_sent: Instant) -> SentPacket {
    SentPacket {
        lost_at: None,
        time_sent,
        size: 1200,
        ack_eliciting: true,
        in_flight: true,
        is_mtu_probe: false,
        beside_window: None,
        ecn_marked: true,
        tuple_generation: 0,
        bytes_in_flight_after: 1200,
        rate: Snapshot::default(),
        frames: SentFrames::from_slice(&[SentFrame::MaxData]),
    }
}

fn ack_only(time_sent: Instant) -> SentPacket {
    SentPacket {
        ack_eliciting: false,
        in_flight: false,
        size: 40,
        ..packet(time_sent)
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const DELAY: Duration = Duration::from_nanos(100);

fn sent(numbers: std::ops::Range<u64>) -> SentPackets {
    let mut packets = SentPackets::default();
    for pn in numbers {
        packets.insert(pn, packet(at(pn)));
    }
    packets
}

fn numbers(packets: &[(u64, SentPacket)]) -> Vec<u64> {
    packets.iter().map(|(pn, _)| *pn).collect()
}

#[test]
fn a_lost_packet_is_declared_once_one_three_numbers_later_is_acknowledged() {
    let (mut packets, mut acked, mut lost) = (sent(0..10), vec![], vec![]);
    packets.acknowledge(4, 4, &mut acked);
    let next = packets.detect_lost(at(10), 4, DELAY, &mut lost);
    assert_eq!(numbers(&lost), [0, 1]);
    assert_eq!(next, Some(at(102)));
    assert_eq!(packets.bytes_in_flight(), 7 * 1200);
}

#[test]
fn an_overtaken_packet_is_lost_after_the_delay_and_newer_ones_never_are() {
    let (mut packets, mut acked, mut lost) = (sent(0..4), vec![], vec![]);
    packets.acknowledge(1, 1, &mut acked);
    assert_eq!(
        packets.detect_lost(at(99), 1, DELAY, &mut lost),
        Some(at(100))
    );
    assert!(lost.is_empty());
    assert_eq!(packets.detect_lost(at(100), 1, DELAY, &mut lost), None);
    assert_eq!(numbers(&lost), [0]);
    assert_eq!(packets.detect_lost(at(9_999), 1, DELAY, &mut lost), None);
    assert_eq!(packets.ack_eliciting(), 2);
}

#[test]
fn a_late_acknowledgement_returns_the_lost_packet_without_counting_its_bytes_again() {
    let (mut packets, mut acked, mut lost) = (sent(0..6), vec![], vec![]);
    packets.acknowledge(5, 5, &mut acked);
    packets.detect_lost(at(9), 5, DELAY, &mut lost);
    assert_eq!(numbers(&lost), [0, 1, 2]);
    acked.clear();
    packets.acknowledge_lost(1, 5, &mut acked);
    assert_eq!(numbers(&acked), [2, 1]);
    assert!(
        acked
            .iter()
            .all(|(_, late)| !late.in_flight && !late.ecn_marked && late.lost_at == Some(at(9)))
    );
    assert_eq!(acked[0].1.frames[..], [SentFrame::MaxData]);
    packets.acknowledge_lost(1, 5, &mut acked);
    assert_eq!(numbers(&acked), [2, 1], "only once");
    packets.forget_lost_before(at(1));
    packets.acknowledge_lost(0, 5, &mut acked);
    assert_eq!(numbers(&acked), [2, 1], "forgotten in time");
}

#[test]
fn the_memory_of_lost_packets_is_bounded() {
    let total = MAX_LOST_REMEMBERED as u64 + 100;
    let (mut packets, mut acked, mut lost) = (sent(0..total + 3), vec![], vec![]);
    packets.acknowledge(total + 2, total + 2, &mut acked);
    packets.detect_lost(at(0), total + 2, DELAY, &mut lost);
    assert_eq!(lost.len() as u64, total);
    acked.clear();
    packets.acknowledge_lost(0, total, &mut acked);
    assert_eq!(acked.len(), MAX_LOST_REMEMBERED);
    assert_eq!(acked[acked.len() - 1].0, 100, "the newest are remembered");
}

#[test]
fn a_pure_receiver_does_not_collect_its_acknowledgements() {
    let mut packets = SentPackets::default();
    for pn in 0..100_000 {
        packets.insert(pn, ack_only(at(pn)));
    }
    assert_eq!(packets.iter().count(), MAX_ACK_ONLY_REMEMBERED);
    let mut acked = vec![];
    packets.acknowledge(0, 99_999, &mut acked);
    packets.insert(100_000, ack_only(at(1)));
    assert_eq!(
        packets.oldest().map(|(pn, _)| pn),
        Some(100_000),
        "there is room again"
    );
}

#[test]
fn taking_everything_leaves_nothing_in_flight() {
    let (mut packets, mut acked) = (sent(0..5), vec![]);
    packets.acknowledge(2, 2, &mut acked);
    assert_eq!(numbers(&packets.take_all()), [0, 1, 3, 4]);
    assert_eq!((packets.bytes_in_flight(), packets.ack_eliciting()), (0, 0));
    assert!(packets.oldest().is_none());
}

#[derive(Debug, Clone)]
enum Op {
    Send { skip: u64, size: u16, kind: u8 },
    Ack { back: u64, length: u64 },
    Detect { wait: u64 },
    TakeAll,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u64..3, 1u16..1500, 0u8..4)
            .prop_map(|(skip, size, kind)| Op::Send { skip, size, kind }),
        4 => (0u64..40, 0u64..12).prop_map(|(back, length)| Op::Ack { back, length }),
        3 => (0u64..60).prop_map(|wait| Op::Detect { wait }),
        1 => Just(Op::TakeAll),
    ]
}

/// The same in the most obvious way.
#[derive(Default)]
struct Model {
    sent: BTreeMap<u64, SentPacket>,
    lost: BTreeMap<u64, SentPacket>,
    next: u64,
    now: u64,
    largest: Option<u64>,
}

impl Model {
    fn send(&mut self, skip: u64, size: u16, kind: u8) -> (u64, SentPacket) {
        let pn = self.next + skip;
        self.next = pn + 1;
        self.now += 1;
        let base = if kind == 0 {
            ack_only(at(self.now))
        } else {
            packet(at(self.now))
        };
        let packet = SentPacket { size, ..base };
        let kept = self
            .sent
            .values()
            .filter(|p| !p.in_flight && !p.ack_eliciting)
            .count();
        if kind != 0 || kept < MAX_ACK_ONLY_REMEMBERED {
            self.sent.insert(pn, packet.clone());
        }
        (pn, packet)
    }

    fn ack(&mut self, low: u64, high: u64) -> Vec<u64> {
        self.largest = self.largest.max(Some(high));
        let hits: Vec<u64> = self
            .sent
            .range(low..=high)
            .rev()
            .map(|(pn, _)| *pn)
            .collect();
        self.sent.retain(|pn, _| !hits.contains(pn));
        hits
    }

    fn ack_lost(&mut self, low: u64, high: u64) -> Vec<u64> {
        let hits: Vec<u64> = self
            .lost
            .range(low..=high)
            .rev()
            .map(|(pn, _)| *pn)
            .collect();
        self.lost.retain(|pn, _| !hits.contains(pn));
        hits
    }

    fn detect(&mut self) -> (Vec<u64>, Option<Instant>) {
        let Some(largest) = self.largest else {
            return (vec![], None);
        };
        let is_lost = |pn: u64, packet: &SentPacket| {
            let overdue = packet.time_sent + DELAY <= at(self.now);
            pn < largest && (pn + PACKET_THRESHOLD <= largest || overdue)
        };
        let lost: Vec<_> = self
            .sent
            .iter()
            .filter(|(n, p)| is_lost(**n, p))
            .map(|x| *x.0)
            .collect();
        for pn in &lost {
            let packet = self.sent.remove(pn).unwrap();
            if packet.in_flight {
                self.lost.insert(*pn, packet);
            }
        }
        while self.lost.len() > MAX_LOST_REMEMBERED {
            self.lost.pop_first();
        }
        let waiting = self
            .sent
            .range(..largest)
            .filter(|(_, packet)| packet.in_flight);
        (
            lost,
            waiting.map(|(_, packet)| packet.time_sent + DELAY).min(),
        )
    }
}

proptest! {
    #[test]
    fn the_packets_agree_with_a_plain_map(ops in prop::collection::vec(op(), 1..300)) {
        let (mut packets, mut model) = (SentPackets::default(), Model::default());
        for op in ops {
            match op {
                Op::Send { skip, size, kind } => {
                    let (pn, packet) = model.send(skip, size, kind);
                    packets.insert(pn, packet);
                }
                Op::Ack { back, length } if model.next > 0 => {
                    let high = (model.next - 1).saturating_sub(back);
                    let low = high.saturating_sub(length);
                    let mut acked = vec![];
                    packets.acknowledge(low, high, &mut acked);
                    prop_assert_eq!(numbers(&acked), model.ack(low, high));
                    acked.clear();
                    packets.acknowledge_lost(low, high, &mut acked);
                    prop_assert_eq!(numbers(&acked), model.ack_lost(low, high));
                }
                Op::Detect { wait } => {
                    model.now += wait;
                    let mut lost = vec![];
                    let next = model.largest.and_then(|largest| {
                        packets.detect_lost(at(model.now), largest, DELAY, &mut lost)
                    });
                    prop_assert_eq!((numbers(&lost), next), model.detect());
                }
                Op::TakeAll => {
                    let all: Vec<u64> = std::mem::take(&mut model.sent).into_keys().collect();
                    prop_assert_eq!(numbers(&packets.take_all()), all);
                    model.lost.clear();
                }
                Op::Ack { .. } => {}
            }
            let in_flight = model.sent.values().filter(|packet| packet.in_flight);
            let bytes: u64 = in_flight.map(|packet| u64::from(packet.size)).sum();
            let eliciting = model.sent.values().filter(|packet| packet.ack_eliciting).count();
            prop_assert_eq!(packets.bytes_in_flight(), bytes);
            prop_assert_eq!(packets.ack_eliciting(), eliciting);
            let mut times = model.sent.values().filter(|packet| packet.ack_eliciting);
            let first = times.next().map(|packet| packet.time_sent);
            prop_assert_eq!(packets.oldest_eliciting(), first);
            let third = times.nth(SEVERAL - 2).map(|packet| packet.time_sent);
            prop_assert_eq!(packets.third_oldest_eliciting(), third);
            let half = model.next / 2;
            let from: Vec<u64> = packets.iter_from(half).map(|(pn, _)| pn).collect();
            prop_assert_eq!(from, model.sent.range(half..).map(|(n, _)| *n).collect::<Vec<_>>());
            let all: Vec<u64> = packets.iter().map(|(pn, _)| pn).collect();
            prop_assert_eq!(packets.oldest().map(|(pn, _)| pn), all.first().copied());
            prop_assert_eq!(all, model.sent.keys().copied().collect::<Vec<_>>());
        }
    }
}
